//! A heap, and a model of every unit of its memory.

use super::*;
use crate::region::Span;
use crate::world::{Progress, World};
use std::collections::BTreeMap;

pub const STREAMS: usize = 4;
pub const UNIT: u64 = 256;

#[derive(Clone, Debug)]
pub enum Step {
    Allocate { stream: usize, units: u64, effort: Effort },
    Free { which: usize, stream: usize },
    Complete { stream: usize },
    Settle,
    Synchronize,
    Grow { units: u64 },
    Trim { keep: u64 },
}

/// One unit of memory: its last work, and the stream that freed it.
#[derive(Clone, Copy, Debug)]
struct Unit {
    used: bool,
    last: Progress<STREAMS>,
    by: Option<usize>,
}

#[derive(Debug)]
pub struct Model {
    pub heap: Heap<World<STREAMS>, Span>,
    pub world: World<STREAMS>,
    units: BTreeMap<u64, Unit>,
    pub live: Vec<(Span, usize)>,
    next_base: u64,
}

impl Model {
    pub fn new() -> Self {
        let heap = Heap::new(UNIT).expect("a power of two");
        let mut model = Self { heap, world: World::new(), units: BTreeMap::new(), live: vec![], next_base: 1 << 20 };
        model.grow(16);
        model
    }

    fn grow(&mut self, units: u64) {
        // Regions are neighbours, and the last 17 bytes are no whole unit.
        let base = self.next_base;
        self.next_base += units * UNIT;
        self.heap.add(Span { address: base, size: units * UNIT + 17 }).expect("the world gives no errors");
        let free = Unit { used: false, last: [0; STREAMS], by: None };
        self.units.extend((0..units).map(|unit| (base + unit * UNIT, free)));
    }

    /// Carries out a step.
    ///
    /// # Panics
    ///
    /// The heap broke a rule.
    pub fn take(&mut self, step: Step) {
        match step {
            Step::Allocate { stream, units, effort } => self.allocate(stream, units, effort),
            Step::Free { which, stream } => {
                if self.live.is_empty() {
                    return;
                }
                let (block, home) = self.live.swap_remove(which % self.live.len());
                let mut last = self.units[&block.address].last;
                if stream != home {
                    self.world.join(stream, home);
                    self.world.work(stream, &mut last);
                }
                assert!(self.heap.free(block.address, &stream));
                assert!(!self.heap.free(block.address, &stream), "a second free is refused");
                for (_, unit) in self.units.range_mut(bytes(block)) {
                    *unit = Unit { used: false, last, by: Some(stream) };
                }
            }
            Step::Complete { stream } => self.world.complete(stream),
            Step::Settle => self.heap.tags.settle(&mut self.world).expect("the world gives no errors"),
            Step::Synchronize => {
                self.synchronize();
                // Now every stream may use all free memory.
                let largest = self.heap.largest_free();
                let found = self
                    .heap
                    .allocate(largest.max(UNIT), &0, Effort::Ready, &mut self.world)
                    .expect("the world gives no errors");
                assert_eq!(found.is_some(), largest > 0);
                if let Some(block) = found {
                    assert!(self.heap.free(block.address, &0));
                }
                self.synchronize();
                assert_eq!(self.heap.tags.stream_count(), 0);
            }
            Step::Grow { units } => self.grow(units),
            Step::Trim { keep } => {
                for block in self.heap.take_empty(keep) {
                    let region = block.address..block.address + block.size / UNIT * UNIT;
                    for (_, unit) in self.units.range(region.clone()) {
                        // No stream may have work left on the region.
                        assert!(!unit.used && (0..STREAMS).all(|stream| self.world.is_before(&unit.last, stream)));
                    }
                    self.units.retain(|address, _| !region.contains(address));
                }
            }
        }
    }

    /// Waits for all freed memory, as a pool does.
    pub fn synchronize(&mut self) {
        let ends = self.heap.tags.ends(&mut self.world).expect("the world gives no errors");
        ends.iter().for_each(|end| self.world.reach(end));
        self.heap.tags.settle(&mut self.world).expect("the world gives no errors");
    }

