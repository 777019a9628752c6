//! The CPU's side of non-coherent memory, and what of it was last in step with the device's.

use super::mapping::Mapping;
use super::sync::lock;
use crate::misuse::{Misuse, report};
use std::io;
use std::ptr;
use std::sync::Mutex;

/// The CPU's side of memory.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) host: Mapping,
    /// The CPU's bytes as they were when they were last moved; none where nothing is moved. Pages of their own, which take
    /// no memory before they are written.
    moved: Mutex<Option<Mapping>>,
}

impl Mirror {
    /// The CPU's side of coherent memory, or of memory whose atoms are moved.
    pub(crate) fn new(host: Mapping, size: usize, coherent: bool) -> io::Result<Self> {
        let moved = if coherent { None } else { Some(Mapping::anonymous(size)?) };
        Ok(Self { host, moved: Mutex::new(moved) })
    }

    fn at(&self, offset: usize) -> *const u8 {
        ptr::with_exposed_provenance(self.host.base() + offset)
    }

    /// Remembers bytes that were just moved.
    pub(crate) fn remember(&self, offset: usize, length: usize) {
        let moved = lock(&self.moved);
        if let Some(moved) = &*moved {
            let to = ptr::with_exposed_provenance_mut(moved.base() + offset);
            // SAFETY: `moved` has as many bytes as the CPU's side, and is read and written under its lock alone.
            unsafe { ptr::copy_nonoverlapping(self.at(offset), to, length) };
        }
    }

    /// Reports the first byte that the CPU wrote and did not flush, of those that the device reads.
    pub(crate) fn check(&self, call: &'static str, base: u64, block: u64, offset: usize, length: usize) {
        let moved = lock(&self.moved);
        let Some(moved) = &*moved else { return };
        let known = ptr::with_exposed_provenance::<u8>(moved.base() + offset);
        // SAFETY: `moved` has as many bytes as the CPU's side. The CPU may write that meanwhile, so each is read as it is.
        let stale = (0..length).find(|n| unsafe { self.at(offset + n).read_volatile() != known.add(*n).read() });
        if let Some(n) = stale {
            report(Misuse::MissingFlush, call, base + (offset + n) as u64, Some(block));
        }
    }
}
