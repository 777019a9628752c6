//! Graphs, and the memory that they hold.

use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::contexts::current;
use crate::state::graphs::capture;
use crate::state::graphs::{Executable, Graph, handle, sequence_in};
use crate::state::streams::Stream;
use cuda_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUdevice, CUgraph, CUgraphExec, CUgraphInstantiate_flags, CUgraphInstantiateResult,
    CUgraphMem_attribute, CUgraphNode, CUresult, CUstream, cuuint64_t,
};
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Makes an empty graph, in the current context. Without one, the graph belongs to device 0's primary context.
    fn cuGraphCreate[Started](phGraph: *mut CUgraph, flags: c_uint) {
        ensure(!phGraph.is_null() && flags == 0)?;
        let context = match current(global) {
            Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) => global.device(0)?.1.primary.clone(),
            found => found?,
        };
        let (handle, _) = Graph::make(global, &context);
        put(phGraph, ptr::without_provenance_mut(handle as usize))
    }

    /// Copies a graph. Memory of graphs cannot be copied.
    fn cuGraphClone[Started](phGraphClone: *mut CUgraph, originalGraph: CUgraph) {
        ensure(!phGraphClone.is_null())?;
        let (handle, _) = find(global, originalGraph)?.copy(global, false)?;
        put(phGraphClone, ptr::without_provenance_mut(handle as usize))
    }

    /// Returns the copy of a node.
    fn cuGraphNodeFindInClone[Started](
        phNode: *mut CUgraphNode,
        hOriginalNode: CUgraphNode,
        hClonedGraph: CUgraph,
    ) {
        let original = sequence_in(hOriginalNode.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let copy = find(global, hClonedGraph)?.copy_of(original);
        put(phNode, node_handle(copy.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?))
    }

    /// Returns a graph's nodes, or only their number.
    fn cuGraphGetNodes[Started](hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize) {
        ensure(!numNodes.is_null())?;
        let entries = find(global, hGraph)?.entries();
        let all: Vec<_> = entries.iter().map(|entry| entry.node.sequence).collect();
        list(&all, nodes, numNodes)
    }

    /// Makes an executable graph.
    fn cuGraphInstantiateWithFlags[Locked](phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: c_ulonglong) {
        ensure(!phGraphExec.is_null())?;
        current(global)?;
        let executable = find(global, hGraph)?.instantiate(global, flags)?;
        put(phGraphExec, ptr::without_provenance_mut(executable as usize))
    }

    /// As cuGraphInstantiateWithFlags. The parameters also receive why it failed, and name the stream of an upload.
    fn cuGraphInstantiateWithParams[Locked, cuGraphInstantiateWithParams_ptsz](
        phGraphExec: *mut CUgraphExec,
        hGraph: CUgraph,
        instantiateParams: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        let params = instantiateParams.as_mut().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        params.hErrNode_out = ptr::null_mut();
        let made = make(global, phGraphExec, hGraph, params);
        let is_circle = || Ok::<_, CUresult>(find(global, hGraph)?.is_circle());
        params.result_out = match made {
            Ok(()) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
            Err(_) if is_circle() == Ok(true) => {
                CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
            }
            Err(_) => CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR,
        };
        made
    }

    /// Prepares the next launch. Here launches need no preparation, so the call only checks its arguments.
    fn cuGraphUpload[Locked, cuGraphUpload_ptsz](hGraphExec: CUgraphExec, hStream: CUstream) {
        executable(global, hGraphExec)?;
        check_upload(&Stream::find(global, hStream)?)
    }

    /// Does a graph's work in stream order.
    fn cuGraphLaunch[Locked, cuGraphLaunch_ptsz](hGraphExec: CUgraphExec, hStream: CUstream) {
        executable(global, hGraphExec)?.launch(&Stream::find(global, hStream)?)
    }

    /// Destroys an executable graph. Launches under way continue to their end.
    fn cuGraphExecDestroy[Uncaptured](hGraphExec: CUgraphExec) {
        let gone = global.executables.remove(hGraphExec.addr() as u64);
        gone.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.end();
        Ok(())
    }

    /// Destroys a graph. Executable graphs that were made from it stay.
    fn cuGraphDestroy[Locked](hGraph: CUgraph) {
        let graph = find(global, hGraph)?;
        ensure(!graph.is_inner && !capture::is_recording(global, &graph))?;
        global.graphs.remove(hGraph.addr() as u64);
        Ok(())
    }

    /// Returns an attribute of the memory that graphs hold.
    fn cuDeviceGetGraphMemAttribute[Started](device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let (_, device) = global.device(device)?;
        put(value.cast(), device.graph_memory.attribute(attr)?)
    }

    /// Resets a high-water mark, with 0. Nothing else can be set.
    fn cuDeviceSetGraphMemAttribute[Started](device: CUdevice, attr: CUgraphMem_attribute, value: *mut c_void) {
        let (_, device) = global.device(device)?;
        ensure(!value.is_null() && value.cast::<u64>().read() == 0)?;
        device.graph_memory.reset_mark(attr)
    }

    /// Frees memory that graphs hold and do not use.
    fn cuDeviceGraphMemTrim[Started](device: CUdevice) {
        let (_, device) = global.device(device)?;
        device.graph_memory.trim();
        Ok(())
    }
}

/// Makes an executable graph. If the flags request it, uploads the graph.
///
/// # Safety
///
/// `out` is null or writable.
unsafe fn make(
    global: &Global,
    out: *mut CUgraphExec,
    graph: CUgraph,
    params: &CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Result {
    ensure(!out.is_null())?;
    let upload = cuuint64_t::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0);
    if params.flags & upload != 0 {
        check_upload(&Stream::find(global, params.hUploadStream)?)?;
    }
    let executable = find(global, graph)?.instantiate(global, params.flags & !upload)?;
    // SAFETY: by this function's contract.
    unsafe { put(out, ptr::without_provenance_mut(executable as usize)) }
}

/// Refuses to upload on a stream that captures.
fn check_upload(stream: &Stream) -> Result {
    if capture::enter(stream)? {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(())
}

pub(super) fn node_handle(sequence: u64) -> CUgraphNode {
    ptr::without_provenance_mut(handle(sequence))
}

/// Writes the handles of nodes, or only their number if there is no array. The rest of the array is filled with nulls.
///
/// # Safety
///
/// `count` is null or has the length of the array, which may be null.
pub(super) unsafe fn list(nodes: &[u64], out: *mut CUgraphNode, count: *mut usize) -> Result {
    ensure(!count.is_null())?;
    if out.is_null() {
        // SAFETY: by this function's contract.
        return unsafe { put(count, nodes.len()) };
    }
    // SAFETY: as above.
    unsafe {
        for place in 0..count.read() {
            let handle = nodes.get(place).map_or(ptr::null_mut(), |node| node_handle(*node));
            out.add(place).write(handle);
        }
        put(count, nodes.len().min(count.read()))
    }
}

pub(super) fn executable(global: &Global, handle: CUgraphExec) -> Result<Arc<Executable>> {
    global.executables.get(handle.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(super) fn find(global: &Global, handle: CUgraph) -> Result<Arc<Graph>> {
    global.graphs.get(handle.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
