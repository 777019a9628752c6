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

/** A view: an array of any layout in memory. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_view;

/** The type of an Arrow array. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_arrow_schema;

/** An Arrow array. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_arrow_array;

/** Arrow arrays of one type, one after the other. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_arrow_stream;

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
/** Makes an event. flags is 0 or CUDAMEM_EVENT_TIMING. */
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

/* ---- Types of elements ----------------------------------------------------------------------------------------------
 *
 * The types that libraries name to each other at run time, by DLPack's numbers: a code, the bits of one lane, and how many
 * lanes an element has, which is 1 but for vectors. float is {CUDAMEM_TYPE_FLOAT, 32, 1}. A record of n bytes is
 * {CUDAMEM_TYPE_OPAQUE, 8, n}.
 */

/** Integers with a sign. */
#define CUDAMEM_TYPE_INT 0
/** Integers without a sign. */
#define CUDAMEM_TYPE_UINT 1
/** IEEE 754's numbers. */
#define CUDAMEM_TYPE_FLOAT 2
/** Bytes without a meaning. */
#define CUDAMEM_TYPE_OPAQUE 3
/** The upper half of a float. */
#define CUDAMEM_TYPE_BFLOAT 4
/** Complex numbers; the bits are those of both parts. */
#define CUDAMEM_TYPE_COMPLEX 5
/** Truth values. */
#define CUDAMEM_TYPE_BOOL 6
/** A number of 8 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT8_E3M4 7
/** A number of 8 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT8_E4M3 8
/** A number of 8 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT8_E4M3B11FNUZ 9
/** A number of 8 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT8_E4M3FN 10
/** A number of 8 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT8_E4M3FNUZ 11
/** A number of 8 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT8_E5M2 12
/** A number of 8 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT8_E5M2FNUZ 13
/** A power of two of 8 bits. */
#define CUDAMEM_TYPE_FLOAT8_E8M0FNU 14
/** A number of 6 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT6_E2M3FN 15
/** A number of 6 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT6_E3M2FN 16
/** A number of 4 bits, as the name says. */
#define CUDAMEM_TYPE_FLOAT4_E2M1FN 17
/** A type of elements, laid out as DLPack's DLDataType. */
typedef struct {
    /** One of CUDAMEM_TYPE_... . */
    uint8_t code;
    /** The bits of one lane. */
    uint8_t bits;
    /** How many lanes an element has: 1, but for vectors. */
    uint16_t lanes;
} cudamem_data_type;

/** Finds the type of a name ("float32", "bfloat16", "float8_e4m3fn", "float32x4") or of numpy's typestr ("<f4", "|u1"). */
cudamem_status cudamem_data_type_find(const char *name, cudamem_data_type *data_type);

/** Gives the name of a type, as cudamem_data_type_find takes it. */
cudamem_status cudamem_data_type_get_name(cudamem_data_type data_type, cudamem_text *name);

/**
 * Gives numpy's typestr of a type.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if numpy has no such type.
 */
cudamem_status cudamem_data_type_get_typestr(cudamem_data_type data_type, cudamem_text *typestr);

/* ---- Views ----------------------------------------------------------------------------------------------------------
 *
 * A view is an array of any layout in memory: of a buffer, whose ownership it shares, or of memory of the host. A layout has
 * a type of elements, extents, and strides: how many elements it is from one to its neighbour along an axis; they may be
 * negative, or 0. All elements lie within the memory: what would not is refused.
 *
 * int64_t shape[] = {-1, 640};
 * cudamem_view_layout layout = {0};
 * layout.size = sizeof layout;
 * layout.data_type = (cudamem_data_type){CUDAMEM_TYPE_FLOAT, 32, 1};
 * layout.ndim = 2;
 * layout.shape = shape;
 * cudamem_view_create(buffer, &layout, &view);
 *
 * For views of mapped memory, allocate buffers of its resource. A view does not change; functions that give another layout make
 * another view of the same memory. Elements of less than a byte are packed: several share a byte, and the lowest bits are the
 * first.
 */

