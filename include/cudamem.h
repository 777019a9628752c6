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
 *
 * Further headers, each of which includes this one:
 *
 *     cudamem/adaptors.h      resources on top of others that count, limit, log and check, and rings of staging
 *     cudamem/engine.h        copies between host and device in the fastest way
 *     cudamem/memory.h        virtual memory, buffers that grow, registered and managed memory
 *     cudamem/views.h         arrays of any layout in memory, and copies between them
 *     cudamem/interchange.h   exchange of arrays with other libraries: DLPack, array interfaces and Arrow
 *     cudamem/signals.h       flags, counters, rings and frames between the CPU, streams and kernels
 *     cudamem/graphs.h        recorded work of a stream
 *     cudamem/sharing.h       memory, pools and events shared between processes
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
 * One device does not access another device's memory directly, and the call would need it: there is no path, or the
 * access does not work, or the program asked to do without the host.
 */
#define CUDAMEM_ERROR_NO_ACCESS 19
/** The call needs memory of a pool that sleeps. Wake the pool first (cudamem_pool_wake). */
#define CUDAMEM_ERROR_ASLEEP 20
/** The program's callback for progress canceled the call. Nothing is left of it. */
#define CUDAMEM_ERROR_CANCELED 21

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
 * environment variables CUDA_MEM_LIBCUDA and CUDA_MEM_LIBVKGDR name libraries to use instead of the system's. softgpu
 * serves a program only if its code or its environment (CUDA_MEM_LIBCUDA) names it; otherwise a missing driver is an
 * error with advice.
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
    /** What the device supports: support[CUDAMEM_FEATURE_...] is one of CUDAMEM_SUPPORT_... . */
    uint8_t support[16];
    /** The host's NUMA node that is nearest to the device; -1 if the driver names none. */
    int64_t numa_node;
} cudamem_device_info;

/** What one device can do with another device's memory. */
typedef struct {
    /** sizeof(cudamem_peer_link), set by the program. */
    size_t size;
    /** Whether the device can read and write the memory directly: 1 or 0. */
    uint32_t access;
    /** Whether all its atomic operations work on that memory: 1 or 0. */
    uint32_t native_atomics;
    /** The rank that the driver gives the link, relative to others; -1 if it gives none. */
    int64_t performance_rank;
} cudamem_peer_link;

/** Gets the number of devices. */
cudamem_status cudamem_device_get_count(int32_t *count);

/** Describes a device. Set info->size first. */
cudamem_status cudamem_device_get_info(int32_t ordinal, cudamem_device_info *info);

/**
 * Describes what device ordinal can do with the memory of device other. Set link->size first.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if both are the same device.
 */
cudamem_status cudamem_device_get_link(int32_t ordinal, int32_t other, cudamem_peer_link *link);

/**
 * Measures the rate of copies from device from to device to; -1 is page-locked memory of the host. The first call in a
 * process measures all links, by copies of 64 MiB, which takes some milliseconds for each; later calls return the same
 * numbers. It opens the primary contexts of all devices.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if there is no such link.
 */
cudamem_status cudamem_device_get_rate(int32_t from, int32_t to, uint64_t *bytes_per_second);

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

/** What a context is, and the memory of its device. */
typedef struct {
    /** sizeof(cudamem_context_info), set by the program. */
    size_t size;
    /** The free memory of the device in bytes. */
    uint64_t free_memory;
    /** The size of the device's memory in bytes, as the driver offers it to programs. */
    uint64_t total_memory;
    /** The ordinal of the device. */
    int32_t device;
    /** 0. */
    uint32_t reserved;
} cudamem_context_info;

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

/** Describes a context. Set info->size first. */
cudamem_status cudamem_context_get_info(cudamem_context context, cudamem_context_info *info);

/**
 * Waits until all work of the context is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_context_synchronize(cudamem_context context);

/**
 * Lets the device of peer access the plain memory of context, present and future (cuCtxEnablePeerAccess), or takes that
 * away if allowed is false, after the work of peer so far. Copies between devices give access at their first need; kernels
 * that address another device's memory need this call or cudamem_resource_set_access.
 *
 * Errors: CUDAMEM_ERROR_NO_ACCESS if no path connects the devices, if the device already accesses as many as it can, or if
 * the access does not work. CUDAMEM_ERROR_DRIVER if a context has ended.
 */
cudamem_status cudamem_context_set_access(cudamem_context context,
                                          cudamem_context peer,
                                          bool allowed);

