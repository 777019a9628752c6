//! Where words and items lie in memory.

use crate::memory::resource::Coherence;

/// Who waits for a word, and so polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiter {
    /// The CPU.
    Cpu,
    /// Kernels or streams.
    Device,
}

/// The memory of words and items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Page-locked host memory. The CPU reads it in some ten nanoseconds, the device over PCIe.
    Pinned,
    /// Device memory that the CPU addresses too. The device reads it without PCIe, the CPU in 1 us. Available only if
    /// mapped memory is coherent.
    Mapped,
}

impl Placement {
    /// All placements.
    pub const ALL: [Placement; 2] = [Placement::Pinned, Placement::Mapped];

    /// The available memory that is nearest to the waiter.
    pub(super) fn nearest(waiter: Waiter, mapped_is_there: bool) -> Self {
        match waiter {
            Waiter::Device if mapped_is_there => Placement::Mapped,
            Waiter::Device | Waiter::Cpu => Placement::Pinned,
        }
    }

    /// A word in this memory, for errors.
    pub(super) fn word(self) -> &'static str {
        match self {
            Placement::Pinned => "the word in pinned memory",
            Placement::Mapped => "the word in mapped memory",
        }
    }
}

/// Why mapped memory of this coherence cannot hold signals, if so.
pub(super) fn why_not(coherence: Coherence) -> Option<&'static str> {
    match coherence {
        Coherence::Coherent => None,
        Coherence::NonCoherent { .. } => {
            Some("coherent mapped memory (here, each read and write of a word would move whole atoms by library calls)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_polled_words_are_mapped_if_possible_others_are_pinned() {
        assert_eq!(Placement::nearest(Waiter::Device, true), Placement::Mapped);
        assert_eq!(Placement::nearest(Waiter::Device, false), Placement::Pinned);
        assert_eq!(Placement::nearest(Waiter::Cpu, true), Placement::Pinned);
        assert_eq!(Placement::nearest(Waiter::Cpu, false), Placement::Pinned);
    }
}
