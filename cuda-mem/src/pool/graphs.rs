//! Memory of graphs: what a pool allocates on a stream that another library captures.
//!
//! The memory belongs to the capture until no work of its graph can run any more. A free within the capture returns it
//! to later allocations of the same stream in the same capture, because recorded work keeps the stream's order. Nobody
//! else gets it before the graph has ended. The driver reports that end ([`Recording::at_end`]).

use super::names::NotedCounts;
use super::shared::{ALLOCATE, SharedPool};
use super::source::{UNKNOWN_TO_POOL, unknown_block};
use super::work_order::{OtherWork, Use, WorkOrder};
use crate::error::capture_errors::is_for_a_capture;
use crate::lifetime::drop_after_host_function;
use crate::memory::resource::Block;
use crate::stream::graph::Recording;
use crate::{Result, Stream};
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

/// A capture that has memory of a pool, and its graph.
#[derive(Debug)]
pub(super) struct CapturedGraph {
    /// The driver's number of the capture.
    id: u64,
    /// Set when no work of the graph can run any more.
    ended: AtomicBool,
}

impl CapturedGraph {
    pub fn new(id: u64) -> Self {
        Self { id, ended: AtomicBool::new(false) }
    }

    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// The graphs that have memory of a pool. The pool's lock guards them.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    known: Vec<Arc<CapturedGraph>>,
    /// The graphs of the blocks in use, by address.
    blocks: HashMap<u64, Arc<CapturedGraph>>,
}

impl Graphs {
    /// The numbers of the captures whose graphs have not ended.
    pub fn living(&self) -> Vec<u64> {
        self.known.iter().filter(|graph| !graph.has_ended()).map(|graph| graph.id).collect()
    }

    fn find(&self, id: u64) -> Option<Arc<CapturedGraph>> {
        self.known.iter().find(|graph| graph.id == id).cloned()
    }

    /// Adds a graph, unless another thread has added it meanwhile. Forgets those that have ended.
    fn add(&mut self, graph: Arc<CapturedGraph>) -> Arc<CapturedGraph> {
        self.known.retain(|known| !known.has_ended());
        self.find(graph.id).unwrap_or_else(|| {
            self.known.push(graph.clone());
            graph
        })
    }

    fn own(&mut self, address: u64, graph: Arc<CapturedGraph>, counts: &NotedCounts) {
        if self.blocks.insert(address, graph).is_none() {
            counts.add(address);
        }
    }

    /// The graph that a block in use belongs to.
    pub fn owner(&self, address: u64) -> Option<Arc<CapturedGraph>> {
        self.blocks.get(&address).cloned()
    }

    fn disown(&mut self, address: u64, counts: &NotedCounts) {
        if self.blocks.remove(&address).is_some() {
            counts.subtract(address);
        }
    }
}

impl SharedPool {
    /// Allocates memory of a capture of another library.
    #[cold]
    pub fn allocate_for_graph(self: &Arc<Self>, size: usize, bytes: usize, stream: &Stream) -> Result<Block> {
        let graph = {
            let Some(recording) = stream.recording(ALLOCATE)? else {
                // The capture has just ended.
                return self.allocate_from_heap(size, bytes, WorkOrder::of(stream));
            };
            self.graph_of(&recording)?
        };
        let block = self.allocate_from_heap(size, bytes, WorkOrder::recorded(stream, graph.clone()))?;
        self.state().graphs.own(block.device_pointer(), graph, &self.noted);
        Ok(block)
    }

    /// Frees a block that belongs to a graph.
    pub fn free_of_graph(
        self: &Arc<Self>,
        block: Block,
        bytes: usize,
        graph: Arc<CapturedGraph>,
        stream: &Stream,
        uses: Vec<OtherWork>,
    ) -> Result<()> {
        const CALL: &str = "Pool::deallocate";
        let free_within = match stream.recording(CALL) {
            Ok(Some(recording)) => Some(self.graph_of(&recording)?),
            Ok(None) => None,
            // No graph comes of that capture, or the stream's work is over.
            Err(error) if is_for_a_capture(&error) || error.is_teardown() => None,
            Err(error) => return Err(error),
        };
        let stream = if free_within.is_some() { stream } else { self.source.stream_of_free(stream)? };
        let order = match free_within {
            Some(other) if Arc::ptr_eq(&other, &graph) && uses.is_empty() => WorkOrder::recorded(stream, graph),
            // The work of both graphs may use the memory, and work that the stream did between the captures.
            other => {
                let graphs = other.into_iter().chain([graph]).map(OtherWork::Graph);
                WorkOrder::with_others(stream, graphs.chain(uses).collect())
            }
        };
        let mut state = self.state();
        if !state.heap.free(block.device_pointer(), &order) {
            return Err(unknown_block(CALL, block, UNKNOWN_TO_POOL));
        }
        state.graphs.disown(block.device_pointer(), &self.noted);
        state.tally.freed(block.size(), bytes);
        Ok(())
    }

    /// What uses a block if work of this stream does, during a call that names the stream: the stream, and the graph of the
    /// capture that records its work now.
    pub fn uses_by(self: &Arc<Self>, call: &'static str, stream: &Stream) -> Result<Vec<OtherWork>> {
        let graph = match stream.recording(call) {
            Ok(recording) => recording.map(|recording| self.graph_of(&recording)).transpose()?,
            // No graph comes of that capture, or this crate has its own rules for what the graph uses.
            Err(error) if is_for_a_capture(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(graph.map(OtherWork::Graph).into_iter().chain([OtherWork::Use(Use::by(stream))]).collect())
    }

    /// The graph of a capture. Until it ends, it keeps the pool.
    fn graph_of(self: &Arc<Self>, recording: &Recording<'_>) -> Result<Arc<CapturedGraph>> {
        if let Some(graph) = self.state().graphs.find(recording.id) {
            return Ok(graph);
        }
        let graph = Arc::new(CapturedGraph::new(recording.id));
        let (pool, ended) = (self.clone(), graph.clone());
        recording.at_end(move || {
            let last = Arc::into_inner(pool);
            // Who sees the end of the graph also finds that it keeps the pool no longer.
            ended.end();
            if let Some(last) = last {
                drop_after_host_function(last);
            }
        })?;
        Ok(self.state().graphs.add(graph))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_has_one_graph_until_it_ends() {
        let (mut graphs, counts) = (Graphs::default(), NotedCounts::new());
        let first = graphs.add(Arc::new(CapturedGraph::new(7)));
        assert!(Arc::ptr_eq(&first, &graphs.add(Arc::new(CapturedGraph::new(7)))), "two threads noted one capture");
        graphs.own(0x1000, first.clone(), &counts);
        assert!(counts.may_count(0x1000) && graphs.owner(0x1000).is_some_and(|owner| Arc::ptr_eq(&owner, &first)));
        first.end();
        graphs.add(Arc::new(CapturedGraph::new(8)));
        assert!(graphs.find(7).is_none() && graphs.owner(0x1000).is_some(), "the block is still in use");
        graphs.disown(0x1000, &counts);
        graphs.disown(0x1000, &counts);
        assert!(graphs.owner(0x1000).is_none() && !counts.may_count(0x1000));
    }
}