/** The most axes that a view has. */
#define CUDAMEM_MAX_DIMENSIONS 64
/** A flag of views: they may only be read. */
#define CUDAMEM_VIEW_READ_ONLY 1
/** A flag of views: elements of less than a byte have bytes of their own each. No change for others. */
#define CUDAMEM_VIEW_PADDED 2
/** A flag of views: the elements lie without gaps, and the first axis runs fastest, as in Fortran. */
#define CUDAMEM_VIEW_F_ORDER 4
/** A flag of cudamem_view_info: the elements lie without gaps, and the last axis runs fastest, as in C. */
#define CUDAMEM_VIEW_C_ORDER 8
/** A flag of cudamem_view_info: the elements lie without gaps in some order of the axes. */
#define CUDAMEM_VIEW_DENSE 16
/** A flag of cudamem_view_info: no two elements share memory. */
#define CUDAMEM_VIEW_UNIQUE 32
/** Where elements lie. */
typedef struct {
    /** sizeof(cudamem_view_layout). */
    size_t size;
    /** The type of the elements. It has to be said. */
    cudamem_data_type data_type;
    /** CUDAMEM_VIEW_READ_ONLY, _PADDED and _F_ORDER, combined by |. */
    uint32_t flags;
    /** The number of axes, at most CUDAMEM_MAX_DIMENSIONS. 0 is an array of one element. */
    size_t ndim;
    /** The extents, ndim of them. Without strides one may be -1: it is what the memory has room for. */
    const int64_t *shape;
    /** The strides in elements, ndim of them; NULL for elements without gaps, in C order or, by the flag, in Fortran's. */
    const int64_t *strides;
    /** Where the element of indices 0 lies in the memory, in elements. */
    int64_t offset;
} cudamem_view_layout;

/** What a view is. */
typedef struct {
    /** sizeof(cudamem_view_info), set by the program. */
    size_t size;
    /** The type of the elements. */
    cudamem_data_type data_type;
    /** CUDAMEM_VIEW_... combined by |. */
    uint32_t flags;
    /** The number of axes. */
    size_t ndim;
    /** The extents, valid until the view is destroyed. */
    const int64_t *shape;
    /** The strides in elements, valid until the view is destroyed. */
    const int64_t *strides;
    /** Where the element of indices 0 lies in the memory, in elements. */
    int64_t offset;
    /** The number of elements. */
    uint64_t elements;
    /** How many bytes the elements have without gaps: what cudamem_view_read writes. */
    uint64_t dense_size;
    /**
     * The address of the element of indices 0 for kernels and for the driver (a CUdeviceptr); of memory of the host that the
     * driver does not know, its address there. Tell the view of work that uses it: cudamem_view_record_use.
     */
    uint64_t device_pointer;
    /** The CPU's address of the element of indices 0; NULL where the CPU does not address the memory. */
    void *host_pointer;
    /** CUDAMEM_ACCESS_... combined by |. */
    uint32_t access;
    /** The ordinal of the device that the memory lies on; -1 for memory of the host. */
    int32_t device;
} cudamem_view_info;

/**
 * Makes a view of a buffer's memory, whose ownership it shares: the memory is freed when the last part of it is destroyed.
 * layout must not be NULL.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the buffer; CUDAMEM_ERROR_INVALID_ARGUMENT if the layout
 * cannot be.
 */
cudamem_status cudamem_view_create(cudamem_buffer buffer,
                                   const cudamem_view_layout *layout,
                                   cudamem_view *view);

/**
 * Makes a view of the host's memory that the driver need not know: size bytes at pointer. The memory must stay there, and
 * nobody else may write it while the view is copied, or use it while it is written, until release was called with user, which
 * the end of the last view of the memory does; where release is NULL, until that end. After a failure release is not called.
 * Copies with such memory are done when their call returns.
 *
 * For foreign memory of a device, make a buffer of it first: cudamem_buffer_borrow.
 */
