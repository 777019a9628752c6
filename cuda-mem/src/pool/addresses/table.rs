//! The sizes of live blocks, by address.
//!
//! A page map of two levels: the upper bits of an address select a leaf, the lower bits an entry. Lookups take no lock,
//! and their time does not depend on the number of blocks. A leaf is allocated when its first block is noted, and stays.
//! The system gives it memory page by page, when entries are first written: 8 bytes for each block of 256 bytes, and at
//! most 4 KiB for each block of 128 KiB and more.

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc};

/// Blocks begin at multiples of 2 to this power.
const GRANULE: u32 = 8;
/// Entries are placed within runs of 2 to this power, which fill a page.
const RUN: u32 = 9;

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

/// The host has no memory for a leaf, or the address is out of range.
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

impl<const ROOT: u32, const LEAF: u32> AddressTable<ROOT, LEAF> {
    /// An empty table; `None` if the host has no memory.
    pub fn new() -> Option<Self> {
        const { assert!(ROOT < 32 && LEAF < 32 && LEAF >= RUN) };
        // SAFETY: the layout has a size. Zeros are null pointers.
        let leaves = NonNull::new(unsafe { alloc_zeroed(layout::<AtomicPtr<AtomicU64>>(ROOT)) })?;
        Some(Self { leaves: leaves.cast() })
    }

    /// Notes a block that begins at `address`.
    #[inline]
    pub fn insert(&self, address: u64, size: usize) -> Result<(), NoEntry> {
        let leaf = self.leaf(address).ok_or(NoEntry)?;
        let entries = match NonNull::new(leaf.load(Ordering::Acquire)) {
            Some(entries) => entries,
            None => Self::add(leaf).ok_or(NoEntry)?,
        };
        // A thread that frees the block got its address from this one. So there is nothing else to order.
        Self::entry(entries, address).store(size as u64 + 1, Ordering::Release);
        Ok(())
    }

    /// Removes a block. Of several threads that remove one block at once, one succeeds.
    #[inline]
    pub fn remove(&self, address: u64, size: usize) -> Result<(), NotLive> {
        if !address.is_multiple_of(1 << GRANULE) {
            return Err(NotLive::Unknown);
        }
        let leaf = self.leaf(address).ok_or(NotLive::Unknown)?;
        let entries = NonNull::new(leaf.load(Ordering::Acquire)).ok_or(NotLive::Unknown)?;
        let live = (size as u64).wrapping_add(1);
        match Self::entry(entries, address).compare_exchange(live, 0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(0) | Err(0) => Err(NotLive::Unknown),
            Ok(_) => Ok(()),
            Err(other) => Err(NotLive::Size(other as usize - 1)),
        }
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
        let layout = layout::<AtomicU64>(LEAF);
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
                unsafe { dealloc(leaf.cast(), layout::<AtomicU64>(LEAF)) };
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
        let table = Small::new().unwrap();
        assert_eq!(table.remove(0x100, 0), Err(NotLive::Unknown), "there is no leaf");
        for (address, size) in [(0, 0), (0x100, 5), (3 * LEAF_BYTES - 256, 1 << 40)] {
            table.insert(address, size).unwrap();
            assert_eq!(table.remove(address, size + 1), Err(NotLive::Size(size)));
            assert_eq!(table.remove(address + 1, size), Err(NotLive::Unknown));
            assert_eq!(table.remove(address, usize::MAX), Err(NotLive::Size(size)), "the marker of no block");
            assert_eq!(table.remove(address, size), Ok(()));
            assert_eq!(table.remove(address, size), Err(NotLive::Unknown));
            assert_eq!(table.remove(address, usize::MAX), Err(NotLive::Unknown));
        }
    }

    #[test]
    fn addresses_beyond_the_table_are_refused() {
        let table = Small::new().unwrap();
        for address in [16 * LEAF_BYTES, 1 << 60, u64::MAX - 255] {
            assert_eq!(table.insert(address, 1), Err(NoEntry));
            assert_eq!(table.remove(address, 1), Err(NotLive::Unknown));
        }
    }

    #[test]
    fn every_address_has_an_entry_of_its_own() {
        let table = Small::new().unwrap();
        table.insert(0, 1).unwrap();
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
                let insert = scope.spawn(|| table.insert(address, 8));
                assert_eq!(insert.join().unwrap(), Ok(()));
                let threads = [scope.spawn(remove), scope.spawn(remove)];
                threads.map(|thread| thread.join().unwrap())
            });
            assert!(removed[0] != removed[1], "{removed:?}");
        }
    }
}