/**
 * Loads the library's kernels now, before their first use: comparisons, strided copies, waits for rings. The driver waits
 * for all work of the context while it loads a kernel, so a first copy between views takes milliseconds or longer where
 * the next takes microseconds. The first cudamem_signals_create of a context loads them too.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if queued work waits for the CPU for more than 10 seconds.
 */
cudamem_status cudamem_context_load_kernels(cudamem_context context);

/**
 * Sets how many streams the context keeps ready, 32 by default, and makes them now. cudamem_stream_create takes them
 * while queued work waits for the CPU: a host function that has not returned, or a wait for a flag, counter, ring or
 * frame. A creation by the driver may then wait for that work, and hold up other threads. 0 switches the reserve off.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if queued work waits for the CPU for more than 10 seconds.
 */
cudamem_status cudamem_context_reserve_streams(cudamem_context context, size_t count);

/**
 * Sets how many bytes of destroyed memory may wait to be freed, 1 GiB by default. Some memory can be freed only while no
 * queued work of the context waits for the CPU: mapped, managed, write-combined and registered memory, and memory of
 * other processes. Beyond the limit, an allocation of such memory waits up to 10 seconds, then fails with
 * CUDAMEM_ERROR_OUT_OF_MEMORY and a message that names the streams.
 */
cudamem_status cudamem_context_set_postponed_limit(cudamem_context context,
                                                   size_t bytes);

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
 * stream. The stream must live while the handle lives, and while memory and rings of staging use it. A pool uses it only
 * while the handle lives. The library does not destroy it. If the program captures the stream, its graph records the calls
 * of this library on it: what they use must live at each launch. No other thread may begin or end a capture of the stream
 * during such a call. The per-thread default stream (cudaStreamPerThread) is refused, because it names another stream on
 * each thread.
 */
cudamem_status cudamem_stream_borrow(cudamem_context context,
                                     void *raw,
                                     cudamem_stream *stream);

/**
 * Waits until all work queued on the stream so far is done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_stream_synchronize(cudamem_stream stream);

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

/** Records the event at the stream's current end. The stream must belong to the event's context. */
cudamem_status cudamem_event_record(cudamem_event event, cudamem_stream stream);

/**
 * Waits for the work before the event. An event that was never recorded counts as done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_event_synchronize(cudamem_event event);

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
 * standard error stream: what waits, on which thread, for what, for how long, and which flags, counters, rings and
 * frames a stream waits for. The wait continues. To give up after a time, call cudamem_synchronize_for.
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

/**
 * A flag of cudamem_driver_pool_options: no new pool, but the one that the context's device currently allocates from
 * (cuDeviceGetMemPool), which the whole process shares. All other options must be 0.
 */
#define CUDAMEM_DRIVER_POOL_CURRENT 4
/** Kernels may address the memory. */
#define CUDAMEM_ACCESS_DEVICE 1
/** The CPU may address the memory. */
#define CUDAMEM_ACCESS_HOST 2
/** The driver moves the memory between the two. */
#define CUDAMEM_ACCESS_MANAGED 4

/**
 * The library calls this function while it allocates, on the allocating thread, with the bytes that are done and the bytes
 * of the allocation. user is the program's pointer. A result other than 0 cancels the allocation
 * (CUDAMEM_ERROR_CANCELED), of which nothing is left. The function must not unwind.
 */
typedef int32_t (*cudamem_progress_callback)(size_t done, size_t total, void *user);

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

/** What a resource is. The figures of adaptors are 0 for all other resources. */
typedef struct {
    /** sizeof(cudamem_resource_info), set by the program. */
    size_t size;
    /** Who may address the memory: CUDAMEM_ACCESS_... combined by |. */
    uint32_t access;
    /** 0. */
    uint32_t reserved;
    /** Of virtual memory: the unit of its allocations in bytes. */
    size_t granularity;
    /** Of CUDAMEM_ADAPTOR_LIMIT: the limit in bytes. */
    size_t limit;
    /** Of CUDAMEM_ADAPTOR_LIMIT: the live bytes. */
    size_t used;
    /** Of cudamem_resource_create_fallback: the number of live blocks from the second resource. */
    size_t fallback_blocks;
    /** Of cudamem_resource_create_failing: how many allocations were requested since the rules were set. */
    uint64_t allocations;
    /** Of cudamem_resource_create_failing: how many of these the rules failed. */
    uint64_t injected;
} cudamem_resource_info;

/**
 * Makes a resource of device memory from cuMemAlloc: for large blocks that live long. A free waits for nothing, if the
 * device has memory pools (CUDA 11.2).
 */
cudamem_status cudamem_resource_create_device(cudamem_context context, cudamem_resource *resource);

