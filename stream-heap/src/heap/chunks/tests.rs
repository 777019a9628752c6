//! Random histories of a region whose chunks come and go, compared with a model of every unit.

use super::*;
use crate::heap::model::UNIT;
use crate::region::Span;
use crate::world::{Progress, World};
use proptest::prelude::*;

const STREAMS: usize = 3;
/// Units of a chunk, and chunks of the region.
const CHUNK: u64 = 4;
const CHUNKS: u64 = 12;
const BASE: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Allocate { stream: usize, units: u64, effort: Effort },
    Free { which: usize, stream: usize },
    Claim { stream: usize, units: u64, effort: Effort, spare: u64 },
    Finish { which: usize },
    Cancel { which: usize },
    Take { chunks: u64 },
    Fill { chunks: u64 },
    Complete { stream: usize },
    Settle,
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    present: bool,
    used: bool,
    last: Progress<STREAMS>,
}

struct Model {
    heap: Heap<World<STREAMS>, Span>,
    world: World<STREAMS>,
    units: Vec<Unit>,
    live: Vec<(Span, usize)>,
    claims: Vec<(Claim, usize)>,
}

fn units(bytes: &Range<u64>) -> core::ops::Range<usize> {
    assert!(bytes.start.is_multiple_of(UNIT) && bytes.end.is_multiple_of(UNIT));
    ((bytes.start - BASE) / UNIT) as usize..((bytes.end - BASE) / UNIT) as usize
}

fn bytes(span: Span) -> Range<u64> {
    span.address..span.address + span.size
}

