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

/** The release of this header: a new major version changes the interface. */
#define CUDAMEM_VERSION_MAJOR 0
/** A new minor version adds to the interface; before 1.0 it may change it. */
#define CUDAMEM_VERSION_MINOR 1
/** A new patch version changes no interface. */
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
/** A panic. In a function of libcudamem it is a defect: the call was given up, please report it with the message. */
#define CUDAMEM_ERROR_PANIC 10
/** A handle is null, of another kind, was destroyed, or was never made. Nothing was touched. */
#define CUDAMEM_ERROR_INVALID_HANDLE 11
/** The process was forked after the driver was loaded, which does not survive that. */
#define CUDAMEM_ERROR_FORKED 12
/** The operating system refused a call. */
#define CUDAMEM_ERROR_SYSTEM 13
/** What was waited for did not come, or did not go, in time. */
#define CUDAMEM_ERROR_TIMED_OUT 14
/** Memory was written by somebody who may not: a red zone, a freed block, or the words of a ring. The message says where. */
#define CUDAMEM_ERROR_DAMAGED 15
/** The other process has closed the channel, or is gone; or a flag or counter that was waited for has been destroyed. */
#define CUDAMEM_ERROR_CLOSED 16
/** A message between processes is too long or comes with the wrong files, or an earlier call failed in the middle of one. */
#define CUDAMEM_ERROR_CHANNEL 17
/** What another process sent is no export, was cut off, changed or forged, or is of another kind, device or pool. */
#define CUDAMEM_ERROR_DESCRIPTOR 18

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

/** The memory of signals. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_signals;

/** A word that CPU, streams and kernels write and wait for. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_flag;

/** A word that only grows. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_counter;

/** The CPU's end of a ring. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_ring;

/** A read of a copy engine that is under way. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_pending_read;

/** Work of a stream that was recorded. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_graph;

/** A graph that is ready for launches. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_executable;

/** Physical memory: bytes without an address. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_physical;

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

/** A ring of frames. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_frame_ring;

/** A frame that the CPU fills. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_frame;

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
 * It may be called by any thread, also by several at once, and must not unwind. It may call this library: of what fails in such
 * a call it is not told, since it is running already; the call's own status says it.
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
 * finds on this machine. What is missing is said in the text; it is no error. Without a driver it has the release and the
 * error alone.
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
    char name[256];
    /** The device's PCI address as domain:bus:device.function, which ends with a zero. */
    char pci_bus_id[32];
} cudamem_device_info;

/** Gives the number of devices. */
cudamem_status cudamem_device_get_count(int32_t *count);

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
 * As cudamem_stream_synchronize, for seconds at most: 0 only looks, INFINITY (of math.h) is for ever.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if the work is not done by then. It goes on, and the message names what it waits for, as far as
 * the library knows. CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_stream_synchronize_for(cudamem_stream stream,
                                              double seconds);

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
 * Tells whether the work before the event is done. An event that was never recorded is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_event_is_done(cudamem_event event, bool *done);

/**
 * Waits for the work before the event.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_event_synchronize(cudamem_event event);

/**
 * As cudamem_event_synchronize, for seconds at most: 0 only looks, INFINITY (of math.h) is for ever.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if the work is not done by then; it goes on. CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_event_synchronize_for(cudamem_event event, double seconds);

/** Gives the time from an event to a later one, in seconds. Both have time stamps, were recorded, and have passed. */
cudamem_status cudamem_event_elapsed(cudamem_event event, cudamem_event later, double *seconds);

/** Destroys an event. Work that waits for it goes on to do so. The null handle is allowed. */
cudamem_status cudamem_event_destroy(cudamem_event event);

/* ---- Waits ----------------------------------------------------------------------------------------------------------
 *
 * A function that waits for work may wait for ever: the work waits for a flag that nobody raises, or for a function of the host
 * that does not return. The library therefore watches every wait. It reports one that takes longer than 10 seconds in a line on
 * the standard error stream: what waits, on which thread, for which stream, for how long, and which flags, counters and rings the
 * stream waits for. The wait goes on. To give up after a time, call cudamem_stream_synchronize_for or
 * cudamem_event_synchronize_for.
 */

/**
 * Is called for a wait that takes long, with a message that is valid during the call, with the seconds that the wait has taken so
 * far, and with what was set along with the function. A thread of the library calls it, and again after twice the time. It must
 * neither wait for work nor unwind.
 */
typedef void (*cudamem_slow_wait_callback)(const char *message, double seconds, void *user);

/**
 * Sets the function that is called for waits that take long, instead of the line on the standard error stream. NULL brings the
 * line back. A call that has begun goes on.
 */
cudamem_status cudamem_set_slow_wait_callback(cudamem_slow_wait_callback callback,
                                              void *user);

/**
 * Sets how many seconds a wait takes before it is reported. It is 10 at first, and 0.001 at least; INFINITY (of math.h) ends the
 * reports.
 */
cudamem_status cudamem_set_slow_wait_limit(double seconds);

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
 * and free are in bytes; attempt counts the calls for one allocation from 0. An allocation that the function itself makes from the
 * same pool fails without another call of it. It must not unwind.
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

/**
 * What came and went over the life of a pool. How much there was at most is not known; a statistics resource before the pool
 * knows (cudamem_resource_create_statistics).
 */
typedef struct {
    /** What there is now. */
    uint64_t current;
    /** All that ever came. */
    uint64_t total;
    /** All that ever went. */
    uint64_t freed;
} cudamem_flow;

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
    cudamem_flow requested;
    /** The sizes of the blocks that there are. */
    cudamem_flow allocated;
    /** How many blocks there are: a count. */
    cudamem_flow blocks;
    /** What blocks use, and what threads keep. */
    cudamem_figure active;
    /** What is free in regions that hold blocks. */
    cudamem_figure inactive_split;
    /** What the pool has of its upstream. */
    cudamem_figure reserved;
    /** In how many regions: a count. */
    cudamem_figure regions;
    /** What threads keep. */
    uint64_t in_fronts;
    /** Freed memory that waits for work, which is asked for these figures. */
    uint64_t pending;
    /** The largest free range, where what threads keep is free too. */
    uint64_t largest_free;
    /**
     * Which part of the free memory is in pieces: in regions that hold blocks, outside of the largest free range there.
     * What threads keep is free. 0 to 1.
     */
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
 * that stream, and so is its free. Offsets and sizes are in bytes; a size of CUDAMEM_WHOLE_SIZE is all from the offset on,
 * but where the size is that of memory of the host too.
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
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room; CUDAMEM_ERROR_INVALID_ARGUMENT if the stream is of another device, or
 * captures a graph and memory comes in its order. Pools and guarded resources see captures of cudamem_graph_capture only: while the
 * program captures by the driver (cuStreamBeginCapture), do not allocate from them. With device, pinned and managed memory the
 * driver alone says what a capture forbids.
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

/**
 * As cudamem_buffer_destroy, in order of another stream, which waits for the work of the home stream. Beside calls of other
 * threads with the buffer it takes its turn.
 */
cudamem_status cudamem_buffer_destroy_on(cudamem_buffer buffer,
                                         cudamem_stream stream);

/**
 * As cudamem_buffer_destroy, for destructors, which can return no error: where the memory cannot be freed, the function of
 * cudamem_set_drop_error_callback is told, and the handle ends all the same.
 */
cudamem_status cudamem_buffer_drop(cudamem_buffer buffer);

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
 * Allocates size bytes, at least 1, of a resource that cudamem_resource_create_mapped made. A call of the driver each time (0.1
 * to 0.3 ms on a GPU, 1 to 2 ms for 64 MiB): allocate large pieces, and divide them.
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

/**
 * Invalidates, and reads size bytes at offset by CPU loads. Loads from a GPU's memory are slow: 1 us for up
 * to 1 KiB, 4 to 5 us for 4 KiB.
 */
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

/** A flag of cudamem_engine_options: what is measured is neither kept nor read from where it was kept. */
#define CUDAMEM_ENGINE_NO_CACHE 1
/** A flag of cudamem_engine_options: nothing is measured but by cudamem_engine_measure. */
#define CUDAMEM_ENGINE_MEASURE_ON_REQUEST 2
/** A flag of cudamem_engine_options: nobody helps the calling thread. */
#define CUDAMEM_ENGINE_NO_THREADS 4
/** As the profile says. */
#define CUDAMEM_WAY_CHOSEN 0
/** By streaming stores or loads of the CPU, of `threads` threads. Mapped memory only. */
#define CUDAMEM_WAY_CPU 1
/** By one copy of the driver. */
#define CUDAMEM_WAY_DRIVER 2
/** Through page-locked staging, which `threads` threads fill or empty. */
#define CUDAMEM_WAY_STAGED 3
/** `threads` threads store, and `staging_threads` fill staging. To mapped memory only. */
#define CUDAMEM_WAY_MIXED 4
/** The host's pages are locked for the time of the copy. */
#define CUDAMEM_WAY_REGISTERED 5
/** The driver is asked what the host's memory is, for copies that are not small. */
#define CUDAMEM_HOST_UNKNOWN 0
/** The host's memory is of the heap, the stack or a file. */
#define CUDAMEM_HOST_PAGEABLE 1
/** The host's memory is page-locked: allocated by the driver, or registered with it. */
#define CUDAMEM_HOST_PINNED 2
/** How a copy engine is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_engine_options). */
    size_t size;
    /** A profile as cudamem_engine_get_profile gives it, to choose ways by. NULL for what is kept of this machine, or measured. */
    const char *profile;
    /** The folder where profiles are kept. NULL for the user's cache folder, or what CUDA_MEM_PROFILES names. */
    const char *cache;
    /** The largest piece that goes through page-locked staging at once, in bytes. 2 MiB by default. */
    size_t slot_size;
    /** How many such pieces one copy uses in turns. 8 by default. */
    uint32_t slots;
    /** How many copies may use staging at once. 4 by default. */
    uint32_t lanes;
    /** How many threads of the engine's own help, at most 64. 0 for those that all engines of the process share. */
    uint32_t threads;
    /** CUDAMEM_ENGINE_... combined by |. */
    uint32_t flags;
} cudamem_engine_options;

