//! The captures of this crate that are under way: a number for each, and the thread that it belongs to.
//!
//! Streams and events keep the number of their capture. A number that is not listed here belongs to a capture that has
//! ended, so nothing has to be cleared when a capture ends.

use crate::locks::RwLock;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static SELF: u8 = const { 0 };
}

/// A nonzero number that no other living thread has.
fn this_thread() -> usize {
    SELF.with(|own| core::ptr::from_ref(own).addr())
}

/// The number of a capture. No two captures of a process have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaptureId(NonZeroU64);

/// A capture of another library, which this crate did not begin. Only the driver knows when it ends.
const FOREIGN: u64 = u64::MAX;
/// The per-thread default stream, which is another stream on each thread. `OPEN` knows the captures of each.
const OF_EACH_THREAD: u64 = u64::MAX - 1;

struct OpenCapture {
    id: CaptureId,
    thread: usize,
    /// The thread's default streams in the capture, by the addresses of their `CaptureOf`.
    own_streams: Vec<usize>,
    /// Called after the end.
    at_end: Vec<Box<dyn FnOnce() + Send + Sync>>,
}

static OPEN: RwLock<Vec<OpenCapture>> = RwLock::new(Vec::new());

/// The part of a stream or an event in captures, for the calling thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// No capture of this crate.
    Free,
    /// A capture of this thread.
    Here(CaptureId),
    /// A capture of another thread, which owns the stream or the event until the capture ends.
    Elsewhere,
    /// It joined a capture of another library. The driver knows whether that capture goes on.
    Foreign,
}

impl Membership {
    /// Whether a capture of this crate goes on.
    pub fn is_captured(self) -> bool {
        matches!(self, Self::Here(_) | Self::Elsewhere)
    }
}

/// The capture of a stream, or the capture in which an event was recorded last.
#[derive(Debug, Default)]
pub(crate) struct CaptureOf(AtomicU64);

impl CaptureOf {
    #[inline]
    pub fn membership(&self) -> Membership {
        match self.0.load(Ordering::Acquire) {
            0 => Membership::Free,
            FOREIGN => Membership::Foreign,
            OF_EACH_THREAD => self.look_up_own(),
            number => Self::look_up(number),
        }
    }

    /// For the per-thread default stream of a context.
    pub fn of_each_thread() -> Self {
        Self(AtomicU64::new(OF_EACH_THREAD))
    }

    #[inline]
    pub fn is_of_each_thread(&self) -> bool {
        self.0.load(Ordering::Relaxed) == OF_EACH_THREAD
    }

    /// The address does not change while a capture lists it: the capture's stream keeps it.
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    #[cold]
    fn look_up_own(&self) -> Membership {
        let open = OPEN.read();
        let mut own = open.iter().filter(|capture| capture.thread == this_thread());
        let found = own.find(|capture| capture.own_streams.contains(&self.address()));
        found.map_or(Membership::Free, |capture| Membership::Here(capture.id))
    }

    #[cold]
    fn look_up(number: u64) -> Membership {
        let open = OPEN.read();
        match open.iter().find(|capture| capture.id.0.get() == number) {
            None => Membership::Free,
            Some(capture) if capture.thread == this_thread() => Membership::Here(capture.id),
            Some(_) => Membership::Elsewhere,
        }
    }

    pub fn enter(&self, id: CaptureId) {
        if self.is_of_each_thread() {
            let mut open = OPEN.write();
            if let Some(capture) = open.iter_mut().find(|capture| capture.id == id) {
                capture.own_streams.push(self.address());
            }
            return;
        }
        self.0.store(id.0.get(), Ordering::Release);
    }

    pub fn enter_foreign(&self) {
        // The driver is asked about the per-thread default stream anyway.
        if !self.is_of_each_thread() {
            self.0.store(FOREIGN, Ordering::Release);
        }
    }

    #[inline]
    pub fn leave(&self) {
        // Mostly it is 0 already, and a load is cheaper.
        if !matches!(self.0.load(Ordering::Relaxed), 0 | OF_EACH_THREAD) {
            self.0.store(0, Ordering::Release);
        }
    }
}

/// Lists a capture that the calling thread is about to begin.
pub(crate) fn begin() -> CaptureId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = CaptureId(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN));
    let capture = OpenCapture { id, thread: this_thread(), own_streams: Vec::new(), at_end: Vec::new() };
    OPEN.write().push(capture);
    id
}

/// Calls a function after the end of a capture of this thread.
pub(crate) fn at_end(id: CaptureId, call: impl FnOnce() + Send + Sync + 'static) {
    let mut open = OPEN.write();
    if let Some(capture) = open.iter_mut().find(|capture| capture.id == id) {
        capture.at_end.push(Box::new(call));
    }
}

/// Whether a capture of this thread is under way.
pub(crate) fn this_thread_captures() -> bool {
    OPEN.read().iter().any(|capture| capture.thread == this_thread())
}

/// Removes a capture that has ended.
pub(crate) fn end(id: CaptureId) {
    let ended = {
        let mut open = OPEN.write();
        let place = open.iter().position(|capture| capture.id == id);
        place.map(|place| open.swap_remove(place))
    };
    let calls = ended.map(|capture| capture.at_end).unwrap_or_default();
    calls.into_iter().for_each(|call| call());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_capture_is_its_threads_until_it_ends() {
        let (stream, id) = (CaptureOf::default(), begin());
        assert_eq!(stream.membership(), Membership::Free);
        stream.enter(id);
        assert_eq!(stream.membership(), Membership::Here(id));
        let elsewhere = || thread::scope(|scope| scope.spawn(|| stream.membership()).join().unwrap());
        assert_eq!(elsewhere(), Membership::Elsewhere);
        end(id);
        assert_eq!((stream.membership(), elsewhere()), (Membership::Free, Membership::Free));
        stream.enter_foreign();
        assert_eq!(stream.membership(), Membership::Foreign);
        stream.leave();
        assert_eq!(stream.membership(), Membership::Free);
    }

    #[test]
    fn each_thread_captures_its_own_default_stream() {
        let (stream, id) = (CaptureOf::of_each_thread(), begin());
        stream.enter(id);
        stream.leave();
        stream.enter_foreign();
        assert_eq!(stream.membership(), Membership::Here(id));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(stream.membership(), Membership::Free);
                let own = begin();
                stream.enter(own);
                assert_eq!(stream.membership(), Membership::Here(own));
                end(own);
                assert_eq!(stream.membership(), Membership::Free);
            });
        });
        assert_eq!(stream.membership(), Membership::Here(id));
        end(id);
        assert_eq!(stream.membership(), Membership::Free);
    }
}
