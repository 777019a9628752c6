//! One copy, done in one way.

use super::staging::{Lane, Staging};
use super::threads::{CopyThreads, Pieces};
use super::way::{Direction, Way};
use crate::error::call;
use crate::host_copy;
use crate::{Error, Result, Stream};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_sys::{CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

const LINE: usize = 64;
const PAGE: usize = 4096;

/// A copy. Both sides are valid for `size` bytes until the work on `stream` is done, and do not overlap; whoever makes a
/// job sees to it.
pub(super) struct Job<'stream> {
    pub direction: Direction,
    /// The device's address.
    pub device: CUdeviceptr,
    /// The CPU's address of the same memory; null where it has none.
    pub mapped: *mut u8,
    /// The host's side. It is only read if the direction is to the device.
    pub host: *mut u8,
    /// In bytes; not 0.
    pub size: usize,
    /// The driver's copies are in order of this stream.
    pub stream: &'stream Stream,
}

// SAFETY: the addresses are used by threads that each have their own pieces.
unsafe impl Sync for Job<'_> {}

/// How large a piece is that one thread stores or loads at a time, in bytes: small enough for all threads to end together,
/// large enough to be worth the claim.
fn cpu_piece(size: usize, threads: usize) -> usize {
    (size / (threads * 4)).clamp(PAGE, 256 << 10).next_multiple_of(LINE)
}

/// How large a piece is that goes through staging at a time, in bytes: several for each thread, so that copies of the
/// driver and of the CPU overlap; not smaller than what a copy of the driver is worth.
fn staged_piece(size: usize, threads: usize, slot_size: usize) -> usize {
    (size / (threads * 4)).clamp(64 << 10, slot_size.max(64 << 10)).next_multiple_of(PAGE).min(slot_size)
}

