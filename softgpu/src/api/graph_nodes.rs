//! Nodes of graphs: what a program adds.

use super::context::named_or_current;
use super::graph::{find, node_handle};
use super::graph_edges::dependencies;
use super::{copy, event, fill, stream};
use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::contexts::{Context, with_stack};
use crate::state::copies::Word;
use crate::state::graphs::{Allocated, Graph, Inner, Params, Work};
use crate::state::memory::GraphBlock;
use cuda_sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr,
    CUevent, CUgraph, CUgraphNode, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType,
    CUresult,
};
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Adds a copy of planes.
    fn cuGraphAddMemcpyNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        copyParams: *const CUDA_MEMCPY3D,
        ctx: CUcontext,
    ) {
        let context = named_or_current(global, ctx)?;
        let state = |_: &Graph| copying(global, copyParams.as_ref(), &context);
        add(global, phGraphNode, hGraph, dependencies, numDependencies, state)
    }

    /// Adds a fill.
    fn cuGraphAddMemsetNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        memsetParams: *const CUDA_MEMSET_NODE_PARAMS,
        ctx: CUcontext,
    ) {
        let context = named_or_current(global, ctx)?;
        let state = |_: &Graph| filling(global, memsetParams.as_ref(), &context);
        add(global, phGraphNode, hGraph, dependencies, numDependencies, state)
    }

    /// Adds a host function.
    fn cuGraphAddHostNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_HOST_NODE_PARAMS,
    ) {
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |_| calling(nodeParams.as_ref()))
    }

    /// Adds a copy of a whole graph, which must not hold memory of graphs.
    fn cuGraphAddChildGraphNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        childGraph: CUgraph,
    ) {
        ensure(hGraph != childGraph)?;
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |_| containing(global, childGraph))
    }

    /// Adds a node that does nothing.
    fn cuGraphAddEmptyNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
    ) {
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |_| Ok((Params::Empty, Work::plain(|| ()))))
    }

    /// Adds the recording of an event.
    fn cuGraphAddEventRecordNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) {
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |_| recording(global, event))
    }

    /// Adds a wait for an event.
    fn cuGraphAddEventWaitNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        event: CUevent,
    ) {
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |_| waiting(global, event))
    }

    /// Adds an allocation of a device's memory, or of managed memory there. The parameters receive the address.
    fn cuGraphAddMemAllocNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        let params = nodeParams.as_mut().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |_| allocating(global, params))
    }

    /// Adds a free of memory that a graph allocates. A graph frees a block once only.
    fn cuGraphAddMemFreeNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        dptr: CUdeviceptr,
    ) {
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |graph| freeing(global, graph, dptr))
    }

    /// Removes a node and its edges.
    fn cuGraphDestroyNode[Started](hNode: CUgraphNode) {
        let (graph, entry) = Graph::of_node(global, hNode.addr())?;
        graph.remove(global, entry.node.sequence)
    }
}

/// A node's parameters and the work that they state.
pub(super) type Stated = (Params, Work);

/// Adds a node to a graph.
///
/// # Safety
///
/// `out` is null or writable. The array is null or has `count` elements.
pub(super) unsafe fn add(
    global: &Global,
    out: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    state: impl FnOnce(&Graph) -> Result<Stated>,
) -> Result {
    ensure(!out.is_null())?;
    let graph = find(global, graph)?;
    // SAFETY: by this function's contract.
    let after = unsafe { dependencies(global, &graph, after, count) }?;
    let (params, work) = state(&graph)?;
    let node = graph.add(global, after, params, work);
    // SAFETY: as above.
    unsafe { put(out, node_handle(node)) }
}

pub(super) fn copying(global: &Global, params: Option<&CUDA_MEMCPY3D>, context: &Arc<Context>) -> Result<Stated> {
    // The checks of a copy are those of the current context.
    with_stack(global, |stack| stack.push(context.clone()));
    let planes = copy::planes(global, params);
    with_stack(global, Vec::pop);
    let params = Params::Copy(*params.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?);
    let mut pieces: Vec<_> = planes?.into_iter().map(|plane| plane.recorded()).collect();
    // A call may copy nothing, a node may not.
    ensure(!pieces.is_empty())?;
    let work = if pieces.len() == 1 { pieces.remove(0) } else { Work::all(pieces) };
    Ok((params, work))
}

pub(super) fn filling(global: &Global, params: Option<&CUDA_MEMSET_NODE_PARAMS>, context: &Context) -> Result<Stated> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let params = *params.ok_or(invalid)?;
    let word = match params.elementSize {
        1 => Word::Byte(params.value as u8),
        2 => Word::Half(params.value as u16),
        4 => Word::Full(params.value),
        _ => return Err(invalid),
    };
    let fill = fill::checked(global, context, params.dst, params.pitch, word, params.width, params.height)?;
    Ok((Params::Fill(params), fill.ok_or(invalid)?.recorded()))
}

pub(super) fn calling(params: Option<&CUDA_HOST_NODE_PARAMS>) -> Result<Stated> {
    let params = *params.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let function = params.fn_.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok((Params::Host(params), stream::host_work(function, params.userData)))
}

pub(super) fn containing(global: &Global, graph: CUgraph) -> Result<Stated> {
    let inner = Inner::of(global, &*find(global, graph)?)?;
    Ok((Params::Child(inner), Work::Inside))
}

pub(super) fn recording(global: &Global, event: CUevent) -> Result<Stated> {
    ensure(!event.is_null())?;
    Ok((Params::Record(event), Work::Record(event::find(global, event)?)))
}

pub(super) fn waiting(global: &Global, event: CUevent) -> Result<Stated> {
    ensure(!event.is_null())?;
    Ok((Params::Wait(event), Work::Wait(event::find(global, event)?)))
}

/// # Safety
///
/// The descriptors are null, or as many as the parameters say.
pub(super) unsafe fn allocating(global: &Global, params: &mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Result<Stated> {
    let (global, props) = (global, &params.poolProps);
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let managed = props.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    ensure(managed || props.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
    ensure(params.bytesize > 0 && (params.accessDescCount == 0 || !params.accessDescs.is_null()))?;
    // Memory of a graph is a device's, and cannot be shared with other processes.
    if props.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
        || props.handleTypes != CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
    {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let (device, _) = global.device(props.location.id).map_err(|_| invalid)?;
    // SAFETY: by this function's contract.
    let access = |place| unsafe { params.accessDescs.add(place).read() };
    let access: Box<[CUmemAccessDesc]> = (0..params.accessDescCount).map(access).collect();
    for wish in &access {
        ensure(wish.location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE)?;
        global.device(wish.location.id)?;
    }
    let block = GraphBlock::make(global, device, params.bytesize, managed)?;
    params.dptr = block.base;
    Ok((Params::Allocate(*params, access), Work::Allocate(Allocated(block))))
}

pub(super) fn freeing(global: &Global, graph: &Graph, address: CUdeviceptr) -> Result<Stated> {
    let block = global.memory.at(address).filter(|block| block.base == address);
    let block = block.and_then(|block| block.graph.clone()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    ensure(!graph.frees(&block))?;
    Ok((Params::Free(address), Work::Free(block)))
}
