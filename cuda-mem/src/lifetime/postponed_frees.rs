//! Frees by calls that wait for the whole context.
//!
//! Memory of cuMemAllocManaged, of cuMemHostAlloc, of vkgdr, of other processes, and registered memory ends by such calls.
//! While queued work waits for the CPU, they must not run, so they wait in the context's queue. The queue has a limit in
//! bytes: beyond it an allocation waits, a drop never does.

use super::end_queue::EndQueue;
use super::quiet::Quiet;
use crate::Result;
use crate::error::call;
use crate::error::capture_errors::is_for_a_capture;
use crate::error::drop_errors::DropErrors;
use crate::locks::Mutex;
use core::any::Any;
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_sys::CUevent;
use std::sync::Arc;

/// How many bytes may wait to be freed before allocations wait too, unless the program sets another limit.
pub(crate) const DEFAULT_LIMIT: usize = 1 << 30;

/// Called with the context current, and again if a capture forbade it.
pub(crate) type Free = Box<dyn FnMut(&cuda_sys::Driver) -> Result<()> + Send>;

/// A free that waits. It holds no reference to its context, which would keep the context alive for ever.
pub(crate) struct PostponedFree {
    pub doing: &'static str,
    pub size: usize,
    pub free: Free,
    pub drop_errors: Arc<DropErrors>,
    /// The memory itself, if it can be used again instead of being freed.
    pub reusable: Option<Reusable>,
}

/// Memory that can be used again after its last work.
pub(crate) struct Reusable {
    pub memory: Box<dyn Any + Send>,
    /// An event after that work. It ends with the memory, or with the context.
    pub after: EventAfter,
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
    /// Held by the thread that frees. Others wait for it: they need the memory.
    turn: Mutex<()>,
    /// Frees that wait or run.
    count: AtomicUsize,
    bytes: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for PostponedFrees {
    fn default() -> Self {
        let [count, bytes] = [const { AtomicUsize::new(0) }; 2];
        Self { waiting: EndQueue::new(), turn: Mutex::default(), count, bytes, limit: AtomicUsize::new(DEFAULT_LIMIT) }
    }
}

/// A free that has ended.
pub(crate) struct FreeDone(PostponedFree, Result<()>);

impl PostponedFrees {
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
            let reusable = free.reusable.as_ref()?;
            Some(fits(reusable.memory.downcast_ref()?, reusable.after))
        };
        let mut free = self.waiting.take_first(|free| accepts(free) == Some(true))?;
        self.forget(&free);
        let Reusable { memory, after } = free.reusable.take()?;
        memory.downcast().ok().map(|memory| (*memory, after))
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

    /// The bytes that wait, if they are more than the limit.
    pub fn beyond_limit(&self) -> Option<usize> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        (bytes > self.limit()).then_some(bytes)
    }

    /// Makes the calls, in the current context and a quiet moment. Returns the frees that have ended. Report them after
    /// the moment: a hook may queue work, which waits for the end of that moment.
    pub fn run(&self, cuda: &cuda_sys::Driver, _quiet: &Quiet<'_>) -> Vec<FreeDone> {
        let _turn = self.turn.lock();
        let frees = self.waiting.take_all();
        if frees.is_empty() {
            return Vec::new();
        }
        #[expect(clippy::disallowed_methods, reason = "the callers are watched")]
        // SAFETY: the context is current.
        if let Err(error) = unsafe { call!(cuda.cuCtxSynchronize()) }
            && is_for_a_capture(&error)
        {
            frees.into_iter().for_each(|free| self.waiting.push(free));
            return Vec::new();
        }
        // If the context is broken, no call works any more, and each free reports its own error.
        let mut done = Vec::new();
        for mut free in frees {
            match (free.free)(cuda) {
                Err(error) if is_for_a_capture(&error) => self.waiting.push(free),
                result => {
                    self.forget(&free);
                    done.push(FreeDone(free, result));
                }
            }
        }
        done
    }

    /// Discards the frees of a context that has ended. Its end has freed the memory.
    pub fn discard(&self) {
        let frees = self.waiting.take_all();
        frees.iter().for_each(|free| self.forget(free));
    }
}

impl FreeDone {
    /// The event that the memory kept.
    pub fn event(&self) -> Option<EventAfter> {
        self.0.reusable.as_ref().map(|reusable| reusable.after)
    }

    /// Reports a failed free, and drops what it owned.
    pub fn report(self) {
        let Self(free, result) = self;
        if let Err(error) = result
            && !error.is_teardown()
        {
            free.drop_errors.push(free.doing, error);
        }
    }
}
