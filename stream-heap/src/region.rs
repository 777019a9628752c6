//! How a program describes its memory to the heaps.

/// A range of memory. The heaps never touch it: they compare addresses, and hand out parts of it.
pub trait Region: Copy {
    /// The first byte.
    fn address(&self) -> u64;

    /// The size in bytes.
    fn size(&self) -> u64;

    /// The part of `size` bytes at `address`. The part lies within this range.
    #[must_use]
    fn part(&self, address: u64, size: u64) -> Self;
}

/// A range of memory with one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
}

impl Region for Span {
    fn address(&self) -> u64 {
        self.address
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn part(&self, address: u64, size: u64) -> Self {
        Self { address, size }
    }
}
