//! Tests of thread caches on one thread.

use super::cache_lock::CacheLock;
use super::sync::Slot;
use super::tally::{Sum, Tally};
use super::thread_cache::{Freed, Keep, Spill, ThreadCaches, WholeBlock};
use crate::locks::Mutex;
use crate::memory::resource::{Block, Keeping};
use core::sync::atomic::{AtomicUsize, Ordering};

fn block(number: u64, size: usize) -> Block {
    Block::device(number, size)
}

/// One thread cache, without an owner.
fn thread_cache(capacity: usize) -> ThreadCaches<char> {
    ThreadCaches::new(0, 1, capacity)
}

fn take<S: Keep>(caches: &ThreadCaches<S>, thread: Slot, stream: &S, class: usize, requested: usize) -> Option<Block> {
    caches.take(thread, stream, class, requested)
}

/// Keeps a block as the pool does, and returns what the thread cache gives up. `None` if the thread cache is in use.
fn keep<S: Keep>(
    caches: &ThreadCaches<S>,
    thread: Slot,
    stream: &S,
    class: usize,
    requested: usize,
    block: Block,
) -> Option<Spill<S>> {
    let (block, whole) = (block.with_size(requested), WholeBlock { bytes: block.size(), class });
    match caches.keep(thread, stream, &block, whole) {
        Freed::Kept => Some(Vec::new()),
        Freed::Full => Some(caches.spill(thread)),
        Freed::NewStream => caches.keep_first(thread, stream, &block, whole),
        Freed::Busy => None,
    }
}

/// A thread. These tests run on one.
fn thread(number: usize) -> Slot {
    Slot::numbered(number)
}

#[test]
fn emptied_caches_keep_their_streams() {
    let caches = thread_cache(1000);
    for (stream, number) in [('a', 1), ('a', 2), ('b', 3)] {
        assert_eq!(keep(&caches, thread(0), &stream, 0, 1, block(number, 100)), Some(vec![]));
    }
    let mut given_up = Vec::new();
    caches.empty(|stream, blocks| given_up.push((*stream, blocks.collect::<Vec<_>>())));
    assert_eq!(given_up, [('a', vec![block(1, 100), block(2, 100)]), ('b', vec![block(3, 100)])]);
    caches.empty(|_, _| panic!("nothing is left"));
    let whole = WholeBlock { bytes: 1000, class: 0 };
    assert_eq!(caches.keep(thread(0), &'a', &block(1, 1), whole), Freed::Kept, "there is room for all bytes again");
    assert_eq!(take(&caches, thread(0), &'a', 0, 1), Some(block(1, 1000)));
    assert_eq!(caches.drain().iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), ['a', 'b']);
}

#[test]
fn a_stream_gets_its_own_blocks_back_the_last_one_first() {
    let caches = thread_cache(1000);
    for (stream, number) in [('a', 1), ('a', 2), ('b', 3)] {
        assert_eq!(keep(&caches, thread(0), &stream, 0, 90, block(number, 100)), Some(Vec::new()));
    }
    assert_eq!(take(&caches, thread(0), &'a', 0, 90), Some(block(2, 100)));
    assert_eq!(take(&caches, thread(0), &'a', 1, 90), None);
    assert_eq!(take(&caches, thread(0), &'b', 0, 90), Some(block(3, 100)));
    assert_eq!(take(&caches, thread(0), &'b', 0, 90), None);
    assert_eq!(take(&caches, thread(0), &'c', 0, 90), None);
    let mut left = Vec::new();
    caches.each(|stream, block| left.push((*stream, block)));
    assert_eq!(left, [('a', block(1, 100))]);
}

#[test]
fn full_cache_evicts_the_oldest_of_its_largest_blocks() {
    let caches = thread_cache(700);
    for (number, class, size) in [(1, 0, 100), (2, 1, 200), (3, 1, 200), (4, 0, 100)] {
        assert_eq!(keep(&caches, thread(0), &'a', class, 1, block(number, size)), Some(Vec::new()));
    }
    // Until an eighth of the thread cache is free.
    let spilled = keep(&caches, thread(0), &'b', 2, 1, block(5, 600));
    assert_eq!(spilled, Some(vec![('b', vec![block(5, 600)])]));
    let spilled = keep(&caches, thread(0), &'b', 1, 1, block(6, 200));
    assert_eq!(spilled, Some(vec![('a', vec![block(2, 200)])]));
    let left = vec![block(1, 100), block(4, 100), block(3, 200)];
    assert_eq!(caches.drain(), [('a', left), ('b', vec![block(6, 200)])]);
    assert_eq!(caches.drain(), []);
    // Blocks that were taken out no longer count.
    (1..=7).for_each(|number| assert_eq!(keep(&caches, thread(0), &'a', 0, 1, block(number, 100)), Some(Vec::new())));
    let spilled = keep(&caches, thread(0), &'a', 0, 1, block(8, 100));
    assert_eq!(spilled, Some(vec![('a', (1..=2).map(|number| block(number, 100)).collect())]));
    assert!(caches.keep_size(700) && !caches.keep_size(701));
}

