//! The CPU's side of non-coherent memory, and what of it was last in step with the device's.

use super::mapping::Mapping;
use super::sync::lock;
use crate::misuse::{Misuse, report};
use std::sync::Mutex;
use std::{io, ptr};

/// The CPU's side of memory.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) host: Mapping,
    size: usize,
    /// The CPU's bytes as they were when they were last moved; none where nothing is moved. Committed as it is written: the
    /// memory may be larger than the machine's.
    moved: Mutex<Option<Mapping>>,
}

impl Mirror {
    /// The CPU's side of coherent memory, or of memory whose atoms are moved.
    pub(crate) fn new(host: Mapping, size: usize, coherent: bool) -> io::Result<Self> {
        let moved = if coherent { None } else { Some(Mapping::anonymous(size)?) };
        Ok(Self { host, size, moved: Mutex::new(moved) })
    }

    fn at(&self, offset: usize) -> *const u8 {
        ptr::with_exposed_provenance(self.host.base() + offset)
    }

    /// The bytes that were moved, of a range that lies within.
    fn moved_at(&self, moved: &Option<Mapping>, offset: usize, length: usize) -> Option<*mut u8> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        moved.as_ref().filter(|_| inside).map(|moved| ptr::with_exposed_provenance_mut(moved.base() + offset))
    }

    /// Remembers bytes that were just moved.
    pub(crate) fn remember(&self, offset: usize, length: usize) {
        let moved = lock(&self.moved);
        if let Some(to) = self.moved_at(&moved, offset, length) {
            // SAFETY: both have as many bytes; those that were moved are written under the lock.
            unsafe { ptr::copy_nonoverlapping(self.at(offset), to, length) };
        }
    }

    /// Reports the first byte that the CPU wrote and did not flush, of those that the device reads.
    pub(crate) fn check(&self, call: &'static str, base: u64, block: u64, offset: usize, length: usize) {
        let moved = lock(&self.moved);
        let Some(moved) = self.moved_at(&moved, offset, length) else { return };
        // SAFETY: both have as many bytes. The CPU may write its own meanwhile, so each is read as it is.
        let stale = (0..length).find(|n| unsafe { self.at(offset + n).read_volatile() != moved.add(*n).read() });
        if let Some(n) = stale {
            report(Misuse::MissingFlush, call, base + (offset + n) as u64, Some(block));
        }
    }
}
