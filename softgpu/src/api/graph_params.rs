//! Parameters of nodes, in graphs and in executable graphs.

use super::context::named_or_current;
use super::graph::executable;
use super::graph_nodes::{Stated, calling, containing, copying, filling, recording, waiting};
use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::state::Global;
use crate::state::graphs::{Graph, Mismatch, Node, Params, sequence_in};
use cuda_sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr,
    CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeType,
    CUresult, cuuint64_t,
};
use std::ffi::c_uint;
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Returns what a node does.
    fn cuGraphNodeGetType[Started](hNode: CUgraphNode, type_: *mut CUgraphNodeType) {
        put(type_, node(global, hNode)?.params.kind())
    }

    /// Returns a copy's parameters.
    fn cuGraphMemcpyNodeGetParams[Started](hNode: CUgraphNode, nodeParams: *mut CUDA_MEMCPY3D) {
        match &node(global, hNode)?.params {
            Params::Copy(copy) => put(nodeParams, *copy),
            _ => Err(INVALID),
        }
    }

    /// Sets a copy's parameters.
    fn cuGraphMemcpyNodeSetParams[Started](hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D) {
        change(global, hNode, |graph| copying(global, nodeParams.as_ref(), &graph.context))
    }

    /// Sets a copy's parameters in an executable graph.
    fn cuGraphExecMemcpyNodeSetParams[Started](
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) {
        change_ready(global, hGraphExec, hNode, copying(global, copyParams.as_ref(), &named_or_current(global, ctx)?)?)
    }

    /// Returns a fill's parameters.
    fn cuGraphMemsetNodeGetParams[Started](hNode: CUgraphNode, nodeParams: *mut CUDA_MEMSET_NODE_PARAMS) {
        match &node(global, hNode)?.params {
            Params::Fill(fill) => put(nodeParams, *fill),
            _ => Err(INVALID),
        }
    }

    /// Sets a fill's parameters.
    fn cuGraphMemsetNodeSetParams[Started](hNode: CUgraphNode, nodeParams: *const CUDA_MEMSET_NODE_PARAMS) {
        change(global, hNode, |graph| filling(global, nodeParams.as_ref(), &graph.context))
    }

    /// Sets a fill's parameters in an executable graph.
    fn cuGraphExecMemsetNodeSetParams[Started](
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) {
        let stated = filling(global, memsetParams.as_ref(), &*named_or_current(global, ctx)?)?;
        change_ready(global, hGraphExec, hNode, stated)
    }

    /// Returns a host function's parameters.
    fn cuGraphHostNodeGetParams[Started](hNode: CUgraphNode, nodeParams: *mut CUDA_HOST_NODE_PARAMS) {
        match &node(global, hNode)?.params {
            Params::Host(host) => put(nodeParams, *host),
            _ => Err(INVALID),
        }
    }

    /// Sets a host function's parameters.
    fn cuGraphHostNodeSetParams[Started](hNode: CUgraphNode, nodeParams: *const CUDA_HOST_NODE_PARAMS) {
        change(global, hNode, |_| calling(nodeParams.as_ref()))
    }

    /// Sets a host function's parameters in an executable graph.
    fn cuGraphExecHostNodeSetParams[Started](
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) {
        change_ready(global, hGraphExec, hNode, calling(nodeParams.as_ref())?)
    }

    /// Returns the graph inside a node. It ends with the node.
    fn cuGraphChildGraphNodeGetGraph[Started](hNode: CUgraphNode, phGraph: *mut CUgraph) {
        match &node(global, hNode)?.params {
            Params::Child(inner) => put(phGraph, ptr::without_provenance_mut(inner.handle as usize)),
            _ => Err(INVALID),
        }
    }

    /// Gives the graph inside a node of an executable graph the parameters of a graph of the same shape.
    fn cuGraphExecChildGraphNodeSetParams[Started](
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        childGraph: CUgraph,
    ) {
        change_ready(global, hGraphExec, hNode, containing(global, childGraph)?)
    }

    /// Returns the event that a node records.
    fn cuGraphEventRecordNodeGetEvent[Started](hNode: CUgraphNode, event_out: *mut CUevent) {
        match &node(global, hNode)?.params {
            Params::Record(event) => put(event_out, *event),
            _ => Err(INVALID),
        }
    }

    /// Sets the event that a node records.
    fn cuGraphEventRecordNodeSetEvent[Started](hNode: CUgraphNode, event: CUevent) {
        change(global, hNode, |_| recording(global, event))
    }

    /// Sets the event that a node of an executable graph records.
    fn cuGraphExecEventRecordNodeSetEvent[Started](hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent) {
        change_ready(global, hGraphExec, hNode, recording(global, event)?)
    }

    /// Returns the event that a node waits for.
    fn cuGraphEventWaitNodeGetEvent[Started](hNode: CUgraphNode, event_out: *mut CUevent) {
        match &node(global, hNode)?.params {
            Params::Wait(event) => put(event_out, *event),
            _ => Err(INVALID),
        }
    }

    /// Sets the event that a node waits for.
    fn cuGraphEventWaitNodeSetEvent[Started](hNode: CUgraphNode, event: CUevent) {
        change(global, hNode, |_| waiting(global, event))
    }

    /// Sets the event that a node of an executable graph waits for.
    fn cuGraphExecEventWaitNodeSetEvent[Started](hGraphExec: CUgraphExec, hNode: CUgraphNode, event: CUevent) {
        change_ready(global, hGraphExec, hNode, waiting(global, event)?)
    }

    /// Returns an allocation's parameters. The descriptors that they name end with the node.
    fn cuGraphMemAllocNodeGetParams[Started](hNode: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) {
        match &node(global, hNode)?.params {
            Params::Allocate(params, access) => {
                let accessDescs = if access.is_empty() { ptr::null() } else { access.as_ptr() };
                put(params_out, CUDA_MEM_ALLOC_NODE_PARAMS { accessDescs, ..*params })
            }
            _ => Err(INVALID),
        }
    }

    /// Returns the address that a node frees.
    fn cuGraphMemFreeNodeGetParams[Started](hNode: CUgraphNode, dptr_out: *mut CUdeviceptr) {
        match &node(global, hNode)?.params {
            Params::Free(address) => put(dptr_out, *address),
            _ => Err(INVALID),
        }
    }

    /// Gives an executable graph the parameters of a graph of the same shape.
    fn cuGraphExecUpdate[Locked](
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        hErrorNode_out: *mut CUgraphNode,
        updateResult_out: *mut CUgraphExecUpdateResult,
    ) {
        let mismatch = update(global, hGraphExec, hGraph)?;
        offer(hErrorNode_out, error_node(mismatch));
        put(updateResult_out, match mismatch {
            // Where nodes are missing, the first form answers otherwise than the second.
            Some(Mismatch { node: None, .. }) => CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED,
            mismatch => result(mismatch),
        })?;
        outcome(mismatch)
    }

    /// Gives an executable graph the parameters of a graph of the same shape.
    fn cuGraphExecUpdate_v2[Locked](
        hGraphExec: CUgraphExec,
        hGraph: CUgraph,
        resultInfo: *mut CUgraphExecUpdateResultInfo,
    ) {
        ensure(!resultInfo.is_null())?;
        let mismatch = update(global, hGraphExec, hGraph)?;
        let errorNode = error_node(mismatch);
        put(
            resultInfo,
            CUgraphExecUpdateResultInfo { result: result(mismatch), errorNode, errorFromNode: ptr::null_mut() },
        )?;
        outcome(mismatch)
    }

    /// Returns the flags with which an executable graph was made.
    fn cuGraphExecGetFlags[Started](hGraphExec: CUgraphExec, flags: *mut cuuint64_t) {
        put(flags, executable(global, hGraphExec)?.flags)
    }

    /// Switches a node of an executable graph off or on.
    fn cuGraphNodeSetEnabled[Started](hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: c_uint) {
        executable(global, hGraphExec)?.set_on(number(hNode)?, isEnabled != 0)
    }

    /// Returns whether a node of an executable graph is on.
    fn cuGraphNodeGetEnabled[Started](hGraphExec: CUgraphExec, hNode: CUgraphNode, isEnabled: *mut c_uint) {
        put(isEnabled, c_uint::from(executable(global, hGraphExec)?.is_on(number(hNode)?)?))
    }
}

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

