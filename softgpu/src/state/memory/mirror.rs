//! The CPU's side of non-coherent memory, and its state when CPU and device last agreed.

use crate::misuse::{Misuse, report};
use crate::state::backing::Mapping;
use crate::sync::lock;
use std::sync::Mutex;
use std::{io, ptr};

#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) host: Mapping,
    size: usize,
    /// The CPU's bytes at the last flush or invalidate; `None` for coherent memory. The system commits it page by page:
    /// the memory may be larger than the machine's.
    moved: Mutex<Option<Mapping>>,
}

impl Mirror {
    /// Flush and invalidate move atoms only if the memory is not coherent.
    pub(crate) fn new(host: Mapping, size: usize, coherent: bool) -> io::Result<Self> {
        let moved = if coherent { None } else { Some(Mapping::anonymous(size)?) };
        Ok(Self { host, size, moved: Mutex::new(moved) })
    }

    fn at(&self, offset: usize) -> *const u8 {
        ptr::with_exposed_provenance(self.host.base() + offset)
    }

    /// The recorded bytes of a range, if the range lies inside the memory.
    fn moved_at(&self, moved: &Option<Mapping>, offset: usize, length: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        moved.as_ref().filter(|_| inside).map(|moved| ptr::with_exposed_provenance_mut(moved.base() + offset))
    }

    /// Records the CPU's bytes after a flush or an invalidate.
    pub(crate) fn remember(&self, offset: usize, length: usize) {
        let moved = lock(&self.moved);
        if let Some(to) = self.moved_at(&moved, offset, length) {
            // SAFETY: both have as many bytes, and only the holder of the lock accesses the recorded ones.
            unsafe { ptr::copy_nonoverlapping(self.at(offset), to, length) };
        }
    }

    /// Reports the first byte in a range that the CPU wrote and did not flush, before a device reads the range.
    pub(crate) fn check(&self, call: &'static str, base: u64, block: u64, offset: usize, length: usize) {
        let moved = lock(&self.moved);
        let Some(moved) = self.moved_at(&moved, offset, length) else { return };
        // SAFETY: both have as many bytes. The CPU may write its own meanwhile, so these reads are volatile.
        let stale = (0..length).find(|n| unsafe { self.at(offset + n).read_volatile() != moved.add(*n).read() });
        if let Some(n) = stale {
            report(Misuse::MissingFlush, call, base + (offset + n) as u64, Some(block));
        }
    }
}
