//! Records what each thread is doing, and detects threads that make no progress.

use super::threads;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread may make no progress.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How many times as long the main thread may take for the beginning or the end of a world, in which the driver begins or
/// ends contexts.
const WORLDS_TAKE: u32 = 3;

/// The record of one thread.
#[derive(Debug)]
struct Place {
    steps: u64,
    kind: &'static str,
    doing: &'static str,
    since: Instant,
    works: bool,
    /// The system's number of the thread.
    system: i32,
}

/// The records of all threads.
#[derive(Debug)]
pub struct Board {
    /// The last place is the main thread's.
    places: Vec<Mutex<Place>>,
    failures: Mutex<Vec<String>>,
    failed: AtomicBool,
    seed: u64,
    round: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// Creates the records for this many threads.
    pub fn new(threads: usize, seed: u64) -> Self {
        let place = || Place { steps: 0, kind: "", doing: "", since: Instant::now(), works: false, system: 0 };
        let places = (0..=threads).map(|_| Mutex::new(place())).collect();
        Self { places, failures: Mutex::default(), failed: AtomicBool::new(false), seed, round: AtomicU64::new(0) }
    }

    /// Notes the beginning of a round.
    pub fn round(&self, number: u64) {
        self.round.store(number, Ordering::Relaxed);
    }

    /// Notes that a thread begins a step of a kind.
    pub fn step(&self, thread: usize, kind: &'static str) {
        let mut place = lock(&self.places[thread]);
        let (steps, system) = (place.steps + 1, threads::number());
        *place = Place { steps, kind, doing: "", since: Instant::now(), works: true, system };
    }

    /// Notes what the main thread is doing; `None` while it waits for the others.
    pub fn main(&self, what: Option<&'static str>) {
        let mut place = lock(&self.places[self.places.len() - 1]);
        let (doing, works, system) = (what.unwrap_or(""), what.is_some(), threads::number());
        *place = Place { steps: 0, kind: "the main thread", doing, since: Instant::now(), works, system };
    }

    /// Notes what a thread is doing within its step.
    pub fn doing(&self, thread: usize, what: &'static str) {
        let mut place = lock(&self.places[thread]);
        (place.doing, place.since) = (what, Instant::now());
    }

    /// Notes that a thread has ended.
    pub fn rest(&self, thread: usize) {
        lock(&self.places[thread]).works = false;
    }

    /// Number of steps that all threads have begun.
    pub fn steps(&self) -> u64 {
        self.places.iter().map(|place| lock(place).steps).sum()
    }

    /// Describes what a thread is doing.
    pub fn describe(&self, thread: usize) -> String {
        let (round, place) = (self.round.load(Ordering::Relaxed), lock(&self.places[thread]));
        let Place { steps, kind, doing, since, system, .. } = &*place;
        let (seed, since) = (self.seed, since.elapsed().as_secs_f64());
        format!(
            "seed {seed}, round {round}, thread {thread} ({system}), step {steps}, {kind}: {doing} (for {since:.1} s)"
        )
    }

    /// Records a failure, which makes all threads end.
    pub fn fail(&self, what: String) {
        println!("FAILED: {what}");
        lock(&self.failures).push(what);
        self.failed.store(true, Ordering::Release);
    }

    /// Whether there was a failure.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The failures.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    /// The first thread that has been doing the same thing for longer than `patience`.
    fn stalled(&self, patience: Duration) -> Option<usize> {
        let main = self.places.len() - 1;
        self.places.iter().enumerate().position(|(thread, place)| {
            let (place, times) = (lock(place), if thread == main { WORLDS_TAKE } else { 1 });
            place.works && place.since.elapsed() > patience * times
        })
    }
}

/// Ends the process if a thread makes no progress.
#[derive(Debug)]
pub struct Watchdog {
    end: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Watches the records until the watchdog is dropped.
    pub fn new(board: &Arc<Board>) -> Self {
        let (board, end) = (board.clone(), Arc::new((Mutex::new(false), Condvar::new())));
        let ended = end.clone();
        let thread = std::thread::spawn(move || {
            let mut done = lock(&ended.0);
            while !*done {
                done = ended.1.wait_timeout(done, Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner).0;
                if let Some(thread) = board.stalled(PATIENCE) {
                    println!("FAILED: no progress: {}", board.describe(thread));
                    (0..board.places.len()).for_each(|thread| println!("  {}", board.describe(thread)));
                    print!("{}", threads::report());
                    threads::abort();
                }
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *lock(&self.end.0) = true;
        self.end.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread prints and aborts; it returns nothing.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_detection_reports_busy_threads_but_not_resting_ones() {
        let board = Board::new(2, 5);
        board.step(1, "buffers");
        board.doing(1, "a copy");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((board.stalled(Duration::from_millis(5)), board.stalled(PATIENCE)), (Some(1), None));
        let told = board.describe(1);
        assert!(told.starts_with("seed 5, round 0, thread 1 ("), "{told}");
        assert!(told.contains("), step 1, buffers: a copy (for "), "{told}");
        board.rest(1);
        assert_eq!((board.stalled(Duration::from_millis(5)), board.steps()), (None, 1));
        board.main(Some("ending a world"));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((board.stalled(Duration::from_millis(5)), board.stalled(Duration::from_secs(9))), (Some(2), None));
        board.main(None);
        assert_eq!(board.stalled(Duration::ZERO), None);
    }
}
