//! Whether the CPU and the device see each other's writes.

use core::num::NonZeroUsize;

/// Whether the CPU and the device see each other's writes without flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// They do. On a GPU the CPU maps such memory write-combined, and a flush is a store fence.
    Coherent,
    /// They do not. The CPU must flush its writes, and invalidate what the device wrote, in whole atoms.
    NonCoherent {
        /// The atom's size in bytes, a power of two.
        atom: NonZeroUsize,
    },
}

impl Coherence {
    /// The unit of flush and invalidate in bytes; 1 for coherent memory.
    pub fn atom(self) -> usize {
        match self {
            Coherence::Coherent => 1,
            Coherence::NonCoherent { atom } => atom.get(),
        }
    }
}
