/*
 * libcudamem: memory shared by CPU and NVIDIA GPU, for C and C++.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
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
 * only. cudamem_last_error_message() returns the text of the calling thread's last failure.
 *
 * Threads: every function may be called from any thread at any time, even with the same objects, unless its description
 * says otherwise.
 *
 * Pointers: the place for a result must not be NULL, unless the description allows it. The memory behind a pointer must
 * be valid during the call: as many bytes or entries as the argument beside it states, or a text terminated by a zero.
 * The library keeps no pointer to the program's memory beyond the call, unless the description says so.
 *
 * Options: a struct of options, or of results, begins with its size, which the program sets, so that programs and
 * libraries of different releases work together. Set all other fields of options to zero first; zero is the default.
 *
 *     cudamem_stream_options options = {0};
 *     options.size = sizeof options;
 *
 * Flags, enumerated values and sizes that this release does not know give CUDAMEM_ERROR_INVALID_ARGUMENT.
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
 * CUDAMEM_VERSION_NUMBER is the release of the header that a program was compiled with. cudamem_version_number returns
 * the release of the library that it runs with.
 */

/** The release of this header: a new major version changes the interface. */
#define CUDAMEM_VERSION_MAJOR 0
/** A new minor version adds to the interface; before 1.0 it may change it. */
#define CUDAMEM_VERSION_MINOR 1
/** A new patch version changes no interface. */
#define CUDAMEM_VERSION_PATCH 0
/** The release as one number, for comparisons: major * 1000000 + minor * 1000 + patch. */
#define CUDAMEM_VERSION_NUMBER \
    (CUDAMEM_VERSION_MAJOR * 1000000 + CUDAMEM_VERSION_MINOR * 1000 + CUDAMEM_VERSION_PATCH)

/** Returns the library's release as text, such as "0.1.0". The text is static. */
const char *cudamem_version(void);

/**
 * Returns the library's release as one number, to compare with CUDAMEM_VERSION_NUMBER: major * 1000000 + minor * 1000
 * + patch.
 */
uint32_t cudamem_version_number(void);

/* ---- Status ---------------------------------------------------------------------------------------------------------
 *
 * Functions return a status. The message of the calling thread's last failure has the details: the function, the
 * argument, its value, the rule that it broke, and what to do.
 */

/** The result of a function: CUDAMEM_SUCCESS or one of CUDAMEM_ERROR_... . Later releases may add values. */
typedef int32_t cudamem_status;

/** The call succeeded. */
#define CUDAMEM_SUCCESS 0
/** An argument is NULL or out of range, or a flag, an enumerated value or a struct size is unknown. */
#define CUDAMEM_ERROR_INVALID_ARGUMENT 1
/** A library (the CUDA driver or vkgdr) was not found. */
#define CUDAMEM_ERROR_LOAD 2
/** The loaded library is too old for the call. */
#define CUDAMEM_ERROR_MISSING_SYMBOL 3
/** The CUDA driver returned an error. cudamem_last_driver_code returns its code. */
#define CUDAMEM_ERROR_DRIVER 4
/** The vkgdr library returned an error. The message contains its text. */
#define CUDAMEM_ERROR_VKGDR 5
/** There is not enough memory, or a limit is reached. The same call may succeed after memory is freed. */
#define CUDAMEM_ERROR_OUT_OF_MEMORY 6
/** A range lies outside of its memory. */
#define CUDAMEM_ERROR_OUT_OF_RANGE 7
/** An offset, a size or an address is not a multiple of the required alignment. */
#define CUDAMEM_ERROR_MISALIGNED 8
/** The driver, the library or the device cannot do this. */
#define CUDAMEM_ERROR_UNSUPPORTED 9
/** A panic. A panic in libcudamem is a bug: the call was abandoned; please report it with the message. */
#define CUDAMEM_ERROR_PANIC 10
/** A handle is null, names another kind of object, was destroyed, or was never made. The call changed nothing. */
#define CUDAMEM_ERROR_INVALID_HANDLE 11
/** The process was forked after the driver was loaded. The driver does not survive a fork. */
#define CUDAMEM_ERROR_FORKED 12
/** The operating system refused a call. */
#define CUDAMEM_ERROR_SYSTEM 13
/** A wait reached its time limit. */
#define CUDAMEM_ERROR_TIMED_OUT 14

/**
 * A write damaged memory that it must not touch: a red zone, a freed block, or the words of a ring. The message names
 * the place.
 */
#define CUDAMEM_ERROR_DAMAGED 15
/** The other process closed the channel or is gone, or a flag or counter was destroyed during a wait for it. */
#define CUDAMEM_ERROR_CLOSED 16

/**
 * A message between processes is too long or has the wrong files, or an earlier call failed in the middle of a
 * message.
 */
#define CUDAMEM_ERROR_CHANNEL 17

/**
 * A message from another process is not an export, is truncated, changed or forged, or is for another kind, device or
 * pool.
 */
#define CUDAMEM_ERROR_DESCRIPTOR 18

/**
 * Returns the name of a status, such as "CUDAMEM_ERROR_DRIVER", or "CUDAMEM_ERROR_UNKNOWN" for a value that this
 * release does not know. The text is static.
 */
const char *cudamem_status_name(cudamem_status status);

/**
 * Returns the message of the calling thread's last failure, or NULL if the thread had none. The text is valid until
 * the same thread's next failure, or until the thread ends.
 */
const char *cudamem_last_error_message(void);

/** Returns the status of the calling thread's last failure, or CUDAMEM_SUCCESS if the thread had none. */
cudamem_status cudamem_last_error(void);

/** Returns the CUDA driver's code (CUresult) of the calling thread's last failure, or 0 if it was not a driver error. */
int32_t cudamem_last_driver_code(void);

/* ---- Handles --------------------------------------------------------------------------------------------------------
 *
 * A handle is a 64-bit number that names an object of the library. The library checks each handle. A handle that is
 * null, names another kind of object, names a destroyed object, or was never made gives CUDAMEM_ERROR_INVALID_HANDLE,
 * and the call changes nothing. The null handle has zeros in all fields. Destroying it is allowed and does nothing.
 *
 * If a thread destroys an object while another thread uses it, the object ends with that use. The destroying call does
 * not wait.
 */

/** As a size: everything from the offset on. */
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

/** A buffer: memory from any source. */
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

/** A stream of Arrow arrays of one type. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_arrow_stream;

/** The memory of signals. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_signals;

/** A flag: a word that CPU, streams and kernels write and wait for. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_flag;

/** A counter: a word that only grows. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_counter;

/** The CPU's end of a ring. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_ring;

/** A pending read of a copy engine. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_pending_read;

/** A graph: recorded work of a stream. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_graph;

/** An executable graph. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_executable;

/** Physical memory: bytes without an address. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_physical;

/** An export, which one process sends to another. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_export;

/** A channel: a connection to another process. */
typedef struct {
    /** 0 for the null handle. */
    uint64_t id;
} cudamem_channel;

/** A listener, which accepts connections from other processes. */
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
 * Longer texts, such as JSON, are objects of the library. Read them with cudamem_text_get, and destroy them.
 */

/**
 * Gets a text's characters in UTF-8, terminated by a zero, and their number without the zero. length may be NULL. The
 * characters are valid until the text is destroyed.
 */
cudamem_status cudamem_text_get(cudamem_text text, const char **characters, size_t *length);

/** Destroys a text. The null handle is allowed. */
cudamem_status cudamem_text_destroy(cudamem_text text);

/* ---- Library --------------------------------------------------------------------------------------------------------
 *
 * The library loads the CUDA driver once for the process: in cudamem_load, or in the first function that needs it. The
 * environment variables CUDA_MEM_LIBCUDA and CUDA_MEM_LIBVKGDR name libraries to use instead of the system's.
 */

/** How the driver is loaded. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_load_options). */
    size_t size;
    /** The CUDA driver's file. NULL for the file that the environment names, or the system's. */
    const char *cuda;
    /**
     * The vkgdr library's file. NULL for the file that the environment names, the system's, or the one built into this
     * library.
     */
    const char *vkgdr;
} cudamem_load_options;

/**
 * The library calls this function with an error: its status, its message, which is valid during the call, and the
 * pointer that the program set with the function. Any thread may call it, and several at once. It must not unwind. It
 * may call this library; it is not called for failures of those calls, because it is already running, but they return
 * their status.
 */
typedef void (*cudamem_error_callback)(cudamem_status status, const char *message, void *user);

/**
 * Loads and initialises the CUDA driver, and gets the CUDA release that it implements, such as 13000 for 13.0. options
 * and release may be NULL. A library that options name runs its start-up code, so it must be what it claims to be.
 *
 * After a failure the program may call this again. Once the driver is loaded, options that name libraries are an
 * error.
 *
 * Errors: CUDAMEM_ERROR_LOAD, with every place that was searched in the message. CUDAMEM_ERROR_DRIVER if the driver
 * does not start.
 */
cudamem_status cudamem_load(const cudamem_load_options *options, uint32_t *release);

/**
 * Gets a JSON text for problem reports: this library's release, the loaded libraries, the devices, and what vkgdr
 * finds on this machine. The text lists anything that is missing; that is not an error. Without a driver the text has
 * only the release and the error.
 */
cudamem_status cudamem_describe(cudamem_text *json);

/**
 * Sets the function that the library calls for every failure of a function, on the thread that fails. NULL removes it.
 * A call that has begun on another thread continues.
 */
cudamem_status cudamem_set_log(cudamem_error_callback callback, void *user);

/**
 * Sets the function that the library calls for errors that no function can return: those that occur when the last user
 * of memory, or the end of an object, frees memory. NULL removes it.
 */
cudamem_status cudamem_set_drop_error_callback(cudamem_error_callback callback, void *user);

/* ---- Devices --------------------------------------------------------------------------------------------------------
 *
 * An ordinal names a device. Ordinals run from 0 to the number of devices minus 1.
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
/** Registering host memory. */
#define CUDAMEM_FEATURE_HOST_REGISTER 8
/** Streams that wait for and write 32-bit words. */
#define CUDAMEM_FEATURE_STREAM_MEMORY_OPERATIONS 9
/** Not supported. */
#define CUDAMEM_SUPPORT_NO 0
/** Supported. */
#define CUDAMEM_SUPPORT_YES 1
/** The driver is too old to answer. The device may support it: try. */
#define CUDAMEM_SUPPORT_UNKNOWN 2
/** What a device is. */
typedef struct {
    /** sizeof(cudamem_device_info), set by the program. */
    size_t size;
    /** The size of the device's memory in bytes. */
    uint64_t total_memory;
    /** The device's identity: the same in every process and every API. */
    uint8_t uuid[16];
    /** The device's name, terminated by a zero. */
    char name[256];
    /** The device's PCI address as domain:bus:device.function, terminated by a zero. */
    char pci_bus_id[32];
} cudamem_device_info;

/** Gets the number of devices. */
cudamem_status cudamem_device_get_count(int32_t *count);

/** Describes a device. Set info->size first. */
cudamem_status cudamem_device_get_info(int32_t ordinal, cudamem_device_info *info);

/** Checks whether a device supports a feature, one of CUDAMEM_FEATURE_... : support becomes one of CUDAMEM_SUPPORT_... */
cudamem_status cudamem_device_supports(int32_t ordinal, int32_t feature, int32_t *support);

/**
 * Checks whether kernels of device ordinal can be given access to memory of device other. A device can always access
 * its own.
 */
cudamem_status cudamem_device_can_access_peer(int32_t ordinal, int32_t other, bool *can);

/* ---- Contexts -------------------------------------------------------------------------------------------------------
 *
 * Streams, events and memory of a device belong to a context. The library does not change which context is current for
 * the program: each thread's current context is the same before and after each call.
 */

/**
 * Opens the primary context of a device, which the CUDA runtime uses too. The library releases it when the handle is
 * destroyed and nothing made in the context is left.
 */
cudamem_status cudamem_context_open_primary(int32_t ordinal, cudamem_context *context);

/**
 * Makes a new context on a device. The context ends when the handle is destroyed and nothing made in the context is
 * left.
 */
cudamem_status cudamem_context_create(int32_t ordinal, cudamem_context *context);

/**
 * Uses the program's own context: raw is a CUcontext. The context must outlive the handle and everything made in it.
 * The library does not destroy it.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the driver does not know the context.
 */
cudamem_status cudamem_context_borrow(void *raw, cudamem_context *context);

/** Gets the driver's handle, a CUcontext. It is valid while the handle lives. */
cudamem_status cudamem_context_get_raw(cudamem_context context, void **raw);

/** Gets the ordinal of the context's device. */
cudamem_status cudamem_context_get_device(cudamem_context context, int32_t *ordinal);

/** Gets the device's free and total memory in bytes. Either place may be NULL. */
cudamem_status cudamem_context_get_memory(cudamem_context context, uint64_t *free, uint64_t *total);

/**
 * Waits until all work of the context is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_context_synchronize(cudamem_context context);

/** Destroys the handle. The context itself ends when nothing made in it is left. The null handle is allowed. */
cudamem_status cudamem_context_destroy(cudamem_context context);

/* ---- Streams --------------------------------------------------------------------------------------------------------
 *
 * Work on one stream runs in order.
 */

/** A flag of cudamem_stream_options: the stream synchronizes with the legacy default stream, in both directions. */
#define CUDAMEM_STREAM_BLOCKING 1
/** How a stream is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_stream_options). */
    size_t size;
    /** CUDAMEM_STREAM_... combined by |. */
    uint32_t flags;
    /** The priority; smaller is more urgent. A value outside of the device's range is clamped to the range. */
    int32_t priority;
} cudamem_stream_options;

/** A host function that a stream runs. user is the program's pointer. */
typedef void (*cudamem_host_function)(void *user);

/** Makes a stream. options may be NULL. */
cudamem_status cudamem_stream_create(cudamem_context context,
                                     const cudamem_stream_options *options,
                                     cudamem_stream *stream);

/**
 * Uses the program's own stream: raw is a CUstream or cudaStream_t of the context, or NULL for its legacy default
 * stream. The stream must live while the handle lives, and while memory and pools use it. The library does not destroy
 * it. The per-thread default stream (cudaStreamPerThread) is refused, because it names another stream on each thread.
 */
cudamem_status cudamem_stream_borrow(cudamem_context context, void *raw, cudamem_stream *stream);

/** Gets the driver's handle, a CUstream or cudaStream_t. It is valid while the handle lives. */
cudamem_status cudamem_stream_get_raw(cudamem_stream stream, void **raw);

/**
 * Waits until all work queued on the stream so far is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_stream_synchronize(cudamem_stream stream);

/**
 * As cudamem_stream_synchronize, but waits for at most seconds. 0 only checks; INFINITY (from math.h) means no limit.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if the work is not done by then. The work continues, and the message names what it
 * waits for, if the library knows. CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_stream_synchronize_for(cudamem_stream stream, double seconds);

/**
 * Checks whether all work queued on the stream so far is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_stream_is_done(cudamem_stream stream, bool *done);

/** Makes later work of the stream wait for an event. */
cudamem_status cudamem_stream_wait_event(cudamem_stream stream, cudamem_event event);

/** Makes later work of the stream wait for all work queued on other so far. */
cudamem_status cudamem_stream_join(cudamem_stream stream, cudamem_stream other);

/**
 * Queues a host function. A thread of the driver runs it when all earlier work of the stream is done, and later work
 * waits for it. The function must call neither CUDA nor this library, and must not unwind.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the stream captures a graph. The function is then not called.
 */
cudamem_status cudamem_stream_launch_host_function(cudamem_stream stream, cudamem_host_function function, void *user);

/**
 * Destroys the handle. The stream itself ends when its work is done and it is no memory's home stream. The null handle
 * is allowed.
 */
cudamem_status cudamem_stream_destroy(cudamem_stream stream);

/* ---- Events ---------------------------------------------------------------------------------------------------------
 *
 * An event marks a point in a stream that the CPU and other streams can wait for.
 */

/** A flag of cudamem_event_create: the event has time stamps. */
#define CUDAMEM_EVENT_TIMING 1
/** A flag of cudamem_event_create: other processes may import the event. It has no time stamps. */
#define CUDAMEM_EVENT_SHAREABLE 2
/** Makes an event. flags is 0, CUDAMEM_EVENT_TIMING or CUDAMEM_EVENT_SHAREABLE. */
cudamem_status cudamem_event_create(cudamem_context context, uint32_t flags, cudamem_event *event);

/** Gets the driver's handle, a CUevent or cudaEvent_t. It is valid while the handle lives. */
cudamem_status cudamem_event_get_raw(cudamem_event event, void **raw);

/** Records the event at the stream's current end. The stream must belong to the event's context. */
cudamem_status cudamem_event_record(cudamem_event event, cudamem_stream stream);

/**
 * Checks whether the work before the event is done. An event that was never recorded counts as done.
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
 * As cudamem_event_synchronize, but waits for at most seconds. 0 only checks; INFINITY (from math.h) means no limit.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if the work is not done by then; it continues. CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_event_synchronize_for(cudamem_event event, double seconds);

/**
 * Gets the time from an event to a later one, in seconds. Both must have time stamps, must have been recorded, and
 * must be done.
 */
