//! Blocks of the fallback: what a pool has given out without having it.

use crate::callback::or_undo;
use crate::resource::{Block, SharedResource};
use crate::{Result, Stream};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The fallback and its blocks.
#[derive(Debug)]
pub(super) struct Strays {
    source: SharedResource,
    /// By the address for devices.
    blocks: Mutex<BTreeMap<u64, Block>>,
    /// How many there are. Who frees one has been given it, and with it the knowledge that there is one.
    count: AtomicUsize,
}

impl Strays {
    pub fn new(source: SharedResource) -> Self {
        Self { source, blocks: Mutex::default(), count: AtomicUsize::new(0) }
    }

    pub fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        let block = self.source.allocate(size, alignment, stream)?;
        self.blocks().insert(block.device_pointer, block);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(block)
    }

    /// Frees a block, if it is one of the fallback's.
    #[inline]
    pub fn deallocate(&self, block: Block, stream: &Stream) -> Option<Result<()>> {
        let block = self.forget(block)?;
        let undo = || {
            self.blocks().insert(block.device_pointer, block);
            self.count.fetch_add(1, Ordering::Relaxed);
        };
        // SAFETY: the caller's contract: the block is freed once, and only work given to the stream uses it.
        Some(or_undo(|| unsafe { self.source.deallocate(block, stream) }, undo))
    }

    /// Forgets a block with its context, if it is one of the fallback's.
    ///
    /// # Safety
    ///
    /// As of [`MemoryResource::abandon`](crate::memory::MemoryResource::abandon).
    pub unsafe fn abandon(&self, block: Block) -> bool {
        // SAFETY: the caller's contract; the fallback gave the block.
        self.forget(block).map(|block| unsafe { self.source.abandon(block) }).is_some()
    }

    /// The source of the memory at an address of the CPU, if that is the fallback.
    pub fn at(&self, start: *mut u8) -> Option<&SharedResource> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let holds = |block: &Block| start.addr().wrapping_sub(block.host_pointer.addr()) < block.size;
        self.blocks().values().any(holds).then_some(&self.source)
    }

    /// The source of a block, if that is the fallback.
    pub fn of(&self, block: Block) -> Option<&SharedResource> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.blocks().contains_key(&block.device_pointer).then_some(&self.source)
    }

    #[inline]
    fn forget(&self, block: Block) -> Option<Block> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let known = self.blocks().remove(&block.device_pointer)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(known)
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeMap<u64, Block>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
