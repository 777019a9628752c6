//! The suballocator.

use super::SuballocatorError;
use super::classes::class_of;
use super::free_lists::{Fit, FreeLists, Request};
use super::nodes::{NONE, Nodes};
use super::records::{Block, BlockId, BlockInfo, Freed, RegionId, RegionInfo, SuballocatorOptions};
use core::fmt;
use core::num::NonZeroU64;

/// The largest region, block and alignment, in bytes.
pub const MAX_SIZE: u64 = 1 << 63;

/// The largest granularity, in bytes.
pub const MAX_GRANULARITY: u64 = 1 << 31;

/// A region, or a vacant entry.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// In units of the granularity; 0 if the entry is vacant.
    size: u64,
    serial: NonZeroU64,
    /// The node of its lowest range.
    pub(super) first: u32,
}

/// Divides regions of offsets into blocks. The [module](super) describes the method and its cost.
#[cfg_attr(test, derive(Clone))]
pub struct Suballocator {
    /// The base-2 logarithm of the granularity.
    pub(super) unit_log2: u32,
    pub(super) nodes: Nodes,
    pub(super) free: FreeLists,
    pub(super) regions: Vec<Region>,
    vacant_regions: Vec<u32>,
    /// The number of the last allocation or region.
    serial: NonZeroU64,
    capacity: u64,
    used: u64,
    requested: u64,
    pub(super) blocks: usize,
    free_ranges: usize,
}

impl Suballocator {
    /// Makes a suballocator without regions.
    ///
    /// # Errors
    ///
    /// [`SuballocatorError::Granularity`] if the granularity is not a power of two, or too large.
    pub fn new(options: SuballocatorOptions) -> Result<Self, SuballocatorError> {
        let granularity = options.granularity;
        if !granularity.is_power_of_two() || granularity > MAX_GRANULARITY {
            return Err(SuballocatorError::Granularity(granularity));
        }
        Ok(Self {
            unit_log2: granularity.trailing_zeros(),
            nodes: Nodes::new(),
            free: FreeLists::new(),
            regions: Vec::new(),
            vacant_regions: Vec::new(),
            serial: NonZeroU64::MIN,
            capacity: 0,
            used: 0,
            requested: 0,
            blocks: 0,
            free_ranges: 0,
        })
    }

    /// Reserves memory for the records of this many more ranges.
    pub fn reserve(&mut self, ranges: usize) {
        self.nodes.reserve(ranges);
    }

    /// Adds a region of `size` free bytes. The owner must align the region's memory at least as its blocks.
    ///
    /// # Errors
    ///
    /// The size is 0, above [`MAX_SIZE`], or not a multiple of the granularity; the total size or the number of ranges
    /// would exceed its limit.
    pub fn add_region(&mut self, size: u64) -> Result<RegionId, SuballocatorError> {
        let granularity = self.granularity();
        if size == 0 || size > MAX_SIZE || !size.is_multiple_of(granularity) {
            return Err(SuballocatorError::RegionSize { size, granularity });
        }
        let capacity =
            self.capacity.checked_add(size).ok_or(SuballocatorError::Capacity { size, capacity: self.capacity })?;
        if self.nodes.room() == 0 {
            return Err(SuballocatorError::Numbers);
        }
        let units = size >> self.unit_log2;
        // Each region has a node, so 32 bits also suffice to number the regions.
        let index = self.vacant_regions.pop().unwrap_or(self.regions.len() as u32);
        let first = self.nodes.add(index, 0, units);
        let serial = self.next_serial();
        let region = Region { size: units, serial, first };
        match self.regions.get_mut(index as usize) {
            Some(vacant) => *vacant = region,
            None => self.regions.push(region),
        }
        self.capacity = capacity;
        self.free_ranges += 1;
        self.free.insert(&mut self.nodes, first);
        self.free.grown(0, units);
        Ok(RegionId { serial, index })
    }

    /// Removes a region, and returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The region does not exist, or holds blocks.
    pub fn remove_region(&mut self, id: RegionId) -> Result<u64, SuballocatorError> {
        let region = self.known(id).ok_or(SuballocatorError::UnknownRegion)?;
        let (units, first) = (region.size, region.first);
        if !self.is_empty(id.index) {
            return Err(SuballocatorError::RegionInUse);
        }
        self.free.remove(&mut self.nodes, first, class_of(units));
        self.nodes.vacate(first);
        self.regions[id.index as usize].size = 0;
        self.vacant_regions.push(id.index);
        let size = units << self.unit_log2;
        self.capacity -= size;
        self.free_ranges -= 1;
        Ok(size)
    }

