//! Graphs: work that was captured from streams, and that each launch does again.

use super::Global;
use super::capture;
use super::context::Context;
use super::graph_memory::GraphBlock;
use super::handle::{handle_of, next_sequence};
use super::memory::{Range, RangeOfLaunch};
use super::queue::Point;
use super::races::{self, Moment};
use super::stream::Stream;
use super::sync::lock;
use crate::call::{Result, ensure};
use crate::misuse::{Misuse, report};
use cuda_sys::{CUgraphInstantiate_flags, CUresult};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) type Run = Box<dyn FnOnce() + Send>;

/// Prepares one run on a stream. Fails if memory that it uses is gone.
type Ready = dyn Fn(&Stream) -> Result<Run> + Send + Sync;

/// The work of a node.
pub(crate) enum Work {
    /// Work that each launch does.
    Again(Box<Ready>),
    Allocate(Allocated),
    Free(Arc<GraphBlock>),
}

/// A block that a graph allocates. Its address ends with the node.
pub(crate) struct Allocated(pub(crate) Arc<GraphBlock>);

impl Drop for Allocated {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Work {
    /// Work that holds no memory.
    pub(crate) fn plain(run: impl Fn() + Send + Sync + 'static) -> Self {
        let run = Arc::new(run);
        Self::Again(Box::new(move |_| {
            let run = run.clone();
            Ok(Box::new(move || run()))
        }))
    }

    /// Work on a range of memory. Each launch looks up the range again.
    pub(crate) fn on(range: &Range, run: impl Fn(&Range) + Send + Sync + 'static) -> Self {
        let (range, run) = (RangeOfLaunch::new(range), Arc::new(run));
        Self::Again(Box::new(move |_| {
            let (range, run) = (range.find()?, run.clone());
            Ok(Box::new(move || run(&range)))
        }))
    }

    fn is_of_memory(&self) -> bool {
        !matches!(self, Work::Again(_))
    }
}

/// The kind in the handles of nodes.
const NODE: u64 = 14;

pub(crate) struct Node {
    /// The number in its handle. No call looks up a node by its handle.
    pub(crate) sequence: u64,
    /// The indices of the nodes before it, which are all smaller than its own.
    pub(crate) after: Vec<usize>,
    work: Work,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("sequence", &self.sequence).field("after", &self.after).finish_non_exhaustive()
    }
}

impl Node {
    pub(crate) fn handle(&self) -> usize {
        handle_of(NODE, self.sequence) as usize
    }
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    nodes: Mutex<Vec<Arc<Node>>>,
    /// Whether the graph has a live executable graph. Used only for graphs that allocate or free memory.
    instantiated: Arc<AtomicBool>,
}

impl Graph {
    /// An empty graph and its handle.
    pub(crate) fn make(global: &Global, context: &Arc<Context>) -> (u64, Arc<Self>) {
        let sequence = next_sequence();
        let graph = Self { sequence, context: context.clone(), nodes: Mutex::default(), instantiated: Arc::default() };
        global.graphs.insert(sequence, graph)
    }

    /// Returns the node's index.
    pub(super) fn add(&self, after: Vec<usize>, work: Work) -> usize {
        let mut nodes = lock(&self.nodes);
        nodes.push(Arc::new(Node { sequence: next_sequence(), after, work }));
        nodes.len() - 1
    }

    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.nodes).clone()
    }

    pub(super) fn frees(&self, block: &Arc<GraphBlock>) -> bool {
        lock(&self.nodes).iter().any(|node| matches!(&node.work, Work::Free(freed) if Arc::ptr_eq(freed, block)))
    }

    /// Makes an executable graph. A graph that allocates or frees memory has one at a time only.
    pub(crate) fn instantiate(&self, global: &Global, flags: u64) -> Result<u64> {
        let auto_free = u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0);
        let priorities = u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0);
        ensure(flags & !(auto_free | priorities) == 0)?;
        let nodes = self.nodes();
        let single = nodes.iter().any(|node| node.work.is_of_memory()).then(|| self.instantiated.clone());
        if let Some(taken) = &single
            && taken.swap(true, Ordering::AcqRel)
        {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let sequence = next_sequence();
        let executable = Executable {
            sequence,
            context: self.context.clone(),
            nodes,
            single,
            auto_free: flags & auto_free != 0,
            last: Mutex::default(),
        };
        Ok(global.executables.insert(sequence, executable).0)
    }
}

#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    nodes: Vec<Arc<Node>>,
    /// The flag that its graph has an executable graph, if it may have one only.
    single: Option<Arc<AtomicBool>>,
    auto_free: bool,
    /// The end of the last launch, for which the next launch waits.
    last: Mutex<Option<(Point, Moment)>>,
}

impl Executable {
    /// Lets the graph have another executable graph. Launches under way continue.
    pub(crate) fn end(&self) {
        if let Some(taken) = &self.single {
            taken.store(false, Ordering::Release);
        }
    }

    /// Queues the work of all nodes on a stream. A launch cannot be recorded.
    pub(crate) fn launch(self: &Arc<Self>, stream: &Stream) -> Result {
        if capture::enter(stream)? {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let mut last = lock(&self.last);
        let live: Vec<_> = self.allocations().filter(|block| block.is_live()).cloned().collect();
        ensure(self.auto_free || live.is_empty())?;
        self.hold()?;
        let mut runs: Vec<Run> = live.into_iter().map(freeing).collect();
        if let Some((_, moment)) = &*last {
            stream.follow(moment);
        }
        runs.extend(self.ready(stream));
        // Keeps the graph until the launch ends. Host functions among the nodes may tell the host of that end.
        let (this, moment) = (self.clone(), stream.moment());
        let end = moment.clone();
        runs.push(Box::new(move || {
            races::observe(&end);
            drop(this);
        }));
        for run in runs {
            let after = last.iter().map(|(point, _)| point.clone()).collect();
            *last = Some((stream.push(after, run)?, moment.clone()));
        }
        Ok(())
    }

    fn allocations(&self) -> impl Iterator<Item = &Arc<GraphBlock>> {
        self.nodes.iter().filter_map(|node| match &node.work {
            Work::Allocate(Allocated(block)) => Some(block),
            _ => None,
        })
    }

    /// Takes memory for every block, or for none if one fails.
    fn hold(&self) -> Result {
        for (count, block) in self.allocations().enumerate() {
            if let Err(code) = block.hold() {
                self.allocations().take(count).for_each(|block| block.release());
                return Err(code);
            }
        }
        Ok(())
    }

    /// Prepares one run of every node, each after those that it depends on.
    fn ready(&self, stream: &Stream) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for node in &self.nodes {
            match &node.work {
                Work::Again(ready) => match ready(stream) {
                    Ok(run) => runs.push(run),
                    // A device would touch an address where there is no memory.
                    Err(_) => self.context.fail(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
                },
                Work::Allocate(Allocated(block)) => {
                    block.enliven();
                    let block = block.clone();
                    runs.push(Box::new(move || block.set_present(true)));
                }
                Work::Free(block) if block.retire().is_ok() => runs.push(freeing(block.clone())),
                Work::Free(block) => {
                    report(Misuse::DoubleFree, "cuGraphLaunch", block.base, Some(block.sequence));
                }
            }
        }
        runs
    }
}

/// Takes the memory of a block when a stream reaches this work.
pub(crate) fn freeing(block: Arc<GraphBlock>) -> Run {
    Box::new(move || {
        block.set_present(false);
        block.release();
    })
}