/** What a program decides for one copy. Zeros leave it to the engine. */
typedef struct {
    /** sizeof(cudamem_copy_options). */
    size_t size;
    /** One of CUDAMEM_WAY_... . */
    int32_t way;
    /** One of CUDAMEM_HOST_... . */
    int32_t host;
    /** The threads of the way, the calling one included; 0 for ways without. */
    uint32_t threads;
    /** The threads that fill staging, with CUDAMEM_WAY_MIXED; else 0. */
    uint32_t staging_threads;
} cudamem_copy_options;

/**
 * Makes an engine for a context's device. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the profile is none.
 */
cudamem_status cudamem_engine_create(cudamem_context context,
                                     const cudamem_engine_options *options,
                                     cudamem_engine *engine);

/**
 * Copies size bytes of the host to a buffer, from offset on. Device work given after this sees them. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory cannot be copied as the options say.
 */
cudamem_status cudamem_engine_write_buffer(cudamem_engine engine,
                                           cudamem_buffer buffer,
                                           size_t offset,
                                           const void *source,
                                           size_t size,
                                           const cudamem_copy_options *options);

/**
 * Copies size bytes of a buffer, from offset on, to the host. Returns when that is done. options may be NULL.
 *
 * Errors: as cudamem_engine_write_buffer.
 */
cudamem_status cudamem_engine_read_buffer(cudamem_engine engine,
                                          cudamem_buffer buffer,
                                          size_t offset,
                                          void *destination,
                                          size_t size,
                                          const cudamem_copy_options *options);

/** As cudamem_engine_write_buffer, to mapped memory. */
cudamem_status cudamem_engine_write_mapped(cudamem_engine engine,
                                           cudamem_mapped mapped,
                                           size_t offset,
                                           const void *source,
                                           size_t size,
                                           const cudamem_copy_options *options);

/** As cudamem_engine_read_buffer, from mapped memory. */
cudamem_status cudamem_engine_read_mapped(cudamem_engine engine,
                                          cudamem_mapped mapped,
                                          size_t offset,
                                          void *destination,
                                          size_t size,
                                          const cudamem_copy_options *options);

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
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for a view that is read-only, or of the host's memory that is no buffer's.
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

/** A flag of cudamem_view_copy_options: the call returns when the copy is done. */
#define CUDAMEM_VIEW_COPY_WAIT 1

/**
 * A flag of cudamem_view_copy_options: the call returns when the copy has begun. Memory of the host that the driver does not know is
 * waited for all the same.
 */
#define CUDAMEM_VIEW_COPY_NO_WAIT 2
/** How views are copied. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_view_copy_options). */
    size_t size;
    /** CUDAMEM_VIEW_COPY_... . */
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
} cudamem_view_copy_options;

/**
 * Copies the elements of source to view, which has the same type and shape. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if types or shapes differ, if view may only be read or has elements that share memory,
 * or if the two overlap without being the same.
 */
cudamem_status cudamem_view_copy(cudamem_view view,
                                 cudamem_view source,
                                 const cudamem_view_copy_options *options);

/**
 * Copies elements of the host to a view: size bytes, which lie without gaps in C order. Returns when that is done. options may
 * be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
 */
cudamem_status cudamem_view_write(cudamem_view view,
                                  const void *source,
                                  size_t size,
                                  const cudamem_view_copy_options *options);

/**
 * Copies the elements of a view to the host: size bytes, where they lie without gaps in C order. Returns when that is done.
 * options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
 */
cudamem_status cudamem_view_read(cudamem_view view,
                                 void *destination,
                                 size_t size,
                                 const cudamem_view_copy_options *options);

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

/** Gives a pair of key and value. They may be any bytes, zeros and what is no UTF-8 too: cudamem_text_get says how many. */
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
 * the producer is this library, else by waiting. Beside calls of other threads with an imported array it takes its turn.
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

/* ---- Adaptors -------------------------------------------------------------------------------------------------------
 *
 * Resources that stand before others: they count, limit, log or retry what is allocated through them. An adaptor is a
 * resource; adaptors and pools may be put before each other in any order. The upstream's handle may be destroyed before the
 * adaptor's. A function that takes one adaptor refuses other resources with CUDAMEM_ERROR_INVALID_ARGUMENT.
 */

/** A flag of cudamem_resource_create_tracking: with a backtrace of each allocation, which takes microseconds. */
#define CUDAMEM_TRACKING_BACKTRACES 1
/** What an adaptor has counted. Sizes are of the blocks that were given. */
typedef struct {
    /** sizeof(cudamem_counts), set by the program. */
    size_t size;
    /** Bytes that are live. */
    int64_t bytes;
    /** The most bytes that were live since the peaks were reset. */
    int64_t bytes_peak;
    /** All bytes that were ever allocated. */
    uint64_t bytes_total;
    /** Blocks that are live. */
    int64_t blocks;
    /** The most blocks that were live since the peaks were reset. */
    int64_t blocks_peak;
    /** All blocks that were ever allocated. */
    uint64_t blocks_total;
    /** Allocations that failed. */
    uint64_t failed_allocations;
    /** Frees that failed; their blocks are live still. */
    uint64_t failed_frees;
    /** All blocks that were ever allocated, by size: sizes[n] counts those of 2^n to 2^(n+1) - 1 bytes. */
    uint64_t sizes[48];
} cudamem_counts;

/**
 * Is called where there is no memory, on the thread that allocates, with the message of the failure (valid during the call), the
 * number of the attempt that failed, from 1 on, and what was given along with the function. It may make room, and says whether
 * to ask again. An allocation that the function itself makes from the same resource fails without another call of it. It must not
 * unwind.
 */
typedef bool (*cudamem_retry_callback)(const char *message, uint32_t attempt, void *user);

/** Counts what is allocated: cudamem_resource_get_counts. */
cudamem_status cudamem_resource_create_statistics(cudamem_resource upstream, cudamem_resource *resource);

/** Tells what was counted through cudamem_resource_create_statistics. counts->size is set by the program. */
cudamem_status cudamem_resource_get_counts(cudamem_resource resource, cudamem_counts *counts);

/** Lets the peaks of cudamem_resource_get_counts begin anew. */
cudamem_status cudamem_resource_reset_peaks(cudamem_resource resource);

/** Refuses allocations by which more than limit bytes would be live: CUDAMEM_ERROR_OUT_OF_MEMORY. */
cudamem_status cudamem_resource_create_limit(cudamem_resource upstream, size_t limit, cudamem_resource *resource);

/** Sets the limit. Blocks that are live stay, also beyond it. */
cudamem_status cudamem_resource_set_limit(cudamem_resource resource, size_t limit);

/** Gives the limit and how much of it is used, in bytes. Either place may be NULL. */
cudamem_status cudamem_resource_get_limit(cudamem_resource resource, size_t *limit, size_t *used);

/** Keeps account of the blocks that are live: cudamem_resource_get_leaks. flags is 0 or CUDAMEM_TRACKING_BACKTRACES. */
cudamem_status cudamem_resource_create_tracking(cudamem_resource upstream, uint32_t flags, cudamem_resource *resource);

/**
 * Gives how many blocks of cudamem_resource_create_tracking are live, and a text for people that tells of each; either place may
 * be NULL.
 */
cudamem_status cudamem_resource_get_leaks(cudamem_resource resource,
                                          size_t *blocks,
                                          cudamem_text *report);

/**
 * Writes each allocation and each free as a line of CSV to a file, in the format of RMM's logs:
 * Thread,Time,Action,Pointer,Size,Stream. The file is made anew.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if the file cannot be made.
 */
cudamem_status cudamem_resource_create_logging(cudamem_resource upstream, const char *path, cudamem_resource *resource);

/**
 * Brings all lines of cudamem_resource_create_logging to the file, and gives how many were lost so far in lost, which may be
 * NULL.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if the file cannot be written.
 */
cudamem_status cudamem_resource_flush_log(cudamem_resource resource,
                                          uint64_t *lost);

/** Keeps the capacity newest allocations and frees, of some 100 bytes each: cudamem_resource_get_trace. */
cudamem_status cudamem_resource_create_recording(cudamem_resource upstream,
                                                 size_t capacity,
                                                 cudamem_resource *resource);

