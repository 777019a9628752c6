//! Nodes of graphs that launch kernels, conditional nodes, and nodes of any kind.

use super::context::named_or_current;
use super::graph::find;
use super::graph_edges::check_data;
use super::graph_nodes::{Stated, add, allocating, calling, containing, copying, filling, freeing, recording, waiting};
use super::graph_params::{change, change_ready, node};
use super::launch;
use crate::call::{Result, driver_calls, ensure, put};
use crate::state::Global;
use crate::state::contexts::Context;
use crate::state::graphs::{Bodies, Condition, Graph, KernelParams, Params, Work};
use crate::state::kernels::Launch;
use crate::state::modules::Shape;
use cuda_sys::{
    CU_GRAPH_COND_ASSIGN_DEFAULT, CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v2,
    CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdeviceptr, CUevent, CUgraph,
    CUgraphConditionalHandle, CUgraphConditionalNodeType, CUgraphEdgeData, CUgraphExec, CUgraphNode,
    CUgraphNodeParams_st, CUgraphNodeType, CUresult,
};
use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Adds a launch.
    fn cuGraphAddKernelNode_v2[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v2,
    ) {
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |_| launching(global, nodeParams.as_ref()))
    }

    /// Returns a launch's parameters. The arguments that they name end with the node.
    fn cuGraphKernelNodeGetParams_v2[Started](hNode: CUgraphNode, nodeParams: *mut CUDA_KERNEL_NODE_PARAMS_v2) {
        match &node(global, hNode)?.params {
            Params::Kernel(kernel) => put(nodeParams, kernel.shown()),
            _ => Err(INVALID),
        }
    }

    /// Sets a launch's parameters.
    fn cuGraphKernelNodeSetParams_v2[Started](hNode: CUgraphNode, nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        change(global, hNode, |_| launching(global, nodeParams.as_ref()))
    }

    /// Sets a launch's parameters in an executable graph.
    fn cuGraphExecKernelNodeSetParams_v2[Started](
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *const CUDA_KERNEL_NODE_PARAMS_v2,
    ) {
        change_ready(global, hGraphExec, hNode, launching(global, nodeParams.as_ref())?)
    }

    /// Makes a value for one conditional node of a graph.
    fn cuGraphConditionalHandleCreate[Started](
        pHandle_out: *mut CUgraphConditionalHandle,
        hGraph: CUgraph,
        ctx: CUcontext,
        defaultLaunchValue: c_uint,
        flags: c_uint,
    ) {
        ensure(!pHandle_out.is_null() && flags <= CU_GRAPH_COND_ASSIGN_DEFAULT)?;
        let graph = find(global, hGraph)?;
        named(global, ctx)?;
        let condition = Condition::make(global, defaultLaunchValue, flags == CU_GRAPH_COND_ASSIGN_DEFAULT);
        put(pHandle_out, condition.handle)?;
        graph.add_condition(condition);
        Ok(())
    }

    /// Adds a node of any kind.
    fn cuGraphAddNode[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams_st,
    ) {
        let params = nodeParams.cast::<NodeParams>().as_mut().ok_or(INVALID)?;
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |graph| of_kind(global, graph, params))
    }

    /// As cuGraphAddNode. No edge may have data.
    fn cuGraphAddNode_v2[Started](
        phGraphNode: *mut CUgraphNode,
        hGraph: CUgraph,
        dependencies: *const CUgraphNode,
        dependencyData: *const CUgraphEdgeData,
        numDependencies: usize,
        nodeParams: *mut CUgraphNodeParams_st,
    ) {
        check_data(dependencyData, numDependencies)?;
        let params = nodeParams.cast::<NodeParams>().as_mut().ok_or(INVALID)?;
        add(global, phGraphNode, hGraph, dependencies, numDependencies, |graph| of_kind(global, graph, params))
    }
}

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// The parameters of a node of any kind, as all releases lay them out.
#[repr(C)]
pub(super) struct NodeParams {
    pub(super) kind: CUgraphNodeType,
    reserved: [c_int; 3],
    /// The parameters of the kind.
    pub(super) words: [u64; 29],
    reserved_too: u64,
}

impl NodeParams {
    /// Parameters of a kind, all zero.
    pub(super) fn new(kind: CUgraphNodeType) -> Self {
        Self { kind, reserved: [0; 3], words: [0; 29], reserved_too: 0 }
    }
}

/// A copy's parameters in [`NodeParams`].
#[repr(C)]
pub(super) struct CopyParams {
    pub(super) flags: c_int,
    pub(super) reserved: c_int,
    pub(super) context: CUcontext,
    pub(super) copy: CUDA_MEMCPY3D,
}

/// A fill's parameters in [`NodeParams`].
#[repr(C)]
pub(super) struct FillParams {
    pub(super) fill: CUDA_MEMSET_NODE_PARAMS,
    pub(super) context: CUcontext,
}

