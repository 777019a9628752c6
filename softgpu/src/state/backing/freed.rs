//! Freed address ranges. They go back to the system, are reused for the next allocation of their size, or go into
//! quarantine, where every touch faults.

use crate::sync::lock;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest range that is kept for reuse, in bytes.
const LARGEST: usize = 64 << 20;
/// The limit for all ranges kept for reuse, in bytes.
const MOST: usize = 256 << 20;
/// The limit for ranges in quarantine. The system limits the number of mappings.
const RANGES: usize = 16384;

#[derive(Default)]
struct Kept {
    /// Ranges for reuse, by length.
    ready: Option<HashMap<usize, Vec<usize>>>,
    ready_bytes: usize,
    /// Ranges in quarantine, oldest first.
    dead: VecDeque<usize>,
    lengths: BTreeMap<usize, usize>,
    dead_bytes: u64,
}

static KEPT: Mutex<Kept> =
    Mutex::new(Kept { ready: None, ready_bytes: 0, dead: VecDeque::new(), lengths: BTreeMap::new(), dead_bytes: 0 });
/// The capacity of the quarantine in bytes; 0 for none.
static QUARANTINE: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set_quarantine(bytes: u64) {
    QUARANTINE.store(bytes, Ordering::Relaxed);
    let released = lock(&KEPT).shrink(bytes);
    released.into_iter().for_each(unmap);
}

/// A range of exactly this length that an earlier allocation left, if there is one.
pub(crate) fn take(length: usize) -> Option<usize> {
    if length > LARGEST {
        return None;
    }
    let mut kept = lock(&KEPT);
    let start = kept.ready.as_mut()?.get_mut(&length)?.pop()?;
    kept.ready_bytes -= length;
    Some(start)
}

/// Takes a range that is no longer used. `reusable`: a later allocation may have it.
///
/// # Safety
///
/// The range is a mapping, or a part of one, that nobody uses or knows any more.
pub(crate) unsafe fn give(start: usize, length: usize, reusable: bool) {
    let limit = QUARANTINE.load(Ordering::Relaxed);
    if limit == 0 {
        if reusable && length <= LARGEST {
            let mut kept = lock(&KEPT);
            if kept.ready_bytes + length <= MOST {
                kept.ready_bytes += length;
                kept.ready.get_or_insert_default().entry(length).or_default().push(start);
                return;
            }
        }
        return unmap((start, length));
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: the caller gave the range to this function, which replaces its pages by inaccessible ones.
    let cleared = unsafe { libc::mmap(ptr::without_provenance_mut(start), length, libc::PROT_NONE, flags, -1, 0) };
    if cleared == libc::MAP_FAILED {
        return unmap((start, length));
    }
    let mut kept = lock(&KEPT);
    kept.dead.push_back(start);
    kept.lengths.insert(start, length);
    kept.dead_bytes += length as u64;
    let released = kept.shrink(limit);
    drop(kept);
    released.into_iter().for_each(unmap);
}

/// Whether an address lies in quarantine.
pub(crate) fn is_dead(address: u64) -> bool {
    if QUARANTINE.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let kept = lock(&KEPT);
    let last = kept.lengths.range(..=address as usize).next_back();
    last.is_some_and(|(start, length)| address as usize - start < *length)
}

/// Whether an address lies in quarantine, for a signal handler: does not wait for the lock, and returns `false` if it
/// is taken.
pub(crate) fn try_is_dead(address: u64) -> bool {
    let Ok(kept) = KEPT.try_lock() else { return false };
    let last = kept.lengths.range(..=address as usize).next_back();
    last.is_some_and(|(start, length)| address as usize - start < *length)
}

impl Kept {
    /// Takes the oldest ranges out of quarantine until the rest fits. Returns them.
    fn shrink(&mut self, limit: u64) -> Vec<(usize, usize)> {
        let mut released = Vec::new();
        while self.dead_bytes > limit || self.dead.len() > RANGES {
            let Some(start) = self.dead.pop_front() else { break };
            if let Some(length) = self.lengths.remove(&start) {
                self.dead_bytes -= length as u64;
                released.push((start, length));
            }
        }
        released
    }
}

fn unmap((start, length): (usize, usize)) {
    // SAFETY: the ranges come from `give`, whose callers hand them over for good.
    unsafe { libc::munmap(ptr::without_provenance_mut(start), length) };
}
