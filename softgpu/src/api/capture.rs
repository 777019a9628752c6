//! Stream capture.

use crate::call::{driver_calls, ensure, offer, put};
use crate::state::Global;
use crate::state::capture::{self, Status};
use crate::state::stream::Stream;
use cuda_sys::{CUgraph, CUgraphNode, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus, cuuint64_t};
use std::ptr;

driver_calls! {
    /// Begins a capture on a stream.
    fn cuStreamBeginCapture_v2[Started](hStream: CUstream, mode: CUstreamCaptureMode) {
        let global = Global::get()?;
        capture::begin(global, &Stream::find(global, hStream)?, mode)
    }

    /// Ends a capture and returns the graph; null if the capture was invalidated. If the caller takes no graph, the
    /// graph ends.
    fn cuStreamEndCapture[Started](hStream: CUstream, phGraph: *mut CUgraph) {
        offer(phGraph, ptr::null_mut());
        let global = Global::get()?;
        let graph = capture::end(global, &Stream::find(global, hStream)?)?;
        if phGraph.is_null() {
            global.graphs.remove(graph);
        }
        offer(phGraph, ptr::without_provenance_mut(graph as usize));
        Ok(())
    }

    /// Returns whether a stream captures.
    fn cuStreamIsCapturing[Started](hStream: CUstream, captureStatus: *mut CUstreamCaptureStatus) {
        let global = Global::get()?;
        let status = capture::status(global, &Stream::find(global, hStream)?)?;
        put(captureStatus, code(&status))
    }

    /// Returns a stream's capture: its number, its graph, and the nodes before the next one.
    fn cuStreamGetCaptureInfo_v2[Started](
        hStream: CUstream,
        captureStatus_out: *mut CUstreamCaptureStatus,
        id_out: *mut cuuint64_t,
        graph_out: *mut CUgraph,
        dependencies_out: *mut *const CUgraphNode,
        numDependencies_out: *mut usize,
    ) {
        let global = Global::get()?;
        let status = capture::status(global, &Stream::find(global, hStream)?)?;
        put(captureStatus_out, code(&status))?;
        let (id, graph, nodes, count) = match status {
            Status::Active { id, graph, nodes, count } => (id, graph, nodes, count),
            Status::None | Status::Invalid => (0, 0, ptr::null(), 0),
        };
        offer(id_out, id);
        offer(graph_out, ptr::without_provenance_mut(graph as usize));
        // A node's handle is a number as wide as a pointer.
        offer(dependencies_out, nodes.cast());
        offer(numDependencies_out, count);
        Ok(())
    }

    /// Swaps the calling thread's capture mode.
    fn cuThreadExchangeStreamCaptureMode[Started](mode: *mut CUstreamCaptureMode) {
        ensure(!mode.is_null())?;
        mode.write(capture::exchange_mode(mode.read()));
        Ok(())
    }
}

fn code(status: &Status) -> CUstreamCaptureStatus {
    match status {
        Status::None => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE,
        Status::Active { .. } => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        Status::Invalid => CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
    }
}
