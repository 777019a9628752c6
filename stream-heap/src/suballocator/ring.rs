//! A ring for staging: blocks are released in the order of their allocation.

use super::MAX_SIZE;
use std::collections::VecDeque;

/// Why a [`Ring`] refused a call. A refused call changes nothing. A request that does not fit gives `None`, not an
/// error.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The size of the ring is invalid.
    #[error("ring size {0} must be above 0 and at most {MAX_SIZE}")]
    Size(u64),

    /// The block is not the next to be released: it was released already, or other blocks are older.
    #[error(
        "block {block} is not the oldest, which is {oldest}: release blocks once, in the order of their allocation"
    )]
    NotOldest {
        /// The number of the block in the call.
        block: u64,
        /// The number of the oldest block, or, in an empty ring, of the next block.
        oldest: u64,
    },
}

/// A block of a [`Ring`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingBlock {
    /// The offset in the ring, in bytes.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    number: u64,
}

/// Allocates blocks one after the other in one range of offsets, and begins again at its start. Allocation and release
/// are O(1).
///
/// A block that does not fit before the end of the ring begins at 0. The bytes that it skips become free together with
/// the block before them. An empty ring holds a block of the ring's size.
///
/// ```
/// use stream_heap::suballocator::Ring;
///
/// let mut staging = Ring::new(1 << 20)?;
/// let first = staging.allocate(700_000, 256).expect("the ring is empty");
/// assert!(staging.allocate(700_000, 256).is_none(), "wait for the copy, and release");
/// staging.release(first)?;
/// assert!(staging.allocate(700_000, 256).is_some());
/// # Ok::<(), stream_heap::suballocator::RingError>(())
/// ```
#[derive(Debug)]
pub struct Ring {
    capacity: u64,
    /// Where the next block may begin.
    head: u64,
    /// How many bytes before the head, around the end of the ring, are not free.
    used: u64,
    /// The bytes that each block occupies, including skipped bytes behind it; the oldest first.
    taken: VecDeque<u64>,
    /// The number of the oldest block.
    oldest: u64,
}

impl Ring {
    /// Makes a ring of `size` bytes, all free.
    ///
    /// # Errors
    ///
    /// The size is 0 or above [`MAX_SIZE`].
    pub fn new(size: u64) -> Result<Self, RingError> {
        if size == 0 || size > MAX_SIZE {
            return Err(RingError::Size(size));
        }
        Ok(Self { capacity: size, head: 0, used: 0, taken: VecDeque::new(), oldest: 0 })
    }

    /// Allocates the next `size` bytes whose offset is a multiple of `alignment`; `None` if they are not free. A block
    /// of 0 bytes takes 1 byte.
    ///
    /// # Panics
    ///
    /// The alignment is not a power of two.
    #[inline]
    pub fn allocate(&mut self, size: u64, alignment: u64) -> Option<RingBlock> {
        assert!(alignment.is_power_of_two(), "alignment {alignment} must be a power of two");
        let length = size.max(1);
        if length > self.capacity {
            return None;
        }
        // No overflow: the head, the length and the alignment, a power of two, are at most 2^63 each.
        let aligned = (self.head + (alignment - 1)) & !(alignment - 1);
        let (offset, passed) = match aligned <= self.capacity - length {
            true => (aligned, aligned - self.head),
            false => (0, self.capacity - self.head),
        };
        let taken = passed.checked_add(length).filter(|&taken| taken <= self.capacity - self.used)?;
        self.head = offset + length;
        self.used += taken;
        // Skipped bytes belong to the block before them, and become free with it. An empty ring skips nothing.
        if let Some(before) = self.taken.back_mut() {
            *before += passed;
        }
        self.taken.push_back(length);
        // Numbers wrap after 2^64 blocks.
        let number = self.oldest.wrapping_add(self.taken.len() as u64 - 1);
        Some(RingBlock { offset, size, number })
    }

    /// Releases the oldest block.
    ///
    /// # Errors
    ///
    /// [`RingError::NotOldest`] if this is not the oldest block, or if the ring is empty.
    #[inline]
    pub fn release(&mut self, block: RingBlock) -> Result<(), RingError> {
        let refused = RingError::NotOldest { block: block.number, oldest: self.oldest };
        if block.number != self.oldest {
            return Err(refused);
        }
        self.used -= self.taken.pop_front().ok_or(refused)?;
        self.oldest = self.oldest.wrapping_add(1);
        if self.taken.is_empty() {
            // An empty ring starts at offset 0, where a block of the ring's size fits.
            self.head = 0;
        }
        Ok(())
    }

    /// The size of the ring, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The bytes that blocks occupy, including skipped bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// The bytes that no block occupies. They may lie at both ends of the ring.
    pub fn free_bytes(&self) -> u64 {
        self.capacity - self.used
    }