cudamem_status cudamem_view_borrow_host(void *pointer,
                                        size_t size,
                                        const cudamem_view_layout *layout,
                                        cudamem_release_callback release,
                                        void *user,
                                        cudamem_view *view);

/** Tells what a view is. info->size is set by the program. */
cudamem_status cudamem_view_get_info(cudamem_view view, cudamem_view_info *info);

/**
 * Makes a buffer of the memory that the view shares the ownership of, for what buffers offer.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for a view of the host's memory that is no buffer's.
 */
cudamem_status cudamem_view_get_buffer(cudamem_view view, cudamem_buffer *buffer);

/**
 * Tells the view's memory of work given to stream so far that uses it: what the buffer does from now on waits for that work,
 * its free too.
 */
cudamem_status cudamem_view_record_use(cudamem_view view,
                                       cudamem_stream stream);

/**
 * Destroys the handle. The memory is freed, in order of its home stream, if no other part of it is left; what the driver then
 * refuses goes to the function of cudamem_set_drop_error_callback. The null handle is allowed.
 */
cudamem_status cudamem_view_destroy(cudamem_view view);

/* ---- Parts of views -------------------------------------------------------------------------------------------------
 *
 * Other layouts of the same elements, and parts of them. Nothing is copied: each function makes a view of the same memory, and
 * leaves the first one as it is. CUDAMEM_ERROR_INVALID_ARGUMENT says that there is no such layout.
 */

/** As an end of a cudamem_index: where the axis begins or ends. */
#define CUDAMEM_INDEX_OPEN INT64_MIN
/** What is taken of an axis, by Python's rules: numbers below 0 count from the end. */
typedef struct {
    /** The first index, or the only one. */
    int64_t start;
    /** Where it ends, itself left out. Not looked at where step is 0. */
    int64_t end;
    /** How far it is from each index to the next; below 0 the axis runs backwards. 0 for the one index start: the axis goes. */
    int64_t step;
} cudamem_index;

/**
 * Gives the same elements, in C order, another shape of ndim extents. One may be -1: it is what the others leave.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if there are not as many elements, or if no strides give that shape: copy the elements
 * to a dense view first.
 */
cudamem_status cudamem_view_reshape(cudamem_view view,
                                    const int64_t *shape,
                                    size_t ndim,
                                    cudamem_view *result);

/** Gives the axes another order: axes has each axis once, count of them. They may be counted from the end, as -1. */
cudamem_status cudamem_view_permute(cudamem_view view, const int64_t *axes, size_t count, cudamem_view *result);

/**
 * Takes a part of each axis: indices has one entry for each of the first count axes; the others stay whole. So a count of 0
 * makes a second handle of the same view.
 */
cudamem_status cudamem_view_slice(cudamem_view view,
                                  const cudamem_index *indices,
                                  size_t count,
                                  cudamem_view *result);

/**
 * Repeats axes of extent 1, and adds axes in front, without memory for that: their strides are 0. Such a view can be read; a
 * copy to it is refused.
 */
cudamem_status cudamem_view_broadcast(cudamem_view view,
                                      const int64_t *shape,
                                      size_t ndim,
                                      cudamem_view *result);

/** Leaves out the axes of extent 1. */
cudamem_status cudamem_view_squeeze(cudamem_view view, cudamem_view *result);

/** Adds count axes of extent 1, at places of the new shape. */
cudamem_status cudamem_view_unsqueeze(cudamem_view view, const size_t *axes, size_t count, cudamem_view *result);

/** Merges all neighbouring axes that are one run of memory. */
cudamem_status cudamem_view_flatten(cudamem_view view, cudamem_view *result);

/**
 * Takes the same bytes as elements of another type: an axis of stride 1 gets fewer or more of them. The axis may be counted
 * from the end.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if neither element's size divides the other's, if an extent, a stride, the offset or
 * the address is no multiple of the larger one, or if a type has less than a byte.
 */
