//! Streams of other libraries in the records of pools, which outlive the program's values for these streams.
//!
//! A stream of another library is known to live only while the program has a value for it. So a pool keeps values that
//! do not count ([`Stream::kept`]), and passes them to the driver only while the stream is present. When the program's
//! last value goes, it records the last work of the stream, for which the pool's memory then waits.

use super::Stream;
use super::graph::capture_of;
use super::owner::{StreamOwner, StreamOwnership};
use crate::driver::context::{Liveness, PATIENCE};
use crate::driver::relaxed::RelaxedCalls;
use crate::driver::stream_core::StreamCore;
use crate::error::capture_errors::is_for_a_capture;
use crate::error::forked;
use crate::lifetime::inside_host_function;
use crate::lifetime::waiting::{self, Target};
use crate::locks::{Mutex, MutexGuard};
use crate::{Context, Event, Result};
use core::sync::atomic::{AtomicU64, Ordering};
use cuda_sys::{CU_STREAM_PER_THREAD, CUresult, CUstream, CUstreamCaptureStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

type AllLastWork = BTreeMap<u64, (u64, LastWork)>;

/// The last work of streams that are not present, by the number of the stream's core: who noted it, and what is known.
/// The lock guards the counts of kept values, and the end of the last value of the program.
static LAST_WORK: Mutex<AllLastWork> = Mutex::new(BTreeMap::new());

/// Numbers what is noted there, in order.
static TURNS: AtomicU64 = AtomicU64::new(0);

fn all_last_work() -> MutexGuard<'static, AllLastWork> {
    LAST_WORK.lock()
}

/// What is known of the work of a stream that is not present.
#[derive(Clone)]
enum LastWork {
    /// It is done when the event has passed.
    Before(Arc<Event>),
    Done,
    /// The stream captured, or its value was dropped in a host function.
    Unknown,
}

/// A moment until which a stream's work uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used(u64);

/// Why nobody knows what is left of a stream's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkUnknown {
    /// The program has no value for the stream, which may have ended, and its last work is unknown.
    Ended,
    /// Another thread captures the stream.
    Captured,
}

/// The driver's number of a stream that does not capture: the question would invalidate its capture, also in relaxed mode
/// (580.159). `None` for default streams, and from drivers before CUDA 12.0, which give no numbers.
pub(super) fn number_outside_of_captures(context: &Context, raw: CUstream) -> Option<u64> {
    if forked() {
        return None;
    }
    let mut number = 0;
    // SAFETY: the caller's stream lives, and `number` is writable.
    let told = unsafe { context.driver().raw().cuStreamGetId(raw, &mut number) };
    // Nobody reads the error, so none is made.
    matches!(told, Ok(CUresult::CUDA_SUCCESS)).then_some(number)
}

/// The number of the capture that records a stream's work, by whichever library; `None` if the stream does its work.
pub(super) fn capture_number(context: &Context, raw: CUstream) -> Result<Option<u64>> {
    let (status, id, _graph) = capture_of(context, raw)?;
    Ok((status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE).then_some(id))
}

/// Whether a handle names a default stream, which lives as long as its context.
pub(super) fn is_default(raw: CUstream) -> bool {
    raw.addr() <= CU_STREAM_PER_THREAD.addr()
}

impl Stream {
    /// The core of another library's stream. The handle may be that of a stream that has ended, of which pools keep
    /// values.
    pub(super) fn borrowed_core(context: &Context, raw: CUstream) -> Arc<StreamCore> {
        let is_same = |core: &StreamCore| match capture_number(context, raw) {
            Ok(None) => {
                let known = core.driver_number();
                known.is_some() && known == number_outside_of_captures(context, raw)
            }
            // A capture records one stream of a handle.
            Ok(capture) => core.capture_number() == capture,
            Err(_) => false,
        };
        context.state().streams.of(raw, |core| is_default(raw) || core.is_present() || is_same(core))
    }

    /// A value for records: it does not claim that a stream of another library lives.
    pub(crate) fn kept(&self) -> Self {
        match self.inner.ownership {
            StreamOwnership::Borrowed(_) if !is_default(self.inner.raw) => {
                let _counting = all_last_work();
                self.inner.core.kept.fetch_add(1, Ordering::Relaxed);
                self.inner.to_kept()
            }
            _ => self.clone(),
        }
    }

