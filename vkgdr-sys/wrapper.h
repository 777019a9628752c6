/*
 * vkgdr-sys: the vkgdr C interface, written by hand: the twelve functions of upstream's vkgdr 0.1, and those that
 * cuda-mem's libvkgdr adds, which count as release 0.2. The documentation for users is include/vkgdr.h; the
 * conformance tests hold the two headers together.
 *
 * "Since vkgdr x.y." above a function is read by the generator.
 */
#ifndef VKGDR_SYS_WRAPPER_H
#define VKGDR_SYS_WRAPPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A CUDA device's ordinal. */
typedef int CUdevice;
/** An address in a device's view of memory. */
typedef unsigned long long CUdeviceptr;

/** An open device. */
typedef struct vkgdr *vkgdr_t;
/** A piece of device memory that the CPU addresses too. */
typedef struct vkgdr_memory *vkgdr_memory_t;
/** Gives the address of a CUDA driver function by name, or null. */
typedef void *(*vkgdr_symbol_fn)(void *user, const char *name);

/* include/vkgdr.h, where it came first, has these as an enumeration. */
#ifndef VKGDR_H
/** vkgdr_open: take the current CUDA context's device, whatever `device` says. */
#define VKGDR_OPEN_CURRENT_CONTEXT_BIT 1
/** vkgdr_open: treat memory as non-coherent even where it is coherent. */
#define VKGDR_OPEN_FORCE_NON_COHERENT_BIT 2
/** vkgdr_open: fail unless memory is coherent. */
#define VKGDR_OPEN_REQUIRE_COHERENT_BIT 4
#endif

/** Opens a device; null on error. The calling thread's last error says why. Since vkgdr 0.1. */
vkgdr_t vkgdr_open(CUdevice device, uint32_t flags);

/** Closes a device. Its memory must be freed before. Since vkgdr 0.1. */
void vkgdr_close(vkgdr_t g);

/** Allocates `size` bytes on the current context's device; null on error. `flags` is 0. Since vkgdr 0.1. */
vkgdr_memory_t vkgdr_memory_alloc(vkgdr_t g, size_t size, uint32_t flags);

/** Frees memory. Since vkgdr 0.1. */
void vkgdr_memory_free(vkgdr_memory_t mem);

/** Gives the CPU's address of the memory. Since vkgdr 0.1. */
void *vkgdr_memory_get_host_ptr(vkgdr_memory_t mem);

/** Gives the device's address of the memory. Since vkgdr 0.1. */
CUdeviceptr vkgdr_memory_get_device_ptr(vkgdr_memory_t mem);

/** Gives the size of the memory in bytes. Since vkgdr 0.1. */
size_t vkgdr_memory_get_size(vkgdr_memory_t mem);

/** Tells whether the memory is coherent. Since vkgdr 0.1. */
bool vkgdr_memory_is_coherent(vkgdr_memory_t mem);

/** Gives the unit of flush and invalidate in bytes; 1 for coherent memory. Since vkgdr 0.1. */
size_t vkgdr_memory_non_coherent_atom_size(vkgdr_memory_t mem);

/** Makes CPU writes of a range, in bytes, visible to the device. Since vkgdr 0.1. */
void vkgdr_memory_flush(vkgdr_memory_t mem, size_t offset, size_t size);

/** Makes device writes of a range, in bytes, visible to the CPU. Since vkgdr 0.1. */
void vkgdr_memory_invalidate(vkgdr_memory_t mem, size_t offset, size_t size);

/** Gives the last error of the thread as text to be freed with free(), or null. Since vkgdr 0.1. */
char *vkgdr_last_error(void);

/** Gives the library's version as text that is not to be freed. Since vkgdr 0.2. */
const char *vkgdr_version(void);

/** As vkgdr_memory_flush, but tells: 0 is success. Since vkgdr 0.2. */
int vkgdr_memory_flush_checked(vkgdr_memory_t mem, size_t offset, size_t size);

/** As vkgdr_memory_invalidate, but tells: 0 is success. Since vkgdr 0.2. */
int vkgdr_memory_invalidate_checked(vkgdr_memory_t mem, size_t offset, size_t size);

/** Gives a new file descriptor by which another process imports the memory: 0 is success. Since vkgdr 0.2. */
int vkgdr_memory_export_fd(vkgdr_memory_t mem, int *fd);

/** Imports exported memory of `size` bytes; takes the descriptor on success; null on error. Since vkgdr 0.2. */
vkgdr_memory_t vkgdr_memory_import_fd(vkgdr_t g, int fd, size_t size, uint32_t flags);

/** As vkgdr_open, with the CUDA driver's functions taken from `symbol` during the call. Since vkgdr 0.2. */
vkgdr_t vkgdr_open_with_cuda(CUdevice device, uint32_t flags, vkgdr_symbol_fn symbol, void *user);

/** Describes what the library finds on the machine, as JSON text to be freed with free(). Since vkgdr 0.2. */
char *vkgdr_describe(void);

/** Ends what is kept for later opens and that nobody uses now. Since vkgdr 0.2. */
void vkgdr_trim(void);

#ifdef __cplusplus
}
#endif

#endif /* VKGDR_SYS_WRAPPER_H */
