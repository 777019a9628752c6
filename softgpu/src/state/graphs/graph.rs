//! Graphs: work that was captured from streams or stated node by node, and that each launch does again.

use super::condition::Condition;
use super::node::{Node, Params, Work, sequence_in};
use super::user_object::Shares;
use crate::call::{Result, ensure};
use crate::state::Global;
use crate::state::contexts::Context;
use crate::state::handle::next_sequence;
use crate::state::memory::GraphBlock;
use crate::sync::lock;
use cuda_sys::CUresult;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

/// The graph of each node, by the node's number.
pub(crate) type GraphOfNode = Mutex<HashMap<u64, Weak<Graph>>>;

/// A node and its place in a graph.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) node: Arc<Node>,
    /// The numbers of the nodes directly before it.
    pub(crate) after: Vec<u64>,
    /// The number of the node of which it is a copy.
    original: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    /// Whether the graph belongs to a node.
    pub(crate) is_inner: bool,
    /// In the order in which they were added.
    entries: Mutex<Vec<Entry>>,
    pub(crate) user_objects: Shares,
    /// Whether the graph has a live executable graph. Used only for graphs that allocate or free memory.
    pub(super) instantiated: Arc<AtomicBool>,
    /// The conditions that were made for it.
    conditions: Mutex<Vec<Arc<Condition>>>,
}

impl Graph {
    /// An empty graph and its handle.
    pub(crate) fn make(global: &Global, context: &Arc<Context>) -> (u64, Arc<Self>) {
        Self::with(global, context, Vec::new(), Shares::default(), false)
    }

    /// An empty graph that belongs to a node.
    pub(crate) fn body(global: &Global, context: &Arc<Context>) -> Inner {
        let (handle, graph) = Self::with(global, context, Vec::new(), Shares::default(), true);
        Inner { handle, graph }
    }

    pub(crate) fn add_condition(&self, condition: Arc<Condition>) {
        lock(&self.conditions).push(condition);
    }

    /// A condition of this graph by its handle.
    pub(crate) fn condition(&self, handle: u64) -> Option<Arc<Condition>> {
        lock(&self.conditions).iter().find(|condition| condition.handle == handle).cloned()
    }

    /// Whether a node of this graph reads a condition.
    pub(crate) fn reads(&self, condition: &Arc<Condition>) -> bool {
        let reads = |entry: &Entry| matches!(&*entry.node.work, Work::If(other, _) if Arc::ptr_eq(other, condition));
        lock(&self.entries).iter().any(reads)
    }

    /// Whether no node reads one of its conditions.
    pub(super) fn has_unused_condition(&self) -> bool {
        let conditions = lock(&self.conditions).clone();
        conditions.iter().any(|condition| !self.reads(condition))
    }

    fn with(
        global: &Global,
        context: &Arc<Context>,
        entries: Vec<Entry>,
        user_objects: Shares,
        is_inner: bool,
    ) -> (u64, Arc<Self>) {
        let sequence = next_sequence();
        let numbers: Vec<_> = entries.iter().map(|entry| entry.node.sequence).collect();
        let graph = Self {
            sequence,
            context: context.clone(),
            is_inner,
            entries: Mutex::new(entries),
            user_objects,
            instantiated: Arc::default(),
            conditions: Mutex::default(),
        };
        let (handle, graph) = global.graphs.insert(sequence, graph);
        lock(&global.graph_of_node).extend(numbers.into_iter().map(|number| (number, Arc::downgrade(&graph))));
        (handle, graph)
    }

    /// Adds a node after others of this graph. Returns its number.
    pub(crate) fn add(self: &Arc<Self>, global: &Global, after: Vec<u64>, params: Params, work: Work) -> u64 {
        let node = Node::new(params, work);
        let sequence = node.sequence;
        lock(&self.entries).push(Entry { node, after, original: None });
        lock(&global.graph_of_node).insert(sequence, Arc::downgrade(self));
        sequence
    }

