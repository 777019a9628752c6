//! The CPU's side of non-coherent memory, and what of it was last in step with the device's.

use super::mapping::Mapping;
use super::sync::lock;
use crate::misuse::{Misuse, report};
use std::ptr;
use std::sync::Mutex;

/// The CPU's side of memory.
#[derive(Debug)]
pub(crate) struct Mirror {
    pub(crate) host: Mapping,
    /// The CPU's bytes as they were when they were last moved; empty where nothing is moved.
    moved: Mutex<Vec<u8>>,
}

impl Mirror {
    /// The CPU's side of coherent memory, or of memory whose atoms are moved.
    pub(crate) fn new(host: Mapping, size: usize, coherent: bool) -> Self {
        Self { host, moved: Mutex::new(if coherent { Vec::new() } else { vec![0; size] }) }
    }

    fn at(&self, offset: usize) -> *const u8 {
        ptr::with_exposed_provenance(self.host.base() + offset)
    }

    /// Remembers bytes that were just moved.
    pub(crate) fn remember(&self, offset: usize, length: usize) {
        let mut moved = lock(&self.moved);
        if let Some(to) = moved.get_mut(offset..offset + length) {
            // SAFETY: the CPU's side has as many bytes as `moved`.
            unsafe { ptr::copy_nonoverlapping(self.at(offset), to.as_mut_ptr(), length) };
        }
    }

    /// Reports the first byte that the CPU wrote and did not flush, of those that the device reads.
    pub(crate) fn check(&self, call: &'static str, base: u64, block: u64, offset: usize, length: usize) {
        let moved = lock(&self.moved);
        let Some(moved) = moved.get(offset..offset + length) else { return };
        // SAFETY: the CPU's side has as many bytes as `moved`. The CPU may write meanwhile, so each is read as it is.
        let stale = (0..length).find(|n| unsafe { self.at(offset + n).read_volatile() } != moved[*n]);
        if let Some(n) = stale {
            report(Misuse::MissingFlush, call, base + (offset + n) as u64, Some(block));
        }
    }
}
