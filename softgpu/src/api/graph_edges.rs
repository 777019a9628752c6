//! Edges of graphs. softgpu orders whole nodes, so the data of an edge is all zero.

use super::graph::{find, list};
use crate::call::{Result, driver_calls, ensure};
use crate::state::Global;
use crate::state::graphs::{Entry, Graph, sequence_in};
use cuda_sys::{CUgraph, CUgraphEdgeData, CUgraphNode, CUresult};
use std::sync::Arc;

driver_calls! {
    |global: &'static Global|

    /// Returns the nodes that come after no other.
    fn cuGraphGetRootNodes[Started](hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize) {
        let entries = find(global, hGraph)?.entries();
        let roots = entries.iter().filter(|entry| entry.after.is_empty()).map(number);
        list(&roots.collect::<Vec<_>>(), rootNodes, numRootNodes)
    }

    /// Returns a graph's edges.
    fn cuGraphGetEdges[Started](
        hGraph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        numEdges: *mut usize,
    ) {
        edges(global, hGraph, from, to, std::ptr::null_mut(), numEdges)
    }

    /// Returns a graph's edges and their data.
    fn cuGraphGetEdges_v2[Started](
        hGraph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numEdges: *mut usize,
    ) {
        edges(global, hGraph, from, to, edgeData, numEdges)
    }

    /// Returns the nodes directly before a node.
    fn cuGraphNodeGetDependencies[Started](
        hNode: CUgraphNode,
        dependencies: *mut CUgraphNode,
        numDependencies: *mut usize,
    ) {
        let (_, entry) = Graph::of_node(global, hNode.addr())?;
        list(&entry.after, dependencies, numDependencies)
    }

    /// Returns the nodes directly before a node, and the data of the edges.
    fn cuGraphNodeGetDependencies_v2[Started](
        hNode: CUgraphNode,
        dependencies: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numDependencies: *mut usize,
    ) {
        let (_, entry) = Graph::of_node(global, hNode.addr())?;
        list(&entry.after, dependencies, numDependencies)?;
        clear(edgeData, dependencies, numDependencies);
        Ok(())
    }

    /// Returns the nodes directly after a node.
    fn cuGraphNodeGetDependentNodes[Started](
        hNode: CUgraphNode,
        dependentNodes: *mut CUgraphNode,
        numDependentNodes: *mut usize,
    ) {
        list(&after(global, hNode)?, dependentNodes, numDependentNodes)
    }

    /// Returns the nodes directly after a node, and the data of the edges.
    fn cuGraphNodeGetDependentNodes_v2[Started](
        hNode: CUgraphNode,
        dependentNodes: *mut CUgraphNode,
        edgeData: *mut CUgraphEdgeData,
        numDependentNodes: *mut usize,
    ) {
        list(&after(global, hNode)?, dependentNodes, numDependentNodes)?;
        clear(edgeData, dependentNodes, numDependentNodes);
        Ok(())
    }

    /// Adds edges. A circle shows when the graph is instantiated.
    fn cuGraphAddDependencies[Started](
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        numDependencies: usize,
    ) {
        find(global, hGraph)?.connect(&pairs(from, to, numDependencies)?)
    }

    /// Adds edges without data.
    fn cuGraphAddDependencies_v2[Started](
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) {
        check_data(edgeData, numDependencies)?;
        find(global, hGraph)?.connect(&pairs(from, to, numDependencies)?)
    }

    /// Removes edges.
    fn cuGraphRemoveDependencies[Started](
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        numDependencies: usize,
    ) {
        find(global, hGraph)?.disconnect(&pairs(from, to, numDependencies)?)
    }

    /// Removes edges without data.
    fn cuGraphRemoveDependencies_v2[Started](
        hGraph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        edgeData: *const CUgraphEdgeData,
        numDependencies: usize,
    ) {
        check_data(edgeData, numDependencies)?;
        find(global, hGraph)?.disconnect(&pairs(from, to, numDependencies)?)
    }
}

fn number(entry: &Entry) -> u64 {
    entry.node.sequence
}

/// The nodes directly after a node.
fn after(global: &Global, node: CUgraphNode) -> Result<Vec<u64>> {
    let (graph, entry) = Graph::of_node(global, node.addr())?;
    let entries = graph.entries();
    Ok(entries.iter().filter(|other| other.after.contains(&number(&entry))).map(number).collect())
}

/// Returns a graph's edges.
///
/// # Safety
///
/// As for [`list`], for each array.
unsafe fn edges(
    global: &Global,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result {
    ensure(!count.is_null() && from.is_null() == to.is_null())?;
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for entry in find(global, graph)?.entries() {
        ends.extend(entry.after.iter().map(|_| number(&entry)));
        starts.extend(entry.after);
    }
    // SAFETY: by this function's contract.
    unsafe {
        let mut room = count.read();
        list(&starts, from, &mut room)?;
        list(&ends, to, count)?;
        clear(data, from, count);
    }
    Ok(())
}

/// Writes the data of edges that were listed: zeros.
///
/// # Safety
///
/// `data` is null, or as long as the list, whose length `count` has.
unsafe fn clear(data: *mut CUgraphEdgeData, listed: *mut CUgraphNode, count: *mut usize) {
    if !data.is_null() && !listed.is_null() {
        // SAFETY: by this function's contract.
        unsafe { (0..count.read()).for_each(|place| data.add(place).write(CUgraphEdgeData::default())) };
    }
}

/// Reads two arrays of nodes.
///
/// # Safety
///
/// The arrays are null or have `count` elements.
unsafe fn pairs(from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> Result<Vec<(u64, u64)>> {
    ensure(count == 0 || !from.is_null() && !to.is_null())?;
    let number = |node: CUgraphNode| sequence_in(node.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE);
    // SAFETY: by this function's contract.
    (0..count).map(|place| unsafe { Ok((number(from.add(place).read())?, number(to.add(place).read())?)) }).collect()
}

/// Refuses edges between parts of nodes.
///
/// # Safety
///
/// `data` is null or has `count` elements.
pub(super) unsafe fn check_data(data: *const CUgraphEdgeData, count: usize) -> Result {
    // SAFETY: by this function's contract.
    let is_plain = |place| unsafe { data.add(place).read() } == CUgraphEdgeData::default();
    ensure(data.is_null() || (0..count).all(is_plain))
}

/// The nodes before a new node of a graph.
///
/// # Safety
///
/// The array is null or has `count` elements.
pub(super) unsafe fn dependencies(
    global: &Global,
    graph: &Arc<Graph>,
    nodes: *const CUgraphNode,
    count: usize,
) -> Result<Vec<u64>> {
    ensure(count == 0 || !nodes.is_null())?;
    let (global, mut before) = (global, Vec::new());
    for place in 0..count {
        // SAFETY: by this function's contract.
        let (of, entry) = Graph::of_node(global, unsafe { nodes.add(place).read() }.addr())?;
        ensure(Arc::ptr_eq(&of, graph) && !before.contains(&number(&entry)))?;
        before.push(number(&entry));
    }
    Ok(before)
}
