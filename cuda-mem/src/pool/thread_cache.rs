//! Thread caches: caches of the blocks that threads freed last, by stream and size. The same stream gets such a block
//! at once.
//!
//! Each thread uses one thread cache. A thread cache keeps whole blocks of the heap, and the heap counts them as used.
//! It takes them back when a thread cache is full, or when memory runs short.

use super::cache_lock::{CacheLock, Closed};
use super::sync::{Inside, SLOTS, Slot, heavy_fence, prepare_fences, wait_until_left};
use super::tally::Tally;
use crate::memory::resource::{Block, Keeping};
use core::array;
use core::fmt;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use stream_heap::CLASSES;

/// How many streams one thread cache keeps blocks of.
const MOST_STREAMS: usize = 64;
/// A power of two. A thread cache finds this many streams without a search, if their [hints](Keep::hint) differ.
const HINTS: usize = 128;
/// Of how many freed buffers of a stream a thread cache keeps what they held.
const MOST_HELD: usize = 64;
/// Blocks that leave a thread cache, by the stream that freed them.
pub(super) type Spill<S> = Vec<(S, Vec<Block>)>;

/// A stream, as thread caches keep it.
pub(super) trait Keep: Clone + PartialEq {
    /// What a buffer with this home stream holds.
    type Held: fmt::Debug;

    /// The value to keep.
    fn keep(&self) -> Self;

    /// A number that is the same for all values of a stream, and differs between most streams.
    fn hint(&self) -> usize;

    /// Whether both are one value, not only one stream.
    fn is_same_value(&self, other: &Self) -> bool;
}

#[cfg(test)]
impl Keep for u64 {
    type Held = u64;

    fn keep(&self) -> Self {
        *self
    }

    fn hint(&self) -> usize {
        *self as usize
    }

    fn is_same_value(&self, other: &Self) -> bool {
        self == other
    }
}

#[cfg(test)]
impl Keep for char {
    type Held = char;

    fn keep(&self) -> Self {
        *self
    }

    fn hint(&self) -> usize {
        *self as usize
    }

    fn is_same_value(&self, other: &Self) -> bool {
        self == other
    }
}

#[derive(Debug)]
pub(super) struct ThreadCaches<S: Keep> {
    /// The first `owned` belong to the threads with these numbers. All other threads share the rest.
    caches: Box<[ThreadCache<S>]>,
    owned: usize,
    /// How many bytes each thread cache may keep.
    capacity: usize,
}

/// A cache of one thread, or of some threads that share it. Alone in its cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct ThreadCache<S: Keep> {
    cache: CacheLock<Cache<S>>,
    tally: Tally,
}

/// The stay of a thread in a thread cache. Its end leaves the thread cache.
#[expect(dead_code, reason = "held for their drops")]
enum Stay<'caches, S: Keep> {
    Own(Inside<'static>),
    Shared(Closed<'caches, Cache<S>>),
}

/// What the heap counts for a block, which is smaller by what its user did not ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeBlock {
    pub bytes: usize,
    pub class: usize,
}

/// The outcome of [`ThreadCaches::keep`]. It has no blocks in it, so that the usual outcome is returned in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    Kept,
    /// The thread cache kept the block, and has more than it may keep. The caller must [spill](ThreadCaches::spill) it.
    Full,
    /// The thread cache has no blocks of the stream, or may not leave the stream as it is, and has not taken the block.
    NewStream,
    /// Another thread uses the thread cache. The caller must free the block to the heap.
    Busy,
}

impl<S: Keep> ThreadCaches<S> {
    /// `owned` thread caches with an owner, and `shared` ones, a power of two.
    pub fn new(owned: usize, shared: usize, capacity: usize) -> Self {
        debug_assert!(owned <= SLOTS && shared.is_power_of_two());
        prepare_fences();
        let thread_cache = |_| ThreadCache { cache: CacheLock::new(Cache::new(capacity)), tally: Tally::default() };
        Self { caches: (0..owned + shared).map(thread_cache).collect(), owned, capacity }
    }

