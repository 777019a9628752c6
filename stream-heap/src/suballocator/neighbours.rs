//! Ranges and their neighbours: walks over them, blocks at chosen offsets, and blocks that are divided and joined.

use super::Suballocator;
use super::free_lists::Fit;
use super::nodes::{NONE, Node};
use super::records::{Block, BlockId, RangeId, RangeInfo, RegionId};

impl Suballocator {
    /// The ranges of a region, free and used, in the order of their offsets. None if the region was removed.
    pub fn ranges(&self, id: RegionId) -> impl Iterator<Item = RangeInfo> + '_ {
        self.walk(self.known(id).map_or(NONE, |region| region.first), |node| node.after)
    }

    /// The ranges above a block in its region, the nearest first. None if the block was freed.
    pub fn above(&self, block: BlockId) -> impl Iterator<Item = RangeInfo> + '_ {
        self.walk(self.used(block).map_or(NONE, |node| node.after), |node| node.after)
    }

    /// The ranges below a block in its region, the nearest first. None if the block was freed.
    pub fn below(&self, block: BlockId) -> impl Iterator<Item = RangeInfo> + '_ {
        self.walk(self.used(block).map_or(NONE, |node| node.before), |node| node.before)
    }

    /// The free ranges of at least `size` bytes, of all regions.
    pub fn free_ranges(&self, size: u64) -> impl Iterator<Item = (RegionId, RangeInfo)> + '_ {
        let units = ((size.max(1) - 1) >> self.unit_log2) + 1;
        self.free.at_least(&self.nodes, units).map(|index| {
            let node = &self.nodes[index];
            (self.region_id(node.region), self.info(index, node))
        })
    }

    fn walk(&self, first: u32, next: impl Fn(&Node) -> u32) -> impl Iterator<Item = RangeInfo> {
        let mut following = first;
        core::iter::from_fn(move || {
            let index = following;
            let node = self.nodes.get(index)?;
            following = next(node);
            Some(self.info(index, node))
        })
    }

    fn info(&self, index: u32, node: &Node) -> RangeInfo {
        RangeInfo {
            id: RangeId { index },
            offset: node.offset << self.unit_log2,
            size: node.size << self.unit_log2,
            block: node.serial().map(|serial| BlockId { serial, index }),
        }
    }

    fn used(&self, block: BlockId) -> Option<&Node> {
        self.nodes.get(block.index).filter(|node| node.serial() == Some(block.serial))
    }

    /// Allocates `size` bytes at an offset within a free range of a region: multiples of the granularity. The range
    /// keeps its id, unless it ends with the block, so that blocks can be taken from it in ascending order.
    ///
    /// `None` if the bytes are not within this range, or the range is not free; or as [`allocate`](Self::allocate).
    pub fn allocate_in(&mut self, region: RegionId, range: RangeId, offset: u64, size: u64) -> Option<Block> {
        self.known(region)?;
        let (start, units) = (offset >> self.unit_log2, size >> self.unit_log2);
        let node = self.nodes.get(range.index).filter(|node| node.is_free() && node.region == region.index)?;
        let whole = units > 0 && start << self.unit_log2 == offset && units << self.unit_log2 == size;
        let inside = start >= node.offset && start.checked_add(units)? <= node.offset + node.size;
        if whole && inside { self.take(Fit { index: range.index, start }, units, size) } else { None }
    }

    /// Divides a block: its lowest `size` bytes, a multiple of the granularity, become a block of their own. The rest
    /// keeps its id. `None` if the block was freed, or has no more than `size` bytes.
    pub fn divide(&mut self, block: BlockId, size: u64) -> Option<BlockId> {
        let units = size >> self.unit_log2;
        let node = self.used(block)?;
        let whole = units > 0 && units << self.unit_log2 == size;
        if !whole || node.size <= units || u64::from(node.slack()) > (node.size - units) << self.unit_log2 {
            return None;
        }
        let (is_first, region) = (node.before == NONE, node.region as usize);
        if self.nodes.room() == 0 {
            return None;
        }
        let serial = self.next_serial();
        let index = self.nodes.split_front(block.index, units);
        self.nodes[index].set_used(serial, 0);
        if is_first {
            self.regions[region].first = index;
        }
        self.blocks += 1;
        Some(BlockId { serial, index })
    }

    /// Joins a block with the block right above it. The joined block has the id of the lower one. `false` if one of them
    /// was freed, or if they are no neighbours.
    pub fn join(&mut self, lower: BlockId, upper: BlockId) -> bool {
        let (Some(one), Some(other)) = (self.used(lower), self.used(upper)) else { return false };
        let Some(slack) = one.slack().checked_add(other.slack()).filter(|_| one.after == upper.index) else {
            return false;
        };
        if !self.nodes[lower.index].set_used(lower.serial, slack) {
            return false;
        }
        self.nodes.join_after(lower.index);
        self.blocks -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::suballocator::{Suballocator, SuballocatorOptions};

    #[test]
    fn blocks_are_divided_joined_and_put_at_offsets() {
        let mut memory = Suballocator::new(SuballocatorOptions { granularity: 256 }).expect("a power of two");
        let region = memory.add_region(16 * 256).expect("whole units");
        let range = memory.ranges(region).next().expect("one range").id;
        for (offset, size) in [(0, 17 * 256), (256, 16 * 256), (128, 256), (256, 100), (0, 0), (u64::MAX - 255, 256)] {
            assert_eq!(memory.allocate_in(region, range, offset, size), None, "{size} at {offset}");
        }
        // In ascending order, the range keeps its id.
        let mut at = |offset: u64, size: u64| memory.allocate_in(region, range, offset * 256, size * 256);
        let (low, high) = (at(2, 4).expect("it is free"), at(10, 2).expect("it is free"));
        assert_eq!(at(10, 1), None, "it is used");
        assert_eq!((low.offset, high.offset), (512, 2560));
        let places = |ranges: Vec<crate::suballocator::RangeInfo>| -> Vec<(u64, u64, bool)> {
            ranges.iter().map(|range| (range.offset / 256, range.size / 256, range.block.is_some())).collect()
        };
        assert_eq!(places(memory.below(high.id).collect()), [(6, 4, false), (2, 4, true), (0, 2, false)]);
        assert_eq!(places(memory.above(low.id).collect()), [(6, 4, false), (10, 2, true), (12, 4, false)]);
        let mut free: Vec<_> = memory.free_ranges(3 * 256).map(|(_, range)| range.offset / 256).collect();
        free.sort_unstable();
        assert_eq!(free, [6, 12]);

        assert_eq!((memory.divide(low.id, 4 * 256), memory.divide(low.id, 100)), (None, None));
        let first = memory.divide(low.id, 256).expect("it is longer");
        assert_eq!(memory.block(first).map(|block| (block.offset, block.size)), Some((512, 256)));
        assert_eq!(memory.block(low.id).map(|block| (block.offset, block.size)), Some((768, 768)));
        memory.audit();
        assert!(!memory.join(low.id, first) && !memory.join(first, high.id), "no neighbours in this order");
        assert!(memory.join(first, low.id));
        assert_eq!((memory.block(low.id), memory.block_count()), (None, 2));
        memory.audit();
        for block in [first, high.id] {
            memory.free(block).expect("it is used");
        }
        assert_eq!(memory.ranges(region).count(), 1);
        assert_eq!((memory.divide(first, 256), memory.join(first, high.id)), (None, false));
    }
}
