//! The thread that ends what no call of the program will end.
//!
//! It starts when something waits whose moment may pass unseen: a host function returns, a stream passes its wait for a
//! flag. It looks again and again, with growing pauses, and ends when nothing waits any more.

use crate::Error;
use crate::lifetime::waiting::{self, Target};
use crate::locks::later::dispose;
use crate::locks::{Condvar, Held, Kind, Mutex, MutexGuard};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::{self, ThreadId};

/// Shortest and longest pause between two looks.
pub(crate) const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));

/// Something that waits until it can end.
pub(crate) trait Waiting: Send + Sync {
    /// Ends what can end now. Whether another look is needed. [`Worker::dismiss`] waits for the end of a look, so what
    /// runs the program's code is left for later.
    fn look(&self) -> bool;
}

struct WorkerEntry {
    waiting: Weak<dyn Waiting>,
    /// Something was added after the last look had begun.
    again: bool,
}

impl WorkerEntry {
    fn address(&self) -> usize {
        self.waiting.as_ptr().addr()
    }
}

struct Rota {
    entries: Vec<WorkerEntry>,
    /// The thread, while it works.
    thread: Option<ThreadId>,
    runs: bool,
    /// The address of what the thread looks at now, or 0.
    looking: usize,
    /// Something was added, so the next pause is short.
    news: bool,
}

/// One such thread.
pub(crate) struct Worker {
    name: &'static str,
    rota: Mutex<Rota>,
    changed: Condvar,
}

/// Drops values and frees memory. It runs the program's code, and may wait for the device.
pub(crate) static ENDS: Worker = Worker::new("cuda-mem ends");
/// Releases streams from waits that nobody will satisfy. It waits for nothing: what another thread waits for may wait for
/// such a stream.
pub(crate) static RELEASES: Worker = Worker::new("cuda-mem signals");
/// Wakes tasks of the program, which others may wait for.
pub(crate) static WAKES: Worker = Worker::new("cuda-mem wakes");

impl Worker {
    const fn new(name: &'static str) -> Self {
        let rota = Rota { entries: Vec::new(), thread: None, runs: false, looking: 0, news: false };
        Self { name, rota: Mutex::new(rota), changed: Condvar::new() }
    }

    fn rota(&self) -> MutexGuard<'_, Rota> {
        self.rota.lock()
    }

    /// Lets the thread look at something until its `look` returns false or it is dropped.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread. The next call tries again.
    pub fn employ<W: Waiting + 'static>(&'static self, waiting: &Arc<W>) -> Result<(), Error> {
        let entry = WorkerEntry { waiting: Arc::downgrade(waiting) as Weak<dyn Waiting>, again: true };
        let mut rota = self.rota();
        match rota.entries.iter_mut().find(|known| known.address() == entry.address()) {
            Some(known) => known.again = true,
            None => rota.entries.push(entry),
        }
        rota.news = true;
        if rota.runs {
            self.changed.notify_all();
            return Ok(());
        }
        let started = thread::Builder::new().name(self.name.into()).spawn(|| self.work());
        let failed = |error: std::io::Error| Error::System {
            call: "pthread_create",
            code: error.raw_os_error().unwrap_or_default(),
        };
        started.map_err(failed)?;
        rota.runs = true;
        Ok(())
    }

    /// Takes something off the thread's list. The thread holds no reference to it any more when this returns.
    pub fn dismiss<W: Waiting>(&self, what: &Arc<W>) {
        let address = Arc::as_ptr(what).addr();
        let mut rota = self.rota();
        rota.entries.retain(|entry| entry.address() != address);
        // The thread itself may come here, in a hook or in the end of another value.
        let looks = |rota: &mut Rota| rota.looking == address && rota.thread != Some(thread::current().id());
        drop(waiting::wait_while(&"the end of a thread's look", Target::THREAD, &self.changed, rota, looks));
    }

    fn work(&self) {
        self.rota().thread = Some(thread::current().id());
        let mut pause = PAUSES.0;
        loop {
            let round: Vec<usize> = self.rota().entries.iter().map(WorkerEntry::address).collect();
            round.into_iter().for_each(|address| self.look_at(address));
            let mut rota = self.rota();
            if rota.entries.is_empty() {
                (rota.thread, rota.runs) = (None, false);
                return;
            }
            if core::mem::take(&mut rota.news) {
                pause = PAUSES.0;
            }
            drop(self.changed.wait_timeout(rota, pause));
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn look_at(&self, address: usize) {
        let mut rota = self.rota();
        let Some(entry) = rota.entries.iter_mut().find(|entry| entry.address() == address) else { return };
        entry.again = false;
        let waiting = entry.waiting.clone();
        rota.looking = address;
        drop(rota);
        // What is due during the look runs after it: it may wait for this worker.
        let looking = Held::new(Kind::Gate);
        // The upgraded reference is dropped before `looking` is cleared. A panic must not leave it set.
        let look = || waiting.upgrade().is_some_and(|waiting| waiting.look());
        let more = catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|payload| {
            dispose(payload);
            true
        });
        drop(waiting);
        let mut rota = self.rota();
        rota.looking = 0;
        if !more {
            rota.entries.retain(|entry| entry.address() != address || entry.again);
        }
        self.changed.notify_all();
        drop((rota, looking));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};

    struct Countdown(AtomicUsize);

    impl Waiting for Countdown {
        fn look(&self) -> bool {
            self.0.fetch_sub(1, Ordering::Relaxed) > 1
        }
    }

    fn wait_for(done: impl Fn() -> bool) {
        let begin = std::time::Instant::now();
        while !done() {
            assert!(begin.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_thread_looks_until_nothing_waits() {
        let three = Arc::new(Countdown(AtomicUsize::new(3)));
        ENDS.employ(&three).unwrap();
        wait_for(|| three.0.load(Ordering::Relaxed) == 0);
        three.0.store(2, Ordering::Relaxed);
        ENDS.employ(&three).unwrap();
        wait_for(|| three.0.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn what_is_dismissed_is_held_by_nobody() {
        let endless = Arc::new(Countdown(AtomicUsize::new(usize::MAX)));
        ENDS.employ(&endless).unwrap();
        wait_for(|| endless.0.load(Ordering::Relaxed) != usize::MAX);
        ENDS.dismiss(&endless);
        let after = endless.0.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        assert_eq!((Arc::strong_count(&endless), endless.0.load(Ordering::Relaxed)), (1, after));
    }
}
