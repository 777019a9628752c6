//! A bounded record of the newest events.

use super::name::current_name;
use super::{Action, Trace, TraceEvent};
use crate::adaptor::Observe;
use crate::error::{forked, unless_forked};
use crate::locks::Mutex;
use crate::memory::resource::Block;
use crate::{Result, Stream};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The newest events of a resource.
#[derive(Debug)]
pub(crate) struct Ring {
    began: Instant,
    kept: Mutex<NewestEvents>,
}

#[derive(Debug)]
struct NewestEvents {
    capacity: usize,
    events: VecDeque<TraceEvent>,
    lost: u64,
}

impl Ring {
    /// Keeps the `capacity` newest events; `None` for a capacity of 0.
    pub fn new(capacity: usize) -> Option<Self> {
        let kept = Mutex::new(NewestEvents { capacity, events: VecDeque::new(), lost: 0 });
        (capacity > 0).then(|| Self { began: Instant::now(), kept })
    }

    /// Records an event of the calling thread.
    pub fn note(&self, action: Action, address: u64, size: usize, stream: u64, name: Option<Arc<str>>) {
        if forked() {
            return;
        }
        let thread = thread_id();
        let mut kept = self.kept.lock();
        // Under the lock, so that times never decrease.
        let time_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let gone = kept.push(TraceEvent { time_ns, thread, action, address, size: size as u64, stream, name });
        drop(kept);
        // Outside of the lock: the event may hold the last reference to its name.
        drop(gone);
    }

    pub fn trace(&self) -> Trace {
        unless_forked(|| {
            let kept = self.kept.lock();
            Trace { lost: kept.lost, events: kept.events.iter().cloned().collect() }
        })
    }
}

impl Observe for Ring {
    type Free = ();

    #[cold]
    fn allocated(&self, size: usize, stream: &Stream, block: &Result<Block>) {
        let (action, address) = match block {
            Ok(block) => (Action::Allocate, block.device_pointer()),
            Err(error) if error.is_out_of_memory() => (Action::OutOfMemory, 0),
            // A request that no memory could satisfy is no part of the trace.
            Err(_) => return,
        };
        self.note(action, address, size, stream.raw().addr() as u64, current_name());
    }

    #[cold]
    fn freeing(&self, block: Block, stream: Option<&Stream>) -> Result<()> {
        let stream = stream.map_or(0, |stream| stream.raw().addr() as u64);
        self.note(Action::Free, block.device_pointer(), block.size(), stream, None);
        Ok(())
    }

    #[cold]
    fn free_failed(&self, block: Block, stream: &Stream, (): ()) {
        self.note(Action::FreeFailure, block.device_pointer(), block.size(), stream.raw().addr() as u64, None);
    }
}

impl NewestEvents {
    /// Adds an event, and returns the one that it replaces.
    fn push(&mut self, event: TraceEvent) -> Option<TraceEvent> {
        let gone = if self.events.len() == self.capacity { self.events.pop_front() } else { None };
        self.lost += u64::from(gone.is_some());
        self.events.push_back(event);
        gone
    }
}

/// The operating system's id of the calling thread, cached.
fn thread_id() -> u64 {
    fn ask() -> u64 {
        // SAFETY: gettid only returns a number.
        u64::try_from(unsafe { libc::gettid() }).unwrap_or_default()
    }
    thread_local!(static ID: u64 = ask());
    // A thread that is ending has lost its thread-local value.
    ID.try_with(|id| *id).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_stay_and_the_others_are_counted() {
        let mut kept = NewestEvents { capacity: 3, events: VecDeque::new(), lost: 0 };
        for time_ns in 0..5 {
            let action = Action::Allocate;
            kept.push(TraceEvent { time_ns, thread: 0, action, address: 0, size: 0, stream: 0, name: None });
        }
        assert_eq!(kept.events.iter().map(|event| event.time_ns).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(kept.lost, 2);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the system for the thread's number")]
    fn times_do_not_go_back_whichever_threads_write() {
        let ring = Ring::new(1000).unwrap();
        std::thread::scope(|scope| {
            for stream in 0..4 {
                let ring = &ring;
                scope.spawn(move || (0..100).for_each(|size| ring.note(Action::Free, 1, size, stream, None)));
            }
        });
        let trace = ring.trace();
        assert_eq!((trace.events.len(), trace.lost), (400, 0));
        assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
        for stream in 0..4 {
            let own: Vec<_> = trace.events.iter().filter(|event| event.stream == stream).collect();
            assert!(own.iter().all(|event| event.thread == own[0].thread) && own.is_sorted_by_key(|event| event.size));
        }
        assert!(Ring::new(0).is_none());
    }
}
