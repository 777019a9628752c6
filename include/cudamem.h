/*
 * libcudamem: memory shared by CPU and NVIDIA GPU, for C and C++.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * This file is made from the library's sources by scripts/header.
 *
 *     cudamem_context context;
 *     cudamem_stream stream;
 *     cudamem_resource device, pool;
 *     cudamem_buffer buffer;
 *     if (cudamem_context_open_primary(0, &context) || cudamem_stream_create(context, NULL, &stream) ||
 *         cudamem_resource_create_device(context, &device) || cudamem_pool_create(device, NULL, &pool) ||
 *         cudamem_buffer_allocate(pool, 4096, stream, &buffer) || cudamem_buffer_write(buffer, 0, data, sizeof data)) {
 *         fprintf(stderr, "%s\n", cudamem_last_error_message());
 *     }
 *
 * Errors: every function that can fail returns a cudamem_status, which is 0 for success. Results are written on success
 * only. The text of the calling thread's last failure is cudamem_last_error_message().
 *
 * Threads: every function may be called from any thread at any time, also with the same objects, unless it says otherwise.
 *
 * Pointers: a place for a result must not be NULL, unless the function says so. What a pointer points to must be there during
 * the call: as many bytes as the argument beside it says, or a text that ends with a zero. The library keeps no pointer to the
 * program's memory beyond the call, unless the function says so.
 *
 * Options: a struct of options, or of results, begins with its size, which the program sets: so programs and libraries of
 * different releases understand each other. Set all other fields of options to zero first: zero is the default of each.
 *
 *     cudamem_stream_options options = {0};
 *     options.size = sizeof options;
 *
 * Flags, enumerated values and sizes that this release does not know are CUDAMEM_ERROR_INVALID_ARGUMENT.
 *
 * Units: offsets and sizes are in bytes, times in seconds.
 */
#ifndef CUDAMEM_H
#define CUDAMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version --------------------------------------------------------------------------------------------------------
 *
 * CUDAMEM_VERSION_NUMBER is the release of the header that a program was compiled with, and cudamem_version_number that of
 * the library that it runs with.
 */

/** The release of this header. */
#define CUDAMEM_VERSION_MAJOR 0
#define CUDAMEM_VERSION_MINOR 1
#define CUDAMEM_VERSION_PATCH 0
/** The release as one number, to be compared: major * 1000000 + minor * 1000 + patch. */
#define CUDAMEM_VERSION_NUMBER \
    (CUDAMEM_VERSION_MAJOR * 1000000 + CUDAMEM_VERSION_MINOR * 1000 + CUDAMEM_VERSION_PATCH)

/** Gives the library's release as text, such as "0.1.0". The text is static. */
const char *cudamem_version(void);

/**
 * Gives the library's release as one number, to be compared with CUDAMEM_VERSION_NUMBER: major * 1000000 + minor * 1000 +
 * patch.
 */
uint32_t cudamem_version_number(void);

/* ---- Status ---------------------------------------------------------------------------------------------------------
 *
 * What functions return. The message of the calling thread's last failure has the details: the function, the argument,
 * its value, what it must be, and what to do.
 */

/** What a function returns: CUDAMEM_SUCCESS or one of CUDAMEM_ERROR_... . Later releases may add values. */
typedef int32_t cudamem_status;

/** It worked. */
#define CUDAMEM_SUCCESS 0
/** An argument is NULL or out of its range; a flag, an enumerated value or a size of a struct is unknown. */
#define CUDAMEM_ERROR_INVALID_ARGUMENT 1
/** A library (the CUDA driver, vkgdr) was not found. */
#define CUDAMEM_ERROR_LOAD 2
/** The loaded library is too old for what was asked. */
#define CUDAMEM_ERROR_MISSING_SYMBOL 3
/** The CUDA driver refused; cudamem_last_driver_code has its code. */
#define CUDAMEM_ERROR_DRIVER 4
/** The vkgdr library refused; the message has its words. */
#define CUDAMEM_ERROR_VKGDR 5
/** There is not enough memory, or a limit is reached. The same call may succeed when some is freed. */
#define CUDAMEM_ERROR_OUT_OF_MEMORY 6
/** A range lies outside of its memory. */
#define CUDAMEM_ERROR_OUT_OF_RANGE 7
/** An offset, a size or an address is not the multiple that it must be. */
#define CUDAMEM_ERROR_MISALIGNED 8
/** The driver, the library or the device cannot do this. */
#define CUDAMEM_ERROR_UNSUPPORTED 9
/** A defect of libcudamem: the call was given up. Please report it with the message. */
#define CUDAMEM_ERROR_PANIC 10
/** A handle is null, of another kind, was destroyed, or was never made. Nothing was touched. */
#define CUDAMEM_ERROR_INVALID_HANDLE 11
/** The process was forked after the driver was loaded, which does not survive that. */
#define CUDAMEM_ERROR_FORKED 12
/** The operating system refused a call. */
#define CUDAMEM_ERROR_SYSTEM 13
/** It took longer than the program allowed. */
#define CUDAMEM_ERROR_TIMED_OUT 14
/** The other process has closed the channel, or is gone. */
#define CUDAMEM_ERROR_CLOSED 15
/** A message between processes is too long or comes with the wrong files, or an earlier call failed in the middle of one. */
#define CUDAMEM_ERROR_CHANNEL 16
/** What another process sent is no export, was cut off, changed or forged, or is of another kind, device or pool. */
#define CUDAMEM_ERROR_DESCRIPTOR 17

/**
 * Gives the name of a status, such as "CUDAMEM_ERROR_DRIVER"; for a value that this release does not know,
 * "CUDAMEM_ERROR_UNKNOWN". The text is static.
 */
const char *cudamem_status_name(cudamem_status status);

/**
 * Gives the message of the calling thread's last failure, or NULL if it had none. The text is valid until the same
 * thread's next failure, or until the thread ends.
 */
const char *cudamem_last_error_message(void);

/** Gives the status of the calling thread's last failure, or CUDAMEM_SUCCESS if it had none. */
cudamem_status cudamem_last_error(void);

/** Gives the CUDA driver's own code (CUresult) of the calling thread's last failure, or 0 if the driver had no part in it. */
int32_t cudamem_last_driver_code(void);

/* ---- Handles --------------------------------------------------------------------------------------------------------
 *
 * Objects of the library are named by handles: 64 bits that the library checks. A handle that is null, that stands for
 * another kind of object, whose object was destroyed, or that was never made is CUDAMEM_ERROR_INVALID_HANDLE, and nothing is
 * touched. A handle whose fields are all zero is the null handle; to destroy it is allowed, and does nothing.
 *
 * An object that is destroyed while another thread uses it ends with that use; the destroying call waits for nobody.
 */

/** As a size: all from the offset on. */
#define CUDAMEM_WHOLE_SIZE SIZE_MAX