cudamem_status cudamem_view_repack(cudamem_view view,
                                   cudamem_data_type data_type,
                                   int64_t axis,
                                   cudamem_view *result);

/**
 * Makes a view of all of the same memory in another layout. Where the first one may only be read, or has padded elements, so
 * has this one.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the memory.
 */
cudamem_status cudamem_view_with_layout(cudamem_view view,
                                        const cudamem_view_layout *layout,
                                        cudamem_view *result);

/** Makes a view of the same elements that may only be read. */
cudamem_status cudamem_view_make_read_only(cudamem_view view, cudamem_view *result);

/* ---- Copies of views ------------------------------------------------------------------------------------------------
 *
 * Between views of one type and shape, whatever their layouts and wherever their memory lies, in stream order: after the work
 * of both memories so far, and before their later work. Nothing is converted.
 *
 * Copies between host and device are done when the call returns, and those within devices when they have begun, unless the
 * options say otherwise.
 */

/** A flag of cudamem_copy_options: the call returns when the copy is done. */
#define CUDAMEM_COPY_WAIT 1

/**
 * A flag of cudamem_copy_options: the call returns when the copy has begun. Memory of the host that the driver does not know is
 * waited for all the same.
 */
#define CUDAMEM_COPY_NO_WAIT 2
/** How views are copied. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_copy_options). */
    size_t size;
    /** CUDAMEM_COPY_... . */
    uint32_t flags;
    /** Zero. */
    uint32_t reserved;
    /**
     * What the copy is ordered on, of the device that the destination lies on, or else the source. The null handle is the home
     * stream of the memory.
     */
    cudamem_stream stream;
    /**
     * Where temporary memory comes from, if some is needed: of the host or of the device, as the resource has it. The null
     * handle is the heap, and the device's current pool.
     */
    cudamem_resource temporary;
} cudamem_copy_options;

/**
 * Copies the elements of source to view, which has the same type and shape. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if types or shapes differ, if view may only be read or has elements that share memory,
 * or if the two overlap without being the same.
 */
cudamem_status cudamem_view_copy(cudamem_view view,
                                 cudamem_view source,
                                 const cudamem_copy_options *options);

/**
 * Copies elements of the host to a view: size bytes, which lie without gaps in C order. Returns when that is done. options may
 * be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
 */
cudamem_status cudamem_view_write(cudamem_view view,
                                  const void *source,
                                  size_t size,
                                  const cudamem_copy_options *options);

/**
 * Copies the elements of a view to the host: size bytes, where they lie without gaps in C order. Returns when that is done.
 * options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
 */
cudamem_status cudamem_view_read(cudamem_view view,
                                 void *destination,
                                 size_t size,
                                 const cudamem_copy_options *options);

/* ---- DLPack ---------------------------------------------------------------------------------------------------------
 *
 * Views go to other libraries and come from them without a copy, as DLPack 1.3 has it. This header does not need dlpack.h; both
 * may be included, in any order.
 *
 * Order: what goes out is ordered before the consumer's stream, and the CPU waits only where the CPU is the consumer. When the
 * consumer calls the deleter, the memory is used again, or freed, after the work that its stream has by then.
 *
 * Life: memory that others have is not freed under them. Handles may be destroyed at any time; the deleter ends the last hold.
 */

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/** A flag of cudamem_dlpack_options: the consumer may only read. */
#define CUDAMEM_DLPACK_READ_ONLY 1
/** A flag of cudamem_dlpack_options: the consumer gets a copy, which it alone has. */
#define CUDAMEM_DLPACK_COPY 2
/** A flag of cudamem_dlpack_options: what would need a copy is an error. */
#define CUDAMEM_DLPACK_NO_COPY 4

/**
 * When the consumer has let go, the memory waits for the work that the consumer's stream has by then. That stream has to live
 * until then.
 */