/**
 * Gives the newest allocations and frees of cudamem_resource_create_recording, or of a pool with a trace_capacity, as CSV: oldest
 * first, with times, threads and streams. `cuda-mem replay` does it again.
 */
cudamem_status cudamem_resource_get_trace(cudamem_resource resource,
                                          cudamem_text *csv);

/** Allocates from first, and from second where first has no memory left. Both are of one context and of one kind of access. */
cudamem_status cudamem_resource_create_fallback(cudamem_resource first,
                                                cudamem_resource second,
                                                cudamem_resource *resource);

/** Gives how many live blocks of cudamem_resource_create_fallback are of the second resource. */
cudamem_status cudamem_resource_get_fallback_blocks(cudamem_resource resource, size_t *blocks);

/** Where there is no memory, calls a function that may make room, and asks again, attempts times at most for one allocation. */
cudamem_status cudamem_resource_create_retry(cudamem_resource upstream,
                                             uint32_t attempts,
                                             cudamem_retry_callback callback,
                                             void *user,
                                             cudamem_resource *resource);

/** Gives blocks that begin at multiples of alignment, a power of two. */
cudamem_status cudamem_resource_create_aligned(cudamem_resource upstream, size_t alignment, cudamem_resource *resource);

/* ---- Adaptors that find mistakes ------------------------------------------------------------------------------------
 *
 * Resources for tests and for debugging: one fails allocations, to see what a program does then, and one finds writes where none
 * may be.
 */

/** Fails the allocation of a number, from 1 on. */
#define CUDAMEM_FAIL_NTH 0
/** Fails each allocation whose number is a multiple of number. */
#define CUDAMEM_FAIL_EVERY_NTH 1
/** Fails allocations of more than number bytes. */
#define CUDAMEM_FAIL_LARGER_THAN 2
/** Fails each allocation with a probability, by chance that number, a seed, decides. */
#define CUDAMEM_FAIL_BY_CHANCE 3
/** A flag of cudamem_guard_options: no red zones. */
#define CUDAMEM_GUARD_NO_RED_ZONES 1
/** A flag of cudamem_guard_options: no freed memory is held back. */
#define CUDAMEM_GUARD_NO_QUARANTINE 2
/** Which allocations fail. */
typedef struct {
    /** One of CUDAMEM_FAIL_... . */
    int32_t when;
    /** 0. */
    int32_t reserved;
    /** What CUDAMEM_FAIL_... says. */
    uint64_t number;
    /** 0 to 1, with CUDAMEM_FAIL_BY_CHANCE; else 0. */
    double probability;
} cudamem_failure_rule;

/** How blocks are guarded. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_guard_options). */
    size_t size;
    /** The zones before and behind each block, in bytes. 256 by default. */
    size_t red_zone;
    /** How much freed memory is held back, in bytes. 16 MiB by default. */
    size_t quarantine;
    /** CUDAMEM_GUARD_... combined by |. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} cudamem_guard_options;

/**
 * Fails allocations by count rules, as out of memory, to see what a program does then. The same rules fail the same allocations
 * in every run. A failed allocation does not reach the upstream.
 */
cudamem_status cudamem_resource_create_failing(cudamem_resource upstream,
                                               const cudamem_failure_rule *rules,
                                               size_t count,
                                               cudamem_resource *resource);

/** Sets the rules of cudamem_resource_create_failing in place of those before, and counts from 1 on again. */
cudamem_status cudamem_resource_set_failures(cudamem_resource resource,
                                             const cudamem_failure_rule *rules,
                                             size_t count);

/**
 * Gives how many allocations were asked for since the rules were set, and how many of them were made to fail. Either place may
 * be NULL.
 */
cudamem_status cudamem_resource_get_failures(cudamem_resource resource,
                                             uint64_t *allocations,
                                             uint64_t *injected);

/**
 * Finds writes beyond blocks and after their free, for debugging: red zones around blocks, poison in new and freed ones, and a
 * quarantine of freed ones. A free that finds damage is refused with CUDAMEM_ERROR_DAMAGED, and a second free of the same block
 * is not. options may be NULL.
 */
cudamem_status cudamem_resource_create_guarded(cudamem_resource upstream,
                                               const cudamem_guard_options *options,
                                               cudamem_resource *resource);

/**
 * Looks for damage now, when all work of the context is done, and gives how many findings there are, and a text for people that
 * tells of each, which may be NULL.
 */
cudamem_status cudamem_resource_check_guards(cudamem_resource resource,
                                             size_t *findings,
                                             cudamem_text *report);

/** Checks the blocks in quarantine, and frees them. What is found is told to the callback of cudamem_set_drop_error_callback. */
cudamem_status cudamem_resource_release_quarantine(cudamem_resource resource);

/* ---- Pools of one size, and rings of staging ------------------------------------------------------------------------
 *
 * Two pools for special uses, which are resources: one of blocks of one size, and one that allocates blocks one behind the
 * other and uses them again in the same order.
 */

/** A flag of cudamem_ring_pool_create: a full ring refuses, and does not wait for freed blocks whose work goes on. */
#define CUDAMEM_RING_POOL_REFUSE 1
/** How a pool of one size is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_fixed_pool_options). */
    size_t size;
    /** What the pool may have of its upstream, in bytes. No limit by default. */
    size_t maximum;
    /** How many blocks the pool grows by: 1 to 4096. 1024 by default. */
    uint32_t blocks_per_slab;
    /** One of CUDAMEM_REUSE_... . */
    int32_t reuse;
} cudamem_fixed_pool_options;

/** What a pool of one size has and does. */
typedef struct {
    /** sizeof(cudamem_fixed_pool_statistics), set by the program. */
    size_t size;
    /** The size of a block in bytes. */
    uint64_t block_size;
    /** The blocks that are in use: a count. */
    cudamem_figure blocks;
    /** What the pool has of its upstream, in bytes. */
    cudamem_figure reserved;
    /** How many freed blocks wait for the work of their stream, or are kept for it. */
    uint64_t pending;
    /** How many events were recorded: a count. */
    uint64_t events_recorded;
    /** How often streams were told to wait: a count. */
    uint64_t waits;
    /** How often there was no memory: a count. */
    uint64_t out_of_memory;
} cudamem_fixed_pool_statistics;

/** What a ring has and does. */
typedef struct {
    /** sizeof(cudamem_ring_pool_statistics), set by the program. */
    size_t size;
    /** The ring's size in bytes. */
    uint64_t capacity;
    /** The bytes of blocks that are in use, in whole units. */
    cudamem_figure used;
    /** How many blocks are in use. */
    uint64_t blocks;
    /** How many freed blocks still take room. */
    uint64_t pending;
    /** The bytes that no block takes. */
    uint64_t free;
    /** How many events were recorded: a count. */
    uint64_t events_recorded;
    /** How often an allocation was refused: a count. */
    uint64_t full;
} cudamem_ring_pool_statistics;

/**
 * Makes a pool of blocks of block_size bytes over a resource: smaller allocations get a whole block, larger ones are refused.
 * options may be NULL. Nothing is allocated yet.
 */
cudamem_status cudamem_fixed_pool_create(cudamem_resource upstream,
                                         size_t block_size,
                                         const cudamem_fixed_pool_options *options,
                                         cudamem_resource *pool);

/** Tells what a pool of one size has and does. statistics->size is set by the program. */
cudamem_status cudamem_fixed_pool_get_statistics(cudamem_resource pool, cudamem_fixed_pool_statistics *statistics);

/** Grows until a pool of one size has as many blocks, free and used together. */
cudamem_status cudamem_fixed_pool_reserve(cudamem_resource pool, size_t blocks);

/** Gives slabs back that hold no blocks and whose work is done, as long as at least keep bytes stay. Does not wait. */
cudamem_status cudamem_fixed_pool_trim(cudamem_resource pool, size_t keep);

/** Waits for the work that freed blocks wait for, and gives all slabs back that hold no blocks. */
cudamem_status cudamem_fixed_pool_release_unused(cudamem_resource pool);

/**
 * Makes a ring of capacity bytes, rounded up to a multiple of 256, over a resource: for data on its way. A block is handed out
 * when all work of its former users is done, so that the CPU may write it at once. A block that is not freed holds up all behind
 * it. The memory is allocated now. flags is 0 or CUDAMEM_RING_POOL_REFUSE.
 */
cudamem_status cudamem_ring_pool_create(cudamem_resource upstream,
                                        size_t capacity,
                                        uint32_t flags,
                                        cudamem_resource *pool);

/** Tells what a ring has and does. statistics->size is set by the program. */
cudamem_status cudamem_ring_pool_get_statistics(cudamem_resource pool, cudamem_ring_pool_statistics *statistics);

/** Waits for the work of all freed blocks, which then take no room any more. */
cudamem_status cudamem_ring_pool_synchronize(cudamem_resource pool);

/* ---- Virtual memory -------------------------------------------------------------------------------------------------
 *
 * Physical memory that is mapped at reserved addresses: buffers that grow without a copy, one memory at several addresses, and
 * memory that others import by a file descriptor.
 */

