//! Stream capture: a capturing stream records its work into a graph.

mod refusals;

pub(crate) use refusals::{check_context, check_not_captured, check_settled, check_synchronous, check_unsafe, refuse};

use super::graph::Graph;
use super::node::{self, Allocated, Params, Work};
use crate::call::{Result, ensure};
use crate::misuse::{self, Misuse};
use crate::state::Global;
use crate::state::checks::races;
use crate::state::contexts::{Context, Role};
use crate::state::handle::next_sequence;
use crate::state::memory::GraphBlock;
use crate::state::streams::Stream;
use crate::sync::lock;
use cuda_sys::{CUgraphEdgeData, CUresult, CUstreamCaptureMode};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How long the end of a capture takes while softgpu checks for misuse: long enough for other threads to overlap it.
const END_TAKES: Duration = Duration::from_micros(50);

#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// How many streams capture. Mostly none; then no call looks further.
    count: AtomicUsize,
    /// The capturing streams, by their queues.
    members: Mutex<Members>,
}

type Members = HashMap<usize, Member>;

#[derive(Debug)]
struct Member {
    /// Holds the queue, so that no other queue gets its key.
    stream: Stream,
    capture: Arc<Capture>,
    /// The nodes that the next node comes after.
    tips: Vec<u64>,
    /// Their handles and their edges' data, as the program last saw them.
    shown: Shown,
}

#[derive(Debug, Default)]
struct Shown {
    nodes: Box<[usize]>,
    /// All zero: no edge of a capture has data.
    edges: Box<[CUgraphEdgeData]>,
}

#[derive(Debug)]
pub(crate) struct Capture {
    id: u64,
    /// The key of the stream on which the capture began.
    origin: usize,
    mode: CUstreamCaptureMode,
    thread: ThreadId,
    graph: Arc<Graph>,
    handle: u64,
    /// The nodes that the graph had before, if the program made the graph.
    before: Option<HashSet<u64>>,
    invalid: AtomicBool,
    ended: AtomicBool,
    /// How many threads read this capture now, each for a call with one of its streams.
    looks: AtomicUsize,
    ending: AtomicBool,
}

/// The meaning of an event that was recorded in a capture.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    capture: Arc<Capture>,
    tips: Vec<u64>,
}

impl Place {
    /// Reports a call with an event of the capture while another thread goes on with the capture. The driver (580.159)
    /// crashes then, in some cases only if the call meets the end of the capture.
    pub(crate) fn check_thread(&self, misuse: Misuse, call: &'static str, event: u64) {
        let capture = &self.capture;
        let elsewhere = capture.thread != thread::current().id() && !capture.ended.load(Ordering::Acquire);
        if races::is_on() && elsewhere {
            misuse::report_after(misuse, call, event, None, Some("its capture by another thread"));
        }
    }
}

/// A stream's capture state, as the program sees it.
pub(crate) enum Status {
    None,
    Invalid,
    Active {
        id: u64,
        graph: u64,
        /// Valid until the stream's next call, as `edges`.
        nodes: *const usize,
        /// Null if there are no nodes.
        edges: *const CUgraphEdgeData,
        count: usize,
    },
}

thread_local! {
    static MODE: Cell<CUstreamCaptureMode> = const { Cell::new(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

/// Swaps the calling thread's mode. Like the driver, it accepts unknown modes.
pub(crate) fn exchange_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    MODE.with(|kept| kept.replace(mode))
}

impl Capture {
    fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    /// Ends the graph of a capture that failed, unless the program made it.
    fn discard(&self, global: &Global) {
        if self.before.is_none() {
            global.graphs.remove(self.handle);
        }
    }

    fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Acquire)
    }

    /// Marks that a call with one of its streams, or a wait for their context, reads the capture. The driver (580.159)
    /// crashes if another thread ends the capture meanwhile.
    fn look(&self) {
        if !races::is_on() {
            return;
        }
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.ending.load(Ordering::SeqCst) {
            self.report_look();
        }
        thread::yield_now();
        self.looks.fetch_sub(1, Ordering::SeqCst);
    }

    /// Marks that the call that ends the capture reads it, and reports other calls that read it now.
    fn look_last(&self) {
        if !races::is_on() {
            return;
        }
        self.ending.store(true, Ordering::SeqCst);
        if self.looks.load(Ordering::SeqCst) > 0 {
            self.report_look();
        }
        thread::sleep(END_TAKES);
    }

    fn report_look(&self) {
        let other = Some("the end of its capture by another thread");
        misuse::report_after(
            Misuse::EndOfCapture,
            "a call that uses a stream or waits for its context",
            self.origin as u64,
            None,
            other,
        );
    }

    /// Whether it forbids unsafe calls to a thread in a mode.
    fn forbids(&self, thread: ThreadId, mode: CUstreamCaptureMode) -> bool {
        match mode {
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED => false,
            _ if self.thread == thread => self.mode != CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => false,
            _ => self.mode == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        }
    }
}