/** A text of the library. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_text;

/** A CUDA context. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_context;

/** A stream. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_stream;

/** An event. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_event;

/** A source of memory. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_resource;

/** Memory of any source. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_buffer;

/** Mapped memory, or a part of it. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_mapped;

/** A copy engine. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_engine;

/** What goes from one process to another. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_export;

/** A connection to another process. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_channel;

/** Takes connections of other processes. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_listener;

/* ---- Texts ----------------------------------------------------------------------------------------------------------
 *
 * Longer texts, such as JSON, are objects of the library: read them with cudamem_text_get, and destroy them.
 */

/**
 * Gives a text's characters in UTF-8, which end with a zero, and their number without it. length may be NULL. They are valid
 * until the text is destroyed.
 */
cudamem_status cudamem_text_get(cudamem_text text,
                                const char **characters,
                                size_t *length);

/** Destroys a text. The null handle is allowed. */
cudamem_status cudamem_text_destroy(cudamem_text text);

/* ---- Library --------------------------------------------------------------------------------------------------------
 *
 * The CUDA driver is loaded once for the process: by cudamem_load, or by the first function that needs it. CUDA_MEM_LIBCUDA
 * and CUDA_MEM_LIBVKGDR in the environment name other libraries than the system's.
 */

/** How the driver is loaded. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_load_options). */
    size_t size;
    /** The CUDA driver's file; NULL for what the environment names, or the system's. */
    const char *cuda;
    /** The vkgdr library's file; NULL for what the environment names, the system's, or the one that is part of this library. */
    const char *vkgdr;
} cudamem_load_options;

/**
 * Is told of an error: its status, its message, which is valid during the call, and what was set along with the function.
 * It may be called by any thread, also by several at once, and must not unwind.
 */
typedef void (*cudamem_error_callback)(cudamem_status status, const char *message, void *user);

/**
 * Loads and initialises the CUDA driver, and gives the CUDA release that it serves, such as 13000 for 13.0. options may be
 * NULL, and release too. A library that is named here runs its start-up code: it has to be what it claims to be.
 *
 * After a failure it may be called again. Once the driver is loaded, options that name libraries are an error.
 *
 * Errors: CUDAMEM_ERROR_LOAD with every place that was looked at in the message; CUDAMEM_ERROR_DRIVER if the driver does not
 * start.
 */
cudamem_status cudamem_load(const cudamem_load_options *options,
                            uint32_t *release);

/**
 * Gives a JSON text for reports of problems: this library's release, the libraries that serve, the devices, and what vkgdr
 * finds on this machine. What is missing is said in the text; it is no error.
 */
cudamem_status cudamem_describe(cudamem_text *json);

/**
 * Sets the function that is told of every failure of a function of this library, on the thread that met it; NULL ends it.
 * A call on another thread that has begun goes on.
 */
cudamem_status cudamem_set_log(cudamem_error_callback callback,
                               void *user);

/**
 * Sets the function that is told of errors that no function could return: those met while memory is freed by its last user
 * or by the end of what holds it. NULL ends it.
 */
cudamem_status cudamem_set_drop_error_callback(cudamem_error_callback callback,
                                               void *user);

/* ---- Devices --------------------------------------------------------------------------------------------------------
 *
 * A device is named by its ordinal: 0 up to, and without, the count.
 */

/** Pools of device memory. */
#define CUDAMEM_FEATURE_DEVICE_POOLS 0
/** Pools of host memory. */
#define CUDAMEM_FEATURE_HOST_POOLS 1
/** Pools of managed memory. */
#define CUDAMEM_FEATURE_MANAGED_POOLS 2
/** Pools that other processes can import. */
#define CUDAMEM_FEATURE_SHARED_POOLS 3
/** Managed memory. */
#define CUDAMEM_FEATURE_MANAGED 4
/** Managed memory that CPU and device use at the same time. */
#define CUDAMEM_FEATURE_CONCURRENT_MANAGED 5
/** Reserving addresses and mapping physical memory to them. */
#define CUDAMEM_FEATURE_VIRTUAL_MEMORY 6
/** Sharing of plain allocations and events between processes. */
#define CUDAMEM_FEATURE_IPC 7
/** Registering memory of the host. */
#define CUDAMEM_FEATURE_HOST_REGISTER 8
/** Streams that wait for and write words of 32 bits. */
#define CUDAMEM_FEATURE_STREAM_MEMORY_OPERATIONS 9
/** It cannot. */
#define CUDAMEM_SUPPORT_NO 0
/** It can. */
#define CUDAMEM_SUPPORT_YES 1
/** The driver is too old to know the question. It may well be able to: try. */
#define CUDAMEM_SUPPORT_UNKNOWN 2
/** What a device is. */
typedef struct {
    /** sizeof(cudamem_device_info), set by the program. */
    size_t size;
    /** The size of the device's memory in bytes. */
    uint64_t total_memory;
    /** The device's identity: the same in every process and every API. */
    uint8_t uuid[16];
    /** The device's name, which ends with a zero. */
    uint8_t name[256];
    /** The device's PCI address as domain:bus:device.function, which ends with a zero. */
    uint8_t pci_bus_id[32];
} cudamem_device_info;

/** Gives the number of devices. */
cudamem_status cudamem_device_count(int32_t *count);

/** Tells what a device is. info->size is set by the program. */
cudamem_status cudamem_device_get_info(int32_t ordinal, cudamem_device_info *info);

/** Tells whether a device supports a feature, one of CUDAMEM_FEATURE_... : support becomes one of CUDAMEM_SUPPORT_... . */
cudamem_status cudamem_device_supports(int32_t ordinal, int32_t feature, int32_t *support);

/** Tells whether kernels of a device can be given access to another's memory. A device can to its own. */
cudamem_status cudamem_device_can_access_peer(int32_t ordinal, int32_t other, bool *can);

/* ---- Contexts -------------------------------------------------------------------------------------------------------
 *
 * A context is where streams, events and memory of a device live. The library makes no context current for the program:
 * what is current on a thread is the same before and after each call.
 */

/**
 * Opens the primary context of a device, which the CUDA runtime uses too. It is let go when the handle is destroyed and
 * nothing made in it is left.
 */
cudamem_status cudamem_context_open_primary(int32_t ordinal, cudamem_context *context);

/** Makes a context of its own on a device. It ends when the handle is destroyed and nothing made in it is left. */
cudamem_status cudamem_context_create(int32_t ordinal, cudamem_context *context);

/**
 * Uses a context of the program's: raw is a CUcontext. It must stay alive while the handle and what is made in it live; it is
 * not destroyed with them.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the driver does not know it.
 */
cudamem_status cudamem_context_borrow(void *raw,
                                      cudamem_context *context);

/** Gives the driver's handle, a CUcontext. It is valid while the handle lives. */
cudamem_status cudamem_context_get_raw(cudamem_context context, void **raw);

/** Gives the ordinal of the context's device. */
cudamem_status cudamem_context_get_device(cudamem_context context, int32_t *ordinal);