    /// The number of blocks.
    pub fn block_count(&self) -> usize {
        self.taken.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{STEPS, config};
    use super::*;
    use proptest::prelude::*;

    /// The expected offset of a block, among live blocks, the oldest first: behind the newest block or else at the
    /// start, if no live block is in the way.
    fn place(live: &VecDeque<RingBlock>, capacity: u64, size: u64, alignment: u64) -> Option<u64> {
        let (Some(oldest), Some(newest)) = (live.front(), live.back()) else {
            return (size <= capacity).then_some(0);
        };
        let behind = (newest.offset + newest.size).next_multiple_of(alignment);
        let wrapped = newest.offset < oldest.offset;
        let end = if wrapped { oldest.offset } else { capacity };
        if behind + size <= end { Some(behind) } else { (!wrapped && size <= oldest.offset).then_some(0) }
    }

    proptest! {
        #![proptest_config(config(256))]

        /// Compares with a queue of the live blocks.
        #[test]
        fn a_ring_hands_out_what_a_queue_of_live_blocks_leaves(
            capacity in 1u64..200,
            steps in prop::collection::vec((any::<bool>(), 1u64..80, 0u32..6), 0..STEPS),
        ) {
            let mut ring = Ring::new(capacity).unwrap();
            let mut live = VecDeque::new();
            for (allocate, size, alignment) in steps {
                if allocate {
                    let block = ring.allocate(size, 1 << alignment);
                    prop_assert_eq!(block.map(|block| block.offset), place(&live, capacity, size, 1 << alignment));
                    for other in &live {
                        let block = block.unwrap_or(*other);
                        prop_assert!(
                            block == *other
                                || block.offset + block.size <= other.offset
                                || other.offset + other.size <= block.offset
                        );
                    }
                    live.extend(block);
                } else if let Some(newest) = live.pop_back() {
                    let oldest = live.pop_front();
                    if let Some(oldest) = oldest {
                        prop_assert!(ring.release(newest).is_err(), "out of order");
                        live.push_back(newest);
                        prop_assert_eq!(ring.release(oldest), Ok(()));
                        prop_assert!(ring.release(oldest).is_err(), "twice");
                    } else {
                        prop_assert_eq!(ring.release(newest), Ok(()));
                        prop_assert!(ring.release(newest).is_err(), "twice, the last");
                    }
                }
                let bytes: u64 = live.iter().map(|block| block.size).sum();
                prop_assert!(ring.used_bytes() >= bytes && ring.used_bytes() <= capacity);
                prop_assert_eq!(ring.used_bytes() + ring.free_bytes(), ring.capacity());
                prop_assert_eq!(ring.block_count(), live.len());
            }
        }
    }

    #[test]
    fn an_empty_ring_holds_a_block_of_its_size() {
        let mut ring = Ring::new(100).unwrap();
        for size in [60, 100, 1, 100] {
            let block = ring.allocate(size, 64).unwrap();
            assert_eq!(block.offset, 0);
            ring.release(block).unwrap();
        }
    }

    #[test]
    fn skipped_ring_tail_is_freed_with_the_preceding_block() {
        let mut ring = Ring::new(100).unwrap();
        let [first, second] = [ring.allocate(50, 1).unwrap(), ring.allocate(30, 1).unwrap()];
        ring.release(first).unwrap();
        let third = ring.allocate(40, 1).unwrap();
        assert_eq!((third.offset, ring.used_bytes()), (0, 90));
        assert_eq!(ring.allocate(11, 1), None);
        ring.release(second).unwrap();
        assert_eq!(ring.used_bytes(), 40);
        assert_eq!(ring.allocate(60, 1).unwrap().offset, 40);
        ring.release(third).unwrap();
        assert_eq!(ring.free_bytes(), 40);
    }

    #[test]
    fn sizes_at_the_limits_are_refused_or_served_and_never_wrap() {
        assert_eq!(Ring::new(0).unwrap_err(), RingError::Size(0));
        assert_eq!(Ring::new(MAX_SIZE + 1).unwrap_err(), RingError::Size(MAX_SIZE + 1));
        let mut ring = Ring::new(MAX_SIZE).unwrap();
        assert_eq!(ring.allocate(u64::MAX, 1), None);
        let first = ring.allocate(MAX_SIZE - 1, MAX_SIZE).unwrap();
        assert_eq!(ring.allocate(1, MAX_SIZE), None);
        assert_eq!(ring.allocate(0, 1).unwrap().offset, MAX_SIZE - 1);
        assert_eq!(ring.allocate(0, 1), None);
        ring.release(first).unwrap();
        assert_eq!(ring.allocate(1, MAX_SIZE).unwrap().offset, 0);
    }

    #[test]
    #[should_panic(expected = "alignment 3 must be a power of two")]
    fn an_alignment_that_is_no_power_of_two_is_named() {
        Ring::new(100).unwrap().allocate(1, 3);
    }
}