impl Model {
    fn new() -> Self {
        let mut heap = Heap::new(UNIT).expect("a power of two");
        let region = Span { address: BASE, size: CHUNKS * CHUNK * UNIT };
        heap.add_addresses(region, CHUNK * UNIT).expect("whole chunks");
        let unit = Unit { present: false, used: false, last: [0; STREAMS] };
        let units = vec![unit; (CHUNKS * CHUNK) as usize];
        Self { heap, world: World::new(), units, live: vec![], claims: vec![] }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Allocate { stream, units, effort } => {
                let found = self.heap.allocate(units * UNIT, &stream, effort, &mut self.world).expect("no errors");
                if let Some(block) = found {
                    self.hand_out(block, stream);
                }
            }
            Step::Free { which, stream } => {
                if self.live.is_empty() {
                    return;
                }
                let (block, home) = self.live.swap_remove(which % self.live.len());
                let range = units(&bytes(block));
                let mut last = self.units[range.start].last;
                self.world.join(stream, home);
                self.world.work(stream, &mut last);
                assert!(self.heap.free(block.address, &stream));
                self.units[range].iter_mut().for_each(|unit| (unit.used, unit.last) = (false, last));
            }
            Step::Claim { stream, units, effort, spare } => self.claim(stream, units, effort, spare),
            Step::Finish { which } => {
                if self.claims.is_empty() {
                    return;
                }
                let (claim, stream) = self.claims.swap_remove(which % self.claims.len());
                for missing in claim.missing() {
                    // Another claim may have filled the same chunks, where both reach beyond their blocks.
                    for unit in &mut self.units[units(missing)] {
                        assert!(!unit.present);
                        *unit = Unit { present: true, used: false, last: [0; STREAMS] };
                    }
                }
                for piece in units(&claim.bytes) {
                    self.units[piece].used = false;
                }
                let block = self.heap.finish(claim).expect("the missing chunks are there");
                self.hand_out(block, stream);
            }
            Step::Cancel { which } => {
                if !self.claims.is_empty() {
                    let (claim, _) = self.claims.swap_remove(which % self.claims.len());
                    for unit in units(&claim.bytes) {
                        self.units[unit].used = false;
                    }
                    self.heap.cancel(claim);
                }
            }
            Step::Take { chunks } => {
                // While a claim is open, nobody else maps and unmaps.
                if !self.claims.is_empty() {
                    return;
                }
                let idle = self.idle_chunks();
                let mut taken = 0;
                for run in self.heap.take_chunks(chunks * CHUNK * UNIT) {
                    taken += run.size / UNIT / CHUNK;
                    for unit in &mut self.units[units(&bytes(run))] {
                        assert!(unit.present && !unit.used);
                        assert!(
                            (0..STREAMS).all(|stream| self.world.is_before(&unit.last, stream)),
                            "work uses {run:?}"
                        );
                        unit.present = false;
                    }
                }
                assert!(taken <= chunks && (taken == chunks || taken >= self.known_idle(idle)));
            }
            Step::Fill { chunks } => {
                if self.claims.is_empty()
                    && let Some(range) = self.heap.vacant(chunks * CHUNK * UNIT)
                {
                    assert!(self.heap.present(range.clone()));
                    for unit in &mut self.units[units(&range)] {
                        assert!(!unit.present);
                        *unit = Unit { present: true, used: false, last: [0; STREAMS] };
                    }
                }
            }
            Step::Complete { stream } => self.world.complete(stream),
            Step::Settle => self.heap.tags.settle(&mut self.world).expect("no errors"),
        }
    }

    /// Whole chunks that no block and no work uses.
    fn idle_chunks(&self) -> u64 {
        let is_idle = |unit: &Unit| {
            unit.present && !unit.used && (0..STREAMS).all(|stream| self.world.is_before(&unit.last, stream))
        };
        self.units.chunks(CHUNK as usize).filter(|chunk| chunk.iter().all(is_idle)).count() as u64
    }

    /// How many idle chunks the heap must know: all, if it has just asked for all work.
    fn known_idle(&self, idle: u64) -> u64 {
        if self.heap.tags.stream_count() == 0 { idle } else { 0 }
    }

    fn claim(&mut self, stream: usize, count: u64, effort: Effort, spare: u64) {
        // One claim at a time, as in a pool.
        if !self.claims.is_empty() {
            return;
        }
        // The oracle tries every place.
        let size = count as usize;
        let cost = |start: usize| {
            let window = &self.units[start..start + size];
            if window.iter().any(|unit| unit.used) {
                return None;
            }
            let chunk = CHUNK as usize;
            let chunks: std::collections::BTreeSet<_> =
                (start..start + size).filter(|unit| !self.units[*unit].present).map(|unit| unit / chunk).collect();
            Some(chunks.len() as u64)
        };
        let least =
            (0..=self.units.len().saturating_sub(size)).filter(|_| size <= self.units.len()).filter_map(cost).min();
        let claim = self.heap.claim(count * UNIT, spare * UNIT, &stream, effort, &mut self.world).expect("no errors");
        let Some(claim) = claim else {
            assert!(effort != Effort::Wait || least.is_none(), "{count} units were refused");
            return;
        };
        assert_eq!(length(&claim.bytes), count * UNIT);
        let inside: u64 = claim.missing().iter().filter(|missing| missing.start < claim.bytes.end).map(length).sum();
        let least = least.expect("the oracle finds a place too");
        if effort == Effort::Wait {
            let needed = inside.min(claim.missing_bytes());
            assert!(needed / UNIT / CHUNK <= least + spare.div_ceil(CHUNK), "{claim:?} instead of {least} chunks");
            if spare == 0 {
                assert_eq!(claim.missing_bytes() / UNIT / CHUNK, least);
            }
        }
        for unit in units(&claim.bytes) {
            assert!(!self.units[unit].used);
            if self.units[unit].present {
                self.units[unit].used = true;
                assert!(self.world.is_before(&self.units[unit].last, stream), "{claim:?} is in use");
            }
        }
        for missing in claim.missing() {
            assert!(self.units[units(missing)].iter().all(|unit| !unit.present));
        }
        self.claims.push((claim, stream));
    }

    fn hand_out(&mut self, block: Span, stream: usize) {
        let mut last = [0; STREAMS];
        for unit in &self.units[units(&bytes(block))] {
            assert!(unit.present && !unit.used, "{block:?}: {unit:?}");
            assert!(self.world.is_before(&unit.last, stream), "{block:?} is in use");
        }
        self.world.work(stream, &mut last);
        self.units[units(&bytes(block))].iter_mut().for_each(|unit| (unit.used, unit.last) = (true, last));
        self.live.push((block, stream));
    }

    fn compare(&self) {
        let count = |is: &dyn Fn(&Unit) -> bool| self.units.iter().filter(|unit| is(unit)).count() as u64 * UNIT;
        assert_eq!(self.heap.reserved(), count(&|unit| unit.present));
        assert_eq!(self.heap.used(), count(&|unit| unit.present && unit.used));
        let (mut covered, mut split) = (0, 0);
        for (part, ranges) in self.heap.ranges() {
            let mut next = part.address;
            for range in ranges {
                assert_eq!(range.bytes.start, next);
                next = range.bytes.end;
                covered += length(&range.bytes);
                split += if range.used { 0 } else { length(&range.bytes) };
                for unit in units(&range.bytes) {
                    assert!(self.units[unit].present && self.units[unit].used == range.used);
                }
            }
            assert_eq!(next, part.address + part.size);
        }
        assert_eq!(covered, self.heap.reserved());
        let runs = self.units.chunk_by(|one, other| one.present == other.present).filter(|run| run[0].present).count();
        assert_eq!(self.heap.figures.regions.current, runs as u64);
        assert_eq!(self.heap.figures.reserved.current, covered);
        if self.claims.is_empty() {
            let split = if self.live.is_empty() { 0 } else { split };
            assert_eq!(self.heap.figures.inactive_split.current, split);
        }
    }

    fn end(mut self) {
        for (claim, _) in std::mem::take(&mut self.claims) {
            self.heap.cancel(claim);
        }
        for (block, home) in std::mem::take(&mut self.live) {
            assert!(self.heap.free(block.address, &home));
        }
        let ends = self.heap.tags.ends(&mut self.world).expect("no errors");
        ends.iter().for_each(|end| self.world.reach(end));
        self.heap.tags.settle(&mut self.world).expect("no errors");
        self.heap.take_empty(0);
        assert_eq!((self.heap.reserved(), self.heap.used(), self.heap.regions().count()), (0, 0, 0));
        // All of it is one hole again.
        assert_eq!(self.heap.vacant(CHUNKS * CHUNK * UNIT).map(|range| range.start), Some(BASE));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    let effort = prop_oneof![Just(Effort::Ready), Just(Effort::Thorough), Just(Effort::Passed), Just(Effort::Wait)];
    let claiming = prop_oneof![Just(Effort::Ready), Just(Effort::Wait), Just(Effort::Wait)];
    prop_oneof![
        6 => (stream.clone(), 1..7u64, effort).prop_map(|(stream, units, effort)| Step::Allocate { stream, units, effort }),
        6 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Step::Free { which, stream }),
        3 => (stream.clone(), 1..30u64, claiming, prop_oneof![Just(0), 0..12u64])
            .prop_map(|(stream, units, effort, spare)| Step::Claim { stream, units, effort, spare }),
        3 => any::<usize>().prop_map(|which| Step::Finish { which }),
        1 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        2 => (0..CHUNKS).prop_map(|chunks| Step::Take { chunks }),
        1 => (1..4u64).prop_map(|chunks| Step::Fill { chunks }),
        2 => stream.prop_map(|stream| Step::Complete { stream }),
        2 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 600 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn chunks_come_and_go_under_no_block_and_no_work(
        steps in prop::collection::vec(step(), if cfg!(miri) { 1..30 } else { 1..200 })
    ) {
        let mut model = Model::new();
        for step in steps {
            model.take(step);
            model.compare();
        }
        model.end();
    }
}