/** The memory of a device: the context's, where memory is made; else the one whose ordinal is the number. */
#define CUDAMEM_LOCATION_DEVICE 0
/** The memory of the host; the number is 0. */
#define CUDAMEM_LOCATION_HOST 1
/** The memory of the host's NUMA node of that number. */
#define CUDAMEM_LOCATION_NODE 2
/** The memory of the NUMA node that the calling thread runs on; the number is 0. */
#define CUDAMEM_LOCATION_CURRENT_NODE 3
/** A flag of physical and virtual memory: other processes may import it. The host's memory needs CUDAMEM_LOCATION_NODE. */
#define CUDAMEM_PHYSICAL_SHAREABLE 1
/** A flag of physical and virtual memory: other devices of the machine may be let reach it over PCIe (GPUDirect RDMA). */
#define CUDAMEM_PHYSICAL_GPU_DIRECT_RDMA 2

/**
 * A flag of physical and virtual memory: sizes are rounded up to the smallest unit that the driver takes, and not to what it
 * recommends for speed.
 */
#define CUDAMEM_PHYSICAL_MINIMUM_GRANULARITY 4
/** How physical memory is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_physical_options). */
    size_t size;
    /** CUDAMEM_LOCATION_DEVICE, which is the context's, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE. */
    int32_t location;
    /** The NUMA node, with CUDAMEM_LOCATION_NODE; else 0. */
    int32_t node;
    /** CUDAMEM_PHYSICAL_... combined by |. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} cudamem_physical_options;

/** How virtual memory is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_virtual_options). */
    size_t size;
    /** What allocations begin at a multiple of, in bytes: a power of two. The granularity by default. */
    size_t alignment;
    /** Where allocations should begin, if the addresses are free: a multiple of the granularity. Anywhere by default. */
    uint64_t address_hint;
    /** Ordinals of devices, besides the context's own, that may use the memory, which lies on the device. */
    const int32_t *peers;
    /** How many. */
    size_t peer_count;
    /** CUDAMEM_LOCATION_DEVICE, which is the context's, CUDAMEM_LOCATION_HOST or CUDAMEM_LOCATION_NODE. */
    int32_t location;
    /** The NUMA node, with CUDAMEM_LOCATION_NODE; else 0. */
    int32_t node;
    /** CUDAMEM_PHYSICAL_... combined by |. */
    uint32_t flags;
    /** 0. */
    uint32_t reserved;
} cudamem_virtual_options;

/**
 * Makes physical memory of at least size bytes, which has no address until it is mapped. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver has none; CUDAMEM_ERROR_OUT_OF_MEMORY;
 * CUDAMEM_ERROR_INVALID_ARGUMENT if size is 0.
 */
cudamem_status cudamem_physical_create(cudamem_context context,
                                       size_t size,
                                       const cudamem_physical_options *options,
                                       cudamem_physical *physical);

/**
 * Gives a file descriptor, the program's to close, by which another process imports the memory.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not shareable.
 */
cudamem_status cudamem_physical_export(cudamem_physical physical, int32_t *file);

/**
 * Opens physical memory of size bytes by a file descriptor that another process has exported. The library closes the file, also
 * after a failure, unless it is no file.
 */
cudamem_status cudamem_physical_import(cudamem_context context,
                                       int32_t file,
                                       size_t size,
                                       cudamem_physical *physical);

/** Gives the size in bytes, in whole units. */
cudamem_status cudamem_physical_get_size(cudamem_physical physical, size_t *size);

/** Destroys the handle. The memory ends when nothing maps it any more. The null handle is allowed. */
cudamem_status cudamem_physical_destroy(cudamem_physical physical);

/**
 * Makes a resource of virtual memory: what is allocated of it is whole units, some 2 MiB. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver cannot do what the options say.
 */
cudamem_status cudamem_resource_create_virtual(cudamem_context context,
                                               const cudamem_virtual_options *options,
                                               cudamem_resource *resource);

/** Gives the unit of virtual memory in bytes. */
cudamem_status cudamem_resource_get_granularity(cudamem_resource resource, size_t *granularity);

/**
 * Maps count pieces of physical memory side by side, as one buffer, where they may have other addresses already. Who uses the same
 * bytes at several addresses keeps the order.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a piece lies elsewhere than the resource's memory, or there is none.
 */
cudamem_status cudamem_resource_map(cudamem_resource resource,
                                    const cudamem_physical *physical,
                                    size_t count,
                                    cudamem_stream stream,
                                    cudamem_buffer *buffer);

/**
 * Reserves addresses for capacity bytes of a resource that cudamem_resource_create_virtual made, as a buffer of no bytes yet, which
 * cudamem_buffer_grow makes larger. A slice of it ends its growth.
 */
cudamem_status cudamem_buffer_create_growable(cudamem_resource resource,
                                              size_t capacity,
                                              cudamem_stream stream,
                                              cudamem_buffer *buffer);

/**
 * Grows a buffer to size bytes; the new ones are zeros, written in stream order. Up to its capacity its address stays; beyond, the
 * same memory is mapped at another address: moved, which may be NULL, says whether. Does nothing where it has as many bytes
 * already.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable; CUDAMEM_ERROR_OUT_OF_MEMORY: it is then as it was.
 */
cudamem_status cudamem_buffer_grow(cudamem_buffer buffer,
                                   size_t size,
                                   bool *moved);

/**
 * Shrinks a buffer to size bytes. Physical memory that holds none of them any more goes back to the system, after the work of the
 * home stream; addresses stay reserved. Does nothing where it has no more bytes.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is not growable.
 */
cudamem_status cudamem_buffer_shrink(cudamem_buffer buffer,
                                     size_t size);

/**
 * Gives how many bytes the reserved addresses of a growable buffer have room for, and how much physical memory it has. Either place
 * may be NULL.
 */
cudamem_status cudamem_buffer_get_capacity(cudamem_buffer buffer,
                                           size_t *capacity,
                                           size_t *physical);

/* ---- Memory of the host ---------------------------------------------------------------------------------------------
 *
 * The program's own memory can be registered: it is page-locked then, devices copy it as fast as memory that the driver
 * allocated, and kernels may address it. Managed memory lies where it is used, and takes advice. Page-locked memory of the
 * driver's is a buffer of cudamem_resource_create_pinned, whose CPU address cudamem_buffer_get_host_pointer gives.
 */

/** A flag of cudamem_buffer_register: devices only read the memory. Not every device makes the difference. */
#define CUDAMEM_REGISTER_READ_ONLY 1
/** A flag of cudamem_buffer_register: it is memory of another device's, mapped into the process. */
#define CUDAMEM_REGISTER_IO_MEMORY 2
/** Mostly read: each reader gets a copy, which a write ends. Takes no location. */
#define CUDAMEM_ADVICE_READ_MOSTLY 0
/** Takes CUDAMEM_ADVICE_READ_MOSTLY back. */
#define CUDAMEM_ADVICE_NOT_READ_MOSTLY 1
/** Where the memory should lie. Nothing moves yet. */
#define CUDAMEM_ADVICE_PREFERRED_LOCATION 2
/** Takes CUDAMEM_ADVICE_PREFERRED_LOCATION back. Takes no location. */
#define CUDAMEM_ADVICE_NO_PREFERRED_LOCATION 3
/** The memory is kept mapped for a device, or the host, wherever it lies. */
#define CUDAMEM_ADVICE_ACCESSED_BY 4
/** Takes CUDAMEM_ADVICE_ACCESSED_BY back. */
#define CUDAMEM_ADVICE_NOT_ACCESSED_BY 5

/**
 * Registers size bytes of the program's memory at pointer, and uses them as a buffer. They must stay allocated, and be used through
 * the buffer alone, until release was called with user, which the end of the last part of the buffer does when its work is done,
 * or which happens later, on any thread, if queued work waits for the CPU then;
 * where release is NULL, until that end. Pages are locked, one by one: some 0.1 ms for each MiB. flags is CUDAMEM_REGISTER_...
 * combined by |. After a failure release is not called.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if some of the memory is registered already, is the driver's, or cannot be written;
 * CUDAMEM_ERROR_OUT_OF_MEMORY if the limit of locked memory is reached; CUDAMEM_ERROR_UNSUPPORTED.
 */
cudamem_status cudamem_buffer_register(void *pointer,
                                       size_t size,
                                       cudamem_stream stream,
                                       uint32_t flags,
                                       cudamem_release_callback release,
                                       void *user,
                                       cudamem_buffer *buffer);

/**
 * Advises the driver on a range of managed memory. advice is one of CUDAMEM_ADVICE_..., location one of CUDAMEM_LOCATION_... with
 * its number; advice that takes no location ignores both. The driver works in pages, which buffers may share.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed; CUDAMEM_ERROR_UNSUPPORTED if the driver knows no NUMA nodes.
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
 * Errors: as cudamem_buffer_advise; CUDAMEM_ERROR_DRIVER if the device has no concurrent managed access.
 */
cudamem_status cudamem_buffer_prefetch(cudamem_buffer buffer,
                                       size_t offset,
                                       size_t size,
                                       int32_t location,
                                       int32_t number);