/** Gives the device's memory in bytes: what is free, and all. Either place may be NULL. */
cudamem_status cudamem_context_get_memory(cudamem_context context, uint64_t *free, uint64_t *total);

/**
 * Waits until all work of the context is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_context_synchronize(cudamem_context context);

/** Destroys the handle; the context itself ends when nothing that was made in it is left. The null handle is allowed. */
cudamem_status cudamem_context_destroy(cudamem_context context);

/* ---- Streams --------------------------------------------------------------------------------------------------------
 *
 * Work given to one stream is done in order.
 */

/** A flag of cudamem_stream_options: work of the stream also waits for, and holds back, the legacy default stream. */
#define CUDAMEM_STREAM_BLOCKING 1
/** How a stream is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_stream_options). */
    size_t size;
    /** CUDAMEM_STREAM_... combined by |. */
    uint32_t flags;
    /** Smaller is more urgent. A priority outside of the device's range is brought into it. */
    int32_t priority;
} cudamem_stream_options;

/** A function of the host that a stream runs, with what was given along with it. */
typedef void (*cudamem_host_function)(void *user);

/** Makes a stream. options may be NULL. */
cudamem_status cudamem_stream_create(cudamem_context context,
                                     const cudamem_stream_options *options,
                                     cudamem_stream *stream);

/**
 * Uses a stream of the program's: raw is a CUstream or cudaStream_t of the context, or NULL for its legacy default stream. It
 * must stay alive while the handle lives, and memory and pools use the stream; it is not destroyed with them. A stream that
 * means another on each thread (cudaStreamPerThread) is refused.
 */
cudamem_status cudamem_stream_borrow(cudamem_context context,
                                     void *raw,
                                     cudamem_stream *stream);

/** Gives the driver's handle, a CUstream or cudaStream_t. It is valid while the handle lives. */
cudamem_status cudamem_stream_get_raw(cudamem_stream stream, void **raw);

/**
 * Waits until all work given to the stream so far is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_stream_synchronize(cudamem_stream stream);

/**
 * Tells whether all work given to the stream so far is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_stream_is_done(cudamem_stream stream, bool *done);

/** Lets work given to the stream from now on wait for an event. */
cudamem_status cudamem_stream_wait_event(cudamem_stream stream, cudamem_event event);

/** Lets work given to the stream from now on wait for all work given to other so far. */
cudamem_status cudamem_stream_join(cudamem_stream stream, cudamem_stream other);

/**
 * Runs a function on the host, on a thread of the driver, when all earlier work of the stream is done; later work waits for
 * it. The function must call neither CUDA nor this library, and must not unwind.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the stream captures a graph. The function is then not called.
 */
cudamem_status cudamem_stream_launch_host_function(cudamem_stream stream,
                                                   cudamem_host_function function,
                                                   void *user);

/** Destroys the handle. The stream ends when its work is done and no memory has it as its home. The null handle is allowed. */
cudamem_status cudamem_stream_destroy(cudamem_stream stream);

/* ---- Events ---------------------------------------------------------------------------------------------------------
 *
 * An event is a point in a stream that others can wait for.
 */

/** A flag of cudamem_event_create: the event has time stamps. */
#define CUDAMEM_EVENT_TIMING 1
/** A flag of cudamem_event_create: other processes may import the event. It has no time stamps. */
#define CUDAMEM_EVENT_SHAREABLE 2
/** Makes an event. flags is 0, CUDAMEM_EVENT_TIMING or CUDAMEM_EVENT_SHAREABLE. */
cudamem_status cudamem_event_create(cudamem_context context, uint32_t flags, cudamem_event *event);

/** Gives the driver's handle, a CUevent or cudaEvent_t. It is valid while the handle lives. */
cudamem_status cudamem_event_get_raw(cudamem_event event, void **raw);

/** Sets the event to the stream's present end. The stream is of the event's context. */
cudamem_status cudamem_event_record(cudamem_event event, cudamem_stream stream);

/**
 * Tells whether the work before the event is done. An event that was never recorded has passed.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_event_has_passed(cudamem_event event, bool *passed);

/**
 * Waits for the work before the event.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_event_synchronize(cudamem_event event);

/** Gives the time from an event to a later one, in seconds. Both have time stamps, were recorded, and have passed. */
cudamem_status cudamem_event_elapsed(cudamem_event event, cudamem_event later, double *seconds);

/** Destroys an event. Work that waits for it goes on to do so. The null handle is allowed. */
cudamem_status cudamem_event_destroy(cudamem_event event);

/* ---- Memory resources -----------------------------------------------------------------------------------------------
 *
 * A resource is what buffers are allocated from: a way of the driver's to allocate, a pool of the driver's, mapped memory, or
 * a pool over another resource (cudamem_pool_create). Buffers keep their resource alive, so that its handle may be destroyed
 * before them.
 */

/**
 * A flag of cudamem_resource_create_pinned: the CPU's writes go past its caches, which is faster for the device to read, and
 * very slow for the CPU to read.
 */
#define CUDAMEM_PINNED_WRITE_COMBINED 1

/**
 * A flag of cudamem_resource_create_managed: kernels may use the memory only once it was attached to a stream, and the CPU at
 * any time. Devices with concurrent managed access do not make the difference.
 */
#define CUDAMEM_MANAGED_ATTACH_HOST 1
/** Coherent where the device offers it. */
#define CUDAMEM_COHERENCE_PREFERRED 0
/** Coherent, or an error. */
#define CUDAMEM_COHERENCE_REQUIRED 1
/** Treated as non-coherent even where it is coherent: to find missing flushes. */
#define CUDAMEM_COHERENCE_FORCED_NON_COHERENT 2
/** Device memory. */
#define CUDAMEM_MEMORY_DEVICE 0
/** Page-locked memory of the host. */
#define CUDAMEM_MEMORY_PINNED 1
/** Managed memory. */
#define CUDAMEM_MEMORY_MANAGED 2
/** A flag of cudamem_driver_pool_options: other processes may import the pool. */
#define CUDAMEM_DRIVER_POOL_SHAREABLE 1

/**
 * A flag of cudamem_driver_pool_options: a pool of page-locked memory lies on the host's NUMA node numa_node. Of host memory,
 * other processes import no other.
 */
#define CUDAMEM_DRIVER_POOL_ON_NUMA_NODE 2
/** Kernels may address the memory. */
#define CUDAMEM_ACCESS_DEVICE 1
/** The CPU may address the memory. */
#define CUDAMEM_ACCESS_HOST 2
/** The driver moves the memory between the two. */
#define CUDAMEM_ACCESS_MANAGED 4
/** How a pool of the driver's is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_driver_pool_options). */
    size_t size;
    /** One of CUDAMEM_MEMORY_... . */
    int32_t memory;
    /** CUDAMEM_DRIVER_POOL_... combined by |. */
    uint32_t flags;
    /** The most that the pool holds, in bytes. 0 for the size of the device's memory; of other memory, for no limit. */
    uint64_t max_size;
    /** How much unused memory the pool keeps when a stream is waited for, in bytes. 0 for all of it. */
    uint64_t release_threshold;
    /** The host's NUMA node, with CUDAMEM_DRIVER_POOL_ON_NUMA_NODE; else 0. */
    int32_t numa_node;
    /** 0. */
    uint32_t reserved;
} cudamem_driver_pool_options;

