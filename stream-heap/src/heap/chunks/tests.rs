//! Random histories of a region whose chunks come and go, compared with a model of every unit.

use super::*;
use crate::heap::model::UNIT;
use crate::heap::{Effort, Heap};
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
    Claim { stream: usize, units: u64, effort: Effort, which: Gather, least: u64 },
    ClaimHole { stream: usize, units: u64 },
    Finish,
    Cancel,
    Vacate,
    Spoil { chunks: u64 },
    Trim { keep: u64, goes: bool },
    Fill { chunks: u64 },
    Complete { stream: usize },
    Settle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    Nothing,
    /// A chunk that has moved away is still mapped.
    Stale,
    Free,
    Used,
}

/// Addresses, and the last work on them.
#[derive(Clone, Copy, Debug)]
struct Unit {
    holding: Holding,
    last: Progress<STREAMS>,
}

const NOTHING: Unit = Unit { holding: Holding::Nothing, last: [0; STREAMS] };
const FRESH: Unit = Unit { holding: Holding::Free, last: [0; STREAMS] };

struct Model {
    heap: Heap<World<STREAMS>, Span>,
    world: World<STREAMS>,
    units: Vec<Unit>,
    /// The end of each chunk of memory, by its start.
    chunks: BTreeMap<u64, u64>,
    live: Vec<(Span, usize)>,
    claim: Option<(Claim, usize)>,
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
        let unit = CHUNK * UNIT;
        heap.add_addresses(region, ChunkSizes { unit, usual: 4 * unit, largest: 4 * unit }).expect("whole chunks");
        let units = vec![NOTHING; (CHUNKS * CHUNK) as usize];
        Self { heap, world: World::new(), units, chunks: BTreeMap::new(), live: vec![], claim: None }
    }

    fn is_done(&self, last: &Progress<STREAMS>) -> bool {
        (0..STREAMS).all(|stream| self.world.is_before(last, stream))
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
                self.units[range].iter_mut().for_each(|unit| *unit = Unit { holding: Holding::Free, last });
            }
            Step::Complete { stream } => self.world.complete(stream),
            Step::Settle => self.heap.tags.settle(&mut self.world).expect("no errors"),
            Step::Finish => self.finish(),
            Step::Cancel => self.cancel(),
            // The pool changes addresses under a lock, which it holds while it has a claim.
            _ if self.claim.is_some() => {}
            Step::Claim { stream, units, effort, which, least } => self.claim(stream, units, effort, which, least),
            Step::ClaimHole { stream, units } => {
                if let Some(claim) = self.heap.claim_hole(units * UNIT) {
                    assert_eq!(claim.missing_bytes(), units.next_multiple_of(CHUNK) * UNIT);
                    self.gather(claim, stream, Effort::Wait, Gather::All, 0);
                }
            }
            Step::Vacate => {
                for span in self.heap.stale() {
                    for unit in units(&bytes(span)) {
                        assert!(self.units[unit].holding == Holding::Stale && self.is_done(&self.units[unit].last));
                        self.units[unit] = NOTHING;
                    }
                    self.heap.vacated(span);
                }
            }
            Step::Spoil { chunks } => {
                if let Some(pieces) = self.heap.vacant(chunks * CHUNK * UNIT) {
                    let all = pieces[0].start..pieces[pieces.len() - 1].end;
                    self.heap.spoiled(all.clone());
                    self.units[units(&all)].fill(Unit { holding: Holding::Stale, ..NOTHING });
                }
            }
            Step::Trim { keep, goes } => {
                let before = self.heap.reserved();
                let idle: u64 = self.idle_chunks().map(|(start, end)| end - start).sum();
                let taken = self.heap.take_empty(keep * UNIT);
                let size: u64 = taken.iter().map(Span::size).sum();
                assert_eq!(self.heap.reserved(), before - size);
                assert!(size == 0 || before - size >= keep * UNIT);
                if self.heap.tags.stream_count() == 0 && keep == 0 {
                    assert_eq!(size, idle, "all idle chunks go");
                }
                for span in taken {
                    assert_eq!(self.chunks.get(&span.address), Some(&bytes(span).end), "a whole chunk");
                    for unit in units(&bytes(span)) {
                        assert!(self.units[unit].holding == Holding::Free && self.is_done(&self.units[unit].last));
                    }
                    if goes {
                        self.chunks.remove(&span.address);
                        self.units[units(&bytes(span))].fill(NOTHING);
                        self.heap.vacated(span);
                    } else {
                        self.heap.put_back(span).expect("it was there");
                    }
                }
            }
            Step::Fill { chunks } => {
                if let Some(pieces) = self.heap.vacant(chunks * CHUNK * UNIT) {
                    assert!(self.heap.present(&pieces));
                    pieces.iter().for_each(|piece| self.map(piece, FRESH));
                }
            }
        }
    }

    /// Chunks that no block and no work uses.
    fn idle_chunks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let is_idle = |unit: &Unit| unit.holding == Holding::Free && self.is_done(&unit.last);
        let chunks = self.chunks.iter().map(|(start, end)| (*start, *end));
        chunks.filter(move |(start, end)| self.units[units(&(*start..*end))].iter().all(is_idle))
    }

    /// A new chunk at addresses that have none.
    fn map(&mut self, chunk: &Range<u64>, unit: Unit) {
        assert!(chunk.start.is_multiple_of(CHUNK * UNIT) && length(chunk).is_multiple_of(CHUNK * UNIT));
        for index in units(chunk) {
            assert_eq!(self.units[index].holding, Holding::Nothing);
            self.units[index] = unit;
        }
        self.chunks.insert(chunk.start, chunk.end);
    }

    fn claim(&mut self, stream: usize, count: u64, effort: Effort, which: Gather, at_least: u64) {
        // The oracle tries every place.
        let size = count as usize;
        let cost = |start: usize| {
            let window = &self.units[start..start + size];
            if window.iter().any(|unit| matches!(unit.holding, Holding::Used | Holding::Stale)) {
                return None;
            }
            let chunk = CHUNK as usize;
            let missing = (start..start + size).filter(|unit| self.units[*unit].holding == Holding::Nothing);
            let missing: std::collections::BTreeSet<_> = missing.map(|unit| unit / chunk).collect();
            // Without a hole, a search of the free ranges finds the place.
            (!missing.is_empty()).then_some(missing.len() as u64)
        };
        let least = (0..=self.units.len() - size).filter_map(cost).min();
        let claim = self.heap.claim(count * UNIT, &stream, effort, &mut self.world).expect("no errors");
        let Some(claim) = claim else {
            assert!(effort != Effort::Wait || least.is_none(), "{count} units were refused");
            return;
        };
        assert_eq!(length(&claim.bytes), count * UNIT);
        if effort == Effort::Wait {
            assert!(claim.missing_bytes() / UNIT / CHUNK <= least.unwrap_or(0), "{claim:?} instead of {least:?}");
        }
        for unit in units(&claim.bytes) {
            assert!(!matches!(self.units[unit].holding, Holding::Used | Holding::Stale));
            if self.units[unit].holding == Holding::Free {
                self.units[unit].holding = Holding::Used;
                assert!(self.world.is_before(&self.units[unit].last, stream), "{claim:?} is in use");
            }
        }
        self.gather(claim, stream, effort, which, at_least);
    }

    fn gather(&mut self, mut claim: Claim, stream: usize, effort: Effort, which: Gather, least: u64) {
        let (missing, holes) = (claim.missing_bytes(), claim.missing.clone());
        let chunks_before = self.chunks.clone();
        let known = self.heap.tags.stream_count() == 0;
        let idle: u64 = self.idle_chunks().map(|(start, end)| end - start).sum();
        self.heap.gather(&mut claim, which, least * UNIT, &stream, effort, &mut self.world).expect("no errors");
        let moved: u64 = claim.moves().iter().map(|moved| length(&moved.from)).sum();
        let new: u64 = claim.new_chunks().iter().map(length).sum();
        assert_eq!(claim.added_bytes(), moved + new);
        assert!(moved + new >= missing);
        // A chunk in the last hole may reach beyond it, while it was too large for another hole.
        let within = |to: &Range<u64>| -> u64 {
            holes.iter().map(|hole| hole.end.min(to.end).saturating_sub(hole.start.max(to.start))).sum()
        };
        let filled: u64 = claim.moves().iter().map(|moved| within(&moved.to())).sum();
        assert!(new <= (missing - filled).max(least * UNIT), "{new} new bytes, {filled} of {missing} filled");
        if known && which == Gather::All && claim.bytes.start == claim.missing[0].start && claim.missing.len() == 1 {
            // One hole, and chunks may reach beyond what is missing: all that is idle can serve.
            let reach = claim.limit - claim.missing[0].start;
            assert!(moved >= idle.min(missing) || reach < missing + 4 * CHUNK * UNIT, "{claim:?}, {idle} idle");
        }
        for moved in claim.moves().to_vec() {
            assert_eq!(chunks_before.get(&moved.from.start), Some(&moved.from.end), "a whole chunk");
            for index in units(&moved.from) {
                let unit = &mut self.units[index];
                assert_eq!(unit.holding, Holding::Free);
                assert!(self.world.is_before(&unit.last, stream), "{moved:?}: work of others");
                unit.holding = Holding::Stale;
            }
            self.chunks.remove(&moved.from.start);
        }
        for to in claim.moves().iter().map(Move::to).chain(claim.new_chunks().iter().cloned()) {
            assert!(self.units[units(&to)].iter().all(|unit| unit.holding == Holding::Nothing));
        }
        self.claim = Some((claim, stream));
    }

    fn finish(&mut self) {
        let Some((claim, stream)) = self.claim.take() else { return };
        for moved in claim.moves().to_vec() {
            let from = self.units[units(&moved.from)].to_vec();
            self.map(&moved.to(), FRESH);
            for (index, unit) in units(&moved.to()).zip(from) {
                self.units[index].last = unit.last;
            }
        }
        claim.new_chunks().to_vec().iter().for_each(|chunk| self.map(chunk, FRESH));
        for unit in units(&claim.bytes) {
            self.units[unit].holding = Holding::Free;
        }
        let block = self.heap.finish(claim, &stream).expect("the missing chunks are there");
        self.hand_out(block, stream);
    }

    fn cancel(&mut self) {
        let Some((claim, _)) = self.claim.take() else { return };
        for unit in units(&claim.bytes) {
            if self.units[unit].holding == Holding::Used {
                self.units[unit].holding = Holding::Free;
            }
        }
        for moved in claim.moves() {
            self.units[units(&moved.from)].iter_mut().for_each(|unit| unit.holding = Holding::Free);
            self.chunks.insert(moved.from.start, moved.from.end);
        }
        self.heap.cancel(claim);
    }

    fn hand_out(&mut self, block: Span, stream: usize) {
        let mut last = [0; STREAMS];
        for unit in &self.units[units(&bytes(block))] {
            assert_eq!(unit.holding, Holding::Free, "{block:?}");
            assert!(self.world.is_before(&unit.last, stream), "{block:?} is in use");
        }
        self.world.work(stream, &mut last);
        self.units[units(&bytes(block))].fill(Unit { holding: Holding::Used, last });
        self.live.push((block, stream));
    }

    fn compare(&self) {
        let is_present = |unit: &Unit| matches!(unit.holding, Holding::Free | Holding::Used);
        let count = |is: &dyn Fn(&Unit) -> bool| self.units.iter().filter(|unit| is(unit)).count() as u64 * UNIT;
        assert_eq!(self.heap.reserved(), count(&is_present));
        assert_eq!(self.heap.used(), count(&|unit| unit.holding == Holding::Used));
        let (mut covered, mut split) = (0, 0);
        for (part, ranges) in self.heap.ranges() {
            let mut next = part.address;
            for range in ranges {
                assert_eq!(range.bytes.start, next);
                next = range.bytes.end;
                covered += length(&range.bytes);
                split += if range.used { 0 } else { length(&range.bytes) };
                let holding = if range.used { Holding::Used } else { Holding::Free };
                assert!(self.units[units(&range.bytes)].iter().all(|unit| unit.holding == holding));
            }
            assert_eq!(next, part.address + part.size);
        }
        assert_eq!(covered, self.heap.reserved());
        let runs = self.units.chunk_by(|one, other| is_present(one) == is_present(other));
        assert_eq!(self.heap.figures.regions.current, runs.filter(|run| is_present(&run[0])).count() as u64);
        assert_eq!(self.heap.figures.reserved.current, covered);
        if self.claim.is_none() {
            let split = if self.live.is_empty() { 0 } else { split };
            assert_eq!(self.heap.figures.inactive_split.current, split);
        }
        let stale: u64 = self.heap.all_stale().iter().map(Span::size).sum();
        assert_eq!(stale, count(&|unit| unit.holding == Holding::Stale));
    }

    fn end(mut self) {
        self.cancel();
        for (block, home) in std::mem::take(&mut self.live) {
            assert!(self.heap.free(block.address, &home));
        }
        let ends = self.heap.tags.ends(&mut self.world).expect("no errors");
        ends.iter().for_each(|end| self.world.reach(end));
        self.heap.tags.settle(&mut self.world).expect("no errors");
        self.heap.take_empty(0);
        assert_eq!((self.heap.reserved(), self.heap.used(), self.heap.regions().count()), (0, 0, 0));
        for span in self.heap.all_stale() {
            self.heap.vacated(span);
        }
        // All of it is one hole again.
        let pieces = self.heap.vacant(CHUNKS * CHUNK * UNIT).expect("all is vacant");
        assert_eq!((pieces[0].start, pieces.len()), (BASE, (CHUNKS / 4) as usize));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    let effort = prop_oneof![Just(Effort::Ready), Just(Effort::Thorough), Just(Effort::Passed), Just(Effort::Wait)];
    let claiming = prop_oneof![Just(Effort::Ready), Just(Effort::Wait), Just(Effort::Wait)];
    let which = prop_oneof![Just(Gather::All), Just(Gather::From(8 * UNIT)), Just(Gather::From(1))];
    prop_oneof![
        6 => (stream.clone(), 1..7u64, effort).prop_map(|(stream, units, effort)| Step::Allocate { stream, units, effort }),
        6 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Step::Free { which, stream }),
        4 => (stream.clone(), 1..30u64, claiming, which, prop_oneof![Just(0), 0..12u64])
            .prop_map(|(stream, units, effort, which, least)| Step::Claim { stream, units, effort, which, least }),
        1 => (stream.clone(), 1..20u64).prop_map(|(stream, units)| Step::ClaimHole { stream, units }),
        4 => Just(Step::Finish),
        1 => Just(Step::Cancel),
        2 => Just(Step::Vacate),
        1 => (1..3u64).prop_map(|chunks| Step::Spoil { chunks }),
        1 => (0..20u64, any::<bool>()).prop_map(|(keep, goes)| Step::Trim { keep, goes }),
        1 => (1..4u64).prop_map(|chunks| Step::Fill { chunks }),
        2 => stream.prop_map(|stream| Step::Complete { stream }),
        2 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn chunks_come_move_and_go_in_the_order_of_work(
        steps in prop::collection::vec(step(), 1..200)
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
fn addresses_must_consist_of_whole_units() {
    let mut heap: Heap<World<1>, Span> = Heap::new(UNIT).expect("a power of two");
    for (address, size, unit, usual, largest) in [
        (0, 4096, 0, 0, 0),
        (0, 4096, 100, 100, 100),
        (0, 4096, 3072, 3072, 3072),
        (512, 4096, 1024, 1024, 1024),
        (0, 0, 1024, 1024, 1024),
        (0, 4096, 1024, 1024, 1536),
        (0, 4096, 1024, 1536, 2048),
        (0, 4096, 1024, 0, 2048),
        (0, 4096, 1024, 2048, 1024),
    ] {
        let sizes = ChunkSizes { unit, usual, largest };
        assert!(heap.add_addresses(Span { address, size }, sizes).is_err(), "{address} {size} {sizes:?}");
    }
    assert_eq!((heap.reserved(), heap.vacant(UNIT)), (0, None));
    assert!(!heap.present(core::slice::from_ref(&(0..1024))));
}

#[test]
fn long_runs_get_large_chunks_and_none_gets_many() {
    let sizes = ChunkSizes { unit: 2, usual: 16, largest: 64 };
    let cut = |length: u64| sizes.cut(100..100 + length).map(|chunk| super::length(&chunk)).collect::<Vec<_>>();
    assert_eq!(cut(0), []);
    assert_eq!(cut(14), [14]);
    assert_eq!(cut(38), [16, 16, 6]);
    assert_eq!(cut(64 * 18), [18; 64]);
    assert_eq!(cut(64 * 64 + 2).len(), 65);
    assert_eq!(cut(64 * 640).len(), 640);
    for length in (2..64 * 64).step_by(2) {
        let chunks: Vec<_> = sizes.cut(100..100 + length).collect();
        assert!(chunks.len() as u64 <= MOST_CHUNKS + MOST_CHUNKS / 8, "{length}");
        assert_eq!((chunks[0].start, chunks[chunks.len() - 1].end), (100, 100 + length));
        assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start), "{length}");
    }
}