#define CUDAMEM_RELEASE_AFTER_STREAM 0
/** When the consumer has let go, the memory waits for nothing: the consumer's work is done by then. */
#define CUDAMEM_RELEASE_IMMEDIATELY 1
/** When the consumer has let go, all work of the context is waited for: for consumers whose stream may be gone by then. */
#define CUDAMEM_RELEASE_AFTER_CONTEXT 2
/** How a view is handed out. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_dlpack_options). */
    size_t size;
    /** CUDAMEM_DLPACK_... combined by |. */
    uint32_t flags;
    /** One of CUDAMEM_RELEASE_... . */
    int32_t release;
    /**
     * The consumer's stream, as DLPack names it: 1 is the legacy default stream, 2 the calling thread's, -1 wants no order,
     * others are a CUstream of the view's context. 0: it is not said. Memory of a device is then ordered before the legacy
     * default stream, and memory of the host is waited for.
     */
    int64_t stream;
    /** What a copy is allocated from. The null handle where none is needed. */
    cudamem_resource resource;
    /**
     * The device that the consumer wants the memory on, by DLPack's numbers: kDLCPU is 1, kDLCUDA 2, kDLCUDAHost 3,
     * kDLCUDAManaged 13. 0 is where it lies. Another one needs a copy, but for the CPU where it addresses the memory.
     */
    int32_t device_type;
    /** The number of that device. */
    int32_t device_id;
} cudamem_dlpack_options;

/**
 * Hands a view to another library, in order: makes a DLManagedTensorVersioned, whose deleter has to be called once. options may
 * be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a copy is needed that is forbidden or has no resource, if the view is of no buffer,
 * or if its first element begins within a byte.
 */
cudamem_status cudamem_view_export_dlpack(cudamem_view view,
                                          const cudamem_dlpack_options *options,
                                          struct DLManagedTensorVersioned **tensor);

/**
 * As cudamem_view_export_dlpack, for consumers that know only the layout before DLPack 1.0.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT also if the view may only be read or has padded elements, which that layout cannot say.
 */
cudamem_status cudamem_view_export_dlpack_legacy(cudamem_view view,
                                                 const cudamem_dlpack_options *options,
                                                 struct DLManagedTensor **tensor);

/**
 * Makes a view of another library's tensor. The deleter is called, on any thread, when the last view or buffer of the memory has
 * ended; after a failure the tensor is the program's as before.
 *
 * stream becomes the home stream of the memory's work. Without a producer (the null handle), the producer must have ordered its
 * work before stream already, as DLPack's producers do for the stream that they are asked for, and the end waits for ours. With
 * one, stream waits for the producer's work so far, and the producer for ours in the end, all without holding up the CPU.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the tensor's numbers cannot be, if it is of another release of DLPack or of another
 * kind of device, or if the driver says that the memory is elsewhere.
 */
cudamem_status cudamem_view_import_dlpack(struct DLManagedTensorVersioned *tensor,
                                          cudamem_stream stream,
                                          cudamem_stream producer,
                                          cudamem_view *view);

/** As cudamem_view_import_dlpack, of a tensor in the layout before DLPack 1.0. */
cudamem_status cudamem_view_import_dlpack_legacy(struct DLManagedTensor *tensor,
                                                 cudamem_stream stream,
                                                 cudamem_stream producer,
                                                 cudamem_view *view);

/* ---- Array interfaces -----------------------------------------------------------------------------------------------
 *
 * The CUDA array interface of version 3 and numpy's array interface, as JSON: plain numbers, for programs that speak to
 * Python's libraries. They say nothing of ownership: who hands an array out keeps the view while others use it, and who takes
 * one over keeps what it belongs to.
 */

/** A flag of cudamem_view_import_cuda_array_interface: the producer's stream need not be waited for. */
#define CUDAMEM_ARRAY_INTERFACE_ORDERED 1

/**
 * Gives the CUDA array interface of a view as JSON: the address for devices, and the home stream, which the consumer orders its
 * own after. Nothing is waited for. Tell the view of the consumer's work: cudamem_view_record_use.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if devices do not address the memory, or the type has no typestr.
 */
