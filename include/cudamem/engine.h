/*
 * libcudamem: copies between host and device in the fastest way.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_ENGINE_H
#define CUDAMEM_ENGINE_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Copy engines ---------------------------------------------------------------------------------------------------
 *
 * A copy engine copies between host memory and one device, for each size and kind of memory in the way that is fastest.
 * Any number of threads may use one engine at once.
 */

/** A flag of cudamem_engine_options: no threads help the calling thread. */
#define CUDAMEM_ENGINE_NO_THREADS 1
/** The method that the profile chooses. */
#define CUDAMEM_METHOD_CHOSEN 0
/** Streaming stores or loads by the CPU, with `threads` threads. Mapped memory only. */
#define CUDAMEM_METHOD_CPU 1
/** One copy by the driver. */
#define CUDAMEM_METHOD_DRIVER 2
/** Page-locked staging, which `threads` threads fill or empty. */
#define CUDAMEM_METHOD_STAGED 3
/** `threads` threads store to the memory while `staging_threads` threads fill staging. Writes to mapped memory only. */
#define CUDAMEM_METHOD_MIXED 4
/** The host's pages are locked for the duration of the copy. */
#define CUDAMEM_METHOD_REGISTERED 5
/** Unknown: for copies that are not small, the engine asks the driver what the host memory is. */
#define CUDAMEM_HOST_UNKNOWN 0
/** The host memory is on the heap, on the stack or in a file. */
#define CUDAMEM_HOST_PAGEABLE 1
/** The host memory is page-locked: allocated by the driver, or registered with it. */
#define CUDAMEM_HOST_PINNED 2

/**
 * A flag of cudamem_copy_options, for cudamem_engine_write_buffer: return only when the bytes have arrived in the
 * device's memory. The engine then chooses the method.
 */
#define CUDAMEM_COPY_COMPLETE 1
/** How a copy engine is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_engine_options). */
    size_t size;
    /**
     * The profile that chooses methods, as JSON: from cudamem_engine_get_profile, or the `profile` that
     * `cuda-mem bench copy --json` prints. NULL for the typical profile.
     */
    const char *profile;
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
    /** One of CUDAMEM_METHOD_... . */
    int32_t method;
    /** One of CUDAMEM_HOST_... . */
    int32_t host;
    /** The number of threads of the method, including the calling thread; 0 for methods without threads. */
    uint32_t threads;
    /** The number of threads that fill staging, with CUDAMEM_METHOD_MIXED; otherwise 0. */
    uint32_t staging_threads;
    /** 0 or CUDAMEM_COPY_COMPLETE. */
    uint32_t flags;
    /** Must be 0. */
    uint32_t reserved;
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

/**
 * Allocates size bytes and fills them with the bytes of a file from byte offset on. file is a descriptor that is open for
 * reading; its position does not matter and does not change. stream becomes the buffer's home stream, as in
 * cudamem_buffer_allocate. When the call returns, the bytes are in the memory, and the file may change or end. There is a
 * buffer only after a complete read.
 *
 * The engine's threads read the file into page-locked staging, from which the device copies. What is in the page cache comes
 * from there; the rest comes from the disk past the page cache, and does not fill it.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if the file is shorter; CUDAMEM_ERROR_INVALID_ARGUMENT if it is a directory, a pipe or
 * a socket, if the resource is of another device, or if the stream captures a graph; CUDAMEM_ERROR_SYSTEM if the file
 * cannot be read.
 */
cudamem_status cudamem_engine_read_file(cudamem_engine engine,
                                        int file,
                                        uint64_t offset,
                                        size_t size,
                                        cudamem_resource resource,
                                        cudamem_stream stream,
                                        cudamem_buffer *buffer);

/** Destroys an engine and frees its staging. The null handle is allowed. */
cudamem_status cudamem_engine_destroy(cudamem_engine engine);

/* ---- Copies of engines in stream order, of many pieces, and complete ------------------------------------------------
 *
 * A copy in stream order runs after all work queued on the stream so far, and before its later work. It passes the
 * program's memory through the engine's page-locked staging, so that writes do not wait for the stream.
 */

/** What was measured as the fastest: a kernel of the library copies many small pieces, the driver all others. */
#define CUDAMEM_WAY_FASTEST 0
/** The driver alone, mostly by the device's copy engines. */
#define CUDAMEM_WAY_COPY_ENGINES 1

/**
 * The kernel copies all pieces that it reaches, also a single one. It is the way for small work that must not wait behind
 * large copies of other streams: 64 KiB beside copies of 256 MiB take 10 ms by a copy engine, and 25 us by the kernel
 * (H200). The driver copies what the kernel does not reach: managed and pageable memory, memory of other devices, and
 * everything while the kernel cannot be loaded (cudamem_context_load_kernels).
 */
#define CUDAMEM_WAY_KERNEL 2
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

/** How pieces are copied. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_pieces_options). */
    size_t size;
    /** One of CUDAMEM_WAY_... . */
    int32_t way;
    /** Must be 0. */
    uint32_t reserved;
} cudamem_pieces_options;

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

/** Destroys a pending read. Without a wait before, the destination stays unchanged. The null handle is allowed. */
cudamem_status cudamem_pending_read_destroy(cudamem_pending_read pending);

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

/**
 * Copies count pieces of source to buffer, in order of stream. A few launches of a kernel copy them if they are many and
 * small, such as the blocks of a cache; otherwise the driver does, by one call if it has such a call (CUDA 12.8). options
 * may be NULL. The pieces are unordered among each other, so they must not overlap in buffer.
 *
 * The first call with many pieces loads the kernel, and waits for all work of the context. If kernels of the program wait for
 * the CPU, call cudamem_context_load_kernels at its start.
 *
 * Errors: CUDAMEM_ERROR_OUT_OF_RANGE if a piece does not fit. CUDAMEM_ERROR_INVALID_ARGUMENT if two pieces overlap, or
 * if both handles are the same. Nothing is copied after an error.
 */
cudamem_status cudamem_buffer_copy_pieces(cudamem_buffer buffer,
                                          cudamem_buffer source,
                                          const cudamem_piece *pieces,
                                          size_t count,
                                          const cudamem_pieces_options *options,
                                          cudamem_stream stream);

/* ---- Profiles of copy engines ---------------------------------------------------------------------------------------
 *
 * A profile holds the times of copies by which an engine chooses methods. The engine also keeps page-locked staging.
 */

/** Gets the engine's profile as JSON: how long each method of copying takes, by size. */
cudamem_status cudamem_engine_get_profile(cudamem_engine engine, cudamem_text *json);

/** Makes the engine use another profile, a JSON text, from now on. NULL is the typical profile. */
cudamem_status cudamem_engine_set_profile(cudamem_engine engine, const char *json);

/** Gets the size of the engine's page-locked staging in bytes. */
cudamem_status cudamem_engine_get_staging(cudamem_engine engine, size_t *size);

/** Frees staging that no copy uses. */
cudamem_status cudamem_engine_trim(cudamem_engine engine);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_ENGINE_H */