/// Frees a block that only stream 0 uses.
fn free(model: &mut Model, which: usize) {
    model.take(Step::Free { which, stream: 0 });
}

#[test]
fn scattered_chunks_serve_one_large_request() {
    // Every second chunk is in use, so half of the memory is free, but no two free chunks are neighbours.
    let mut model = Model::new();
    for _ in 0..CHUNKS - 4 {
        model.take(Step::Fill { chunks: 1 });
    }
    for _ in 0..CHUNKS - 4 {
        model.take(Step::Allocate { stream: 0, units: CHUNK, effort: Effort::Ready });
    }
    model.live.sort_by_key(|(block, _)| block.address);
    for which in [6, 4, 2, 0] {
        let (block, home) = model.live.remove(which);
        model.live.push((block, home));
        let last = model.live.len() - 1;
        free(&mut model, last);
        model.live.sort_by_key(|(block, _)| block.address);
    }
    let size = 4 * CHUNK * UNIT;
    assert_eq!(model.heap.allocate(size, &1, Effort::Wait, &mut model.world), Ok(None));
    // The work on the chunks is not over: they are used at their new addresses behind it.
    model.take(Step::Claim { stream: 1, units: 4 * CHUNK, effort: Effort::Wait, which: Gather::All, least: 0 });
    let (claim, _) = model.claim.as_ref().expect("there are addresses");
    assert_eq!((claim.moves().len(), claim.new_chunks().len()), (4, 0), "the free chunks suffice");
    model.take(Step::Finish);
    assert_eq!(model.heap.reserved(), (CHUNKS - 4) * CHUNK * UNIT, "no new memory was needed");
    assert_eq!((model.heap.stale().len(), model.heap.all_stale().len()), (0, 4));
    (0..STREAMS).for_each(|stream| model.world.complete(stream));
    model.take(Step::Settle);
    assert_eq!(model.heap.stale().len(), 4);
    model.take(Step::Vacate);
    model.compare();
    model.end();
}

