//! Streams, and the ways to queue work on them.

use crate::call::{Result, null_is_own};
use crate::misuse::{self, Misuse};
use crate::state::Global;
use crate::state::checks::races::access::{self, Far, Inside};
use crate::state::checks::races::{self, Moment, Noted, Touched};
use crate::state::contexts::{Context, Role, current};
use crate::state::contexts::{Point, Queue};
use crate::state::graphs::capture;
use crate::state::graphs::{Params, Work};
use crate::state::handle::next_sequence;
use crate::state::memory::{Allocation, Range, Use};
use crate::state::pools::Pool;
use cuda_sys::{CU_STREAM_PER_THREAD, CUresult, CUstream, CUstream_flags};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The handle of the legacy default stream; 0 also names it.
const LEGACY: u64 = 1;
/// The handle of the calling thread's default stream.
const PER_THREAD: u64 = 2;

/// The stream that a handle names in this call: in the per-thread form of a function, null is the thread's own stream.
pub(crate) fn meant(handle: CUstream) -> CUstream {
    if handle.is_null() && null_is_own() { CU_STREAM_PER_THREAD } else { handle }
}

/// A stream. Clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The number that cuStreamGetId returns.
    pub(crate) id: u64,
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    pub(crate) role: Role,
    pub(crate) priority: i32,
    queue: Arc<Queue>,
}

/// The numbers of the default streams, as a real driver returns them.
const LEGACY_ID: u64 = 7;
const PER_THREAD_ID: u64 = 15;
/// The next stream's number. Lower numbers belong to default streams.
static NEXT_ID: AtomicU64 = AtomicU64::new(PER_THREAD_ID + 1);

impl Stream {
    /// Makes a stream. It waits for the work of its context if it needs a new hardware channel.
    pub(crate) fn make(global: &Global, context: &Arc<Context>, role: Role, priority: i32) -> u64 {
        if context.channels.add(global.settings.channels) {
            context.take_channel();
        }
        let queue = Queue::new();
        context.adopt(role, &queue);
        let sequence = next_sequence();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let stream = Stream { id, sequence, context: context.clone(), role, priority, queue };
        global.streams.insert(sequence, stream).0
    }