    /// Allocates `size` bytes in any region, at an offset that is a multiple of `alignment`. A block of 0 bytes takes
    /// one unit of the granularity.
    ///
    /// `None` if no free range holds such a block, or if the suballocator has the most ranges that it can have, 2^32 -
    /// 1.
    ///
    /// # Panics
    ///
    /// The alignment is not a power of two.
    #[inline]
    pub fn allocate(&mut self, size: u64, alignment: u64) -> Option<Block> {
        assert!(alignment.is_power_of_two(), "alignment {alignment} must be a power of two");
        if size > MAX_SIZE {
            return None;
        }
        let units = ((size.max(1) - 1) >> self.unit_log2) + 1;
        let request = Request { size: units, alignment: (alignment >> self.unit_log2).max(1) };
        let fit = self.free.find(&self.nodes, request)?;
        self.take(fit, units, size)
    }

    /// Allocates `size` bytes at an offset that `place` chooses. Calls `place` for up to `limit` free ranges that are
    /// large enough, with the range's region, offset and size in bytes. `place` returns the offset of the block, a
    /// multiple of the granularity, or `None` to refuse the range.
    ///
    /// `None` if `place` refuses all ranges, or returns only offsets at which the block does not lie within the range.
    pub fn allocate_where(
        &mut self,
        size: u64,
        limit: usize,
        mut place: impl FnMut(RegionId, u64, u64) -> Option<u64>,
    ) -> Option<Block> {
        if size > MAX_SIZE {
            return None;
        }
        let units = ((size.max(1) - 1) >> self.unit_log2) + 1;
        let (nodes, unit_log2) = (&self.nodes, self.unit_log2);
        let fit = self.free.at_least(nodes, units).take(limit).find_map(|index| {
            let node = &nodes[index];
            let region = RegionId { serial: self.regions[node.region as usize].serial, index: node.region };
            let offset = place(region, node.offset << unit_log2, node.size << unit_log2)?;
            let start = offset >> unit_log2;
            let inside = start >= node.offset && node.offset + node.size - start >= units;
            (inside && start << unit_log2 == offset).then_some(Fit { index, start })
        })?;
        self.take(fit, units, size)
    }

    /// Allocates a block in a free range.
    #[inline]
    pub(super) fn take(&mut self, fit: Fit, units: u64, size: u64) -> Option<Block> {
        // The block may divide the range into three.
        if self.nodes.room() < 2 {
            return None;
        }
        let index = self.carve(fit, units);

        let serial = self.next_serial();
        let bytes = units << self.unit_log2;
        let node = &mut self.nodes[index];
        // Less than the granularity, which is at most 2^31.
        node.set_used(serial, (bytes - size) as u32);
        self.used += bytes;
        self.requested += size;
        self.blocks += 1;
        let (offset, region) = (node.offset << self.unit_log2, node.region);
        Some(Block { id: BlockId { serial, index }, region: self.region_id(region), offset, size: bytes })
    }

    /// Cuts a block out of a free range. The rests before and behind the block stay free.
    #[inline]
    fn carve(&mut self, Fit { index, start }: Fit, units: u64) -> u32 {
        let (nodes, free) = (&mut self.nodes, &mut self.free);
        let class = class_of(nodes[index].size);
        let padding = start - nodes[index].offset;
        let mut lowest = index;
        if padding > 0 {
            lowest = nodes.split_front(index, padding);
            free.insert(nodes, lowest);
            self.free_ranges += 1;
        }
        let block = if nodes[index].size > units {
            let block = nodes.split_front(index, units);
            free.resized(nodes, index, class);
            block
        } else {
            free.remove(nodes, index, class);
            self.free_ranges -= 1;
            index
        };
        if padding == 0 {
            lowest = block;
        }
        if nodes[lowest].before == NONE {
            self.regions[nodes[lowest].region as usize].first = lowest;
        }
        block
    }

    /// Frees a block, and joins it with free neighbours at once.
    ///
    /// # Errors
    ///
    /// [`SuballocatorError::UnknownBlock`] if the block does not exist or was freed.
    #[inline]
    pub fn free(&mut self, id: BlockId) -> Result<Freed, SuballocatorError> {
        let block = self.block(id).ok_or(SuballocatorError::UnknownBlock)?;
        self.used -= block.size;
        self.requested -= block.requested;
        self.blocks -= 1;

        let (nodes, free) = (&mut self.nodes, &mut self.free);
        let index = id.index;
        nodes[index].set_free();
        let (before, after) = (nodes[index].before, nodes[index].after);
        let [free_before, free_after] = [before, after].map(|other| other != NONE && nodes[other].is_free());
        // A free neighbour keeps its node, because the node is listed already, and often in the right list.
        let joined = if free_before {
            let class = class_of(nodes[before].size);
            if free_after {
                let class = class_of(nodes[after].size);
                free.remove(nodes, after, class);
                nodes.join_after(index);
                self.free_ranges -= 1;
            }
            nodes.join_after(before);
            free.resized(nodes, before, class);
            before
        } else if free_after {
            let class = class_of(nodes[after].size);
            nodes.join_before(after);
            free.resized(nodes, after, class);
            after
        } else {
            free.insert(nodes, index);
            self.free_ranges += 1;
            index
        };
        let node = &nodes[joined];
        free.grown(node.offset, node.size);
        let region = &mut self.regions[node.region as usize];
        if node.before == NONE {
            region.first = joined;
        }
        Ok(Freed { block, region_is_empty: node.size == region.size })
    }