/** Tells whether all of a range of managed memory was advised to be mostly read. */
cudamem_status cudamem_buffer_is_read_mostly(cudamem_buffer buffer, size_t offset, size_t size, bool *read_mostly);

/**
 * Tells where a range of managed memory was last sent: one of CUDAMEM_LOCATION_... and its number; known is false if nowhere, or its
 * parts to different places, and the others then stay as they are.
 */
cudamem_status cudamem_buffer_get_prefetched(cudamem_buffer buffer,
                                             size_t offset,
                                             size_t size,
                                             bool *known,
                                             int32_t *location,
                                             int32_t *number);

/**
 * Says that the contents of a range of managed memory are not needed any more, in order of the home stream: the range is the
 * device's without having been moved. Until it is written again its contents are undefined.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed; CUDAMEM_ERROR_MISSING_SYMBOL or CUDAMEM_ERROR_UNSUPPORTED on
 * drivers before CUDA 13.0.
 */
cudamem_status cudamem_buffer_discard(cudamem_buffer buffer,
                                      size_t offset,
                                      size_t size);

/* ---- Profiles of copy engines ---------------------------------------------------------------------------------------
 *
 * What an engine has measured of the machine, and chooses ways by; and the page-locked staging that it keeps.
 */

/** Gives the profile that ways are chosen by, as JSON: what each way of copying takes, by size. */
cudamem_status cudamem_engine_get_profile(cudamem_engine engine, cudamem_text *json);

/** Chooses by another profile from now on, which is a JSON text. It is not kept in the cache folder. */
cudamem_status cudamem_engine_set_profile(cudamem_engine engine, const char *json);

/** Measures the machine, chooses by what was found, and keeps it in the cache folder. Takes 0.2 s or less. */
cudamem_status cudamem_engine_measure(cudamem_engine engine);

/** Gives how many bytes of page-locked staging the engine has. */
cudamem_status cudamem_engine_get_staging(cudamem_engine engine, size_t *size);

/** Frees staging that no copy uses. */
cudamem_status cudamem_engine_trim(cudamem_engine engine);

/* ---- Copies of engines in stream order, of many pieces, and complete ------------------------------------------------
 *
 * A copy in order of a stream comes after the work given to it so far, and before its later work. The program's memory goes
 * through page-locked staging of the engine's, so that no such write waits for the stream.
 */

/** One of many writes. */
typedef struct {
    /** Where it goes in the memory, in bytes. */
    size_t offset;
    /** Where it comes from on the host. */
    const void *source;
    /** How many bytes it has. */
    size_t size;
} cudamem_scatter;

/** Where a piece of a copy between two buffers comes from and goes to, in bytes. */
typedef struct {
    /** Where it goes in the destination. */
    size_t offset;
    /** Where it comes from in the source. */
    size_t source_offset;
    /** How many bytes it has. */
    size_t size;
} cudamem_piece;

/**
 * Copies size bytes of the host to a buffer, from offset on, in order of a stream. Returns when the source is free again.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream captures a graph, or is of another device.
 */
cudamem_status cudamem_engine_write_buffer_on(cudamem_engine engine,
                                              cudamem_stream stream,
                                              cudamem_buffer buffer,
                                              size_t offset,
                                              const void *source,
                                              size_t size);

/**
 * Begins to copy size bytes of a buffer, from offset on, to the host, in order of a stream. The bytes come to destination with
 * cudamem_pending_read_wait: it must stay valid, and be used by nothing else, until then, or until the pending read is
 * destroyed.
 *
 * Errors: as cudamem_engine_write_buffer_on.
 */
cudamem_status cudamem_engine_read_buffer_on(cudamem_engine engine,
                                             cudamem_stream stream,
                                             cudamem_buffer buffer,
                                             size_t offset,
                                             void *destination,
                                             size_t size,
                                             cudamem_pending_read *pending);

/**
 * Waits for a read: its destination holds the bytes, and may be used. A second wait does nothing.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the copy, or work before it, failed.
 */
cudamem_status cudamem_pending_read_wait(cudamem_pending_read pending);

/**
 * Tells whether cudamem_pending_read_wait has nothing to wait for.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the copy, or work before it, failed.
 */
cudamem_status cudamem_pending_read_is_done(cudamem_pending_read pending, bool *done);

/** Destroys a pending read. If it was not waited for, nothing happens to the destination. The null handle is allowed. */
cudamem_status cudamem_pending_read_destroy(cudamem_pending_read pending);

/** As cudamem_engine_write_buffer; returns when the bytes are in the device's memory, and not only on their way. */
cudamem_status cudamem_engine_write_buffer_complete(cudamem_engine engine,
                                                    cudamem_buffer buffer,
                                                    size_t offset,
                                                    const void *source,
                                                    size_t size);

/** As cudamem_engine_write_buffer_complete, to mapped memory: one load over PCIe longer than cudamem_engine_write_mapped. */
cudamem_status cudamem_engine_write_mapped_complete(cudamem_engine engine,
                                                    cudamem_mapped mapped,
                                                    size_t offset,
                                                    const void *source,
                                                    size_t size);

/**
 * Does count writes to a buffer in their order, so that of two that overlap the later one stays: they are gathered, and sent
 * with few calls of the driver. Device work given after this sees them.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if one does not fit; those before it are written.
 */
cudamem_status cudamem_engine_scatter_to_buffer(cudamem_engine engine,
                                                cudamem_buffer buffer,
                                                const cudamem_scatter *writes,
                                                size_t count);

/** As cudamem_engine_scatter_to_buffer, to mapped memory: CPU stores with one fence for all. */
cudamem_status cudamem_engine_scatter_to_mapped(cudamem_engine engine,
                                                cudamem_mapped mapped,
                                                const cudamem_scatter *writes,
                                                size_t count);

/**
 * Copies count pieces of source to places of buffer, in order of stream, given to the driver in one call where it has such a
 * call (CUDA 12.8). They have no order among each other, so they must not overlap in the buffer.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if a piece does not fit, CUDAMEM_ERROR_INVALID_ARGUMENT if two overlap, or if both handles
 * are one: then nothing is copied.
 */
cudamem_status cudamem_buffer_copy_pieces(cudamem_buffer buffer,
                                          cudamem_buffer source,
                                          const cudamem_piece *pieces,
                                          size_t count,
                                          cudamem_stream stream);

/* ---- Signals --------------------------------------------------------------------------------------------------------
 *
 * Words that the CPU, streams and kernels that run write and wait for: flags, counters, and rings of items (below). A kernel
 * launch and the wait for its end take about 8 us; a flag that a running kernel answers takes 1.5. The device's side is
 * cudamem/signal.cuh, one header for CUDA C++ without dependencies.
 *
 * cudamem_flag question, answer;
 * cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &question);
 * cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_CPU, &answer);
 * ... launch a kernel with the addresses that cudamem_flag_get_device_pointer gives, then cudamem_flag_record_use ...
 * cudamem_flag_store(question, 1);
 * cudamem_flag_wait(answer, CUDAMEM_COMPARE_EQUAL, 1, &options, NULL);
 *
 * Each word has one writer at a time: what CPU and device write at once, one of them loses. A write comes after all that its
 * thread wrote before, to any memory; who sees the value sees those writes, in coherent memory.
 *
 * A driver may wait for the device when memory is allocated or freed and when a kernel is launched for the first time: so for
 * a kernel that waits for the program. Make flags, rings, memory and kernels before launching one that waits. Load, store,
 * wait, push and pop make no call of the driver but where they wait for 5 ms and more.
 */

/** A flag of cudamem_signals_create: pinned memory alone, also where there is mapped memory. */
#define CUDAMEM_SIGNALS_PINNED_ONLY 1
/** Where the CPU looks fastest: pinned memory. */
#define CUDAMEM_PLACE_FOR_CPU 0
/** Where kernels and streams look fastest: mapped memory if it is there, else pinned memory. */
#define CUDAMEM_PLACE_FOR_DEVICE 1
/** Page-locked memory of the host. */
#define CUDAMEM_PLACE_PINNED 2
/** Device memory that the CPU addresses too, if it is there and coherent. */
#define CUDAMEM_PLACE_MAPPED 3
/** The word is the value. */
#define CUDAMEM_COMPARE_EQUAL 0
/** The word is the value, or ahead of it by less than half of all numbers: counters may wrap around. */
#define CUDAMEM_COMPARE_AT_LEAST 1
/** A bit of the value is set in the word. */
#define CUDAMEM_COMPARE_ANY_BIT 2
/** A bit is clear in the word and in the value. Not every device's streams can wait so. */
#define CUDAMEM_COMPARE_NOT_ALL_BITS 3

/**
 * How the CPU waits: it looks again and again, in turns without a pause, then leaving the processor to other threads, then
 * with naps that double. Zeros are the defaults.
 */
