//! Nodes of graphs in one form for all kinds, and graphs as pictures.

use super::graph::find;
use super::graph_kernels::{CopyParams, FillParams, NodeParams, of_kind};
use super::graph_params::{change, change_ready, node};
use crate::call::{Result, driver_calls, ensure};
use crate::state::Global;
use crate::state::graphs::{Graph, Node, Params, Work};
use cuda_sys::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUcontext, CUgraph, CUgraphExec, CUgraphNode,
    CUgraphNodeParams_st, CUgraphNodeType, CUlaunchAttributeID, CUlaunchAttributeValue_union, CUresult,
};
use std::ffi::{CStr, OsStr, c_char, c_uint};
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Returns the parameters of a node of any kind. What they point to ends with the node.
    fn cuGraphNodeGetParams[Started](hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams_st) {
        ensure(!nodeParams.is_null())?;
        let (graph, entry) = Graph::of_node(global, hNode.addr())?;
        nodeParams.cast::<NodeParams>().write(shown(&graph, &entry.node)?);
        Ok(())
    }

    /// Sets the parameters of a node of any kind. Those of memory and of conditions stay.
    fn cuGraphNodeSetParams[Started](hNode: CUgraphNode, nodeParams: *mut CUgraphNodeParams_st) {
        let params = nodeParams.cast::<NodeParams>().as_mut().ok_or(INVALID)?;
        check_changes(params.kind)?;
        change(global, hNode, |graph| of_kind(global, graph, params))
    }

    /// Sets the parameters of a node of any kind in an executable graph. Those of memory and of conditions stay.
    fn cuGraphExecNodeSetParams[Started](
        hGraphExec: CUgraphExec,
        hNode: CUgraphNode,
        nodeParams: *mut CUgraphNodeParams_st,
    ) {
        let params = nodeParams.cast::<NodeParams>().as_mut().ok_or(INVALID)?;
        check_changes(params.kind)?;
        let (graph, _) = Graph::of_node(global, hNode.addr())?;
        change_ready(global, hGraphExec, hNode, of_kind(global, &graph, params)?)
    }

    /// Returns an attribute of a launch; zeros if it was not set.
    fn cuGraphKernelNodeGetAttribute[Started](
        hNode: CUgraphNode,
        attr: CUlaunchAttributeID,
        value_out: *mut CUlaunchAttributeValue_union,
    ) {
        ensure(!value_out.is_null() && has(attr))?;
        let attributes = launching(global, hNode)?.attributes();
        // The values of all these attributes have at most 32 bytes, and the union had no more at first.
        value_out.cast::<[u64; 4]>().write(attributes.get(&attr.0).copied().unwrap_or_default());
        Ok(())
    }

    /// Sets an attribute of a launch, which has no effect.
    fn cuGraphKernelNodeSetAttribute[Started](
        hNode: CUgraphNode,
        attr: CUlaunchAttributeID,
        value: *const CUlaunchAttributeValue_union,
    ) {
        ensure(!value.is_null() && has(attr))?;
        let value = value.cast::<[u64; 4]>().read();
        launching(global, hNode)?.set_attribute(attr.0, value);
        Ok(())
    }

    /// Gives a launch the attributes of another one, and no others.
    fn cuGraphKernelNodeCopyAttributes[Started](dst: CUgraphNode, src: CUgraphNode) {
        let attributes = launching(global, src)?.attributes();
        launching(global, dst)?.replace_attributes(attributes);
        Ok(())
    }

    /// Writes the nodes and the edges of a graph as text for Graphviz. The flags, which add details, have no effect.
    fn cuGraphDebugDotPrint[Started](hGraph: CUgraph, path: *const c_char, flags: c_uint) {
        ensure(!path.is_null())?;
        let graph = find(global, hGraph)?;
        let mut text = "digraph graph_1 {\n".to_owned();
        // Writing to a String cannot fail.
        let _ = draw(&graph, &mut text);
        text.push_str("}\n");
        let path = OsStr::from_bytes(CStr::from_ptr(path).to_bytes());
        std::fs::write(path, text).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }
}

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Whether a node of a graph has an attribute.
fn has(attribute: CUlaunchAttributeID) -> bool {
    use CUlaunchAttributeID as A;
    matches!(
        attribute,
        A::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
            | A::CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            | A::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            | A::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | A::CU_LAUNCH_ATTRIBUTE_PRIORITY
            | A::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP
            | A::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN
    )
}

/// A node that launches a kernel.
fn launching(global: &Global, handle: CUgraphNode) -> Result<Arc<Node>> {
    let node = node(global, handle)?;
    ensure(matches!(node.params, Params::Kernel(_)))?;
    Ok(node)
}