#[test]
fn addresses_must_consist_of_whole_chunks() {
    let mut heap: Heap<World<1>, Span> = Heap::new(UNIT).expect("a power of two");
    for (address, size, chunk) in [(0, 4096, 0), (0, 4096, 100), (0, 4096, 3072), (512, 4096, 1024), (0, 0, 1024)] {
        assert!(heap.add_addresses(Span { address, size }, chunk).is_err(), "{address} {size} {chunk}");
    }
    assert_eq!((heap.reserved(), heap.vacant(UNIT)), (0, None));
    assert!(!heap.present(0..1024));
}

#[test]
fn scattered_chunks_serve_one_large_request() {
    // Every second chunk is in use, so half of the memory is free, but no two chunks are neighbours.
    let mut model = Model::new();
    for _ in 0..CHUNKS - 4 {
        model.take(Step::Fill { chunks: 1 });
    }
    for _ in 0..CHUNKS - 4 {
        model.take(Step::Allocate { stream: 0, units: CHUNK, effort: Effort::Ready });
    }
    model.live.sort_by_key(|(block, _)| block.address);
    for which in [6, 4, 2, 0] {
        let (block, _) = model.live.remove(which);
        assert!(model.heap.free(block.address, &0));
        model.units[units(&bytes(block))].iter_mut().for_each(|unit| unit.used = false);
    }
    (0..STREAMS).for_each(|stream| model.world.complete(stream));
    model.take(Step::Settle);
    let size = 4 * CHUNK * UNIT;
    assert_eq!(model.heap.allocate(size, &1, Effort::Wait, &mut model.world), Ok(None));
    let claim = model.heap.claim(size, 0, &1, Effort::Wait, &mut model.world).unwrap().expect("there are addresses");
    let gathered: u64 = model.heap.take_chunks(claim.missing_bytes()).iter().map(Span::size).sum();
    assert_eq!(gathered, claim.missing_bytes(), "the free chunks suffice");
    assert!(model.heap.finish(claim).is_some());
    assert_eq!(model.heap.reserved(), (CHUNKS - 4) * CHUNK * UNIT, "no new memory was needed");
}
