//! Compares the suballocator with a simple model: random histories, and all short histories of a small region.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(super) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 4096, failure_persistence: None, ..Default::default() }
}

/// The most steps of a history.
pub(super) const STEPS: usize = 200;

fn suballocator(granularity: u64) -> Suballocator {
    Suballocator::new(SuballocatorOptions { granularity }).unwrap()
}

/// A region as a map from offset to range.
#[derive(Clone, Debug)]
struct ModelRegion {
    id: RegionId,
    size: u64,
    ranges: BTreeMap<u64, ModelRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ModelRange {
    size: u64,
    /// The block and its requested size; `None` if the range is free.
    block: Option<(BlockId, u64)>,
}

/// Checks the suballocator's answers, which may choose any free range that fits.
#[derive(Clone, Debug)]
struct Model {
    granularity: u64,
    regions: Vec<ModelRegion>,
    live: Vec<BlockId>,
    freed: Vec<BlockId>,
}

impl Model {
    fn new(granularity: u64) -> Self {
        Self { granularity, regions: Vec::new(), live: Vec::new(), freed: Vec::new() }
    }

    fn add_region(&mut self, id: RegionId, size: u64) {
        let ranges = BTreeMap::from([(0, ModelRange { size, block: None })]);
        self.regions.push(ModelRegion { id, size, ranges });
    }

    /// Checks an answer to an allocation, and carries it out.
    fn allocate(&mut self, size: u64, alignment: u64, answer: Option<Block>) {
        let length = size.max(1).next_multiple_of(self.granularity);
        let alignment = alignment.max(self.granularity);
        let fits = |offset: u64, range: &ModelRange| {
            range.block.is_none() && offset.next_multiple_of(alignment) + length <= offset + range.size
        };
        let Some(block) = answer else {
            let fitting =
                self.regions.iter().flat_map(|region| &region.ranges).find(|(offset, range)| fits(**offset, range));
            assert_eq!(fitting, None, "refused {size} bytes aligned to {alignment}");
            return;
        };
        assert_eq!(block.size, length);
        assert!(block.offset.is_multiple_of(alignment), "{block:?} is not aligned to {alignment}");
        let region = self.regions.iter_mut().find(|region| region.id == block.region).unwrap();
        let (&start, &range) = region.ranges.range(..=block.offset).next_back().unwrap();
        let (end, block_end) = (start + range.size, block.offset + length);
        assert!(range.block.is_none() && block_end <= end, "{block:?} is not in a free range");
        region.ranges.remove(&start);
        for (from, to) in [(start, block.offset), (block_end, end)] {
            if from < to {
                region.ranges.insert(from, ModelRange { size: to - from, block: None });
            }
        }
        region.ranges.insert(block.offset, ModelRange { size: length, block: Some((block.id, size)) });
        assert!(!self.live.contains(&block.id) && !self.freed.contains(&block.id), "the id is new");
        self.live.push(block.id);
    }

    /// Frees the block in the model, and returns the expected answer.
    fn free(&mut self, id: BlockId) -> Freed {
        self.live.retain(|live| *live != id);
        self.freed.push(id);
        let held = |range: &ModelRange| range.block.is_some_and(|(block, _)| block == id);
        let region = self.regions.iter_mut().find(|region| region.ranges.values().any(held)).unwrap();
        let (&offset, &range) = region.ranges.iter().find(|(_, range)| held(range)).unwrap();
        let block = BlockInfo { region: region.id, offset, size: range.size, requested: range.block.unwrap().1 };
        let (mut start, mut end) = (offset, offset + range.size);
        if let Some((&before, range)) = region.ranges.range(..offset).next_back() {
            start = if range.block.is_none() { before } else { start };
        }
        if let Some(range) = region.ranges.get(&end).filter(|range| range.block.is_none()) {
            end += range.size;
        }
        region.ranges.retain(|offset, _| !(start..end).contains(offset));
        region.ranges.insert(start, ModelRange { size: end - start, block: None });
        Freed { block, region_is_empty: end - start == region.size }
    }

