//! Which work the CPU must wait for before its first access to a buffer's memory.
//!
//! A source may hand out a block while work of its former owner is still queued, and a buffer may become shared while its
//! own work runs. An exclusive access waits for the home stream. A shared access must not: a kernel that was queued
//! later may wait for that access. So the gate marks the end of the work when the memory becomes shared. The first
//! access waits for the mark; later ones cost one load.

use super::work::Work;
use crate::error::check_not_forked;
use crate::locks::Mutex;
use crate::{Event, Result, Stream, lifetime::waiting};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The work that an access by the CPU must wait for is done. Only waits make this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuReady<'memory>(PhantomData<&'memory ()>);

impl CpuReady<'_> {
    /// The caller has waited for the memory's work.
    #[inline]
    pub(super) fn after_wait() -> Self {
        Self(PhantomData)
    }
}

/// Keeps the CPU from shared memory until the work from before is done.
pub(super) struct CpuGate {
    is_open: AtomicBool,
    /// The work from before the memory became shared.
    work: Work,
    owed: Mutex<Owed>,
}

/// The work on the home stream that the CPU must wait for.
#[derive(Clone)]
enum Owed {
    /// The work before an event.
    Mark(Arc<Event>),
    /// The work before the mark that it has.
    Marked,
    /// All work of the stream: no event could be recorded yet, because the stream captured or the driver failed.
    Unmarked,
    Nothing,
}

impl CpuGate {
    /// A gate behind all work queued on `home` so far, and behind the reported work. None if there is no such work.
    pub fn behind(home: &Stream, work: Work) -> Option<Arc<Self>> {
        let owed = match work.pending() {
            None if !work.has_uses() => return None,
            None => Owed::Nothing,
            // The program may have queued a kernel since, which waits for the access.
            Some(_) if work.marked().is_some() => Owed::Marked,
            Some(_) => mark(home).map_or(Owed::Unmarked, Owed::Mark),
        };
        Some(Arc::new(Self { is_open: AtomicBool::new(false), work, owed: Mutex::new(owed) }))
    }

    #[inline]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Waits for the work, unless that has happened.
    ///
    /// # Errors
    ///
    /// The work failed. `home` captures since before the memory became shared, so nobody can tell when its earlier work
    /// is done.
    #[inline]
    pub fn pass(&self, home: &Stream) -> Result<CpuReady<'_>> {
        if !self.is_open() {
            self.wait(home)?;
        }
        Ok(CpuReady::after_wait())
    }

    #[cold]
    fn wait(&self, home: &Stream) -> Result<()> {
        check_not_forked("a CPU access to shared memory")?;
        waiting::while_doing(&"for a CPU access to shared memory", || {
            // Without the lock, so that each thread's wait can be reported.
            match self.marked(home)? {
                Owed::Mark(event) => event.wait_beside_captures()?,
                Owed::Marked => self.work.marked().map_or(Ok(()), Event::wait_beside_captures)?,
                Owed::Unmarked | Owed::Nothing => {}
            }
            home.check_released()?;
            self.work.settle_uses()
        })?;
        self.is_open.store(true, Ordering::Release);
        Ok(())
    }

    /// The owed work, with a mark if it lacked one.
    fn marked(&self, home: &Stream) -> Result<Owed> {
        let known = self.owed.lock().clone();
        if !matches!(known, Owed::Unmarked) {
            return Ok(known);
        }
        // Without the lock: the submission may wait, and the end of an event calls the driver.
        let marked = Owed::Mark(mark(home)?);
        let mut owed = self.owed.lock();
        if matches!(*owed, Owed::Unmarked) {
            *owed = marked.clone();
        }
        // Another thread's earlier mark is the better one.
        Ok(owed.clone())
    }
}

fn mark(home: &Stream) -> Result<Arc<Event>> {
    let running = home.running("a CPU access to shared memory")?;
    let event = Event::new(home.context())?;
    event.mark(&running)?;
    Ok(Arc::new(event))
}
