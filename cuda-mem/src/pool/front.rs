//! Fronts: what threads have freed last, kept by stream and size so that the same stream gets it back at once.
//!
//! A thread works with one front, chosen when it first needs one. Blocks in fronts are whole blocks of the heap, for which
//! they are still in use; the heap takes them back when a front is full, or when memory runs short.

use super::classes::CLASSES;
use super::gate::Gate;
use crate::memory::Block;
use core::array;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many streams one front keeps blocks for.
const MOST_STREAMS: usize = 8;
/// How many fronts a pool has at most.
const MOST_FRONTS: usize = 16;

/// Blocks that a stream has freed.
pub(super) type Spill<S> = Vec<(S, Vec<Block>)>;

/// What threads that share it have freed last. Alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Front<S> {
    pub cache: Gate<Cache<S>>,
    pub tally: Tally,
}

impl<S> Front<S> {
    pub fn new(capacity: usize) -> Self {
        Self { cache: Gate::new(Cache { streams: Vec::new(), recent: 0, bytes: 0, capacity }), tally: Tally::default() }
    }
}

/// What went through a front. Whoever is inside its gate counts; everybody may read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    allocated: Flow,
    freed: Flow,
}

#[derive(Debug, Default)]
struct Flow {
    requested: AtomicU64,
    bytes: AtomicU64,
    blocks: AtomicU64,
}

/// Sums of what was allocated, or freed: what was asked for, the sizes of the blocks, and their count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub requested: u64,
    pub bytes: u64,
    pub blocks: u64,
}

impl Sum {
    pub fn add(&mut self, other: Sum) {
        self.requested += other.requested;
        self.bytes += other.bytes;
        self.blocks += other.blocks;
    }
}

impl Flow {
    #[inline]
    fn count(&self, requested: usize, bytes: usize) {
        // One thread at a time counts, so that nothing is lost between load and store.
        let add = |counter: &AtomicU64, amount: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        };
        add(&self.requested, requested as u64);
        add(&self.bytes, bytes as u64);
        add(&self.blocks, 1);
    }

    fn sum(&self) -> Sum {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sum { requested: read(&self.requested), bytes: read(&self.bytes), blocks: read(&self.blocks) }
    }
}

impl Tally {
    #[inline]
    pub fn allocated(&self, requested: usize, bytes: usize) {
        self.allocated.count(requested, bytes);
    }

    #[inline]
    pub fn freed(&self, requested: usize, bytes: usize) {
        self.freed.count(requested, bytes);
    }

    /// What was allocated, and what was freed.
    pub fn sums(&self) -> (Sum, Sum) {
        // Frees are read first: what is freed was allocated before.
        let freed = self.freed.sum();
        (self.allocated.sum(), freed)
    }
}

/// The blocks in a front.
#[derive(Debug)]
pub(super) struct Cache<S> {
    streams: Vec<Kept<S>>,
    /// Which stream was asked for last.
    recent: usize,
    bytes: usize,
    capacity: usize,
}

/// What is kept for one stream.
#[derive(Debug)]
struct Kept<S> {
    /// Held so that no other stream gets its handle.
    stream: S,
    /// The blocks of each class, last freed last.
    bins: Box<[Vec<Block>; CLASSES]>,
}

impl<S: Clone + PartialEq> Cache<S> {
    /// Takes a block that the stream has freed.
    #[inline]
    pub fn take(&mut self, stream: &S, class: usize) -> Option<Block> {
        let index = self.find(stream)?;
        let block = self.streams[index].bins[class].pop()?;
        self.bytes -= block.size;
        Some(block)
    }

    /// Keeps a block that a stream has freed. What no longer fits comes back.
    #[inline]
    pub fn keep(&mut self, stream: &S, class: usize, block: Block) -> Option<Spill<S>> {
        let Some(index) = self.find(stream) else { return self.keep_first(stream, class, block) };
        self.streams[index].bins[class].push(block);
        self.bytes += block.size;
        if self.bytes > self.capacity { Some(self.spill()) } else { None }
    }

    #[cold]
    fn keep_first(&mut self, stream: &S, class: usize, block: Block) -> Option<Spill<S>> {
        let mut spill = None;
        if self.streams.len() == MOST_STREAMS {
            // The one after the last used: over time each has its turn.
            let kept = self.streams.swap_remove((self.recent + 1) % MOST_STREAMS);
            spill = Some(vec![self.empty(kept)]);
        }
        self.recent = self.streams.len();
        self.streams.push(Kept { stream: stream.clone(), bins: Box::new(array::from_fn(|_| Vec::new())) });
        let full = self.keep(stream, class, block);
        match (spill, full) {
            (Some(mut one), Some(other)) => {
                one.extend(other);
                Some(one)
            }
            (one, other) => one.or(other),
        }
    }

    #[inline]
    fn find(&mut self, stream: &S) -> Option<usize> {
        if self.streams.get(self.recent).is_some_and(|kept| kept.stream == *stream) {
            return Some(self.recent);
        }
        let index = self.streams.iter().position(|kept| kept.stream == *stream)?;
        self.recent = index;
        Some(index)
    }