/**
 * Makes a resource of page-locked host memory. flags is 0 or CUDAMEM_PINNED_WRITE_COMBINED. With 0, blocks below 256 MiB
 * come from a pool of the driver, and their free waits for nothing. Larger ones are huge pages that several threads make
 * and the driver locks, in a fifth of the time that cuMemHostAlloc takes; their free waits for the device. With the flag,
 * or on drivers before CUDA 12.6, memory comes from cuMemHostAlloc: allocating is slow, and freeing waits for the device.
 */
cudamem_status cudamem_resource_create_pinned(cudamem_context context,
                                              uint32_t flags,
                                              cudamem_resource *resource);

/**
 * As cudamem_resource_create_pinned, and calls progress during each allocation from 256 MiB on, several times for each
 * GiB. The first half of the bytes is done when the pages exist, the second when they are locked. progress and user must
 * stay valid until the resource and its last buffer have ended.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if progress is NULL.
 */
cudamem_status cudamem_resource_create_pinned_with_progress(cudamem_context context,
                                                            uint32_t flags,
                                                            cudamem_progress_callback progress,
                                                            void *user,
                                                            cudamem_resource *resource);

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

/** Describes a resource. Set info->size first. */
cudamem_status cudamem_resource_get_info(cudamem_resource resource, cudamem_resource_info *info);

/**
 * Lets another device's kernels and copies access all memory of a source, present and future, or takes that away if
 * allowed is false: device memory, driver pools, virtual memory, and pools and adaptors over these. For device memory it
 * concerns all plain memory of the context and the device's primary context; see cudamem_context_set_access for others.
 * Copies between devices give access at their first need. The first call for a source and a device verifies the access by
 * a small copy. The call that takes access away waits for the work of the device's primary context; work in other
 * contexts must have ended.
 *
 * Errors: CUDAMEM_ERROR_NO_ACCESS if no path connects the devices, or the access does not work.
 * CUDAMEM_ERROR_INVALID_ARGUMENT if the device's own access to its memory would be taken away. CUDAMEM_ERROR_UNSUPPORTED
 * if the source has other memory.
 */
cudamem_status cudamem_resource_set_access(cudamem_resource resource,
                                           int32_t ordinal,
                                           bool allowed);

/** Makes another handle of the same resource. Each handle has its own memory of cudamem_resource_malloc. */
cudamem_status cudamem_resource_share(cudamem_resource resource, cudamem_resource *other);

/**
 * Destroys the handle. The resource itself ends when no memory of it is left. Memory of cudamem_resource_malloc that was
 * not freed before stays until the process ends. The null handle is allowed.
 */
cudamem_status cudamem_resource_destroy(cudamem_resource resource);

/* ---- Pools ----------------------------------------------------------------------------------------------------------
 *
 * A pool allocates large regions from another resource, its upstream, and divides them. Allocations and frees are in
 * stream order, and most make no driver call. A pool is a resource; the functions here refuse other resources with
 * CUDAMEM_ERROR_INVALID_ARGUMENT. Functions for what pools keep also take driver pools, the pools of
 * cudamem/adaptors.h, and the memory of graphs.
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
#define CUDAMEM_POOL_NO_CACHES 1
/** A flag of cudamem_pool_options: the pool records its live blocks, and refuses to free a block twice. */
#define CUDAMEM_POOL_TRACKED 2

/**
 * A flag of cudamem_pool_options: the pool allocates regions from its source, and does not grow in place. For
 * libraries that must find a block in memory of cuMemAlloc.
 */
#define CUDAMEM_POOL_REGIONS 4

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
    /**
     * The size of the first region, which the pool allocates when it is made. 2 MiB by default, or the maximum if that is
     * less; other sizes beyond the maximum are refused.
     */
    uint64_t initial;
    /**
     * The smallest region that the pool grows by. 2 MiB by default. A pool that grows in place adds at least so much new
     * memory. Pools over device memory and over virtual memory grow in place: they waste little memory, whatever the
     * sizes of their blocks. Over device memory this needs a device with virtual memory, and a maximum of at least 64
     * MiB.
     */
    uint64_t smallest_growth;
    /** The largest region that the pool grows by, unless a block needs a larger one. 256 MiB by default. */
    uint64_t largest_growth;
    /**
     * The largest total size of all regions. No limit by default. A pool that grows in place takes whole chunks (2 MiB
     * on an H100), never more than this. A maximum below one chunk, or below 256 bytes, is refused.
     */
    uint64_t maximum;
    /** How much freed memory each thread may cache until memory runs short. 64 MiB by default. */
    uint64_t cache_capacity;
    /** How many of the newest events a snapshot shows. None by default. */
    uint64_t trace_capacity;
    /** Each time the pool grows by a region, its size grows by this factor. 2 by default. */
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

