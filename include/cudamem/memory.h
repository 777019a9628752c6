/*
 * libcudamem: virtual memory, buffers that grow, registered and managed memory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_MEMORY_H
#define CUDAMEM_MEMORY_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Virtual memory -------------------------------------------------------------------------------------------------
 *
 * Physical memory that is mapped at reserved addresses: buffers that grow without a copy, one memory at several
 * addresses, and memory that other processes import through a file descriptor.
 */

/** The memory of a device: the context's device where memory is made; elsewhere the device whose ordinal is the number. */
#define CUDAMEM_LOCATION_DEVICE 0
/** The memory of the host. The number is 0. */
#define CUDAMEM_LOCATION_HOST 1
/** The memory of the host's NUMA node with that number. */
#define CUDAMEM_LOCATION_NODE 2
/** The memory of the NUMA node that the calling thread runs on. The number is 0. */
#define CUDAMEM_LOCATION_CURRENT_NODE 3
/** A flag of physical and virtual memory: other processes may import it. Host memory then needs CUDAMEM_LOCATION_NODE. */
#define CUDAMEM_PHYSICAL_SHAREABLE 1
/** A flag of physical and virtual memory: other devices of the machine can be given access over PCIe (GPUDirect RDMA). */
#define CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA 2

/**
 * A flag of physical and virtual memory: round sizes up to the driver's smallest unit instead of the unit that it
 * recommends for speed.
 */
#define CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY 4
/** How physical memory is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_physical_options). */
    size_t size;
    /** CUDAMEM_LOCATION_DEVICE for the context's device, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE. */
    int32_t location;
    /** The NUMA node, with CUDAMEM_LOCATION_NODE; otherwise 0. */
    int32_t node;
    /** CUDAMEM_PHYSICAL_... combined by |. */
    uint32_t flags;
    /** Must be 0. */
    uint32_t reserved;
} cudamem_physical_options;

/** How virtual memory is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_virtual_options). */
    size_t size;
    /** The alignment of allocations in bytes, a power of two. The granularity by default. */
    size_t alignment;
    /** Where allocations should begin if the addresses are free: a multiple of the granularity. Anywhere by default. */
    uint64_t address_hint;
    /** The ordinals of devices, besides the context's own, that may use the memory, which lies on the device. */
    const int32_t *peers;
    /** The number of peers. */
    size_t peer_count;
    /** CUDAMEM_LOCATION_DEVICE for the context's device, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE. */
    int32_t location;
    /** The NUMA node, with CUDAMEM_LOCATION_NODE; otherwise 0. */
    int32_t node;
    /** CUDAMEM_PHYSICAL_... combined by |. */
    uint32_t flags;
    /** Must be 0. */
    uint32_t reserved;
} cudamem_virtual_options;

/**
 * Makes physical memory of at least size bytes. It has no address until it is mapped. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver has none. CUDAMEM_ERROR_OUT_OF_MEMORY.
 * CUDAMEM_ERROR_INVALID_ARGUMENT if size is 0.
 */
cudamem_status cudamem_physical_create(cudamem_context context,
                                       size_t size,
                                       const cudamem_physical_options *options,
                                       cudamem_physical *physical);

/**
 * Gets a file descriptor through which another process imports the memory. The program must close it.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not shareable.
 */
cudamem_status cudamem_physical_export(cudamem_physical physical, int32_t *file);

/**
 * Opens physical memory of size bytes from a file descriptor that another process exported. The library closes the
 * file, even after a failure, unless it is not a file.
 */
cudamem_status cudamem_physical_import(cudamem_context context, int32_t file, size_t size, cudamem_physical *physical);

/** Gets the size in bytes, a multiple of the granularity. */
cudamem_status cudamem_physical_get_size(cudamem_physical physical, size_t *size);

/** Destroys the handle. The memory ends when nothing maps it any more. The null handle is allowed. */
cudamem_status cudamem_physical_destroy(cudamem_physical physical);

/**
 * Makes a resource of virtual memory. Its allocations have whole units of about 2 MiB. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver does not support the options.
 */
cudamem_status cudamem_resource_create_virtual(cudamem_context context,
                                               const cudamem_virtual_options *options,
                                               cudamem_resource *resource);

/**
 * Maps count pieces of physical memory side by side, as one buffer. The pieces may have other addresses already. If
 * the program uses the same bytes through several addresses, it must order the uses.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a piece lies elsewhere than the resource's memory, or if count is 0.
 */
cudamem_status cudamem_resource_map(cudamem_resource resource,
                                    const cudamem_physical *physical,
                                    size_t count,
                                    cudamem_stream stream,
                                    cudamem_buffer *buffer);

/**
 * Makes a growable buffer: reserves addresses for capacity bytes of a resource that cudamem_resource_create_virtual
 * made. The buffer has no bytes yet; cudamem_buffer_grow enlarges it. Slicing it ends its growth.
 */
cudamem_status cudamem_buffer_create_growable(cudamem_resource resource,
                                              size_t capacity,
                                              cudamem_stream stream,
                                              cudamem_buffer *buffer);

/**
 * Grows a buffer to size bytes. The new bytes are zeros, written in stream order. Up to its capacity the buffer keeps
 * its address. Beyond it, the same memory is mapped at another address; moved, which may be NULL, reports whether that
 * happened. Does nothing if the buffer has that many bytes already.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable. CUDAMEM_ERROR_OUT_OF_MEMORY: the buffer is
 * then unchanged.
 */
