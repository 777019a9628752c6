//! The sizes and kinds of live blocks, by address.
//!
//! A page map of two levels: the upper bits of an address select a leaf, the lower bits an entry. Lookups take no lock,
//! and their time does not depend on the number of blocks. A leaf is allocated when its first block is noted, and stays.
//! The system gives it memory page by page, when entries are first written: 8 bytes for each block of 256 bytes, and at
//! most 4 KiB for each block of 128 KiB and more.

use crate::memory::resource::BlockKind;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Blocks begin at multiples of 2 to this power.
const GRANULE: u32 = 8;
/// Entries are placed within runs of 2 to this power, which fill a page.
const RUN: u32 = 9;
/// The bits of an entry that hold the size and 1. The kind is above them. An entry of 0 has no block.
const SIZE: u64 = (1 << KIND) - 1;
const KIND: u32 = 56;

/// A table for addresses below 2 to the power of `ROOT + LEAF + 8`: by default 2^49, which all GPU addresses are below.
#[derive(Debug)]
pub(super) struct AddressTable<const ROOT: u32 = 19, const LEAF: u32 = 22> {
    leaves: NonNull<AtomicPtr<AtomicU64>>,
}

/// Why an address has no entry that could be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotLive {
    /// No live block begins there.
    Unknown,
    /// The live block has another size.
    Size(usize),
}

/// The host has no memory for a leaf, or an entry cannot hold the address or the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoEntry;

// SAFETY: threads reach the arrays only by atomic operations, and only `drop` frees them.
unsafe impl<const ROOT: u32, const LEAF: u32> Send for AddressTable<ROOT, LEAF> {}
// SAFETY: as above.
unsafe impl<const ROOT: u32, const LEAF: u32> Sync for AddressTable<ROOT, LEAF> {}

fn layout<T>(log2: u32) -> Layout {
    // A const assertion in `new` bounds the size.
    Layout::array::<T>(1 << log2).unwrap_or(Layout::new::<T>())
}

/// The entries of a leaf, and behind them a bit for each run that ever had a block.
fn leaf_layout(leaf_log2: u32) -> Layout {
    Layout::array::<AtomicU64>((1 << leaf_log2) + run_words(leaf_log2)).unwrap_or(Layout::new::<AtomicU64>())
}

const fn run_words(leaf_log2: u32) -> usize {
    (1usize << (leaf_log2 - RUN)).div_ceil(64)
}

impl<const ROOT: u32, const LEAF: u32> AddressTable<ROOT, LEAF> {
    /// An empty table; `None` if the host has no memory.
    pub fn new() -> Option<Self> {
        const { assert!(ROOT < 32 && LEAF < 32 && LEAF >= RUN) };
        // SAFETY: the layout has a size. Zeros are null pointers.
        let leaves = NonNull::new(unsafe { alloc_zeroed(layout::<AtomicPtr<AtomicU64>>(ROOT)) })?;
        Some(Self { leaves: leaves.cast() })
    }

    /// Notes a block that begins at `address`. Its kind is not [`Nothing`](BlockKind::Nothing).
    #[inline]
    pub fn insert(&self, address: u64, size: usize, kind: BlockKind) -> Result<(), NoEntry> {
        if !address.is_multiple_of(1 << GRANULE) || size as u64 >= SIZE {
            return Err(NoEntry);
        }
        let leaf = self.leaf(address).ok_or(NoEntry)?;
        let entries = match NonNull::new(leaf.load(Ordering::Acquire)) {
            Some(entries) => entries,
            None => Self::add(leaf).ok_or(NoEntry)?,
        };
        let (word, bit) = Self::run_bit(entries, address);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        // A thread that frees the block got its address from this one. So there is nothing else to order.
        Self::entry(entries, address).store((kind as u64) << KIND | (size as u64 + 1), Ordering::Release);
        Ok(())
    }