/**
 * One figure over the life of a pool, without a peak. A statistics adaptor over the pool knows the peak
 * (CUDAMEM_ADAPTOR_STATISTICS).
 */
typedef struct {
    /** The current value. */
    uint64_t current;
    /** The sum of all additions. */
    uint64_t total;
    /** The sum of all removals. */
    uint64_t freed;
} cudamem_flow;

/**
 * Makes a pool over a resource, and allocates the first region. options may be NULL. The upstream's handle may be
 * destroyed before the pool's.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if the resource has no room for the first region.
 */
cudamem_status cudamem_pool_create(cudamem_resource upstream,
                                   const cudamem_pool_options *options,
                                   cudamem_resource *pool);

/**
 * Gets every region with its blocks as JSON. `cuda-mem pool-map` draws it. Calls of other threads to the pool wait
 * meanwhile.
 */
cudamem_status cudamem_pool_get_snapshot(cudamem_resource pool, cudamem_text *json);

/**
 * Waits for the work of a stream, and takes back what its frees left in the pool's caches. A stream of your own
 * (cudamem_stream_borrow) needs no such call before you destroy it: the end of its last handle marks the end of its
 * work.
 */
cudamem_status cudamem_pool_release_stream(cudamem_resource pool, cudamem_stream stream);

/**
 * Names the block at a device address. Snapshots show the name until the block is freed.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no block of the pool begins there.
 */
cudamem_status cudamem_pool_set_name(cudamem_resource pool, uint64_t device_pointer, const char *name);

/* ---- What pools keep ------------------------------------------------------------------------------------------------
 *
 * Functions for all resources that keep memory: pools of this library, driver pools, rings of staging, and
 * the memory of graphs. CUDAMEM_ERROR_INVALID_ARGUMENT means that a function does not suit the resource.
 */

/** Statistics of a pool: in bytes, unless a field says count. A figure that a kind of pool does not have is 0. */
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
    /** Memory that the pool has allocated from its upstream, or a driver pool from the system. The size of a ring. */
    cudamem_figure reserved;
    /** Regions: a count. */
    cudamem_figure regions;
    /** Memory in the caches of threads. */
    uint64_t in_caches;
    /** Freed memory whose work is not done. The call checks the work first. */
    uint64_t pending;
    /** The largest free range. The caches of threads count as free. Of a ring: all free memory. */
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
    /** How often the pool was out of memory, or a ring refused an allocation: a count. */
    uint64_t out_of_memory;
    /** How much unused memory a driver pool keeps when the program waits for a stream. */
    uint64_t release_threshold;
} cudamem_pool_statistics;

/**
 * Gets the statistics of a pool, a driver pool, a ring of staging, or the memory of graphs. Set statistics->size
 * first.
 */
cudamem_status cudamem_pool_get_statistics(cudamem_resource pool, cudamem_pool_statistics *statistics);

/**
 * Resets all peaks to the current values: those of a pool, a driver pool and the memory of graphs, and those of
 * cudamem_resource_get_counts.
 */
cudamem_status cudamem_pool_reset_peaks(cudamem_resource pool);

/**
 * Grows a pool until it has size bytes from its upstream, free and used together.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the maximum forbids it. CUDAMEM_ERROR_OUT_OF_MEMORY if the upstream has no
 * room.
 */
cudamem_status cudamem_pool_reserve(cudamem_resource pool, size_t size);

/**
 * Returns memory without blocks, whose work is done, to the upstream or to the system, but keeps at least keep bytes.
 * Does not wait. Takes pools, driver pools, and the memory of graphs, of which keep must be 0.
 */
cudamem_status cudamem_pool_trim(cudamem_resource pool, size_t keep);

/**
 * Waits for the work that freed memory waits for. A pool then returns all memory without blocks to the upstream. In a
 * ring of staging, freed blocks take no room afterwards. A guarded resource checks the blocks in quarantine and frees
 * them; findings go to the callback of cudamem_set_drop_error_callback.
 */
cudamem_status cudamem_pool_release_unused(cudamem_resource pool);

/* ---- Pools that sleep -----------------------------------------------------------------------------------------------
 *
 * A pool of cudamem_pool_create that grows in place, over memory of a device, gives its memory back to the device and
 * keeps its addresses. When it wakes, it has memory at the same addresses again, with the old contents if they were
 * saved. So buffers, pointers and recorded graphs stay valid, and other programs use the memory meanwhile.
 *
 * While a pool sleeps, allocations from it and work on its buffers are refused with CUDAMEM_ERROR_ASLEEP. A kernel that
 * uses its memory fails with an illegal address, which ends the context: launch none. Buffers may be destroyed.
 */