cudamem_status cudamem_event_elapsed(cudamem_event event, cudamem_event later, double *seconds);

/** Destroys an event. Work that waits for it still waits. The null handle is allowed. */
cudamem_status cudamem_event_destroy(cudamem_event event);

/* ---- Waits ----------------------------------------------------------------------------------------------------------
 *
 * A wait for work may never end: the work may wait for a flag that nothing sets, or for a host function that does not
 * return. So the library watches every wait. If a wait takes longer than 10 seconds, the library prints a line to the
 * standard error stream: what waits, on which thread, for which stream, for how long, and which flags, counters and
 * rings the stream waits for. The wait continues. To give up after a time, call cudamem_stream_synchronize_for or
 * cudamem_event_synchronize_for.
 */

/**
 * The library calls this function for a long wait, on a thread of its own, and again after twice the time. message is
 * valid during the call. seconds is how long the wait has taken so far. user is the program's pointer. The function
 * must neither wait for work nor unwind.
 */
typedef void (*cudamem_slow_wait_callback)(const char *message, double seconds, void *user);

/**
 * Sets the function that the library calls for long waits, instead of printing a line to the standard error stream.
 * NULL restores the line. A call that has begun continues.
 */
cudamem_status cudamem_set_slow_wait_callback(cudamem_slow_wait_callback callback, void *user);

/**
 * Sets how many seconds a wait may take before it is reported: 10 initially, and at least 0.001. INFINITY (from
 * math.h) disables the reports.
 */
cudamem_status cudamem_set_slow_wait_limit(double seconds);

/* ---- Memory resources -----------------------------------------------------------------------------------------------
 *
 * Buffers are allocated from resources: one of the driver's ways to allocate, a driver pool, mapped memory, or a pool
 * over another resource (cudamem_pool_create). Buffers keep their resource alive, so the program may destroy its
 * handle before them.
 */

/**
 * A flag of cudamem_resource_create_pinned: CPU writes bypass the CPU's caches. Device reads become faster, and CPU
 * reads very slow.
 */
#define CUDAMEM_PINNED_WRITE_COMBINED 1

/**
 * A flag of cudamem_resource_create_managed: kernels may use the memory only after it was attached to a stream, and
 * the CPU at any time. Devices with concurrent managed access ignore this flag.
 */
#define CUDAMEM_MANAGED_ATTACH_HOST 1
/** Coherent if the device offers it. */
#define CUDAMEM_COHERENCE_PREFERRED 0
/** Coherent; otherwise an error. */
#define CUDAMEM_COHERENCE_REQUIRED 1
/** Treated as non-coherent even if it is coherent, to find missing flushes. */
#define CUDAMEM_COHERENCE_FORCED_NON_COHERENT 2
/** Device memory. */
#define CUDAMEM_MEMORY_DEVICE 0
/** Page-locked host memory. */
#define CUDAMEM_MEMORY_PINNED 1
/** Managed memory. */
#define CUDAMEM_MEMORY_MANAGED 2
/** A flag of cudamem_driver_pool_options: other processes may import the pool. */
#define CUDAMEM_DRIVER_POOL_SHAREABLE 1

/**
 * A flag of cudamem_driver_pool_options: a pool of page-locked memory lies on the host's NUMA node numa_node. Other
 * processes can import no other pool of host memory.
 */
#define CUDAMEM_DRIVER_POOL_ON_NUMA_NODE 2
/** Kernels may address the memory. */
#define CUDAMEM_ACCESS_DEVICE 1
/** The CPU may address the memory. */
#define CUDAMEM_ACCESS_HOST 2
/** The driver moves the memory between the two. */
#define CUDAMEM_ACCESS_MANAGED 4
/** How a driver pool is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_driver_pool_options). */
    size_t size;
    /** One of CUDAMEM_MEMORY_... . */
    int32_t memory;
    /** CUDAMEM_DRIVER_POOL_... combined by |. */
    uint32_t flags;
    /** The largest size of the pool in bytes. 0 means the size of the device's memory, or no limit for other memory. */
    uint64_t max_size;
    /** How much unused memory the pool keeps when the program waits for a stream, in bytes. 0 for all of it. */
    uint64_t release_threshold;
    /** The host's NUMA node, with CUDAMEM_DRIVER_POOL_ON_NUMA_NODE; otherwise 0. */
    int32_t numa_node;
    /** Must be 0. */
    uint32_t reserved;
} cudamem_driver_pool_options;

/** Statistics of a driver pool, in bytes. */
typedef struct {
    /** sizeof(cudamem_driver_pool_info), set by the program. */
    size_t size;
    /** Memory that the pool has from the system. */
    uint64_t reserved;
    /** The largest value of reserved. */
    uint64_t reserved_high;
    /** Memory that is allocated from the pool. */
    uint64_t used;
    /** The largest value of used. */
    uint64_t used_high;
    /** How much unused memory the pool keeps when the program waits for a stream. */
    uint64_t release_threshold;
} cudamem_driver_pool_info;

/** Makes a resource of device memory from cuMemAlloc: for large blocks that live long. */
cudamem_status cudamem_resource_create_device(cudamem_context context, cudamem_resource *resource);

/**
 * Makes a resource of page-locked host memory from cuMemHostAlloc. Allocating is slow, and freeing waits for the
 * device. flags is 0 or CUDAMEM_PINNED_WRITE_COMBINED.
 */
cudamem_status cudamem_resource_create_pinned(cudamem_context context, uint32_t flags, cudamem_resource *resource);

/**
 * Makes a resource of managed memory, which the driver moves between device and host. flags is 0 or
 * CUDAMEM_MANAGED_ATTACH_HOST.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device has no managed memory.
 */
cudamem_status cudamem_resource_create_managed(cudamem_context context, uint32_t flags, cudamem_resource *resource);

/**
 * Makes a resource of mapped memory: device memory that the CPU addresses too. coherence is one of
 * CUDAMEM_COHERENCE_... . The first such resource of a process takes a tenth of a second or more.
 *
 * Errors: CUDAMEM_ERROR_LOAD or CUDAMEM_ERROR_VKGDR if a library, Vulkan, or the device in Vulkan is missing. The
 * message names it.
 */
cudamem_status cudamem_resource_create_mapped(cudamem_context context, int32_t coherence, cudamem_resource *resource);

/**
 * Makes a driver pool (cuMemPoolCreate), which allocates and frees in stream order. options may be NULL, for device
 * memory.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device or the driver has no such pools.
 */
cudamem_status cudamem_resource_create_driver_pool(cudamem_context context,
                                                   const cudamem_driver_pool_options *options,
                                                   cudamem_resource *resource);

/** Opens the pool that the context's device currently allocates from (cuDeviceGetMemPool). The whole process shares it. */
cudamem_status cudamem_resource_open_current_pool(cudamem_context context, cudamem_resource *resource);

/** Gets who may address memory of the resource: CUDAMEM_ACCESS_... combined by |. */
cudamem_status cudamem_resource_get_access(cudamem_resource resource, uint32_t *access);

/**
 * Gets the statistics of a driver pool. Set info->size first.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is not a driver pool.
 */
cudamem_status cudamem_resource_get_driver_pool_info(cudamem_resource resource, cudamem_driver_pool_info *info);

/**
 * Returns unused memory of a driver pool to the system, but keeps at least keep bytes.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is not a driver pool.
 */
cudamem_status cudamem_resource_trim_driver_pool(cudamem_resource resource, size_t keep);

/**
 * Gives another device access to all memory of a driver pool (cuMemPoolSetAccess), including memory that is already
 * allocated.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if no path connects the devices. CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is
 * not a driver pool.
 */
cudamem_status cudamem_resource_allow_access(cudamem_resource resource, int32_t ordinal);

/** Revokes the access that cudamem_resource_allow_access gave. That device's work with the memory must have ended. */
cudamem_status cudamem_resource_deny_access(cudamem_resource resource, int32_t ordinal);

/** Destroys the handle. The resource itself ends when no memory of it is left. The null handle is allowed. */
cudamem_status cudamem_resource_destroy(cudamem_resource resource);

/* ---- Pools ----------------------------------------------------------------------------------------------------------
 *
 * A pool allocates large regions from another resource, its upstream, and divides them. Allocations and frees are in
 * stream order, and most make no driver call. A pool is a resource; the functions here refuse other resources with
 * CUDAMEM_ERROR_INVALID_ARGUMENT.
 *
 * Memory that was freed on one stream is at once available to the same stream, and to others as `reuse` says.
 */

/**
 * A stream may reuse memory that another stream freed once an event recorded after the free has passed. If the pool
 * would otherwise have to grow, the stream waits for the event instead. The default.
 */
#define CUDAMEM_REUSE_WAIT 0
/** A stream may reuse memory that another stream freed once an event recorded after the free has passed. */
#define CUDAMEM_REUSE_WHEN_PASSED 1
/** A stream never reuses memory that another stream freed while the pool can grow. */
#define CUDAMEM_REUSE_SAME_STREAM_ONLY 2
/** A flag of cudamem_pool_options: threads do not cache freed memory. */
#define CUDAMEM_POOL_NO_FRONTS 1
/** A flag of cudamem_pool_options: the pool records its live blocks, and refuses to free a block twice. */
#define CUDAMEM_POOL_TRACKED 2

/**
 * The library calls this function when a pool is out of memory. It may free memory, also of this pool, and returns
 * whether to retry. requested and free are in bytes; attempt counts the calls for one allocation from 0. user is the
 * program's pointer. An allocation that the function itself makes from the same pool fails without another call of it.
 * It must not unwind.
 */
typedef bool (*cudamem_out_of_memory_callback)(size_t requested, size_t free, uint32_t attempt, void *user);

/** How a pool is made. Zeros are the defaults; sizes are in bytes. */
typedef struct {
    /** sizeof(cudamem_pool_options). */
    size_t size;
    /** The size of the first region, which the pool allocates when it is made. 2 MiB by default. */
    uint64_t initial;
    /** The smallest region that the pool grows by. 2 MiB by default. */
    uint64_t smallest_growth;
    /** The largest region that the pool grows by, unless a block needs a larger one. 256 MiB by default. */
    uint64_t largest_growth;
    /** The largest total size of all regions. No limit by default. */
    uint64_t maximum;
    /** How much freed memory each thread may cache until memory runs short. 64 MiB by default. */
    uint64_t front_capacity;
    /** How many of the newest events a snapshot shows. None by default. */
    uint64_t trace_capacity;
    /** Each time the pool grows, its size grows by this factor. 2 by default. */
    double growth_factor;
    /** One of CUDAMEM_REUSE_... . */
    int32_t reuse;
    /** CUDAMEM_POOL_... combined by |. */
    uint32_t flags;
    /** The function to call when the pool is out of memory. None by default. */
    cudamem_out_of_memory_callback on_out_of_memory;
    /** The last argument of on_out_of_memory. */
    void *user;
} cudamem_pool_options;

/**
 * One figure over the life of a pool, without a peak. A statistics adaptor over the pool knows the peak
 * (cudamem_resource_create_statistics).
 */
typedef struct {
    /** The current value. */
    uint64_t current;
    /** The sum of all additions. */
    uint64_t total;
    /** The sum of all removals. */
    uint64_t freed;
} cudamem_flow;

/** One figure over the life of a pool. */
typedef struct {
    /** The current value. */
    uint64_t current;
    /** The largest value since the peaks were last reset. */
    uint64_t peak;
    /** The sum of all additions. */
    uint64_t total;
    /** The sum of all removals. */
    uint64_t freed;
} cudamem_figure;

/** Statistics of a pool: in bytes, unless a field says count. */
typedef struct {
    /** sizeof(cudamem_pool_statistics), set by the program. */
    size_t size;
    /** The requested sizes of the live blocks. */
    cudamem_flow requested;
    /** The sizes of the live blocks. */
    cudamem_flow allocated;
    /** Live blocks: a count. */
    cudamem_flow blocks;
    /** Memory in live blocks and in the caches of threads. */
    cudamem_figure active;
    /** Free memory in regions that hold blocks. */
    cudamem_figure inactive_split;
    /** Memory that the pool has allocated from its upstream. */
    cudamem_figure reserved;
    /** Regions: a count. */
    cudamem_figure regions;
    /** Memory in the caches of threads. */
    uint64_t in_fronts;
    /** Freed memory whose work is not done. The call checks the work first. */
    uint64_t pending;
    /** The largest free range. The caches of threads count as free. */
    uint64_t largest_free;
    /**
     * The fragmented part of the free memory, from 0 to 1: in regions that hold blocks, what lies outside of the
     * largest free range. The caches of threads count as free.
     */
    double fragmentation;
    /** Events recorded: a count. */
    uint64_t events_recorded;
    /** How often the pool made a stream wait: a count. */
    uint64_t waits;
    /** How often on_out_of_memory requested another attempt: a count. */
    uint64_t retries;
    /** How often the pool was out of memory: a count. */
    uint64_t out_of_memory;
} cudamem_pool_statistics;

/**
 * Makes a pool over a resource, and allocates the first region. options may be NULL. The upstream's handle may be
 * destroyed before the pool's.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if the resource has no room for the first region.
 */
cudamem_status cudamem_pool_create(cudamem_resource upstream,
                                   const cudamem_pool_options *options,
                                   cudamem_resource *pool);

/** Gets the statistics of a pool. Set statistics->size first. */
cudamem_status cudamem_pool_get_statistics(cudamem_resource pool, cudamem_pool_statistics *statistics);

/** Resets all peaks of the statistics to the current values. */
cudamem_status cudamem_pool_reset_peaks(cudamem_resource pool);

/**
 * Gets every region with its blocks as JSON. `cuda-mem pool-map` draws it. Calls of other threads to the pool wait
 * meanwhile.
 */
cudamem_status cudamem_pool_get_snapshot(cudamem_resource pool, cudamem_text *json);

/**
 * Grows the pool until it has size bytes from its upstream, free and used together.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the maximum forbids it. CUDAMEM_ERROR_OUT_OF_MEMORY if the upstream has no
 * room.
 */
cudamem_status cudamem_pool_reserve(cudamem_resource pool, size_t size);

/** Returns regions without blocks, whose work is done, to the upstream, but keeps at least keep bytes. Does not wait. */
cudamem_status cudamem_pool_trim(cudamem_resource pool, size_t keep);

/** Waits for the work that freed memory waits for, and returns all regions without blocks to the upstream. */
cudamem_status cudamem_pool_release_unused(cudamem_resource pool);

/**
 * Waits for the work of a stream, and drops the pool's references to it. Call this before you destroy a stream of your
 * own (cudamem_stream_borrow).
 */
cudamem_status cudamem_pool_release_stream(cudamem_resource pool, cudamem_stream stream);

/**
 * Names the block at a device address. Snapshots show the name until the block is freed.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no block of the pool begins there.
 */
cudamem_status cudamem_pool_set_name(cudamem_resource pool, uint64_t device_pointer, const char *name);

/* ---- Buffers --------------------------------------------------------------------------------------------------------
 *
 * A buffer is memory from a resource, or memory that the program lends. It has a home stream: the buffer's copies,
 * fills and free run in that stream's order. Offsets and sizes are in bytes. A size of CUDAMEM_WHOLE_SIZE means
 * everything from the offset on, except where the size also describes host memory.
 *
 * Concurrent calls with one buffer run one after the other. Copies to and from host memory return when they are done;
 * other operations return when they are queued.
 */

/**
 * The library calls this function when nothing uses the borrowed memory any more, on any thread. user is the program's
 * pointer. The function must not unwind.
 */
typedef void (*cudamem_release_callback)(void *user);

/**
 * Allocates size bytes from a resource. stream becomes the home stream, and its later work may use the memory. The
 * contents are undefined. A size of 0 is allowed.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room. CUDAMEM_ERROR_INVALID_ARGUMENT if the stream belongs to
 * another device, or if it captures a graph and the resource allocates in stream order. Pools and guarded resources
 * only see captures of cudamem_graph_capture: do not allocate from them during a capture that the program began with
 * the driver (cuStreamBeginCapture). For device, pinned and managed memory, the driver alone decides what a capture
 * forbids.
 */
cudamem_status cudamem_buffer_allocate(cudamem_resource resource,
                                       size_t size,
                                       cudamem_stream stream,
                                       cudamem_buffer *buffer);

/**
 * Uses the program's memory as a buffer: size bytes at pointer, a device or host address. The memory must stay
 * allocated until the library calls release with user, after the last part of the buffer has ended and its work is
 * done, or until that point if release is NULL. After a failure the library does not call release.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the address is 0, or if the memory would extend beyond the address space.
 */
cudamem_status cudamem_buffer_borrow(uint64_t pointer,
                                     size_t size,
                                     cudamem_stream stream,
                                     cudamem_release_callback release,
                                     void *user,
                                     cudamem_buffer *buffer);

/**
 * Makes a buffer for a part of another buffer. Both share ownership of the memory, which is freed when its last part
 * is destroyed.
 */
cudamem_status cudamem_buffer_slice(cudamem_buffer buffer, size_t offset, size_t size, cudamem_buffer *slice);

/** Gets the size in bytes. */
cudamem_status cudamem_buffer_get_size(cudamem_buffer buffer, size_t *size);