    /// Whether this is a value for records, whose stream may have ended.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.inner.ownership, StreamOwnership::Kept)
    }

    /// Finds out what is left of the stream's work, by a call with the stream, which does not end during the call. If
    /// the stream may have ended, by a call with the event behind its last work, or `done` if that is done. Work queued
    /// after a [use](Self::note_used) does not count then.
    pub(crate) fn work_left<R>(
        &self,
        until: Option<Used>,
        with_stream: impl FnOnce() -> R,
        with_event: impl FnOnce(Arc<Event>) -> R,
        done: R,
    ) -> Result<R, WorkUnknown> {
        if !self.is_kept() {
            return Ok(with_stream());
        }
        // The drop of the last value waits for this submission, or is seen here.
        let Ok(submission) = self.gate().try_submit() else { return Err(WorkUnknown::Captured) };
        if self.inner.core.is_present() {
            return Ok(with_stream());
        }
        let is_known = |turn: u64| match until {
            Some(used) => turn >= used.0,
            None => !self.inner.core.is_unmarked(),
        };
        let last = all_last_work().get(&self.inner.core.id).filter(|(turn, _)| is_known(*turn)).cloned();
        drop(submission);
        match last {
            Some((_, LastWork::Before(event))) => Ok(with_event(event)),
            Some((_, LastWork::Done)) => Ok(done),
            Some((_, LastWork::Unknown)) | None => Err(WorkUnknown::Ended),
        }
    }

    /// Notes work that uses memory of a pool, which the value's drop may not mark. The last work is then unknown until
    /// the last value for the stream is dropped, or until [`wait_for_unmarked`](Self::wait_for_unmarked).
    pub(crate) fn note_unmarked_work(&self) {
        self.inner.core.note_unmarked();
    }

    /// Notes that the stream's work so far uses memory of a pool. The stream may have ended, so no event is recorded: the
    /// next call that names the stream, or a wait for its context, tells when that work is done.
    pub(crate) fn note_used(&self) -> Used {
        // Who begins to find out the last work from now on has a later turn.
        let _beginning = all_last_work();
        self.inner.core.note_unmarked();
        Used(TURNS.load(Ordering::Relaxed))
    }

    /// Notes work that uses memory of a pool, during a call that names the stream and makes no value for it, and
    /// returns `true`. `false` if the context has too many streams whose last work is unknown: make a value then, whose
    /// drop marks it.
    #[inline]
    pub(crate) fn may_leave_unmarked(&self) -> bool {
        self.inner.core.may_leave_unmarked()
    }

    /// Waits for the streams' contexts, if unmarked work of these streams can be known to be done in no other way. Leaves
    /// out streams whose capture `may_go_on`, by its number. Waits not while this crate captures, or while queued work
    /// waits for the CPU; the driver invalidates captures of other libraries that neither knows.
    pub(crate) fn wait_for_unmarked(streams: &[Self], may_go_on: impl Fn(u64) -> bool) -> Result<()> {
        let is_recorded = |core: &StreamCore| core.capture_number().is_some_and(&may_go_on);
        let is_unknown = |core: &StreamCore| core.is_unmarked() && !core.is_present() && !is_recorded(core);
        let mut unknown: Vec<&Self> = streams.iter().filter(|stream| is_unknown(&stream.inner.core)).collect();
        let mut result = Ok(());
        while let Some(first) = unknown.first() {
            let context = first.context();
            let (together, others) = unknown.iter().partition(|stream| stream.context() == context);
            let cores: Vec<_> = Vec::into_iter(together).map(|stream: &Self| &stream.inner.core).collect();
            result = result.and(Self::wait_for_cores(context, &cores));
            unknown = others;
        }
        result
    }

    /// Waits for a context, and notes that the work of its streams with these cores is done.
    fn wait_for_cores(context: &Context, cores: &[&Arc<StreamCore>]) -> Result<()> {
        let begin = |core: &Arc<StreamCore>| core.begin_note(&mut all_last_work());
        let noted: Vec<_> = cores.iter().map(|core| (core, begin(core))).collect();
        let relaxed = RelaxedCalls::begin(context.driver());
        let waited = context.try_synchronize(&"waiting for streams that have ended", PATIENCE);
        drop(relaxed);
        let is_over = match &waited {
            Ok(waited) => *waited,
            Err(error) => context.is_ended_by(error),
        };
        for (core, (note, _former)) in noted {
            // A free since then has set the mark again, so what is noted here does not count for it.
            if is_over { core.end_note(note, LastWork::Done) } else { core.note_unmarked() }
        }
        match waited {
            Err(error) if !is_over && !is_for_a_capture(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl StreamCore {
    /// Learns by which number a later handle of the same stream is recognised: the driver's number of the stream, or of
    /// the capture that records it now.
    pub(super) fn learn_number(&self, context: &Context, raw: CUstream) {
        match capture_number(context, raw) {
            Ok(None) => {
                self.set_capture_number(None);
                if let Some(number) = number_outside_of_captures(context, raw) {
                    self.set_driver_number(number);
                }
            }
            Ok(capture) => self.set_capture_number(capture),
            Err(_) => {}
        }
    }

    /// Begins to find out the last work. Nobody sees what was known of an earlier life, and unmarked work counts from now
    /// on anew. The second result must be dropped without a lock.
    fn begin_note(&self, all: &mut AllLastWork) -> (u64, Option<(u64, LastWork)>) {
        let turn = TURNS.fetch_add(1, Ordering::Relaxed);
        let former = all.insert(self.id, (turn, LastWork::Unknown));
        self.clear_unmarked();
        (turn, former)
    }

    fn end_note(&self, turn: u64, last: LastWork) {
        // Meanwhile the stream may have been borrowed and dropped again, or no pool may keep it any more.
        let unused = match all_last_work().get_mut(&self.id) {
            Some((its, known)) if *its == turn => core::mem::replace(known, last),
            _ => last,
        };
        // The drop of an event calls the driver.
        drop(unused);
    }
}

impl StreamOwner {
    /// The caller counts it.
    fn to_kept(&self) -> Stream {
        let (core, records_nothing) = (self.core.clone(), self.records_nothing);
        Stream::from_inner(&self.context, self.raw, StreamOwnership::Kept, core, records_nothing)
    }

    /// For the drop of a value that a pool keeps.
    pub(super) fn end_kept(&self) {
        if forked() {
            return;
        }
        let mut all = all_last_work();
        if self.core.kept.fetch_sub(1, Ordering::Relaxed) == 1 {
            let last = all.remove(&self.core.id);
            drop(all);
            drop(last);
        }
    }

    /// For the drop of a value for another library's stream. The last one records the last work, if a pool keeps the
    /// stream.
    pub(super) fn end_borrowed(&self) {
        let needs_no_mark = is_default(self.raw) || forked();
        let ended_early = needs_no_mark || self.core.kept.load(Ordering::Relaxed) == 0;
        if ended_early {
            let is_last = self.core.end_value();
            // A pool may have begun to keep the stream meanwhile, by another value that has ended before this one.
            if needs_no_mark || !is_last || self.core.kept.load(Ordering::SeqCst) == 0 {
                return;
            }
        }
        let mut all = all_last_work();
        let is_last = if ended_early { !self.core.is_present() } else { self.core.end_value() };
        if !is_last {
            return;
        }
        let (turn, former) = self.core.begin_note(&mut all);
        drop(all);
        drop(former);
        let last = match self.context.liveness() {
            Liveness::Alive if !inside_host_function() => self.mark_last_work(),
            Liveness::Alive => {
                self.core.note_unmarked();
                LastWork::Unknown
            }
            Liveness::Gone | Liveness::DriverGone => LastWork::Done,
        };
        self.core.end_note(turn, last);
    }

    fn mark_last_work(&self) -> LastWork {
        let stream = self.to_kept();
        self.core.kept.fetch_add(1, Ordering::Relaxed);
        // Other threads saw the stream present, and may be in a call with it.
        let in_use = || !crate::lifetime::submission::is_submitting() && stream.gate().is_in_use();
        if in_use() {
            waiting::during(&"the end of calls with a stream", Target::stream(&stream), || {
                while in_use() {
                    thread::yield_now();
                }
            });
        }
        self.core.learn_number(&self.context, self.raw);
        let _relaxed = RelaxedCalls::begin(self.context.driver());
        let mark = || -> Result<Event> {
            let event = Event::new(&self.context)?;
            event.mark(&stream.running("the end of a stream's last value")?)?;
            Ok(event)
        };
        match mark() {
            Ok(event) => LastWork::Before(Arc::new(event)),
            // The driver makes no event, and nobody can wait for the stream later.
            Err(error) if !is_for_a_capture(&error) && stream.wait_for_work().is_ok() => LastWork::Done,
            // A later call with the stream, or a wait for the context, tells when its work from before is done.
            Err(_) => {
                self.core.note_unmarked();
                LastWork::Unknown
            }
        }
    }
}