    /// Whether thread caches keep blocks of this size.
    #[inline]
    pub fn keep_size(&self, bytes: usize) -> bool {
        bytes <= self.capacity
    }

    /// The address that stands for these caches: a thread writes it into its word of presence while it is inside. No other
    /// caches have it while these live.
    #[inline]
    pub fn cache_set_id(&self) -> NonZeroUsize {
        NonNull::from(&*self.caches).addr()
    }

    /// Passes the thread's front to a closure, which makes no call that may block. `None` if another thread uses it.
    #[inline]
    fn enter<R>(&self, thread: Slot, work: impl FnOnce(&mut Cache<S>, &Tally) -> R) -> Option<R> {
        let (thread_cache, _stay) = self.own(thread).or_else(|| self.shared(thread))?;
        // SAFETY: the thread stays inside this thread cache.
        Some(unsafe { thread_cache.cache.with(|cache| work(cache, &thread_cache.tally)) })
    }

    /// The thread cache that only this thread uses, unless another thread keeps it out.
    #[inline]
    fn own(&self, thread: Slot) -> Option<(&ThreadCache<S>, Stay<'_, S>)> {
        if thread.number() >= self.owned {
            return None;
        }
        let inside = thread.enter(self.cache_set_id())?;
        let thread_cache = &self.caches[thread.number()];
        (!thread_cache.cache.is_closed()).then_some((thread_cache, Stay::Own(inside)))
    }

    /// The thread cache that this thread shares with others, unless one of them uses it. `None` for a thread with its
    /// own.
    #[cold]
    fn shared(&self, thread: Slot) -> Option<(&ThreadCache<S>, Stay<'_, S>)> {
        let shared = thread.number().checked_sub(self.owned)? & (self.caches.len() - self.owned - 1);
        let thread_cache = &self.caches[self.owned + shared];
        Some((thread_cache, Stay::Shared(thread_cache.cache.try_close()?)))
    }

    /// Passes each thread cache in turn to a closure. `false` if the system does not let the owners be kept out: passes
    /// none then.
    fn each_cache(&self, mut work: impl FnMut(&mut Cache<S>)) -> bool {
        let _closed: Vec<Closed<'_, _>> = self.caches.iter().map(|thread_cache| thread_cache.cache.close()).collect();
        if !heavy_fence() {
            return false;
        }
        for (number, thread_cache) in self.caches.iter().enumerate() {
            if number < self.owned {
                wait_until_left(number, self.cache_set_id());
            }
            // SAFETY: the thread cache was closed before the fence, and its owner has left since.
            unsafe { thread_cache.cache.with(&mut work) };
        }
        true
    }

    /// Takes a block that the stream has freed, and counts `requested` bytes. `None` also if another thread is inside.
    #[inline]
    pub fn take(&self, thread: Slot, stream: &S, class: usize, requested: usize) -> Option<Block> {
        self.take_where(thread, (stream.hint(), |kept| kept == stream), class, requested)
    }

    /// Takes a block that the stream has freed, counts `requested` bytes, and moves into `held` the references of a
    /// buffer that was freed for the same value of the stream. `None` also if another thread is inside.
    #[inline]
    pub fn take_held(
        &self,
        thread: Slot,
        stream: &S,
        class: usize,
        requested: usize,
        held: &mut Option<S::Held>,
    ) -> Option<Block> {
        self.enter(thread, |cache, tally| {
            let index = cache.find(stream.hint(), |kept| kept == stream)?;
            let block = cache.take_at(index, class)?;
            tally.allocated(requested, block.size());
            let kept = &mut cache.streams[index];
            if kept.stream.is_same_value(stream) {
                *held = kept.held.pop();
            }
            Some(block)
        })?
    }

