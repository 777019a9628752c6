//! Tests of calls that run one at a time, and of values that wait for the end of captures, under every interleaving of
//! threads, and every value that a load may return. Compiles their sources a second time, over loom's primitives.

#![allow(clippy::duplicate_mod, reason = "the same source over other primitives")]

mod sync {
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

    pub fn until(_call: &'static &'static str, mut is_done: impl FnMut() -> bool) {
        while !is_done() {
            loom::thread::yield_now();
        }
    }
}

/// The queue over loom's types, with the memory orderings of the real one.
mod end_queue {
    use loom::sync::Mutex;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    pub struct EndQueue<T> {
        waiting: Mutex<Vec<T>>,
        count: AtomicUsize,
    }

    impl<T> EndQueue<T> {
        pub fn new() -> Self {
            Self { waiting: Mutex::new(Vec::new()), count: AtomicUsize::new(0) }
        }

        fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
            let mut waiting = self.waiting.lock().expect("no thread panics");
            let result = change(&mut waiting);
            self.count.store(waiting.len(), Ordering::Release);
            result
        }

        pub fn push(&self, value: T) {
            self.change(|waiting| waiting.push(value));
        }

        pub fn take_all(&self) -> Vec<T> {
            if self.is_empty() { Vec::new() } else { self.change(core::mem::take) }
        }

        pub fn is_empty(&self) -> bool {
            self.count.load(Ordering::Acquire) == 0
        }
    }
}

#[allow(dead_code, reason = "the test uses only what several threads use")]
#[path = "serial_ends.rs"]
mod serial_ends;

#[allow(dead_code, reason = "as above")]
#[path = "capture_count.rs"]
mod capture_count;

use crate::Result;
use capture_count::CaptureCount;
use end_queue::EndQueue;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use serial_ends::{EndsAlone, SerialEnds};

/// Counts its end.
struct Object(Arc<AtomicUsize>);

impl EndsAlone for Object {
    fn end(&self) -> Result<()> {
        Ok(())
    }

    fn report(self, _ended: Result<()>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn whatever_two_threads_end_at_once_has_ended_after_both() {
    loom::model(|| {
        let ends = Arc::new(SerialEnds::default());
        let ended = Arc::new(AtomicUsize::new(0));
        let worker = || {
            let (ends, ended) = (ends.clone(), ended.clone());
            thread::spawn(move || ends.end(Object(ended)))
        };
        for thread in [worker(), worker()] {
            thread.join().expect("no thread panics");
        }
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn what_is_kept_while_the_last_capture_ends_is_taken_once() {
    loom::model(|| {
        let captures = Arc::new(CaptureCount { count: AtomicUsize::new(0), waiting: EndQueue::new() });
        let taken = Arc::new(AtomicUsize::new(0));
        assert!(captures.try_begin());
        let worker = |work: fn(&CaptureCount<()>) -> Vec<()>| {
            let (captures, taken) = (captures.clone(), taken.clone());
            thread::spawn(move || taken.fetch_add(work(&captures).len(), Ordering::Relaxed))
        };
        for thread in [worker(|captures| captures.end()), worker(|captures| captures.keep(()))] {
            thread.join().expect("no thread panics");
        }
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    });
}