    /// The stream with a handle, including the handles of default streams.
    pub(crate) fn find(global: &Global, handle: CUstream) -> Result<Stream> {
        match meant(handle).addr() as u64 {
            0 | LEGACY => {
                let context = current(global)?;
                let queue = context.legacy().clone();
                Ok(Stream { id: LEGACY_ID, sequence: 0, context, role: Role::Legacy, priority: 0, queue })
            }
            PER_THREAD => {
                let context = current(global)?;
                let queue = context.per_thread();
                Ok(Stream { id: PER_THREAD_ID, sequence: 0, context, role: Role::Blocking, priority: 0, queue })
            }
            handle => match global.streams.get(handle) {
                Some(stream) if stream.context.is_alive() => match stream.context.failure() {
                    None => Ok(Stream::clone(&stream)),
                    Some(code) => Err(code),
                },
                Some(_) => Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED),
                None => {
                    if global.streams.was_issued(handle) {
                        misuse::report(Misuse::EndedStream, "a call with a stream", handle, None);
                    }
                    Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
                }
            },
        }
    }

    /// A key that no other live stream has.
    pub(crate) fn key(&self) -> usize {
        Arc::as_ptr(&self.queue).addr()
    }

    /// The point after its present work, for race checks.
    pub(crate) fn moment(&self) -> Moment {
        if races::is_on() { races::moment(self.queue.id, &self.context.joined(self.role)) } else { Moment::default() }
    }

    /// Makes its later work come after a moment.
    pub(crate) fn follow(&self, moment: &Moment) {
        races::follow(self.queue.id, moment);
    }

    /// Records that the order of its later work is unknown.
    pub(crate) fn blur(&self) {
        races::blur(self.queue.id);
    }

    /// Records the bytes that its next work touches.
    pub(crate) fn touch(&self, call: &'static str, touched: impl FnOnce() -> Vec<Touched>) -> Noted {
        if races::is_on() {
            races::touch(self.queue.id, &self.context.joined(self.role), touched(), call)
        } else {
            Noted::default()
        }
    }

    /// Begins the call that queues a copy between devices, after [`touch`](Self::touch) has recorded it.
    pub(crate) fn copy_far(&self, call: &'static str, far: impl FnOnce() -> Vec<Far>) -> Inside {
        access::copy(Some(self.queue.id), call, far)
    }

    /// Notes the bytes that work writes which its capture has recorded.
    pub(crate) fn note_recorded(&self, call: &'static str, touched: impl FnOnce() -> Vec<Touched>) {
        if races::is_on() {
            races::record(&touched(), call);
        }
    }

    /// Records that it allocates from a pool, or frees memory of it.
    pub(crate) fn uses_pool(&self, pool: &Pool) {
        if races::is_on() {
            pool.note_stream(self.queue.id);
        }
    }

    /// Records that its next work begins or ends the life of an allocation.
    pub(crate) fn touch_block(&self, call: &'static str, block: &Arc<Allocation>) {
        if races::is_on()
            && let Some(whole) = Range::of_block(block).touched(0..block.size, Use::Write)
        {
            // Only a borrow that was forgotten can be left.
            races::end_borrows(&whole.bytes);
            races::touch_in_order(self.queue.id, &self.context.joined(self.role), &[whole], call);
        }
    }

    /// Records that the host has waited for all work of this stream. `moment` is from before the wait.
    pub(crate) fn settle(&self, moment: &Moment) {
        races::settle(self.queue.id, moment);
    }

    /// Queues work, or records it with its parameters for each launch if the stream captures.
    pub(crate) fn perform(&self, params: Params, run: impl Fn() + Send + Sync + 'static) -> Result {
        if capture::enter(self)? {
            return capture::add(self, params, Work::plain(run));
        }
        self.push(Vec::new(), run).map(drop)
    }

    /// Queues work on a word of memory, or records it for each launch if the stream captures.
    pub(crate) fn perform_on(&self, range: Range, run: impl Fn(&Range) + Send + Sync + 'static) -> Result {
        if capture::enter(self)? {
            return capture::add(self, Params::Word, Work::on(&range, run));
        }
        range.check_live("a call")?;
        self.push(Vec::new(), move || run(&range)).map(drop)
    }

    /// Queues work that cannot be recorded.
    pub(crate) fn submit(&self, points: Vec<Point>, run: impl FnOnce() + Send + 'static) -> Result<Point> {
        if capture::enter(self)? {
            return Err(capture::refuse(self, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
        }
        self.push(points, run)
    }

    /// Queues work after all earlier work of this stream, and after `points`.
    pub(crate) fn push(&self, points: Vec<Point>, run: impl FnOnce() + Send + 'static) -> Result<Point> {
        let mut after = self.context.before(self.role);
        after.extend(points);
        self.queue.push(after, Box::new(run))
    }

    /// The points that must pass before the present work is done.
    pub(crate) fn pending(&self) -> Vec<Point> {
        let mut points = self.context.before(self.role);
        points.extend(self.queue.pending());
        points
    }

    pub(crate) fn synchronize(&self) {
        let moment = self.moment();
        self.pending().iter().for_each(Point::wait);
        self.settle(&moment);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending().is_empty()
    }

    /// Notes that its work frees memory of cuMemAlloc.
    pub(crate) fn frees_plain_memory(&self) {
        self.queue.set_has_plain_frees(true);
    }

    /// As the driver does when a program synchronizes the stream.
    pub(crate) fn forget_plain_frees(&self) {
        self.queue.set_has_plain_frees(false);
    }

    /// Waits for all its work with the context's lock, if memory of cuMemAlloc was freed in its order since its last
    /// synchronization, as the real driver does (580.159 on an H200): also if these frees are done. Frees of memory of pools
    /// make it wait for nothing.
    pub(crate) fn wait_after_plain_frees(&self) {
        if self.queue.has_plain_frees()
            && let Some(work) = self.queue.pending()
        {
            self.context.wait_with_lock(&work);
        }
    }

    /// Lets the worker end after the present work.
    pub(crate) fn close(&self) {
        if self.role == Role::Blocking {
            // The legacy default stream waits for the work of a closed stream too.
            races::follow(self.context.legacy().id, &self.moment());
        }
        self.queue.close();
        self.context.channels.remove();
    }

    pub(crate) fn flags(&self) -> u32 {
        if self.role == Role::NonBlocking { CUstream_flags::CU_STREAM_NON_BLOCKING.0 } else { 0 }
    }
}
