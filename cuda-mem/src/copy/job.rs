//! One copy, made by one way.

use super::method::{CopyMethod, Direction};
use super::pieces::Pieces;
use super::threads::ThreadPool;
use crate::cpu::host_copy::{self, Stores};
use crate::error::call;
use crate::lifetime::waiting::{Target, watched};
use crate::{Result, Stream};
use core::ops::Range;
use cuda_sys::{CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr};

const LINE: usize = 64;
const PAGE: usize = 4096;

/// A copy by the CPU. Its maker guarantees that both sides are valid for `size` bytes during the copy and do not
/// overlap.
#[derive(Clone, Copy)]
pub(super) struct CpuCopy {
    pub direction: Direction,
    /// The CPU address of the device side. Null if the CPU cannot address it; then only the driver can copy.
    pub mapped: *mut u8,
    /// The host side. A copy to the device only reads it.
    pub host: *mut u8,
    /// In bytes; not 0.
    pub size: usize,
}

/// A copy by any method. Both sides stay valid until the work on `stream` is done.
pub(super) struct Job<'stream> {
    pub sides: CpuCopy,
    /// The device address.
    pub device: CUdeviceptr,
    /// The stream that orders the driver's copies.
    pub stream: &'stream Stream,
}

// SAFETY: threads that share the addresses use disjoint pieces.
unsafe impl Sync for CpuCopy {}
// SAFETY: as above.
unsafe impl Sync for Job<'_> {}

/// The piece size, in bytes, that one thread stores or loads at a time: small enough that all threads finish at about
/// the same time, large enough to be worth the claim.
fn cpu_piece(size: usize, threads: usize) -> usize {
    let rounds = if size <= 256 << 10 { 2 } else { 4 };
    (size / (threads * rounds)).clamp(PAGE, 256 << 10).next_multiple_of(LINE)
}

impl CpuCopy {
    /// Stores or loads with `count` threads, the calling thread included. Stores are fenced.
    pub fn run(&self, count: usize, threads: &ThreadPool) {
        if count <= 1 {
            return self.store_or_load(&mut Stores::begin(), 0..self.size);
        }
        let pieces = Pieces::new(self.size, cpu_piece(self.size, count), self.mapped.addr(), LINE);
        let share = || {
            // Each thread fences its own stores; the caller's fence does not order them.
            let mut stores = Stores::begin();
            while let Some(range) = pieces.claim() {
                self.store_or_load(&mut stores, range);
            }
        };
        threads.run(count - 1, &share);
    }

    pub fn store_or_load(&self, stores: &mut Stores, range: Range<usize>) {
        // SAFETY: the range lies within both sides, and no other thread uses it. The type's contract covers the rest.
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
    /// Lets the driver copy from or to the host side. The copy may still be in progress on the stream afterwards, except
    /// with [`CopyMethod::Registered`].
    pub fn run(&self, method: CopyMethod) -> Result<()> {
        if method == CopyMethod::Registered { self.registered() } else { self.by_driver() }
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

    /// Locks the pages, copies, waits and unlocks the pages. Unlocking waits for all work of the context, so while some
    /// of it waits for the CPU, the driver copies from unlocked pages instead.
    fn registered(&self) -> Result<()> {
        let context = self.stream.context();
        let Some(_quiet) = context.try_quiet() else {
            return self.by_driver().and_then(|()| self.stream.wait_certainly());
        };
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let start = self.sides.host.map_addr(|address| address & !(PAGE - 1));
        let size = (self.sides.host.addr() + self.sides.size).next_multiple_of(PAGE) - start.addr();
        // SAFETY: the pages hold part of the host side and exist as long as it does. Other data on these pages is not
        // touched.
        unsafe { call!(cuda.cuMemHostRegister_v2(start.cast(), size, CU_MEMHOSTREGISTER_PORTABLE)) }?;
        let copied = self.by_driver().and_then(|()| {
            // Pages must not be unlocked during a copy.
            self.stream.wait_certainly()
        });
        // SAFETY: the pages were registered above, and the copy is complete.
        let unregister = || unsafe { watched!(Target::context(context), cuda.cuMemHostUnregister(start.cast())) };
        // Try twice: nobody but this function can unlock the caller's pages.
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