#[test]
fn a_chunk_may_reach_beyond_the_last_of_several_holes() {
    let (effort, which, least) = (Effort::Ready, Gather::All, 0);
    let mut model = Model::new();
    for step in [
        Step::Claim { stream: 0, units: 17, effort, which, least },
        Step::Finish,
        Step::Spoil { chunks: 1 },
        Step::Free { which: 0, stream: 0 },
        Step::Allocate { stream: 0, units: 1, effort },
        Step::ClaimHole { stream: 0, units: 1 },
        Step::Finish,
        Step::Free { which: 0, stream: 0 },
        Step::Free { which: 0, stream: 0 },
        Step::Vacate,
        Step::Claim { stream: 0, units: 9, effort, which, least },
    ] {
        model.take(step);
        model.compare();
    }
    let (claim, _) = model.claim.as_ref().expect("there are addresses");
    let beyond = claim.moves().iter().any(|moved| moved.to().end > claim.bytes.end);
    assert!(claim.missing.len() == 2 && beyond && !claim.new_chunks().is_empty(), "{claim:?}");
    model.end();
}

#[test]
fn small_free_ranges_stay_where_they_are() {
    let mut model = Model::new();
    for _ in 0..8 {
        model.take(Step::Fill { chunks: 1 });
    }
    for _ in 0..4 {
        model.take(Step::Allocate { stream: 0, units: 2 * CHUNK, effort: Effort::Ready });
    }
    // Two free ranges of two chunks.
    model.live.sort_by_key(|(block, _)| block.address);
    free(&mut model, 2);
    free(&mut model, 0);
    let size = 4 * CHUNK;
    for (which, moved) in [(Gather::From(3 * CHUNK * UNIT), 0), (Gather::All, 4)] {
        model.take(Step::Claim { stream: 0, units: size, effort: Effort::Wait, which, least: 0 });
        let (claim, _) = model.claim.as_ref().expect("there are addresses");
        assert_eq!(claim.moves().len(), moved, "{which:?}");
        model.take(Step::Cancel);
        model.compare();
    }
    model.end();
}