/** What a pool of the driver's has, in bytes. */
typedef struct {
    /** sizeof(cudamem_driver_pool_info), set by the program. */
    size_t size;
    /** What the pool has of the system. */
    uint64_t reserved;
    /** The most that it had. */
    uint64_t reserved_high;
    /** What of that is allocated. */
    uint64_t used;
    /** The most that was. */
    uint64_t used_high;
    /** How much unused memory the pool keeps when a stream is waited for. */
    uint64_t release_threshold;
} cudamem_driver_pool_info;

/** Makes a resource of device memory, by cuMemAlloc: for large blocks that live long. */
cudamem_status cudamem_resource_create_device(cudamem_context context, cudamem_resource *resource);

/**
 * Makes a resource of page-locked memory of the host, by cuMemHostAlloc: a slow call, and a free that waits for the device.
 * flags is 0 or CUDAMEM_PINNED_WRITE_COMBINED.
 */
cudamem_status cudamem_resource_create_pinned(cudamem_context context,
                                              uint32_t flags,
                                              cudamem_resource *resource);

/**
 * Makes a resource of managed memory, which the driver moves between device and host. flags is 0 or
 * CUDAMEM_MANAGED_ATTACH_HOST.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device has none.
 */
cudamem_status cudamem_resource_create_managed(cudamem_context context, uint32_t flags, cudamem_resource *resource);

/**
 * Makes a resource of mapped memory: device memory that the CPU addresses too. coherence is one of CUDAMEM_COHERENCE_... .
 * The first one of a process takes a tenth of a second or more.
 *
 * Errors: CUDAMEM_ERROR_LOAD or CUDAMEM_ERROR_VKGDR if a library, Vulkan, or the device in Vulkan is missing; the message says
 * which.
 */
cudamem_status cudamem_resource_create_mapped(cudamem_context context,
                                              int32_t coherence,
                                              cudamem_resource *resource);

/**
 * Makes a pool of the driver's (cuMemPoolCreate), which allocates and frees in stream order. options may be NULL, for device
 * memory.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver has no such pools.
 */
cudamem_status cudamem_resource_create_driver_pool(cudamem_context context,
                                                   const cudamem_driver_pool_options *options,
                                                   cudamem_resource *resource);

/** Opens the pool that the context's device allocates from at present (cuDeviceGetMemPool). It belongs to the whole process. */
cudamem_status cudamem_resource_open_current_pool(cudamem_context context,
                                                  cudamem_resource *resource);

/** Tells who may address memory of the resource: access becomes CUDAMEM_ACCESS_... combined by |. */
cudamem_status cudamem_resource_get_access(cudamem_resource resource, uint32_t *access);

/**
 * Tells what a pool of the driver's has. info->size is set by the program.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is no pool of the driver's.
 */
cudamem_status cudamem_resource_get_driver_pool_info(cudamem_resource resource, cudamem_driver_pool_info *info);

/**
 * Gives unused memory of a pool of the driver's back to the system, as long as at least keep bytes stay.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is no pool of the driver's.
 */
cudamem_status cudamem_resource_trim_driver_pool(cudamem_resource resource, size_t keep);

/**
 * Lets another device use the memory of a pool of the driver's (cuMemPoolSetAccess): all of it, also what is allocated
 * already.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if there is no path between the devices; CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is
 * no pool of the driver's.
 */
cudamem_status cudamem_resource_allow_access(cudamem_resource resource,
                                             int32_t ordinal);

/** Takes back what cudamem_resource_allow_access gave. Work of that device with the memory must have ended. */
cudamem_status cudamem_resource_deny_access(cudamem_resource resource, int32_t ordinal);

/** Destroys the handle. The resource ends when no memory of it is left. The null handle is allowed. */
cudamem_status cudamem_resource_destroy(cudamem_resource resource);

/* ---- Pools ----------------------------------------------------------------------------------------------------------
 *
 * A pool takes large regions from another resource and divides them: allocations and frees are in stream order, and most of
 * them need no call of the driver. A pool is a resource; the functions here take resources that are such pools, and refuse
 * others with CUDAMEM_ERROR_INVALID_ARGUMENT.
 *
 * Memory that is freed on one stream serves the same stream again at once, and others as `reuse` says.
 */

/**
 * A stream may have another's memory when an event that was recorded after the free has passed; and where the pool would
 * have to grow, it is told to wait for the event. The default.
 */
#define CUDAMEM_REUSE_WAIT 0
/** A stream may have another's memory when an event that was recorded after the free has passed. */
#define CUDAMEM_REUSE_WHEN_PASSED 1
/** A stream never has another's memory while the pool can grow. */
#define CUDAMEM_REUSE_SAME_STREAM_ONLY 2
/** A flag of cudamem_pool_options: threads keep no freed memory to themselves. */
#define CUDAMEM_POOL_NO_FRONTS 1
/** A flag of cudamem_pool_options: an account is kept of the blocks that are there; a block that is freed twice is refused. */
#define CUDAMEM_POOL_TRACKED 2

/**
 * Is called where a pool has no memory left: it may free some, also of this pool, and says whether to look again. requested
 * and free are in bytes; attempt counts the calls for one allocation from 0. It must not unwind.
 */
typedef bool (*cudamem_out_of_memory_callback)(size_t requested, size_t free, uint32_t attempt, void *user);

/** How a pool is made. Zeros are the defaults; sizes are in bytes. */
typedef struct {
    /** sizeof(cudamem_pool_options). */
    size_t size;
    /** The first region, which the pool is made with. 2 MiB by default. */
    uint64_t initial;
    /** The smallest region that the pool grows by. 2 MiB by default. */
    uint64_t smallest_growth;
    /** The largest region that the pool grows by, unless a block needs a larger one. 256 MiB by default. */
    uint64_t largest_growth;
    /** What all regions together may have. No limit by default. */
    uint64_t maximum;
    /** How much freed memory each thread may keep to itself until memory runs short. 64 MiB by default. */
    uint64_t front_capacity;
    /** How many of the newest events a snapshot shows. None by default. */
    uint64_t trace_capacity;
    /** Each time it grows, the pool becomes larger by this factor. 2 by default. */
    double growth_factor;
    /** One of CUDAMEM_REUSE_... . */
    int32_t reuse;
    /** CUDAMEM_POOL_... combined by |. */
    uint32_t flags;
    /** Is called where there is no memory left. None by default. */
    cudamem_out_of_memory_callback on_out_of_memory;
    /** Given to on_out_of_memory. */
    void *user;
} cudamem_pool_options;