typedef struct {
    /** sizeof(cudamem_wait_options). */
    size_t size;
    /**
     * When to give up, in seconds. 0 for never: the wait then ends only with what it waits for, or with the driver's error
     * when the device has failed.
     */
    double timeout;
    /** The first nap in seconds. 20 us by default. */
    double shortest_nap;
    /** The longest nap in seconds, and so how late a long wait may notice. 1 ms by default. */
    double longest_nap;
    /** How often the wait looks without a pause. 10000 by default; -1 for not at all. */
    int32_t spins;
    /** How often it looks after that, leaving the processor to other threads in between. 200 by default; -1 for not at all. */
    int32_t yields;
} cudamem_wait_options;

/**
 * Makes the memory that flags, counters and rings of a context are cut from, 64 KiB at a time. flags is 0 or
 * CUDAMEM_SIGNALS_PINNED_ONLY. Where mapped memory is missing or not coherent, all lies in pinned memory.
 */
cudamem_status cudamem_signals_create(cudamem_context context, uint32_t flags, cudamem_signals *signals);

/**
 * As cudamem_signals_create, with mapped memory of a resource that cudamem_resource_create_mapped made: its device is not
 * opened once more.
 */
cudamem_status cudamem_signals_create_over(cudamem_resource resource,
                                           cudamem_signals *signals);

/** Tells why signals lie in pinned memory alone, as a text to be destroyed; the null handle where mapped memory is there. */
cudamem_status cudamem_signals_get_missing(cudamem_signals signals,
                                           cudamem_text *missing);

/**
 * Destroys the handle. The memory ends with the last flag, counter and ring of it, after the device work that they know of.
 * Streams that wait for a flag are released; kernels that wait for one have to be before. The null handle is allowed.
 */
cudamem_status cudamem_signals_destroy(cudamem_signals signals);

/**
 * Makes a flag: a word of 32 or 64 bits, alone in its cache lines, 0 at first. place is one of CUDAMEM_PLACE_... .
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if there is no such memory; CUDAMEM_ERROR_OUT_OF_MEMORY.
 */
cudamem_status cudamem_flag_create(cudamem_signals signals, uint32_t bits, int32_t place, cudamem_flag *flag);

/** Reads the word. What its writer did before the write is seen after this. */
cudamem_status cudamem_flag_load(cudamem_flag flag, uint64_t *value);

/**
 * Writes the word, after all earlier writes of this thread. The write is posted: a kernel that looks sees it after a trip over
 * PCIe at most.
 */
cudamem_status cudamem_flag_store(cudamem_flag flag,
                                  uint64_t value);

/**
 * Waits on the CPU until the word compares with value, and gives what it was then in seen, which may be NULL. comparison is one
 * of CUDAMEM_COMPARE_...; options may be NULL. A word that changes back may be missed.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if time is up; CUDAMEM_ERROR_INVALID_ARGUMENT if no word can ever compare so;
 * CUDAMEM_ERROR_CLOSED if another thread destroys the flag; CUDAMEM_ERROR_DRIVER if the device has failed.
 */
cudamem_status cudamem_flag_wait(cudamem_flag flag,
                                 int32_t comparison,
                                 uint64_t value,
                                 const cudamem_wait_options *options,
                                 uint64_t *seen);

/**
 * Lets work given to stream from now on wait until the word compares with value. The wait takes no processor of the device; it
 * holds the stream until somebody writes, which must not depend on the same stream. More such waits at a time than the device
 * has queues (CUDA_DEVICE_MAX_CONNECTIONS) may hold each other.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device has no such waits; CUDAMEM_ERROR_INVALID_ARGUMENT if the stream is of another
 * context or captures a graph, or no word can ever compare so.
 */
cudamem_status cudamem_flag_wait_on(cudamem_flag flag,
                                    cudamem_stream stream,
                                    int32_t comparison,
                                    uint64_t value);

/**
 * Writes the word when all work given to stream so far is done; who sees the value sees that work.
 *
 * Errors: as cudamem_flag_wait_on.
 */
cudamem_status cudamem_flag_store_on(cudamem_flag flag, cudamem_stream stream, uint64_t value);

/**
 * Tells the flag that work given to stream so far uses it: kernels that were launched with its address. Its memory serves
 * nothing else until that work is done.
 */
cudamem_status cudamem_flag_record_use(cudamem_flag flag,
                                       cudamem_stream stream);

/** Gives the word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle lives. */
cudamem_status cudamem_flag_get_device_pointer(cudamem_flag flag,
                                               uint64_t *pointer);

/** Tells where the word lies: place becomes CUDAMEM_PLACE_PINNED or CUDAMEM_PLACE_MAPPED. */
cudamem_status cudamem_flag_get_place(cudamem_flag flag, int32_t *place);

/** Gives a flag a name, for errors and for reports of waits that take long. */
cudamem_status cudamem_flag_set_name(cudamem_flag flag, const char *name);

/**
 * Destroys a flag. A wait of another thread for it fails with CUDAMEM_ERROR_CLOSED. A stream that waits for it goes on: when a
 * queued write of another stream satisfies the wait, or else at once. Then nobody satisfied the wait, and the stream's next
 * cudamem_stream_synchronize, access to memory, or wait fails with CUDAMEM_ERROR_CLOSED. The flag's memory stays until the work
 * that it was told of is done. Kernels of the program that wait for it have to be released before, or to give up in time. The
 * null handle is allowed.
 */
cudamem_status cudamem_flag_destroy(cudamem_flag flag);

/* ---- Counters -------------------------------------------------------------------------------------------------------
 *
 * Words that only grow: "so many pieces are ready", which the CPU counts and streams and kernels wait for, or "so many are
 * done", which a stream or kernel counts and the CPU waits for. Counts may wrap around.
 */

/** The CPU counts; streams and kernels wait. */
#define CUDAMEM_COUNTED_BY_CPU 0
/** One stream or kernel at a time counts; the CPU and streams wait. */
#define CUDAMEM_COUNTED_BY_DEVICE 1
/** Makes a counter of 32 or 64 bits, 0 at first. by is one of CUDAMEM_COUNTED_BY_... . */
cudamem_status cudamem_counter_create(cudamem_signals signals, uint32_t bits, int32_t by, cudamem_counter *counter);

/**
 * Counts on, on the CPU, after all earlier writes of this thread. Gives the new count in count, which may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the device counts.
 */
cudamem_status cudamem_counter_add(cudamem_counter counter, uint64_t more, uint64_t *count);

/** Gives the count as it is now. What was done before it was counted is seen after this. */
cudamem_status cudamem_counter_get_value(cudamem_counter counter, uint64_t *count);

/**
 * Waits on the CPU until the count is at least count, and gives what it was then in seen, which may be NULL. options may be
 * NULL.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if time is up; CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts; CUDAMEM_ERROR_DRIVER if the
 * device has failed.
 */
cudamem_status cudamem_counter_wait(cudamem_counter counter,
                                    uint64_t count,
                                    const cudamem_wait_options *options,
                                    uint64_t *seen);

/**
 * Lets work given to stream from now on wait until the count is at least count.
 *
 * Errors: as cudamem_flag_wait_on.
 */
cudamem_status cudamem_counter_wait_on(cudamem_counter counter, cudamem_stream stream, uint64_t count);

/**
 * Sets a count that the device keeps when all work given to stream so far is done.
 *
 * Errors: as cudamem_flag_wait_on; CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts.
 */
cudamem_status cudamem_counter_store_on(cudamem_counter counter, cudamem_stream stream, uint64_t count);

/**
 * Tells the counter that work given to stream so far uses it: kernels that were launched with its address. Its memory serves
 * nothing else until that work is done.
 */
cudamem_status cudamem_counter_record_use(cudamem_counter counter,
                                          cudamem_stream stream);

/** Gives the word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle lives. */
cudamem_status cudamem_counter_get_device_pointer(cudamem_counter counter,
                                                  uint64_t *pointer);

/** Gives a counter a name, as cudamem_flag_set_name. */
cudamem_status cudamem_counter_set_name(cudamem_counter counter, const char *name);

/** Destroys a counter. What waits for it ends as with cudamem_flag_destroy. The null handle is allowed. */
cudamem_status cudamem_counter_destroy(cudamem_counter counter);

/* ---- Rings ----------------------------------------------------------------------------------------------------------
 *
 * A ring passes items of one size between the CPU and a kernel that runs, in order: one producer, one consumer. The handle is
 * the CPU's end; a kernel gets the other by the ring's descriptor, and uses it by cudamem/signal.cuh:
 *
 * __global__ void serve(cudamem::ring_descriptor requests) {
 * cudamem::ring_consumer<uint64_t> input(requests);
 * uint64_t item;
 * while (input.receive(item) == cudamem::outcome::done) { ... }
 * }
 *
 * Pushing and popping are CPU stores and loads, and no call of the driver. Threads that use one end take turns, also with one
 * that waits: give waits a time where another thread may have to close the ring.
 */

/** The CPU pushes, a kernel pops. */
#define CUDAMEM_RING_TO_DEVICE 0
/** A kernel pushes, the CPU pops. */
#define CUDAMEM_RING_FROM_DEVICE 1
/** How a ring is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_ring_options). */
    size_t size;
    /** One of CUDAMEM_RING_TO_DEVICE and CUDAMEM_RING_FROM_DEVICE. */
    int32_t direction;
    /** Not 0: items and tail lie at consumer_place, and the head at producer_place. 0: each where its reader looks fastest. */
    int32_t choose_places;
    /** One of CUDAMEM_PLACE_... . */
    int32_t consumer_place;
    /** One of CUDAMEM_PLACE_... . */
    int32_t producer_place;
} cudamem_ring_options;

