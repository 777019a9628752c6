// Makes a failed allocation of the pool raise torch.OutOfMemoryError in a whole program. docs/guide/pytorch.md builds it.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <c10/util/Exception.h>
#include <cudamem.h>

#include <sys/types.h>

extern "C" void *torch_alloc(ssize_t size, int device, void *stream)
{
    void *const memory = cudamem_torch_alloc(size, device, stream);
    // PyTorch frees unused Python objects by itself only when its own allocator fails.
    TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, cudamem_last_error_message());
    return memory;
}

extern "C" void torch_free(void *memory, ssize_t size, int device, void *stream)
{
    cudamem_torch_free(memory, size, device, stream);
}