/**
 * Gets the address for kernels and for the driver (a CUdeviceptr). It is valid while a part of the memory lives, and 0
 * if the buffer has no memory. Record work on other streams than the home stream that uses the memory:
 * cudamem_buffer_record_use.
 */
cudamem_status cudamem_buffer_get_device_pointer(cudamem_buffer buffer, uint64_t *pointer);

/**
 * Gets the CPU's address. It is valid while a part of the memory lives. Before the CPU reads or writes, wait for
 * device work (cudamem_buffer_synchronize) and, for non-coherent memory, call cudamem_buffer_invalidate. After the CPU
 * has written, call cudamem_buffer_flush.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory.
 */
cudamem_status cudamem_buffer_get_host_pointer(cudamem_buffer buffer, void **pointer);

/** Gets who may address the memory: CUDAMEM_ACCESS_... combined by |. */
cudamem_status cudamem_buffer_get_access(cudamem_buffer buffer, uint32_t *access);

/** Makes stream the home stream. It waits for all work on the buffer so far. */
cudamem_status cudamem_buffer_set_stream(cudamem_buffer buffer, cudamem_stream stream);

/**
 * Records that work queued on stream so far uses this buffer. Later operations of the buffer, including its free, wait
 * for it.
 */
cudamem_status cudamem_buffer_record_use(cudamem_buffer buffer, cudamem_stream stream);

/** Waits until all work queued on the home stream so far is done. */
cudamem_status cudamem_buffer_synchronize(cudamem_buffer buffer);

/** Copies size bytes from host memory to the buffer, at offset. Returns when the copy is done. */
cudamem_status cudamem_buffer_write(cudamem_buffer buffer, size_t offset, const void *source, size_t size);

/** Copies size bytes of the buffer, from offset on, to host memory. Returns when the copy is done. */
cudamem_status cudamem_buffer_read(cudamem_buffer buffer, size_t offset, void *destination, size_t size);

/**
 * Copies size bytes of source, from source_offset on, to the buffer, at offset. The copy runs in order of the buffer's
 * home stream: after all work on both buffers so far, and before their later work. Both buffers may be parts of one
 * memory, but the two ranges must not overlap.
 */
cudamem_status cudamem_buffer_copy(cudamem_buffer buffer,
                                   size_t offset,
                                   cudamem_buffer source,
                                   size_t source_offset,
                                   size_t size);

/**
 * Fills size bytes from offset on with copies of a value of value_size bytes (1, 2, 4, 8 or 16). The device does it,
 * in stream order. offset and size must be multiples of value_size.
 */
cudamem_status cudamem_buffer_fill(cudamem_buffer buffer,
                                   size_t offset,
                                   size_t size,
                                   const void *value,
                                   size_t value_size);

/** Checks whether two buffers hold the same bytes after all work on both so far. Waits for that work. */
cudamem_status cudamem_buffer_equals(cudamem_buffer buffer, cudamem_buffer other, bool *equal);

/**
 * Makes CPU writes to a range visible to device work that is queued later. Mapped and write-combined memory need this;
 * for other memory the call does nothing.
 */
cudamem_status cudamem_buffer_flush(cudamem_buffer buffer, size_t offset, size_t size);

/**
 * Makes device writes to a range visible to the CPU, once the device work is done. Non-coherent mapped memory and
 * managed memory without concurrent managed access need this; for other memory the call does nothing.
 */
cudamem_status cudamem_buffer_invalidate(cudamem_buffer buffer, size_t offset, size_t size);

/**
 * Destroys the handle. If no other part of the memory is left, the memory is freed in order of the home stream. The
 * null handle is allowed.
 *
 * Errors: the driver's, if it refuses to free the memory. The handle then stays valid.
 */
cudamem_status cudamem_buffer_destroy(cudamem_buffer buffer);

/**
 * As cudamem_buffer_destroy, but the free is in order of another stream, which waits for the home stream's work. Calls
 * of other threads with the buffer run before or after it.
 */
cudamem_status cudamem_buffer_destroy_on(cudamem_buffer buffer, cudamem_stream stream);

/**
 * As cudamem_buffer_destroy, for destructors, which cannot return errors. If the memory cannot be freed, the library
 * reports the error to the callback of cudamem_set_drop_error_callback, and the handle ends all the same.
 */
cudamem_status cudamem_buffer_drop(cudamem_buffer buffer);

/* ---- Mapped memory --------------------------------------------------------------------------------------------------
 *
 * Device memory that the CPU addresses too, for the program, kernels and other processes at once. A CPU store reaches
 * it in about 0.1 us. Device work sees CPU writes if it is queued after they were flushed. The CPU sees device writes
 * after the device work is done and the range was invalidated. cudamem_mapped_write flushes, and cudamem_mapped_read
 * invalidates. On coherent memory a flush is a store fence. On non-coherent memory flushes and invalidates act on
 * whole atoms, so data that the CPU writes and data that the device writes at the same time must not share an atom.
 *
 * Threads may use one memory at once. Writes of several bytes are not atomic; words are.
 */

/**
 * Allocates size bytes, at least 1, from a resource that cudamem_resource_create_mapped made. Each allocation is a
 * driver call (0.1 to 0.3 ms on a GPU, 1 to 2 ms for 64 MiB): allocate large pieces and divide them.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room. CUDAMEM_ERROR_INVALID_ARGUMENT for any other resource.
 */
cudamem_status cudamem_mapped_allocate(cudamem_resource resource, size_t size, cudamem_mapped *mapped);

/** Makes a handle for a part of the memory. Both share ownership: the memory is freed when its last part is destroyed. */
cudamem_status cudamem_mapped_slice(cudamem_mapped mapped, size_t offset, size_t size, cudamem_mapped *slice);

/** Writes size bytes at offset with CPU stores, and flushes them. */
cudamem_status cudamem_mapped_write(cudamem_mapped mapped, size_t offset, const void *source, size_t size);

/**
 * Invalidates, and reads size bytes at offset with CPU loads. Loads from a GPU's memory are slow: 1 us for up to 1
 * KiB, 4 to 5 us for 4 KiB.
 */
cudamem_status cudamem_mapped_read(cudamem_mapped mapped, size_t offset, void *destination, size_t size);

/** Makes CPU writes to a range through its address visible to device work that is queued later. */
cudamem_status cudamem_mapped_flush(cudamem_mapped mapped, size_t offset, size_t size);

/**
 * Makes device writes to a range visible to the CPU, once the device work is done. On non-coherent memory, first flush
 * what the CPU wrote through its address, or it is lost.
 */
cudamem_status cudamem_mapped_invalidate(cudamem_mapped mapped, size_t offset, size_t size);

/** Writes a 32-bit word after all earlier writes of this thread, and flushes it: for flags. offset is a multiple of 4. */
cudamem_status cudamem_mapped_store_u32(cudamem_mapped mapped, size_t offset, uint32_t word);

/** Reads a 32-bit word before all later reads of this thread: for flags. offset is a multiple of 4. */
cudamem_status cudamem_mapped_load_u32(cudamem_mapped mapped, size_t offset, uint32_t *word);

/** As cudamem_mapped_store_u32, with a 64-bit word. offset is a multiple of 8. */
cudamem_status cudamem_mapped_store_u64(cudamem_mapped mapped, size_t offset, uint64_t word);

/** As cudamem_mapped_load_u32, with a 64-bit word. offset is a multiple of 8. */
cudamem_status cudamem_mapped_load_u64(cudamem_mapped mapped, size_t offset, uint64_t *word);

/**
 * Writes the device's side of the memory with the driver's copy, which is done when this returns. Earlier CPU writes
 * to the range are flushed first.
 */
cudamem_status cudamem_mapped_device_write(cudamem_mapped mapped, size_t offset, const void *source, size_t size);

/** Reads the device's side of the memory with the driver's copy. */
cudamem_status cudamem_mapped_device_read(cudamem_mapped mapped, size_t offset, void *destination, size_t size);

/** Gets the size in bytes. */
cudamem_status cudamem_mapped_get_size(cudamem_mapped mapped, size_t *size);

/** Gets the atom, the unit of flush and invalidate, in bytes: 1 for coherent memory. */
cudamem_status cudamem_mapped_get_atom(cudamem_mapped mapped, size_t *atom);

/** Gets the address for kernels and for the driver (a CUdeviceptr), valid while a part of the memory lives. */
cudamem_status cudamem_mapped_get_device_pointer(cudamem_mapped mapped, uint64_t *pointer);

/** Gets the CPU's address, valid while a part of the memory lives. Flush after writing through it. */
cudamem_status cudamem_mapped_get_host_pointer(cudamem_mapped mapped, void **pointer);

/**
 * Destroys the handle. If no other part of the memory is left, it is freed at once: device work that uses it must have
 * ended. The null handle is allowed.
 */
cudamem_status cudamem_mapped_destroy(cudamem_mapped mapped);

/* ---- Copy engines ---------------------------------------------------------------------------------------------------
 *
 * A copy engine copies between host memory and one device, for each size and kind of memory in the way that is fastest
 * on this machine. The first large copy of each kind measures the machine, which takes up to 0.2 s. Any number of
 * threads may use one engine at once.
 */

/** A flag of cudamem_engine_options: neither read nor store profiles in the cache folder. */
#define CUDAMEM_ENGINE_NO_CACHE 1
/** A flag of cudamem_engine_options: measure only in cudamem_engine_measure. */
#define CUDAMEM_ENGINE_MEASURE_ON_REQUEST 2
/** A flag of cudamem_engine_options: no threads help the calling thread. */
#define CUDAMEM_ENGINE_NO_THREADS 4
/** The way that the profile chooses. */
#define CUDAMEM_WAY_CHOSEN 0
/** Streaming stores or loads by the CPU, with `threads` threads. Mapped memory only. */
#define CUDAMEM_WAY_CPU 1
/** One copy by the driver. */
#define CUDAMEM_WAY_DRIVER 2
/** Page-locked staging, which `threads` threads fill or empty. */
#define CUDAMEM_WAY_STAGED 3
/** `threads` threads store to the memory while `staging_threads` threads fill staging. Writes to mapped memory only. */
#define CUDAMEM_WAY_MIXED 4
/** The host's pages are locked for the duration of the copy. */
#define CUDAMEM_WAY_REGISTERED 5
/** Unknown: for copies that are not small, the engine asks the driver what the host memory is. */
#define CUDAMEM_HOST_UNKNOWN 0
/** The host memory is on the heap, on the stack or in a file. */
#define CUDAMEM_HOST_PAGEABLE 1
/** The host memory is page-locked: allocated by the driver, or registered with it. */
#define CUDAMEM_HOST_PINNED 2
/** How a copy engine is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_engine_options). */
    size_t size;
    /**
     * The profile that chooses ways, from cudamem_engine_get_profile. NULL for the machine's stored profile, or a
     * measured one.
     */
    const char *profile;
    /** The folder that stores profiles. NULL for the folder that CUDA_MEM_PROFILES names, or the user's cache folder. */
    const char *cache;
    /** The largest piece that passes through page-locked staging at once, in bytes. 2 MiB by default. */
    size_t slot_size;
    /** How many staging pieces one copy cycles through. 8 by default. */
    uint32_t slots;
    /** How many copies may use staging at once. 4 by default. */
    uint32_t lanes;
    /**
     * How many helper threads the engine starts for itself, at most 64. 0 for the threads that all engines of the
     * process share.
     */
    uint32_t threads;
    /** CUDAMEM_ENGINE_... combined by |. */
    uint32_t flags;
} cudamem_engine_options;

/** What the program decides for one copy. Zeros leave the decision to the engine. */
typedef struct {
    /** sizeof(cudamem_copy_options). */
    size_t size;
    /** One of CUDAMEM_WAY_... . */
    int32_t way;
    /** One of CUDAMEM_HOST_... . */
    int32_t host;
    /** The number of threads of the way, including the calling thread; 0 for ways without threads. */
    uint32_t threads;
    /** The number of threads that fill staging, with CUDAMEM_WAY_MIXED; otherwise 0. */
    uint32_t staging_threads;
} cudamem_copy_options;

/**
 * Makes an engine for a context's device. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the profile is invalid.
 */
cudamem_status cudamem_engine_create(cudamem_context context,
                                     const cudamem_engine_options *options,
                                     cudamem_engine *engine);

/**
 * Copies size bytes from host memory to a buffer, at offset. Device work that is queued later sees them. options may
 * be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory cannot be copied in the way that the options request.
 */
cudamem_status cudamem_engine_write_buffer(cudamem_engine engine,
                                           cudamem_buffer buffer,
                                           size_t offset,
                                           const void *source,
                                           size_t size,
                                           const cudamem_copy_options *options);

/**
 * Copies size bytes of a buffer, from offset on, to host memory. Returns when the copy is done. options may be NULL.
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

/** Destroys an engine and frees its staging. The null handle is allowed. */
cudamem_status cudamem_engine_destroy(cudamem_engine engine);

/* ---- Types of elements ----------------------------------------------------------------------------------------------
 *
 * Element types that libraries exchange at run time, with DLPack's numbers: a code, the bits of one lane, and the
 * number of lanes, which is 1 except for vectors. float is {CUDAMEM_TYPE_FLOAT, 32, 1}. A record of n bytes is
 * {CUDAMEM_TYPE_OPAQUE, 8, n}.
 */

/** Signed integers. */
#define CUDAMEM_TYPE_INT 0
/** Unsigned integers. */
#define CUDAMEM_TYPE_UINT 1
/** IEEE 754 floating-point numbers. */
#define CUDAMEM_TYPE_FLOAT 2
/** Opaque bytes. */
#define CUDAMEM_TYPE_OPAQUE 3
/** bfloat16: the upper half of a float. */
#define CUDAMEM_TYPE_BFLOAT 4
/** Complex numbers. The bits count both parts. */
#define CUDAMEM_TYPE_COMPLEX 5
/** Booleans. */
#define CUDAMEM_TYPE_BOOL 6
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E3M4 7
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3 8
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3B11FNUZ 9
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3FN 10
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E4M3FNUZ 11
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E5M2 12
/** An 8-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT8_E5M2FNUZ 13
/** An 8-bit power of two. */
#define CUDAMEM_TYPE_FLOAT8_E8M0FNU 14
/** A 6-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT6_E2M3FN 15
/** A 6-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT6_E3M2FN 16
/** A 4-bit floating-point format; the suffix names it. */
#define CUDAMEM_TYPE_FLOAT4_E2M1FN 17
/** An element type, laid out as DLPack's DLDataType. */
typedef struct {
    /** One of CUDAMEM_TYPE_... . */
    uint8_t code;
    /** The bits of one lane. */
    uint8_t bits;
    /** The number of lanes of an element: 1, except for vectors. */
    uint16_t lanes;
} cudamem_data_type;

/**
 * Finds the type for a name ("float32", "bfloat16", "float8_e4m3fn", "float32x4") or for a numpy typestr ("<f4",
 * "|u1").
 */
cudamem_status cudamem_data_type_find(const char *name, cudamem_data_type *data_type);

/** Gets the name of a type, as cudamem_data_type_find takes it. */
cudamem_status cudamem_data_type_get_name(cudamem_data_type data_type, cudamem_text *name);

/**
 * Gets numpy's typestr of a type.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if numpy has no such type.
 */
cudamem_status cudamem_data_type_get_typestr(cudamem_data_type data_type, cudamem_text *typestr);

/* ---- Views ----------------------------------------------------------------------------------------------------------
 *
 * A view is an array of any layout in memory: in a buffer's memory, whose ownership it shares, or in host memory. A
 * layout has an element type, extents and strides. A stride is the distance between neighbours along an axis, in
 * elements; it may be negative or 0. All elements must lie within the memory.
 *
 * int64_t shape[] = {-1, 640};
 * cudamem_view_layout layout = {0};
 * layout.size = sizeof layout;
 * layout.data_type = (cudamem_data_type){CUDAMEM_TYPE_FLOAT, 32, 1};
 * layout.ndim = 2;
 * layout.shape = shape;
 * cudamem_view_create(buffer, &layout, &view);
 *
 * For views of mapped memory, allocate buffers from its resource. A view never changes; functions for other layouts
 * make another view of the same memory. Elements smaller than a byte are packed: several share a byte, and the lowest
 * bits hold the first.
 */

