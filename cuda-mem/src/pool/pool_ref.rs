//! The references to a pool that buffers hold.

use super::shared::SharedPool;
use super::source::memory_of_source;
use super::threads::cache_count;
use crate::cpu::presence::Inside;
use crate::cpu::thread_slots::ThreadSlot;
use crate::lifetime::{drop_after_host_function, inside_host_function};
use crate::memory::resource::{Block, Held, Keeping, MemoryResource, SharedResource};
use crate::{Error, Result, Stream};
use core::num::NonZeroUsize;
use std::sync::Arc;

/// A handle of the pool whose reference count buffers share. A pool has one for each thread cache, in cache lines of
/// its own, so that threads do not all write one count. `WATCHED` pools record a trace or their live blocks; others pay
/// nothing for it.
#[derive(Debug)]
#[repr(align(128))]
struct PoolRef<const WATCHED: bool> {
    core: Arc<SharedPool>,
}

/// All references to a pool.
#[derive(Debug)]
pub(super) struct PoolRefs {
    core: Arc<SharedPool>,
    refs: Box<[SharedResource]>,
}

impl PoolRefs {
    pub fn new(core: SharedPool) -> Self {
        let core = Arc::new(core);
        let reference = |core: Arc<SharedPool>| -> SharedResource {
            match core.watch {
                None => Arc::new(PoolRef::<false> { core }),
                Some(_) => Arc::new(PoolRef::<true> { core }),
            }
        };
        let refs = (0..cache_count()).map(|_| reference(core.clone())).collect();
        Self { core, refs }
    }

    pub fn core(&self) -> &Arc<SharedPool> {
        &self.core
    }

    /// The reference of the calling thread.
    #[inline]
    pub fn own(&self) -> &SharedResource {
        &self.refs[ThreadSlot::current().number() & (self.refs.len() - 1)]
    }
}

impl Drop for PoolRefs {
    fn drop(&mut self) {
        if inside_host_function() {
            return drop_after_host_function(Self { core: self.core.clone(), refs: core::mem::take(&mut self.refs) });
        }
        if !self.core.caches.release_held() {
            self.core.context().drop_errors().push("the end of a pool", no_membarrier());
        }
        if let (Some(watch), Some(hook)) = (&self.core.watch, &self.core.options.on_leak) {
            watch.last_handle_gone(hook, self.core.context().drop_errors());
        }
    }
}

#[cold]
fn no_membarrier() -> Error {
    Error::Unsupported {
        feature: "taking back what the threads of a pool have cached",
        needs: "the system call membarrier, which was allowed when the process made its first pool, and is not now: \
                allow it in the seccomp filter, or install the filter before the first pool. The pool's memory stays"
            .into(),
    }
}

// SAFETY: the heap's blocks lie in memory of the source and do not overlap. A stream gets a block if the work of
// the block's former streams runs before the stream's next work.
unsafe impl<const WATCHED: bool> MemoryResource for PoolRef<WATCHED> {
    #[inline]
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        match &self.core.watch {
            Some(watch) if WATCHED => watch.allocated(size, stream, self.core.allocate(size, alignment, stream)),
            _ => self.core.allocate(size, alignment, stream),
        }
    }

    #[inline]
    fn allocate_held(&self, size: usize, alignment: usize, stream: &Stream, held: &mut Option<Held>) -> Result<Block> {
        if WATCHED {
            return self.allocate(size, alignment, stream);
        }
        self.core.allocate_held(size, alignment, stream, held)
    }

    #[inline]
    fn cache_set_id(&self) -> Option<NonZeroUsize> {
        if WATCHED { None } else { Some(self.core.caches.cache_set_id()) }
    }

    #[inline]
    unsafe fn keep(&self, inside: &Inside<'_>, block: &Block, held: (*const SharedResource, *const Stream)) -> Keeping {
        // SAFETY: this method's contract; the id is that of the pool's caches.
        unsafe { self.core.keep(inside, block, held) }
    }

    #[inline]
    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        match &self.core.watch {
            Some(watch) if WATCHED => watch.freed(block, stream, || self.core.deallocate(block, stream)),
            _ => self.core.deallocate(block, stream),
        }
    }

    unsafe fn abandon(&self, block: Block) {
        if let Some(watch) = self.core.watch.as_ref().filter(|_| WATCHED) {
            watch.abandoned(block);
        }
        self.core.abandon(block);
    }

    fn frees_without_context(&self) -> bool {
        true
    }

    memory_of_source!(self => self.core.source);
}