/** The contents are copied to host memory, and back when the pool wakes. The default. */
#define CUDAMEM_CONTENTS_SAVE 0
/** The contents are lost. When the pool wakes, its blocks have any contents, as new memory of the driver. */
#define CUDAMEM_CONTENTS_DISCARD 1
/** How a pool sleeps. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_sleep_options). */
    size_t size;
    /** One of CUDAMEM_CONTENTS_... . */
    int32_t contents;
    /** Must be 0. */
    uint32_t reserved;
    /**
     * Where the contents are saved: page-locked memory, or a pool over it. The null handle lets the call allocate such
     * memory, which takes longer than the copies: 60 ms for a GiB. So a program whose pools sleep often passes a
     * pool of page-locked memory that has room already.
     */
    cudamem_resource host;
    /**
     * How many seconds the call waits for a moment in which no queued work waits for the CPU. 0 for the default, 10
     * seconds; INFINITY (from math.h) means no limit.
     */
    double patience;
} cudamem_sleep_options;

/** What a pool did when it fell asleep. Sizes are in bytes. */
typedef struct {
    /** sizeof(cudamem_slept), set by the program. */
    size_t size;
    /** How much lies in host memory. */
    uint64_t saved;
    /** How much the device got back. */
    uint64_t released;
} cudamem_slept;

/**
 * Puts a pool to sleep. options may be NULL. slept may be NULL; otherwise set slept->size first. Waits for the work of
 * the pool's context, and of the primary contexts of devices that have access to the memory or copy from it. The pool's options stay as they are. While it sleeps, its figure of reserved memory is 0.
 *
 * Errors leave the pool awake. CUDAMEM_ERROR_UNSUPPORTED if the pool does not grow in place, or lies in host memory.
 * CUDAMEM_ERROR_INVALID_ARGUMENT if it is asleep, if another thread puts it to sleep or wakes it, if a stream captures a
 * graph, or if the host memory is not page-locked. CUDAMEM_ERROR_TIMED_OUT if queued work goes on waiting for the CPU.
 * CUDAMEM_ERROR_OUT_OF_MEMORY if the host has no room for the contents.
 */
cudamem_status cudamem_pool_sleep(cudamem_resource pool,
                                  const cudamem_sleep_options *options,
                                  cudamem_slept *slept);

/**
 * Gives a pool that sleeps memory at its addresses again, and restores its contents.
 *
 * Errors leave the pool asleep; it may be woken later. CUDAMEM_ERROR_OUT_OF_MEMORY if the device has no room for it.
 * CUDAMEM_ERROR_INVALID_ARGUMENT if it is awake, or if another thread puts it to sleep or wakes it.
 */
cudamem_status cudamem_pool_wake(cudamem_resource pool);

/** Whether a pool sleeps. */
cudamem_status cudamem_pool_is_asleep(cudamem_resource pool, bool *asleep);

/* ---- Memory by address ----------------------------------------------------------------------------------------------
 *
 * Device memory that the program frees by its address, as with malloc and free: for allocators that other libraries
 * call. There is one pool for each device, which the library makes when it is first needed, over the primary context.
 *
 * A stream is a CUstream, which is the same as a cudaStream_t. NULL is the legacy default stream. A call uses the stream
 * only until it returns. So the program may destroy it after any call, and needs no handle for it. During a call no
 * other thread may begin or end a capture of the stream.
 *
 * The process never ends these pools, so that destructors may still free memory.
 *
 * cudamem_resource_malloc and cudamem_resource_free do the same with memory of one resource, of any kind.
 */

/**
 * Sets how the pools of cudamem_malloc are made, each with these options. options may be NULL. Call it before the first
 * function of this group.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the pools have been made.
 */
cudamem_status cudamem_malloc_set_options(const cudamem_pool_options *options);

/**
 * Allocates bytes on a device, for work of a stream. The address is a multiple of 256. 0 bytes have an address too. If
 * another library captures the stream, the memory belongs to the graph; it returns to the pool when it has been freed
 * and the graph has ended.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY. CUDAMEM_ERROR_INVALID_ARGUMENT if there is no such device, or if the stream is
 * not of the device's primary context.
 */
cudamem_status cudamem_malloc(size_t size, int32_t device, void *stream, uint64_t *address);