    /// Gives up the older half of each bin.
    #[cold]
    fn spill(&mut self) -> Spill<S> {
        let mut spill = Vec::new();
        for kept in &mut self.streams {
            let old = |bin: &mut Vec<Block>| bin.drain(..bin.len().div_ceil(2)).collect::<Vec<_>>();
            let blocks: Vec<Block> = kept.bins.iter_mut().flat_map(old).collect();
            self.bytes -= blocks.iter().map(|block| block.size).sum::<usize>();
            spill.push((kept.stream.clone(), blocks));
        }
        spill
    }

    /// Gives up everything, the streams too.
    pub fn drain(&mut self) -> Spill<S> {
        core::mem::take(&mut self.streams).into_iter().map(|kept| self.empty(kept)).collect()
    }

    fn empty(&mut self, kept: Kept<S>) -> (S, Vec<Block>) {
        let blocks: Vec<Block> = kept.bins.into_iter().flatten().collect();
        self.bytes -= blocks.iter().map(|block| block.size).sum::<usize>();
        (kept.stream, blocks)
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.bytes
    }

    /// All blocks, each with its stream.
    pub fn blocks(&self) -> impl Iterator<Item = (&S, Block)> {
        self.streams.iter().flat_map(|kept| kept.bins.iter().flatten().map(|block| (&kept.stream, *block)))
    }
}

/// How many fronts a pool has: twice as many as the machine runs threads, so that two threads seldom share one.
pub(super) fn front_count() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * threads).next_power_of_two().clamp(4, MOST_FRONTS)
}

/// A number of the calling thread. Threads are numbered as they come.
#[inline]
pub(super) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64, size: usize) -> Block {
        Block::device(number, size)
    }

    #[test]
    fn a_stream_gets_its_own_blocks_back_the_last_one_first() {
        let front = Front::new(1000);
        let mut cache = front.cache.enter();
        assert_eq!(cache.keep(&'a', 0, block(1, 100)), None);
        assert_eq!(cache.keep(&'a', 0, block(2, 100)), None);
        assert_eq!(cache.keep(&'b', 0, block(3, 100)), None);
        assert_eq!(cache.take(&'a', 0), Some(block(2, 100)));
        assert_eq!(cache.take(&'a', 1), None);
        assert_eq!(cache.take(&'b', 0), Some(block(3, 100)));
        assert_eq!(cache.take(&'b', 0), None);
        assert_eq!(cache.take(&'c', 0), None);
        assert_eq!((cache.bytes(), cache.blocks().collect::<Vec<_>>()), (100, vec![(&'a', block(1, 100))]));
    }

    #[test]
    fn a_full_front_gives_up_the_older_half() {
        let front = Front::new(300);
        let mut cache = front.cache.enter();
        (1..=3).for_each(|number| assert_eq!(cache.keep(&'a', 0, block(number, 100)), None));
        let spill = cache.keep(&'a', 0, block(4, 100));
        assert_eq!(spill, Some(vec![('a', vec![block(1, 100), block(2, 100)])]));
        assert_eq!(cache.bytes(), 200);
        // A block that is larger than the front goes through.
        assert_eq!(cache.keep(&'a', 5, block(5, 400)), Some(vec![('a', vec![block(3, 100), block(5, 400)])]));
        assert_eq!(cache.drain(), vec![('a', vec![block(4, 100)])]);
        assert_eq!((cache.bytes(), cache.drain()), (0, vec![]));
    }

    #[test]
    fn a_front_keeps_blocks_of_so_many_streams_and_loses_none() {
        let front = Front::new(usize::MAX);
        let mut cache = front.cache.enter();
        let mut given_up = Vec::new();
        for stream in 0..3 * MOST_STREAMS {
            given_up.extend(cache.keep(&stream, 7, block(stream as u64, 10)).into_iter().flatten());
            assert!(cache.streams.len() <= MOST_STREAMS);
            assert_eq!(cache.take(&stream, 7), Some(block(stream as u64, 10)));
            given_up.extend(cache.keep(&stream, 7, block(stream as u64, 10)).into_iter().flatten());
        }
        assert_eq!(given_up.len(), 2 * MOST_STREAMS);
        given_up.extend(cache.drain());
        let mut blocks: Vec<_> = given_up.into_iter().flat_map(|(stream, blocks)| [(stream, blocks)]).collect();
        blocks.sort_by_key(|(stream, _)| *stream);
        let expected: Vec<_> = (0..3 * MOST_STREAMS).map(|stream| (stream, vec![block(stream as u64, 10)])).collect();
        assert_eq!((blocks, cache.bytes()), (expected, 0));
    }

    #[test]
    fn what_goes_through_a_front_is_counted() {
        let tally = Tally::default();
        tally.allocated(100, 256);
        tally.allocated(300, 512);
        tally.freed(100, 256);
        let (allocated, freed) = tally.sums();
        assert_eq!(allocated, Sum { requested: 400, bytes: 768, blocks: 2 });
        assert_eq!(freed, Sum { requested: 100, bytes: 256, blocks: 1 });
    }
}
