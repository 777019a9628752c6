//! Executable graphs and their launches.

use super::capture;
use super::condition::Condition;
use super::graph::{Entry, Graph};
use super::node::{Allocated, Run};
use super::node::{Node, Params, Work};
use super::user_object::Shares;
use crate::call::{Result, ensure};
use crate::misuse::{Misuse, report};
use crate::state::Global;
use crate::state::checks::races::{self, Moment};
use crate::state::contexts::Context;
use crate::state::contexts::Point;
use crate::state::handle::next_sequence;
use crate::state::memory::GraphBlock;
use crate::state::streams::Event;
use crate::state::streams::Stream;
use crate::sync::lock;
use cuda_sys::{CUgraphConditionalNodeType, CUgraphExecUpdateResult, CUgraphInstantiate_flags, CUresult};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A node as an executable graph does it.
#[derive(Clone, Debug)]
struct Step {
    /// The number of the node from which it was made.
    of: u64,
    node: Arc<Node>,
    /// The places of the steps directly before it.
    after: Vec<usize>,
    is_on: bool,
    /// The steps of the graphs inside it.
    inside: Vec<Vec<Step>>,
}

/// Why one graph cannot take the place of another, and the node that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    pub(crate) result: CUgraphExecUpdateResult,
    pub(crate) node: Option<u64>,
}

impl Step {
    fn all(graph: &Graph) -> Result<Vec<Self>> {
        let entries = graph.ordered()?;
        let places: HashMap<_, _> =
            entries.iter().enumerate().map(|(place, entry)| (entry.node.sequence, place)).collect();
        let step = |entry: &Entry| {
            let inside = match &entry.node.params {
                Params::Child(inner) => vec![Step::all(&inner.graph)?],
                Params::Conditional(bodies) => {
                    let bodies = bodies.graphs.iter().map(|body| Step::all(&body.graph));
                    let bodies = bodies.collect::<Result<Vec<_>>>()?;
                    ensure(bodies.iter().flatten().all(Step::may_be_conditional))?;
                    bodies
                }
                _ => Vec::new(),
            };
            let mut after: Vec<usize> = entry.after.iter().filter_map(|number| places.get(number).copied()).collect();
            after.sort_unstable();
            Ok(Self { of: entry.node.sequence, node: entry.node.clone(), after, is_on: true, inside })
        };
        entries.iter().map(step).collect()
    }

    /// Whether a body of a conditional node may do it: what does not involve the host, events or memory of graphs.
    fn may_be_conditional(&self) -> bool {
        let kind = match &self.node.params {
            Params::Host(_) | Params::Record(_) | Params::Wait(_) | Params::Signal | Params::WaitForSignal => false,
            Params::Word | Params::Allocate(..) | Params::Free(_) => false,
            Params::Kernel(_) | Params::Copy(_) | Params::Fill(_) | Params::Child(_) => true,
            Params::Conditional(_) | Params::Empty => true,
        };
        kind && self.inside.iter().flatten().all(Self::may_be_conditional)
    }

    /// The conditions of steps, and of those inside them.
    fn conditions(steps: &[Self], found: &mut Vec<Arc<Condition>>) {
        for step in steps {
            if let Work::If(condition, _) = &*step.node.work {
                found.push(condition.clone());
            }
            step.inside.iter().for_each(|inside| Self::conditions(inside, found));
        }
    }

    /// Takes the parameters of steps of the same shape, or none.
    fn update(steps: &[Self], from: &[Self]) -> core::result::Result<Vec<Self>, Mismatch> {
        use core::result::Result;
        let mismatch = |result, step: Option<&Step>| Mismatch { result, node: step.map(|step| step.of) };
        let changed = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if steps.len() != from.len() {
            return Err(mismatch(changed, from.get(steps.len())));
        }
        let one = |(step, other): (&Step, &Step)| {
            if step.node.params.kind() != other.node.params.kind() {
                let kind = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
                return Err(mismatch(kind, Some(other)));
            }
            if step.after != other.after {
                return Err(mismatch(changed, Some(other)));
            }
            if step.node.work.is_of_memory() || step.decides() != other.decides() {
                let unsupported = CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
                return Err(mismatch(unsupported, Some(other)));
            }
            let bodies = step.inside.iter().zip(&other.inside);
            let inside = bodies.map(|(inside, other)| Self::update(inside, other)).collect::<Result<_, _>>()?;
            Ok(Self { node: other.node.clone(), inside, ..step.clone() })
        };
        steps.iter().zip(from).map(one).collect()
    }

