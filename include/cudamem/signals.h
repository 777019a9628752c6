/*
 * libcudamem: flags, counters, rings and frames between the CPU, streams and kernels.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_SIGNALS_H
#define CUDAMEM_SIGNALS_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Signals --------------------------------------------------------------------------------------------------------
 *
 * Words that the CPU, streams and running kernels write and wait for: flags, counters, and rings of items (below). A
 * kernel launch and the wait for its end take about 8 us; a flag that a running kernel answers takes 1.5 us. The
 * device's side is cudamem/signal.cuh, one header for CUDA C++ without dependencies.
 *
 * cudamem_flag question, answer;
 * cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &question);
 * cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_CPU, &answer);
 * ... launch a kernel with the addresses from cudamem_signal_get_info, then cudamem_record_use ...
 * cudamem_flag_store(question, 1);
 * cudamem_signal_wait(answer.id, CUDAMEM_COMPARE_EQUAL, 1, &options, NULL);
 *
 * Each word must have one writer at a time: if CPU and device write it at once, one of the writes is lost. A write
 * comes after everything that its thread wrote before, to any memory. In coherent memory, a reader that sees the value
 * also sees those writes.
 *
 * A driver may wait for the device when memory is allocated or freed, and when a kernel is launched for the first
 * time. If a kernel then waits for the program, both wait forever. So make flags, rings, memory and kernels before you
 * launch a kernel that waits. Load, store, wait, push and pop make no driver call, except in waits of 5 ms and more.
 */

/** A flag of cudamem_signals_options: use pinned memory only, even if mapped memory is available. */
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
/** How the memory of signals is made. Zeros are the defaults. */
typedef struct {
    /** sizeof(cudamem_signals_options). */
    size_t size;
    /**
     * The mapped memory to use: a resource that cudamem_resource_create_mapped made in the same context, which may
     * then be the null handle. This avoids opening the device again. The null handle lets the library open it.
     */
    cudamem_resource mapped;
    /** 0 or CUDAMEM_SIGNALS_PINNED_ONLY. */
    uint32_t flags;
    /** Must be 0. */
    uint32_t reserved;
} cudamem_signals_options;

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
 * Makes the memory for flags, counters and rings of a context. It grows by 64 KiB at a time. options may be NULL. If
 * mapped memory is missing or not coherent, everything lies in pinned memory.
 */
cudamem_status cudamem_signals_create(cudamem_context context,
                                      const cudamem_signals_options *options,
                                      cudamem_signals *signals);

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

/**
 * Writes the word, after all earlier writes of this thread. The write is posted: a polling kernel sees it after at
 * most one trip over PCIe.
 */
cudamem_status cudamem_flag_store(cudamem_flag flag, uint64_t value);

/**
 * Destroys a flag. A wait of another thread for it fails with CUDAMEM_ERROR_CLOSED. A stream that waits for it is
 * released: by a queued write of another stream if that satisfies the wait, otherwise at once. In the second case the
 * stream's next cudamem_stream_synchronize, access to memory, or wait fails with CUDAMEM_ERROR_CLOSED. The flag's
 * memory stays until the recorded work is done. Kernels of the program that wait for the flag must be released before,
 * or have a time limit. The null handle is allowed.
 */
cudamem_status cudamem_flag_destroy(cudamem_flag flag);

/* ---- Words of flags and counters ------------------------------------------------------------------------------------
 *
 * These functions take the id of a flag or of a counter: flag.id, counter.id. A wait for a counter must compare with
 * CUDAMEM_COMPARE_AT_LEAST.
 */

/** Where a word lies. */
typedef struct {
    /** sizeof(cudamem_signal_info), set by the program. */
    size_t size;
    /** The word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle lives. */
    uint64_t device_pointer;
    /** The size of the word: 32 or 64. */
    uint32_t bits;
    /**
     * Of a flag: CUDAMEM_PLACE_PINNED or CUDAMEM_PLACE_MAPPED. Of a counter: CUDAMEM_PLACE_FOR_DEVICE if the CPU
     * counts, and otherwise CUDAMEM_PLACE_FOR_CPU.
     */
    int32_t place;
} cudamem_signal_info;

