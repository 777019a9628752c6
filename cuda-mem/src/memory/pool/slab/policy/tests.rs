use super::*;
use proptest::prelude::*;

const ANY: Reuse = Reuse { opportunistic: true, with_wait: true };
const BASE: u64 = 1 << 40;

/// Slabs with one chunk for blocks of `size`; marks are numbers, which have passed when they are even.
fn slabs(size: usize) -> Slabs<u8, u64> {
    let mut slabs = Slabs::new();
    slabs.add(BASE, CHUNK, size);
    slabs
}

fn even(mark: &u64) -> bool {
    mark.is_multiple_of(2)
}

#[test]
fn blocks_are_powers_of_two_the_halves_between_and_whole_chunks() {
    for (size, block) in [
        (1, 256),
        (256, 256),
        (257, 512),
        (513, 768),
        (769, 1024),
        (1025, 1536),
        (3 << 20, 3 << 20),
        ((3 << 20) + 1, 4 << 20),
        (16 << 20, 16 << 20),
        ((16 << 20) + 1, 18 << 20),
    ] {
        assert_eq!(block_size(size), Some(block), "{size}");
    }
    assert_eq!(block_size(usize::MAX), None);
}

#[test]
fn a_stream_has_its_own_block_again_at_once_and_without_a_question() {
    let mut slabs = slabs(1000);
    let first = slabs.take(1000, 1, ANY, even).unwrap();
    assert_eq!((first.mark, first.must_wait), (None, false));
    slabs.give(first.address, 1, 7).unwrap();
    let again = slabs.take(900, 1, ANY, |_| panic!("asked for a mark")).unwrap();
    assert_eq!(again, Taken { address: first.address, mark: Some(7), must_wait: false });
}

#[test]
fn another_stream_has_a_block_whose_mark_has_passed_or_waits_for_it() {
    let only = |mark, reuse| {
        let mut slabs: Slabs<u8, u64> = Slabs::new();
        slabs.add(BASE, CHUNK, CHUNK);
        let block = slabs.take(CHUNK, 1, ANY, even).unwrap();
        slabs.give(block.address, 1, mark).unwrap();
        slabs.take(CHUNK, 2, reuse, even).map(|taken| taken.must_wait)
    };
    assert_eq!(only(2, ANY), Some(false));
    assert_eq!(only(3, ANY), Some(true));
    assert_eq!(only(2, Reuse { opportunistic: false, with_wait: false }), None);
    assert_eq!(only(3, Reuse { opportunistic: true, with_wait: false }), None);
    assert_eq!(only(2, Reuse { opportunistic: false, with_wait: true }), Some(true));
}

#[test]
fn a_block_that_is_not_allocated_cannot_be_freed() {
    let mut slabs = slabs(256);
    let block = slabs.take(1, 1, ANY, even).unwrap();
    assert_eq!(slabs.give(block.address + 256, 1, 2), Err(2));
    assert_eq!(slabs.give(block.address, 1, 2), Ok(()));
    assert_eq!(slabs.give(block.address, 1, 4), Err(4));
}

