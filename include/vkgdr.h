/* vkgdr: memory of an NVIDIA GPU that the CPU addresses too.
 *
 * Vulkan allocates the memory and maps it for the CPU; CUDA imports it. No kernel module is needed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * This library serves the interface of vkgdr 0.1, and adds the functions of the last section.
 *
 * Threads: all functions may be called from any thread at any time, also with the same handle. The exceptions are
 * vkgdr_close and vkgdr_memory_free: nothing else may use the handle while they run or afterwards. The last error is
 * kept per thread.
 *
 * Processes: handles do not work in a child made by fork. There every function with a handle fails, and frees nothing.
 * The child can open its own handles if CUDA works after a fork.
 *
 * Units: sizes and offsets are in bytes.
 *
 * Errors: functions that return a handle return NULL on error, others the value stated below, and vkgdr_last_error
 * returns the text. A NULL handle is an error too, unless the function allows it. Never pass a handle that was closed
 * or freed: this is not checked.
 *
 * Environment: VKGDR_VULKAN_LIBRARY names the only Vulkan library to use: a loader, or a driver (ICD), with which no
 * loader is needed. Otherwise the library uses libvulkan.so.1, or NVIDIA's driver directly if libvulkan.so.1 is
 * missing or finds no driver for the GPU.
 * CUDA_MEM_LIBCUDA names the only CUDA driver for vkgdr_open to use. VKGDR_TRACE=1 prints the time of each slow step.
 */
#ifndef VKGDR_H
#define VKGDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CUDA's types come from cuda.h if the compiler finds it. Define VKGDR_NO_CUDA_H to never include it. */
#if !defined(VKGDR_NO_CUDA_H) && defined(__has_include)
#if __has_include(<cuda.h>)
#define VKGDR_HAS_CUDA_H 1
#endif
#endif
#ifdef VKGDR_HAS_CUDA_H
#include <cuda.h>
#else
/* A device's number. */
typedef int CUdevice;
/* An address for CUDA. */
typedef unsigned long long CUdeviceptr;
#endif

/* Marks each function as visible, even in a program that hides its own functions. */
#if defined(__GNUC__)
#define VKGDR_API __attribute__((visibility("default")))
#else
#define VKGDR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* An open GPU. */
typedef struct vkgdr *vkgdr_t;

/* An allocation. */
typedef struct vkgdr_memory *vkgdr_memory_t;

/* Flags of vkgdr_open, combined with |. */
typedef enum vkgdr_open_flags {
    /* Open the GPU of the current CUDA context; the device argument is ignored. */
    VKGDR_OPEN_CURRENT_CONTEXT_BIT = 1,
    /* Treat memory as non-coherent even if it is coherent, to find missing flushes and invalidates. */
    VKGDR_OPEN_FORCE_NON_COHERENT_BIT = 2,
    /* Fail if the GPU has no coherent CPU-mappable memory. */
    VKGDR_OPEN_REQUIRE_COHERENT_BIT = 4
} vkgdr_open_flags;

/* Opens a GPU.
 *
 * The program must have called cuInit. flags is 0 or a combination of VKGDR_OPEN_..._BIT; any other bit is an error.
 * The first open of a process takes the Vulkan driver a tenth of a second or more. Later opens take microseconds,
 * because the library keeps the Vulkan objects (see vkgdr_trim).
 *
 * Fails if a library, the Vulkan driver or one of its features is missing, if no Vulkan device has the CUDA device's
 * UUID (a MIG instance has none; a container needs `graphics` in NVIDIA_DRIVER_CAPABILITIES), if the device number is
 * wrong, or if VKGDR_OPEN_CURRENT_CONTEXT_BIT is set and no context is current.
 */
VKGDR_API vkgdr_t vkgdr_open(CUdevice device, uint32_t flags);

/* Closes a GPU. NULL is allowed. Memory allocated from it stays valid and must still be freed. */
VKGDR_API void vkgdr_close(vkgdr_t g);

/* Allocates memory that is mapped for the CPU and for CUDA.
 *
 * size is at least 1; flags must be 0. A context of the GPU must be current, and the CUDA address belongs to it. The
 * contents are undefined. The CPU address is aligned to 64 bytes at least.
 *
 * Every allocation is a driver allocation. It takes 0.1 to 0.3 ms (1 to 2 ms for 64 MiB) and whole pages: allocate
 * large pieces and divide them. VK_ERROR_OUT_OF_DEVICE_MEMORY means that the GPU, or its window for the CPU, is full.
 */
VKGDR_API vkgdr_memory_t vkgdr_memory_alloc(vkgdr_t g, size_t size, uint32_t flags);

/* Frees memory. NULL is allowed.
 *
 * Any context, or none, may be current. The CUDA side is freed in the context in which the memory was allocated, or not
 * at all if that context was destroyed. GPU work that uses the memory must have ended. Driver failures become the
 * thread's last error; the rest is freed all the same.
 */
VKGDR_API void vkgdr_memory_free(vkgdr_memory_t mem);

/* The address for the CPU. NULL on error. */
VKGDR_API void *vkgdr_memory_get_host_ptr(vkgdr_memory_t mem);

/* The address for CUDA. 0 on error. */
VKGDR_API CUdeviceptr vkgdr_memory_get_device_ptr(vkgdr_memory_t mem);

