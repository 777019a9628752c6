//! Fronts: what threads have freed last, kept by stream and size so that the same stream gets it back at once.
//!
//! A thread works with one front, chosen when it first needs one. Blocks in fronts are whole blocks of the heap, for which
//! they are still in use; the heap takes them back when a front is full, or when memory runs short.

use super::classes::CLASSES;
use super::gate::Gate;
use super::sync::{AtomicU64, Ordering};
use crate::resource::Block;
use core::array;

/// How many streams one front keeps blocks for.
const MOST_STREAMS: usize = 8;
/// Blocks that a stream has freed.
pub(super) type Spill<S> = Vec<(S, Vec<Block>)>;

/// All fronts of a pool.
#[derive(Debug)]
pub(super) struct Fronts<S> {
    fronts: Box<[Front<S>]>,
    /// How many bytes each may keep.
    capacity: usize,
}

/// What threads that share it have freed last. Alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Front<S> {
    cache: Gate<Cache<S>>,
    tally: Tally,
}

/// What became of a block that a front was to keep.
#[derive(Debug, PartialEq)]
pub(super) enum Freed<S> {
    Kept,
    /// It was kept, and these are to go to the heap.
    Spilled(Spill<S>),
    /// Another thread works with the front: the block is to go to the heap.
    Busy,
}

impl<S: Clone + PartialEq> Fronts<S> {
    /// So many fronts, which is a power of two.
    pub fn new(count: usize, capacity: usize) -> Self {
        debug_assert!(count.is_power_of_two());
        let front = |_| Front { cache: Gate::new(Cache::new(capacity)), tally: Tally::default() };
        Self { fronts: (0..count).map(front).collect(), capacity }
    }

    /// Whether fronts keep blocks of this size.
    #[inline]
    pub fn keep_size(&self, bytes: usize) -> bool {
        bytes <= self.capacity
    }

    #[inline]
    fn of(&self, thread: usize) -> &Front<S> {
        &self.fronts[thread & (self.fronts.len() - 1)]
    }

    /// Takes a block that the stream has freed, for a request of so many bytes.
    #[inline]
    pub fn take(&self, thread: usize, stream: &S, class: usize, requested: usize) -> Option<Block> {
        let front = self.of(thread);
        let mut cache = front.cache.try_enter()?;
        let block = cache.take(stream, class)?;
        front.tally.allocated(requested, block.size);
        Some(block)
    }

    /// Keeps a block that the stream has freed, which was a request of so many bytes. What comes back has to be dropped
    /// where streams may end.
    #[inline]
    pub fn keep(&self, thread: usize, stream: &S, class: usize, requested: usize, block: Block) -> Freed<S> {
        let front = self.of(thread);
        let Some(mut cache) = front.cache.try_enter() else { return Freed::Busy };
        front.tally.freed(requested, block.size);
        cache.keep(stream, class, block).map_or(Freed::Kept, Freed::Spilled)
    }

    /// Takes everything out, one front after the other.
    pub fn drain(&self) -> impl Iterator<Item = Spill<S>> + '_ {
        self.fronts.iter().map(|front| front.cache.enter().drain())
    }

    /// Shows every block, with its stream.
    pub fn each(&self, mut show: impl FnMut(&S, Block)) {
        for front in &self.fronts {
            front.cache.enter().blocks().for_each(|(stream, block)| show(stream, block));
        }
    }

    /// What went through each front.
    pub fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.fronts.iter().map(|front| &front.tally)
    }
}

/// What went through a front. Whoever is inside its gate counts; everybody may read.
#[derive(Debug, Default)]
pub(super) struct Tally {
    allocated: Side,
    freed: Side,
}

#[derive(Debug, Default)]
struct Side {
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

impl Side {
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
struct Cache<S> {
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
    fn new(capacity: usize) -> Self {
        Self { streams: Vec::new(), recent: 0, bytes: 0, capacity }
    }

    /// Takes a block that the stream has freed.
    #[inline]
    fn take(&mut self, stream: &S, class: usize) -> Option<Block> {
        let index = self.find(stream)?;
        let block = self.streams[index].bins[class].pop()?;
        self.bytes -= block.size;
        Some(block)
    }

    /// Keeps a block that a stream has freed. What no longer fits comes back.
    #[inline]
    fn keep(&mut self, stream: &S, class: usize, block: Block) -> Option<Spill<S>> {
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

    /// Gives up the largest blocks, of each size those that were freed first, until an eighth is free. So small blocks, of
    /// which many fit, stay, and no call gives up many.
    #[cold]
    fn spill(&mut self) -> Spill<S> {
        let rest = self.capacity - self.capacity / 8;
        let mut spill: Spill<S> = self.streams.iter().map(|kept| (kept.stream.clone(), Vec::new())).collect();
        'all: for class in (0..CLASSES).rev() {
            for (kept, (_, blocks)) in self.streams.iter_mut().zip(&mut spill) {
                if self.bytes <= rest {
                    break 'all;
                }
                let bin = &mut kept.bins[class];
                let Some(size) = bin.first().map(|block| block.size) else { continue };
                let count = (self.bytes - rest).div_ceil(size).min(bin.len());
                blocks.extend(bin.drain(..count));
                self.bytes -= count * size;
            }
        }
        spill.retain(|(_, blocks)| !blocks.is_empty());
        spill
    }

    /// Gives up everything, the streams too.
    fn drain(&mut self) -> Spill<S> {
        core::mem::take(&mut self.streams).into_iter().map(|kept| self.empty(kept)).collect()
    }

    fn empty(&mut self, kept: Kept<S>) -> (S, Vec<Block>) {
        let blocks: Vec<Block> = kept.bins.into_iter().flatten().collect();
        self.bytes -= blocks.iter().map(|block| block.size).sum::<usize>();
        (kept.stream, blocks)
    }

    /// All blocks, each with its stream.
    fn blocks(&self) -> impl Iterator<Item = (&S, Block)> {
        self.streams.iter().flat_map(|kept| kept.bins.iter().flatten().map(|block| (&kept.stream, *block)))
    }
}
