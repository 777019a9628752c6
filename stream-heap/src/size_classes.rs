//! The sizes of blocks: 1 to 16 units, then sixteen sizes for each doubling, so that a block is at most a sixteenth
//! larger than the request. The sizes of large blocks are multiples of a unit.

/// The number of sizes for each doubling. Up to this many units, every multiple of the unit is a size.
const STEPS: usize = 16;
/// The number of doublings whose sizes have classes.
const DOUBLINGS: usize = 8;
/// The number of classes.
pub const CLASSES: usize = STEPS + STEPS * DOUBLINGS;

/// The size of a block, and its class if caches keep such blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// In bytes.
    pub bytes: usize,
    /// Below [`CLASSES`].
    pub class: Option<usize>,
}

/// The smallest block that serves `size` bytes, in units of `2^unit_log2` bytes. `None` if no address space holds it.
#[inline]
pub fn block_size(size: usize, unit_log2: u32) -> Option<BlockSize> {
    let units = ((size.max(1) - 1) >> unit_log2) + 1;
    if units <= STEPS {
        return Some(BlockSize { bytes: units << unit_log2, class: Some(units - 1) });
    }
    let shift = (units - 1).ilog2() - STEPS.ilog2();
    if shift as usize >= DOUBLINGS {
        let bytes = units.checked_mul(1 << unit_log2).filter(|bytes| *bytes <= isize::MAX as usize)?;
        return Some(BlockSize { bytes, class: None });
    }
    let step = (units - 1) >> shift;
    let class = STEPS + STEPS * shift as usize + (step - STEPS);
    Some(BlockSize { bytes: (step + 1) << shift << unit_log2, class: Some(class) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_cover_requests_with_at_most_a_sixteenth_of_waste() {
        let mut last = BlockSize { bytes: 0, class: None };
        for size in 1..3 << 20 {
            let block = block_size(size, 8).unwrap();
            assert!(block.bytes >= size && block.bytes.is_multiple_of(256), "{size}: {block:?}");
            assert!(block.bytes - size < 256.max(size.div_ceil(16)) + 256, "{size}: {block:?}");
            assert!(block.bytes >= last.bytes, "{size}");
            // A class has one size, and a request for that size has the class.
            assert_eq!(block_size(block.bytes, 8), Some(block), "{size}");
            assert_eq!(block.class == last.class && block.class.is_some(), {
                block.bytes == last.bytes && block.class.is_some()
            });
            assert_eq!(block.class.is_some(), block.bytes <= 1 << 20, "{size}");
            assert!(block.class.is_none_or(|class| class < CLASSES), "{size}");
            last = block;
        }
    }

    #[test]
    fn a_size_that_no_address_space_holds_is_refused() {
        assert_eq!(block_size(usize::MAX, 8), None);
        assert_eq!(block_size(0, 8), block_size(1, 8));
    }
}