/* The requested size. 0 on error. */
VKGDR_API size_t vkgdr_memory_get_size(vkgdr_memory_t mem);

/* Whether the memory is coherent: CPU and GPU see each other's writes without vkgdr_memory_invalidate, and
 * vkgdr_memory_flush is only a store fence of the CPU. false on error. */
VKGDR_API bool vkgdr_memory_is_coherent(vkgdr_memory_t mem);

/* The atom, the unit in which flush and invalidate work: 1 for coherent memory and on error. Keep data that the CPU
 * writes and data that the GPU writes in different atoms. */
VKGDR_API size_t vkgdr_memory_non_coherent_atom_size(vkgdr_memory_t mem);

/* Makes CPU writes visible to GPU work that is launched afterwards.
 *
 * The range must lie inside the memory; it is widened to whole atoms. A size of 0 is allowed. On coherent memory this
 * is a store fence. It is still needed before another write signals the GPU, because the CPU combines stores to such
 * memory and may reorder them. An error becomes the thread's last error (see vkgdr_memory_flush_checked).
 */
VKGDR_API void vkgdr_memory_flush(vkgdr_memory_t mem, size_t offset, size_t size);

/* Makes GPU writes visible to later CPU reads. The GPU work must have ended: synchronize before.
 *
 * The range must lie inside the memory; it is widened to whole atoms, and unflushed CPU writes to these atoms are lost.
 * A size of 0 is allowed. On coherent memory this is a fence. An error becomes the thread's last error.
 */
VKGDR_API void vkgdr_memory_invalidate(vkgdr_memory_t mem, size_t offset, size_t size);

/* The calling thread's last error, as "message (CODE)", where CODE is VK_..., CUDA_... or VKGDR_ERROR_...; NULL when
 * there is none. The text is the caller's: release it with free().
 *
 * Opening, allocating, importing, exporting and the checked functions clear the last error first. All other functions
 * keep it unless they fail. Reading does not clear it.
 */
VKGDR_API char *vkgdr_last_error(void);

/* ---- Additions of this library: the following is not in vkgdr 0.1 ------------------------------------------------ */

/* Status codes of the functions that return int, besides 0 for success, VkResult's codes (negative, -1 to -1000 and
 * below -1000000000) and CUresult's codes (positive). */
enum {
    /* An argument is out of range, or NULL. */
    VKGDR_ERROR_INVALID_VALUE = -2001,
    /* A handle is NULL, or belongs to the parent process. */
    VKGDR_ERROR_INVALID_HANDLE = -2002,
    /* A library, or a function in it, is missing. */
    VKGDR_ERROR_LIBRARY_NOT_FOUND = -2003,
    /* No Vulkan device corresponds to the CUDA device. */
    VKGDR_ERROR_NO_DEVICE = -2004,
    /* A system call failed. */
    VKGDR_ERROR_SYSTEM = -2005,
    /* A bug in this library. */
    VKGDR_ERROR_INTERNAL = -2006
};

/* The version of the interface and of this library, as "0.1.0+cuda-mem.X.Y.Z". The text is static. Never fails. */
VKGDR_API const char *vkgdr_version(void);

/* As vkgdr_open, but with CUDA functions from the program instead of the system's CUDA driver.
 *
 * The library calls symbol with user and a name such as "cuMemFree_v2"; symbol returns the function's address or NULL.
 * It runs on this thread, during this call only. The functions must stay valid as long as the handle and its memory.
 */
VKGDR_API vkgdr_t vkgdr_open_with_cuda(CUdevice device, uint32_t flags,
                                       void *(*symbol)(void *user, const char *name), void *user);

/* As vkgdr_memory_flush. Returns 0, or a status code with its text as the last error. */
VKGDR_API int vkgdr_memory_flush_checked(vkgdr_memory_t mem, size_t offset, size_t size);

/* As vkgdr_memory_invalidate. Returns 0, or a status code with its text as the last error. */
VKGDR_API int vkgdr_memory_invalidate_checked(vkgdr_memory_t mem, size_t offset, size_t size);

/* Stores a new file descriptor for the memory in *fd. Returns 0, or a status code with *fd unchanged.
 *
 * The caller must close the descriptor; exec closes it too. Another process that gets it over a Unix socket can import
 * it. The memory lives until the last process has freed it. Imported memory can be exported again.
 */
VKGDR_API int vkgdr_memory_export_fd(vkgdr_memory_t mem, int *fd);

/* Maps memory that this or another process exported, for the CPU and for CUDA of this process.
 *
 * g must be the memory's GPU, with the same drivers, and a context of it must be current. size must be the size of the
 * allocation: drivers check it poorly. flags must be 0. On success the library owns the descriptor; on failure it stays
 * the caller's. Free the result with vkgdr_memory_free.
 */
VKGDR_API vkgdr_memory_t vkgdr_memory_import_fd(vkgdr_t g, int fd, size_t size, uint32_t flags);

/* A JSON text: which Vulkan library, drivers and devices were found, or why none was, and what vkgdr would use of each.
 * Needs neither CUDA nor an open GPU. The text is the caller's: release it with free(). NULL only if host memory is
 * exhausted. */
VKGDR_API char *vkgdr_describe(void);

/* Destroys the Vulkan objects that the library keeps for later opens and that no handle or memory uses. */
VKGDR_API void vkgdr_trim(void);

#ifdef __cplusplus
}
#endif

#endif
