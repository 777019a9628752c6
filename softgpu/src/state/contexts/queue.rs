//! Queues: each does its work in order, on a worker thread of its own.

use crate::call::Result;
use crate::state::checks::races::{self, QueueId};
use crate::sync::lock;
use cuda_sys::CUresult;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long an idle worker waits before it ends. The next work starts another worker.
const PATIENCE: Duration = Duration::from_secs(2);

/// A first-in, first-out queue of work. The queue numbers its work: 1, 2, ...
pub(crate) struct Queue {
    /// Names the queue in race checks.
    pub(crate) id: QueueId,
    /// The seed of its delays, if work is delayed.
    seed: Option<u64>,
    inner: Mutex<QueuedWork>,
    changed: Condvar,
    submitted: AtomicU64,
    completed: AtomicU64,
    /// Whether plain memory was freed in its order since a synchronization last began.
    has_plain_frees: AtomicBool,
}

#[derive(Default)]
struct QueuedWork {
    work: VecDeque<Work>,
    worker: bool,
    closed: bool,
}

struct Work {
    after: Vec<Point>,
    run: Box<dyn FnOnce() + Send>,
}

/// The moment at which a queue has done all work up to a number.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    queue: Arc<Queue>,
    ticket: u64,
}

impl Point {
    pub(crate) fn passed(&self) -> bool {
        self.queue.completed.load(Ordering::Acquire) >= self.ticket
    }

    pub(crate) fn wait(&self) {
        if self.passed() {
            return;
        }
        let mut inner = lock(&self.queue.inner);
        while !self.passed() {
            inner = self.queue.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queue {
    pub(crate) fn new() -> Arc<Self> {
        let seed = SEED.load(Ordering::Relaxed);
        let seed = (seed != 0).then(|| seed.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
        Arc::new(Self {
            id: races::next_id(),
            seed,
            inner: Mutex::default(),
            changed: Condvar::new(),
            submitted: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            has_plain_frees: AtomicBool::new(false),
        })
    }

    /// Notes whether plain memory is freed in its order.
    pub(crate) fn set_has_plain_frees(&self, has: bool) {
        self.has_plain_frees.store(has, Ordering::Release);
    }

    pub(crate) fn has_plain_frees(&self) -> bool {
        self.has_plain_frees.load(Ordering::Acquire)
    }

    /// The end of the work that was queued so far, unless all of it is done.
    pub(crate) fn pending(self: &Arc<Self>) -> Option<Point> {
        let ticket = self.submitted.load(Ordering::Acquire);
        let point = Point { queue: self.clone(), ticket };
        (!point.passed()).then_some(point)
    }

    /// Queues work. The worker does it after all earlier work of this queue and after the points `after`.
    ///
    /// Every point belongs to work that was queued earlier, so queues never wait for each other in a circle.
    pub(crate) fn push(self: &Arc<Self>, after: Vec<Point>, run: Box<dyn FnOnce() + Send>) -> Result<Point> {
        let mut inner = lock(&self.inner);
        if !inner.worker {
            let queue = self.clone();
            std::thread::Builder::new()
                .name("softgpu stream".into())
                .spawn(move || queue.work())
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            inner.worker = true;
        }
        inner.work.push_back(Work { after, run });
        let ticket = self.submitted.fetch_add(1, Ordering::AcqRel) + 1;
        drop(inner);
        self.changed.notify_all();
        Ok(Point { queue: self.clone(), ticket })
    }

    /// Lets the worker end when the work is done.
    pub(crate) fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_all();
    }

    fn work(&self) {
        let mut delays = self.seed.map(Delays);
        let mut inner = lock(&self.inner);
        loop {
            if let Some(Work { after, run }) = inner.work.pop_front() {
                drop(inner);
                after.iter().for_each(Point::wait);
                if let Some(delays) = &mut delays {
                    delays.wait();
                }
                // A panic here would be a bug of softgpu, and the queue must continue after it.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                inner = lock(&self.inner);
                self.completed.fetch_add(1, Ordering::AcqRel);
                self.changed.notify_all();
                continue;
            }
            if !inner.closed {
                let waited = self.changed.wait_timeout(inner, PATIENCE).unwrap_or_else(PoisonError::into_inner);
                inner = waited.0;
                if !waited.1.timed_out() {
                    continue;
                }
            }
            if inner.work.is_empty() {
                inner.worker = false;
                return;
            }
        }
    }
}

/// The seed of the delays for new queues; 0 for none.
static SEED: AtomicU64 = AtomicU64::new(0);
/// How many queues were made since the seed was set.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Sets the seed of the delays for queues made from now on; `None` for no delays.
pub(crate) fn set_seed(seed: Option<u64>) {
    // Any seed is allowed, but 0 in `SEED` means none.
    SEED.store(seed.map_or(0, |seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), Ordering::Relaxed);
    NEXT.store(0, Ordering::Relaxed);
}

struct Delays(u64);

impl Delays {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Waits: mostly for a moment, sometimes for so long that other queues overtake this one.
    fn wait(&mut self) {
        let number = self.next();
        match number % 8 {
            0..2 => {}
            2..4 => std::thread::yield_now(),
            4..7 => std::thread::sleep(Duration::from_micros(number >> 8 & 0xff)),
            _ => std::thread::sleep(Duration::from_micros(500 + (number >> 8 & 0x7ff))),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        races::end(self.id);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("submitted", &self.submitted)
            .field("completed", &self.completed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn work_is_done_in_order_and_in_the_background() {
        let queue = Queue::new();
        assert!(queue.pending().is_none());
        let (open, gate) = mpsc::channel::<()>();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let first = seen.clone();
        let point = queue.push(
            Vec::new(),
            Box::new(move || {
                gate.recv().unwrap();
                first.lock().unwrap().push(0);
            }),
        );
        for n in 1..100 {
            let seen = seen.clone();
            queue.push(Vec::new(), Box::new(move || seen.lock().unwrap().push(n))).unwrap();
        }
        assert!(!point.unwrap().passed() && seen.lock().unwrap().is_empty());
        open.send(()).unwrap();
        queue.pending().iter().for_each(Point::wait);
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
        assert!(queue.pending().is_none());
        queue.close();
    }

    #[test]
    fn work_waits_for_points_of_other_queues() {
        let (one, two) = (Queue::new(), Queue::new());
        let (open, gate) = mpsc::channel::<()>();
        let before = one.push(Vec::new(), Box::new(move || gate.recv().unwrap())).unwrap();
        let after = two.push(vec![before.clone()], Box::new(|| ())).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!after.passed());
        open.send(()).unwrap();
        after.wait();
        assert!(before.passed());
        one.close();
        two.close();
    }
}