    /// Describes a block; `None` if it was freed.
    #[inline]
    pub fn block(&self, id: BlockId) -> Option<BlockInfo> {
        self.block_of_node(id.index).filter(|(known, _)| *known == id).map(|(_, block)| block)
    }

    /// The block of a node, if one uses its range.
    #[inline]
    pub(crate) fn block_of_node(&self, index: u32) -> Option<(BlockId, BlockInfo)> {
        let node = self.nodes.get(index)?;
        let (serial, size) = (node.serial()?, node.size << self.unit_log2);
        let block = BlockInfo {
            region: self.region_id(node.region),
            offset: node.offset << self.unit_log2,
            size,
            requested: size - u64::from(node.slack()),
        };
        Some((BlockId { serial, index }, block))
    }

    /// Describes a region; `None` if it was removed.
    pub fn region(&self, id: RegionId) -> Option<RegionInfo> {
        let size = self.known(id)?.size << self.unit_log2;
        Some(RegionInfo { size, is_empty: self.is_empty(id.index) })
    }

    /// All regions.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> + '_ {
        let numbered = self.regions.iter().enumerate().filter(|(_, region)| region.size > 0);
        numbered.map(|(index, region)| RegionId { serial: region.serial, index: index as u32 })
    }

    /// The unit of offsets and sizes, in bytes.
    #[inline]
    pub fn granularity(&self) -> u64 {
        1 << self.unit_log2
    }

    /// The total size of all regions, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The bytes that no block uses.
    #[inline]
    pub fn free_bytes(&self) -> u64 {
        self.capacity - self.used
    }

    /// The bytes that blocks use, rounded up to the granularity.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// The sum of the requested sizes of all blocks, in bytes.
    pub fn requested_bytes(&self) -> u64 {
        self.requested
    }

    /// The number of blocks.
    pub fn block_count(&self) -> usize {
        self.blocks
    }

    /// The number of free ranges.
    pub fn free_range_count(&self) -> usize {
        self.free_ranges
    }

    /// How many more ranges there can be.
    pub(crate) fn room(&self) -> usize {
        self.nodes.room()
    }

    /// The number of regions.
    pub fn region_count(&self) -> usize {
        self.regions.len() - self.vacant_regions.len()
    }

    /// The largest free range, in bytes. A block of that size with an alignment up to the granularity can be allocated.
    /// Visits the free ranges within about 3 % of the largest range.
    pub fn largest_free(&self) -> u64 {
        self.free.largest(&self.nodes) << self.unit_log2
    }

    /// The share of free memory that lies outside of the largest free range: 0 if there is at most one free range,
    /// close to 1 if there are very many.
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes() {
            0 => 0.0,
            free => (free - self.largest_free()) as f64 / free as f64,
        }
    }

    #[inline]
    pub(super) fn next_serial(&mut self) -> NonZeroU64 {
        self.serial = self.serial.saturating_add(1);
        self.serial
    }

    #[inline]
    pub(super) fn region_id(&self, index: u32) -> RegionId {
        RegionId { serial: self.regions[index as usize].serial, index }
    }

    pub(super) fn known(&self, id: RegionId) -> Option<&Region> {
        self.regions.get(id.index as usize).filter(|region| region.size > 0 && region.serial == id.serial)
    }

    /// Whether a region is one free range.
    fn is_empty(&self, index: u32) -> bool {
        let region = &self.regions[index as usize];
        let first = &self.nodes[region.first];
        first.is_free() && first.size == region.size
    }
}

impl fmt::Debug for Suballocator {
    /// Only figures, because there may be millions of ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suballocator")
            .field("granularity", &self.granularity())
            .field("regions", &self.region_count())
            .field("blocks", &self.blocks)
            .field("free_ranges", &self.free_ranges)
            .field("used_bytes", &self.used)
            .field("free_bytes", &self.free_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Suballocator {
    /// Checks that the lists contain exactly the free ranges of all regions.
    pub(super) fn audit(&self) {
        let mut listed = self.free.audit(&self.nodes);
        let mut free = Vec::new();
        for region in &self.regions {
            let mut index = if region.size > 0 { region.first } else { NONE };
            let mut before = NONE;
            while let Some(node) = self.nodes.get(index) {
                assert_eq!(node.before, before);
                if node.is_free() {
                    free.push(index);
                }
                (before, index) = (index, node.after);
            }
        }
        listed.sort_unstable();
        free.sort_unstable();
        assert_eq!(listed, free);
        assert_eq!(free.len(), self.free_ranges);
    }
}
