//! Which part of which chunk serves an allocation: pure bookkeeping over addresses.
//!
//! A chunk is cut into blocks of one size. A freed block waits for what used it, as a mark of its stream; until the mark
//! has passed, other streams than that one have to wait for it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The unit of chunks, and the smallest one, in bytes.
pub(super) const CHUNK: usize = 2 << 20;
/// What chunks grow to, in bytes.
const LARGEST_CHUNK: usize = 64 << 20;
/// Blocks beyond this size have a chunk of their own.
const LARGEST_SHARED: usize = 16 << 20;
/// The smallest block, and what all blocks are a multiple of.
const SMALLEST: usize = 256;

/// The size of the block that serves `size` bytes: powers of two and the halves between, whole units of chunks above.
/// `None` if there is no such size.
pub(super) fn block_size(size: usize) -> Option<usize> {
    if size > LARGEST_SHARED {
        return size.checked_next_multiple_of(CHUNK);
    }
    let power = size.max(SMALLEST).next_power_of_two();
    let between = power / 4 * 3;
    Some(if size <= between && between.is_multiple_of(SMALLEST) { between } else { power })
}

/// Which blocks an allocation may have before the pool grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reuse {
    /// Those freed on another stream whose mark has passed.
    pub opportunistic: bool,
    /// Those freed on another stream, with a wait.
    pub with_wait: bool,
}

/// A block that serves an allocation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken<M> {
    pub address: u64,
    /// What the block waited for.
    pub mark: Option<M>,
    /// Whether the allocation has to wait for the mark.
    pub must_wait: bool,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub reserved: usize,
    pub reserved_high: usize,
    pub used: usize,
    pub used_high: usize,
}

#[derive(Debug)]
struct Chunk {
    size: usize,
    block_size: usize,
    /// How many of its blocks are free and wait for nothing.
    settled: usize,
}

impl Chunk {
    fn blocks(&self) -> usize {
        self.size / self.block_size
    }

    fn is_empty(&self) -> bool {
        self.settled == self.blocks()
    }
}

/// The free blocks of one size.
#[derive(Debug)]
struct Free<K, M> {
    /// Those that wait for nothing.
    settled: Vec<u64>,
    /// Those that wait for a stream, oldest first.
    pending: BTreeMap<K, VecDeque<(u64, M)>>,
}

impl<K, M> Default for Free<K, M> {
    fn default() -> Self {
        Self { settled: Vec::new(), pending: BTreeMap::new() }
    }
}

/// Chunks and their blocks. `K` tells streams apart, `M` marks a point in one.
#[derive(Debug)]
pub(super) struct Slabs<K, M> {
    chunks: BTreeMap<u64, Chunk>,
    free: BTreeMap<usize, Free<K, M>>,
    /// What was asked for, of each block that is allocated.
    live: HashMap<u64, usize>,
    account: Account,
}

impl<K: Ord + Copy, M> Slabs<K, M> {
    pub fn new() -> Self {
        Self { chunks: BTreeMap::new(), free: BTreeMap::new(), live: HashMap::new(), account: Account::default() }
    }

    pub fn account(&self) -> Account {
        self.account
    }

    pub fn reset_high_marks(&mut self) {
        self.account.reserved_high = self.account.reserved;
        self.account.used_high = self.account.used;
    }

    /// Takes a block for `size` bytes: one that `stream` freed itself, one that waits for nothing, and as `reuse` allows
    /// one of another stream. `None`: the pool has to grow.
    pub fn take(
        &mut self,
        size: usize,
        stream: K,
        reuse: Reuse,
        mut has_passed: impl FnMut(&M) -> bool,
    ) -> Option<Taken<M>> {
        let free = self.free.get_mut(&block_size(size)?)?;
        let taken = free
            .take_own(stream)
            .or_else(|| free.settled.pop().map(|address| Taken { address, mark: None, must_wait: false }))
            .or_else(|| if reuse.opportunistic { free.take_passed(&mut has_passed) } else { None })
            .or_else(|| if reuse.with_wait { free.take_oldest() } else { None })?;
        if taken.mark.is_none() {
            self.chunk_of(taken.address).settled -= 1;
        }
        self.live.insert(taken.address, size);
        self.account.used += size;
        self.account.used_high = self.account.used_high.max(self.account.used);
        Some(taken)
    }

    /// Frees a block, which from now on waits for `mark` of `stream`. The mark comes back if no such block is allocated.
    pub fn give(&mut self, address: u64, stream: K, mark: M) -> Result<(), M> {
        let Some(size) = self.live.remove(&address) else { return Err(mark) };
        self.account.used -= size;
        let block_size = self.chunk_of(address).block_size;
        self.free.entry(block_size).or_default().pending.entry(stream).or_default().push_back((address, mark));
        Ok(())
    }

    /// Frees what waits for nothing any more, and gives the marks.
    pub fn settle(&mut self, mut has_passed: impl FnMut(&M) -> bool) -> Vec<M> {
        let (mut addresses, mut marks) = (Vec::new(), Vec::new());
        for free in self.free.values_mut() {
            while let Some(Taken { address, mark: Some(mark), .. }) = free.take_passed(&mut has_passed) {
                free.settled.push(address);
                addresses.push(address);
                marks.push(mark);
            }
        }
        addresses.into_iter().for_each(|address| self.chunk_of(address).settled += 1);
        marks
    }

    /// All that free blocks wait for.
    pub fn marks(&self) -> impl Iterator<Item = &M> {
        self.free.values().flat_map(|free| free.pending.values()).flatten().map(|(_, mark)| mark)
    }