/** The largest number of axes of a view. */
#define CUDAMEM_MAX_DIMENSIONS 64
/** A flag of views: the view is read-only. */
#define CUDAMEM_VIEW_READ_ONLY 1
/** A flag of views: each element smaller than a byte has bytes of its own. No effect on other elements. */
#define CUDAMEM_VIEW_PADDED 2
/** A flag of views: the elements are dense, and the first axis varies fastest, as in Fortran. */
#define CUDAMEM_VIEW_F_ORDER 4
/** A flag of cudamem_view_info: the elements are dense, and the last axis varies fastest, as in C. */
#define CUDAMEM_VIEW_C_ORDER 8
/** A flag of cudamem_view_info: the elements are dense, in some order of the axes. */
#define CUDAMEM_VIEW_DENSE 16
/** A flag of cudamem_view_info: no two elements share memory. */
#define CUDAMEM_VIEW_UNIQUE 32
/** The layout of a view. */
typedef struct {
    /** sizeof(cudamem_view_layout). */
    size_t size;
    /** The type of the elements. Must be set. */
    cudamem_data_type data_type;
    /** CUDAMEM_VIEW_READ_ONLY, _PADDED and _F_ORDER, combined by |. */
    uint32_t flags;
    /** The number of axes, at most CUDAMEM_MAX_DIMENSIONS. 0 describes an array of one element. */
    size_t ndim;
    /** The extents, ndim of them. Without strides one extent may be -1: it becomes as large as the memory allows. */
    const int64_t *shape;
    /** The strides in elements, ndim of them. NULL for dense elements, in C order, or in Fortran's order with the flag. */
    const int64_t *strides;
    /** The offset in the memory of the element with indices 0, in elements. */
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
    /** The offset in the memory of the element with indices 0, in elements. */
    int64_t offset;
    /** The number of elements. */
    uint64_t elements;
    /** The size of the elements when dense, in bytes: what cudamem_view_read writes. */
    uint64_t dense_size;
    /**
     * The address of the element with indices 0 for kernels and for the driver (a CUdeviceptr); for host memory that
     * the driver does not know, its host address. Record work that uses the view with cudamem_view_record_use.
     */
    uint64_t device_pointer;
    /** The CPU's address of the element with indices 0; NULL if the CPU does not address the memory. */
    void *host_pointer;
    /** CUDAMEM_ACCESS_... combined by |. */
    uint32_t access;
    /** The ordinal of the device that the memory lies on; -1 for host memory. */
    int32_t device;
} cudamem_view_info;

/**
 * Makes a view of a buffer's memory, whose ownership it shares: the memory is freed when its last part is destroyed.
 * layout must not be NULL.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the buffer. CUDAMEM_ERROR_INVALID_ARGUMENT if
 * the layout is invalid.
 */
cudamem_status cudamem_view_create(cudamem_buffer buffer, const cudamem_view_layout *layout, cudamem_view *view);

/**
 * Makes a view of host memory that the driver need not know: size bytes at pointer. The memory must stay allocated
 * until the library calls release with user, after the last view of it has ended, or until that point if release is
 * NULL. Nothing else may write the memory while the view is read, or use it while the view is written. Copies with it
 * are done when their call returns. After a failure the library does not call release.
 *
 * For foreign memory of a device, first make a buffer of it: cudamem_buffer_borrow.
 */
cudamem_status cudamem_view_borrow_host(void *pointer,
                                        size_t size,
                                        const cudamem_view_layout *layout,
                                        cudamem_release_callback release,
                                        void *user,
                                        cudamem_view *view);

/** Describes a view. Set info->size first. */
cudamem_status cudamem_view_get_info(cudamem_view view, cudamem_view_info *info);

/**
 * Makes a buffer of the view's memory, for functions that take buffers. Both share ownership.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for a view that is read-only, or that is of host memory without a buffer.
 */
cudamem_status cudamem_view_get_buffer(cudamem_view view, cudamem_buffer *buffer);

/**
 * Records that work queued on stream so far uses the view's memory. Later operations of the buffer, including its
 * free, wait for it.
 */
cudamem_status cudamem_view_record_use(cudamem_view view, cudamem_stream stream);

/**
 * Destroys the handle. If no other part of the memory is left, it is freed in order of its home stream. A failed free
 * goes to the callback of cudamem_set_drop_error_callback. The null handle is allowed.
 */
cudamem_status cudamem_view_destroy(cudamem_view view);

/* ---- Parts of views -------------------------------------------------------------------------------------------------
 *
 * Other layouts of the same elements, and parts of them. Nothing is copied: each function makes a new view of the same
 * memory, and leaves the original view unchanged. CUDAMEM_ERROR_INVALID_ARGUMENT means that no such layout exists.
 */

/** For start or end of a cudamem_index: where the axis begins or ends. */
#define CUDAMEM_INDEX_OPEN INT64_MIN
/** Selects a part of an axis, by Python's rules: negative numbers count from the end. */
typedef struct {
    /** The first index, or the only one. */
    int64_t start;
    /** The end, which is excluded. Ignored if step is 0. */
    int64_t end;
    /**
     * The distance from each index to the next; a negative step runs backwards. 0 selects the single index start and
     * removes the axis.
     */
    int64_t step;
} cudamem_index;

/**
 * Makes a view of the same elements, in C order, with another shape of ndim extents. One extent may be -1: it follows
 * from the others.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the number of elements differs, or if no strides express that shape: copy
 * the elements to a dense view first.
 */
cudamem_status cudamem_view_reshape(cudamem_view view, const int64_t *shape, size_t ndim, cudamem_view *result);

/**
 * Reorders the axes: axes has count entries and names each axis once. Negative numbers count from the end, so -1 is
 * the last axis.
 */
cudamem_status cudamem_view_permute(cudamem_view view, const int64_t *axes, size_t count, cudamem_view *result);

/**
 * Selects a part of each axis: indices has one entry for each of the first count axes, and the other axes stay whole.
 * A count of 0 makes a second handle for the same view.
 */
cudamem_status cudamem_view_slice(cudamem_view view, const cudamem_index *indices, size_t count, cudamem_view *result);

/**
 * Repeats axes of extent 1 and adds axes in front, without more memory: their strides are 0. Such a view can be read;
 * a copy to it is refused.
 */
cudamem_status cudamem_view_broadcast(cudamem_view view, const int64_t *shape, size_t ndim, cudamem_view *result);

/** Removes the axes of extent 1. */
cudamem_status cudamem_view_squeeze(cudamem_view view, cudamem_view *result);

/** Adds count axes of extent 1, at the given places of the new shape. */
cudamem_status cudamem_view_unsqueeze(cudamem_view view, const size_t *axes, size_t count, cudamem_view *result);

/** Merges all neighbouring axes that form one run of memory. */
cudamem_status cudamem_view_flatten(cudamem_view view, cudamem_view *result);

/**
 * Makes a view of the same bytes as elements of another type: an axis of stride 1 gets fewer or more of them. A
 * negative axis counts from the end.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if neither element size divides the other, if an extent, a stride, the offset
 * or the address is not a multiple of the larger size, or if an element of either type is smaller than a byte.
 */
cudamem_status cudamem_view_repack(cudamem_view view, cudamem_data_type data_type, int64_t axis, cudamem_view *result);

/**
 * Makes a view of the whole memory of a view in another layout. If the original view is read-only or has padded
 * elements, so does the new view.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if elements would lie outside of the memory.
 */
cudamem_status cudamem_view_with_layout(cudamem_view view, const cudamem_view_layout *layout, cudamem_view *result);

/** Makes a read-only view of the same elements. */
cudamem_status cudamem_view_make_read_only(cudamem_view view, cudamem_view *result);

/* ---- Copies of views ------------------------------------------------------------------------------------------------
 *
 * Copies between two views of one type and shape, whatever their layouts and wherever their memory lies, in stream
 * order: after all work on both memories so far, and before their later work. Nothing is converted.
 *
 * Copies between host and device are done when the call returns. Copies within devices are only queued. The options
 * can change either.
 */

/** A flag of cudamem_view_copy_options: return when the copy is done. */
#define CUDAMEM_VIEW_COPY_WAIT 1

/**
 * A flag of cudamem_view_copy_options: return when the copy is queued. Copies with host memory that the driver does
 * not know are waited for all the same.
 */
#define CUDAMEM_VIEW_COPY_NO_WAIT 2
/** How views are copied. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_view_copy_options). */
    size_t size;
    /** CUDAMEM_VIEW_COPY_... . */
    uint32_t flags;
    /** Must be 0. */
    uint32_t reserved;
    /**
     * The stream that orders the copy, on the device of the destination, or otherwise of the source. The null handle
     * selects the memory's home stream.
     */
    cudamem_stream stream;
    /**
     * The resource for temporary memory, if some is needed: of the host or of the device, as the resource has it. The
     * null handle selects the heap, and the device's current pool.
     */
    cudamem_resource temporary;
} cudamem_view_copy_options;

/**
 * Copies the elements of source to view, which has the same type and shape. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if types or shapes differ, if view is read-only or has elements that share
 * memory, or if the two overlap without being the same.
 */
cudamem_status cudamem_view_copy(cudamem_view view, cudamem_view source, const cudamem_view_copy_options *options);

/**
 * Copies size bytes of dense elements in C order from host memory to a view. Returns when the copy is done. options
 * may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if size is not the dense_size of cudamem_view_info.
 */
cudamem_status cudamem_view_write(cudamem_view view,
                                  const void *source,
                                  size_t size,
                                  const cudamem_view_copy_options *options);

/**
 * Copies the elements of a view to size bytes of host memory, dense and in C order. Returns when the copy is done.
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
 * Exports views to other libraries and imports their tensors without a copy, as DLPack 1.3 defines it. This header
 * does not need dlpack.h; a program may include both, in any order.
 *
 * Order: an export is ordered before the consumer's stream; the call waits only if the consumer is the CPU. When the
 * consumer calls the deleter, the memory is reused or freed after the work then queued on its stream.
 *
 * Lifetime: memory that others use is never freed. Handles may be destroyed at any time; the deleter ends the
 * consumer's use.
 */

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/** A flag of cudamem_dlpack_options: the consumer may only read. */
#define CUDAMEM_DLPACK_READ_ONLY 1
/** A flag of cudamem_dlpack_options: the consumer gets its own copy. */
#define CUDAMEM_DLPACK_COPY 2
/** A flag of cudamem_dlpack_options: fail where a copy would be needed. */
#define CUDAMEM_DLPACK_NO_COPY 4

/**
 * After the consumer calls the deleter, the memory waits for the work that the consumer's stream has by then. That
 * stream must live until the call.
 */
#define CUDAMEM_RELEASE_AFTER_STREAM 0
/** The memory is reused as soon as the consumer calls the deleter. The consumer's work must be done by then. */
#define CUDAMEM_RELEASE_IMMEDIATELY 1
/** The deleter waits for all work of the context: for consumers whose stream may be gone by then. */
#define CUDAMEM_RELEASE_AFTER_CONTEXT 2
/** How a view is exported. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_dlpack_options). */
    size_t size;
    /** CUDAMEM_DLPACK_... combined by |. */
    uint32_t flags;
    /** One of CUDAMEM_RELEASE_... . */
    int32_t release;
    /**
     * The consumer's stream, as DLPack names it: 1 is the legacy default stream, 2 the calling thread's, -1 requests
     * no order, others are a CUstream of the view's context. 0 is unspecified: device memory is then ordered before
     * the legacy default stream, and host memory is waited for.
     */
    int64_t stream;
    /** The resource that a copy is allocated from. The null handle if no copy is needed. */
    cudamem_resource resource;
    /**
     * The device that the consumer wants the memory on, as DLPack numbers it: kDLCPU is 1, kDLCUDA 2, kDLCUDAHost 3,
     * kDLCUDAManaged 13. 0 keeps the memory where it lies. Any other device needs a copy, except the CPU if it
     * addresses the memory.
     */
    int32_t device_type;
    /** The number of that device. */
    int32_t device_id;
} cudamem_dlpack_options;

/**
 * Exports a view to another library, in stream order, as a DLManagedTensorVersioned. The consumer must call its
 * deleter once. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a needed copy is forbidden or has no resource, if the view is not of a
 * buffer, or if its first element begins within a byte.
 */
cudamem_status cudamem_view_export_dlpack(cudamem_view view,
                                          const cudamem_dlpack_options *options,
                                          struct DLManagedTensorVersioned **tensor);

/**
 * As cudamem_view_export_dlpack, for consumers that only know the layout before DLPack 1.0.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT also if the view is read-only or has padded elements, which that layout
 * cannot express.
 */
cudamem_status cudamem_view_export_dlpack_legacy(cudamem_view view,
                                                 const cudamem_dlpack_options *options,
                                                 struct DLManagedTensor **tensor);

/**
 * Makes a view of another library's tensor. The library calls its deleter, on any thread, when the last view or buffer
 * of the memory has ended. On failure the tensor stays the program's, unchanged.
 *
 * stream becomes the memory's home stream. If producer is the null handle, the producer must already have ordered its
 * work before stream, as DLPack producers do for the stream that the consumer names, and the end of the memory waits
 * for its work. Otherwise stream waits for the producer's work so far, and at the end the producer's stream waits for
 * the memory's work, without blocking the CPU.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the tensor's numbers are invalid, if it comes from another major version
 * of DLPack or lies on another kind of device, or if the driver reports that the memory lies elsewhere.
 */
cudamem_status cudamem_view_import_dlpack(struct DLManagedTensorVersioned *tensor,
                                          cudamem_stream stream,
                                          cudamem_stream producer,
                                          cudamem_view *view);

/** As cudamem_view_import_dlpack, for a tensor in the layout before DLPack 1.0. */
cudamem_status cudamem_view_import_dlpack_legacy(struct DLManagedTensor *tensor,
                                                 cudamem_stream stream,
                                                 cudamem_stream producer,
                                                 cudamem_view *view);

/* ---- Array interfaces -----------------------------------------------------------------------------------------------
 *
 * The CUDA array interface of version 3 and numpy's array interface, as JSON, for programs that exchange arrays with
 * Python libraries. They carry no ownership: an exporter keeps the view while others use the array, and an importer
 * keeps the array's owner alive.
 */

/** A flag of cudamem_view_import_cuda_array_interface: do not wait for the producer's stream. */
#define CUDAMEM_ARRAY_INTERFACE_ORDERED 1

/**
 * Gets the CUDA array interface of a view as JSON: the device's address, and the home stream, which the consumer's
 * stream must wait for. Does not wait. Record the consumer's work with cudamem_view_record_use.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if devices do not address the memory, or if the type has no typestr.
 */
cudamem_status cudamem_view_export_cuda_array_interface(cudamem_view view, cudamem_text *json);

/**
 * Gets numpy's array interface of a view as JSON: the CPU's address. Waits for the work on the memory.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory, if the memory needs flushes, or if
 * the type has no typestr.
 */
cudamem_status cudamem_view_export_array_interface(cudamem_view view, cudamem_text *json);

/**
 * Makes a view of another library's array that devices address, from its CUDA array interface as JSON. stream becomes
 * the memory's home stream, and waits for the stream that the interface names unless CUDAMEM_ARRAY_INTERFACE_ORDERED
 * is set. The memory must stay allocated until the library calls release with user, after the last view or buffer of
 * it has ended and its work is done, or until that point if release is NULL. After a failure the library does not call
 * release.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the text is not an array interface, or if the driver does not know the
 * address as a device address.
 */
cudamem_status cudamem_view_import_cuda_array_interface(const char *json,
                                                        uint32_t flags,
                                                        cudamem_stream stream,
                                                        cudamem_release_callback release,
                                                        void *user,
                                                        cudamem_view *view);

/**
 * Makes a view of another library's array in host memory, from its numpy array interface as JSON. Otherwise as
 * cudamem_view_import_cuda_array_interface.
 */
cudamem_status cudamem_view_import_array_interface(const char *json,
                                                   cudamem_stream stream,
                                                   cudamem_release_callback release,
                                                   void *user,
                                                   cudamem_view *view);

/* ---- Arrow: schemas -------------------------------------------------------------------------------------------------
 *
 * A schema is the type of an Arrow array: the specification's letters for the type ("g" for doubles, "u" for text,
 * "+s" for structures), the field's name, and the children. This header does not need Arrow's; a program may include
 * both, in any order.
 */

struct ArrowSchema;

/** A flag of schemas: values may be missing. */
#define CUDAMEM_ARROW_NULLABLE 2
/** How a schema is made. Zeros are the defaults, except that format must be set. */
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
    /** The children. The handles stay the program's. */
    const cudamem_arrow_schema *children;
    /** The type of the dictionary's values, or the null handle. The handle stays the program's. */
    cudamem_arrow_schema dictionary;
    /** The number of metadata pairs. */
    size_t n_metadata;
    /** The keys of the metadata. */
    const char *const *metadata_keys;
    /** The values of the metadata. */
    const char *const *metadata_values;
} cudamem_arrow_schema_options;

/** What a schema is. */
typedef struct {
    /** sizeof(cudamem_arrow_schema_info), set by the program. */
    size_t size;
    /** The specification's letters for the type, valid until the schema is destroyed. */
    const char *format;
    /** The field's name, valid until the schema is destroyed. Empty if the field has no name. */
    const char *name;
    /** CUDAMEM_ARROW_NULLABLE and other flags of the specification. */
    int64_t flags;
    /** The number of children. */
    size_t n_children;
    /** The number of dictionaries: 0 or 1. */
    size_t n_dictionaries;
    /** The number of metadata pairs. */
    size_t n_metadata;
} cudamem_arrow_schema_info;

/** Makes a schema. */
cudamem_status cudamem_arrow_schema_create(const cudamem_arrow_schema_options *options, cudamem_arrow_schema *schema);

/** Fills in the program's struct ArrowSchema. The consumer must call its release once. */
cudamem_status cudamem_arrow_schema_export(cudamem_arrow_schema schema, struct ArrowSchema *result);

/**
 * Reads a struct ArrowSchema, and releases it on success. On failure the struct is unchanged.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the schema was released, or if its numbers or texts are invalid.
 */
cudamem_status cudamem_arrow_schema_import(struct ArrowSchema *source, cudamem_arrow_schema *schema);

