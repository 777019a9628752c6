/*
 * libcudamem: recorded work of a stream.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * scripts/header generates this file from the library's sources.
 *
 * cudamem.h has the rules for all functions.
 */
#ifndef CUDAMEM_GRAPHS_H
#define CUDAMEM_GRAPHS_H

#include "../cudamem.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif /* CUDAMEM_GRAPHS_H */