impl Captures {
    /// The capturing streams; `None`, quickly, if there are none.
    fn members(&self) -> Option<MutexGuard<'_, Members>> {
        (self.count.load(Ordering::Acquire) > 0).then(|| lock(&self.members))
    }

    fn insert(&self, members: &mut Members, member: Member) {
        members.insert(member.stream.key(), member);
        self.count.store(members.len(), Ordering::Release);
    }

    fn end(&self, members: &mut Members, capture: &Arc<Capture>) {
        capture.ended.store(true, Ordering::Release);
        members.retain(|_, member| !Arc::ptr_eq(&member.capture, capture));
        self.count.store(members.len(), Ordering::Release);
    }
}

pub(crate) fn begin(global: &Global, stream: &Stream, mode: CUstreamCaptureMode) -> Result {
    begin_into(global, stream, mode, None)
}

/// A graph that the program made, its handle, and the nodes after which a capture begins.
pub(crate) type Target = (Arc<Graph>, u64, Vec<u64>);

/// Begins a capture into a graph of the program, or else into a new one.
pub(crate) fn begin_into(
    global: &Global,
    stream: &Stream,
    mode: CUstreamCaptureMode,
    target: Option<Target>,
) -> Result {
    ensure(mode.0 <= CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED.0)?;
    if stream.role == Role::Legacy {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut members = lock(&global.captures.members);
    if members.contains_key(&stream.key()) {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let (graph, handle, tips, before) = match target {
        Some((graph, handle, tips)) => {
            ensure(!members.values().any(|member| Arc::ptr_eq(&member.capture.graph, &graph)))?;
            let before = graph.entries().iter().map(|entry| entry.node.sequence).collect();
            (graph, handle, tips, Some(before))
        }
        None => {
            let (handle, graph) = Graph::make(global, &stream.context);
            (graph, handle, Vec::new(), None)
        }
    };
    let capture = Arc::new(Capture {
        id: next_sequence(),
        origin: stream.key(),
        mode,
        thread: std::thread::current().id(),
        graph,
        handle,
        before,
        invalid: AtomicBool::new(false),
        ended: AtomicBool::new(false),
        looks: AtomicUsize::new(0),
        ending: AtomicBool::new(false),
    });
    let member = Member { stream: stream.clone(), capture, tips, shown: Shown::default() };
    global.captures.insert(&mut members, member);
    Ok(())
}

/// Ends a capture on the stream on which it began. Returns the graph's handle.
pub(crate) fn end(global: &Global, stream: &Stream) -> Result<u64> {
    let members = lock(&global.captures.members);
    let member = members.get(&stream.key()).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    let (capture, tips) = (member.capture.clone(), member.tips.clone());
    if capture.origin != stream.key() {
        capture.invalidate();
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    drop(members);
    capture.look_last();
    let mut members = lock(&global.captures.members);
    let relaxed = capture.mode == CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    global.captures.end(&mut members, &capture);
    drop(members);
    let failure = if !relaxed && capture.thread != std::thread::current().id() {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    } else if capture.is_invalid() {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    } else if !reaches_all(&capture, tips) {
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    } else {
        return Ok(capture.handle);
    };
    capture.discard(global);
    Err(failure)
}

#[inline]
fn look(global: &Global, stream: &Stream) {
    let Some(members) = global.captures.members() else { return };
    if let Some(capture) = members.get(&stream.key()).map(|member| member.capture.clone()) {
        drop(members);
        capture.look();
    }
}

/// Marks that a call reads the captures of all streams of a context.
fn look_at_all(global: &Global, context: &Arc<Context>) {
    let Some(members) = global.captures.members() else { return };
    let in_context = members.values().filter(|member| Arc::ptr_eq(&member.stream.context, context));
    let captures: Vec<_> = in_context.map(|member| member.capture.clone()).collect();
    drop(members);
    captures.iter().for_each(|capture| capture.look());
}

/// Whether every node is one of `tips`, precedes one, or was in the graph before.
fn reaches_all(capture: &Capture, tips: Vec<u64>) -> bool {
    let entries = capture.graph.entries();
    let before: HashMap<_, _> = entries.iter().map(|entry| (entry.node.sequence, &entry.after)).collect();
    let (mut seen, mut left) = (HashSet::new(), tips);
    while let Some(node) = left.pop() {
        if seen.insert(node) {
            left.extend(before.get(&node).copied().into_iter().flatten());
        }
    }
    seen.extend(capture.before.iter().flatten());
    before.keys().all(|node| seen.contains(node))
}

/// A stream's capture state. Fails for the legacy stream while a stream captures for which it waits.
pub(crate) fn status(global: &Global, stream: &Stream) -> Result<Status> {
    look(global, stream);
    let Some(mut members) = global.captures.members() else { return Ok(Status::None) };
    if stream.role == Role::Legacy {
        let implied = members.values().any(|member| waits_for(&stream.context, member));
        return if implied { Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) } else { Ok(Status::None) };
    }
    let Some(member) = members.get_mut(&stream.key()) else { return Ok(Status::None) };
    if member.capture.is_invalid() {
        return Ok(Status::Invalid);
    }
    let count = member.tips.len();
    let nodes = member.tips.iter().map(|node| node::handle(*node)).collect();
    member.shown = Shown { nodes, edges: vec![CUgraphEdgeData::default(); count].into() };
    let Member { capture, shown, .. } = member;
    let edges = if count == 0 { ptr::null() } else { shown.edges.as_ptr() };
    Ok(Status::Active { id: capture.id, graph: capture.handle, nodes: shown.nodes.as_ptr(), edges, count })
}

/// Whether the legacy default stream of a context waits for a stream.
fn waits_for(context: &Arc<Context>, member: &Member) -> bool {
    member.stream.role == Role::Blocking && Arc::ptr_eq(&member.stream.context, context)
}

/// Whether the stream must record new work. Fails if it can neither do nor record it.
#[inline]
pub(crate) fn enter(stream: &Stream) -> Result<bool> {
    let global = Global::get()?;
    look(global, stream);
    let Some(members) = global.captures.members() else { return Ok(false) };
    if stream.role == Role::Legacy {
        return refusals::legacy(&members, &stream.context).map(|()| false);
    }
    match members.get(&stream.key()) {
        None => Ok(false),
        Some(member) if member.capture.is_invalid() => Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        Some(_) => Ok(true),
    }
}

/// Adds to the nodes that the next node of a stream's capture comes after, or replaces them.
pub(crate) fn depend(global: &Global, stream: &Stream, nodes: &[usize], replaces: bool) -> Result {
    let mut members = lock(&global.captures.members);
    let member = members.get_mut(&stream.key()).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if member.capture.is_invalid() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let mut tips = if replaces { Vec::new() } else { member.tips.clone() };
    for node in nodes {
        let (graph, entry) = Graph::of_node(global, *node)?;
        ensure(Arc::ptr_eq(&graph, &member.capture.graph))?;
        if !tips.contains(&entry.node.sequence) {
            tips.push(entry.node.sequence);
        }
    }
    member.tips = tips;
    Ok(())
}

pub(crate) fn add(stream: &Stream, params: Params, work: Work) -> Result {
    let global = Global::get()?;
    let mut members = lock(&global.captures.members);
    let member = members.get_mut(&stream.key()).ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    let node = member.capture.graph.add(global, std::mem::take(&mut member.tips), params, work);
    member.tips.push(node);
    Ok(())
}

/// Records an allocation. Returns the address.
pub(crate) fn allocate(global: &Global, stream: &Stream, device: usize, size: usize) -> Result<u64> {
    let block = GraphBlock::make(global, device, size, false)?;
    let base = block.base;
    add(stream, Params::allocation(device, size, base), Work::Allocate(Allocated(block)))?;
    Ok(base)
}

/// Records a free. A graph can free a block once only.
pub(crate) fn free(global: &Global, stream: &Stream, block: Arc<GraphBlock>) -> Result {
    let graph = lock(&global.captures.members).get(&stream.key()).map(|member| member.capture.graph.clone());
    let graph = graph.ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    ensure(!graph.frees(&block))?;
    add(stream, Params::Free(block.base), Work::Free(block))
}

/// The present point of a stream's capture.
pub(crate) fn place(stream: &Stream) -> Result<Place> {
    let members = lock(&Global::get()?.captures.members);
    let member = members.get(&stream.key()).ok_or(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)?;
    Ok(Place { capture: member.capture.clone(), tips: member.tips.clone() })
}

impl Place {
    /// Makes a stream's later work come after this point: the stream joins the capture.
    pub(crate) fn join(&self, stream: &Stream) -> Result {
        let captures = &Global::get()?.captures;
        let mut members = lock(&captures.members);
        let mine = |member: &Member| Arc::ptr_eq(&member.capture, &self.capture);
        if self.capture.ended.load(Ordering::Acquire) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if self.capture.is_invalid() {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        if stream.role == Role::Legacy {
            self.capture.invalidate();
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
        match members.get_mut(&stream.key()) {
            Some(member) if mine(member) => {
                let fresh: Vec<_> = self.tips.iter().filter(|tip| !member.tips.contains(tip)).copied().collect();
                member.tips.extend(fresh);
            }
            Some(member) => {
                member.capture.invalidate();
                self.capture.invalidate();
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            None => {
                let (stream, capture) = (stream.clone(), self.capture.clone());
                captures
                    .insert(&mut members, Member { stream, capture, tips: self.tips.clone(), shown: Shown::default() });
            }
        }
        Ok(())
    }

    /// The code for a call that asks whether this point has passed. It never passes, and the question invalidates the
    /// capture.
    pub(crate) fn asked(&self) -> CUresult {
        if self.capture.ended.load(Ordering::Acquire) {
            return CUresult::CUDA_ERROR_INVALID_VALUE;
        }
        self.capture.invalidate();
        CUresult::CUDA_ERROR_CAPTURED_EVENT
    }
}

/// Whether a stream still records the graph. Then the program does not own it.
pub(crate) fn is_recording(global: &Global, graph: &Arc<Graph>) -> bool {
    let members = global.captures.members();
    members.is_some_and(|members| members.values().any(|member| Arc::ptr_eq(&member.capture.graph, graph)))
}

/// Ends the captures of a context's default streams when the context ends.
pub(crate) fn forget_context(global: &Global, context: &Arc<Context>) {
    let streams: Vec<_> = match global.captures.members() {
        Some(members) => members.values().map(|member| member.stream.clone()).collect(),
        None => return,
    };
    streams.iter().filter(|stream| Arc::ptr_eq(&stream.context, context)).for_each(|stream| forget(global, stream));
}

/// Takes a destroyed stream out of its capture, which goes on. Its work that no other stream has joined fails the end of the
/// capture. If the capture began on that stream, nobody else could end it.
pub(crate) fn forget(global: &Global, stream: &Stream) {
    look(global, stream);
    let captures = &global.captures;
    let Some(mut members) = captures.members() else { return };
    let Some(Member { capture, .. }) = members.remove(&stream.key()) else { return };
    captures.count.store(members.len(), Ordering::Release);
    if capture.origin == stream.key() {
        capture.invalidate();
        captures.end(&mut members, &capture);
        drop(members);
        capture.discard(global);
    }
}