    fn allocate(&mut self, stream: usize, units: u64, effort: Effort) {
        let runs = |free: &dyn Fn(&Unit) -> bool| {
            let (mut run, mut longest, mut next) = (0, 0, 0);
            for (address, unit) in &self.units {
                let ends_region = self.heap.regions().any(|region| region.address == *address);
                run = if !free(unit) {
                    0
                } else if *address == next && !ends_region {
                    run + 1
                } else {
                    1
                };
                next = address + UNIT;
                longest = longest.max(run);
            }
            longest
        };
        let any = runs(&|unit| !unit.used);
        let own = runs(&|unit| !unit.used && unit.by.is_none_or(|by| by == stream));
        let found =
            self.heap.allocate(units * UNIT, &stream, effort, &mut self.world).expect("the world gives no errors");
        let Some(block) = found else {
            assert!(own < units || effort != Effort::Thorough, "{own} units of its own were refused for {units}");
            assert!(any < units || effort != Effort::Wait, "{any} units were refused for {units}, with a wait");
            return;
        };
        assert_eq!(block.size, units * UNIT);
        let mut last = [0; STREAMS];
        let range: Vec<_> = self.units.range(bytes(block)).map(|(_, unit)| *unit).collect();
        assert_eq!(range.len() as u64, units);
        for unit in range {
            assert!(!unit.used, "{block:?} overlaps another block");
            assert!(self.world.is_before(&unit.last, stream), "{block:?} is in use: {unit:?}");
        }
        self.world.work(stream, &mut last);
        for (_, unit) in self.units.range_mut(bytes(block)) {
            *unit = Unit { used: true, last, by: None };
        }
        self.live.push((block, stream));
    }

    /// Frees all blocks, and checks that the heap gives back all regions.
    pub fn end(mut self) {
        for (block, home) in std::mem::take(&mut self.live) {
            assert!(self.heap.free(block.address, &home));
        }
        self.synchronize();
        self.heap.take_empty(0);
        assert_eq!((self.heap.reserved(), self.heap.regions().count()), (0, 0));
    }

    /// Compares the heap's figures and ranges with the model.
    pub fn compare(&self) {
        let used = self.units.values().filter(|unit| unit.used).count() as u64 * UNIT;
        assert_eq!((self.heap.used(), self.heap.reserved()), (used, self.units.len() as u64 * UNIT));
        let (mut split, mut covered) = (0, 0);
        for (region, ranges) in self.heap.ranges() {
            let mut next = region.address;
            let holds_blocks = ranges.iter().any(|range| range.used);
            for range in ranges {
                assert_eq!(range.bytes.start, next, "ranges leave no gap");
                next = range.bytes.end;
                for (_, unit) in self.units.range(range.bytes.clone()) {
                    assert_eq!(unit.used, range.used);
                    // Free memory that waits for no stream has no work left.
                    let settled = (0..STREAMS).all(|stream| self.world.is_before(&unit.last, stream));
                    assert!(range.used || range.stream.is_some() || settled);
                }
                let size = range.bytes.end - range.bytes.start;
                covered += size;
                split += if holds_blocks && !range.used { size } else { 0 };
            }
        }
        assert_eq!((covered, split), (self.heap.reserved(), self.heap.figures.inactive_split.current));
    }
}

fn bytes(block: Span) -> Range<u64> {
    block.address..block.address + block.size
}

impl Step {
    /// Decodes a step. Any three bytes are a valid step.
    fn from_bytes([what, one, two]: [u8; 3]) -> Self {
        let stream = usize::from(one) % STREAMS;
        let efforts = [Effort::Ready, Effort::Thorough, Effort::Passed, Effort::Wait];
        match what % 16 {
            0..=6 => {
                Self::Allocate { stream, units: u64::from(one / 4 % 16) + 1, effort: efforts[usize::from(two) % 4] }
            }
            7..=11 => Self::Free { which: usize::from(two), stream },
            12 => Self::Complete { stream },
            13 => Self::Settle,
            14 if two % 2 == 0 => Self::Synchronize,
            14 => Self::Grow { units: u64::from(one % 40) + 1 },
            _ => Self::Trim { keep: u64::from(one % 60) * UNIT },
        }
    }
}

/// Decodes and carries out steps.
///
/// # Panics
///
/// The heap broke a rule.
pub fn history(bytes: &[u8]) {
    run(Model::new(), bytes);
}

pub fn run(mut model: Model, bytes: &[u8]) {
    for step in bytes.as_chunks::<3>().0 {
        model.take(Step::from_bytes(*step));
        model.compare();
    }
    model.end();
}