cudamem_status cudamem_view_export_cuda_array_interface(cudamem_view view,
                                                        cudamem_text *json);

/**
 * Gives numpy's array interface of a view as JSON: the address for the CPU. Waits for the memory's work.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory, or not without flushes; if the type has no
 * typestr.
 */
cudamem_status cudamem_view_export_array_interface(cudamem_view view,
                                                   cudamem_text *json);

/**
 * Makes a view of an array that devices address, of which another library gives the CUDA array interface as JSON. stream becomes
 * the home stream of the memory's work, and waits for the stream that the interface names, unless a flag says that there is no
 * need. The memory must stay allocated until release was called with user, which the end of the last view or buffer of it does
 * when its work is done; where release is NULL, until that end. After a failure release is not called.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if it is no such JSON, or if the driver does not know the address as one for devices.
 */
cudamem_status cudamem_view_import_cuda_array_interface(const char *json,
                                                        uint32_t flags,
                                                        cudamem_stream stream,
                                                        cudamem_release_callback release,
                                                        void *user,
                                                        cudamem_view *view);

/**
 * Makes a view of an array of the host, of which another library gives numpy's array interface as JSON. Otherwise as
 * cudamem_view_import_cuda_array_interface.
 */
cudamem_status cudamem_view_import_array_interface(const char *json,
                                                   cudamem_stream stream,
                                                   cudamem_release_callback release,
                                                   void *user,
                                                   cudamem_view *view);

/* ---- Arrow: schemas -------------------------------------------------------------------------------------------------
 *
 * The type of an Arrow array: the specification's letters for it ("g" for doubles, "u" for text, "+s" for structures), the
 * field's name, its children. This header does not need Arrow's; both may be included, in any order.
 */

struct ArrowSchema;

/** A flag of schemas: values may be missing. */
#define CUDAMEM_ARROW_NULLABLE 2
/** What a schema is made of. Zeros are the defaults, but for the format. */
typedef struct {
    /** sizeof(cudamem_arrow_schema_options). */
    size_t size;
    /** The specification's letters for the type. Must not be NULL. */
    const char *format;
    /** The field's name, or NULL. */
    const char *name;
    /** CUDAMEM_ARROW_NULLABLE and other flags of the specification. */
    int64_t flags;
    /** The number of children. */
    size_t n_children;
    /** They; the handles stay the program's. */
    const cudamem_arrow_schema *children;
    /** The type of the dictionary's values, or the null handle; the handle stays the program's. */
    cudamem_arrow_schema dictionary;
    /** The number of pairs of keys and values. */
    size_t n_metadata;
    /** The keys. */
    const char *const *metadata_keys;
    /** The values. */
    const char *const *metadata_values;
} cudamem_arrow_schema_options;

/** What a schema is. */
typedef struct {
    /** sizeof(cudamem_arrow_schema_info), set by the program. */
    size_t size;
    /** The specification's letters for the type, valid until the schema is destroyed. */
    const char *format;
    /** The field's name, valid until the schema is destroyed; empty where there is none. */
    const char *name;
    /** CUDAMEM_ARROW_NULLABLE and other flags of the specification. */
    int64_t flags;
    /** The number of children. */
    size_t n_children;
    /** The number of dictionaries: 0 or 1. */
    size_t n_dictionaries;
    /** The number of pairs of keys and values. */
    size_t n_metadata;
} cudamem_arrow_schema_info;

/** Makes a schema. */
cudamem_status cudamem_arrow_schema_create(const cudamem_arrow_schema_options *options, cudamem_arrow_schema *schema);

/** Fills in a struct ArrowSchema of the program's, whose release has to be called once. */
cudamem_status cudamem_arrow_schema_export(cudamem_arrow_schema schema, struct ArrowSchema *result);

/**
 * Reads a struct ArrowSchema, and releases it. After a failure it is as before.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if it was released, or if its numbers or texts cannot be.
 */