/**
 * Frees memory of cudamem_malloc that only work queued on the stream so far still uses. size and device are those of
 * the allocation. The stream may be another one: the next user then gets the memory after the work of this stream.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no live block of this size begins at the address, or the stream is not of
 * the device's primary context. Nothing is freed then. A second free is an error, unless the address was handed out
 * again meanwhile.
 */
cudamem_status cudamem_free(uint64_t address, size_t size, int32_t device, void *stream);

/**
 * Notes that work of a further stream uses memory of cudamem_malloc, until its free. The next user then gets the memory
 * after all work that was queued on that stream before the free. Nothing waits for it now, and the stream may end at any
 * time. NULL is the legacy default stream of the memory's device. If another library captures the stream, the memory also
 * stays until no work of the graph can run any more.
 *
 * After the free, the memory is given out when the program has named the stream in another call of this group, such as
 * this one for later memory, or when the pool has waited for the context because memory ran short.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no live block begins at the address; nothing is noted then. The same if the
 * stream is of a context without a pool, and CUDAMEM_ERROR_DRIVER if the driver refuses: nobody can tell when that work
 * ends, so the memory is never given out again after its free.
 */
cudamem_status cudamem_malloc_record_use(uint64_t address,
                                         void *stream);

/** Gets a handle of a device's pool, for its statistics and snapshots. Destroy the handle after use; the pool stays. */
cudamem_status cudamem_malloc_get_pool(int32_t device, cudamem_resource *pool);

/**
 * Allocates bytes of a resource at a multiple of alignment, a power of two, for work of a stream of the resource's
 * context. 0 bytes have an address too. The address is one for all users that access names: CUDAMEM_ACCESS_DEVICE,
 * CUDAMEM_ACCESS_HOST, or both combined by |. The CPU may use the memory when the stream's work is done. A resource that
 * does not align so far by itself gives a block that is larger by the alignment.
 *
 * Of a pool (cudamem_pool_create) a pair takes no lock that all threads share. If another library captures the stream,
 * a pool gives memory that belongs to the graph; other resources may refuse.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY. CUDAMEM_ERROR_INVALID_ARGUMENT if the memory has no such users, if they have no
 * common address for it, or if the stream is of another context.
 */
cudamem_status cudamem_resource_malloc(cudamem_resource resource,
                                       size_t size,
                                       size_t alignment,
                                       uint32_t access,
                                       void *stream,
                                       uint64_t *address);

/**
 * Frees memory of cudamem_resource_malloc that only work queued on the stream so far still uses. resource is the handle
 * and size the size of the allocation. The stream may be another one, whose work so far comes after the allocation, as all
 * uses of the memory do; the next user then gets the memory after the work of this stream.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no live block of this size begins at the address, or the stream is of
 * another context. CUDAMEM_ERROR_DRIVER if the driver refuses. Nothing is freed then. A second free is an error, unless
 * the address was handed out again meanwhile.
 */
cudamem_status cudamem_resource_free(cudamem_resource resource,
                                     uint64_t address,
                                     size_t size,
                                     void *stream);

/**
 * The allocating function for torch.cuda.memory.CUDAPluggableAllocator: cudamem_malloc with PyTorch's arguments.
 * Returns NULL if it fails; cudamem_last_error_message says why. torch.cuda.MemPool turns NULL into
 * torch.OutOfMemoryError. As the allocator of a whole program, PyTorch does not check for NULL: docs/guide/pytorch.md
 * shows how to raise the error.
 */
void *cudamem_torch_alloc(ptrdiff_t size, int device, void *stream);

/**
 * The freeing function for torch.cuda.memory.CUDAPluggableAllocator: cudamem_free with PyTorch's arguments. It cannot
 * return errors, so it writes them to the standard error output.
 */
void cudamem_torch_free(void *pointer, ptrdiff_t size, int device, void *stream);

/**
 * The function for `set_record_stream_fn` of PyTorch's pluggable allocators, which calls it for torch.Tensor.record_stream:
 * cudamem_malloc_record_use with PyTorch's arguments. Without it, the memory of a tensor that a second stream still uses
 * goes to the next tensor. Memory from elsewhere has its own owner, and is left alone. Errors go to the standard error
 * output.
 */
void cudamem_torch_record_stream(void *pointer,
                                 void *stream);

/**
 * The function for `set_reset_fn` of PyTorch's pluggable allocators, which calls it for torch.cuda.empty_cache: waits for
 * the work of freed memory, and gives unused memory of all pools of cudamem_malloc back to the driver. Errors go to the
 * standard error output.
 */
void cudamem_torch_empty_cache(void);

