//! The live blocks of one resource, by address.
//!
//! A block that its address, its size and its kind tell all about has an entry in a table without locks; so have nearly
//! all small blocks of pools. Maps with locks hold the others: blocks that are larger than requested, that begin before
//! their address, that the CPU and the device address differently, or that lie beyond the table. Large blocks are there
//! too: in the table, each of them would take a page of host memory, and the page's first access takes longer than a map.
//! Blocks that further streams use have a map of their own, so that other frees do not look for uses.

use super::table::{AddressTable, NotLive};
use crate::locks::{Mutex, MutexGuard};
use crate::memory::resource::{Block, BlockKind, PendingUse};
use crate::pool::work_order::OtherWork;
use core::ptr::with_exposed_provenance_mut;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The largest blocks of the table, in bytes. By default the thread caches of pools keep no larger ones.
const LARGEST: usize = 1 << 20;
/// 2 to this power maps share the blocks, so that threads rarely contend.
const PARTS: u32 = 6;

#[derive(Debug)]
pub(super) struct LiveBlocks {
    told: AddressTable,
    others: Box<[Part]>,
    used: Mutex<HashMap<u64, UsedBlock>>,
}

/// Alone in its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part(Mutex<HashMap<u64, Other>>);

#[derive(Debug)]
struct Other {
    requested: usize,
    block: Block,
}

/// A block that work of further streams uses.
#[derive(Debug)]
pub(super) struct UsedBlock {
    requested: usize,
    pub block: Block,
    pub uses: Vec<OtherWork>,
    /// Nobody can tell when all uses end.
    pub is_held: bool,
}

/// A size that no block has.
const NO_SIZE: usize = usize::MAX;

impl LiveBlocks {
    /// `None` if the host has no memory.
    pub fn new() -> Option<Self> {
        Some(Self {
            told: AddressTable::new()?,
            others: (0..1 << PARTS).map(|_| Part::default()).collect(),
            used: Mutex::default(),
        })
    }

    /// Notes a block that the program knows by an address and the size that it requested.
    #[inline]
    pub fn insert(&self, address: u64, requested: usize, block: Block) {
        if requested <= LARGEST
            && tells_all(address, requested, block)
            && self.told.insert(address, requested, block.kind()).is_ok()
        {
            return;
        }
        self.part(address).insert(address, Other { requested, block });
    }

    /// Removes a block. Of several threads that remove one block at once, one succeeds.
    #[inline]
    pub fn remove(&self, address: u64, requested: usize) -> Result<Block, NotLive> {
        if requested > LARGEST {
            return self.remove_large(address, requested);
        }
        match self.told.remove(address, requested) {
            Ok(kind) => Ok(told(address, requested, kind)),
            Err(NotLive::Unknown) => self.remove_other(address, requested),
            Err(size) => Err(size),
        }
    }

    #[inline(never)]
    fn remove_large(&self, address: u64, requested: usize) -> Result<Block, NotLive> {
        match self.remove_other(address, requested) {
            // A smaller block may be there. The table has none of this size.
            Err(NotLive::Unknown) => Err(self.told.remove(address, requested).err().unwrap_or(NotLive::Unknown)),
            found => found,
        }
    }

    #[inline(never)]
    fn remove_other(&self, address: u64, requested: usize) -> Result<Block, NotLive> {
        match self.part(address).entry(address) {
            Entry::Vacant(_) => Err(NotLive::Unknown),
            Entry::Occupied(live) if live.get().requested != requested => Err(NotLive::Size(live.get().requested)),
            Entry::Occupied(live) => Ok(live.remove().block),
        }
    }

    /// Changes what is known of the uses of a block. `None` if no block is live there.
    pub fn change_uses<R>(&self, address: u64, change: impl FnOnce(&mut UsedBlock) -> R) -> Option<R> {
        let mut used = self.used.lock();
        if let Some(known) = used.get_mut(&address) {
            return Some(change(known));
        }
        let Err(NotLive::Size(requested)) = self.remove(address, NO_SIZE) else { return None };
        let block = self.remove(address, requested).ok()?;
        Some(change(
            used.entry(address)
                .insert_entry(UsedBlock { requested, block, uses: Vec::new(), is_held: false })
                .get_mut(),
        ))
    }