    /// The graph of a node, and the node.
    pub(crate) fn of_node(global: &Global, handle: usize) -> Result<(Arc<Self>, Entry)> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let sequence = sequence_in(handle).ok_or(invalid)?;
        let graph = lock(&global.graph_of_node).get(&sequence).and_then(Weak::upgrade).ok_or(invalid)?;
        let entry = graph.entry(sequence).ok_or(invalid)?;
        Ok((graph, entry))
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        lock(&self.entries).clone()
    }

    fn entry(&self, sequence: u64) -> Option<Entry> {
        lock(&self.entries).iter().find(|entry| entry.node.sequence == sequence).cloned()
    }

    /// Gives a node of this graph other parameters.
    pub(crate) fn change(&self, sequence: u64, params: Params, work: Work) {
        if let Some(entry) = lock(&self.entries).iter_mut().find(|entry| entry.node.sequence == sequence) {
            entry.node = entry.node.changed(params, work);
        }
    }

    /// Removes a node with its edges. No node of a graph with nodes of memory can be removed.
    pub(crate) fn remove(&self, global: &Global, sequence: u64) -> Result {
        let mut entries = lock(&self.entries);
        let place = entries.iter().position(|entry| entry.node.sequence == sequence);
        let place = place.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        check_without_memory(&entries)?;
        let gone = entries.remove(place);
        entries.iter_mut().for_each(|entry| entry.after.retain(|before| *before != sequence));
        drop(entries);
        lock(&global.graph_of_node).remove(&sequence);
        drop(gone);
        Ok(())
    }

    /// Adds edges, all or none. An edge that is there already is refused.
    pub(crate) fn connect(&self, edges: &[(u64, u64)]) -> Result {
        self.change_edges(edges, |after, from| {
            ensure(!after.contains(&from))?;
            after.push(from);
            Ok(())
        })
    }

    /// Removes edges, all or none. No edge of a graph with nodes of memory can be removed.
    pub(crate) fn disconnect(&self, edges: &[(u64, u64)]) -> Result {
        check_without_memory(&lock(&self.entries))?;
        self.change_edges(edges, |after, from| {
            ensure(after.contains(&from))?;
            after.retain(|before| *before != from);
            Ok(())
        })
    }

    fn change_edges(&self, edges: &[(u64, u64)], change: impl Fn(&mut Vec<u64>, u64) -> Result) -> Result {
        let mut entries = lock(&self.entries);
        let mut changed = entries.clone();
        let is_here: HashSet<_> = entries.iter().map(|entry| entry.node.sequence).collect();
        for (from, to) in edges {
            ensure(from != to && is_here.contains(from))?;
            let entry = changed.iter_mut().find(|entry| entry.node.sequence == *to);
            change(&mut entry.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.after, *from)?;
        }
        *entries = changed;
        Ok(())
    }

    pub(crate) fn frees(&self, block: &Arc<GraphBlock>) -> bool {
        let is_free = |entry: &Entry| matches!(&*entry.node.work, Work::Free(freed) if Arc::ptr_eq(freed, block));
        lock(&self.entries).iter().any(is_free)
    }

    /// The nodes, each after those before it; the oldest first where the order is free. Fails if edges form a circle.
    pub(super) fn ordered(&self) -> Result<Vec<Entry>> {
        let (mut left, mut done, mut ordered) = (self.entries(), HashSet::new(), Vec::new());
        while !left.is_empty() {
            let before = ordered.len();
            left.retain(|entry| {
                let is_ready = entry.after.iter().all(|before| done.contains(before));
                if is_ready {
                    done.insert(entry.node.sequence);
                    ordered.push(entry.clone());
                }
                !is_ready
            });
            ensure(ordered.len() > before)?;
        }
        Ok(ordered)
    }

    /// Whether edges form a circle.
    pub(crate) fn is_circle(&self) -> bool {
        self.ordered().is_err()
    }

    /// A copy of the graph and of the graphs inside it, and its handle. Memory of graphs cannot be copied.
    pub(crate) fn copy(&self, global: &Global, is_inner: bool) -> Result<(u64, Arc<Self>)> {
        let (entries, mut numbers) = (self.entries(), HashMap::new());
        let mut copies = Vec::new();
        for entry in entries {
            let node = entry.node.copy().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
            numbers.insert(entry.node.sequence, node.sequence);
            copies.push(Entry { original: Some(entry.node.sequence), node, after: entry.after });
        }
        for copy in &mut copies {
            copy.after = copy.after.iter().filter_map(|before| numbers.get(before).copied()).collect();
        }
        Ok(Self::with(global, &self.context, copies, self.user_objects.copy()?, is_inner))
    }

    /// The copy of a node, if this graph is a copy of the node's graph.
    pub(crate) fn copy_of(&self, original: u64) -> Option<u64> {
        let entries = lock(&self.entries);
        entries.iter().find(|entry| entry.original == Some(original)).map(|entry| entry.node.sequence)
    }
}

/// Fails for a graph that allocates or frees memory.
fn check_without_memory(entries: &[Entry]) -> Result {
    let of_memory = entries.iter().any(|entry| entry.node.work.is_of_memory());
    if of_memory { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { Ok(()) }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(global) = Global::get() {
            let mut graphs = lock(&global.graph_of_node);
            for entry in self.entries.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner) {
                graphs.remove(&entry.node.sequence);
            }
        }
    }
}

/// A graph that belongs to a node, and ends with it.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) handle: u64,
    pub(crate) graph: Arc<Graph>,
}

impl Inner {
    /// A copy of a graph, for a node.
    pub(crate) fn of(global: &Global, graph: &Graph) -> Result<Self> {
        let (handle, graph) = graph.copy(global, true)?;
        Ok(Self { handle, graph })
    }

    pub(super) fn copy(&self) -> Result<Self> {
        Self::of(Global::get()?, &self.graph)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(global) = Global::get() {
            global.graphs.remove(self.handle);
        }
    }
}