#[test]
#[cfg_attr(miri, ignore = "slow there, and streams are evicted without unsafe code")]
fn a_cache_keeps_blocks_of_so_many_streams_and_loses_none() {
    let caches = ThreadCaches::new(0, 1, usize::MAX);
    let mut given_up = Vec::new();
    for stream in 0..160 {
        if let Some(spill) = keep(&caches, thread(0), &stream, 7, 1, block(stream, 10)) {
            given_up.extend(spill);
        }
        let mut streams = Vec::new();
        caches.each(|stream, _| streams.push(*stream));
        assert!(streams.len() <= 64, "{streams:?}");
        assert_eq!(take(&caches, thread(0), &stream, 7, 1), Some(block(stream, 10)));
        assert_eq!(keep(&caches, thread(0), &stream, 7, 1, block(stream, 10)), Some(Vec::new()));
    }
    assert_eq!(given_up.len(), 96);
    given_up.extend(caches.drain());
    given_up.sort_by_key(|(stream, _)| *stream);
    let expected: Vec<_> = (0..160).map(|stream| (stream, vec![block(stream, 10)])).collect();
    assert_eq!(given_up, expected);
}

#[test]
fn what_goes_through_caches_is_counted() {
    let caches = ThreadCaches::new(0, 2, 1000);
    assert_eq!(take(&caches, thread(1), &'a', 0, 100), None);
    assert_eq!(keep(&caches, thread(1), &'a', 0, 100, block(1, 256)), Some(Vec::new()));
    assert_eq!(take(&caches, thread(0), &'a', 0, 100), None, "threads have thread caches of their own");
    assert_eq!(take(&caches, thread(3), &'a', 0, 200), Some(block(1, 256)));
    let sums: Vec<_> = caches.tallies().map(Tally::sums).collect();
    let one = |requested| Sum { requested, bytes: 256, blocks: 1 };
    assert_eq!(sums, [(Sum::default(), Sum::default()), (one(200), one(100))]);
}

#[test]
fn one_thread_at_a_time_has_a_closed_lock() {
    let lock = CacheLock::new(0u64);
    let rounds = if cfg!(miri) { 20 } else { 10_000 };
    let count = || {
        let _closed = lock.close();
        // SAFETY: closed, and the lock has no owner.
        unsafe { lock.with(|count| *count += 1) };
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..rounds).for_each(|_| count()));
        }
    });
    let closed = lock.close();
    // SAFETY: as above.
    assert_eq!(unsafe { lock.with(|count| *count) }, 3 * rounds);
    assert!(lock.try_close().is_none());
    drop(closed);
    assert!(lock.try_close().is_some());
}

#[test]
fn owners_lose_no_block_while_others_empty_their_caches() {
    let rounds = if cfg!(miri) { 8 } else { 20_000 };
    let caches: ThreadCaches<u64> = ThreadCaches::new(16, 1, usize::MAX);
    let blocks = Mutex::new(Vec::new());
    let running = AtomicUsize::new(3);
    let put_back = |given_up: &mut dyn Iterator<Item = Block>| {
        blocks.lock().extend(given_up.map(|block| block.device_pointer()));
    };
    std::thread::scope(|scope| {
        for number in 1..=3 {
            let (caches, blocks, running) = (&caches, &blocks, &running);
            scope.spawn(move || {
                let mut mine = Some(block(number, 256));
                for _ in 0..rounds {
                    match mine.take() {
                        Some(block) if keep(caches, Slot::current(), &0, 0, 1, block).is_none() => mine = Some(block),
                        Some(_) => {}
                        None => {
                            let other = || blocks.lock().pop().map(|number| block(number, 256));
                            mine = take(caches, Slot::current(), &0, 0, 1).or_else(other);
                        }
                    }
                }
                blocks.lock().extend(mine.map(|block| block.device_pointer()));
                running.fetch_sub(1, Ordering::Release);
            });
        }
        while running.load(Ordering::Acquire) != 0 {
            caches.empty(|_, given_up| put_back(given_up));
        }
    });
    put_back(&mut caches.drain().into_iter().flat_map(|(_, blocks)| blocks));
    let mut blocks = blocks.into_inner();
    blocks.sort_unstable();
    assert_eq!(blocks, [1, 2, 3]);
}

#[test]
fn what_a_buffer_held_goes_to_the_next_one_of_its_stream() {
    let caches: ThreadCaches<char> = ThreadCaches::new(16, 1, 1000);
    // On a thread of its own, which gets one of the first numbers.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let slot = Slot::current();
            let keep_held = |number, size| {
                let Some(inside) = slot.enter(caches.cache_set_id()) else { return Keeping::Nothing };
                // SAFETY: the thread is inside these thread caches.
                unsafe {
                    caches.keep_held(&inside, &'a', &block(number, 1), WholeBlock { bytes: size, class: 0 }, || 'a')
                }
            };
            let take_held = || {
                let mut held = None;
                (caches.take_held(slot, &'a', 0, 1, &mut held), held)
            };
            assert_eq!(keep_held(1, 100), Keeping::Nothing, "the thread cache does not know the stream yet");
            assert_eq!(keep(&caches, slot, &'a', 0, 1, block(1, 100)), Some(Vec::new()));
            assert_eq!(keep_held(2, 100), Keeping::BlockAndReferences);
            assert_eq!(keep_held(3, 900), Keeping::Nothing, "the thread cache is full");
            assert_eq!(take_held(), (Some(block(2, 100)), Some('a')));
            assert_eq!(take_held(), (Some(block(1, 100)), None));
            assert_eq!(keep_held(4, 100), Keeping::BlockAndReferences);
            assert!(caches.release_held());
            assert_eq!(keep_held(5, 100), Keeping::Block, "the pool has no handles any more");
            assert_eq!(take_held(), (Some(block(5, 100)), None));
            assert_eq!(take_held(), (Some(block(4, 100)), None));
        });
    });
}