/** Describes a schema. Set info->size first. */
cudamem_status cudamem_arrow_schema_get_info(cudamem_arrow_schema schema, cudamem_arrow_schema_info *info);

/** Gets a handle for a child's type. */
cudamem_status cudamem_arrow_schema_get_child(cudamem_arrow_schema schema, size_t index, cudamem_arrow_schema *child);

/** Gets a handle for the type of the dictionary's values, or the null handle if there is no dictionary. */
cudamem_status cudamem_arrow_schema_get_dictionary(cudamem_arrow_schema schema, cudamem_arrow_schema *dictionary);

/**
 * Gets one metadata pair. Keys and values may hold any bytes, including zeros and invalid UTF-8. cudamem_text_get
 * returns their lengths.
 */
cudamem_status cudamem_arrow_schema_get_metadata(cudamem_arrow_schema schema,
                                                 size_t index,
                                                 cudamem_text *key,
                                                 cudamem_text *value);

/** Destroys the handle. The null handle is allowed. */
cudamem_status cudamem_arrow_schema_destroy(cudamem_arrow_schema schema);

/* ---- Arrow: arrays --------------------------------------------------------------------------------------------------
 *
 * Arrays of Arrow's C device data interface, whose buffers are buffers of this library. An exported array carries an
 * event (sync_event) that its consumer must wait for. Uses of an imported array are ordered after its producer's
 * event. The structs lie in host memory; only the buffers lie on the device.
 *
 * Arrow's release callback takes no stream. So call it after the consumer's work is done, or use
 * cudamem_arrow_array_destroy_after.
 */

struct ArrowDeviceArray;

/** How an array is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_arrow_array_options). */
    size_t size;
    /** The number of values. */
    uint64_t length;
    /** The number of missing values; -1 if it is unknown. */
    int64_t null_count;
    /** The number of values before the first one. */
    uint64_t offset;
    /** The number of buffers. */
    size_t n_buffers;
    /**
     * The buffers, in the order that the type defines; the null handle for an absent buffer, such as the validity of
     * an array without missing values. The handles stay the program's; the array shares ownership of the memory.
     */
    const cudamem_buffer *buffers;
    /** The number of children. */
    size_t n_children;
    /** The children, which cudamem_arrow_array_create made. The handles stay the program's. */
    const cudamem_arrow_array *children;
    /** The dictionary's values, or the null handle. The handle stays the program's. */
    cudamem_arrow_array dictionary;
} cudamem_arrow_array_options;

/** What an array is. */
typedef struct {
    /** sizeof(cudamem_arrow_array_info), set by the program. */
    size_t size;
    /** The number of values. */
    uint64_t length;
    /** The number of missing values; -1 if it is unknown. */
    int64_t null_count;
    /** The number of values before the first one. */
    uint64_t offset;
    /** The number of buffers. */
    size_t n_buffers;
    /** The number of children. */
    size_t n_children;
    /** The number of dictionaries: 0 or 1. */
    size_t n_dictionaries;
    /** The kind of device that the memory lies on, as DLPack numbers it. */
    int32_t device_type;
    /** The number of that device. */
    int32_t device_id;
} cudamem_arrow_array_info;

/**
 * Makes an array from buffers. The call does not check that the buffers suit the type.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a number is out of range, or if the buffers lie on several devices.
 */
cudamem_status cudamem_arrow_array_create(const cudamem_arrow_array_options *options, cudamem_arrow_array *array);

/**
 * Fills in the program's struct ArrowDeviceArray. The consumer must call its release once, after its work is done. The
 * library records the event that the consumer waits for on stream, after all work on the buffers so far. If all
 * buffers lie in host memory, the call waits for that work instead.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an imported array.
 */
cudamem_status cudamem_arrow_array_export(cudamem_arrow_array array,
                                          cudamem_stream stream,
                                          struct ArrowDeviceArray *result);

/**
 * Takes over a struct ArrowDeviceArray. On success source counts as released, and the library calls the array's
 * release, on any thread, when its last handle and buffer have ended. On failure source stays unchanged.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the array was released, if its numbers are out of range, or if it lies on
 * another kind of device.
 */
cudamem_status cudamem_arrow_array_import(struct ArrowDeviceArray *source, cudamem_arrow_array *array);

/** Describes an array. Set info->size first. */
cudamem_status cudamem_arrow_array_get_info(cudamem_arrow_array array, cudamem_arrow_array_info *info);

/** Gets a handle for a child. It keeps the whole array alive. */
cudamem_status cudamem_arrow_array_get_child(cudamem_arrow_array array, size_t index, cudamem_arrow_array *child);

/**
 * Gets a handle for the dictionary's values, which keeps the whole array alive; the null handle if there is no
 * dictionary.
 */
cudamem_status cudamem_arrow_array_get_dictionary(cudamem_arrow_array array, cudamem_arrow_array *dictionary);

/**
 * Gets one of the buffers, or the null handle if it is absent. size is the buffer's size in bytes, which follows from
 * the type, because Arrow does not state it. For an array that this library made, it may be CUDAMEM_WHOLE_SIZE.
 *
 * For an imported array, stream becomes the buffer's home stream and waits for the producer's event. The program must
 * not write the memory.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if index is out of range, or if the driver reports that the memory lies
 * elsewhere.
 */
cudamem_status cudamem_arrow_array_get_buffer(cudamem_arrow_array array,
                                              size_t index,
                                              size_t size,
                                              cudamem_stream stream,
                                              cudamem_buffer *buffer);

/**
 * Destroys the handle. The library releases an imported array when its last handle and buffer are gone. The consumer's
 * work must be done by then. The null handle is allowed.
 */
cudamem_status cudamem_arrow_array_destroy(cudamem_arrow_array array);

/**
 * As cudamem_arrow_array_destroy, but the memory is reused only after the work that stream has now. If this library
 * made the array, an event orders the reuse; otherwise this call waits. Calls of other threads with an imported array
 * run before or after it.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if an imported array has other handles or buffers. The handle then stays
 * valid.
 */
cudamem_status cudamem_arrow_array_destroy_after(cudamem_arrow_array array, cudamem_stream stream);

/* ---- Arrow: streams of arrays ---------------------------------------------------------------------------------------
 *
 * An Arrow stream yields arrays of one type, one after the other. It is unrelated to a CUDA stream.
 */

struct ArrowDeviceArrayStream;

/**
 * Fills in the program's struct ArrowDeviceArrayStream, which yields count arrays one after the other. All arrays must
 * have the type schema and lie on one kind of device. The consumer must call its release once. The handles stay the
 * program's. stream is the CUDA stream on which the library records the arrays' events for consumers.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT for an imported array, or for arrays on several kinds of device.
 */
cudamem_status cudamem_arrow_stream_export(cudamem_arrow_schema schema,
                                           const cudamem_arrow_array *arrays,
                                           size_t count,
                                           cudamem_stream stream,
                                           struct ArrowDeviceArrayStream *result);

/**
 * Takes over a struct ArrowDeviceArrayStream. On success source counts as released. On failure it stays unchanged.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream was released, or lacks a function.
 */
cudamem_status cudamem_arrow_stream_import(struct ArrowDeviceArrayStream *source, cudamem_arrow_stream *arrow_stream);

/** Gets the type of all arrays. */
cudamem_status cudamem_arrow_stream_get_schema(cudamem_arrow_stream arrow_stream, cudamem_arrow_schema *schema);

/**
 * Gets the next array, or the null handle after the last one. Concurrent calls run one after the other.
 *
 * Errors: the producer's error, as CUDAMEM_ERROR_INVALID_ARGUMENT with the producer's message.
 */
cudamem_status cudamem_arrow_stream_next(cudamem_arrow_stream arrow_stream, cudamem_arrow_array *array);

/** Destroys the handle and releases the stream of arrays. Arrays that it yielded stay. The null handle is allowed. */
cudamem_status cudamem_arrow_stream_destroy(cudamem_arrow_stream arrow_stream);

/* ---- Adaptors -------------------------------------------------------------------------------------------------------
 *
 * An adaptor is a resource on top of another resource, its upstream: it counts, limits, logs or retries allocations.
 * Adaptors and pools stack in any order. The upstream's handle may be destroyed before the adaptor's. A function for
 * one kind of adaptor refuses other resources with CUDAMEM_ERROR_INVALID_ARGUMENT.
 */

/** A flag of cudamem_resource_create_tracking: record a backtrace of each allocation, which takes microseconds. */
#define CUDAMEM_TRACKING_BACKTRACES 1
/** The counts of a statistics adaptor. Sizes are the sizes of the allocated blocks. */
typedef struct {
    /** sizeof(cudamem_counts), set by the program. */
    size_t size;
    /** Bytes in live blocks. */
    int64_t bytes;
    /** The largest number of live bytes since the peaks were last reset. */
    int64_t bytes_peak;
    /** Bytes in all blocks that were ever allocated. */
    uint64_t bytes_total;
    /** Live blocks. */
    int64_t blocks;
    /** The largest number of live blocks since the peaks were last reset. */
    int64_t blocks_peak;
    /** Blocks that were ever allocated. */
    uint64_t blocks_total;
    /** Failed allocations. */
    uint64_t failed_allocations;
    /** Failed frees. Their blocks stay live. */
    uint64_t failed_frees;
    /** Blocks that were ever allocated, by size: sizes[n] counts the blocks of 2^n to 2^(n+1) - 1 bytes. */
    uint64_t sizes[48];
} cudamem_counts;

/**
 * The library calls this function when the upstream is out of memory, on the allocating thread. message describes the
 * failure and is valid during the call. attempt is the number of the failed attempt, from 1. user is the program's
 * pointer. The function may free memory, and returns whether to try again. An allocation that the function itself
 * makes from the same resource fails without another call of it. It must not unwind.
 */
typedef bool (*cudamem_retry_callback)(const char *message, uint32_t attempt, void *user);

/** Makes an adaptor that counts allocations: cudamem_resource_get_counts. */
cudamem_status cudamem_resource_create_statistics(cudamem_resource upstream, cudamem_resource *resource);

/** Gets the counts of cudamem_resource_create_statistics. Set counts->size first. */
cudamem_status cudamem_resource_get_counts(cudamem_resource resource, cudamem_counts *counts);

/** Resets the peaks of cudamem_resource_get_counts to the current values. */
cudamem_status cudamem_resource_reset_peaks(cudamem_resource resource);

/** Makes an adaptor that limits live memory. An allocation beyond limit bytes fails with CUDAMEM_ERROR_OUT_OF_MEMORY. */
cudamem_status cudamem_resource_create_limit(cudamem_resource upstream, size_t limit, cudamem_resource *resource);

/** Sets the limit of cudamem_resource_create_limit. Live blocks stay, even beyond the new limit. */
cudamem_status cudamem_resource_set_limit(cudamem_resource resource, size_t limit);

/** Gets the limit and the live bytes. Either place may be NULL. */
cudamem_status cudamem_resource_get_limit(cudamem_resource resource, size_t *limit, size_t *used);

/**
 * Makes an adaptor that records every live block. cudamem_resource_get_leaks reports them. flags is 0 or
 * CUDAMEM_TRACKING_BACKTRACES.
 */
cudamem_status cudamem_resource_create_tracking(cudamem_resource upstream, uint32_t flags, cudamem_resource *resource);

/**
 * Gets the number of live blocks of cudamem_resource_create_tracking, and a readable report on each. Either place may
 * be NULL.
 */
cudamem_status cudamem_resource_get_leaks(cudamem_resource resource, size_t *blocks, cudamem_text *report);

/**
 * Makes an adaptor that writes each allocation and each free to a file, as a line of CSV in the format of RMM's logs:
 * Thread,Time,Action,Pointer,Size,Stream. It overwrites an existing file.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if the file cannot be created.
 */
cudamem_status cudamem_resource_create_logging(cudamem_resource upstream, const char *path, cudamem_resource *resource);

/**
 * Writes all buffered lines of cudamem_resource_create_logging to the file. lost, which may be NULL, receives the
 * number of lines lost so far.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if the file cannot be written.
 */
cudamem_status cudamem_resource_flush_log(cudamem_resource resource, uint64_t *lost);

/**
 * Makes an adaptor that keeps the newest capacity allocations and frees, at about 100 bytes each:
 * cudamem_resource_get_trace.
 */
cudamem_status cudamem_resource_create_recording(cudamem_resource upstream,
                                                 size_t capacity,
                                                 cudamem_resource *resource);

/**
 * Gets the newest allocations and frees of cudamem_resource_create_recording, or of a pool with a trace_capacity, as
 * CSV: oldest first, with times, threads and streams. `cuda-mem replay` repeats them.
 */
cudamem_status cudamem_resource_get_trace(cudamem_resource resource, cudamem_text *csv);

/**
 * Makes an adaptor that allocates from first, and from second when first is out of memory. Both must belong to one
 * context and allow the same access.
 */
cudamem_status cudamem_resource_create_fallback(cudamem_resource first,
                                                cudamem_resource second,
                                                cudamem_resource *resource);

/** Gets how many live blocks of cudamem_resource_create_fallback come from the second resource. */
cudamem_status cudamem_resource_get_fallback_blocks(cudamem_resource resource, size_t *blocks);

/**
 * Makes an adaptor that calls callback when the upstream is out of memory, and tries again if it returns true, at most
 * attempts times for one allocation.
 */
cudamem_status cudamem_resource_create_retry(cudamem_resource upstream,
                                             uint32_t attempts,
                                             cudamem_retry_callback callback,
                                             void *user,
                                             cudamem_resource *resource);

/** Makes an adaptor whose blocks begin at multiples of alignment, a power of two. */
cudamem_status cudamem_resource_create_aligned(cudamem_resource upstream, size_t alignment, cudamem_resource *resource);

/* ---- Adaptors that find mistakes ------------------------------------------------------------------------------------
 *
 * Adaptors for tests and debugging. One makes allocations fail; one detects writes outside of blocks.
 */

/** Fails the allocation with this number, counted from 1. */
#define CUDAMEM_FAIL_NTH 0
/** Fails each allocation whose count is a multiple of number. */
#define CUDAMEM_FAIL_EVERY_NTH 1
/** Fails allocations of more than number bytes. */
#define CUDAMEM_FAIL_LARGER_THAN 2
/** Fails each allocation with a probability. number is the seed of the random choice. */
#define CUDAMEM_FAIL_BY_CHANCE 3
/** A flag of cudamem_guard_options: no red zones. */
#define CUDAMEM_GUARD_NO_RED_ZONES 1
/** A flag of cudamem_guard_options: no quarantine. */
#define CUDAMEM_GUARD_NO_QUARANTINE 2
/** A rule for which allocations fail. */
typedef struct {
    /** One of CUDAMEM_FAIL_... . */
    int32_t when;
    /** Must be 0. */
    int32_t reserved;
    /** The number that CUDAMEM_FAIL_... describes. */
    uint64_t number;
    /** From 0 to 1 with CUDAMEM_FAIL_BY_CHANCE; otherwise 0. */
    double probability;
} cudamem_failure_rule;

/** How blocks are guarded. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_guard_options). */
    size_t size;
    /** The size of the zones before and after each block, in bytes. 256 by default. */
    size_t red_zone;
    /** How much freed memory the quarantine holds back, in bytes. 16 MiB by default. */
    size_t quarantine;
    /** CUDAMEM_GUARD_... combined by |. */
    uint32_t flags;
    /** Must be 0. */
    uint32_t reserved;
} cudamem_guard_options;

/**
 * Makes an adaptor that fails allocations by count rules, with CUDAMEM_ERROR_OUT_OF_MEMORY, for tests. The same rules
 * fail the same allocations in every run. A failed allocation does not reach the upstream.
 */
cudamem_status cudamem_resource_create_failing(cudamem_resource upstream,
                                               const cudamem_failure_rule *rules,
                                               size_t count,
                                               cudamem_resource *resource);

/** Replaces the rules of cudamem_resource_create_failing, and restarts its count of allocations at 1. */
cudamem_status cudamem_resource_set_failures(cudamem_resource resource,
                                             const cudamem_failure_rule *rules,
                                             size_t count);

/**
 * Gets how many allocations were requested since the rules were set, and how many of them the rules failed. Either
 * place may be NULL.
 */
cudamem_status cudamem_resource_get_failures(cudamem_resource resource, uint64_t *allocations, uint64_t *injected);

/**
 * Makes an adaptor that detects writes outside of blocks and after their free, for debugging: red zones around blocks,
 * poison in new and freed blocks, and a quarantine of freed blocks. A free that finds damage fails with
 * CUDAMEM_ERROR_DAMAGED; a second free of the same block succeeds. options may be NULL.
 */
cudamem_status cudamem_resource_create_guarded(cudamem_resource upstream,
                                               const cudamem_guard_options *options,
                                               cudamem_resource *resource);

/**
 * Waits for all work of the context, and checks for damage now. Gets the number of findings, and a readable report on
 * each. report may be NULL.
 */
cudamem_status cudamem_resource_check_guards(cudamem_resource resource, size_t *findings, cudamem_text *report);

/**
 * Checks the blocks in quarantine and frees them. The library reports findings to the callback of
 * cudamem_set_drop_error_callback.
 */
cudamem_status cudamem_resource_release_quarantine(cudamem_resource resource);