/// What a node of a kind does.
///
/// # Safety
///
/// The parameters are those of the kind.
pub(super) unsafe fn of_kind(global: &Global, graph: &Graph, params: &mut NodeParams) -> Result<Stated> {
    use CUgraphNodeType as T;
    let words = params.words.as_mut_ptr();
    // SAFETY: by this function's contract; all kinds' parameters are shorter than the words, and aligned as they are.
    unsafe {
        match params.kind {
            T::CU_GRAPH_NODE_TYPE_KERNEL => launching(global, words.cast::<CUDA_KERNEL_NODE_PARAMS_v2>().as_ref()),
            T::CU_GRAPH_NODE_TYPE_MEMCPY => {
                let copy = &*words.cast::<CopyParams>();
                copying(global, Some(&copy.copy), &named_or_current(global, copy.context)?)
            }
            T::CU_GRAPH_NODE_TYPE_MEMSET => {
                let fill = &*words.cast::<FillParams>();
                filling(global, Some(&fill.fill), &*named_or_current(global, fill.context)?)
            }
            T::CU_GRAPH_NODE_TYPE_HOST => calling(words.cast::<CUDA_HOST_NODE_PARAMS>().as_ref()),
            T::CU_GRAPH_NODE_TYPE_GRAPH => containing(global, words.cast::<CUgraph>().read()),
            T::CU_GRAPH_NODE_TYPE_EMPTY => Ok((Params::Empty, Work::plain(|| ()))),
            T::CU_GRAPH_NODE_TYPE_WAIT_EVENT => waiting(global, words.cast::<CUevent>().read()),
            T::CU_GRAPH_NODE_TYPE_EVENT_RECORD => recording(global, words.cast::<CUevent>().read()),
            T::CU_GRAPH_NODE_TYPE_MEM_ALLOC => allocating(global, &mut *words.cast::<CUDA_MEM_ALLOC_NODE_PARAMS>()),
            T::CU_GRAPH_NODE_TYPE_MEM_FREE => freeing(global, graph, words.cast::<CUdeviceptr>().read()),
            T::CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                deciding(global, graph, &mut *words.cast::<CUDA_CONDITIONAL_NODE_PARAMS>())
            }
            T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
            | T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT
            | T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => Err(INVALID),
        }
    }
}

/// # Safety
///
/// The arguments are as for a launch.
unsafe fn launching(global: &Global, params: Option<&CUDA_KERNEL_NODE_PARAMS_v2>) -> Result<Stated> {
    let params = params.ok_or(INVALID)?;
    let function = if params.func.is_null() {
        let kernel = global.kernels.get(params.kern.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let handle = kernel.function(global, &named_or_current(global, params.ctx)?)?;
        global.functions.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?
    } else {
        launch::find(global, params.func)?
    };
    let shape = Shape {
        grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
        block: [params.blockDimX, params.blockDimY, params.blockDimZ],
        shared: params.sharedMemBytes,
    };
    // SAFETY: by this function's contract.
    let arguments = unsafe { launch::arguments(global, function.signature(), params.kernelParams, params.extra) }?;
    let arguments = Arc::new(arguments);
    let launch = Launch::new(global, &function, shape, arguments.clone())?;
    Ok((Params::Kernel(KernelParams::new(*params, &arguments)), launch.recorded()))
}

/// The most graphs of a conditional node.
const MOST_BODIES: u32 = 1 << 16;

/// The context that a condition or its node names. Neither stands for the current one.
fn named(global: &Global, context: CUcontext) -> Result<Arc<Context>> {
    if context.is_null() { Err(CUresult::CUDA_ERROR_INVALID_CONTEXT) } else { global.context(context) }
}

/// A conditional node. The parameters receive its graphs, which the program fills.
fn deciding(global: &Global, graph: &Graph, params: &mut CUDA_CONDITIONAL_NODE_PARAMS) -> Result<Stated> {
    use CUgraphConditionalNodeType as T;
    ensure(match params.type_ {
        T::CU_GRAPH_COND_TYPE_IF => (1..=2).contains(&params.size),
        T::CU_GRAPH_COND_TYPE_WHILE => params.size == 1,
        T::CU_GRAPH_COND_TYPE_SWITCH => params.size > 0,
        _ => false,
    })?;
    // The driver's own limit is not known.
    ensure(params.size <= MOST_BODIES).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let context = named(global, params.ctx)?;
    let condition = graph.condition(params.handle).ok_or(INVALID)?;
    ensure(!graph.reads(&condition))?;
    let graphs: Vec<_> = (0..params.size).map(|_| Graph::body(global, &context)).collect();
    let shown: Box<[CUgraph]> = graphs.iter().map(|body| ptr::without_provenance_mut(body.handle as usize)).collect();
    params.phGraph_out = shown.as_ptr().cast_mut();
    Ok((Params::Conditional(Bodies { graphs, shown }), Work::If(condition, params.type_)))
}
