//! Frees by calls that wait for the whole context.
//!
//! Memory of cuMemAllocManaged, of cuMemHostAlloc, of vkgdr, of other processes, and registered memory ends by such calls.
//! While queued work waits for the CPU, they must not run, so they wait in the context's queue. The queue has a limit in
//! bytes: beyond it an allocation waits, a drop never does.

use super::end_queue::EndQueue;
use super::quiet::Quiet;
use super::waiting::{self, Target};
use crate::error::call;
use crate::error::capture_errors::is_for_a_capture;
use crate::error::drop_errors::DropErrors;
use crate::locks::later;
use crate::locks::{Condvar, Held, Kind, Mutex, MutexGuard};
use crate::{Error, Result};
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use cuda_sys::CUevent;
use std::sync::Arc;
use std::time::Instant;

/// How many bytes may wait to be freed before allocations wait too, unless the program sets another limit.
pub(crate) const DEFAULT_LIMIT: usize = 1 << 30;

/// After so many refused waits in so long a time, the memory is given up.
const REFUSALS: u32 = 16;
const REFUSED_FOR: Duration = Duration::from_secs(1);

/// Called with the context current, and again if a capture forbade it.
pub(crate) type Free = Box<dyn FnMut(&cuda_sys::Driver) -> Result<()> + Send>;

/// A free that waits. It holds no reference to its context, which would keep the context alive for ever.
pub(crate) struct PostponedFree {
    pub doing: &'static str,
    pub size: usize,
    pub free: Free,
    pub drop_errors: Arc<DropErrors>,
    /// `free` owns a value of the program, whose drop runs the program's code.
    pub owns_programs_value: bool,
    /// The work that uses the memory.
    pub work: WorkBefore,
    /// The memory itself, if it can be used again instead of being freed, once an event tells that its work is done.
    pub reusable: Option<Box<dyn Any + Send>>,
}

/// The work before a free.
#[derive(Clone, Copy)]
pub(crate) enum WorkBefore {
    /// It is done.
    Done,
    /// It comes before this event, which ends with the memory, or with the context.
    Event(EventAfter),
    /// Nobody knows which it is: all work of the context.
    All,
}

impl PostponedFree {
    /// Drops what the free owned. The end of a context waits for this, but not for code of the program.
    fn end(self) {
        if self.owns_programs_value {
            later::run(|| drop(self));
        }
    }
}

/// An event without its context.
#[derive(Clone, Copy)]
pub(crate) struct EventAfter(pub CUevent);

// SAFETY: a CUevent is a token that every thread may pass to the driver.
unsafe impl Send for EventAfter {}

/// The frees of a driver context that wait.
#[derive(Debug)]
pub(crate) struct PostponedFrees {
    waiting: EndQueue<PostponedFree>,
    turns: Mutex<Turns>,
    /// A turn has ended.
    changed: Condvar,
    /// Frees that wait or run.
    count: AtomicUsize,
    bytes: AtomicUsize,
    limit: AtomicUsize,
    /// Frees that were made.
    made: AtomicUsize,
}

/// Who frees, and what keeps it from freeing.
#[derive(Debug, Default)]
struct Turns {
    is_taken: bool,
    refused: Option<RefusedWait>,
}

/// The wait for all work that comes before the frees is refused.
#[derive(Debug)]
struct RefusedWait {
    error: Error,
    /// How often in a row, and since when. A capture, which will end, begins a new row.
    times: u32,
    since: Instant,
}

/// The right to free. Other threads wait for its end: they need the memory.
#[derive(Debug)]
pub(crate) struct Turn<'frees> {
    of: &'frees PostponedFrees,
    _held: Held,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.turns().is_taken = false;
        self.of.changed.notify_all();
    }
}

impl Default for PostponedFrees {
    fn default() -> Self {
        let [count, bytes, made] = [const { AtomicUsize::new(0) }; 3];
        let (turns, changed, limit) = (Mutex::default(), Condvar::new(), AtomicUsize::new(DEFAULT_LIMIT));
        Self { waiting: EndQueue::new(), turns, changed, count, bytes, limit, made }
    }
}

/// A free that has ended.
#[must_use = "it holds what the program owns, and an error to report"]
pub(crate) struct FreeDone {
    free: PostponedFree,
    result: Result<()>,
    /// The call was not made, and never will be.
    is_given_up: bool,
}