    /// The size of the chunk to grow by for a block of `size` bytes; `None` if the pool would then exceed `max_size`.
    pub fn growth(&self, size: usize, max_size: usize) -> Option<usize> {
        let least = block_size(size)?.checked_next_multiple_of(CHUNK)?;
        let usual = self.account.reserved.next_power_of_two().clamp(CHUNK, LARGEST_CHUNK);
        let most = max_size.checked_next_multiple_of(CHUNK).unwrap_or(usize::MAX);
        let room = most.saturating_sub(self.account.reserved);
        let size = if size > LARGEST_SHARED { least } else { usual.max(least) };
        if size <= room { Some(size) } else { Some(least).filter(|least| *least <= room) }
    }

    /// Adds a chunk, cut into blocks that serve `size` bytes.
    pub fn add(&mut self, base: u64, chunk_size: usize, size: usize) {
        self.cut(base, chunk_size, block_size(size).unwrap_or(chunk_size));
        self.account.reserved += chunk_size;
        self.account.reserved_high = self.account.reserved_high.max(self.account.reserved);
    }

    /// Cuts an empty chunk anew, into blocks that serve `size` bytes. It is not much larger than one block.
    pub fn recut(&mut self, size: usize) -> bool {
        let Some(block_size) = block_size(size) else { return false };
        let fits = |chunk: &Chunk| chunk.size >= block_size && chunk.size / 2 <= block_size.max(LARGEST_CHUNK / 2);
        let Some(base) = self.chunks.iter().find(|(_, chunk)| chunk.is_empty() && fits(chunk)).map(|(base, _)| *base)
        else {
            return false;
        };
        let Some(size) = self.remove(base) else { return false };
        self.cut(base, size, block_size);
        true
    }

    /// Removes empty chunks, largest first, as long as at least `keep` bytes stay reserved; gives their addresses.
    pub fn release(&mut self, keep: usize) -> Vec<u64> {
        let mut empty: Vec<(usize, u64)> =
            self.chunks.iter().filter(|(_, chunk)| chunk.is_empty()).map(|(base, chunk)| (chunk.size, *base)).collect();
        empty.sort_unstable_by(|one, other| other.cmp(one));
        let mut released = Vec::new();
        for (size, base) in empty {
            if self.account.reserved - size >= keep && self.remove(base).is_some() {
                self.account.reserved -= size;
                released.push(base);
            }
        }
        released
    }

    /// The addresses of all chunks.
    pub fn chunks(&self) -> impl Iterator<Item = u64> {
        self.chunks.keys().copied()
    }

    fn cut(&mut self, base: u64, size: usize, block_size: usize) {
        let chunk = Chunk { size, block_size, settled: size / block_size };
        let blocks = (0..chunk.blocks()).rev().map(|n| base + (n * block_size) as u64);
        self.free.entry(block_size).or_default().settled.extend(blocks);
        self.chunks.insert(base, chunk);
    }

    /// Removes an empty chunk, and gives its size.
    fn remove(&mut self, base: u64) -> Option<usize> {
        let chunk = self.chunks.remove(&base)?;
        let inside = base..base + chunk.size as u64;
        if let Entry::Occupied(mut free) = self.free.entry(chunk.block_size) {
            free.get_mut().settled.retain(|address| !inside.contains(address));
            if free.get().settled.is_empty() && free.get().pending.is_empty() {
                free.remove();
            }
        }
        Some(chunk.size)
    }

    fn chunk_of(&mut self, address: u64) -> &mut Chunk {
        let found = self.chunks.range_mut(..=address).next_back();
        found.map(|(_, chunk)| chunk).unwrap_or_else(|| unreachable!("every block lies in a chunk"))
    }
}

impl<K: Ord + Copy, M> Free<K, M> {
    /// The block that a stream freed last: what used it comes before what the stream will do with it.
    fn take_own(&mut self, stream: K) -> Option<Taken<M>> {
        self.take_pending(stream, VecDeque::pop_back, false)
    }

    /// A block whose mark has passed. Marks of one stream pass in order.
    fn take_passed(&mut self, has_passed: &mut impl FnMut(&M) -> bool) -> Option<Taken<M>> {
        let passed = |blocks: &VecDeque<(u64, M)>, has_passed: &mut dyn FnMut(&M) -> bool| {
            blocks.front().is_some_and(|(_, mark)| has_passed(mark))
        };
        let stream = *self.pending.iter().find(|(_, blocks)| passed(blocks, has_passed))?.0;
        self.take_pending(stream, VecDeque::pop_front, false)
    }

    /// The block of another stream that has the most behind it.
    fn take_oldest(&mut self) -> Option<Taken<M>> {
        let stream = *self.pending.iter().max_by_key(|(_, blocks)| blocks.len())?.0;
        self.take_pending(stream, VecDeque::pop_front, true)
    }

    fn take_pending(
        &mut self,
        stream: K,
        pop: impl FnOnce(&mut VecDeque<(u64, M)>) -> Option<(u64, M)>,
        must_wait: bool,
    ) -> Option<Taken<M>> {
        let Entry::Occupied(mut blocks) = self.pending.entry(stream) else { return None };
        let (address, mark) = pop(blocks.get_mut())?;
        if blocks.get().is_empty() {
            blocks.remove();
        }
        Some(Taken { address, mark: Some(mark), must_wait })
    }
}

#[cfg(test)]
mod tests;