    /// Keeps a block that the stream has freed, and what its buffer held if there is room: only then calls `held`. The
    /// calling thread is inside the [set of caches](Self::cache_set_id). Keeps nothing if that needs more than some stores.
    ///
    /// # Safety
    ///
    /// `inside` is a stay in this set of caches.
    #[inline]
    pub unsafe fn keep_held(
        &self,
        inside: &Inside<'_>,
        home: &S,
        block: &Block,
        whole: WholeBlock,
        held: impl FnOnce() -> S::Held,
    ) -> Keeping {
        let number = inside.slot();
        let (true, Some(thread_cache)) = (number < self.owned, self.caches.get(number)) else {
            return Keeping::Nothing;
        };
        if thread_cache.cache.is_closed() {
            return Keeping::Nothing;
        }
        let work = |cache: &mut Cache<S>| {
            let Some(index) = cache.find(home.hint(), |kept| kept == home) else { return Keeping::Nothing };
            if cache.bytes + whole.bytes > cache.capacity {
                return Keeping::Nothing;
            }
            thread_cache.tally.freed(block.size(), whole.bytes);
            cache.push_at(index, block, whole);
            let kept = &mut cache.streams[index];
            if cache.keeps_held && kept.held.len() < MOST_HELD && kept.stream.is_same_value(home) {
                kept.held.push(held());
                return Keeping::BlockAndReferences;
            }
            Keeping::Block
        };
        // SAFETY: the thread is present, no other thread has its number, and it found the thread cache open.
        unsafe { thread_cache.cache.with(work) }
    }

    /// Gives up what freed buffers held, now and for ever. Call it when the last handle of the pool has gone: what a
    /// thread cache keeps would keep the pool. `false` if the system does not let the owners be kept out.
    #[must_use]
    pub fn release_held(&self) -> bool {
        self.each_cache(|cache| {
            cache.keeps_held = false;
            cache.streams.iter_mut().for_each(|kept| kept.held = Vec::new());
        })
    }

    /// Takes a block that the stream with this hint that `is` accepts has freed, and counts `requested` bytes. `None`
    /// also if another thread is inside.
    #[inline]
    pub fn take_where(
        &self,
        thread: Slot,
        (hint, is): (usize, impl Fn(&S) -> bool),
        class: usize,
        requested: usize,
    ) -> Option<Block> {
        self.enter(thread, |cache, tally| {
            let index = cache.find(hint, is)?;
            let block = cache.take_at(index, class)?;
            tally.allocated(requested, block.size());
            Some(block)
        })?
    }

    /// Keeps a block that the stream has freed.
    #[inline]
    pub fn keep(&self, thread: Slot, stream: &S, block: &Block, whole: WholeBlock) -> Freed {
        self.keep_where(thread, (stream.hint(), |kept| kept == stream), |_| true, block, whole)
    }

    /// Caches a block that the stream with this hint that `is` accepts has freed. `may` gets that stream first, and may
    /// refuse.
    #[inline]
    pub fn keep_where(
        &self,
        thread: Slot,
        (hint, is): (usize, impl Fn(&S) -> bool),
        may: impl FnOnce(&S) -> bool,
        block: &Block,
        whole: WholeBlock,
    ) -> Freed {
        let kept = self.enter(thread, |cache, tally| {
            let Some(index) = cache.find(hint, is).filter(|index| may(&cache.streams[*index].stream)) else {
                return Freed::NewStream;
            };
            tally.freed(block.size(), whole.bytes);
            cache.push_at(index, block, whole);
            if cache.bytes > cache.capacity { Freed::Full } else { Freed::Kept }
        });
        kept.unwrap_or(Freed::Busy)
    }