    /// Compares all figures and ranges of a suballocator with the model.
    fn compare(&self, real: &Suballocator) {
        real.audit();
        let [mut free, mut used, mut requested, mut largest] = [0u64; 4];
        let mut free_ranges = 0;
        for region in &self.regions {
            let expected: Vec<_> = region
                .ranges
                .iter()
                .map(|(&offset, range)| (offset, range.size, range.block.map(|(block, _)| block)))
                .collect();
            let found = real.ranges(region.id).map(|range| (range.offset, range.size, range.block));
            assert_eq!(found.collect::<Vec<_>>(), expected);
            let is_empty = expected.iter().all(|(.., block)| block.is_none());
            assert_eq!(real.region(region.id), Some(RegionInfo { size: region.size, is_empty }));
            for (&offset, range) in &region.ranges {
                match range.block {
                    None => {
                        free += range.size;
                        free_ranges += 1;
                        largest = largest.max(range.size);
                    }
                    Some((block, size)) => {
                        used += range.size;
                        requested += size;
                        let info = BlockInfo { region: region.id, offset, size: range.size, requested: size };
                        assert_eq!(real.block(block), Some(info));
                    }
                }
            }
        }
        assert_eq!(real.regions().count(), self.regions.len());
        assert_eq!(real.region_count(), self.regions.len());
        assert_eq!(real.capacity(), free + used);
        assert_eq!(
            (real.free_bytes(), real.used_bytes(), real.requested_bytes(), real.largest_free()),
            (free, used, requested, largest)
        );
        assert_eq!((real.block_count(), real.free_range_count()), (self.live.len(), free_ranges));
        let fragmentation = if free == 0 { 0.0 } else { 1.0 - largest as f64 / free as f64 };
        assert!((real.fragmentation() - fragmentation).abs() < 1e-12);
        for freed in &self.freed {
            assert_eq!(real.block(*freed), None);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    AddRegion(u64),
    RemoveRegion(prop::sample::Index),
    Allocate { size: u64, alignment: u32 },
    Free(prop::sample::Index),
    FreeAgain(prop::sample::Index),
}

/// Steps in units: small sizes with their own classes, and larger sizes that share classes.
fn step(largest: u64, alignments: u32) -> impl Strategy<Value = Step> {
    let size = prop_oneof![1..=largest / 16 + 1, 1..=largest, largest - largest / 16..=largest];
    prop_oneof![
        1 => (1..=4 * largest).prop_map(Step::AddRegion),
        1 => any::<prop::sample::Index>().prop_map(Step::RemoveRegion),
        12 => (size, 0..alignments).prop_map(|(size, alignment)| Step::Allocate { size, alignment }),
        9 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => any::<prop::sample::Index>().prop_map(Step::FreeAgain),
    ]
}

/// Carries out steps, and compares after each. Sizes are in units, less `slack` bytes.
fn run(granularity: u64, slack: u64, steps: Vec<Step>) {
    let (mut real, mut model) = (suballocator(granularity), Model::new(granularity));
    let mut removed = Vec::new();
    for step in steps {
        match step {
            Step::AddRegion(units) if model.regions.len() < 3 => {
                model.add_region(real.add_region(units * granularity).unwrap(), units * granularity);
            }
            Step::RemoveRegion(which) if !model.regions.is_empty() => {
                let at = which.index(model.regions.len());
                let region = &model.regions[at];
                let (id, size) = (region.id, region.size);
                if region.ranges.values().any(|range| range.block.is_some()) {
                    assert_eq!(real.remove_region(id), Err(SuballocatorError::RegionInUse));
                } else {
                    assert_eq!(real.remove_region(id), Ok(size));
                    model.regions.remove(at);
                    removed.push(id);
                }
            }
            Step::Allocate { size, alignment } => {
                let (size, alignment) = (size * granularity - slack, granularity << alignment >> 1);
                model.allocate(size, alignment.max(1), real.allocate(size, alignment.max(1)));
            }
            Step::Free(which) if !model.live.is_empty() => {
                let id = model.live[which.index(model.live.len())];
                assert_eq!(real.free(id), Ok(model.free(id)));
            }
            Step::FreeAgain(which) if !model.freed.is_empty() => {
                let id = model.freed[which.index(model.freed.len())];
                assert_eq!(real.free(id), Err(SuballocatorError::UnknownBlock));
            }
            Step::AddRegion(_) | Step::RemoveRegion(_) | Step::Free(_) | Step::FreeAgain(_) => {}
        }
        model.compare(&real);
        for id in &removed {
            assert_eq!((real.region(*id), real.ranges(*id).count()), (None, 0));
            assert_eq!(real.remove_region(*id), Err(SuballocatorError::UnknownRegion));
        }
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn small_regions_behave_as_the_model(
        granularity in prop::sample::select(vec![1u64, 2, 256]),
        steps in prop::collection::vec(step(16, 6), 0..STEPS),
    ) {
        run(granularity, granularity / 2, steps);
    }

    /// Sizes share classes here, so the exact search is needed.
    #[test]
    fn large_regions_behave_as_the_model(steps in prop::collection::vec(step(5000, 13), 0..STEPS)) {
        run(64, 0, steps);
    }
}

/// All histories of `depth` steps: each step allocates, or frees one of the blocks.
fn histories(real: &Suballocator, model: &Model, requests: &[(u64, u64)], depth: usize, count: &mut usize) {
    model.compare(real);
    *count += 1;
    if depth == 0 {
        return;
    }
    for &(size, alignment) in requests {
        let (mut real, mut model) = (real.clone(), model.clone());
        let answer = real.allocate(size, alignment);
        model.allocate(size, alignment, answer);
        histories(&real, &model, requests, depth - 1, count);
    }
    for &id in &model.live {
        let (mut real, mut model) = (real.clone(), model.clone());
        assert_eq!(real.free(id), Ok(model.free(id)));
        assert_eq!(real.free(id), Err(SuballocatorError::UnknownBlock));
        histories(&real, &model, requests, depth - 1, count);
    }
}

fn all_histories(requests: &[(u64, u64)], depth: usize) -> usize {
    let (mut real, mut model, mut count) = (suballocator(1), Model::new(1), 0);
    model.add_region(real.add_region(8).unwrap(), 8);
    histories(&real, &model, requests, depth, &mut count);
    count
}

#[test]
fn all_short_histories_of_eight_units() {
    let count = all_histories(&[(1, 1), (2, 1), (3, 1), (4, 1)], 6);
    assert!(count > 20_000, "{count}");
}

#[test]
fn all_short_histories_of_eight_units_with_alignments() {
    let count = all_histories(&[(1, 1), (1, 4), (2, 2), (3, 2), (3, 4), (4, 1), (1, 8)], 5);
    assert!(count > 20_000, "{count}");
}

/// A region with free ranges of these sizes, each behind a block of one unit.
fn holes(sizes: impl IntoIterator<Item = u64> + Clone) -> Suballocator {
    let mut memory = suballocator(1);
    let total = sizes.clone().into_iter().map(|size| size + 1).sum();
    memory.add_region(total).unwrap();
    let mut blocks = Vec::new();
    for size in sizes {
        memory.allocate(1, 1).unwrap();
        blocks.push(memory.allocate(size, 1).unwrap().id);
    }
    for block in blocks {
        memory.free(block).unwrap();
    }
    memory
}

#[test]
fn a_range_that_fits_is_found_behind_smaller_ones_of_its_class() {
    // 1024 to 1055 are one class. Its list begins with the range that was freed last.
    let mut memory = holes([1055, 1024, 1030, 1040, 1024]);
    assert_eq!(memory.allocate(1041, 1).map(|block| block.offset), Some(1));
    assert_eq!(memory.allocate(1041, 1), None);
    assert_eq!(memory.allocate(1040, 1).map(|block| block.size), Some(1040));
}

#[test]
fn an_aligned_block_is_found_where_only_one_range_holds_it() {
    for fitting in 0..8 {
        let mut memory = suballocator(1);
        memory.add_region(8 * 64).unwrap();
        let ends: Vec<_> =
            (0..8).map(|_| (memory.allocate(1, 1).unwrap().id, memory.allocate(63, 1).unwrap().id)).collect();
        for (index, (first, rest)) in ends.into_iter().enumerate() {
            memory.free(rest).unwrap();
            // While its first unit is used, a range holds no block that is aligned to 64.
            if index == fitting {
                memory.free(first).unwrap();
            }
        }
        let block = memory.allocate(2, 64).unwrap();
        assert_eq!(block.offset, fitting as u64 * 64);
        assert_eq!(memory.allocate(2, 64), None);
    }
}

#[test]
fn what_was_refused_is_found_again_once_it_is_freed() {
    let mut memory = suballocator(1);
    let region = memory.add_region(4096).unwrap();
    let first = memory.allocate(1100, 1).unwrap();
    let rest = memory.allocate(2996, 1).unwrap();
    assert_eq!(memory.allocate(1090, 1024), None);
    assert_eq!(memory.allocate(1090, 1), None);
    memory.free(first.id).unwrap();
    assert_eq!(memory.allocate(1090, 1024).map(|block| block.offset), Some(0));
    assert_eq!(memory.allocate(1090, 1024), None);
    assert!(memory.add_region(1090).is_ok_and(|other| other != region));
    assert!(memory.allocate(1090, 1024).is_some());
    assert_eq!(memory.free(rest.id).map(|freed| freed.region_is_empty), Ok(false));
}

#[test]
fn sizes_at_the_limits_are_served_or_refused_and_never_wrap() {
    let mut memory = suballocator(1);
    memory.add_region(MAX_SIZE).unwrap();
    for size in [MAX_SIZE + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(memory.allocate(size, 1), None);
        assert_eq!(memory.allocate(size, MAX_SIZE), None);
    }
    let whole = memory.allocate(MAX_SIZE, MAX_SIZE).unwrap();
    assert_eq!((whole.offset, memory.free_bytes(), memory.fragmentation()), (0, 0, 0.0));
    memory.free(whole.id).unwrap();
    let first = memory.allocate(1, 1).unwrap();
    assert_eq!(memory.allocate(1, MAX_SIZE), None);
    assert_eq!(memory.allocate(MAX_SIZE, 1), None);
    assert_eq!(memory.allocate(MAX_SIZE - 1, 1).map(|block| block.offset), Some(1));
    memory.free(first.id).unwrap();

    let mut coarse = suballocator(MAX_GRANULARITY);
    coarse.add_region(MAX_SIZE).unwrap();
    let empty = coarse.allocate(0, 1).unwrap();
    assert_eq!((empty.size, coarse.block(empty.id).unwrap().requested), (MAX_GRANULARITY, 0));
    assert_eq!(coarse.allocate(MAX_SIZE, 1), None);
    coarse.free(empty.id).unwrap();
    assert_eq!(coarse.allocate(MAX_SIZE - 1, 1).map(|block| block.size), Some(MAX_SIZE));
}

#[test]
fn options_and_regions_that_cannot_be_are_refused() {
    for granularity in [0, 3, 257, MAX_GRANULARITY * 2] {
        let refused = Suballocator::new(SuballocatorOptions { granularity }).err();
        assert_eq!(refused, Some(SuballocatorError::Granularity(granularity)));
    }
    let mut memory = Suballocator::new(SuballocatorOptions::default()).unwrap();
    for size in [0, 100, 257, MAX_SIZE + 256, u64::MAX] {
        assert_eq!(memory.add_region(size), Err(SuballocatorError::RegionSize { size, granularity: 256 }));
    }
    memory.add_region(MAX_SIZE).unwrap();
    memory.add_region(MAX_SIZE - 256).unwrap();
    let refused = memory.add_region(256);
    assert_eq!(refused, Err(SuballocatorError::Capacity { size: 256, capacity: u64::MAX - 255 }));
    assert_eq!(memory.region_count(), 2);
}

#[test]
#[should_panic(expected = "alignment 0 must be a power of two")]
fn an_alignment_that_is_no_power_of_two_is_named() {
    suballocator(1).allocate(1, 0);
}

#[test]
fn a_block_goes_where_its_place_says() {
    let mut memory = Suballocator::new(SuballocatorOptions { granularity: 16 }).unwrap();
    let (one, two) = (memory.add_region(160).unwrap(), memory.add_region(320).unwrap());
    let mut asked = Vec::new();
    let block = memory.allocate_where(20, usize::MAX, |region, offset, size| {
        asked.push((region, offset, size));
        (region == two).then_some(offset + 48)
    });
    let block = block.unwrap();
    assert_eq!((block.region, block.offset, block.size), (two, 48, 32));
    assert_eq!(asked, [(one, 0, 160), (two, 0, 320)]);
    memory.audit();
    // Offsets outside of the range or between units are refused. Ranges behind the limit are not offered.
    assert_eq!(memory.allocate_where(20, usize::MAX, |_, offset, _| Some(offset + 8)), None);
    assert_eq!(memory.allocate_where(20, usize::MAX, |_, offset, size| Some(offset + size - 16)), None);
    // The first range offered is the smallest, which belongs to the other region.
    assert_eq!(memory.allocate_where(20, 1, |region, offset, _| (region == one).then_some(offset)), None);
    // Only large enough ranges are offered: not the 48 bytes before the block, but the 240 behind it.
    let mut sizes = Vec::new();
    assert_eq!(memory.allocate_where(49, usize::MAX, |_, _, size| (sizes.push(size), None).1), None);
    assert_eq!(sizes, [160, 240]);
    memory.free(block.id).unwrap();
    memory.audit();
    assert_eq!(memory.largest_free(), 320);
}