pub(super) fn node(global: &Global, handle: CUgraphNode) -> Result<Arc<Node>> {
    Ok(Graph::of_node(global, handle.addr())?.1.node)
}

fn number(handle: CUgraphNode) -> Result<u64> {
    sequence_in(handle.addr()).ok_or(INVALID)
}

/// Gives a node other parameters, of the same kind.
pub(super) fn change(global: &Global, handle: CUgraphNode, state: impl FnOnce(&Graph) -> Result<Stated>) -> Result {
    let (graph, entry) = Graph::of_node(global, handle.addr())?;
    let (params, work) = state(&graph)?;
    ensure(entry.node.params.kind() == params.kind())?;
    graph.change(entry.node.sequence, params, work);
    Ok(())
}

/// Gives a node of an executable graph other parameters, of the same kind.
pub(super) fn change_ready(global: &Global, graph: CUgraphExec, node: CUgraphNode, (params, work): Stated) -> Result {
    executable(global, graph)?.change(number(node)?, params, work)
}

fn update(global: &Global, ready: CUgraphExec, graph: CUgraph) -> Result<Option<Mismatch>> {
    Ok(executable(global, ready)?.update(&*super::graph::find(global, graph)?)?.err())
}

fn result(mismatch: Option<Mismatch>) -> CUgraphExecUpdateResult {
    mismatch.map_or(CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS, |mismatch| mismatch.result)
}

fn error_node(mismatch: Option<Mismatch>) -> CUgraphNode {
    mismatch.and_then(|mismatch| mismatch.node).map_or(ptr::null_mut(), super::graph::node_handle)
}

fn outcome(mismatch: Option<Mismatch>) -> Result {
    mismatch.map_or(Ok(()), |_| Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE))
}