    /// The parameters of a conditional node that no update changes: its type and the number of its bodies. Its handle
    /// may change, because each graph has handles of its own. The updated graph begins with the value of the new one.
    fn decides(&self) -> Option<(CUgraphConditionalNodeType, usize)> {
        match &*self.node.work {
            Work::If(_, kind) => Some((*kind, self.inside.len())),
            _ => None,
        }
    }

    fn find(steps: &mut [Self], of: u64) -> Result<&mut Self> {
        steps.iter_mut().find(|step| step.of == of).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }
}

impl Graph {
    /// Makes an executable graph. A graph that allocates or frees memory has one at a time only.
    pub(crate) fn instantiate(&self, global: &Global, flags: u64) -> Result<u64> {
        let auto_free = u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0);
        let priorities = u64::from(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0);
        ensure(flags & !(auto_free | priorities) == 0)?;
        ensure(!self.has_unused_condition())?;
        let (steps, user_objects) = (Step::all(self)?, self.user_objects.copy()?);
        let single = steps.iter().any(|step| step.node.work.is_of_memory()).then(|| self.instantiated.clone());
        if let Some(taken) = &single
            && taken.swap(true, Ordering::AcqRel)
        {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let sequence = next_sequence();
        let executable = Executable {
            sequence,
            context: self.context.clone(),
            steps: Mutex::new(steps.into()),
            user_objects: Mutex::new(Arc::new(user_objects)),
            single,
            flags,
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
    /// Each after those before it.
    steps: Mutex<Arc<[Step]>>,
    /// Held until the executable graph and its launches end, or until an update brings those of another graph.
    user_objects: Mutex<Arc<Shares>>,
    /// The flag that its graph has an executable graph, if it may have one only.
    single: Option<Arc<AtomicBool>>,
    pub(crate) flags: u64,
    auto_free: bool,
    /// The end of the last launch, for which the next launch waits.
    last: Mutex<Option<(Point, Moment)>>,
}

/// One piece of a launch.
enum Piece {
    Run(Run),
    Record(Arc<Event>),
    Wait(Arc<Event>),
}

impl Executable {
    /// Lets the graph have another executable graph. Launches under way continue.
    pub(crate) fn end(&self) {
        if let Some(taken) = &self.single {
            taken.store(false, Ordering::Release);
        }
    }

    /// Gives a step other parameters, of the same kind. Launches under way keep the old ones.
    pub(crate) fn change(&self, of: u64, params: Params, work: Work) -> Result {
        let mut steps = lock(&self.steps);
        let step = Step::find(Arc::make_mut(&mut steps), of)?;
        ensure(step.node.params.kind() == params.kind())?;
        let inside = match &params {
            Params::Child(inner) => {
                let other = Step::all(&inner.graph)?;
                let inside = step.inside.first().map_or(&[][..], |inside| inside);
                vec![Step::update(inside, &other).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?]
            }
            Params::Conditional(_) => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => Vec::new(),
        };
        step.inside = inside;
        step.node = step.node.changed(params, work);
        Ok(())
    }

    /// Takes the parameters and the user objects of a graph of the same shape. Fails, and changes nothing, if it has
    /// another shape. Launches under way keep the old ones.
    pub(crate) fn update(&self, graph: &Graph) -> Result<core::result::Result<(), Mismatch>> {
        let (other, user_objects) = (Step::all(graph)?, graph.user_objects.copy()?);
        let mut steps = lock(&self.steps);
        Ok(Step::update(&steps, &other).map(|updated| {
            *steps = updated.into();
            *lock(&self.user_objects) = Arc::new(user_objects);
        }))
    }

    /// Switches a step off or on. Only copies, fills and kernels can be off.
    pub(crate) fn set_on(&self, of: u64, on: bool) -> Result {
        let mut steps = lock(&self.steps);
        let step = Step::find(Arc::make_mut(&mut steps), of)?;
        ensure(step.node.params.may_be_off())?;
        step.is_on = on;
        Ok(())
    }

    pub(crate) fn is_on(&self, of: u64) -> Result<bool> {
        let steps = lock(&self.steps);
        let step = steps.iter().find(|step| step.of == of).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        ensure(step.node.params.may_be_off())?;
        Ok(step.is_on)
    }

    /// Queues the work of all nodes on a stream. A launch cannot be recorded.
    pub(crate) fn launch(self: &Arc<Self>, stream: &Stream) -> Result {
        if capture::enter(stream)? {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let (steps, user_objects) = {
            let steps = lock(&self.steps);
            (steps.clone(), lock(&self.user_objects).clone())
        };
        let mut last = lock(&self.last);
        let live: Vec<_> = allocations(&steps).filter(|block| block.is_live()).cloned().collect();
        ensure(self.auto_free || live.is_empty())?;
        hold(&steps)?;
        let mut pieces: Vec<Piece> = live.into_iter().map(|block| Piece::Run(freeing(block))).collect();
        if let Some((_, moment)) = &*last {
            stream.follow(moment);
        }
        let mut conditions = Vec::new();
        Step::conditions(&steps, &mut conditions);
        if !conditions.is_empty() {
            pieces.push(Piece::Run(Box::new(move || conditions.iter().for_each(|condition| condition.begin()))));
        }
        self.prepare(&steps, stream, &mut pieces);
        // Keeps the graph until the launch ends. Host functions among the nodes may tell the host of that end.
        let (this, moment) = (self.clone(), stream.moment());
        let end = moment.clone();
        pieces.push(Piece::Run(Box::new(move || {
            races::observe(&end);
            drop((this, steps, user_objects));
        })));
        for piece in pieces {
            match piece {
                Piece::Run(run) => {
                    let after = last.iter().map(|(point, _)| point.clone()).collect();
                    *last = Some((stream.push(after, run)?, moment.clone()));
                }
                Piece::Record(event) => event.record(stream)?,
                Piece::Wait(event) => event.hold(stream)?,
            }
        }
        Ok(())
    }

    /// Prepares one run of every step, each after those that it depends on.
    fn prepare(self: &Arc<Self>, steps: &[Step], stream: &Stream, pieces: &mut Vec<Piece>) {
        for step in steps.iter().filter(|step| step.is_on) {
            match &*step.node.work {
                Work::Again(ready) => match ready(stream) {
                    Ok(run) => pieces.push(Piece::Run(run)),
                    // A device would touch an address where there is no memory.
                    Err(_) => self.context.fail(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
                },
                Work::Allocate(Allocated(block)) => {
                    block.enliven();
                    let block = block.clone();
                    pieces.push(Piece::Run(Box::new(move || block.set_present(true))));
                }
                Work::Free(block) if block.retire().is_ok() => pieces.push(Piece::Run(freeing(block.clone()))),
                Work::Free(block) => {
                    report(Misuse::DoubleFree, "cuGraphLaunch", block.base, Some(block.sequence));
                }
                Work::Record(event) => pieces.push(Piece::Record(event.clone())),
                Work::Wait(event) => pieces.push(Piece::Wait(event.clone())),
                Work::Inside => step.inside.iter().for_each(|inside| self.prepare(inside, stream, pieces)),
                Work::If(..) => {
                    // Which work runs, and how often, is decided when the stream has come there.
                    stream.blur();
                    let (this, step, stream) = (self.clone(), step.clone(), stream.clone());
                    pieces.push(Piece::Run(Box::new(move || this.decide(&step, &stream))));
                }
            }
        }
    }

    /// Runs the graphs of a conditional node that its condition selects.
    fn decide(&self, step: &Step, stream: &Stream) {
        let Work::If(condition, kind) = &*step.node.work else { return };
        let body = |number: usize| step.inside.get(number).into_iter().for_each(|body| self.run(body, stream));
        match *kind {
            CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF => body(usize::from(condition.get() == 0)),
            CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH => body(condition.get() as usize),
            _ => {
                while condition.get() != 0 && self.context.is_alive() && self.context.failure().is_none() {
                    body(0);
                }
            }
        }
    }

    /// Runs steps now, on the stream's thread.
    fn run(&self, steps: &[Step], stream: &Stream) {
        for step in steps.iter().filter(|step| step.is_on) {
            match &*step.node.work {
                Work::Again(ready) => match ready(stream) {
                    Ok(run) => run(),
                    Err(_) => self.context.fail(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS),
                },
                Work::Inside => step.inside.iter().for_each(|inside| self.run(inside, stream)),
                Work::If(..) => self.decide(step, stream),
                // `may_be_conditional` excludes them.
                Work::Allocate(_) | Work::Free(_) | Work::Record(_) | Work::Wait(_) => {}
            }
        }
    }
}

fn allocations(steps: &[Step]) -> impl Iterator<Item = &Arc<GraphBlock>> {
    steps.iter().filter_map(|step| match &*step.node.work {
        Work::Allocate(Allocated(block)) => Some(block),
        _ => None,
    })
}

/// Takes memory for every block, or for none if one fails.
fn hold(steps: &[Step]) -> Result {
    for (count, block) in allocations(steps).enumerate() {
        if let Err(code) = block.hold() {
            allocations(steps).take(count).for_each(|block| block.release());
            return Err(code);
        }
    }
    Ok(())
}

/// Takes the memory of a block when a stream reaches this work.
pub(crate) fn freeing(block: Arc<GraphBlock>) -> Run {
    Box::new(move || {
        block.set_present(false);
        block.release();
    })
}