    /// Removes a block, and returns its kind. Of several threads that remove one block at once, one succeeds.
    #[inline]
    pub fn remove(&self, address: u64, size: usize) -> Result<BlockKind, NotLive> {
        if !address.is_multiple_of(1 << GRANULE) {
            return Err(NotLive::Unknown);
        }
        let leaf = self.leaf(address).ok_or(NotLive::Unknown)?;
        let entries = NonNull::new(leaf.load(Ordering::Acquire)).ok_or(NotLive::Unknown)?;
        let entry = Self::entry(entries, address);
        let live = entry.load(Ordering::Acquire);
        if live == 0 {
            return Err(NotLive::Unknown);
        }
        if live & SIZE != (size as u64).wrapping_add(1) {
            return Err(NotLive::Size((live & SIZE) as usize - 1));
        }
        // An entry that changed was removed by another thread.
        let removed = entry.compare_exchange(live, 0, Ordering::AcqRel, Ordering::Relaxed);
        removed.map(|live| BlockKind::from_number(live >> KIND)).map_err(|_| NotLive::Unknown)
    }

    /// Whether a block is left. Nobody inserts or removes any.
    pub fn has_some(&mut self) -> bool {
        (0..1usize << ROOT).any(|index| {
            // SAFETY: as in `leaf`.
            let leaf = unsafe { self.leaves.add(index).as_ref() }.load(Ordering::Relaxed);
            NonNull::new(leaf).is_some_and(Self::leaf_has_some)
        })
    }

    fn leaf_has_some(entries: NonNull<AtomicU64>) -> bool {
        (0..1usize << (LEAF - RUN)).any(|run| {
            let first = (run as u64) << (RUN + GRANULE);
            let (word, bit) = Self::run_bit(entries, first);
            word.load(Ordering::Relaxed) & bit != 0
                && (0..1u64 << RUN)
                    .any(|place| Self::entry(entries, first + (place << GRANULE)).load(Ordering::Relaxed) != 0)
        })
    }

    /// The word that tells of the address's run whether it ever had a block, and the run's bit there.
    #[inline]
    fn run_bit<'table>(entries: NonNull<AtomicU64>, address: u64) -> (&'table AtomicU64, u64) {
        let run = (address >> (GRANULE + RUN)) as usize & ((1 << (LEAF - RUN)) - 1);
        // SAFETY: behind the entries a leaf has a bit for each run. It lives as in `entry`.
        (unsafe { entries.add((1 << LEAF) + run / 64).as_ref() }, 1 << (run % 64))
    }

    #[inline]
    fn leaf(&self, address: u64) -> Option<&AtomicPtr<AtomicU64>> {
        let index = address >> (GRANULE + LEAF);
        // SAFETY: the array has 2 to the power of `ROOT` pointers, and lives as long as `self`.
        (index < 1 << ROOT).then(|| unsafe { self.leaves.add(index as usize).as_ref() })
    }

    #[inline]
    fn entry<'table>(entries: NonNull<AtomicU64>, address: u64) -> &'table AtomicU64 {
        let index = (address >> GRANULE) as usize & ((1 << LEAF) - 1);
        // Neighbours, which often belong to different threads, do not share a cache line. An odd factor reaches every
        // place of the run once.
        let (run, place) = (index >> RUN << RUN, index.wrapping_mul(0x4f) & ((1 << RUN) - 1));
        // SAFETY: a leaf has 2 to the power of `LEAF` entries, and lives as long as the table, which the callers borrow.
        unsafe { entries.add(run + place).as_ref() }
    }

    #[cold]
    fn add(leaf: &AtomicPtr<AtomicU64>) -> Option<NonNull<AtomicU64>> {
        let layout = leaf_layout(LEAF);
        // SAFETY: the layout has a size. Zeros are entries without blocks.
        let fresh = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast::<AtomicU64>();
        match leaf.compare_exchange(null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(fresh),
            Err(theirs) => {
                // SAFETY: allocated above with this layout; no other thread has seen it.
                unsafe { dealloc(fresh.as_ptr().cast(), layout) };
                NonNull::new(theirs)
            }
        }
    }
}