impl PostponedFrees {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock()
    }

    pub fn push(&self, free: PostponedFree) {
        self.bytes.fetch_add(free.size, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Release);
        self.waiting.push(free);
    }

    /// Removes a free that has ended.
    fn forget(&self, free: &PostponedFree) {
        self.bytes.fetch_sub(free.size, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// Takes back the first memory of a type that `fits` accepts, and its event. It is not freed then. `fits` must not end
    /// values.
    pub fn take_back<M: 'static>(&self, fits: impl Fn(&M, EventAfter) -> bool) -> Option<(M, EventAfter)> {
        let accepts = |free: &PostponedFree| {
            let WorkBefore::Event(after) = free.work else { return None };
            Some(fits(free.reusable.as_ref()?.downcast_ref()?, after))
        };
        let mut free = self.waiting.take_first(|free| accepts(free) == Some(true))?;
        self.forget(&free);
        let WorkBefore::Event(after) = free.work else { return None };
        free.reusable.take()?.downcast().ok().map(|memory| (*memory, after))
    }

    /// Whether no free waits or runs.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// How many bytes may wait.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes wait.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The bytes that wait, if they are more than the limit.
    pub fn beyond_limit(&self) -> Option<usize> {
        let bytes = self.bytes();
        (bytes > self.limit()).then_some(bytes)
    }

    /// How many frees were made so far: a thread that lacks memory tries again if there are more than before.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Acquire)
    }

    /// Takes the turn to free. If another thread frees now, first waits for it.
    pub fn turn(&self, target: Target) -> Turn<'_> {
        let is_taken = |turns: &mut Turns| turns.is_taken;
        waiting::wait_while(&"a postponed free of another thread", target, &self.changed, self.turns(), is_taken)
            .is_taken = true;
        Turn { of: self, _held: Held::new(Kind::Gate) }
    }

    /// Why the driver refused to wait for the work before the frees, the last time.
    pub fn refusal(&self) -> Option<Error> {
        self.turns().refused.as_ref().map(|refused| refused.error.clone())
    }

    /// Makes the calls, in the current context and a quiet moment. Returns the frees that have ended. Report them after
    /// the moment and the turn: a hook may queue work, or wait for another thread.
    ///
    /// Each call comes after the work that uses its memory. If the driver refuses to wait for that work, it waits for the
    /// next moment. If it stays refused, the memory is never freed. `is_over` tells whether an error has ended the work.
    ///
    /// A wait for all work of the context would invalidate captures of other libraries, so it is made only for memory of
    /// which no event tells.
    pub fn run(
        &self,
        cuda: &cuda_sys::Driver,
        _moment: (&Turn<'_>, &Quiet<'_>),
        is_over: impl Fn(&Error) -> bool,
    ) -> Vec<FreeDone> {
        let frees = self.waiting.take_all();
        if frees.is_empty() {
            return Vec::new();
        }
        let (mut ready, mut unknown, mut refusal) = (Vec::new(), Vec::new(), None);
        let mut all = None;
        for free in frees {
            #[expect(clippy::disallowed_methods, reason = "the callers are watched")]
            // SAFETY: the context is current, and the event lives as long as the free waits.
            let waited = unsafe {
                match free.work {
                    WorkBefore::Done => Ok(()),
                    WorkBefore::Event(after) => call!(cuda.cuEventSynchronize(after.0)),
                    WorkBefore::All => all.get_or_insert_with(|| call!(cuda.cuCtxSynchronize())).clone(),
                }
            };
            match waited {
                Err(error) if !is_over(&error) => {
                    unknown.push(free);
                    refusal = Some(error);
                }
                _ => ready.push(free),
            }
        }
        let mut done = match refusal {
            Some(error) => self.refused(unknown, &error),
            None => {
                self.turns().refused = None;
                Vec::new()
            }
        };
        // If the context is broken, no call works any more, and each free reports its own error.
        for mut free in ready {
            match (free.free)(cuda) {
                Err(error) if is_for_a_capture(&error) => {
                    self.waiting.push(free);
                    self.note_refusal(&error);
                }
                result => {
                    self.made.fetch_add(usize::from(result.is_ok()), Ordering::Release);
                    self.forget(&free);
                    // It failed as if the context had ended.
                    let is_given_up = result.as_ref().is_err_and(|error| error.is_teardown() && !is_over(error));
                    done.push(FreeDone { free, result, is_given_up });
                }
            }
        }
        done
    }

    /// Keeps frees for later, because nobody knows whether the work before them is done. Gives them up if the driver has
    /// refused to tell for long.
    #[cold]
    pub fn refused(&self, frees: Vec<PostponedFree>, error: &Error) -> Vec<FreeDone> {
        let gives_up = self.note_refusal(error);
        frees.into_iter().for_each(|free| self.waiting.push(free));
        if gives_up { self.give_up(error) } else { Vec::new() }
    }

    /// Takes the frees that wait, and never makes them: work may still use the memory.
    pub fn give_up(&self, error: &Error) -> Vec<FreeDone> {
        let give_up = |free| {
            self.forget(&free);
            FreeDone { free, result: Err(error.clone()), is_given_up: true }
        };
        self.waiting.take_all().into_iter().map(give_up).collect()
    }

    /// Notes that the driver refused. Whether it has for so long that it will not tell any more. A capture ends.
    fn note_refusal(&self, error: &Error) -> bool {
        let is_lasting = |error: &Error| !is_for_a_capture(error);
        let mut turns = self.turns();
        let former = turns.refused.take().filter(|former| is_lasting(error) && is_lasting(&former.error));
        let (times, since) = former.map_or((1, Instant::now()), |former| (former.times + 1, former.since));
        turns.refused = Some(RefusedWait { error: error.clone(), times, since });
        is_lasting(error) && times >= REFUSALS && since.elapsed() >= REFUSED_FOR
    }

    /// Discards the frees of a context that has ended. Its end has freed the memory.
    pub fn discard(&self) {
        let frees = self.waiting.take_all();
        frees.iter().for_each(|free| self.forget(free));
        frees.into_iter().for_each(PostponedFree::end);
    }
}

impl FreeDone {
    /// The event after the memory's work.
    pub fn event(&self) -> Option<EventAfter> {
        if let WorkBefore::Event(after) = self.free.work { Some(after) } else { None }
    }

    /// Reports a failed free, and drops what it owned.
    pub fn report(self) {
        let Self { free, result, is_given_up } = self;
        if let Err(error) = result
            && (is_given_up || !error.is_teardown())
        {
            free.drop_errors.push(free.doing, error);
        }
        if is_given_up {
            // Part of it may be the memory.
            core::mem::forget((free.free, free.reusable));
        } else {
            free.end();
        }
    }
}
