//! What all values for one stream of the driver share.
//!
//! A program may have several [`Stream`](crate::Stream)s for one handle: clones, default streams, borrowed streams. A
//! capture by one of them concerns all. So each context lists its streams by handle.

use crate::error::drop_errors::DropErrors;
use crate::error::forked;
use crate::lifetime::submission::Gate;
use crate::locks::Mutex;
use crate::{Error, Result};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use cuda_sys::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUstream};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// How many streams of a context may be unmarked at once by calls that make no value for them. More than PyTorch has on a
/// device, which never ends one.
const MOST_UNMARKED: usize = 128;

#[derive(Debug)]
pub(crate) struct StreamCore {
    /// A number that no other stream of the process ever has.
    pub id: u64,
    /// Keeps captures of the stream apart from submissions to it.
    pub gate: Gate,
    /// Marks of the stream's work share it, and may outlive the stream.
    pub abandoned: Arc<Abandoned>,
    /// Set if the driver's stream is not like a new one once it is idle.
    pub is_altered: AtomicBool,
    /// Set if memory of cuMemAlloc was ever freed in the order of the driver's stream. The driver's end of the stream may then
    /// wait for all its work, with the driver's lock, even if those frees are long done (580.159).
    pub has_plain_frees: AtomicBool,
    /// The number of the program's values for the stream.
    values: AtomicUsize,
    /// The number of values that pools keep.
    pub kept: AtomicUsize,
    /// Set if pools got memory that work of the stream uses, and the last work that is recorded may not include it.
    /// Always set for default streams, which never end.
    unmarked: AtomicBool,
    /// How many cores of the context have the mark.
    all_unmarked: Arc<AtomicUsize>,
    /// The driver's number of the stream plus 1; 0 if it was never asked.
    driver_number: AtomicU64,
    /// The driver's number of the capture by another library that recorded the stream's work when it was last asked, plus 1;
    /// 0 if none did.
    capture_number: AtomicU64,
}

impl StreamCore {
    fn new(handle: usize, all_unmarked: &Arc<AtomicUsize>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let is_of_each_thread = handle == CU_STREAM_PER_THREAD.addr();
        let is_default = is_of_each_thread || handle == CU_STREAM_LEGACY.addr();
        if is_default {
            all_unmarked.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            gate: if is_of_each_thread { Gate::of_each_thread() } else { Gate::default() },
            abandoned: Arc::default(),
            is_altered: AtomicBool::new(false),
            has_plain_frees: AtomicBool::new(false),
            values: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            unmarked: AtomicBool::new(is_default),
            all_unmarked: all_unmarked.clone(),
            driver_number: AtomicU64::new(0),
            capture_number: AtomicU64::new(0),
        }
    }

