//! Stream capture.

use super::graph::find;
use super::graph_edges::{self, check_data};
use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::state::Global;
use crate::state::graphs::capture::{self, Status};
use crate::state::streams::Stream;
use cuda_sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags, cuuint64_t,
};
use std::ffi::c_uint;
use std::ptr;

driver_calls! {
    |global: &'static Global|

    /// Begins a capture on a stream.
    fn cuStreamBeginCapture_v2[Started, cuStreamBeginCapture_v2_ptsz](hStream: CUstream, mode: CUstreamCaptureMode) {
        capture::begin(global, &Stream::find(global, hStream)?, mode)
    }

    /// Ends a capture and returns the graph; null if the capture was invalidated. If the caller takes no graph, the
    /// graph ends.
    fn cuStreamEndCapture[Started, cuStreamEndCapture_ptsz](hStream: CUstream, phGraph: *mut CUgraph) {
        offer(phGraph, ptr::null_mut());
        let graph = capture::end(global, &Stream::find(global, hStream)?)?;
        if phGraph.is_null() {
            global.graphs.remove(graph);
        }
        offer(phGraph, ptr::without_provenance_mut(graph as usize));
        Ok(())
    }

    /// Returns whether a stream captures.
    fn cuStreamIsCapturing[Started, cuStreamIsCapturing_ptsz](hStream: CUstream, captureStatus: *mut CUstreamCaptureStatus) {
        put(captureStatus, code(&status(global, hStream)?))
    }

    /// Returns the number of a stream's capture.
    fn cuStreamGetCaptureInfo[Started, cuStreamGetCaptureInfo_ptsz](
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
    ) {
        let (graph, nodes, edges, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        tell(status(global, hStream)?, captureStatus_out, id_out, graph, nodes, edges, count)
    }

    /// Returns a stream's capture: its number, its graph, and the nodes before the next one.
    fn cuStreamGetCaptureInfo_v2[Started, cuStreamGetCaptureInfo_v2_ptsz](
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        numDependencies_out: *mut usize,
    ) {
        let found = status(global, hStream)?;
        tell(found, captureStatus_out, id_out, graph_out, dependencies_out, ptr::null_mut(), numDependencies_out)
    }

    /// As cuStreamGetCaptureInfo_v2. No edge has data, so `edgeData_out` receives an array of zeros; null if there are
    /// no dependencies.
    fn cuStreamGetCaptureInfo_v3[Started, cuStreamGetCaptureInfo_v3_ptsz](
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        edgeData_out: *mut *const CUgraphEdgeData,
        numDependencies_out: *mut usize,
    ) {
        let found = status(global, hStream)?;
        tell(found, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out)
    }

    /// Begins a capture into a graph that is there, after some of its nodes. No edge may have data.
    fn cuStreamBeginCaptureToGraph[Started, cuStreamBeginCaptureToGraph_ptsz](
        hStream: CUstream,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        mode: CUstreamCaptureMode,
    ) {
        check_data(dependencyData, numDependencies)?;
        let graph = find(global, hGraph)?;
        let after = graph_edges::dependencies(global, &graph, dependencies, numDependencies)?;
        let target = (graph, hGraph.addr() as u64, after);
        capture::begin_into(global, &Stream::find(global, hStream)?, mode, Some(target))
    }

    /// Adds to the nodes that the next node of a capture comes after, or replaces them.
    fn cuStreamUpdateCaptureDependencies[Started, cuStreamUpdateCaptureDependencies_ptsz](
        hStream: CUstream,
        dependencies: *mut CUgraphNode,
        numDependencies: usize,
        flags: c_uint,
    ) {
        depend(global, hStream, dependencies, numDependencies, flags)
    }

    /// As cuStreamUpdateCaptureDependencies. No edge may have data.
    fn cuStreamUpdateCaptureDependencies_v2[Started, cuStreamUpdateCaptureDependencies_v2_ptsz](
        hStream: CUstream,
        dependencies: *mut CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        flags: c_uint,
    ) {
        check_data(dependencyData, numDependencies)?;
        depend(global, hStream, dependencies, numDependencies, flags)
    }

    /// Swaps the calling thread's capture mode.
    fn cuThreadExchangeStreamCaptureMode[Started](mode: *mut CUstreamCaptureMode) {
        ensure(!mode.is_null())?;
        mode.write(capture::exchange_mode(mode.read()));
        Ok(())
    }
}

/// # Safety
///
/// The array is null or has `count` elements.
unsafe fn depend(
    global: &Global,
    stream: CUstream,
    dependencies: *const CUgraphNode,
    count: usize,
    flags: c_uint,
) -> Result {
    let replaces = CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES.0;
    ensure(flags <= replaces && (count == 0 || !dependencies.is_null()))?;
    // SAFETY: by this function's contract.
    let nodes: Vec<_> = (0..count).map(|n| unsafe { dependencies.add(n).read() }.addr()).collect();
    capture::depend(global, &Stream::find(global, stream)?, &nodes, flags == replaces)
}

fn status(global: &Global, stream: CUstream) -> Result<Status> {
    capture::status(global, &Stream::find(global, stream)?)
}

/// Tells a stream's capture. If there is none, only the status is written.
///
/// # Safety
///
/// Each pointer is null or writable.
unsafe fn tell(
    found: Status,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Result {
    // SAFETY: by this function's contract.
    unsafe { put(status, code(&found)) }?;
    if let Status::Active { id: number, graph: handle, nodes, edges: data, count: length } = found {
        // SAFETY: as above. A node's handle is a number as wide as a pointer.
        unsafe {
            offer(id, number);
            offer(graph, ptr::without_provenance_mut(handle as usize));
            offer(dependencies, nodes.cast());
            offer(edges, data);
            offer(count, length);
        }
    }
    Ok(())
}

fn code(status: &Status) -> CUstreamCaptureStatus {
    match status {
        Status::None => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        Status::Active { .. } => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        Status::Invalid => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
    }
}