/** One figure over the life of a pool. */
typedef struct {
    /** What it is now. */
    uint64_t current;
    /** The most that it was since the peaks were reset. */
    uint64_t peak;
    /** All that was ever added. */
    uint64_t total;
    /** All that was ever taken away. */
    uint64_t freed;
} cudamem_figure;

/** What a pool has and does: bytes, unless it is called a count. */
typedef struct {
    /** sizeof(cudamem_pool_statistics), set by the program. */
    size_t size;
    /** What was asked for in the blocks that there are. */
    cudamem_figure requested;
    /** The sizes of the blocks that there are. */
    cudamem_figure allocated;
    /** How many blocks there are: a count. */
    cudamem_figure blocks;
    /** What blocks use, and what is kept by threads or waits for work. */
    cudamem_figure active;
    /** What is free in regions that hold blocks. */
    cudamem_figure inactive_split;
    /** What the pool has of its upstream. */
    cudamem_figure reserved;
    /** In how many regions: a count. */
    cudamem_figure regions;
    /** What threads keep. */
    uint64_t in_fronts;
    /** Freed memory that waits for work. */
    uint64_t pending;
    /** The largest free range. */
    uint64_t largest_free;
    /** Which part of the free memory lies outside of the largest free range: 0 to 1. */
    double fragmentation;
    /** How many events were recorded: a count. */
    uint64_t events_recorded;
    /** How often streams were told to wait: a count. */
    uint64_t waits;
    /** How often on_out_of_memory asked for another look: a count. */
    uint64_t retries;
    /** How often there was no memory: a count. */
    uint64_t out_of_memory;
} cudamem_pool_statistics;

/**
 * Makes a pool over a resource. options may be NULL. The first region is allocated now. The upstream's handle may be destroyed
 * before the pool's.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if the resource has no room for the first region.
 */
cudamem_status cudamem_pool_create(cudamem_resource upstream,
                                   const cudamem_pool_options *options,
                                   cudamem_resource *pool);

/** Tells what a pool has and does. statistics->size is set by the program. */
cudamem_status cudamem_pool_get_statistics(cudamem_resource pool, cudamem_pool_statistics *statistics);

/** Lets all peaks of the statistics begin anew. */
cudamem_status cudamem_pool_reset_peaks(cudamem_resource pool);

/** Gives every region with its blocks as JSON, which `cuda-mem pool-map` draws. Other threads' calls of the pool wait meanwhile. */
cudamem_status cudamem_pool_get_snapshot(cudamem_resource pool,
                                         cudamem_text *json);

/**
 * Grows until the pool has size bytes of its upstream, free and used together.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the maximum forbids it; CUDAMEM_ERROR_OUT_OF_MEMORY if the upstream has no room.
 */
cudamem_status cudamem_pool_reserve(cudamem_resource pool,
                                    size_t size);

/** Gives regions back that hold no blocks and whose work is done, as long as at least keep bytes stay. Does not wait. */
cudamem_status cudamem_pool_trim(cudamem_resource pool, size_t keep);

/** Waits for the work that freed memory waits for, and gives all regions back that hold no blocks. */
cudamem_status cudamem_pool_release_unused(cudamem_resource pool);

/**
 * Waits for the work of a stream, and lets go of the stream: to be called before a stream of the program's
 * (cudamem_stream_borrow) is destroyed.
 */
cudamem_status cudamem_pool_release_stream(cudamem_resource pool, cudamem_stream stream);

/**
 * Gives the block at a device address a name, which snapshots show until the block is freed.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the pool has no block that begins there.
 */
cudamem_status cudamem_pool_set_name(cudamem_resource pool, uint64_t device_pointer, const char *name);

/* ---- Buffers --------------------------------------------------------------------------------------------------------
 *
 * A buffer is memory of a resource, or the program's own. It has a home stream: its copies and fills are done in order of
 * that stream, and so is its free. Offsets and sizes are in bytes; a size of CUDAMEM_WHOLE_SIZE is all from the offset on.
 *
 * Threads that call functions with one buffer at the same time do so in turns. Copies to and from the host wait until they
 * are done; others do not.
 */

/** Is called when borrowed memory is used no more, with what was given along with it, on any thread. It must not unwind. */
typedef void (*cudamem_release_callback)(void *user);

/**
 * Allocates size bytes of a resource. stream becomes the home stream: the memory is for its work from now on. The contents are
 * undefined. A size of 0 is allowed.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room; CUDAMEM_ERROR_INVALID_ARGUMENT if the stream captures a graph or is
 * of another device.
 */
cudamem_status cudamem_buffer_allocate(cudamem_resource resource,
                                       size_t size,
                                       cudamem_stream stream,
                                       cudamem_buffer *buffer);

/**
 * Uses memory of the program's as a buffer: size bytes at pointer, a device's address or one of the host. It must stay
 * allocated until release was called with user, which the end of the last part of the buffer does when its work is done; where
 * release is NULL, until that end. After a failure release is not called.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the address is 0 or the memory would not end within the address space.
 */
cudamem_status cudamem_buffer_borrow(uint64_t pointer,
                                     size_t size,
                                     cudamem_stream stream,
                                     cudamem_release_callback release,
                                     void *user,
                                     cudamem_buffer *buffer);

/**
 * Makes a buffer of a part of another, which shares the ownership of the memory: it is freed when the last part of it is
 * destroyed.
 */
cudamem_status cudamem_buffer_slice(cudamem_buffer buffer,
                                    size_t offset,
                                    size_t size,
                                    cudamem_buffer *slice);

/** Gives the size in bytes. */
cudamem_status cudamem_buffer_get_size(cudamem_buffer buffer, size_t *size);

/**
 * Gives the address for kernels and for the driver (a CUdeviceptr), valid while a part of the memory lives; 0 where there is no
 * memory. Tell the buffer of work on other streams than its own that uses it: cudamem_buffer_record_use.
 */
cudamem_status cudamem_buffer_get_device_pointer(cudamem_buffer buffer,
                                                 uint64_t *pointer);

/**
 * Gives the address for the CPU, valid while a part of the memory lives. Before the CPU uses it, wait for device work
 * (cudamem_buffer_synchronize) and, in non-coherent memory, call cudamem_buffer_invalidate; after it has written,
 * cudamem_buffer_flush.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory.
 */
cudamem_status cudamem_buffer_get_host_pointer(cudamem_buffer buffer, void **pointer);

/** Tells who may address the memory: access becomes CUDAMEM_ACCESS_... combined by |. */
cudamem_status cudamem_buffer_get_access(cudamem_buffer buffer, uint32_t *access);

/** Makes stream the home stream: it waits for all work of the buffer so far. */
cudamem_status cudamem_buffer_set_stream(cudamem_buffer buffer, cudamem_stream stream);

/**
 * Tells the buffer of work given to stream so far that uses its memory: what the buffer does from now on waits for that work,
 * its free too.
 */
cudamem_status cudamem_buffer_record_use(cudamem_buffer buffer,
                                         cudamem_stream stream);