/**
 * What a kernel gets, by value, to use the other end: cudamem::ring_descriptor in CUDA C++. The addresses are the device's, and
 * valid while the handle lives.
 */
typedef struct {
    /** Where the consumer looks: the tail. */
    uint64_t consumer_line;
    /** Where the producer looks: the head. */
    uint64_t producer_line;
    /** The items. */
    uint64_t items;
    /** How many items the ring holds: a power of two. */
    uint32_t capacity;
    /** The size of an item in bytes. */
    uint32_t item_size;
} cudamem_ring_descriptor;

/**
 * Makes a ring that holds at least items items, at most 2^31, of item_size bytes each: the next power of two is the capacity.
 * options may be NULL, for a ring to the device.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if item_size is 0 or there are too many items; CUDAMEM_ERROR_OUT_OF_MEMORY.
 */
cudamem_status cudamem_ring_create(cudamem_signals signals,
                                   size_t items,
                                   size_t item_size,
                                   const cudamem_ring_options *options,
                                   cudamem_ring *ring);

/**
 * Pushes the first of count items, as many as have room, and publishes them at once. Gives how many; 0 if the ring is full.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is from the device; CUDAMEM_ERROR_DAMAGED if the other end's index cannot
 * be: the ring's memory was overwritten.
 */
cudamem_status cudamem_ring_push(cudamem_ring ring,
                                 const void *items,
                                 size_t count,
                                 size_t *pushed);

/**
 * Pushes at least one of count items, and waits for room where there is none. Gives how many; 0 only if the other end has
 * closed, or if count is 0. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if no room came in time, and nothing was pushed; otherwise as cudamem_ring_push.
 */
cudamem_status cudamem_ring_send(cudamem_ring ring,
                                 const void *items,
                                 size_t count,
                                 const cudamem_wait_options *options,
                                 size_t *sent);

/**
 * Pops as many items as are there, at most count, and frees their slots at once. Gives how many; 0 if the ring is empty.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is to the device; CUDAMEM_ERROR_DAMAGED if the other end's index cannot
 * be: the ring's memory was overwritten.
 */
cudamem_status cudamem_ring_pop(cudamem_ring ring,
                                void *items,
                                size_t count,
                                size_t *popped);

/**
 * Pops at least one item, at most count, and waits where there is none. Gives how many; 0 only if the other end has closed and
 * the ring is empty, or if count is 0. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if nothing came in time; otherwise as cudamem_ring_pop.
 */
cudamem_status cudamem_ring_receive(cudamem_ring ring,
                                    void *items,
                                    size_t count,
                                    const cudamem_wait_options *options,
                                    size_t *received);

/** Gives how many items the CPU can push now, or pop. */
cudamem_status cudamem_ring_get_available(cudamem_ring ring, size_t *count);

/** Gives how many items the ring holds at most. */
cudamem_status cudamem_ring_get_capacity(cudamem_ring ring, size_t *capacity);

/** Tells whether the other end has closed. Items that it pushed before may still be there. */
cudamem_status cudamem_ring_is_closed(cudamem_ring ring, bool *closed);

/**
 * Closes the CPU's end: a kernel gets what was pushed, and then learns that nothing more comes; or it learns that nothing is
 * popped any more.
 */
cudamem_status cudamem_ring_close(cudamem_ring ring);

/**
 * Gives what a kernel gets to use the other end. One kernel at a time, with one thread, may use it; the next one goes on where
 * it ended. Tell the ring of the launch: cudamem_ring_record_use.
 */
cudamem_status cudamem_ring_get_descriptor(cudamem_ring ring,
                                           cudamem_ring_descriptor *descriptor);

/**
 * Tells the ring that work given to stream so far uses it: kernels that were launched with its descriptor. Its memory serves
 * nothing else until that work is done.
 */
cudamem_status cudamem_ring_record_use(cudamem_ring ring,
                                       cudamem_stream stream);

/** Gives a ring a name, as cudamem_flag_set_name. */
cudamem_status cudamem_ring_set_name(cudamem_ring ring, const char *name);

/** Closes the ring and destroys it. Its memory stays until the work that it was told of is done. The null handle is allowed. */
cudamem_status cudamem_ring_destroy(cudamem_ring ring);

/* ---- Frames ---------------------------------------------------------------------------------------------------------
 *
 * A ring of frames is for data that arrives all the time. The program takes a frame, queues the consumer's work on it, fills it on
 * the CPU while that work waits, and publishes it: then the work runs. What is not possible with a buffer and a flag: a write
 * to a buffer waits for the work on the buffer, which waits for the flag.
 *
 * cudamem_frame_ring_next(ring, NULL, &frame);
 * cudamem_buffer_copy_from_frame(device_buffer, 0, frame, 0, size);
 * cudamem_frame_get_host_pointer(frame, &bytes);
 * received = recv(socket, bytes, size, 0);
 * cudamem_frame_publish(frame, NULL);
 *
 * Frames are published in the order in which work on them was queued on a stream: work on the first holds back the rest.
 */

/** What a ring of frames has done so far. */
typedef struct {
    /** sizeof(cudamem_frame_ring_statistics), set by the program. */
    size_t size;
    /** How many frames were taken. */
    uint64_t taken;
    /** How many frames were published. */
    uint64_t published;
    /** How many frames were destroyed without being published. */
    uint64_t abandoned;
    /** How many frames are open now. */
    uint64_t open;
    /** How many frames are not used any more, because a graph may read them. */
    uint64_t lost;
    /** How often a frame was asked for while device work still read the oldest one. */
    uint64_t overruns;
} cudamem_frame_ring_statistics;

/**
 * Makes a ring of frames of frame_size bytes each, in memory of a resource that both CPU and device address: pinned, mapped or
 * managed memory, or a pool of it. All bytes are zero; a frame that is taken again has the bytes of its former frame.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if frames or frame_size is 0, or if not both address the memory;
 * CUDAMEM_ERROR_UNSUPPORTED if streams of the device cannot wait for words; CUDAMEM_ERROR_OUT_OF_MEMORY.
 */
cudamem_status cudamem_frame_ring_create(cudamem_resource resource,
                                         cudamem_signals signals,
                                         size_t frames,
                                         size_t frame_size,
                                         cudamem_frame_ring *ring);

/**
 * Takes the oldest frame, and waits until all device work that reads it is done. options may be NULL: no time limit.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT, at once, if all frames are open: publish or destroy one; CUDAMEM_ERROR_TIMED_OUT if
 * device work still reads the frame; CUDAMEM_ERROR_DRIVER if that work failed.
 */
cudamem_status cudamem_frame_ring_next(cudamem_frame_ring ring,
                                       const cudamem_wait_options *options,
                                       cudamem_frame *frame);

/**
 * Takes the oldest frame if no device work reads it; else frame becomes the null handle.
 *
 * Errors: as cudamem_frame_ring_next, without CUDAMEM_ERROR_TIMED_OUT.
 */
cudamem_status cudamem_frame_ring_try_next(cudamem_frame_ring ring, cudamem_frame *frame);

/** Tells what a ring of frames has done. statistics->size is set by the program. */
cudamem_status cudamem_frame_ring_get_statistics(cudamem_frame_ring ring, cudamem_frame_ring_statistics *statistics);

/**
 * Destroys a ring of frames. Frames that are open are given up, as cudamem_frame_destroy does it: nobody may write them any
 * more. The memory is freed when the work that reads it is done, for which this may wait. The null handle is allowed.
 */
cudamem_status cudamem_frame_ring_destroy(cudamem_frame_ring ring);

/** Gives the frame's number: 1 for the first that was taken from its ring. */
cudamem_status cudamem_frame_get_number(cudamem_frame frame, uint64_t *number);

/**
 * Gives the CPU's address of the frame. The program may write there until the frame is published or destroyed, or its ring is.
 * All of the frame then counts as written: what is not flushed after this call is flushed when the frame is published.
 */
cudamem_status cudamem_frame_get_host_pointer(cudamem_frame frame,
                                              void **pointer);

/** Copies size bytes to the frame from offset on, by the CPU, in the way that suits the memory. */
cudamem_status cudamem_frame_write(cudamem_frame frame, size_t offset, const void *source, size_t size);

/** Posts what the CPU wrote to a range, so that less is left when the frame is published. Other threads see it then, too. */
cudamem_status cudamem_frame_flush(cudamem_frame frame,
                                   size_t offset,
                                   size_t size);

/**
 * Lets work given to stream from now on wait until the frame is published. Tell the frame of kernels that read it afterwards:
 * cudamem_frame_record_use.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream is another context's, captures a graph, or is a per-thread default stream;
 * CUDAMEM_ERROR_CLOSED if the ring was destroyed.
 */
cudamem_status cudamem_frame_wait_on(cudamem_frame frame,
                                     cudamem_stream stream);