/* ---- Buffers --------------------------------------------------------------------------------------------------------
 *
 * A buffer is memory from a resource, or memory that the program lends. It has a home stream: the buffer's copies,
 * fills and free run in that stream's order. Offsets and sizes are in bytes. A size of CUDAMEM_WHOLE_SIZE means
 * everything from the offset on, except where the size also describes host memory.
 *
 * Concurrent calls with one buffer run one after the other. Copies to and from host memory return when they are done;
 * other operations return when they are queued, also while another thread's copy waits.
 */

/**
 * The library calls this function when nothing uses the borrowed memory any more, on any thread. user is the program's
 * pointer. The function must not unwind.
 */
typedef void (*cudamem_release_callback)(void *user);

/** What a buffer is. */
typedef struct {
    /** sizeof(cudamem_buffer_info), set by the program. */
    size_t size;
    /** The size of the buffer in bytes. */
    size_t length;
    /** Who may address the memory: CUDAMEM_ACCESS_... combined by |. */
    uint32_t access;
    /** 0. */
    uint32_t reserved;
    /** As cudamem_buffer_get_device_pointer. */
    uint64_t device_pointer;
    /** As cudamem_buffer_get_host_pointer; NULL if the CPU does not address the memory. */
    void *host_pointer;
    /** How far a growable buffer grows without moving, in bytes. Of other buffers: length. */
    size_t capacity;
    /** The size of a growable buffer's physical memory in bytes. Of other buffers: 0. */
    size_t physical;
    /** The unit of flush and invalidate in bytes: 1 for coherent memory, and for memory that the CPU does not address. */
    size_t atom;
} cudamem_buffer_info;

/** A route of copies between buffers. The values are CUDAMEM_ROUTE_... . */
typedef int32_t cudamem_route;

/** Both buffers lie on one device. */
#define CUDAMEM_ROUTE_SAME_DEVICE 0
/** The destination's device reads the source's memory over the link between the devices. */
#define CUDAMEM_ROUTE_DIRECT 1

/**
 * The driver moves the bytes through host memory, because the destination's device does not access the source. Also for
 * memory of other libraries, whose source is not known; the driver copies it directly if it can.
 */
#define CUDAMEM_ROUTE_THROUGH_HOST 2
/** At least one of the buffers is host memory. */
#define CUDAMEM_ROUTE_HOST_MEMORY 3

/**
 * Allocates size bytes from a resource. stream becomes the home stream, and its later work may use the memory. The
 * contents are undefined. A size of 0 is allowed.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if there is no room. CUDAMEM_ERROR_INVALID_ARGUMENT if the stream belongs to
 * another device, or if it captures a graph and the resource allocates in stream order. Pools and guarded resources ask
 * the driver about borrowed streams. For a borrowed stream that its owner captures, a general pool (cudamem_pool_create)
 * gives memory that belongs to the graph until the graph and its executables are destroyed. Of streams that this library
 * made, resources only see captures of cudamem_graph_capture: do not capture these with the driver
 * (cuStreamBeginCapture). For device, pinned and managed memory, the driver alone decides what a capture forbids.
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

/** Describes a buffer. Set info->size first. */
cudamem_status cudamem_buffer_get_info(cudamem_buffer buffer, cudamem_buffer_info *info);

/**
 * Gets the address for kernels and for the driver (a CUdeviceptr). It is valid while a part of the memory lives, and 0
 * if the buffer has no memory. Record work on other streams than the home stream that uses the memory:
 * cudamem_record_use.
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

/**
 * Makes stream the home stream. It waits for all work on the buffer so far. So a buffer that is destroyed next is
 * freed in order of stream.
 */
cudamem_status cudamem_buffer_set_stream(cudamem_buffer buffer, cudamem_stream stream);

/** Waits until all work queued on the home stream so far is done. */
cudamem_status cudamem_buffer_synchronize(cudamem_buffer buffer);

/** Copies size bytes from host memory to the buffer, at offset. Returns when the copy is done. */
cudamem_status cudamem_buffer_write(cudamem_buffer buffer, size_t offset, const void *source, size_t size);

/** Copies size bytes of the buffer, from offset on, to host memory. Returns when the copy is done. */
cudamem_status cudamem_buffer_read(cudamem_buffer buffer, size_t offset, void *destination, size_t size);

/**
 * Gets the route of copies from source to buffer. Like such a copy, the call gives the buffer's device access to the
 * source's memory if it can, and verifies it, which takes milliseconds once for each source and device.
 */
