//! Helper threads for large copies.

use crate::error::forked;
use crate::lifetime::waiting::{self, Target};
use crate::locks::later::dispose;
use crate::locks::{Condvar, Mutex, MutexGuard};
use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A pool of threads, which start when first needed. After work they poll for more for a short while, the *linger*, so
/// that copies in quick succession find them awake. Then they sleep.
pub(super) struct ThreadPool {
    shared: Arc<SharedQueue>,
    most: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    started: AtomicUsize,
}

struct SharedQueue {
    state: Mutex<JobQueue>,
    /// Notified when a job is published or the pool ends.
    changed: Condvar,
    /// Counts publications, for lingering threads. Changed under the lock.
    published: AtomicU64,
    linger: Duration,
}

#[derive(Default)]
struct JobQueue {
    jobs: Vec<JobPointer>,
    /// Threads that have nothing to do and poll for work.
    lingering: usize,
    /// Threads that must be woken.
    sleeping: usize,
    ended: bool,
}

/// Work that threads may join. It lies on the stack of the thread in `run`, which returns only when the job is off the
/// list and nobody works on it.
struct ThreadJob {
    work: *const (dyn Fn() + Sync),
    /// How many threads may still join. Changed under the lock.
    wanted: AtomicUsize,
    running: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

struct JobPointer(*const ThreadJob);

// SAFETY: a job consists of atomics, a lock and work that is `Sync`. It lives while it is in the list or has workers.
unsafe impl Send for JobPointer {}

impl ThreadPool {
    /// How long threads poll for more work. A sleeping thread takes about 50 us to wake.
    const LINGER: Duration = Duration::from_micros(100);

    /// A pool of at most `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self::with_linger(threads, Self::LINGER)
    }

    fn with_linger(threads: usize, linger: Duration) -> Self {
        let (state, changed, published) = (Mutex::default(), Condvar::new(), AtomicU64::new(0));
        let shared = Arc::new(SharedQueue { state, changed, published, linger });
        Self { shared, most: threads, threads: Mutex::default(), started: AtomicUsize::new(0) }
    }

    /// The process's pool, the default of all engines: one thread fewer than the process has processors, and at most
    /// seven. More do not make one device's copies faster.
    pub fn shared() -> Arc<ThreadPool> {
        static SHARED: OnceLock<Arc<ThreadPool>> = OnceLock::new();
        let make = || {
            let processors = thread::available_parallelism().map_or(1, |count| count.get());
            Arc::new(ThreadPool::new((processors - 1).min(7)))
        };
        SHARED.get_or_init(make).clone()
    }

    /// How many threads can help the calling thread.
    pub fn helpers(&self) -> usize {
        self.most
    }

    /// Calls `work` on the calling thread and, at the same time, once on each of at most `helpers` others. Returns when
    /// all calls have returned. A panic of theirs resumes here.
    pub fn run(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        let helpers = helpers.min(self.most);
        if helpers == 0 {
            return work();
        }
        self.start(helpers);
        // SAFETY: only the lifetime changes: after the drop of `Published` below, no thread uses the work.
        let work_pointer = unsafe { core::mem::transmute::<&(dyn Fn() + Sync), *const (dyn Fn() + Sync)>(work) };
        let job = ThreadJob {
            work: work_pointer,
            wanted: AtomicUsize::new(helpers),
            running: AtomicUsize::new(0),
            panic: Mutex::default(),
        };
        {
            let published = Published { shared: &self.shared, job: &job };
            published.begin();
            work();
        }
        if let Some(panic) = job.panic.into_inner() {
            resume_unwind(panic);
        }
    }

    /// Starts threads until there are `wanted`. If the system refuses more, the pool has fewer.
    fn start(&self, wanted: usize) {
        if self.started.load(Ordering::Relaxed) >= wanted {
            return;
        }
        let mut threads = self.threads.lock();
        while threads.len() < wanted.min(self.most) {
            let shared = self.shared.clone();
            let name = format!("cuda-mem-copy-{}", threads.len());
            match thread::Builder::new().name(name).spawn(move || help(&shared)) {
                Ok(handle) => threads.push(handle),
                Err(_) => break,
            }
        }
        self.started.store(threads.len(), Ordering::Relaxed);
    }
}