/* ---- Pools of one size, and rings of staging ------------------------------------------------------------------------
 *
 * Two pools for special uses, which are resources: one has blocks of one size, and one allocates blocks one behind the
 * other and reuses them in the same order.
 */

/**
 * A flag of cudamem_ring_pool_create: a full ring refuses an allocation, instead of waiting for the work of freed
 * blocks.
 */
#define CUDAMEM_RING_POOL_REFUSE 1
/** How a pool of one size is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_fixed_pool_options). */
    size_t size;
    /** The most memory that the pool may allocate from its upstream, in bytes. No limit by default. */
    size_t maximum;
    /** How many blocks the pool grows by: 1 to 4096. 1024 by default. */
    uint32_t blocks_per_slab;
    /** One of CUDAMEM_REUSE_... . */
    int32_t reuse;
} cudamem_fixed_pool_options;

/** Statistics of a pool of one size. */
typedef struct {
    /** sizeof(cudamem_fixed_pool_statistics), set by the program. */
    size_t size;
    /** The size of a block in bytes. */
    uint64_t block_size;
    /** Live blocks: a count. */
    cudamem_figure blocks;
    /** Memory that the pool has allocated from its upstream, in bytes. */
    cudamem_figure reserved;
    /** Freed blocks that wait for their stream's work, or are kept for their stream: a count. */
    uint64_t pending;
    /** Events recorded: a count. */
    uint64_t events_recorded;
    /** How often the pool made a stream wait: a count. */
    uint64_t waits;
    /** How often the pool was out of memory: a count. */
    uint64_t out_of_memory;
} cudamem_fixed_pool_statistics;

/** Statistics of a ring. */
typedef struct {
    /** sizeof(cudamem_ring_pool_statistics), set by the program. */
    size_t size;
    /** The ring's size in bytes. */
    uint64_t capacity;
    /** The bytes in live blocks, in whole units. */
    cudamem_figure used;
    /** Live blocks: a count. */
    uint64_t blocks;
    /** Freed blocks that still take room: a count. */
    uint64_t pending;
    /** The bytes that no block takes. */
    uint64_t free;
    /** Events recorded: a count. */
    uint64_t events_recorded;
    /** How often an allocation was refused: a count. */
    uint64_t full;
} cudamem_ring_pool_statistics;

/**
 * Makes a pool of blocks of block_size bytes over a resource. Smaller allocations get a whole block, larger ones are
 * refused. options may be NULL. Allocates no memory yet.
 */
cudamem_status cudamem_fixed_pool_create(cudamem_resource upstream,
                                         size_t block_size,
                                         const cudamem_fixed_pool_options *options,
                                         cudamem_resource *pool);

/** Gets the statistics of a pool of one size. Set statistics->size first. */
cudamem_status cudamem_fixed_pool_get_statistics(cudamem_resource pool, cudamem_fixed_pool_statistics *statistics);

/** Grows a pool of one size until it has at least blocks blocks, free and used together. */
cudamem_status cudamem_fixed_pool_reserve(cudamem_resource pool, size_t blocks);

/** Returns slabs without blocks, whose work is done, to the upstream, but keeps at least keep bytes. Does not wait. */
cudamem_status cudamem_fixed_pool_trim(cudamem_resource pool, size_t keep);

/** Waits for the work that freed blocks wait for, and returns all slabs without blocks to the upstream. */
cudamem_status cudamem_fixed_pool_release_unused(cudamem_resource pool);

/**
 * Makes a ring of capacity bytes, rounded up to a multiple of 256, over a resource: for staging. The ring hands a
 * block out only when all work of its previous users is done, so the CPU may write it at once. A block that is not
 * freed delays all blocks behind it. The call allocates the memory. flags is 0 or CUDAMEM_RING_POOL_REFUSE.
 */
cudamem_status cudamem_ring_pool_create(cudamem_resource upstream,
                                        size_t capacity,
                                        uint32_t flags,
                                        cudamem_resource *pool);

/** Gets the statistics of a ring. Set statistics->size first. */
cudamem_status cudamem_ring_pool_get_statistics(cudamem_resource pool, cudamem_ring_pool_statistics *statistics);

/** Waits for the work of all freed blocks. Afterwards they take no room. */
cudamem_status cudamem_ring_pool_synchronize(cudamem_resource pool);

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

/** Gets the granularity, the unit of virtual memory, in bytes. */
cudamem_status cudamem_resource_get_granularity(cudamem_resource resource, size_t *granularity);

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

/**
 * Gets a growable buffer's capacity, which is the size of its reserved addresses, and the size of its physical memory,
 * in bytes. Either place may be NULL.
 */
cudamem_status cudamem_buffer_get_capacity(cudamem_buffer buffer, size_t *capacity, size_t *physical);

/* ---- Memory of the host ---------------------------------------------------------------------------------------------
 *
 * The program can register its own memory. Registered memory is page-locked: devices copy it as fast as memory that
 * the driver allocated, and kernels may address it. Managed memory moves to where it is used, and takes advice on
 * that. For page-locked memory of the driver, allocate from cudamem_resource_create_pinned;
 * cudamem_buffer_get_host_pointer returns the CPU's address.
 */

/** A flag of cudamem_buffer_register: devices only read the memory. Some devices ignore this flag. */
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

/**
 * Registers size bytes of the program's memory at pointer, and uses them as a buffer. The memory must stay allocated,
 * and be used through the buffer alone, until the library calls release with user, after the last part of the buffer
 * has ended and its work is done; if queued work waits for the CPU then, the call comes later, on any thread. If
 * release is NULL, the rule ends with the last part. Registering locks the pages one by one, at about 0.1 ms for each
 * MiB. flags is CUDAMEM_REGISTER_... combined by |. After a failure the library does not call release.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if some of the memory is registered already, belongs to the driver, or cannot be
 * written. CUDAMEM_ERROR_OUT_OF_MEMORY at the limit of locked memory. CUDAMEM_ERROR_UNSUPPORTED.
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

/** Checks whether a whole range of managed memory was advised to be mostly read. */
cudamem_status cudamem_buffer_is_read_mostly(cudamem_buffer buffer, size_t offset, size_t size, bool *read_mostly);

/**
 * Gets where a range of managed memory was last prefetched: one of CUDAMEM_LOCATION_... and its number. If nowhere, or
 * its parts to different places, known becomes false, and location and number stay unchanged.
 */
cudamem_status cudamem_buffer_get_prefetched(cudamem_buffer buffer,
                                             size_t offset,
                                             size_t size,
                                             bool *known,
                                             int32_t *location,
                                             int32_t *number);

/**
 * Declares that the contents of a range of managed memory are no longer needed, in order of the home stream. The range
 * then lies on the device, without a transfer of its contents. Until it is written again, its contents are undefined.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the memory is not managed. CUDAMEM_ERROR_MISSING_SYMBOL or
 * CUDAMEM_ERROR_UNSUPPORTED on drivers before CUDA 13.0.
 */
cudamem_status cudamem_buffer_discard(cudamem_buffer buffer, size_t offset, size_t size);

/* ---- Profiles of copy engines ---------------------------------------------------------------------------------------
 *
 * A profile holds what an engine measured on this machine to choose ways of copying. The engine also keeps page-locked
 * staging.
 */

/** Gets the engine's profile as JSON: how long each way of copying takes, by size. */
cudamem_status cudamem_engine_get_profile(cudamem_engine engine, cudamem_text *json);

/** Makes the engine use another profile, a JSON text, from now on. The profile is not stored in the cache folder. */
cudamem_status cudamem_engine_set_profile(cudamem_engine engine, const char *json);

/** Measures the machine, uses the result as the profile, and stores it in the cache folder. Takes 0.2 s or less. */
cudamem_status cudamem_engine_measure(cudamem_engine engine);

/** Gets the size of the engine's page-locked staging in bytes. */
cudamem_status cudamem_engine_get_staging(cudamem_engine engine, size_t *size);

/** Frees staging that no copy uses. */
cudamem_status cudamem_engine_trim(cudamem_engine engine);

/* ---- Copies of engines in stream order, of many pieces, and complete ------------------------------------------------
 *
 * A copy in stream order runs after all work queued on the stream so far, and before its later work. It passes the
 * program's memory through the engine's page-locked staging, so that writes do not wait for the stream.
 */

/** One write of a scatter. */
typedef struct {
    /** The destination's offset in the memory, in bytes. */
    size_t offset;
    /** The source in host memory. */
    const void *source;
    /** The size in bytes. */
    size_t size;
} cudamem_scatter;

/** One piece of a copy between two buffers, in bytes. */
typedef struct {
    /** The offset in the destination. */
    size_t offset;
    /** The offset in the source. */
    size_t source_offset;
    /** The size in bytes. */
    size_t size;
} cudamem_piece;

/**
 * Copies size bytes from host memory to a buffer, at offset, in order of a stream. Returns when the program may reuse
 * the source.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream captures a graph, or belongs to another device.
 */
cudamem_status cudamem_engine_write_buffer_on(cudamem_engine engine,
                                              cudamem_stream stream,
                                              cudamem_buffer buffer,
                                              size_t offset,
                                              const void *source,
                                              size_t size);

/**
 * Begins to copy size bytes of a buffer, from offset on, to host memory, in order of a stream.
 * cudamem_pending_read_wait stores the bytes at destination. Until that wait, or until the pending read is destroyed,
 * destination must stay valid and nothing else may use it.
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
 * Waits for a pending read. Afterwards its destination holds the bytes and may be used. A second wait does nothing.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the copy, or work before it, failed.
 */
cudamem_status cudamem_pending_read_wait(cudamem_pending_read pending);

/**
 * Checks whether cudamem_pending_read_wait would return without waiting.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the copy, or work before it, failed.
 */
cudamem_status cudamem_pending_read_is_done(cudamem_pending_read pending, bool *done);

/** Destroys a pending read. Without a wait before, the destination stays unchanged. The null handle is allowed. */
cudamem_status cudamem_pending_read_destroy(cudamem_pending_read pending);

/** As cudamem_engine_write_buffer, but returns only when the bytes have arrived in the device's memory. */
cudamem_status cudamem_engine_write_buffer_complete(cudamem_engine engine,
                                                    cudamem_buffer buffer,
                                                    size_t offset,
                                                    const void *source,
                                                    size_t size);

/**
 * As cudamem_engine_write_buffer_complete, to mapped memory. Takes one load over PCIe longer than
 * cudamem_engine_write_mapped.
 */
cudamem_status cudamem_engine_write_mapped_complete(cudamem_engine engine,
                                                    cudamem_mapped mapped,
                                                    size_t offset,
                                                    const void *source,
                                                    size_t size);

/**
 * Writes count pieces of host memory to a buffer, in their order: where two overlap, the later one wins. The engine
 * gathers them and sends them with few driver calls. Device work that is queued later sees them.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if a write does not fit. The writes before it are done.
 */
cudamem_status cudamem_engine_scatter_to_buffer(cudamem_engine engine,
                                                cudamem_buffer buffer,
                                                const cudamem_scatter *writes,
                                                size_t count);

/** As cudamem_engine_scatter_to_buffer, to mapped memory: with CPU stores and a single fence. */
cudamem_status cudamem_engine_scatter_to_mapped(cudamem_engine engine,
                                                cudamem_mapped mapped,
                                                const cudamem_scatter *writes,
                                                size_t count);

/**
 * Copies count pieces of source to buffer, in order of stream, with one driver call if the driver has such a call
 * (CUDA 12.8). The pieces are unordered among each other, so they must not overlap in buffer.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if a piece does not fit. CUDAMEM_ERROR_INVALID_ARGUMENT if two pieces overlap, or
 * if both handles are the same. Nothing is copied after an error.
 */
cudamem_status cudamem_buffer_copy_pieces(cudamem_buffer buffer,
                                          cudamem_buffer source,
                                          const cudamem_piece *pieces,
                                          size_t count,
                                          cudamem_stream stream);

/* ---- Signals --------------------------------------------------------------------------------------------------------
 *
 * Words that the CPU, streams and running kernels write and wait for: flags, counters, and rings of items (below). A
 * kernel launch and the wait for its end take about 8 us; a flag that a running kernel answers takes 1.5 us. The
 * device's side is cudamem/signal.cuh, one header for CUDA C++ without dependencies.
 *
 * cudamem_flag question, answer;
 * cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &question);
 * cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_CPU, &answer);
 * ... launch a kernel with the addresses from cudamem_flag_get_device_pointer, then cudamem_flag_record_use ...
 * cudamem_flag_store(question, 1);
 * cudamem_flag_wait(answer, CUDAMEM_COMPARE_EQUAL, 1, &options, NULL);
 *
 * Each word must have one writer at a time: if CPU and device write it at once, one of the writes is lost. A write
 * comes after everything that its thread wrote before, to any memory. In coherent memory, a reader that sees the value
 * also sees those writes.
 *
 * A driver may wait for the device when memory is allocated or freed, and when a kernel is launched for the first
 * time. If a kernel then waits for the program, both wait forever. So make flags, rings, memory and kernels before you
 * launch a kernel that waits. Load, store, wait, push and pop make no driver call, except in waits of 5 ms and more.
 */

/** A flag of cudamem_signals_create: use pinned memory only, even if mapped memory is available. */
#define CUDAMEM_SIGNALS_PINNED_ONLY 1
/** Where the CPU polls fastest: pinned memory. */
#define CUDAMEM_PLACE_FOR_CPU 0
/** Where kernels and streams poll fastest: mapped memory if it is available, otherwise pinned memory. */
#define CUDAMEM_PLACE_FOR_DEVICE 1
/** Page-locked host memory. */
#define CUDAMEM_PLACE_PINNED 2
/** Device memory that the CPU addresses too, if it is available and coherent. */
#define CUDAMEM_PLACE_MAPPED 3
/** The word equals the value. */
#define CUDAMEM_COMPARE_EQUAL 0
/** The word equals the value, or is ahead of it by less than half of the number range: counters may wrap around. */
#define CUDAMEM_COMPARE_AT_LEAST 1
/** A bit of the value is set in the word. */
#define CUDAMEM_COMPARE_ANY_BIT 2
/** A bit is clear in both the word and the value. Some devices do not support this wait on streams. */
#define CUDAMEM_COMPARE_NOT_ALL_BITS 3

/**
 * How the CPU waits. It polls the word: first without a pause, then yielding the processor, then with naps that
 * double. Zeros are the defaults.
 */
typedef struct {
    /** sizeof(cudamem_wait_options). */
    size_t size;
    /**
     * The time limit in seconds. 0 for none: the wait then ends only when its condition holds, or with the driver's
     * error if the device fails.
     */
    double timeout;
    /** The first nap in seconds. 20 us by default. */
    double shortest_nap;
    /** The longest nap in seconds; a long wait may notice a change that late. 1 ms by default. */
    double longest_nap;
    /** How often the wait polls without a pause. 10000 by default; -1 for never. */
    int32_t spins;
    /** How often the wait then polls and yields the processor. 200 by default; -1 for never. */
    int32_t yields;
} cudamem_wait_options;

/**
 * Makes the memory for flags, counters and rings of a context. It grows by 64 KiB at a time. flags is 0 or
 * CUDAMEM_SIGNALS_PINNED_ONLY. If mapped memory is missing or not coherent, everything lies in pinned memory.
 */
cudamem_status cudamem_signals_create(cudamem_context context, uint32_t flags, cudamem_signals *signals);

/**
 * As cudamem_signals_create, with mapped memory of a resource that cudamem_resource_create_mapped made. This avoids
 * opening its device again.
 */
cudamem_status cudamem_signals_create_over(cudamem_resource resource, cudamem_signals *signals);

/**
 * Gets a text that explains why signals lie in pinned memory only; the null handle if mapped memory is in use. Destroy
 * the text.
 */
cudamem_status cudamem_signals_get_missing(cudamem_signals signals, cudamem_text *missing);

/**
 * Destroys the handle. The memory ends with its last flag, counter and ring, after the recorded device work. Streams
 * that wait for a flag are released; the program must release waiting kernels first. The null handle is allowed.
 */
cudamem_status cudamem_signals_destroy(cudamem_signals signals);

/**
 * Makes a flag: a word of 32 or 64 bits in cache lines of its own, with the value 0. place is CUDAMEM_PLACE_... .
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if there is no such memory. CUDAMEM_ERROR_OUT_OF_MEMORY.
 */
cudamem_status cudamem_flag_create(cudamem_signals signals, uint32_t bits, int32_t place, cudamem_flag *flag);

/** Reads the word. Everything that its writer did before the write is visible after this call. */
cudamem_status cudamem_flag_load(cudamem_flag flag, uint64_t *value);

/**
 * Writes the word, after all earlier writes of this thread. The write is posted: a polling kernel sees it after at
 * most one trip over PCIe.
 */
cudamem_status cudamem_flag_store(cudamem_flag flag, uint64_t value);

/**
 * Waits on the CPU until the comparison of the word with value holds, and stores the word then in seen, which may be
 * NULL. comparison is one of CUDAMEM_COMPARE_...; options may be NULL. The wait may miss a word that changes back.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT after the time limit. CUDAMEM_ERROR_INVALID_ARGUMENT if no word can satisfy the
 * comparison. CUDAMEM_ERROR_CLOSED if another thread destroys the flag. CUDAMEM_ERROR_DRIVER if the device failed.
 */