#[test]
fn chunks_grow_with_the_pool_up_to_its_limit() {
    let mut slabs: Slabs<u8, u64> = Slabs::new();
    let mut grown = Vec::new();
    while let Some(size) = slabs.growth(CHUNK, 160 << 20) {
        slabs.add(BASE + ((grown.len() as u64) << 32), size, CHUNK);
        grown.push(size >> 20);
    }
    assert_eq!(grown, [2, 2, 4, 8, 16, 32, 64, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(slabs.growth(1, usize::MAX), Some(64 << 20));
    assert_eq!(slabs.growth(100 << 20, usize::MAX), Some(100 << 20));
    assert_eq!(slabs.growth(usize::MAX, usize::MAX), None);
}

#[test]
fn only_empty_chunks_are_released_and_no_more_than_asked() {
    let mut slabs: Slabs<u8, u64> = Slabs::new();
    slabs.add(BASE, CHUNK, CHUNK);
    slabs.add(BASE * 2, 2 * CHUNK, 2 * CHUNK);
    let block = slabs.take(CHUNK, 1, ANY, even).unwrap();
    assert!(slabs.release(2 * CHUNK).is_empty());
    assert_eq!(slabs.release(CHUNK), [BASE * 2]);
    slabs.give(block.address, 1, 3).unwrap();
    assert!(slabs.settle(even).is_empty());
    assert!(slabs.release(0).is_empty(), "released what a stream may still use");
    assert_eq!(slabs.settle(|_| true), [3]);
    assert_eq!(slabs.release(0), [BASE]);
    assert_eq!(slabs.account(), Account { reserved: 0, reserved_high: 3 * CHUNK, used: 0, used_high: CHUNK });
}

#[test]
fn an_empty_chunk_serves_another_size() {
    let mut slabs = slabs(256);
    assert!(slabs.recut(CHUNK));
    assert_eq!(slabs.take(CHUNK, 1, ANY, even).map(|taken| taken.address), Some(BASE));
    assert!(!slabs.recut(256), "cut a chunk that is in use");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { size: usize, stream: u8 },
    Give { which: usize, stream: u8 },
    Pass,
    Release { keep: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Miri would take minutes to cut a chunk into its smallest blocks.
    let least = if cfg!(miri) { CHUNK / 16 } else { 1 };
    let size = prop_oneof![least..least + 2000, least..4 * CHUNK];
    let step = prop_oneof![
        4 => (size, 0u8..3).prop_map(|(size, stream)| Step::Take { size, stream }),
        4 => (any::<usize>(), 0u8..3).prop_map(|(which, stream)| Step::Give { which, stream }),
        1 => Just(Step::Pass),
        1 => (0usize..4 * CHUNK).prop_map(|keep| Step::Release { keep }),
    ];
    prop::collection::vec(step, 1..if cfg!(miri) { 20 } else { 120 })
}

proptest! {
    /// Against a model that remembers who used which bytes last: no two live blocks overlap, none lies outside of a
    /// chunk, bytes change streams only after a mark that has passed or is waited for, and the account is right.
    #[test]
    fn no_stream_gets_what_another_may_still_use(steps in steps()) {
        let mut slabs: Slabs<u8, u64> = Slabs::new();
        let mut chunks: BTreeMap<u64, usize> = BTreeMap::new();
        let mut live: Vec<(u64, usize)> = Vec::new();
        let mut freed: Vec<(std::ops::Range<u64>, u8, u64)> = Vec::new();
        let (mut passed, mut next, mut base) = (0u64, 1u64, BASE);
        for step in steps {
            match step {
                Step::Take { size, stream } => {
                    let taken = slabs.take(size, stream, ANY, |mark| *mark <= passed);
                    let taken = taken.or_else(|| {
                        if !slabs.recut(size) {
                            let chunk = slabs.growth(size, usize::MAX)?;
                            slabs.add(base, chunk, size);
                            chunks.insert(base, chunk);
                            base += 1 << 32;
                        }
                        slabs.take(size, stream, ANY, |mark| *mark <= passed)
                    });
                    let taken = taken.expect("a pool without limit has room");
                    let bytes = taken.address..taken.address + size as u64;
                    prop_assert!(taken.address.is_multiple_of(256));
                    let (chunk, length) = chunks.range(..=bytes.start).next_back().expect("in a chunk");
                    prop_assert!(bytes.end <= chunk + *length as u64);
                    for (other, length) in &live {
                        prop_assert!(bytes.end <= *other || other + *length as u64 <= bytes.start);
                    }
                    freed.retain(|(other, user, mark)| {
                        let apart = bytes.end <= other.start || other.end <= bytes.start;
                        let ordered = *user == stream || *mark <= passed
                            || taken.must_wait && taken.mark.is_some_and(|waited| waited >= *mark);
                        assert!(apart || ordered, "{other:?} was used up to mark {mark} of stream {user}");
                        apart
                    });
                    live.push((taken.address, size));
                }
                Step::Give { which, stream } if !live.is_empty() => {
                    let (address, size) = live.swap_remove(which % live.len());
                    prop_assert!(slabs.give(address, stream, next).is_ok());
                    freed.push((address..address + size as u64, stream, next));
                    next += 1;
                }
                Step::Give { .. } => {}
                Step::Pass => {
                    passed = next - 1;
                    slabs.settle(|mark| *mark <= passed);
                }
                Step::Release { keep } => {
                    for gone in slabs.release(keep) {
                        let size = chunks.remove(&gone).expect("a chunk");
                        prop_assert!(live.iter().all(|(block, _)| !(gone..gone + size as u64).contains(block)));
                        let chunk = gone..gone + size as u64;
                        let is_done = freed.iter().all(|(bytes, _, mark)| *mark <= passed || !chunk.contains(&bytes.start));
                        prop_assert!(is_done);
                    }
                }
            }
            let account = slabs.account();
            prop_assert_eq!(account.used, live.iter().map(|(_, size)| size).sum::<usize>());
            prop_assert_eq!(account.reserved, chunks.values().sum::<usize>());
            prop_assert!(account.used <= account.used_high && account.reserved <= account.reserved_high);
        }
    }
}
