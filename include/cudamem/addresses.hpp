// Memory of a resource by address, as allocators of C++ need it: failures are exceptions, or end the program.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#ifndef CUDAMEM_ADDRESSES_HPP
#define CUDAMEM_ADDRESSES_HPP

#include "bad_alloc.hpp"
#include "resource.hpp"

CUDAMEM_NAMESPACE_BEGIN

namespace detail {

/// Allocates for everything that `access` names. An empty block has its own address too.
inline void *allocate(cudamem_resource resource, std::size_t size, std::size_t alignment, std::uint32_t access, void *stream)
{
    std::uint64_t address = 0;
    const cudamem_status status = cudamem_resource_malloc(resource, size, alignment, access, stream, &address);
    if (status != CUDAMEM_SUCCESS) {
        throw_allocation_failure(last_error(status));
    }
    return reinterpret_cast<void *>(static_cast<std::uintptr_t>(address));
}

/// Frees in order of a stream. The block stays if that fails.
inline cudamem_status try_free(cudamem_resource resource, void *pointer, std::size_t size, void *stream) noexcept
{
    return cudamem_resource_free(resource, reinterpret_cast<std::uintptr_t>(pointer), size, stream);
}

/// Frees in order of a stream of the resource's context. A pointer or a size that has no block aborts the program: it
/// was freed twice, or belongs to another resource. If the driver refuses, the memory stays.
inline void free(cudamem_resource resource, void *pointer, std::size_t size, void *stream) noexcept
{
    if (try_free(resource, pointer, size, stream) == CUDAMEM_ERROR_INVALID_ARGUMENT) {
        std::fprintf(stderr, "cudamem: %s\n", cudamem_last_error_message());
        give_up("a freed pointer is not a live block of this memory resource: freed twice, from elsewhere, or of another size");
    }
}

/// Returns `value`, or fails if the resource's memory lacks the access in `wanted`.
template <typename Value>
result<Value> check_access(cudamem_resource resource, std::uint32_t wanted, const char *who, Value value)
{
    cudamem_resource_info info{};
    info.size = sizeof info;
    const cudamem_status status = cudamem_resource_get_info(resource, &info);
    const std::uint32_t access = info.access;
    if (status != CUDAMEM_SUCCESS) {
        return fail<Value>(last_error(status));
    }
    if ((access & wanted) != wanted) {
        const bool host = (wanted & ~access & CUDAMEM_ACCESS_HOST) != 0;
        const std::string message = std::string(who) + ": " + (host ? "the CPU" : "the device") +
                                    " does not address memory of this resource: use one of " +
                                    (host ? "pinned or managed memory, or a pool of it" : "another kind");
        return fail<Value>(error(CUDAMEM_ERROR_INVALID_ARGUMENT, 0, message.c_str()));
    }
    return result<Value>(std::move(value));
}

} // namespace detail

CUDAMEM_NAMESPACE_END

#endif // CUDAMEM_ADDRESSES_HPP