fn check_changes(kind: CUgraphNodeType) -> Result {
    use CUgraphNodeType as T;
    match kind {
        T::CU_GRAPH_NODE_TYPE_CONDITIONAL | T::CU_GRAPH_NODE_TYPE_MEM_ALLOC | T::CU_GRAPH_NODE_TYPE_MEM_FREE => {
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Ok(()),
    }
}

/// The parameters of a node as the program sees them.
fn shown(graph: &Graph, node: &Node) -> Result<NodeParams> {
    let mut params = NodeParams::new(node.params.kind());
    let context: CUcontext = ptr::without_provenance_mut(graph.context.handle as usize);
    match &node.params {
        Params::Kernel(kernel) => write(&mut params, kernel.shown()),
        Params::Copy(copy) => write(&mut params, CopyParams { flags: 0, reserved: 0, context, copy: *copy }),
        Params::Fill(fill) => write(&mut params, FillParams { fill: *fill, context }),
        Params::Host(host) => write(&mut params, *host),
        Params::Child(inner) => write(&mut params, inner.handle),
        Params::Record(event) | Params::Wait(event) => write(&mut params, *event),
        Params::Allocate(about, access) => {
            let list = if access.is_empty() { ptr::null() } else { access.as_ptr() };
            write(&mut params, CUDA_MEM_ALLOC_NODE_PARAMS { accessDescs: list, ..*about });
        }
        Params::Free(address) => write(&mut params, *address),
        Params::Conditional(bodies) => {
            let Work::If(condition, type_) = &*node.work else { return Err(INVALID) };
            let (handle, size, type_) = (condition.handle, bodies.shown.len() as c_uint, *type_);
            let graphs = bodies.shown.as_ptr().cast_mut();
            write(&mut params, CUDA_CONDITIONAL_NODE_PARAMS { handle, type_, size, phGraph_out: graphs, ctx: context });
        }
        Params::Empty => {}
        Params::Signal | Params::WaitForSignal | Params::Word => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
    Ok(params)
}

fn write<T>(params: &mut NodeParams, of_kind: T) {
    const { assert!(size_of::<T>() <= size_of::<[u64; 29]>() && align_of::<T>() <= align_of::<u64>()) };
    // SAFETY: the words have room for the value, as the line above states.
    unsafe { params.words.as_mut_ptr().cast::<T>().write(of_kind) };
}

/// Writes the nodes of a graph, its edges, and the graphs inside its nodes.
fn draw(graph: &Graph, out: &mut String) -> fmt::Result {
    for entry in graph.entries() {
        let (node, params) = (entry.node.sequence, &entry.node.params);
        writeln!(out, "  \"{node}\" [label=\"{} {node}\"];", name(params.kind()))?;
        for before in &entry.after {
            writeln!(out, "  \"{before}\" -> \"{node}\";")?;
        }
        let inside = match params {
            Params::Child(inner) => std::slice::from_ref(inner),
            Params::Conditional(bodies) => &bodies.graphs,
            _ => &[],
        };
        for (number, inner) in inside.iter().enumerate() {
            writeln!(out, "  subgraph \"cluster_{node}_{number}\" {{\n  label=\"{node}, graph {number}\";")?;
            draw(&inner.graph, out)?;
            writeln!(out, "  }}")?;
        }
    }
    Ok(())
}

fn name(kind: CUgraphNodeType) -> &'static str {
    use CUgraphNodeType as T;
    match kind {
        T::CU_GRAPH_NODE_TYPE_KERNEL => "KERNEL",
        T::CU_GRAPH_NODE_TYPE_MEMCPY => "MEMCPY",
        T::CU_GRAPH_NODE_TYPE_MEMSET => "MEMSET",
        T::CU_GRAPH_NODE_TYPE_HOST => "HOST",
        T::CU_GRAPH_NODE_TYPE_GRAPH => "GRAPH",
        T::CU_GRAPH_NODE_TYPE_EMPTY => "EMPTY",
        T::CU_GRAPH_NODE_TYPE_WAIT_EVENT => "WAIT_EVENT",
        T::CU_GRAPH_NODE_TYPE_EVENT_RECORD => "EVENT_RECORD",
        T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL => "EXT_SEMAS_SIGNAL",
        T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => "EXT_SEMAS_WAIT",
        T::CU_GRAPH_NODE_TYPE_MEM_ALLOC => "MEM_ALLOC",
        T::CU_GRAPH_NODE_TYPE_MEM_FREE => "MEM_FREE",
        T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => "BATCH_MEM_OP",
        T::CU_GRAPH_NODE_TYPE_CONDITIONAL => "CONDITIONAL",
        _ => "OTHER",
    }
}