    /// Keeps the first block of a stream, as [`keep`](Self::keep) does. `None` if another thread uses the thread cache, or if
    /// the thread caches are [closed](Self::close).
    /// Otherwise the caller must give the returned blocks to the heap. They may hold the last reference to a stream: drop
    /// it outside of locks.
    #[cold]
    pub fn keep_first(&self, thread: Slot, stream: &S, block: &Block, whole: WholeBlock) -> Option<Spill<S>> {
        self.enter(thread, |cache, tally| {
            if cache.is_closed {
                return None;
            }
            tally.freed(block.size(), whole.bytes);
            let mut spill = cache.add(stream);
            cache.push_at(cache.newest, block, whole);
            spill.extend(cache.spill());
            Some(spill)
        })?
    }

    /// Takes out what the thread's cache has too much. The caller must give it to the heap.
    #[cold]
    pub fn spill(&self, thread: Slot) -> Spill<S> {
        self.enter(thread, |cache, _| cache.spill()).unwrap_or_default()
    }

    /// Takes all blocks and streams out of the thread caches, which keep none until [`open`](Self::open). `None` if the system
    /// does not let the owners be kept out.
    pub fn close(&self) -> Option<Spill<S>> {
        let mut drained = Vec::new();
        let drain = |cache: &mut Cache<S>| {
            cache.is_closed = true;
            drained.extend(cache.drain());
        };
        self.each_cache(drain).then_some(drained)
    }

    /// Lets the thread caches keep blocks again.
    pub fn open(&self) {
        self.each_cache(|cache| cache.is_closed = false);
    }

    /// Passes the blocks of each stream to a closure, which takes them all and makes no call that may block. The streams
    /// stay, with the room for their blocks: a heap that is short of memory takes the blocks of thread caches often.
    pub fn empty(&self, mut give: impl FnMut(&S, &mut dyn Iterator<Item = Block>)) {
        self.each_cache(|cache| cache.empty(&mut give));
    }

    /// Takes all blocks and streams out of the thread caches.
    pub fn drain(&self) -> Spill<S> {
        let mut drained = Vec::new();
        self.each_cache(|cache| drained.extend(cache.drain()));
        drained
    }

    /// Whether a block is in no thread cache, for certain.
    pub fn has_not(&self, address: u64) -> bool {
        let mut found = false;
        let looked = self.each_cache(|cache| {
            found |= cache.blocks().any(|(_, block)| block.device_pointer() == address);
        });
        looked && !found
    }

    /// Calls `show` for every block, with its stream.
    pub fn each(&self, mut show: impl FnMut(&S, Block)) {
        self.each_cache(|cache| cache.blocks().for_each(|(stream, block)| show(stream, block)));
    }

    pub fn tallies(&self) -> impl Iterator<Item = &Tally> {
        self.caches.iter().map(|thread_cache| &thread_cache.tally)
    }
}

#[derive(Debug)]
struct Cache<S: Keep> {
    streams: Vec<StreamBlocks<S>>,
    /// The indices of the streams that were found last, by their hints.
    hinted: [u8; HINTS],
    /// The index of the stream that was added last.
    newest: usize,
    bytes: usize,
    capacity: usize,
    /// Cleared when the pool has no handles any more.
    keeps_held: bool,
    /// The cache takes no stream.
    is_closed: bool,
}

/// The blocks of one stream in a thread cache.
#[derive(Debug)]
struct StreamBlocks<S: Keep> {
    /// Kept, so that no other stream gets its handle.
    stream: S,
    /// By class. The block that was freed last is at the end.
    bins: Box<[Vec<Block>; CLASSES]>,
    /// What freed buffers of the same value of the stream held. Each is one more reference to it and to the pool.
    held: Vec<S::Held>,
}

impl<S: Keep> Cache<S> {
    fn new(capacity: usize) -> Self {
        Self {
            streams: Vec::new(),
            hinted: [0; HINTS],
            newest: 0,
            bytes: 0,
            capacity,
            keeps_held: true,
            is_closed: false,
        }
    }

    #[inline]
    fn take_at(&mut self, index: usize, class: usize) -> Option<Block> {
        let block = self.streams[index].bins[class].pop()?;
        self.bytes -= block.size();
        Some(block)
    }