    /// Whether a block is live.
    pub fn has(&self, address: u64) -> bool {
        self.remove(address, NO_SIZE) != Err(NotLive::Unknown) || self.used.lock().contains_key(&address)
    }

    /// Removes a block that work of further streams uses. `None` if the block is held back: it stays.
    pub fn remove_used(&self, address: u64, requested: usize) -> Result<Option<UsedBlock>, NotLive> {
        match self.used.lock().entry(address) {
            Entry::Vacant(_) => Err(NotLive::Unknown),
            Entry::Occupied(live) if live.get().requested != requested => Err(NotLive::Size(live.get().requested)),
            Entry::Occupied(live) if live.get().is_held => Ok(None),
            Entry::Occupied(live) => Ok(Some(live.remove())),
        }
    }

    /// Puts a block back whose free was refused.
    pub fn put_back(&self, address: u64, used: UsedBlock) {
        self.used.lock().insert(address, used);
    }

    /// Whether a block is left.
    pub fn has_some(&mut self) -> bool {
        let all = &mut self.others;
        all.iter_mut().any(|part| !part.0.get_mut().is_empty())
            || !self.used.get_mut().is_empty()
            || self.told.has_some()
    }

    fn part(&self, address: u64) -> MutexGuard<'_, HashMap<u64, Other>> {
        // Most addresses share their low bits. The golden ratio moves the others to the top.
        let mixed = (address >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.others[(mixed >> (64 - PARTS)) as usize].0.lock()
    }
}

/// Whether [`told`] would return the block. What is known of former work matters only to the next user.
#[inline]
fn tells_all(address: u64, requested: usize, block: Block) -> bool {
    block.pending_use() != PendingUse::InGraph
        && told(address, requested, block.kind()) == block.with_pending_use(PendingUse::InStreamOrder)
}

/// The block with one address for all its users.
#[inline]
fn told(address: u64, requested: usize, kind: BlockKind) -> Block {
    let size = requested.max(1);
    match kind {
        BlockKind::Device => Block::device(address, size),
        _ => Block::unified(with_exposed_provenance_mut(address as usize), size).of_kind(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::without_provenance_mut;

    #[test]
    #[cfg_attr(miri, ignore = "walks a table of 4 MiB; the tests of the table itself use small ones")]
    fn every_block_comes_back_as_it_was_and_once() {
        let mut live = LiveBlocks::new().unwrap();
        let apart = |kind| Block::host(0x7000_0000, without_provenance_mut(0x9000), 100).of_kind(kind);
        let unified = Block::unified(without_provenance_mut(0x5000), 100);
        let blocks = [
            (0x1000, 100, Block::device(0x1000, 100)),
            (0x1001, 100, Block::device(0x1001, 100)),
            (0x1000, 0, Block::device(0x1000, 1)),
            (0x1000, 99, Block::device(0x1000, 100)),
            (0x1000, 50, Block::device(0x0f00, 1000)),
            (1 << 60, 100, Block::device(1 << 60, 100)),
            (0x1000, LARGEST, Block::device(0x1000, LARGEST)),
            (0x1000, LARGEST + 1, Block::device(0x1000, LARGEST + 1)),
            (0x5000, 100, unified),
            (0x5000, 100, unified.of_kind(BlockKind::Managed)),
            (0x7000_0000, 100, apart(BlockKind::Mapped)),
            (0x9000, 100, apart(BlockKind::NonCoherent)),
            (0x1000, 100, Block::device(0x1000, 100).with_pending_use(PendingUse::InGraph)),
        ];
        for (address, requested, block) in blocks {
            live.insert(address, requested, block);
            assert!(live.has_some());
            assert_eq!(live.remove(address, requested + 1), Err(NotLive::Size(requested)));
            assert_eq!(live.remove(address, requested), Ok(block));
            assert_eq!(live.remove(address, requested), Err(NotLive::Unknown));
            assert!(!live.has_some());
        }
    }
}
