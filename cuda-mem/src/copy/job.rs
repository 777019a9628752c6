//! One copy, done in one way.

use super::staged;
use super::staging::Staging;
use super::threads::{CopyThreads, NoThreads, Pieces};
use super::way::{Direction, Way};
use crate::error::call;
use crate::host_copy::{self, Stores};
use crate::{Result, Stream};
use core::ops::Range;
use cuda_sys::{CU_MEMHOSTREGISTER_PORTABLE, CU_STREAM_PER_THREAD, CUdeviceptr};

const LINE: usize = 64;
const PAGE: usize = 4096;

/// A copy by the CPU. Both sides are valid for `size` bytes while it is done, and do not overlap; whoever makes one sees to
/// it.
#[derive(Clone, Copy)]
pub(super) struct CpuCopy {
    pub direction: Direction,
    /// The CPU's address of the device's side; null where it has none, and then only the driver copies.
    pub mapped: *mut u8,
    /// The host's side. It is only read if the direction is to the device.
    pub host: *mut u8,
    /// In bytes; not 0.
    pub size: usize,
}

/// A copy in any way. Both sides are valid until the work on `stream` is done.
pub(super) struct Job<'stream> {
    pub sides: CpuCopy,
    /// The device's address.
    pub device: CUdeviceptr,
    /// The driver's copies are in order of this stream.
    pub stream: &'stream Stream,
}

// SAFETY: the addresses are used by threads that each have their own pieces.
unsafe impl Sync for CpuCopy {}
// SAFETY: as above.
unsafe impl Sync for Job<'_> {}

/// How large a piece is that one thread stores or loads at a time, in bytes: small enough for all threads to end together,
/// large enough to be worth the claim.
fn cpu_piece(size: usize, threads: usize) -> usize {
    let rounds = if size <= 256 << 10 { 2 } else { 4 };
    (size / (threads * rounds)).clamp(PAGE, 256 << 10).next_multiple_of(LINE)
}

impl CpuCopy {
    /// Stores or loads by so many threads, the caller's own included. Stores are fenced.
    pub fn run(&self, count: usize, threads: &dyn CopyThreads) {
        if count <= 1 {
            return self.store_or_load(&mut Stores::begin(), 0..self.size);
        }
        let pieces = Pieces::new(self.size, cpu_piece(self.size, count), self.mapped.addr(), LINE);
        let share = || {
            // Each thread's own stores: a fence of the caller's says nothing of them.
            let mut stores = Stores::begin();
            while let Some(range) = pieces.claim() {
                self.store_or_load(&mut stores, range);
            }
        };
        threads.run(count - 1, &share);
        // Threads of the program's may have left some, or all of it.
        share();
    }

    pub fn store_or_load(&self, stores: &mut Stores, range: Range<usize>) {
        // SAFETY: the range lies within both sides, and no other thread has it; the rest is the type's contract.
        unsafe {
            let (host, mapped) = (self.host.add(range.start), self.mapped.add(range.start));
            match self.direction {
                Direction::ToDevice => stores.store(host, mapped, range.len()),
                Direction::FromDevice => host_copy::load(mapped, host, range.len()),
            }
        }
    }
}

impl Job<'_> {
    /// Does the copy in a way that serves it. Copies of the driver may still be under way afterwards, in order of the
    /// stream, but for [`Way::Registered`]; with [`Way::Driver`] and page-locked memory they use the host's side.
    pub fn run(&self, way: Way, threads: &dyn CopyThreads, staging: &Staging) -> Result<()> {
        // On another thread, the name of this thread's default stream means another stream.
        let threads = if self.stream.raw() == CU_STREAM_PER_THREAD { &NoThreads } else { threads };
        match way {
            Way::Cpu { .. } => {
                self.sides.run(way.threads(), threads);
                Ok(())
            }
            Way::Driver => self.by_driver(),
            Way::Registered => self.registered(),
            Way::Staged { .. } => staged::run(self, 0, way.threads(), threads, staging),
            Way::Mixed { storing, staging: filling } => {
                staged::run(self, usize::from(storing), usize::from(filling), threads, staging)
            }
        }
    }

    fn by_driver(&self) -> Result<()> {
        let context = self.stream.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let host = self.sides.host.expose_provenance() as CUdeviceptr;
        let (to, from) = match self.sides.direction {
            Direction::ToDevice => (self.device, host),
            Direction::FromDevice => (host, self.device),
        };
        // SAFETY: the type's contract.
        unsafe { call!(cuda.cuMemcpyAsync(to, from, self.sides.size, self.stream.raw())) }
    }

    /// Locks the pages, copies, waits and unlocks them. To unlock waits for all work of the context: while some of it waits for
    /// the CPU, the driver copies from the pages as they are.
    fn registered(&self) -> Result<()> {
        let context = self.stream.context();
        let Some(_quiet) = context.try_quiet() else {
            return self.by_driver().and_then(|()| self.stream.complete());
        };
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let start = self.sides.host.map_addr(|address| address & !(PAGE - 1));
        let size = (self.sides.host.addr() + self.sides.size).next_multiple_of(PAGE) - start.addr();
        // SAFETY: pages that hold a part of the host's side exist as long as that; what else lies in them is not touched.
        unsafe { call!(cuda.cuMemHostRegister_v2(start.cast(), size, CU_MEMHOSTREGISTER_PORTABLE)) }?;
        let copied = self.by_driver().and_then(|()| {
            // The pages must not be unlocked under a copy that goes on.
            self.stream.complete()
        });
        // SAFETY: registered above, and the copy is complete.
        let unregister = || unsafe { call!(cuda.cuMemHostUnregister(start.cast())) };
        // Pages that stayed locked would be the caller's: nobody else can unlock them.
        copied.and(unregister().or_else(|_| unregister()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_lines() {
        for size in [1, 4096, 65_536, 1 << 20, (1 << 28) + 5, 1 << 40] {
            for threads in [1, 2, 8] {
                let piece = cpu_piece(size, threads);
                assert!(piece.is_multiple_of(LINE) && (PAGE..=256 << 10).contains(&piece));
            }
        }
    }
}
