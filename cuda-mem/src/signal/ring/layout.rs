//! A ring's memory layout, on which both sides agree. `cudamem/signal.cuh` states it too; a test compares the two.

use super::indices::capacity_for;
use crate::{Error, Result};
use bytemuck::{Pod, Zeroable};
use cuda_sys::CUdeviceptr;

/// What a kernel needs to use the other end of a ring: `cudamem::ring_descriptor` in CUDA C++, passed by value. It is
/// plain data. The addresses are device addresses, valid while the CPU's end lives.
///
/// The consumer's memory begins with a line of 128 bytes: the tail (`u32`, the number of pushed items, wrapping), and
/// whether the producer has closed (`u32`). The items follow. The producer's memory is one such line: the head (the
/// number of popped items), and whether the consumer has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RingDescriptor {
    /// The line that the consumer reads, with the tail.
    pub consumer_line: CUdeviceptr,
    /// The line that the producer reads, with the head.
    pub producer_line: CUdeviceptr,
    /// The items.
    pub items: CUdeviceptr,
    /// Number of items that the ring holds: a power of two.
    pub capacity: u32,
    /// The size of an item in bytes.
    pub item_size: u32,
}

impl RingDescriptor {
    /// Size of each side's line, in bytes.
    pub const LINE: usize = super::super::memory::LINE;
    /// Offset of the index in a line, in bytes.
    pub const INDEX: usize = 0;
    /// Offset of the word in a line that tells whether its writer has closed, in bytes.
    pub const CLOSED: usize = 4;
}

/// The sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub capacity: u32,
    pub item_size: u32,
    /// Size of the consumer's memory, in bytes.
    pub size: usize,
}

impl Layout {
    pub const LINE: usize = RingDescriptor::LINE;

    /// The layout of a ring that holds at least `items` items.
    pub fn of<T: Pod>(call: &'static str, items: usize) -> Result<Self> {
        const { assert!(size_of::<T>() != 0, "an item of a ring must not be empty") };
        Self::of_size(call, items, size_of::<T>())
    }

    /// The layout of a ring that holds at least `items` items of a size that is known only at run time.
    pub fn of_size(call: &'static str, items: usize, item_size: usize) -> Result<Self> {
        if item_size == 0 {
            let rule = "an item of a ring must not be empty";
            return Err(Error::invalid(call, "item_size", "0", rule));
        }
        let of = |capacity: u32| {
            let size = item_size.checked_mul(capacity as usize)?.checked_add(Self::LINE)?;
            let fits = isize::try_from(size.checked_next_multiple_of(1 << 20)?).is_ok();
            fits.then_some(Self { capacity, item_size: u32::try_from(item_size).ok()?, size })
        };
        capacity_for(items).and_then(of).ok_or_else(|| {
            let rule = "a ring holds at most 2^31 items, and its size must fit the address space";
            Error::invalid(call, "items", items, rule)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_has_a_line_and_its_items() {
        let layout = |items| Layout::of::<[u8; 12]>("test", items);
        assert_eq!(layout(5), Ok(Layout { capacity: 8, item_size: 12, size: 128 + 96 }));
        let text = layout((1 << 31) + 1).unwrap_err().to_string();
        assert!(text.contains("items is 2147483649") && text.contains("2^31"), "{text}");
        assert_eq!(Layout::of_size("test", 5, 12), layout(5));
        for item_size in [0, usize::MAX] {
            assert!(Layout::of_size("test", 5, item_size).is_err(), "{item_size}");
        }
    }
}