cudamem_status cudamem_arrow_schema_import(struct ArrowSchema *source, cudamem_arrow_schema *schema);

/** Tells what a schema is. info->size is set by the program. */
cudamem_status cudamem_arrow_schema_get_info(cudamem_arrow_schema schema, cudamem_arrow_schema_info *info);

/** Gives a handle for a child's type. */
cudamem_status cudamem_arrow_schema_get_child(cudamem_arrow_schema schema, size_t index, cudamem_arrow_schema *child);

/** Gives a handle for the type of the dictionary's values; the null handle where there is none. */
cudamem_status cudamem_arrow_schema_get_dictionary(cudamem_arrow_schema schema, cudamem_arrow_schema *dictionary);

/** Gives a pair of key and value. What is no UTF-8 in them is replaced. */
cudamem_status cudamem_arrow_schema_get_metadata(cudamem_arrow_schema schema,
                                                 size_t index,
                                                 cudamem_text *key,
                                                 cudamem_text *value);

/** Destroys the handle. The null handle is allowed. */
cudamem_status cudamem_arrow_schema_destroy(cudamem_arrow_schema schema);

/* ---- Arrow: arrays --------------------------------------------------------------------------------------------------
 *
 * Arrays of Arrow's C device data interface, whose buffers are buffers of this library. What is handed out has an event
 * (sync_event) that the consumer waits for, and what comes in is used after its producer's. The structs are the host's; only
 * the buffers are on the device.
 *
 * Their release knows no streams, so it comes after the consumer's work: cudamem_arrow_array_destroy_after.
 */

struct ArrowDeviceArray;

/** What an array is made of. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_arrow_array_options). */
    size_t size;
    /** How many values. */
    uint64_t length;
    /** How many of them are missing; -1 where that is not known. */
    int64_t null_count;
    /** How many values come before the first. */
    uint64_t offset;
    /** The number of buffers. */
    size_t n_buffers;
    /**
     * They, in the order of the type; the null handle where there is nothing to say, as in a validity that nothing lacks. The
     * handles stay the program's; the array shares the ownership of the memory.
     */
    const cudamem_buffer *buffers;
    /** The number of children. */
    size_t n_children;
    /** They, made by cudamem_arrow_array_create; the handles stay the program's. */
    const cudamem_arrow_array *children;
    /** The dictionary's values, or the null handle; the handle stays the program's. */
    cudamem_arrow_array dictionary;
} cudamem_arrow_array_options;

/** What an array is. */
typedef struct {
    /** sizeof(cudamem_arrow_array_info), set by the program. */
    size_t size;
    /** How many values. */
    uint64_t length;
    /** How many of them are missing; -1 where that is not known. */
    int64_t null_count;
    /** How many values come before the first. */
    uint64_t offset;
    /** The number of buffers. */
    size_t n_buffers;
    /** The number of children. */
    size_t n_children;
    /** The number of dictionaries: 0 or 1. */
    size_t n_dictionaries;
    /** The kind of device that the memory lies on, by DLPack's numbers. */
    int32_t device_type;
    /** The number of that device. */
    int32_t device_id;
} cudamem_arrow_array_info;

/**
 * Makes an array of buffers. What its type makes of them is not looked at.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a number cannot be, or if the buffers lie on several devices.
 */
cudamem_status cudamem_arrow_array_create(const cudamem_arrow_array_options *options, cudamem_arrow_array *array);

/**
 * Fills in a struct ArrowDeviceArray of the program's, whose release has to be called once, when the consumer's work is done. On
 * stream comes the event that the consumer waits for, after the work of all buffers so far; memory of the host alone is waited
 * for.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an array that was imported.
 */
cudamem_status cudamem_arrow_array_export(cudamem_arrow_array array,
                                          cudamem_stream stream,
                                          struct ArrowDeviceArray *result);

/**
 * Takes a struct ArrowDeviceArray over: what source points to counts as released afterwards, and the array's release is called,
 * on any thread, when its handles and buffers have ended. After a failure it is the program's as before.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if it was released, if its numbers cannot be, or if it lies on another kind of device.
 */