    #[inline]
    fn push_at(&mut self, index: usize, block: &Block, WholeBlock { bytes, class }: WholeBlock) {
        self.streams[index].bins[class].push(block.with_size(bytes));
        self.bytes += bytes;
    }

    /// Adds a stream, which becomes the recent one. Returns the blocks of the stream that had to go.
    fn add(&mut self, stream: &S) -> Spill<S> {
        let mut spill = Vec::new();
        if self.streams.len() == MOST_STREAMS {
            // In turn, so that over time all are evicted.
            self.newest = (self.newest + 1) % MOST_STREAMS;
            let kept = self.streams.swap_remove(self.newest);
            spill.push(self.end(kept));
        } else {
            self.newest = self.streams.len();
        }
        let bins = Box::new(array::from_fn(|_| Vec::new()));
        self.streams.push(StreamBlocks { stream: stream.keep(), bins, held: Vec::new() });
        let last = self.streams.len() - 1;
        self.streams.swap(self.newest, last);
        spill
    }

    #[inline]
    fn find(&mut self, hint: usize, is: impl Fn(&S) -> bool) -> Option<usize> {
        let place = hint % HINTS;
        let hinted = usize::from(self.hinted[place]);
        if self.streams.get(hinted).is_some_and(|kept| is(&kept.stream)) {
            return Some(hinted);
        }
        let index = self.streams.iter().position(|kept| is(&kept.stream))?;
        self.hinted[place] = index as u8;
        Some(index)
    }

    /// If there are too many bytes, gives up blocks until an eighth of the capacity is free: the largest first, and of
    /// each size the oldest first. So the many small blocks stay, and no call gives up many.
    fn spill(&mut self) -> Spill<S> {
        if self.bytes <= self.capacity {
            return Vec::new();
        }
        let rest = self.capacity - self.capacity / 8;
        let mut spill: Spill<S> = self.streams.iter().map(|kept| (kept.stream.clone(), Vec::new())).collect();
        'all: for class in (0..CLASSES).rev() {
            for (kept, (_, blocks)) in self.streams.iter_mut().zip(&mut spill) {
                if self.bytes <= rest {
                    break 'all;
                }
                let bin = &mut kept.bins[class];
                let Some(size) = bin.first().map(|block| block.size()) else { continue };
                let count = (self.bytes - rest).div_ceil(size).min(bin.len());
                blocks.extend(bin.drain(..count));
                self.bytes -= count * size;
            }
        }
        spill.retain(|(_, blocks)| !blocks.is_empty());
        spill
    }

    /// Gives up all blocks.
    fn empty(&mut self, give: &mut impl FnMut(&S, &mut dyn Iterator<Item = Block>)) {
        if self.bytes == 0 {
            return;
        }
        for StreamBlocks { stream, bins, .. } in &mut self.streams {
            let mut blocks = bins.iter_mut().flat_map(|bin| bin.drain(..)).peekable();
            if blocks.peek().is_some() {
                give(stream, &mut blocks);
            }
        }
        self.bytes = 0;
    }

    /// Gives up all blocks and streams.
    fn drain(&mut self) -> Spill<S> {
        core::mem::take(&mut self.streams).into_iter().map(|kept| self.end(kept)).collect()
    }

    fn end(&mut self, kept: StreamBlocks<S>) -> (S, Vec<Block>) {
        let blocks: Vec<Block> = kept.bins.into_iter().flatten().collect();
        self.bytes -= blocks.iter().map(|block| block.size()).sum::<usize>();
        (kept.stream, blocks)
    }

    /// All blocks, each with its stream.
    fn blocks(&self) -> impl Iterator<Item = (&S, Block)> {
        self.streams.iter().flat_map(|kept| kept.bins.iter().flatten().map(|block| (&kept.stream, *block)))
    }
}