impl SharedQueue {
    fn state(&self) -> MutexGuard<'_, JobQueue> {
        self.state.lock()
    }
}

/// A job in the list. Its drop, also during a panic, removes the job and waits for the threads that work on it.
struct Published<'job> {
    shared: &'job SharedQueue,
    job: &'job ThreadJob,
}

impl Published<'_> {
    fn begin(&self) {
        let mut state = self.shared.state();
        state.jobs.push(JobPointer(self.job));
        self.shared.published.fetch_add(1, Ordering::Release);
        // Lingering threads join without a wake.
        let wanted = self.job.wanted.load(Ordering::Relaxed).saturating_sub(state.lingering);
        let wake = wanted.min(state.sleeping);
        drop(state);
        (0..wake).for_each(|_| self.shared.changed.notify_one());
    }
}

impl Drop for Published<'_> {
    fn drop(&mut self) {
        self.shared.state().jobs.retain(|job| !core::ptr::eq(job.0, self.job));
        let (mut rounds, mut watched) = (0u32, None);
        // Acquire: the other threads' work is visible afterwards.
        while self.job.running.load(Ordering::Acquire) != 0 {
            rounds = rounds.saturating_add(1);
            // They usually finish within microseconds, which is too short to sleep and wake.
            if rounds < 1000 {
                core::hint::spin_loop();
            } else {
                watched.get_or_insert_with(|| waiting::enter(&"the threads of a copy", Target::THREAD));
                thread::yield_now();
            }
        }
    }
}

/// The main loop of each thread of the pool.
fn help(shared: &SharedQueue) {
    let mut lingers = false;
    loop {
        let seen = shared.published.load(Ordering::Acquire);
        match next(shared, &mut lingers) {
            Next::Job(job) => work_on(&job),
            Next::Nothing => {
                if !linger(shared, seen) {
                    sleep(shared, seen, &mut lingers);
                }
            }
            Next::End => return,
        }
    }
}

enum Next {
    Job(JobPointer),
    Nothing,
    End,
}

/// Joins a job. `lingers` tells whether the calling thread is counted as lingering.
fn next(shared: &SharedQueue, lingers: &mut bool) -> Next {
    let mut state = shared.state();
    let found = state.jobs.iter().find_map(|JobPointer(job)| {
        // SAFETY: a job in the list is alive.
        let job_in_list = unsafe { &**job };
        let wanted = job_in_list.wanted.load(Ordering::Relaxed);
        (wanted > 0).then(|| {
            job_in_list.wanted.store(wanted - 1, Ordering::Relaxed);
            job_in_list.running.fetch_add(1, Ordering::Relaxed);
            JobPointer(*job)
        })
    });
    let idle = found.is_none();
    if idle != *lingers {
        state.lingering = if idle { state.lingering + 1 } else { state.lingering - 1 };
        *lingers = idle;
    }
    match found {
        Some(job) => Next::Job(job),
        None if state.ended => Next::End,
        None => Next::Nothing,
    }
}

fn work_on(JobPointer(job): &JobPointer) {
    // SAFETY: this thread is counted in `running`, and the job's owner waits until that is 0.
    let job = unsafe { &**job };
    // SAFETY: as above; the work lives as long as the job.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (*job.work)() }));
    if let Err(panic) = outcome {
        let mut first = job.panic.lock();
        match &*first {
            None => *first = Some(panic),
            Some(_) => dispose(panic),
        }
    }
    // The job may cease to exist as soon as the count is 0.
    job.running.fetch_sub(1, Ordering::Release);
}

/// Polls for a publication for the linger time. Returns whether there was one.
fn linger(shared: &SharedQueue, seen: u64) -> bool {
    if shared.linger.is_zero() {
        return false;
    }
    let start = Instant::now();
    while start.elapsed() < shared.linger {
        for _ in 0..32 {
            if shared.published.load(Ordering::Acquire) != seen {
                return true;
            }
            core::hint::spin_loop();
        }
    }
    false
}

