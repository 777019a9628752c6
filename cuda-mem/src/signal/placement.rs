//! Where words and items lie.

use crate::mapped::Coherence;

/// Who waits for a word, and so looks at it again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiter {
    /// The CPU.
    Cpu,
    /// Kernels, or streams.
    Device,
}

/// Which memory words and items lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Page-locked memory of the host: the CPU looks at it in some ten nanoseconds, the device over PCIe.
    Pinned,
    /// Device memory that the CPU addresses too: the device looks at it without a trip over PCIe, the CPU in 1 us. It is
    /// there only where mapped memory is coherent.
    Mapped,
}

impl Placement {
    /// All of them.
    pub const ALL: [Placement; 2] = [Placement::Pinned, Placement::Mapped];

    /// The memory that is nearest to who waits, of what is there.
    pub(super) fn nearest(waiter: Waiter, mapped_is_there: bool) -> Self {
        match waiter {
            Waiter::Device if mapped_is_there => Placement::Mapped,
            Waiter::Device | Waiter::Cpu => Placement::Pinned,
        }
    }

    /// For errors: a word there.
    pub(super) fn word(self) -> &'static str {
        match self {
            Placement::Pinned => "the word in pinned memory",
            Placement::Mapped => "the word in mapped memory",
        }
    }
}

/// Why mapped memory of this kind serves no signals, if it does not.
pub(super) fn why_not(coherence: Coherence) -> Option<&'static str> {
    match coherence {
        Coherence::Coherent => None,
        Coherence::NonCoherent { .. } => Some(
            "coherent mapped memory (here each look and each write would move whole atoms by calls of the library)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_polls_is_mapped_where_that_is_there_and_the_rest_is_pinned() {
        assert_eq!(Placement::nearest(Waiter::Device, true), Placement::Mapped);
        assert_eq!(Placement::nearest(Waiter::Device, false), Placement::Pinned);
        assert_eq!(Placement::nearest(Waiter::Cpu, true), Placement::Pinned);
        assert_eq!(Placement::nearest(Waiter::Cpu, false), Placement::Pinned);
    }
}