cudamem_status cudamem_arrow_array_import(struct ArrowDeviceArray *source,
                                          cudamem_arrow_array *array);

/** Tells what an array is. info->size is set by the program. */
cudamem_status cudamem_arrow_array_get_info(cudamem_arrow_array array, cudamem_arrow_array_info *info);

/** Gives a handle for a child, which holds the whole. */
cudamem_status cudamem_arrow_array_get_child(cudamem_arrow_array array, size_t index, cudamem_arrow_array *child);

/** Gives a handle for the dictionary's values, which holds the whole; the null handle where there is none. */
cudamem_status cudamem_arrow_array_get_dictionary(cudamem_arrow_array array, cudamem_arrow_array *dictionary);

/**
 * Gives one of the buffers; the null handle where there is none. size is its size in bytes, which Arrow does not say: the type
 * does. For an array that was made here it may be CUDAMEM_WHOLE_SIZE.
 *
 * Of an array that was imported, stream becomes the home stream of the buffer, and waits for the producer's event. The memory is
 * not to be written.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if there are not as many buffers, or if the driver says that the memory is elsewhere.
 */
cudamem_status cudamem_arrow_array_get_buffer(cudamem_arrow_array array,
                                              size_t index,
                                              size_t size,
                                              cudamem_stream stream,
                                              cudamem_buffer *buffer);

/**
 * Destroys the handle. What was imported is released when no handle or buffer of it is left; the consumer's work is to be done by
 * then. The null handle is allowed.
 */
cudamem_status cudamem_arrow_array_destroy(cudamem_arrow_array array);

/**
 * As cudamem_arrow_array_destroy, so that the memory is used again only after the work that stream has by now: by an event where
 * the producer is this library, else by waiting.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if another handle or buffer of an imported array is left; the handle then stays valid.
 */
cudamem_status cudamem_arrow_array_destroy_after(cudamem_arrow_array array,
                                                 cudamem_stream stream);

/* ---- Arrow: streams of arrays ---------------------------------------------------------------------------------------
 *
 * Arrays of one type, one after the other. Such a stream has nothing to do with a CUDA stream.
 */

struct ArrowDeviceArrayStream;

/**
 * Fills in a struct ArrowDeviceArrayStream of the program's, which gives count arrays one after the other, all of the type that
 * schema says and on one kind of device. Its release has to be called once. The handles stay the program's. stream is the CUDA
 * stream of the events that consumers of the arrays wait for.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an array that was imported, or arrays on several kinds of device.
 */
cudamem_status cudamem_arrow_stream_export(cudamem_arrow_schema schema,
                                           const cudamem_arrow_array *arrays,
                                           size_t count,
                                           cudamem_stream stream,
                                           struct ArrowDeviceArrayStream *result);

/**
 * Takes a struct ArrowDeviceArrayStream over: what source points to counts as released afterwards. After a failure it is the
 * program's as before.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if it was released, or lacks a function.
 */
cudamem_status cudamem_arrow_stream_import(struct ArrowDeviceArrayStream *source,
                                           cudamem_arrow_stream *arrow_stream);

/** Gives the type of all arrays. */
cudamem_status cudamem_arrow_stream_get_schema(cudamem_arrow_stream arrow_stream, cudamem_arrow_schema *schema);

/**
 * Gives the next array; after the last one the null handle. Threads that ask at once do so in turns.
 *
 * Errors: the producer's, as CUDAMEM_ERROR_INVALID_ARGUMENT with its words.
 */
cudamem_status cudamem_arrow_stream_next(cudamem_arrow_stream arrow_stream, cudamem_arrow_array *array);

/** Destroys the handle: the stream of arrays is released, and arrays that it gave stay. The null handle is allowed. */
cudamem_status cudamem_arrow_stream_destroy(cudamem_arrow_stream arrow_stream);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_H */