    /// Counts a value of the program.
    pub fn add_value(&self) {
        self.values.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the value that ends was the last one.
    pub fn end_value(&self) -> bool {
        // Ordered against the calls of others with the stream: they count themselves in the gate, then look here.
        let last = self.values.fetch_sub(1, Ordering::SeqCst) == 1;
        fence(Ordering::SeqCst);
        last
    }

    /// Whether the program has a value for the stream, which lives so long.
    pub fn is_present(&self) -> bool {
        fence(Ordering::SeqCst);
        self.values.load(Ordering::SeqCst) > 0
    }

    /// Notes that the work that was recorded last may not be the last.
    pub fn note_unmarked(&self) {
        // A thread that saw it set need not write: whoever clears it then waits for that work, or records an event
        // behind it.
        if !self.is_unmarked() && !self.unmarked.swap(true, Ordering::AcqRel) {
            self.all_unmarked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that the work that was recorded last may not be the last, and returns `true`. Returns `false` and notes
    /// nothing if the stream may have ended and the context has too many such streams.
    #[inline]
    pub fn may_leave_unmarked(&self) -> bool {
        self.is_unmarked() || self.begin_unmarked()
    }

    #[cold]
    fn begin_unmarked(&self) -> bool {
        // Threads that come at once may exceed it, each by one.
        let may = self.all_unmarked.load(Ordering::Relaxed) < MOST_UNMARKED || self.is_present();
        if may {
            self.note_unmarked();
        }
        may
    }

    #[inline]
    pub fn is_unmarked(&self) -> bool {
        self.unmarked.load(Ordering::Acquire)
    }

    /// The caller then records the last work, or waits for it.
    pub fn clear_unmarked(&self) {
        if self.unmarked.swap(false, Ordering::AcqRel) {
            self.all_unmarked.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub fn driver_number(&self) -> Option<u64> {
        self.driver_number.load(Ordering::Relaxed).checked_sub(1)
    }

    pub fn set_driver_number(&self, number: u64) {
        self.driver_number.store(number.wrapping_add(1), Ordering::Relaxed);
    }

    pub fn capture_number(&self) -> Option<u64> {
        self.capture_number.load(Ordering::Relaxed).checked_sub(1)
    }

    pub fn set_capture_number(&self, number: Option<u64>) {
        self.capture_number.store(number.map_or(0, |number| number.wrapping_add(1)), Ordering::Relaxed);
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        self.clear_unmarked();
    }
}

/// Why work of the stream ran although its wait was not satisfied, until a caller gets the error.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    any: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Abandoned {
    /// Keeps the first error.
    pub fn note(&self, error: Error) {
        self.error.lock().get_or_insert(error);
        self.any.store(true, Ordering::Release);
    }

    /// An error, once, if there is one.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.any.load(Ordering::Acquire) { self.tell() } else { Ok(()) }
    }

    /// Whether an error waits for a caller.
    pub fn is_noted(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// For the drop of an owner: the last one reports an error that no caller got.
    pub fn tell_if_last(this: &Arc<Self>, drop_errors: &DropErrors) {
        if Arc::strong_count(this) == 1
            && let Err(error) = this.check()
        {
            drop_errors.push("destroying a stream that nobody waited for", error);
        }
    }

    #[cold]
    fn tell(&self) -> Result<()> {
        self.any.store(false, Ordering::Relaxed);
        self.error.lock().take().map_or(Ok(()), Err)
    }
}

/// The streams of one context, by handle.
#[derive(Debug, Default)]
pub(crate) struct StreamCores {
    by_handle: Mutex<BTreeMap<usize, Weak<StreamCore>>>,
    /// How many of them are unmarked.
    unmarked: Arc<AtomicUsize>,
}

impl StreamCores {
    /// The core of a stream, for a value of the program. The null handle is the legacy default stream. `is_same` tells
    /// whether a known core of the handle is that of the same stream.
    pub fn of(&self, raw: CUstream, is_same: impl FnOnce(&StreamCore) -> bool) -> Arc<StreamCore> {
        let handle = if raw.is_null() { CU_STREAM_LEGACY.addr() } else { raw.addr() };
        let fresh = || {
            let core = Arc::new(StreamCore::new(handle, &self.unmarked));
            core.add_value();
            core
        };
        if forked() {
            return fresh();
        }
        let mut cores = self.by_handle.lock();
        if let Some(core) = cores.get(&handle).and_then(Weak::upgrade)
            && is_same(&core)
        {
            core.add_value();
            return core;
        }
        // Streams come and go. Remove the dead entries whenever the list has doubled.
        if cores.len().is_power_of_two() {
            cores.retain(|_, core| core.strong_count() > 0);
        }
        let core = fresh();
        cores.insert(handle, Arc::downgrade(&core));
        core
    }

    /// A new core, for a stream that the driver has just made. Older values of the same handle were of a stream that has
    /// ended.
    pub fn fresh(&self, raw: CUstream) -> Arc<StreamCore> {
        self.of(raw, |_| false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::{null_mut, without_provenance_mut};

    #[test]
    fn values_for_one_handle_share_a_core() {
        let cores = StreamCores::default();
        let (one, other) = (without_provenance_mut(0x100), without_provenance_mut(0x200));
        let first = cores.of(one, |_| true);
        assert!(Arc::ptr_eq(&first, &cores.of(one, |_| true)) && !Arc::ptr_eq(&first, &cores.of(other, |_| true)));
        assert!(!Arc::ptr_eq(&first, &cores.fresh(one)));
        let legacy = cores.of(null_mut(), |_| true);
        assert!(Arc::ptr_eq(&legacy, &cores.of(CU_STREAM_LEGACY, |_| true)));
    }

    #[test]
    fn a_stream_is_present_while_the_program_has_a_value_for_it() {
        let (cores, raw) = (StreamCores::default(), without_provenance_mut(0x100));
        let core = cores.of(raw, |_| true);
        assert!(Arc::ptr_eq(&core, &cores.of(raw, StreamCore::is_present)));
        assert!(!core.end_value() && core.is_present());
        assert!(core.end_value() && !core.is_present());
        assert!(!Arc::ptr_eq(&core, &cores.of(raw, StreamCore::is_present)), "the handle may name a new stream");
        assert_eq!(core.driver_number(), None);
        core.set_driver_number(0);
        assert_eq!(core.driver_number(), Some(0));
    }

    #[test]
    fn streams_that_have_ended_leave_no_entries() {
        let cores = StreamCores::default();
        for number in 1..if cfg!(miri) { 200 } else { 10_000 } {
            drop(cores.of(without_provenance_mut(number * 8), |_| true));
        }
        assert!(cores.by_handle.lock().len() < 16);
    }
    #[test]
    fn few_streams_that_may_have_ended_are_left_unmarked() {
        let cores = StreamCores::default();
        let ended = |number: usize| {
            let core = cores.of(without_provenance_mut(number * 8), |_| true);
            core.end_value();
            core
        };
        let mut all: Vec<_> = (1..=MOST_UNMARKED).map(ended).collect();
        assert!(all.iter().all(|core| core.may_leave_unmarked() && core.is_unmarked()));
        let more = ended(MOST_UNMARKED + 1);
        assert!(!more.may_leave_unmarked() && !more.is_unmarked());
        assert!(all[0].may_leave_unmarked(), "it is unmarked already");
        more.add_value();
        assert!(more.may_leave_unmarked(), "the program's value marks it later");
        // Marks and ends make room.
        more.end_value();
        all[0].clear_unmarked();
        all.truncate(MOST_UNMARKED - 1);
        let (one, other) = (ended(MOST_UNMARKED + 2), ended(MOST_UNMARKED + 3));
        assert!(one.may_leave_unmarked() && !other.may_leave_unmarked());
        let legacy = cores.of(null_mut(), |_| true);
        assert!(legacy.may_leave_unmarked(), "a default stream does not end");
        drop((all, more, one, other, legacy));
        assert_eq!(cores.unmarked.load(Ordering::Relaxed), 0);
    }
}