cudamem_status cudamem_flag_wait(cudamem_flag flag,
                                 int32_t comparison,
                                 uint64_t value,
                                 const cudamem_wait_options *options,
                                 uint64_t *seen);

/**
 * Makes later work of stream wait until the comparison of the word with value holds. The wait takes no processor of
 * the device, but blocks the stream until something writes the word. That write must not depend on the same stream. If
 * more such waits run at a time than the device has queues (CUDA_DEVICE_MAX_CONNECTIONS), they may block each other.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED if the device has no such waits. CUDAMEM_ERROR_INVALID_ARGUMENT if the stream
 * belongs to another context or captures a graph, or if no word can satisfy the comparison.
 */
cudamem_status cudamem_flag_wait_on(cudamem_flag flag, cudamem_stream stream, int32_t comparison, uint64_t value);

/**
 * Writes the word when all work queued on stream so far is done. A reader that sees the value also sees that work.
 *
 * Errors: as cudamem_flag_wait_on.
 */
cudamem_status cudamem_flag_store_on(cudamem_flag flag, cudamem_stream stream, uint64_t value);

/**
 * Records that work queued on stream so far uses this flag: kernels that were launched with its address. Its memory is
 * not reused before that work is done.
 */
cudamem_status cudamem_flag_record_use(cudamem_flag flag, cudamem_stream stream);

/**
 * Gets the word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle
 * lives.
 */
cudamem_status cudamem_flag_get_device_pointer(cudamem_flag flag, uint64_t *pointer);

/** Gets where the word lies: place becomes CUDAMEM_PLACE_PINNED or CUDAMEM_PLACE_MAPPED. */
cudamem_status cudamem_flag_get_place(cudamem_flag flag, int32_t *place);

/** Names a flag, for error messages and for reports of long waits. */
cudamem_status cudamem_flag_set_name(cudamem_flag flag, const char *name);

/**
 * Destroys a flag. A wait of another thread for it fails with CUDAMEM_ERROR_CLOSED. A stream that waits for it is
 * released: by a queued write of another stream if that satisfies the wait, otherwise at once. In the second case the
 * stream's next cudamem_stream_synchronize, access to memory, or wait fails with CUDAMEM_ERROR_CLOSED. The flag's
 * memory stays until the recorded work is done. Kernels of the program that wait for the flag must be released before,
 * or have a time limit. The null handle is allowed.
 */
cudamem_status cudamem_flag_destroy(cudamem_flag flag);

/* ---- Counters -------------------------------------------------------------------------------------------------------
 *
 * A counter is a word that only grows. The CPU counts pieces that are ready, and streams and kernels wait for them. Or
 * a stream or kernel counts pieces that are done, and the CPU waits for them. Counts may wrap around.
 */

/** The CPU counts. Streams and kernels wait. */
#define CUDAMEM_COUNTED_BY_CPU 0
/** One stream or kernel at a time counts. The CPU and streams wait. */
#define CUDAMEM_COUNTED_BY_DEVICE 1
/** Makes a counter of 32 or 64 bits with the value 0. by is one of CUDAMEM_COUNTED_BY_... . */
cudamem_status cudamem_counter_create(cudamem_signals signals, uint32_t bits, int32_t by, cudamem_counter *counter);

/**
 * Adds more to the count on the CPU, after all earlier writes of this thread. Stores the new count in count, which may
 * be NULL.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the device counts.
 */
cudamem_status cudamem_counter_add(cudamem_counter counter, uint64_t more, uint64_t *count);

/** Gets the current count. Everything that its writer did before it counted is visible after this call. */
cudamem_status cudamem_counter_get_value(cudamem_counter counter, uint64_t *count);

/**
 * Waits on the CPU until the counter's value is at least count, and stores the value then in seen, which may be NULL.
 * options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT after the time limit. CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts.
 * CUDAMEM_ERROR_DRIVER if the device failed.
 */
cudamem_status cudamem_counter_wait(cudamem_counter counter,
                                    uint64_t count,
                                    const cudamem_wait_options *options,
                                    uint64_t *seen);

/**
 * Makes later work of stream wait until the counter's value is at least count.
 *
 * Errors: as cudamem_flag_wait_on.
 */
cudamem_status cudamem_counter_wait_on(cudamem_counter counter, cudamem_stream stream, uint64_t count);

/**
 * Sets a count of the device, once all work queued on stream so far is done.
 *
 * Errors: as cudamem_flag_wait_on. CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts.
 */
cudamem_status cudamem_counter_store_on(cudamem_counter counter, cudamem_stream stream, uint64_t count);

/**
 * Records that work queued on stream so far uses this counter: kernels that were launched with its address. Its memory
 * is not reused before that work is done.
 */
cudamem_status cudamem_counter_record_use(cudamem_counter counter, cudamem_stream stream);

/**
 * Gets the word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle
 * lives.
 */
cudamem_status cudamem_counter_get_device_pointer(cudamem_counter counter, uint64_t *pointer);

/** Names a counter, as cudamem_flag_set_name. */
cudamem_status cudamem_counter_set_name(cudamem_counter counter, const char *name);

/** Destroys a counter. Waits for it end as with cudamem_flag_destroy. The null handle is allowed. */
cudamem_status cudamem_counter_destroy(cudamem_counter counter);

/* ---- Rings ----------------------------------------------------------------------------------------------------------
 *
 * A ring passes items of one size between the CPU and a running kernel, in order, with one producer and one consumer.
 * The handle is the CPU's end. A kernel gets the other end through the ring's descriptor, and uses it with
 * cudamem/signal.cuh:
 *
 * __global__ void serve(cudamem::ring_descriptor requests) {
 * cudamem::ring_consumer<uint64_t> input(requests);
 * uint64_t item;
 * while (input.receive(item) == cudamem::outcome::done) { ... }
 * }
 *
 * Pushing and popping are CPU stores and loads, without driver calls. Concurrent calls with one end run one after the
 * other, and a waiting call blocks the others: give waits a time limit if another thread may have to close the ring.
 */

/** The CPU pushes, and a kernel pops. */
#define CUDAMEM_RING_TO_DEVICE 0
/** A kernel pushes, and the CPU pops. */
#define CUDAMEM_RING_FROM_DEVICE 1
/** How a ring is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_ring_options). */
    size_t size;
    /** One of CUDAMEM_RING_TO_DEVICE and CUDAMEM_RING_FROM_DEVICE. */
    int32_t direction;
    /**
     * Not 0: items and tail lie at consumer_place, and the head at producer_place. 0: the library places each where
     * its reader polls it fastest.
     */
    int32_t choose_places;
    /** One of CUDAMEM_PLACE_... . */
    int32_t consumer_place;
    /** One of CUDAMEM_PLACE_... . */
    int32_t producer_place;
} cudamem_ring_options;

/**
 * What a kernel takes by value to use the other end: cudamem::ring_descriptor in CUDA C++. The addresses are device
 * addresses, valid while the handle lives.
 */
typedef struct {
    /** Where the consumer polls: the tail. */
    uint64_t consumer_line;
    /** Where the producer polls: the head. */
    uint64_t producer_line;
    /** The items. */
    uint64_t items;
    /** The ring's capacity in items: a power of two. */
    uint32_t capacity;
    /** The size of an item in bytes. */
    uint32_t item_size;
} cudamem_ring_descriptor;

/**
 * Makes a ring for at least items items of item_size bytes each; items is at most 2^31. The capacity is the next power
 * of two. options may be NULL, for a ring to the device.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if item_size is 0, or if there are too many items.
 * CUDAMEM_ERROR_OUT_OF_MEMORY.
 */
cudamem_status cudamem_ring_create(cudamem_signals signals,
                                   size_t items,
                                   size_t item_size,
                                   const cudamem_ring_options *options,
                                   cudamem_ring *ring);

/**
 * Pushes as many of count items as there is room for, and publishes them at once. pushed becomes their number, 0 if
 * the ring is full.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is from the device. CUDAMEM_ERROR_DAMAGED if the other end's
 * index is impossible: the ring's memory was overwritten.
 */
cudamem_status cudamem_ring_push(cudamem_ring ring, const void *items, size_t count, size_t *pushed);

/**
 * Pushes at least one of count items, and waits for room if there is none. sent becomes their number; it is 0 only if
 * the other end is closed or count is 0. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if there was no room in time; nothing was pushed. Otherwise as cudamem_ring_push.
 */
cudamem_status cudamem_ring_send(cudamem_ring ring,
                                 const void *items,
                                 size_t count,
                                 const cudamem_wait_options *options,
                                 size_t *sent);

/**
 * Pops the available items, at most count, and frees their slots at once. popped becomes their number, 0 if the ring
 * is empty.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is to the device. CUDAMEM_ERROR_DAMAGED if the other end's index
 * is impossible: the ring's memory was overwritten.
 */
cudamem_status cudamem_ring_pop(cudamem_ring ring, void *items, size_t count, size_t *popped);

/**
 * Pops at least one item, at most count, and waits if there is none. received becomes their number; it is 0 only if
 * the other end is closed and the ring is empty, or if count is 0. options may be NULL.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if no item came in time. Otherwise as cudamem_ring_pop.
 */
cudamem_status cudamem_ring_receive(cudamem_ring ring,
                                    void *items,
                                    size_t count,
                                    const cudamem_wait_options *options,
                                    size_t *received);

/** Gets how many items the CPU can push, or pop, now. */
cudamem_status cudamem_ring_get_available(cudamem_ring ring, size_t *count);

/** Gets the ring's capacity in items. */
cudamem_status cudamem_ring_get_capacity(cudamem_ring ring, size_t *capacity);

/** Checks whether the other end is closed. Items that it pushed before may still be in the ring. */
cudamem_status cudamem_ring_is_closed(cudamem_ring ring, bool *closed);

/**
 * Closes the CPU's end. A consuming kernel still pops what was pushed, and then sees the end; a producing kernel sees
 * that nothing is popped any more.
 */
cudamem_status cudamem_ring_close(cudamem_ring ring);

/**
 * Gets the descriptor that a kernel needs to use the other end. One thread of one kernel at a time may use it; the
 * next kernel continues where the last one ended. Record the launch with cudamem_ring_record_use.
 */
cudamem_status cudamem_ring_get_descriptor(cudamem_ring ring, cudamem_ring_descriptor *descriptor);

/**
 * Records that work queued on stream so far uses this ring: kernels that were launched with its descriptor. Its memory
 * is not reused before that work is done.
 */
cudamem_status cudamem_ring_record_use(cudamem_ring ring, cudamem_stream stream);

/** Names a ring, as cudamem_flag_set_name. */
cudamem_status cudamem_ring_set_name(cudamem_ring ring, const char *name);

/** Closes the ring and destroys it. Its memory stays until the recorded work is done. The null handle is allowed. */
cudamem_status cudamem_ring_destroy(cudamem_ring ring);

/* ---- Frames ---------------------------------------------------------------------------------------------------------
 *
 * A ring of frames is for data that arrives continuously. The program takes a frame, queues the consumer's work on it,
 * fills it on the CPU while that work waits, and publishes it. Then the work runs. A buffer and a flag cannot do this:
 * a write to the buffer would wait for the queued work, which waits for the flag.
 *
 * cudamem_frame_ring_next(ring, NULL, &frame);
 * cudamem_buffer_copy_from_frame(device_buffer, 0, frame, 0, size);
 * cudamem_frame_get_host_pointer(frame, &bytes);
 * received = recv(socket, bytes, size, 0);
 * cudamem_frame_publish(frame, NULL);
 *
 * Publish frames in the order in which their work was queued on a stream: work on the first frame blocks the rest.
 */

/** Statistics of a ring of frames. */
typedef struct {
    /** sizeof(cudamem_frame_ring_statistics), set by the program. */
    size_t size;
    /** The number of frames taken. */
    uint64_t taken;
    /** The number of frames published. */
    uint64_t published;
    /** The number of frames destroyed without being published. */
    uint64_t abandoned;
    /** The number of frames that are open now. */
    uint64_t open;
    /** The number of frames that are out of use, because a graph may read them. */
    uint64_t lost;
    /** How often the program asked for a frame while device work still read the oldest one. */
    uint64_t overruns;
} cudamem_frame_ring_statistics;

/**
 * Makes a ring of frames of frame_size bytes each. The resource must be addressable by both CPU and device: pinned,
 * mapped or managed memory, or a pool of it. Initially all bytes are zero. When a frame is taken again, it holds the
 * bytes of its last use.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if frames or frame_size is 0, or if CPU or device cannot address the memory.
 * CUDAMEM_ERROR_UNSUPPORTED if streams of the device cannot wait for words. CUDAMEM_ERROR_OUT_OF_MEMORY.
 */
cudamem_status cudamem_frame_ring_create(cudamem_resource resource,
                                         cudamem_signals signals,
                                         size_t frames,
                                         size_t frame_size,
                                         cudamem_frame_ring *ring);

/**
 * Takes the oldest frame, and waits until all device work that reads it is done. options may be NULL: no time limit.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT, at once, if all frames are open: publish or destroy one.
 * CUDAMEM_ERROR_TIMED_OUT if device work still reads the frame. CUDAMEM_ERROR_DRIVER if that work failed.
 */
cudamem_status cudamem_frame_ring_next(cudamem_frame_ring ring,
                                       const cudamem_wait_options *options,
                                       cudamem_frame *frame);

/**
 * Takes the oldest frame if no device work reads it; otherwise frame becomes the null handle.
 *
 * Errors: as cudamem_frame_ring_next, without CUDAMEM_ERROR_TIMED_OUT.
 */
cudamem_status cudamem_frame_ring_try_next(cudamem_frame_ring ring, cudamem_frame *frame);

/** Gets the statistics of a ring of frames. Set statistics->size first. */
cudamem_status cudamem_frame_ring_get_statistics(cudamem_frame_ring ring, cudamem_frame_ring_statistics *statistics);

/**
 * Destroys a ring of frames, and abandons its open frames as cudamem_frame_destroy does: the program must not write
 * them any more. The memory is freed when the work that reads it is done, and this call may wait for that. The null
 * handle is allowed.
 */
cudamem_status cudamem_frame_ring_destroy(cudamem_frame_ring ring);

/** Gets the frame's number: 1 for the first frame taken from its ring. */
cudamem_status cudamem_frame_get_number(cudamem_frame frame, uint64_t *number);

/**
 * Gets the CPU's address of the frame. The program may write there until it publishes or destroys the frame, or
 * destroys the ring. The whole frame then counts as written: publishing flushes everything that was not flushed after
 * this call.
 */
cudamem_status cudamem_frame_get_host_pointer(cudamem_frame frame, void **pointer);

/** Copies size bytes to the frame, at offset. The CPU copies, in the way that suits the memory. */
cudamem_status cudamem_frame_write(cudamem_frame frame, size_t offset, const void *source, size_t size);

/** Flushes CPU writes to a range, so that publishing has less to flush. Other threads see the writes then, too. */
cudamem_status cudamem_frame_flush(cudamem_frame frame, size_t offset, size_t size);

/**
 * Makes later work of stream wait until the frame is published. Record kernels that read the frame afterwards with
 * cudamem_frame_record_use.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream belongs to another context, captures a graph, or is a
 * per-thread default stream. CUDAMEM_ERROR_CLOSED if the ring was destroyed.
 */
cudamem_status cudamem_frame_wait_on(cudamem_frame frame, cudamem_stream stream);

/**
 * Gets the frame's address for kernels (a CUdeviceptr). Kernels may only read there, and only after
 * cudamem_frame_wait_on on their stream.
 */
cudamem_status cudamem_frame_get_device_pointer(cudamem_frame frame, uint64_t *pointer);

/**
 * Records that work queued on stream so far reads the frame: kernels that were launched after cudamem_frame_wait_on.
 * The ring hands the frame out again only when that work is done.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream captures a graph, or is a per-thread default stream.
 */
cudamem_status cudamem_frame_record_use(cudamem_frame frame, cudamem_stream stream);

/**
 * Copies size bytes of an open frame, from frame_offset on, to the buffer, at offset, in order of the buffer's home
 * stream. The stream waits until the frame is published, and then copies. Later work on the stream waits too.
 *
 * Errors: as cudamem_frame_wait_on; CUDAMEM_ERROR_OUT_OF_RANGE.
 */
cudamem_status cudamem_buffer_copy_from_frame(cudamem_buffer buffer,
                                              size_t offset,
                                              cudamem_frame frame,
                                              size_t frame_offset,
                                              size_t size);

/**
 * Publishes the frame: flushes the remaining writes, and releases the work that waits for the frame. The handle ends.
 * number, which may be NULL, receives the frame's number.
 *
 * Errors: CUDAMEM_ERROR_VKGDR if the flush failed, CUDAMEM_ERROR_CLOSED if the ring was destroyed. The frame then
 * stays open.
 */
cudamem_status cudamem_frame_publish(cudamem_frame frame, uint64_t *number);

/**
 * Abandons a frame that was not published. Streams that wait for it go on. Each such stream's next wait fails with
 * CUDAMEM_ERROR_CLOSED, because its work has read unfinished bytes. The null handle is allowed.
 */