cudamem_status cudamem_buffer_grow(cudamem_buffer buffer, size_t size, bool *moved);

/**
 * Shrinks a buffer to size bytes. Physical memory that holds none of them returns to the system, after the home
 * stream's work; addresses stay reserved. Does nothing if the buffer has no more bytes than that.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable.
 */
cudamem_status cudamem_buffer_shrink(cudamem_buffer buffer, size_t size);

/* ---- Memory of the host ---------------------------------------------------------------------------------------------
 *
 * The program can register its own memory. Registered memory is page-locked: devices copy it as fast as memory that
 * the driver allocated, and kernels may address it. Managed memory moves to where it is used, and takes advice on
 * that. For page-locked memory of the driver, allocate from cudamem_resource_create_pinned;
 * cudamem_buffer_get_host_pointer returns the CPU's address.
 */

/**
 * A flag of cudamem_buffer_register: neither devices nor the CPU write the memory while it is registered. Calls that
 * would write it are refused, and its views and exports are read-only. Needed for memory that the program itself may
 * not write, such as a mapped file.
 */
#define CUDAMEM_REGISTER_READ_ONLY 1
/** A flag of cudamem_buffer_register: the memory belongs to another device and is mapped into the process. */
#define CUDAMEM_REGISTER_IO_MEMORY 2
/** The memory is mostly read: each reader gets a copy, until a write invalidates the copies. Takes no location. */
#define CUDAMEM_ADVICE_READ_MOSTLY 0
/** Revokes CUDAMEM_ADVICE_READ_MOSTLY. Takes no location. */
#define CUDAMEM_ADVICE_NOT_READ_MOSTLY 1
/** Where the memory should lie. This moves nothing yet. */
#define CUDAMEM_ADVICE_PREFERRED_LOCATION 2
/** Revokes CUDAMEM_ADVICE_PREFERRED_LOCATION. Takes no location. */
#define CUDAMEM_ADVICE_NO_PREFERRED_LOCATION 3
/** Keep the memory mapped for a device, or for the host, wherever it lies. */
#define CUDAMEM_ADVICE_ACCESSED_BY 4
/** Revokes CUDAMEM_ADVICE_ACCESSED_BY. */
#define CUDAMEM_ADVICE_NOT_ACCESSED_BY 5
/** What the driver keeps about a range of managed memory. */
typedef struct {
    /** sizeof(cudamem_managed_info), set by the program. */
    size_t size;
    /** Whether the whole range was advised to be mostly read: 0 or 1. */
    uint32_t read_mostly;
    /** Whether the whole range was last prefetched to one place: 0 or 1. */
    uint32_t prefetched;
    /** That place: one of CUDAMEM_LOCATION_... . */
    int32_t location;
    /** The location's number. */
    int32_t number;
} cudamem_managed_info;

/**
 * Registers size bytes of the program's memory at pointer, and uses them as a buffer. The memory must stay allocated,
 * and be used through the buffer alone, until the library calls release with user, after the last part of the buffer
 * has ended and its work is done; if queued work waits for the CPU then, the call comes later, on any thread. If
 * release is NULL, the rule ends with the last part. Registering locks the pages one by one, at about 0.1 ms for each
 * MiB. flags is CUDAMEM_REGISTER_... combined by |. After a failure the library does not call release.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if some of the memory is registered already, belongs to the driver, or cannot be
 * written though it is not registered as read-only. CUDAMEM_ERROR_OUT_OF_MEMORY at the limit of locked memory. CUDAMEM_ERROR_UNSUPPORTED.
 */
cudamem_status cudamem_buffer_register(void *pointer,
                                       size_t size,
                                       cudamem_stream stream,
                                       uint32_t flags,
                                       cudamem_release_callback release,
                                       void *user,
                                       cudamem_buffer *buffer);

/**
 * Advises the driver on a range of managed memory. advice is one of CUDAMEM_ADVICE_..., location one of
 * CUDAMEM_LOCATION_... with its number. Advice that takes no location ignores both. The driver works in pages, which
 * several buffers may share.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed. CUDAMEM_ERROR_UNSUPPORTED if the driver does
 * not know NUMA nodes.
 */
cudamem_status cudamem_buffer_advise(cudamem_buffer buffer,
                                     size_t offset,
                                     size_t size,
                                     int32_t advice,
                                     int32_t location,
                                     int32_t number);

/**
 * Moves a range of managed memory to a location, in order of the home stream.
 *
 * Errors: as cudamem_buffer_advise. CUDAMEM_ERROR_DRIVER if the device has no concurrent managed access.
 */
cudamem_status cudamem_buffer_prefetch(cudamem_buffer buffer,
                                       size_t offset,
                                       size_t size,
                                       int32_t location,
                                       int32_t number);

/**
 * Describes a range of managed memory. Set info->size first.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed.
 */
cudamem_status cudamem_buffer_get_managed_info(cudamem_buffer buffer,
                                               size_t offset,
                                               size_t size,
                                               cudamem_managed_info *info);

/**
 * Declares that the contents of a range of managed memory are no longer needed, in order of the home stream. The range
 * then lies on the device, without a transfer of its contents. Until it is written again, its contents are undefined.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed. CUDAMEM_ERROR_MISSING_SYMBOL or
 * CUDAMEM_ERROR_UNSUPPORTED on drivers before CUDA 13.0.
 */
cudamem_status cudamem_buffer_discard(cudamem_buffer buffer, size_t offset, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_MEMORY_H */