/** Reads the word. Everything that its writer did before the write is visible after this call. */
cudamem_status cudamem_signal_load(uint64_t id, uint64_t *value);

/**
 * Waits on the CPU until the comparison of the word with value holds, and stores the word then in seen, which may be
 * NULL. comparison is one of CUDAMEM_COMPARE_...; options may be NULL. The wait may miss a word that changes back.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT after the time limit. CUDAMEM_ERROR_INVALID_ARGUMENT if no word can satisfy the
 * comparison, or if the CPU counts. CUDAMEM_ERROR_CLOSED if another thread destroys the flag or counter.
 * CUDAMEM_ERROR_DRIVER if the device failed.
 */
cudamem_status cudamem_signal_wait(uint64_t id,
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
cudamem_status cudamem_signal_wait_on(uint64_t id, cudamem_stream stream, int32_t comparison, uint64_t value);

/**
 * Writes the word when all work queued on stream so far is done. A reader that sees the value also sees that work.
 *
 * Errors: as cudamem_signal_wait_on. CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts.
 */
cudamem_status cudamem_signal_store_on(uint64_t id, cudamem_stream stream, uint64_t value);

/** Gets where a word lies. Set info->size first. */
cudamem_status cudamem_signal_get_info(uint64_t id, cudamem_signal_info *info);

/* ---- Counters -------------------------------------------------------------------------------------------------------
 *
 * A counter is a word that only grows. The CPU counts pieces that are ready, and streams and kernels wait for them. Or
 * a stream or kernel counts pieces that are done, and the CPU waits for them. Counts may wrap around.
 * The functions for words (above) read counters, wait for them, and set those of the device.
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

/** What a ring is. */
typedef struct {
    /** sizeof(cudamem_ring_info), set by the program. */
    size_t size;
    /**
     * What a kernel needs to use the other end, with the ring's capacity. One thread of one kernel at a time may use
     * it; the next kernel continues where the last one ended. Record the launch with cudamem_record_use.
     */
    cudamem_ring_descriptor descriptor;
    /** Whether the other end is closed: 0 or 1. Items that it pushed before may still be in the ring. */
    uint32_t closed;
    /** 0. */
    uint32_t reserved;
} cudamem_ring_info;

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
 * Pushes as many of count items as there is room for, and publishes them at once. pushed becomes their number. If
 * options is NULL, the call does not wait: pushed is 0 if the ring is full. Otherwise the call waits for room as the
 * options say, and pushes at least one item: pushed is 0 only if the other end is closed or count is 0.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if there was no room in time; nothing was pushed. CUDAMEM_ERROR_INVALID_ARGUMENT if
 * the ring is from the device. CUDAMEM_ERROR_DAMAGED if the other end's index is impossible: the ring's memory was
 * overwritten.
 */
cudamem_status cudamem_ring_push(cudamem_ring ring,
                                 const void *items,
                                 size_t count,
                                 const cudamem_wait_options *options,
                                 size_t *pushed);

/**
 * Pops the available items, at most count, and frees their slots at once. popped becomes their number. If options is
 * NULL, the call does not wait: popped is 0 if the ring is empty. Otherwise the call waits for an item as the options
 * say: popped is 0 only if the other end is closed and the ring is empty, or if count is 0.
 *
 * Errors: CUDAMEM_ERROR_TIMED_OUT if no item came in time. CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is to the
 * device. CUDAMEM_ERROR_DAMAGED if the other end's index is impossible: the ring's memory was overwritten.
 */
cudamem_status cudamem_ring_pop(cudamem_ring ring,
                                void *items,
                                size_t count,
                                const cudamem_wait_options *options,
                                size_t *popped);

/** Gets how many items the CPU can push, or pop, now. */
cudamem_status cudamem_ring_get_available(cudamem_ring ring, size_t *count);

/**
 * Closes the CPU's end. A consuming kernel still pops what was pushed, and then sees the end; a producing kernel sees
 * that nothing is popped any more.
 */
cudamem_status cudamem_ring_close(cudamem_ring ring);

/** Describes a ring. Set info->size first. */
cudamem_status cudamem_ring_get_info(cudamem_ring ring, cudamem_ring_info *info);

/** Closes the ring and destroys it. Its memory stays until the recorded work is done. The null handle is allowed. */
cudamem_status cudamem_ring_destroy(cudamem_ring ring);

/* ---- Frames ---------------------------------------------------------------------------------------------------------
 *
 * A ring of frames is for data that arrives continuously. The program takes a frame, queues the consumer's work on it,
 * fills it on the CPU while that work waits, and publishes it. Then the work runs. A buffer and a flag cannot do this:
 * a write to the buffer would wait for the queued work, which waits for the flag.
 *
 * cudamem_frame_ring_next(ring, &options, &frame);
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
    uint64_t captured;
    /** How often the program asked for a frame while device work still read the oldest one. */
    uint64_t overruns;
} cudamem_frame_ring_statistics;