cudamem_status cudamem_frame_destroy(cudamem_frame frame);

/* ---- Graphs ---------------------------------------------------------------------------------------------------------
 *
 * A graph records the work of a stream once, and can be launched many times. Everything that the work uses must be
 * alive at each launch: memory, kernels, and the arguments of host functions.
 */

/** During the capture, no thread may make calls that a capture does not record, such as plain allocations. */
#define CUDAMEM_CAPTURE_GLOBAL 0
/** During the capture, the calling thread may not make such calls. */
#define CUDAMEM_CAPTURE_THREAD_LOCAL 1
/** All threads may make such calls. None of them becomes part of the recorded work. */
#define CUDAMEM_CAPTURE_RELAXED 2

/**
 * A flag of cudamem_graph_instantiate: a launch first frees the memory that the previous launch allocated and nothing
 * freed.
 */
#define CUDAMEM_GRAPH_AUTO_FREE 1

/**
 * Queues the work to record on stream, with functions of this library and of CUDA. user is the program's pointer.
 * CUDAMEM_SUCCESS makes the graph; any other status discards the recording. It must not unwind.
 */
typedef cudamem_status (*cudamem_record_callback)(cudamem_stream stream, void *user);

/**
 * Calls record, and makes a graph of the work that it queues on stream. That work does not run now. mode is one of
 * CUDAMEM_CAPTURE_... . Another stream joins the capture when it waits for this one (cudamem_stream_join); this stream
 * must join it again before record returns.
 *
 * Errors: the status of record. CUDAMEM_ERROR_DRIVER if the stream already captures or is the legacy default stream,
 * or if a forbidden call invalidated the capture.
 */
cudamem_status cudamem_graph_capture(cudamem_stream stream,
                                     int32_t mode,
                                     cudamem_record_callback record,
                                     void *user,
                                     cudamem_graph *graph);

/** Gets the number of nodes of a graph. */
cudamem_status cudamem_graph_get_node_count(cudamem_graph graph, size_t *count);

/** Gets the driver's handle, a CUgraph. It is valid while the handle lives. */
cudamem_status cudamem_graph_get_raw(cudamem_graph graph, void **raw);

/** Destroys a graph. Executable graphs made from it stay. The null handle is allowed. */
cudamem_status cudamem_graph_destroy(cudamem_graph graph);

/** Makes an executable graph from a graph. flags is 0 or CUDAMEM_GRAPH_AUTO_FREE. */
cudamem_status cudamem_graph_instantiate(cudamem_graph graph, uint32_t flags, cudamem_executable *executable);

/** Runs the recorded work after all work queued on stream so far, and after the previous launch. */
cudamem_status cudamem_executable_launch(cudamem_executable executable, cudamem_stream stream);

/** Destroys an executable graph. A running launch keeps what it needs. The null handle is allowed. */
cudamem_status cudamem_executable_destroy(cudamem_executable executable);

/**
 * Makes a resource whose memory a graph allocates at each launch. Allocate from it during a recording, on the
 * recording stream. If the buffer is destroyed during the recording, the graph frees it. Otherwise use and destroy it
 * only after a launch of its graph and before the next: until then its address may be another graph's.
 */
cudamem_status cudamem_resource_create_graph(cudamem_context context, cudamem_resource *resource);

/** Gets how many bytes the graphs of a device use, and how many are reserved for them. Either place may be NULL. */
cudamem_status cudamem_resource_get_graph_memory(cudamem_resource resource, uint64_t *used, uint64_t *reserved);

/** Returns memory that no graph uses to the system. */
cudamem_status cudamem_resource_trim_graph_memory(cudamem_resource resource);

/* ---- Sharing between processes --------------------------------------------------------------------------------------
 *
 * One process exports memory, a pool or an event, and another imports it. An export passes between them: bytes that
 * describe the object and, for some kinds, file descriptors. A channel carries both (cudamem_channel_send). For
 * another transport, take an export apart with cudamem_export_get_bytes and cudamem_export_get_files, and rebuild it
 * with cudamem_export_create.
 *
 * to share                     export                              import
 * a driver pool                cudamem_resource_export             cudamem_resource_import
 * memory of that pool          cudamem_buffer_export               cudamem_buffer_import
 * memory of cuMemAlloc         cudamem_buffer_export               cudamem_buffer_import
 * virtual memory               cudamem_buffer_export_virtual       cudamem_buffer_import
 * mapped memory                cudamem_mapped_export               cudamem_mapped_import
 * an event                     cudamem_event_export                cudamem_event_import
 *
 * An export gives access to the whole allocation of a buffer, even if the buffer is only a part. So a block of
 * cudamem_pool_create and similar pools, which is a part of a larger allocation, cannot be exported: allocate memory
 * to share from the pool's upstream. A driver pool is shared as a whole, with blocks that are freed and allocated
 * again.
 *
 * The exporting process keeps owning a pool's memory and memory of cuMemAlloc, and must keep it until the others have
 * released it: the driver does not check this. Virtual and mapped memory live until the last process has released
 * them. A process that ends, or is killed, releases what it imported. Its exports end with it, except for virtual and
 * mapped memory.
 *
 * An import trusts nothing. An export that is truncated, of a later version, changed, forged, of another kind or of
 * another device is CUDAMEM_ERROR_DESCRIPTOR. A process recognizes its own pools by their files, with kcmp; the
 * sandbox of a process that makes shareable pools and imports others must permit kcmp. A pool's export contains a key
 * that signs the descriptors of its memory. Whoever has the key may use all memory of the pool, so do not send it to
 * others.
 *
 * The library duplicates file descriptors that the program passes; they stay the program's. File descriptors that the
 * library returns belong to their object, are closed with it, and are not inherited across exec.
 *
 * A driver does not survive a fork: every call of the child that needs the driver is CUDAMEM_ERROR_FORKED. Start
 * processes with fork and immediate exec, or with posix_spawn.
 */

/** A driver pool. */
#define CUDAMEM_EXPORT_POOL 1
/** Memory of a driver pool. */
#define CUDAMEM_EXPORT_POOL_MEMORY 2
/** Memory of cuMemAlloc. */
#define CUDAMEM_EXPORT_DEVICE_MEMORY 3
/** Mapped memory. */
#define CUDAMEM_EXPORT_MAPPED 4
/** An event. */
#define CUDAMEM_EXPORT_EVENT 5
/** Virtual memory. */
#define CUDAMEM_EXPORT_VIRTUAL_MEMORY 6
/** What an export states about itself. */
typedef struct {
    /** sizeof(cudamem_export_info), set by the program. */
    size_t size;
    /** One of CUDAMEM_EXPORT_... . Later releases may add values. */
    uint32_t kind;
    /** The number of file descriptors that belong to the export. */
    uint32_t file_count;
    /** The size of the whole allocation in bytes; 0 if the export is not memory. */
    uint64_t allocation_size;
    /** The offset of the exported part in the allocation. */
    uint64_t offset;
    /** The size of the exported part. */
    uint64_t length;
    /** The process ID of the process that first exported the object. */
    uint32_t process;
    /** The host's NUMA node on which a pool or virtual memory lies; -1 for memory on a device. */
    int32_t numa_node;
    /** The UUID of the device. */
    uint8_t device[16];
    /** The pool's name, the same in all processes; zeros if the export is not of a pool. */
    uint8_t pool[16];
} cudamem_export_info;

/**
 * Exports a buffer's memory, or the part of it that the buffer is. The memory must come from a pool made with
 * CUDAMEM_DRIVER_POOL_SHAREABLE or from cudamem_resource_create_device, or must be imported memory, which is passed
 * on. Waits for the work on the buffer so far.
 *
 * Errors: CUDAMEM_ERROR_UNSUPPORTED or CUDAMEM_ERROR_INVALID_ARGUMENT if the resource cannot share memory, like a pool
 * that divides the allocations of another resource.
 */
cudamem_status cudamem_buffer_export(cudamem_buffer buffer, cudamem_export *exported);

/**
 * Exports a buffer of virtual memory, or the part of it that the buffer is. resource must be made by
 * cudamem_resource_create_virtual with CUDAMEM_PHYSICAL_SHAREABLE. Waits for the work on the buffer so far. Each
 * process keeps the memory independently. A process that gets the export may use the whole chunks of physical memory,
 * even beside a part.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the buffer is of another resource, was not made shareable, or lies in more
 * than 64 chunks. CUDAMEM_ERROR_UNSUPPORTED if it is a block of a pool.
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
 * Exports a driver pool that was made with CUDAMEM_DRIVER_POOL_SHAREABLE, or imported. Send the export once to each
 * process, and then the pool's memory by cudamem_buffer_export. A process that gets the export may use all memory of
 * the pool.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the resource is something else.
 */
cudamem_status cudamem_resource_export(cudamem_resource resource, cudamem_export *exported);

/**
 * Exports an event that was made with CUDAMEM_EVENT_SHAREABLE: one process records it, and others wait for it. The
 * event must live until the others have imported it. Each importer then keeps it independently.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if the event was made without that flag, or was imported.
 */
cudamem_status cudamem_event_export(cudamem_event event, cudamem_export *exported);

/**
 * Imports a pool. The program imports the pool's memory with cudamem_buffer_import, and cannot allocate from the pool.
 * If this process made or imported the pool before, it gets the same pool again. The import does not carry other
 * devices' access: call cudamem_resource_allow_access.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above. CUDAMEM_ERROR_DRIVER if the file is something else.
 */
cudamem_status cudamem_resource_import(cudamem_context context, cudamem_export exported, cudamem_resource *resource);

/**
 * Imports memory as a buffer with the home stream stream. resource is the memory's pool, imported or this process's
 * own; for memory of cuMemAlloc, a resource of cudamem_resource_create_device; for virtual memory, a resource of
 * cudamem_resource_create_virtual for the same location. In the exporting process, the import is the exported memory
 * itself. Memory imported twice is one memory: it is released when its last buffer is destroyed and the work of all is
 * done. The other process may write it at any time: order the work with events, or wait and send a message.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if the memory belongs to another pool. CUDAMEM_ERROR_DRIVER if it no
 * longer exists.
 */
cudamem_status cudamem_buffer_import(cudamem_resource resource,
                                     cudamem_export exported,
                                     cudamem_stream stream,
                                     cudamem_buffer *buffer);

/**
 * Imports mapped memory for the CPU and the device, with a resource that cudamem_resource_create_mapped made.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above. CUDAMEM_ERROR_INVALID_ARGUMENT if the memory lies on another device.
 * CUDAMEM_ERROR_VKGDR if the file is something else.
 */
cudamem_status cudamem_mapped_import(cudamem_resource resource, cudamem_export exported, cudamem_mapped *mapped);

/**
 * Imports an event of another process.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR as above, and if this process made the event. CUDAMEM_ERROR_DRIVER if the event no
 * longer exists.
 */
cudamem_status cudamem_event_import(cudamem_context context, cudamem_export exported, cudamem_event *event);

/** Gets what an export states about itself; only an import verifies it. Set info->size first. */
cudamem_status cudamem_export_get_info(cudamem_export exported, cudamem_export_info *info);

/** Gets an export's bytes, to send over the program's own transport. They are valid until the export is destroyed. */
cudamem_status cudamem_export_get_bytes(cudamem_export exported, const void **bytes, size_t *size);

/**
 * Gets the file descriptors that go with an export's bytes, and their number. They are valid until the export is
 * destroyed. Pass them to another process with SCM_RIGHTS, or let a child inherit duplicates (dup2).
 */
cudamem_status cudamem_export_get_files(cudamem_export exported, const int32_t **files, size_t *count);

/**
 * Makes an export from what came over the program's own transport: its bytes, and count file descriptors, which the
 * library duplicates.
 *
 * Errors: CUDAMEM_ERROR_DESCRIPTOR if the bytes are not an export. CUDAMEM_ERROR_CHANNEL if the files are not those of
 * the export. CUDAMEM_ERROR_SYSTEM if a file descriptor is not open.
 */
cudamem_status cudamem_export_create(const void *bytes,
                                     size_t size,
                                     const int32_t *files,
                                     size_t count,
                                     cudamem_export *exported);

/** Destroys an export and closes its file descriptors. The exported object lives on. The null handle is allowed. */
cudamem_status cudamem_export_destroy(cudamem_export exported);

/* ---- Channels -------------------------------------------------------------------------------------------------------
 *
 * A channel is a Unix stream socket that carries exports with their file descriptors, and short messages of the
 * program's own, in order. If the other process dies, everything that it sent still arrives, and then calls fail with
 * CUDAMEM_ERROR_CLOSED.
 *
 * One thread may send while another receives. Concurrent sends run one after the other, and so do concurrent receives;
 * a call's time limit starts when it begins to send or receive.
 */

/** The largest size of a message in bytes. */
#define CUDAMEM_MESSAGE_SIZE 65536

/**
 * Makes a connected pair of channels: for two threads, or for a child process, which inherits the socket of one
 * (cudamem_channel_get_socket).
 */
cudamem_status cudamem_channel_create_pair(cudamem_channel *one, cudamem_channel *other);

/**
 * Makes a channel from the program's connected Unix stream socket. The library duplicates the socket, so the program
 * may close its own. The socket becomes blocking.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if the file descriptor is closed, is not a socket, or is not connected.
 * CUDAMEM_ERROR_INVALID_ARGUMENT if it is another kind of socket.
 */
cudamem_status cudamem_channel_open_socket(int32_t socket, cudamem_channel *channel);

/**
 * Connects to the listener at a path.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if nothing listens there, or if the file's permissions forbid the connection.
 */
cudamem_status cudamem_channel_connect(const char *path, cudamem_channel *channel);

/**
 * Sets the time limit in seconds for each later send or receive as a whole. INFINITY (from math.h), the initial value,
 * means no limit.
 */
cudamem_status cudamem_channel_set_timeout(cudamem_channel channel, double seconds);

/**
 * Gets the socket, valid until the channel is destroyed: to wait for a message together with other files (poll), or
 * for a child to inherit (dup2). Do not read or write it. A message for which cudamem_channel_receive_bytes had no
 * room is no longer in the socket.
 */
cudamem_status cudamem_channel_get_socket(cudamem_channel channel, int32_t *socket);

/**
 * Sends an export, which stays the program's. cudamem_channel_receive receives it.
 *
 * Errors: CUDAMEM_ERROR_CLOSED if the other process is gone. CUDAMEM_ERROR_TIMED_OUT if it does not receive in time.
 * CUDAMEM_ERROR_CHANNEL if an earlier call failed in the middle of a message.
 */
cudamem_status cudamem_channel_send(cudamem_channel channel, cudamem_export exported);

/**
 * Receives an export. cudamem_export_get_info returns its kind, which decides the function that imports it.
 *
 * Errors: as cudamem_channel_send. CUDAMEM_ERROR_DESCRIPTOR if the message is not an export. CUDAMEM_ERROR_CHANNEL if
 * it comes with the wrong files, or is longer than messages may be.
 */
cudamem_status cudamem_channel_receive(cudamem_channel channel, cudamem_export *exported);

/**
 * Sends a message of size bytes, at most CUDAMEM_MESSAGE_SIZE. cudamem_channel_receive_bytes receives it.
 *
 * Errors: as cudamem_channel_send. CUDAMEM_ERROR_CHANNEL if the message is longer.
 */
cudamem_status cudamem_channel_send_bytes(cudamem_channel channel, const void *source, size_t size);

/**
 * Receives a message into a buffer of capacity bytes, and stores its size. If the message is longer, the call fails
 * with its length in the error text, and the next call gets the message. CUDAMEM_MESSAGE_SIZE bytes hold every
 * message.
 *
 * Errors: as cudamem_channel_receive. CUDAMEM_ERROR_OUT_OF_RANGE if the message is longer than capacity.
 */
cudamem_status cudamem_channel_receive_bytes(cudamem_channel channel, void *destination, size_t capacity, size_t *size);

/**
 * Shuts the connection down, for both ends and for all duplicates of their sockets. Waiting and later calls receive
 * what was sent before, and then fail with CUDAMEM_ERROR_CLOSED. Destroying a channel does not do this, because other
 * processes may have the socket too.
 */
cudamem_status cudamem_channel_shut_down(cudamem_channel channel);

/**
 * Destroys a channel and closes its socket. Calls of other threads that wait on the channel go on waiting. The null
 * handle is allowed.
 */
cudamem_status cudamem_channel_destroy(cudamem_channel channel);

/**
 * Listens for connections at a path where no file exists yet. The permissions of the file and of its folder decide who
 * may connect. The process that made the listener removes the file when it destroys the listener, if the file is still
 * the same.
 *
 * Errors: CUDAMEM_ERROR_SYSTEM if a file exists already, or if the folder's permissions forbid it.
 */
cudamem_status cudamem_listener_create(const char *path, cudamem_listener *listener);

/**
 * Waits for a connection, for at most seconds; INFINITY means no limit. Concurrent calls wait one after the other,
 * each for its own time.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if nothing connects in time.
 */
cudamem_status cudamem_listener_accept(cudamem_listener listener, double seconds, cudamem_channel *channel);

/** Destroys a listener and removes its file. Channels that it accepted stay open. The null handle is allowed. */
cudamem_status cudamem_listener_destroy(cudamem_listener listener);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_H */