impl Job<'_> {
    /// Does the copy in a way that serves it. Copies of the driver may still be under way afterwards, in order of the
    /// stream, but for [`Way::Registered`]; with [`Way::Driver`] and page-locked memory they use the host's side.
    pub fn run(&self, way: Way, threads: &dyn CopyThreads, staging: &Staging) -> Result<()> {
        match way {
            Way::Cpu { .. } => {
                self.by_cpu(way.threads(), threads);
                Ok(())
            }
            Way::Driver => self.by_driver(),
            Way::Registered => self.registered(),
            Way::Staged { .. } => self.staged(0, way.threads(), threads, staging),
            Way::Mixed { storing, staging: filling } => {
                self.staged(usize::from(storing), usize::from(filling), threads, staging)
            }
        }
    }

    /// Stores or loads. Stores are fenced.
    fn by_cpu(&self, count: usize, threads: &dyn CopyThreads) {
        if count <= 1 {
            self.store_or_load(0..self.size);
            return self.fence();
        }
        let pieces = Pieces::new(self.size, cpu_piece(self.size, count), self.mapped.addr(), LINE);
        threads.run(count - 1, &|| self.store_pieces(&pieces));
    }

    fn store_pieces(&self, pieces: &Pieces) {
        while let Some(range) = pieces.claim() {
            self.store_or_load(range);
        }
        // Each thread's own stores: a fence of the caller's says nothing of them.
        self.fence();
    }

    fn fence(&self) {
        if self.direction == Direction::ToDevice {
            host_copy::store_fence();
        }
    }

    fn store_or_load(&self, range: Range<usize>) {
        // SAFETY: the range lies within both sides, and no other thread has it; the rest is the type's contract.
        unsafe {
            let (host, mapped) = (self.host.add(range.start), self.mapped.add(range.start));
            match self.direction {
                Direction::ToDevice => host_copy::store(host, mapped, range.len()),
                Direction::FromDevice => host_copy::load(mapped, host, range.len()),
            }
        }
    }

    fn by_driver(&self) -> Result<()> {
        let context = self.stream.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let host = self.host.expose_provenance() as CUdeviceptr;
        let (to, from) = match self.direction {
            Direction::ToDevice => (self.device, host),
            Direction::FromDevice => (host, self.device),
        };
        // SAFETY: the type's contract.
        unsafe { call!(cuda.cuMemcpyAsync(to, from, self.size, self.stream.raw())) }
    }

    /// Locks the pages, copies, waits and unlocks them.
    fn registered(&self) -> Result<()> {
        let context = self.stream.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let start = self.host.map_addr(|address| address & !(PAGE - 1));
        let size = (self.host.addr() + self.size).next_multiple_of(PAGE) - start.addr();
        // SAFETY: pages that hold a part of the host's side exist as long as that; what else lies in them is not touched.
        unsafe { call!(cuda.cuMemHostRegister_v2(start.cast(), size, CU_MEMHOSTREGISTER_PORTABLE)) }?;
        let copied = self.by_driver().and_then(|()| self.stream.synchronize());
        // SAFETY: registered above, and the copy is done, or the context is broken.
        let unregister = || unsafe { call!(cuda.cuMemHostUnregister(start.cast())) };
        // Pages that stayed locked would be the caller's: nobody else can unlock them.
        copied.and(unregister().or_else(|_| unregister()))
    }

    /// `storing` threads store, `filling` threads go through staging.
    fn staged(&self, storing: usize, filling: usize, threads: &dyn CopyThreads, staging: &Staging) -> Result<()> {
        let piece = staged_piece(self.size, storing + filling, staging.slot_size());
        let pieces = Pieces::new(self.size, piece, 0, 1);
        // The caller's own; without one there is no staging.
        let first = Mutex::new(Some(staging.take()?));
        let (joined, failed) = (AtomicUsize::new(0), Mutex::new(None::<Error>));
        let work = || {
            let number = joined.fetch_add(1, Ordering::Relaxed);
            if number >= filling {
                return self.store_pieces(&pieces);
            }
            let own = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Who gets no lane leaves the work to the others.
            let Some(mut lane) = own.or_else(|| staging.try_take()) else { return };
            let outcome = match self.direction {
                Direction::ToDevice => self.fill(&pieces, &mut lane),
                Direction::FromDevice => self.empty(&pieces, &mut lane),
            };
            if let Err(error) = outcome {
                pieces.stop();
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        threads.run((storing + filling - 1).min(self.size / piece.max(1)), &work);
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Copies pieces into slots, and lets the device fetch them.
    fn fill(&self, pieces: &Pieces, lane: &mut Lane) -> Result<()> {
        let count = lane.slots.len();
        let mut turn = 0;
        while let Some(range) = pieces.claim() {
            let slot = &mut lane.slots[turn % count];
            turn += 1;
            let room = &mut slot.wait()?[..range.len()];
            // SAFETY: the piece lies within the host's side, and staging is no part of it.
            unsafe {
                core::ptr::copy_nonoverlapping(self.host.add(range.start), room.as_mut_ptr().cast(), range.len())
            };
            // SAFETY: the piece lies within the device's side; the rest is the type's contract.
            unsafe { slot.send(self.device + range.start as CUdeviceptr, range.len(), self.stream) }?;
        }
        Ok(())
    }

    /// Lets the device fill slots, ahead of what is copied out of them.
    fn empty(&self, pieces: &Pieces, lane: &mut Lane) -> Result<()> {
        let count = lane.slots.len();
        let mut under_way: VecDeque<(usize, Range<usize>)> = VecDeque::with_capacity(count);
        let mut turn = 0;
        loop {
            while under_way.len() < count
                && let Some(range) = pieces.claim()
            {
                let slot = &mut lane.slots[turn % count];
                slot.wait()?;
                // SAFETY: the piece lies within the device's side; the rest is the type's contract.
                unsafe { slot.fetch(self.device + range.start as CUdeviceptr, range.len(), self.stream) }?;
                under_way.push_back((turn % count, range));
                turn += 1;
            }
            let Some((slot, range)) = under_way.pop_front() else { return Ok(()) };
            let bytes = &lane.slots[slot].wait()?[..range.len()];
            // SAFETY: the piece lies within the host's side, which nobody else writes there; the device has given the bytes.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), self.host.add(range.start), range.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines_and_pages_and_fit_into_their_slots() {
        for size in [1, 4096, 65_536, 1 << 20, (1 << 28) + 5, 1 << 40] {
            for threads in [1, 2, 8] {
                let piece = cpu_piece(size, threads);
                assert!(piece.is_multiple_of(LINE) && (PAGE..=256 << 10).contains(&piece));
                for slot in [PAGE, 256 << 10, 1 << 20] {
                    let piece = staged_piece(size, threads, slot);
                    assert!(
                        (1..=slot).contains(&piece) && piece.is_multiple_of(PAGE),
                        "{size} {threads} {slot}: {piece}"
                    );
                }
            }
        }
    }
}
