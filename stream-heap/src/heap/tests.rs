//! Random histories of the heap: blocks do not overlap, no byte is handed out while work of a former owner may run, and
//! no request is refused that the heap could serve.

use super::model::{Model, STREAMS, Step, UNIT, history, run};
use super::*;
use crate::region::Span;
use crate::world::World;
use proptest::prelude::*;

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..STREAMS;
    let effort = prop_oneof![
        Just(Effort::Ready),
        Just(Effort::Thorough),
        Just(Effort::Passed),
        Just(Effort::Wait),
        Just(Effort::Wait)
    ];
    prop_oneof![
        8 => (stream.clone(), 1..12u64, effort).prop_map(|(stream, units, effort)| Step::Allocate { stream, units, effort }),
        7 => (any::<usize>(), stream.clone()).prop_map(|(which, stream)| Step::Free { which, stream }),
        2 => stream.prop_map(|stream| Step::Complete { stream }),
        1 => Just(Step::Settle),
        1 => Just(Step::Synchronize),
        1 => (1..40u64).prop_map(|units| Step::Grow { units }),
        1 => (0..60u64).prop_map(|keep| Step::Trim { keep: keep * UNIT }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_histories_keep_the_order(steps in prop::collection::vec(step(), 1..300)) {
        let mut model = Model::new();
        for step in steps {
            model.take(step);
            model.compare();
        }
        model.end();
    }
}

#[test]
fn one_streams_neighbours_are_one_range_at_once() {
    let mut model = Model::new();
    let blocks: Vec<_> =
        (0..16).map(|_| model.heap.allocate(UNIT, &0, Effort::Ready, &mut model.world).unwrap().unwrap()).collect();
    blocks.iter().for_each(|block| assert!(model.heap.free(block.address, &0)));
    let all = model.heap.allocate(16 * UNIT, &0, Effort::Ready, &mut model.world).unwrap();
    assert_eq!(all.map(|block| block.size), Some(16 * UNIT));
}

#[test]
fn the_fuzzers_corpus_keeps_the_order() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut inputs: Vec<Vec<u8>> =
        std::fs::read_dir(corpus).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(!inputs.is_empty());
    inputs.sort_by_key(Vec::len);
    inputs.iter().for_each(|input| history(input));
}

#[test]
fn random_histories_find_a_lost_dependency_across_streams() {
    let found = (1..200_u64).any(|seed| {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 32) as u8
        })
        .take(900)
        .collect();
        let mut model = Model::new();
        model.heap.tags.planted = true;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(model, &bytes)));
        outcome.is_err_and(|panic| panic.downcast_ref::<String>().is_some_and(|text| text.contains("is in use")))
    });
    assert!(found);
}

/// Ten million operations of three streams in memory that is nearly full: a request is refused only if no free range
/// holds it.
#[test]
fn nothing_is_refused_while_a_free_range_holds_it() {
    let operations = 10_000_000;
    let mut world = World::<3>::new();
    let mut heap = Heap::<World<3>, Span>::new(UNIT).unwrap();
    for base in [1 << 30, 1 << 31, 1 << 32] {
        heap.add(Span { address: base, size: 2000 * UNIT }).unwrap();
    }
    let mut random = 88_172_645_463_325_252_u64;
    let mut number = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut live, mut refused) = (Vec::new(), 0);
    for _ in 0..operations {
        let stream = number(3) as usize;
        // More allocations than frees, until the heap is full.
        if number(20) < 11 || live.is_empty() {
            let most = if number(50) == 0 { 2000 } else { 60 };
            let units = 1 + number(most);
            match heap.allocate(units * UNIT, &stream, Effort::Wait, &mut world).unwrap() {
                Some(block) => live.push(block.address),
                None => {
                    refused += 1;
                    let largest = heap.largest_free();
                    assert!(largest < units * UNIT, "{units} units are refused, but a free range has {largest} bytes");
                    // Sometimes compares with all ranges.
                    if refused % 10_000 == 0 {
                        let free = |id| heap.memory.ranges(id).filter(|range| range.block.is_none());
                        let ranges = heap.regions.iter().flatten().flat_map(|region| free(region.id));
                        assert_eq!(ranges.map(|range| range.size).max().unwrap_or(0), largest);
                    }
                }
            }
        } else {
            let place = number(live.len() as u64) as usize;
            assert!(heap.free(live.swap_remove(place), &stream));
        }
    }
    assert!(refused > operations / 100, "{refused} of {operations}");
}