/** What a frame is. */
typedef struct {
    /** sizeof(cudamem_frame_info), set by the program. */
    size_t size;
    /** The frame's number: 1 for the first frame taken from its ring. */
    uint64_t number;
    /**
     * The frame's address for kernels (a CUdeviceptr). Kernels may only read there, and only after
     * cudamem_frame_wait_on on their stream. Record them with cudamem_record_use.
     */
    uint64_t device_pointer;
    /** The size of the frame in bytes. */
    size_t length;
} cudamem_frame_info;

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
 * Takes the oldest frame. If options is NULL, the call does not wait: frame becomes the null handle if device work
 * still reads the oldest frame. Otherwise the call waits for that work as the options say.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT, at once, if all frames are open: publish or destroy one.
 * CUDAMEM_ERROR_TIMED_OUT if device work still reads the frame. CUDAMEM_ERROR_DRIVER if that work failed.
 */
cudamem_status cudamem_frame_ring_next(cudamem_frame_ring ring,
                                       const cudamem_wait_options *options,
                                       cudamem_frame *frame);

/** Gets the statistics of a ring of frames. Set statistics->size first. */
cudamem_status cudamem_frame_ring_get_statistics(cudamem_frame_ring ring, cudamem_frame_ring_statistics *statistics);

/**
 * Destroys a ring of frames, and abandons its open frames as cudamem_frame_destroy does: the program must not write
 * them any more. The memory is freed when the work that reads it is done, and this call may wait for that. The null
 * handle is allowed.
 */
cudamem_status cudamem_frame_ring_destroy(cudamem_frame_ring ring);

/** Describes a frame. Set info->size first. */
cudamem_status cudamem_frame_get_info(cudamem_frame frame, cudamem_frame_info *info);

/**
 * Gets the CPU's address of the frame. The program may write there until it publishes or destroys the frame, or
 * destroys the ring. The whole frame then counts as written: publishing flushes everything that was not flushed after
 * this call.
 */
cudamem_status cudamem_frame_get_host_pointer(cudamem_frame frame, void **pointer);

/** Stores size bytes in the frame, at offset. The CPU stores them in the way that suits the memory. */
cudamem_status cudamem_frame_store(cudamem_frame frame, size_t offset, const void *source, size_t size);

/** Flushes CPU writes to a range, so that publishing has less to flush. Other threads see the writes then, too. */
cudamem_status cudamem_frame_flush(cudamem_frame frame, size_t offset, size_t size);

/**
 * Makes later work of stream wait until the frame is published. Record kernels that read the frame afterwards with
 * cudamem_record_use.
 *
 * Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the stream belongs to another context, captures a graph, or is a
 * per-thread default stream. CUDAMEM_ERROR_CLOSED if the ring was destroyed.
 */
cudamem_status cudamem_frame_wait_on(cudamem_frame frame, cudamem_stream stream);

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

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_SIGNALS_H */