/** Waits until all work of the home stream so far is done. */
cudamem_status cudamem_buffer_synchronize(cudamem_buffer buffer);

/** Copies size bytes of the host to the buffer, from offset on. Returns when that is done. */
cudamem_status cudamem_buffer_write(cudamem_buffer buffer, size_t offset, const void *source, size_t size);

/** Copies size bytes of the buffer, from offset on, to the host. Returns when that is done. */
cudamem_status cudamem_buffer_read(cudamem_buffer buffer, size_t offset, void *destination, size_t size);

/**
 * Copies size bytes of source, from source_offset on, to the buffer, from offset on, in order of the buffer's stream: after
 * the work of both buffers so far, and before their later work. They may be parts of one memory; the two ranges must not
 * overlap.
 */
cudamem_status cudamem_buffer_copy(cudamem_buffer buffer,
                                   size_t offset,
                                   cudamem_buffer source,
                                   size_t source_offset,
                                   size_t size);

/**
 * Fills size bytes from offset on with a value of value_size bytes (1, 2, 4, 8 or 16) again and again, by the device, in
 * stream order. Offset and size are multiples of value_size.
 */
cudamem_status cudamem_buffer_fill(cudamem_buffer buffer,
                                   size_t offset,
                                   size_t size,
                                   const void *value,
                                   size_t value_size);

/** Tells whether two buffers hold the same bytes, after the work of both so far. Waits for that. */
cudamem_status cudamem_buffer_equals(cudamem_buffer buffer, cudamem_buffer other, bool *equal);

/**
 * Makes what the CPU wrote to a range through its address visible to device work given after this. Needed in mapped and
 * write-combined memory; elsewhere it does nothing.
 */
cudamem_status cudamem_buffer_flush(cudamem_buffer buffer, size_t offset, size_t size);

/**
 * Makes what the device wrote to a range visible to the CPU, when that work is done. Needed in non-coherent mapped memory and,
 * without concurrent managed access, in managed memory; elsewhere it does nothing.
 */
cudamem_status cudamem_buffer_invalidate(cudamem_buffer buffer,
                                         size_t offset,
                                         size_t size);

/**
 * Destroys the handle, and frees the memory in order of the home stream if no other part of it is left. The null handle is
 * allowed.
 *
 * Errors: the driver's, if it refuses to free the memory; the handle then stays valid.
 */
cudamem_status cudamem_buffer_destroy(cudamem_buffer buffer);

/** As cudamem_buffer_destroy, in order of another stream, which waits for the work of the home stream. */
cudamem_status cudamem_buffer_destroy_on(cudamem_buffer buffer, cudamem_stream stream);

/* ---- Mapped memory --------------------------------------------------------------------------------------------------
 *
 * Device memory that the CPU addresses too, for the program, kernels and other processes at once. A CPU store to it reaches
 * the device in about 0.1 us. What is written is visible to device work given after it was flushed, and what the device wrote
 * to the CPU after that work is done and the range was invalidated; cudamem_mapped_write and _read do both. On coherent memory
 * a flush is a store fence. On non-coherent memory it moves whole atoms: what the CPU and what the device writes at one time
 * must not share one.
 *
 * Threads may use one memory at once. Writes of several bytes are not atomic; words are.
 */

/**
 * Allocates size bytes, at least 1, of a resource that cudamem_resource_create_mapped made. A call of the driver each time (200
 * us on a GPU): allocate large pieces, and divide them.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room; CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is another's.
 */
cudamem_status cudamem_mapped_allocate(cudamem_resource resource,
                                       size_t size,
                                       cudamem_mapped *mapped);

/** Makes a handle of a part, which shares the ownership: the memory is freed when the last part of it is destroyed. */
cudamem_status cudamem_mapped_slice(cudamem_mapped mapped, size_t offset, size_t size, cudamem_mapped *slice);

/** Writes size bytes at offset by CPU stores, and flushes. */
cudamem_status cudamem_mapped_write(cudamem_mapped mapped, size_t offset, const void *source, size_t size);

/** Invalidates, and reads size bytes at offset by CPU loads. Loads from a GPU's memory are slow: 1 us for each 64 bytes. */
cudamem_status cudamem_mapped_read(cudamem_mapped mapped, size_t offset, void *destination, size_t size);

/** Makes what the CPU wrote to a range through its address visible to device work given after this. */
cudamem_status cudamem_mapped_flush(cudamem_mapped mapped, size_t offset, size_t size);

/**
 * Makes what the device wrote to a range visible to the CPU, when that work is done. On non-coherent memory, flush what the CPU
 * wrote through its address before, or it is lost.
 */
cudamem_status cudamem_mapped_invalidate(cudamem_mapped mapped,
                                         size_t offset,
                                         size_t size);

/** Writes one word of 32 bits after all earlier writes of this thread, and flushes: for flags. offset is a multiple of 4. */
cudamem_status cudamem_mapped_store_u32(cudamem_mapped mapped,
                                        size_t offset,
                                        uint32_t word);

/** Reads one word of 32 bits before all later reads of this thread: for flags. offset is a multiple of 4. */
cudamem_status cudamem_mapped_load_u32(cudamem_mapped mapped, size_t offset, uint32_t *word);

/** As cudamem_mapped_store_u32, of 64 bits. offset is a multiple of 8. */
cudamem_status cudamem_mapped_store_u64(cudamem_mapped mapped, size_t offset, uint64_t word);

/** As cudamem_mapped_load_u32, of 64 bits. offset is a multiple of 8. */
cudamem_status cudamem_mapped_load_u64(cudamem_mapped mapped, size_t offset, uint64_t *word);

/**
 * Writes what the device sees, by the driver's copy, which is done when this returns. What the CPU wrote there is flushed
 * before.
 */
cudamem_status cudamem_mapped_device_write(cudamem_mapped mapped,
                                           size_t offset,
                                           const void *source,
                                           size_t size);

/** Reads what the device sees, by the driver's copy. */
cudamem_status cudamem_mapped_device_read(cudamem_mapped mapped, size_t offset, void *destination, size_t size);

/** Gives the size in bytes. */
cudamem_status cudamem_mapped_get_size(cudamem_mapped mapped, size_t *size);

/** Gives the unit of flush and invalidate in bytes: 1 for coherent memory. */
cudamem_status cudamem_mapped_get_atom(cudamem_mapped mapped, size_t *atom);

/** Gives the address for kernels and for the driver (a CUdeviceptr), valid while a part of the memory lives. */
cudamem_status cudamem_mapped_get_device_pointer(cudamem_mapped mapped, uint64_t *pointer);

/** Gives the address for the CPU, valid while a part of the memory lives. Flush after writing through it. */
cudamem_status cudamem_mapped_get_host_pointer(cudamem_mapped mapped, void **pointer);

/**
 * Destroys the handle. The memory is freed at once if no other part of it is left: device work that uses it must have ended.
 * The null handle is allowed.
 */
cudamem_status cudamem_mapped_destroy(cudamem_mapped mapped);