cudamem_status cudamem_buffer_get_route(cudamem_buffer buffer, cudamem_buffer source, cudamem_route *route);

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
 * As cudamem_buffer_destroy, for destructors, which cannot return errors. If the memory cannot be freed, the library
 * reports the error to the callback of cudamem_set_drop_error_callback, and the handle ends all the same.
 */
cudamem_status cudamem_buffer_drop(cudamem_buffer buffer);

/* ---- Objects of several kinds ---------------------------------------------------------------------------------------
 *
 * These functions take the id of an object of any kind that the description names: stream.id, buffer.id. Another kind
 * gives CUDAMEM_ERROR_INVALID_HANDLE, and the message names both.
 */

/**
 * Gets the driver's handle of a context, a stream, an event or a graph: a CUcontext, CUstream, CUevent or CUgraph. It
 * is valid while the object's handle lives.
 */
cudamem_status cudamem_get_raw(uint64_t id, void **raw);

/**
 * Checks whether work is done: all work queued on a stream so far, the work before an event, or a pending read, whose
 * wait then does not wait. An event that was never recorded counts as done.
 *
 * Errors: CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_is_done(uint64_t id, bool *done);

/**
 * As cudamem_stream_synchronize or cudamem_event_synchronize, but waits for at most seconds. 0 only checks; INFINITY
 * (from math.h) means no limit.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if the work is not done by then. The work continues, and the message names what it
 * waits for, if the library knows. CUDAMEM_ERROR_DRIVER if work failed.
 */
cudamem_status cudamem_synchronize_for(uint64_t id, double seconds);

/**
 * Records that work queued on stream so far uses a buffer, a view, a flag, a counter, a ring, or a frame: kernels that
 * were launched with its address or descriptor. Later operations of a buffer, including its free, wait for that work.
 * The memory of the others is not reused, and a frame is not handed out again, before that work is done. The stream may
 * be of another device, which uses the memory directly.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if a frame is used on a stream that captures a graph, or on a per-thread
 * default stream.
 */
cudamem_status cudamem_record_use(uint64_t id, cudamem_stream stream);

/** Names a flag, a counter or a ring, for error messages and for reports of long waits. */
cudamem_status cudamem_set_name(uint64_t id, const char *name);

/* ---- CPU stores and loads -------------------------------------------------------------------------------------------
 *
 * The CPU reaches pinned and mapped memory without the driver: a store to mapped memory, which is device memory, takes
 * about 0.1 us, where cudamem_buffer_write takes 5. Device work sees CPU writes if it is queued after they were flushed.
 * The CPU sees device writes after the device work is done and the range was invalidated. The functions here flush and
 * invalidate by themselves, and kernels may use the memory at the same time. The first of these calls for a buffer waits
 * for the work that this library queued for it, and for work of the memory's former owner. It waits for no kernel that
 * the program queued after it had asked for the address. Later calls wait for no device work. On coherent memory
 * a flush is a store fence. On non-coherent memory flushes and invalidates act on whole atoms, so data that the CPU
 * writes and data that the device writes at the same time must not share an atom.
 *
 * Threads may use one buffer at once. Writes of several bytes are not atomic; words are. After the first of these calls,
 * the buffer counts as divided: it no longer grows.
 */

/**
 * Writes size bytes at offset with CPU stores, and flushes them.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU does not address the memory, or if it is managed.
 */
cudamem_status cudamem_buffer_store(cudamem_buffer buffer, size_t offset, const void *source, size_t size);

/**
 * Invalidates, and reads size bytes at offset with CPU loads. Loads from a GPU's memory are slow: 1 us for up to 1
 * KiB, 4 to 5 us for 4 KiB.
 *
 * Errors: as cudamem_buffer_store.
 */
cudamem_status cudamem_buffer_load(cudamem_buffer buffer, size_t offset, void *destination, size_t size);

/** Writes a 32-bit word after all earlier writes of this thread, and flushes it: for flags. offset is a multiple of 4. */
cudamem_status cudamem_buffer_store_u32(cudamem_buffer buffer, size_t offset, uint32_t word);

/** Reads a 32-bit word before all later reads of this thread: for flags. offset is a multiple of 4. */
cudamem_status cudamem_buffer_load_u32(cudamem_buffer buffer, size_t offset, uint32_t *word);

/** As cudamem_buffer_store_u32, with a 64-bit word. offset is a multiple of 8. */
cudamem_status cudamem_buffer_store_u64(cudamem_buffer buffer, size_t offset, uint64_t word);

/** As cudamem_buffer_load_u32, with a 64-bit word. offset is a multiple of 8. */
cudamem_status cudamem_buffer_load_u64(cudamem_buffer buffer, size_t offset, uint64_t *word);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_H */