impl<const ROOT: u32, const LEAF: u32> Drop for AddressTable<ROOT, LEAF> {
    fn drop(&mut self) {
        for index in 0..1usize << ROOT {
            // SAFETY: as in `leaf`.
            let leaf = unsafe { self.leaves.add(index).as_ref() }.load(Ordering::Relaxed);
            if !leaf.is_null() {
                // SAFETY: `add` allocated it with this layout, and nobody uses the table any more.
                unsafe { dealloc(leaf.cast(), leaf_layout(LEAF)) };
            }
        }
        // SAFETY: `new` allocated it with this layout.
        unsafe { dealloc(self.leaves.as_ptr().cast(), layout::<AtomicPtr<AtomicU64>>(ROOT)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    type Small = AddressTable<4, 10>;
    const LEAF_BYTES: u64 = 1 << 18;

    #[test]
    fn a_live_block_is_removed_once_and_only_with_its_size() {
        let mut table = Small::new().unwrap();
        assert_eq!(table.remove(0x100, 0), Err(NotLive::Unknown), "there is no leaf");
        for (address, size) in [(0, 0), (0x100, 5), (3 * LEAF_BYTES - 256, 1 << 40)] {
            table.insert(address, size, BlockKind::Managed).unwrap();
            assert_eq!(table.remove(address, size + 1), Err(NotLive::Size(size)));
            assert_eq!(table.remove(address + 1, size), Err(NotLive::Unknown));
            assert_eq!(table.remove(address, usize::MAX), Err(NotLive::Size(size)), "the marker of no block");
            assert!(table.has_some());
            assert_eq!(table.remove(address, size), Ok(BlockKind::Managed));
            assert!(!table.has_some());
            assert_eq!(table.remove(address, size), Err(NotLive::Unknown));
            assert_eq!(table.remove(address, usize::MAX), Err(NotLive::Unknown));
        }
    }

    #[test]
    fn addresses_beyond_the_table_are_refused() {
        let table = Small::new().unwrap();
        for address in [16 * LEAF_BYTES, 1 << 60, u64::MAX - 255, 1] {
            assert_eq!(table.insert(address, 1, BlockKind::Device), Err(NoEntry));
            assert_eq!(table.remove(address, 1), Err(NotLive::Unknown));
        }
    }

    #[test]
    fn sizes_beyond_the_entries_are_refused() {
        let table = Small::new().unwrap();
        for size in [SIZE as usize, 1 << 60, usize::MAX] {
            assert_eq!(table.insert(0, size, BlockKind::Device), Err(NoEntry));
        }
        table.insert(0, SIZE as usize - 1, BlockKind::NonCoherent).unwrap();
        assert_eq!(table.remove(0, SIZE as usize - 1), Ok(BlockKind::NonCoherent));
    }

    #[test]
    fn every_address_has_an_entry_of_its_own() {
        let table = Small::new().unwrap();
        table.insert(0, 1, BlockKind::Host).unwrap();
        let entries = NonNull::new(table.leaf(0).unwrap().load(Ordering::Relaxed)).unwrap();
        let place = |granule: u64| std::ptr::from_ref(Small::entry(entries, granule << GRANULE)).addr();
        let places: HashSet<_> = (0..1 << 10).map(place).collect();
        assert_eq!(places.len(), 1 << 10);
        assert_eq!(places.iter().max().unwrap() - places.iter().min().unwrap(), 8 * 1023);
        for stride in [1, 2, 4, 16, 64] {
            assert!(place(8).abs_diff(place(8 + stride)) >= 64, "blocks of {stride} granules share a line");
        }
    }

    #[test]
    fn one_of_several_threads_removes_a_block() {
        let table = Small::new().unwrap();
        for round in 0..if cfg!(miri) { 5 } else { 500 } {
            let address = (round % 16) * LEAF_BYTES;
            let remove = || table.remove(address, 8).is_ok();
            let removed = thread::scope(|scope| {
                let insert = scope.spawn(|| table.insert(address, 8, BlockKind::Device));
                assert_eq!(insert.join().unwrap(), Ok(()));
                let threads = [scope.spawn(remove), scope.spawn(remove)];
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(removed[0] != removed[1], "{removed:?}");
        }
    }
}