/* ---- Copy engines ---------------------------------------------------------------------------------------------------
 *
 * A copy engine copies between the host and one device in the way that is fastest on this machine for each size and kind of
 * memory. The first large copy of its kind measures the machine, which takes up to 0.2 s. One engine serves any number of
 * threads at once.
 */

/** Makes an engine for a context's device. */
cudamem_status cudamem_engine_create(cudamem_context context, cudamem_engine *engine);

/** Copies size bytes of the host to a buffer, from offset on. Device work given after this sees them. */
cudamem_status cudamem_engine_write_buffer(cudamem_engine engine,
                                           cudamem_buffer buffer,
                                           size_t offset,
                                           const void *source,
                                           size_t size);

/** Copies size bytes of a buffer, from offset on, to the host. Returns when that is done. */
cudamem_status cudamem_engine_read_buffer(cudamem_engine engine,
                                          cudamem_buffer buffer,
                                          size_t offset,
                                          void *destination,
                                          size_t size);

/** As cudamem_engine_write_buffer, to mapped memory. */
cudamem_status cudamem_engine_write_mapped(cudamem_engine engine,
                                           cudamem_mapped mapped,
                                           size_t offset,
                                           const void *source,
                                           size_t size);

/** As cudamem_engine_read_buffer, from mapped memory. */
cudamem_status cudamem_engine_read_mapped(cudamem_engine engine,
                                          cudamem_mapped mapped,
                                          size_t offset,
                                          void *destination,
                                          size_t size);

/** Destroys an engine, and frees its staging. The null handle is allowed. */
cudamem_status cudamem_engine_destroy(cudamem_engine engine);

/* ---- Sharing between processes --------------------------------------------------------------------------------------
 *
 * One process exports memory, a pool or an event; another imports it. Between them goes an export: bytes that describe it,
 * and for some kinds file descriptors. A channel carries both (cudamem_channel_send); by another way, take them apart with
 * cudamem_export_get_bytes and _get_files, and put them together with cudamem_export_create.
 *
 * to share                     export                              import
 * a pool of the driver's       cudamem_resource_export             cudamem_resource_import
 * memory of that pool          cudamem_buffer_export               cudamem_buffer_import
 * memory of cuMemAlloc         cudamem_buffer_export               cudamem_buffer_import
 * mapped memory                cudamem_mapped_export               cudamem_mapped_import
 * an event                     cudamem_event_export                cudamem_event_import
 *
 * The exporting process goes on to own a pool's memory and that of cuMemAlloc, and keeps it until the others have let go: the
 * driver does not watch over that. Mapped memory is kept by each process on its own. A process that ends, or is killed, lets
 * go of what it imported; what it exported ends with it, but for mapped memory.
 *
 * An import believes nothing of what it gets: what is cut off, of a later version, changed, forged, of another kind or of
 * another device is CUDAMEM_ERROR_DESCRIPTOR. A pool's export brings a key along, with which descriptors of its memory are
 * signed: who has it may use all memory of the pool. Do not send it to others.
 *
 * File descriptors that the program gives are duplicated, and stay the program's. Those that it is given belong to the object,
 * are closed with it, and are not inherited by programs that are started.
 *
 * A driver does not survive a fork: every call of the child is CUDAMEM_ERROR_FORKED. Start processes by fork and exec at once,
 * or by posix_spawn.
 */

/** A pool of the driver's. */
#define CUDAMEM_EXPORT_POOL 1
/** Memory of such a pool. */
#define CUDAMEM_EXPORT_POOL_MEMORY 2
/** Memory of cuMemAlloc. */
#define CUDAMEM_EXPORT_DEVICE_MEMORY 3
/** Mapped memory. */
#define CUDAMEM_EXPORT_MAPPED 4
/** An event. */
#define CUDAMEM_EXPORT_EVENT 5
/** Virtual memory. */
#define CUDAMEM_EXPORT_VIRTUAL_MEMORY 6
/** What an export says of itself. */
typedef struct {
    /** sizeof(cudamem_export_info), set by the program. */
    size_t size;
    /** CUDAMEM_EXPORT_... ; later releases may add some. */
    uint32_t kind;
    /** How many file descriptors belong to it. */
    uint32_t file_count;
    /** The size of the whole allocation, in bytes; 0 for what is no memory. */
    uint64_t allocation_size;
    /** Where in the allocation the exported part begins. */
    uint64_t offset;
    /** How long the part is. */
    uint64_t length;
    /** The system's number of the process that exported it first. */
    uint32_t process;
    /** The host's NUMA node that a pool or virtual memory lies on; -1 for what lies on a device. */
    int32_t numa_node;
    /** The UUID of the device. */
    uint8_t device[16];
    /** The name of the pool, the same in all processes; zeros for what is of no pool. */
    uint8_t pool[16];
} cudamem_export_info;

/**
 * Exports a buffer's memory, or the part of it that the buffer is: of a pool made with CUDAMEM_DRIVER_POOL_SHAREABLE, of
 * cudamem_resource_create_device, or imported, which is passed on. Waits for the buffer's work so far.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if memory of its resource cannot be shared.
 */
cudamem_status cudamem_buffer_export(cudamem_buffer buffer,
                                     cudamem_export *exported);

/**
 * Exports mapped memory, or a part of it.
 *
 * Errors: CUDAMEM_ERROR_MISSING_SYMBOL if the vkgdr library cannot share memory.
 */
cudamem_status cudamem_mapped_export(cudamem_mapped mapped, cudamem_export *exported);

/**
 * Exports a pool of the driver's that was made with CUDAMEM_DRIVER_POOL_SHAREABLE, or imported. Send it once to each process;
 * after it, its memory by cudamem_buffer_export. Who gets it may use all memory of the pool.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is something else.
 */
cudamem_status cudamem_resource_export(cudamem_resource resource,
                                       cudamem_export *exported);

/**
 * Exports an event that was made with CUDAMEM_EVENT_SHAREABLE: what one process records, others wait for. It has to live while
 * others import it; each that did keeps it on its own.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the event was made without that flag, or imported.
 */
cudamem_status cudamem_event_export(cudamem_event event,
                                    cudamem_export *exported);

/**
 * Imports a pool. Memory of it is imported, by cudamem_buffer_import, and not allocated. A process that has the pool already,
 * because it made or imported it, gets it again. Access of other devices does not come along: cudamem_resource_allow_access.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above; CUDAMEM_ERROR_DRIVER if the file is something else.
 */
cudamem_status cudamem_resource_import(cudamem_context context,
                                       cudamem_export exported,
                                       cudamem_resource *resource);

/**
 * Imports memory as a buffer, with stream as its home. resource is the pool that the memory is of, imported or the process's
 * own; for memory of cuMemAlloc, one that cudamem_resource_create_device made. In the process that exported it, it is the
 * exported memory itself; what is imported twice is one memory, which is let go of when the last buffer of it is destroyed and
 * the work of all is done. The other process may write it at any time: order the work by events, or by waiting and a message.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if the memory is another pool's; CUDAMEM_ERROR_DRIVER if it is no more.
 */
