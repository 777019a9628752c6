//! Tests of fronts on one thread.

use super::front::{Freed, Fronts, Keep, Sum, Tally};
use super::try_lock::TryLock;
use crate::memory::resource::Block;

fn block(number: u64, size: usize) -> Block {
    Block::device(number, size)
}

/// One front.
fn front(capacity: usize) -> Fronts<char> {
    Fronts::new(1, capacity)
}

fn drained<S: Keep>(fronts: &Fronts<S>) -> Vec<(S, Vec<Block>)> {
    fronts.drain().flatten().collect()
}

#[test]
fn a_stream_gets_its_own_blocks_back_the_last_one_first() {
    let fronts = front(1000);
    for (stream, number) in [('a', 1), ('a', 2), ('b', 3)] {
        assert_eq!(fronts.keep(0, &stream, 0, 90, block(number, 100)), Freed::Kept);
    }
    assert_eq!(fronts.take(0, &'a', 0, 90), Some(block(2, 100)));
    assert_eq!(fronts.take(0, &'a', 1, 90), None);
    assert_eq!(fronts.take(0, &'b', 0, 90), Some(block(3, 100)));
    assert_eq!(fronts.take(0, &'b', 0, 90), None);
    assert_eq!(fronts.take(0, &'c', 0, 90), None);
    let mut left = Vec::new();
    fronts.each(|stream, block| left.push((*stream, block)));
    assert_eq!(left, [('a', block(1, 100))]);
}

#[test]
fn a_full_front_gives_up_the_largest_blocks_and_of_these_the_oldest() {
    let fronts = front(700);
    for (number, class, size) in [(1, 0, 100), (2, 1, 200), (3, 1, 200), (4, 0, 100)] {
        assert_eq!(fronts.keep(0, &'a', class, 1, block(number, size)), Freed::Kept);
    }
    // Until an eighth of the front is free.
    let spilled = fronts.keep(0, &'b', 2, 1, block(5, 600));
    assert_eq!(spilled, Freed::Spilled(vec![('b', vec![block(5, 600)])]));
    let spilled = fronts.keep(0, &'b', 1, 1, block(6, 200));
    assert_eq!(spilled, Freed::Spilled(vec![('a', vec![block(2, 200)])]));
    let left = vec![block(1, 100), block(4, 100), block(3, 200)];
    assert_eq!(drained(&fronts), [('a', left), ('b', vec![block(6, 200)])]);
    assert_eq!(drained(&fronts), []);
    // Blocks that were taken out no longer count.
    (1..=7).for_each(|number| assert_eq!(fronts.keep(0, &'a', 0, 1, block(number, 100)), Freed::Kept));
    let spilled = fronts.keep(0, &'a', 0, 1, block(8, 100));
    assert_eq!(spilled, Freed::Spilled(vec![('a', (1..=2).map(|number| block(number, 100)).collect())]));
    assert!(fronts.keep_size(700) && !fronts.keep_size(701));
}

#[test]
fn a_front_keeps_blocks_of_so_many_streams_and_loses_none() {
    let fronts = Fronts::new(1, usize::MAX);
    let mut given_up = Vec::new();
    for stream in 0..24 {
        if let Freed::Spilled(spill) = fronts.keep(0, &stream, 7, 1, block(stream, 10)) {
            given_up.extend(spill);
        }
        let mut streams = Vec::new();
        fronts.each(|stream, _| streams.push(*stream));
        assert!(streams.len() <= 8, "{streams:?}");
        assert_eq!(fronts.take(0, &stream, 7, 1), Some(block(stream, 10)));
        assert_eq!(fronts.keep(0, &stream, 7, 1, block(stream, 10)), Freed::Kept);
    }
    assert_eq!(given_up.len(), 16);
    given_up.extend(drained(&fronts));
    given_up.sort_by_key(|(stream, _)| *stream);
    let expected: Vec<_> = (0..24).map(|stream| (stream, vec![block(stream, 10)])).collect();
    assert_eq!(given_up, expected);
}

#[test]
fn what_goes_through_fronts_is_counted() {
    let fronts = Fronts::new(2, 1000);
    assert_eq!(fronts.take(1, &'a', 0, 100), None);
    assert_eq!(fronts.keep(1, &'a', 0, 100, block(1, 256)), Freed::Kept);
    assert_eq!(fronts.take(0, &'a', 0, 100), None, "threads have fronts of their own");
    assert_eq!(fronts.take(3, &'a', 0, 200), Some(block(1, 256)));
    let sums: Vec<_> = fronts.tallies().map(Tally::sums).collect();
    let one = |requested| Sum { requested, bytes: 256, blocks: 1 };
    assert_eq!(sums, [(Sum::default(), Sum::default()), (one(200), one(100))]);
}

#[test]
fn one_thread_at_a_time_is_inside_a_gate() {
    let gate = TryLock::new(0u64);
    let rounds = if cfg!(miri) { 20 } else { 10_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..rounds).for_each(|_| *gate.enter() += 1));
        }
    });
    let inside = gate.enter();
    assert_eq!(*inside, 3 * rounds);
    assert!(gate.try_enter().is_none());
    drop(inside);
    assert!(gate.try_enter().is_some());
}
