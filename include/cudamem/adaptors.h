/*
 * libcudamem: resources on top of others that count, limit, log and check, and rings of staging.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_ADAPTORS_H
#define CUDAMEM_ADAPTORS_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Adaptors -------------------------------------------------------------------------------------------------------
 *
 * An adaptor is a resource on top of another resource, its upstream: it counts, limits, logs or retries allocations.
 * Adaptors and pools stack in any order. The upstream's handle may be destroyed before the adaptor's. A function for
 * one kind of adaptor refuses other resources with CUDAMEM_ERROR_INVALID_ARGUMENT.
 */

/** An adaptor that counts allocations: cudamem_resource_get_counts. number is 0. */
#define CUDAMEM_ADAPTOR_STATISTICS 0
/** An adaptor that limits live memory. An allocation beyond number bytes fails with CUDAMEM_ERROR_OUT_OF_MEMORY. */
#define CUDAMEM_ADAPTOR_LIMIT 1
/** An adaptor that records every live block: cudamem_resource_get_report. number is 0 or CUDAMEM_TRACKING_BACKTRACES. */
#define CUDAMEM_ADAPTOR_TRACKING 2
/** An adaptor that keeps the newest number allocations and frees, at about 100 bytes each: cudamem_resource_get_report. */
#define CUDAMEM_ADAPTOR_RECORDING 3
/** An adaptor whose blocks begin at multiples of number, a power of two. */
#define CUDAMEM_ADAPTOR_ALIGNED 4
/** With CUDAMEM_ADAPTOR_TRACKING: record a backtrace of each allocation, which takes microseconds. */
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

/** Makes an adaptor that needs at most a number. kind is one of CUDAMEM_ADAPTOR_..., which describes the number. */
cudamem_status cudamem_resource_create_adaptor(cudamem_resource upstream,
                                               int32_t kind,
                                               size_t number,
                                               cudamem_resource *resource);

/** Gets the counts of CUDAMEM_ADAPTOR_STATISTICS. Set counts->size first. */
cudamem_status cudamem_resource_get_counts(cudamem_resource resource, cudamem_counts *counts);

/** Sets the limit of CUDAMEM_ADAPTOR_LIMIT. Live blocks stay, even beyond the new limit. */
cudamem_status cudamem_resource_set_limit(cudamem_resource resource, size_t limit);

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
 * Gets what a resource has recorded: a count, and a readable report. Either place may be NULL.
 *
 * - CUDAMEM_ADAPTOR_TRACKING: the live blocks, with their sizes and perhaps backtraces.
 * - cudamem_resource_create_guarded: the damage. The call waits for all work of the context, and checks for it now.
 * - CUDAMEM_ADAPTOR_RECORDING, and pools with a trace_capacity: the newest allocations and frees as CSV, oldest
 *   first, with times, threads and streams. `cuda-mem replay` repeats them.
 */
cudamem_status cudamem_resource_get_report(cudamem_resource resource, size_t *count, cudamem_text *report);

/**
 * Makes an adaptor that allocates from first, and from second when first is out of memory. Both must belong to one
 * context. All its memory counts as accessible only as that of both is: by the CPU, or by devices, if both allow it.
 */
cudamem_status cudamem_resource_create_fallback(cudamem_resource first,
                                                cudamem_resource second,
                                                cudamem_resource *resource);

/**
 * Makes an adaptor that calls callback when the upstream is out of memory, and tries again if it returns true, at most
 * attempts times for one allocation.
 */
cudamem_status cudamem_resource_create_retry(cudamem_resource upstream,
                                             uint32_t attempts,
                                             cudamem_retry_callback callback,
                                             void *user,
                                             cudamem_resource *resource);

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
 * Makes an adaptor that detects writes outside of blocks and after their free, for debugging: red zones around blocks,
 * poison in new and freed blocks, and a quarantine of freed blocks. A free that finds damage fails with
 * CUDAMEM_ERROR_DAMAGED; a second free of the same block succeeds. options may be NULL.
 */
cudamem_status cudamem_resource_create_guarded(cudamem_resource upstream,
                                               const cudamem_guard_options *options,
                                               cudamem_resource *resource);

/* ---- Rings of staging -----------------------------------------------------------------------------------------------
 *
 * A ring is a resource that allocates blocks one behind the other and reuses them in the same order.
 */

/**
 * A flag of cudamem_ring_pool_create: a full ring refuses an allocation, instead of waiting for the work of freed
 * blocks.
 */
#define CUDAMEM_RING_POOL_REFUSE 1

/**
 * Makes a ring of capacity bytes, rounded up to a multiple of 256, over a resource: for staging. The ring hands a
 * block out only when all work of its previous users is done, so the CPU may write it at once. A block that is not
 * freed delays all blocks behind it. The call allocates the memory. flags is 0 or CUDAMEM_RING_POOL_REFUSE.
 */
cudamem_status cudamem_ring_pool_create(cudamem_resource upstream,
                                        size_t capacity,
                                        uint32_t flags,
                                        cudamem_resource *pool);

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_ADAPTORS_H */