cudamem_status cudamem_buffer_import(cudamem_resource resource,
                                     cudamem_export exported,
                                     cudamem_stream stream,
                                     cudamem_buffer *buffer);

/**
 * Imports mapped memory, for the CPU and the device, by a resource that cudamem_resource_create_mapped made.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above; CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is another device's;
 * CUDAMEM_ERROR_VKGDR if the file is something else.
 */
cudamem_status cudamem_mapped_import(cudamem_resource resource, cudamem_export exported, cudamem_mapped *mapped);

/**
 * Imports an event of another process.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if this process made it; CUDAMEM_ERROR_DRIVER if it is no more.
 */
cudamem_status cudamem_event_import(cudamem_context context, cudamem_export exported, cudamem_event *event);

/** Tells what an export says of itself; an import checks it. info->size is set by the program. */
cudamem_status cudamem_export_get_info(cudamem_export exported, cudamem_export_info *info);

/** Gives an export's bytes, to be sent by a way of the program's own. They are valid until the export is destroyed. */
cudamem_status cudamem_export_get_bytes(cudamem_export exported, const void **bytes, size_t *size);

/**
 * Gives the file descriptors that go with an export's bytes, and their number. They are valid until the export is destroyed.
 * They go to another process by SCM_RIGHTS, or by inheritance of duplicates (dup2).
 */
cudamem_status cudamem_export_get_files(cudamem_export exported,
                                        const int32_t **files,
                                        size_t *count);

/**
 * Puts an export together that came by a way of the program's own: its bytes, and count file descriptors, which are
 * duplicated.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR if the bytes are no export's; CUDAMEM_ERROR_CHANNEL if other files belong to it;
 * CUDAMEM_ERROR_SYSTEM if a file descriptor is not open.
 */
cudamem_status cudamem_export_create(const void *bytes,
                                     size_t size,
                                     const int32_t *files,
                                     size_t count,
                                     cudamem_export *exported);

/** Destroys an export, and closes its file descriptors. What it exports goes on to live. The null handle is allowed. */
cudamem_status cudamem_export_destroy(cudamem_export exported);

/* ---- Channels -------------------------------------------------------------------------------------------------------
 *
 * A channel is a Unix stream socket that carries exports with their file descriptors, and short messages of the program's own.
 * What one end sends, the other receives in order. A process that dies is seen: what it sent before arrives, and then
 * CUDAMEM_ERROR_CLOSED.
 *
 * One thread may send while another receives; threads that do the same take turns.
 */

/** The most bytes of a message. */
#define CUDAMEM_MESSAGE_SIZE 65536
/** Makes a channel's two ends: for threads, and for a child process that inherits the socket of one (cudamem_channel_get_socket). */
cudamem_status cudamem_channel_create_pair(cudamem_channel *one,
                                           cudamem_channel *other);

/**
 * Uses a connected Unix stream socket of the program's, which is duplicated: the program may close its own. The socket is set
 * to blocking.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if the file descriptor is not open, no socket, or not connected;
 * CUDAMEM_ERROR_INVALID_ARGUMENT if it is another kind of socket.
 */
cudamem_status cudamem_channel_open_socket(int32_t socket,
                                           cudamem_channel *channel);

/**
 * Connects to the listener of a path.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if nobody listens there, or the file's permissions forbid it.
 */
cudamem_status cudamem_channel_connect(const char *path, cudamem_channel *channel);

/**
 * Sets how long each later send or receive may take in all, in seconds; INFINITY (of math.h), which it is at first, is for
 * ever.
 */
cudamem_status cudamem_channel_set_timeout(cudamem_channel channel,
                                           double seconds);

/**
 * Gives the socket, valid until the channel is destroyed: to wait for a message together with other things (poll), or to be
 * inherited by a child (dup2). Do not read or write it.
 */
cudamem_status cudamem_channel_get_socket(cudamem_channel channel,
                                          int32_t *socket);

/**
 * Sends an export, which stays the program's: cudamem_channel_receive gets it.
 *
 * Errors: CUDAMEM_ERROR_CLOSED if the other process is gone; CUDAMEM_ERROR_TIMED_OUT if it does not take it in time;
 * CUDAMEM_ERROR_CHANNEL if an earlier call failed in the middle of a message.
 */
cudamem_status cudamem_channel_send(cudamem_channel channel, cudamem_export exported);

/**
 * Receives an export; cudamem_export_get_info tells what it is, and so which import takes it.
 *
 * Errors: as cudamem_channel_send; CUDAMEM_ERROR_DESCRIPTOR if what comes is no export, CUDAMEM_ERROR_CHANNEL if it comes with
 * other files, or is longer than messages are.
 */
cudamem_status cudamem_channel_receive(cudamem_channel channel,
                                       cudamem_export *exported);

/**
 * Sends a message of size bytes, CUDAMEM_MESSAGE_SIZE at most: cudamem_channel_receive_bytes gets it.
 *
 * Errors: as cudamem_channel_send; CUDAMEM_ERROR_CHANNEL if it is longer.
 */
cudamem_status cudamem_channel_send_bytes(cudamem_channel channel, const void *source, size_t size);

/**
 * Receives a message into as many bytes as capacity says, and gives its size. A message that is longer stays: the call fails,
 * says how long it is, and the next one gets it. CUDAMEM_MESSAGE_SIZE bytes are room for every message.
 *
 * Errors: as cudamem_channel_receive; CUDAMEM_ERROR_OUT_OF_RANGE if the message is longer than capacity.
 */
cudamem_status cudamem_channel_receive_bytes(cudamem_channel channel,
                                             void *destination,
                                             size_t capacity,
                                             size_t *size);

/**
 * Ends the connection, for both ends and for all who have duplicates of their sockets: who waits in a call, and who calls
 * later, gets CUDAMEM_ERROR_CLOSED when what was sent before is received. To destroy a channel does not do that: others may
 * have the socket too.
 */
cudamem_status cudamem_channel_shut_down(cudamem_channel channel);

/** Destroys a channel, and closes its socket. A thread that waits in a call with it goes on to wait. The null handle is allowed. */
cudamem_status cudamem_channel_destroy(cudamem_channel channel);

/**
 * Listens for connections at a path, where nothing may be yet. Who may connect, the permissions of the file and of its folder
 * say. The file is removed when the listener is destroyed.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if there is a file already, or the folder's permissions forbid it.
 */
cudamem_status cudamem_listener_create(const char *path,
                                       cudamem_listener *listener);

/**
 * Waits for a connection, in turns with other threads: seconds at most; INFINITY is for ever.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if nobody connects in time.
 */
cudamem_status cudamem_listener_accept(cudamem_listener listener, double seconds, cudamem_channel *channel);

/** Destroys a listener, and removes its file. Channels that it accepted go on. The null handle is allowed. */
cudamem_status cudamem_listener_destroy(cudamem_listener listener);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_H */
