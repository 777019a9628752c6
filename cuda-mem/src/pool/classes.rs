//! Which sizes blocks have: whole units up to sixteen of them, then sixteen sizes for each doubling, so that a block is at
//! most a sixteenth larger than what was asked for. Large blocks are whole units.

/// How many sizes there are for each doubling, and how many whole units come before.
const STEPS: usize = 16;
/// How many doublings have classes of their own.
const DOUBLINGS: usize = 8;
/// How many classes there are.
pub(super) const CLASSES: usize = STEPS + STEPS * DOUBLINGS;

/// The size of a block, and its class if fronts keep such blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockSize {
    /// In bytes.
    pub bytes: usize,
    /// Below [`CLASSES`].
    pub class: Option<usize>,
}

/// The block that serves `size` bytes, in units of `2^unit_log2` bytes. `None` if there is no such size.
#[inline]
pub(super) fn block_size(size: usize, unit_log2: u32) -> Option<BlockSize> {
    let units = ((size.max(1) - 1) >> unit_log2) + 1;
    if units <= STEPS {
        return Some(BlockSize { bytes: units << unit_log2, class: Some(units - 1) });
    }
    // The step within the doubling that the last unit lies in.
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
    fn blocks_hold_what_was_asked_for_and_are_at_most_a_sixteenth_larger() {
        let (mut last, step) = (BlockSize { bytes: 0, class: None }, if cfg!(miri) { 997 } else { 1 });
        for size in (1..3 << 20).step_by(step) {
            let block = block_size(size, 8).unwrap();
            assert!(block.bytes >= size && block.bytes.is_multiple_of(256), "{size}: {block:?}");
            assert!(block.bytes - size < 256.max(size.div_ceil(16)) + 256, "{size}: {block:?}");
            assert!(block.bytes >= last.bytes, "{size}");
            // Equal classes are equal sizes, and a block's own size has its class.
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