fn sleep(shared: &SharedQueue, seen: u64, lingers: &mut bool) {
    let mut state = shared.state();
    if shared.published.load(Ordering::Acquire) != seen || state.ended {
        return;
    }
    state.lingering -= usize::from(*lingers);
    *lingers = false;
    state.sleeping += 1;
    // An idle thread, for which nobody waits, so the wait is not watched.
    let idle = |state: &mut JobQueue| shared.published.load(Ordering::Acquire) == seen && !state.ended;
    state = shared.changed.wait_while(state, idle);
    state.sleeping -= 1;
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        if forked() {
            // A forked process has none of these threads.
            return core::mem::forget(core::mem::take(&mut self.threads));
        }
        self.shared.state().ended = true;
        // Wakes the lingering threads.
        self.shared.published.fetch_add(1, Ordering::Release);
        self.shared.changed.notify_all();
        for handle in self.threads.get_mut().drain(..) {
            // The caller of `run` got any panic of the work.
            let _ = waiting::join(&"the end of the threads of copies", handle);
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let started = self.started.load(Ordering::Relaxed);
        f.debug_struct("ThreadPool").field("most", &self.most).field("started", &started).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::pieces::Pieces;
    use super::*;
    use core::sync::atomic::AtomicBool;

    const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

    #[test]
    fn work_is_done_once_however_many_help() {
        for helpers in [0, 1, 3] {
            for linger in [Duration::ZERO, Duration::from_micros(50)] {
                let pool = ThreadPool::with_linger(helpers, linger);
                for round in 0..ROUNDS / 10 {
                    let (pieces, sum) = (Pieces::new(100, 7, 0, 1), AtomicUsize::new(0));
                    pool.run(round % 5, &|| {
                        while let Some(range) = pieces.claim() {
                            sum.fetch_add(range.len(), Ordering::Relaxed);
                        }
                    });
                    assert_eq!(sum.into_inner(), 100);
                }
            }
        }
    }

    #[test]
    fn several_callers_share_the_threads() {
        let pool = ThreadPool::with_linger(2, Duration::from_micros(20));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS / 20 {
                        let (pieces, sum) = (Pieces::new(64, 4, 0, 1), AtomicUsize::new(0));
                        pool.run(2, &|| {
                            while let Some(range) = pieces.claim() {
                                sum.fetch_add(range.len(), Ordering::Relaxed);
                            }
                        });
                        assert_eq!(sum.into_inner(), 64);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_comes_to_the_caller_and_the_pool_goes_on() {
        let pool = ThreadPool::with_linger(1, Duration::ZERO);
        let caller = thread::current().id();
        for on_caller in [true, false] {
            let ran = AtomicBool::new(false);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(1, &|| {
                    let here = thread::current().id() == caller;
                    if here == on_caller {
                        ran.store(true, Ordering::Relaxed);
                        panic!("planted");
                    }
                    // The caller's part waits for the helper's, which might start too late otherwise.
                    while here && !ran.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                });
            }));
            assert!(outcome.is_err());
        }
        let calls = AtomicUsize::new(0);
        pool.run(1, &|| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert!(calls.into_inner() >= 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "asks the operating system for processor time")]
    fn idle_threads_take_no_processor_time() {
        let pool = ThreadPool::new(3);
        pool.run(3, &|| thread::sleep(Duration::from_millis(5)));
        thread::sleep(Duration::from_millis(20)); // no thread lingers any more
        let spent = || -> u64 {
            let mut spent = 0;
            for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
                let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
                let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                if name.starts_with("cuda-mem-copy") {
                    spent += stat.split_whitespace().next().map_or(0, |time| time.parse::<u64>().unwrap());
                }
            }
            spent
        };
        // Pools of other tests may be busy, so look for any quiet 50 ms.
        let quiet = (0..200).any(|_| {
            let before = spent();
            thread::sleep(Duration::from_millis(50));
            before == spent()
        });
        assert!(quiet, "threads that have nothing to do were running");
    }
}