/**
 * Gives the frame's address for kernels (a CUdeviceptr), which only read there, and only after cudamem_frame_wait_on on their
 * stream.
 */
cudamem_status cudamem_frame_get_device_pointer(cudamem_frame frame,
                                                uint64_t *pointer);

/**
 * Tells the frame of work given to stream so far that reads it: kernels that were launched after cudamem_frame_wait_on. The
 * frame is taken again when that work is done.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream captures a graph, or is a per-thread default stream.
 */
cudamem_status cudamem_frame_record_use(cudamem_frame frame,
                                        cudamem_stream stream);

/**
 * Copies size bytes of an open frame, from frame_offset on, to the buffer from offset on, in order of the buffer's home stream:
 * the stream waits until the frame is published, and then copies. All that it is given from now on waits too.
 *
 * Errors: as cudamem_frame_wait_on; CUDAMEM_ERROR_OUT_OF_RANGE.
 */
cudamem_status cudamem_buffer_copy_from_frame(cudamem_buffer buffer,
                                              size_t offset,
                                              cudamem_frame frame,
                                              size_t frame_offset,
                                              size_t size);

/**
 * Gives the frame to the device: flushes what is left, and lets the work run that waits for it. The handle ends. number, which
 * may be NULL, gets the frame's number.
 *
 * Errors: CUDAMEM_ERROR_VKGDR if the flush failed, CUDAMEM_ERROR_CLOSED if the ring was destroyed; the frame stays open.
 */
cudamem_status cudamem_frame_publish(cudamem_frame frame,
                                     uint64_t *number);

/**
 * Abandons a frame that was not published: what waits for it goes on, and each such stream's next wait fails with
 * CUDAMEM_ERROR_CLOSED, because its work has read bytes that nobody had finished. The null handle is allowed.
 */
cudamem_status cudamem_frame_destroy(cudamem_frame frame);

/* ---- Graphs ---------------------------------------------------------------------------------------------------------
 *
 * Work of a stream can be recorded once and launched many times. What the work uses has to live at each launch: memory, kernels,
 * and what host functions get.
 */

/** No thread may make calls that a capture does not notice, such as plain allocations. */
#define CUDAMEM_CAPTURE_GLOBAL 0
/** The calling thread may not make such calls. */
#define CUDAMEM_CAPTURE_THREAD_LOCAL 1
/** All threads may make them: none belongs to the recorded work. */
#define CUDAMEM_CAPTURE_RELAXED 2
/** A flag of cudamem_graph_instantiate: a launch first frees the memory that the one before allocated and nobody freed. */
#define CUDAMEM_GRAPH_AUTO_FREE 1

/**
 * Gives a stream what is to be recorded, by functions of this library and of CUDA's, with what was given along with the function.
 * CUDAMEM_SUCCESS makes the graph; any other status gives the recording up. It must not unwind.
 */
typedef cudamem_status (*cudamem_record_callback)(cudamem_stream stream, void *user);

/**
 * Calls record, and makes a graph of what it gives the stream, which is not done now. mode is one of CUDAMEM_CAPTURE_... . Another
 * stream takes part once it waits for this one (cudamem_stream_join), and must be joined again before the end.
 *
 * Errors: the status of record; CUDAMEM_ERROR_DRIVER if the stream captures already, is the legacy default stream, or the capture
 * was lost by a call that may not be made meanwhile.
 */
cudamem_status cudamem_graph_capture(cudamem_stream stream,
                                     int32_t mode,
                                     cudamem_record_callback record,
                                     void *user,
                                     cudamem_graph *graph);

/** Gives how many nodes a graph has. */
cudamem_status cudamem_graph_get_node_count(cudamem_graph graph, size_t *count);

/** Gives the driver's handle, a CUgraph. It is valid while the handle lives. */
cudamem_status cudamem_graph_get_raw(cudamem_graph graph, void **raw);

/** Destroys a graph; what was instantiated of it stays. The null handle is allowed. */
cudamem_status cudamem_graph_destroy(cudamem_graph graph);

/** Makes a graph ready for launches. flags is 0 or CUDAMEM_GRAPH_AUTO_FREE. */
cudamem_status cudamem_graph_instantiate(cudamem_graph graph, uint32_t flags, cudamem_executable *executable);

/** Does the recorded work after all work given to stream so far, and after the launch before. */
cudamem_status cudamem_executable_launch(cudamem_executable executable, cudamem_stream stream);

/** Destroys an executable graph; a launch that goes on keeps what it needs. The null handle is allowed. */
cudamem_status cudamem_executable_destroy(cudamem_executable executable);

/**
 * Makes a resource of memory that a graph allocates at each launch: allocate it within a recording, of the stream that records.
 * A buffer that is destroyed within the recording is freed by the graph. One that outlives the recording is used and destroyed
 * only after a launch of its graph, and before the next launch: until then its address may be another graph's.
 */
cudamem_status cudamem_resource_create_graph(cudamem_context context,
                                             cudamem_resource *resource);

/** Gives how much memory the graphs of a device use, and how much is set aside for them, in bytes. Either place may be NULL. */
cudamem_status cudamem_resource_get_graph_memory(cudamem_resource resource,
                                                 uint64_t *used,
                                                 uint64_t *reserved);

/** Gives memory that no graph uses back to the system. */
cudamem_status cudamem_resource_trim_graph_memory(cudamem_resource resource);

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
 * virtual memory               cudamem_buffer_export_virtual       cudamem_buffer_import
 * mapped memory                cudamem_mapped_export               cudamem_mapped_import
 * an event                     cudamem_event_export                cudamem_event_import
 *
 * An export reaches the whole allocation that a buffer is of, whatever part it names. So a block of cudamem_resource_create_pool
 * and its like, which is a part of a larger allocation, is not exported: allocate what is to be shared from the resource behind.
 * A pool of the driver's is shared as a whole, with blocks that are freed and allocated anew.
 *
 * The exporting process goes on to own a pool's memory and that of cuMemAlloc, and keeps it until the others have let go: the
 * driver does not watch over that. Virtual memory and mapped memory are kept by each process on its own. A process
 * that ends, or is killed, lets go of what it imported; what it exported ends with it, but for these two.
 *
 * An import believes nothing of what it gets: what is cut off, of a later version, changed, forged, of another kind or of
 * another device is CUDAMEM_ERROR_DESCRIPTOR. A process knows its own pools by their files, by kcmp, which a sandbox has to
 * permit to a process that makes shareable pools and imports others. A pool's export brings a key along, with which descriptors of its memory are
 * signed: who has it may use all memory of the pool. Do not send it to others.
 *
 * File descriptors that the program gives are duplicated, and stay the program's. Those that it is given belong to the object,
 * are closed with it, and are not inherited by programs that are started.
 *
 * A driver does not survive a fork: every call of the child that needs the driver is CUDAMEM_ERROR_FORKED. Start processes by
 * fork and exec at once, or by posix_spawn.
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
 * Errors: CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if memory of its resource cannot be shared, as that of a
 * pool cannot which divides the allocations of another resource.
 */
cudamem_status cudamem_buffer_export(cudamem_buffer buffer,
                                     cudamem_export *exported);

/**
 * Exports a buffer of virtual memory, or the part of it that the buffer is: of a resource that
 * cudamem_resource_create_virtual made with CUDAMEM_PHYSICAL_SHAREABLE. Waits for the buffer's work so far. Each process keeps
 * the memory on its own. Who gets it may use the chunks of physical memory whole, also what lies beside a part.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is of another resource, was not made shareable, or lies in more than 64
 * chunks; CUDAMEM_ERROR_UNSUPPORTED if it is a block of a pool.
 */
cudamem_status cudamem_buffer_export_virtual(cudamem_buffer buffer,
                                             cudamem_resource resource,
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
 * own; for memory of cuMemAlloc, one that cudamem_resource_create_device made; for virtual memory, one of the same place that
 * cudamem_resource_create_virtual made. In the process that exported it, it is the
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
 * One thread may send while another receives; threads that do the same take turns. The time that a call may take begins with its
 * turn.
 */

/** The most bytes of a message. */
#define CUDAMEM_MESSAGE_SIZE 65536

/**
 * Makes a channel's two ends: for threads, and for a child process, which inherits the socket of one
 * (cudamem_channel_get_socket).
 */
cudamem_status cudamem_channel_create_pair(cudamem_channel *one, cudamem_channel *other);

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
 * inherited by a child (dup2). Do not read or write it. A message that cudamem_channel_receive_bytes had no room for has left
 * it.
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

/**
 * Destroys a channel, and closes its socket. A thread that waits in a call with it goes on to wait. The null handle is
 * allowed.
 */
cudamem_status cudamem_channel_destroy(cudamem_channel channel);

/**
 * Listens for connections at a path, where nothing may be yet. Who may connect, the permissions of the file and of its folder
 * say. The file is removed when the listener is destroyed, by the process that made it, and if it still lies there.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if there is a file already, or the folder's permissions forbid it.
 */
cudamem_status cudamem_listener_create(const char *path,
                                       cudamem_listener *listener);

/**
 * Waits for a connection, in turns with other threads: from its turn on, seconds at most; INFINITY is for ever.
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
