//! The pool as buffers hold it.

use super::central::Core;
use super::threads::{front_count, thread_number};
use crate::later::{drop_later, inside_host_function};
use crate::resource::{Accessibility, Block, MemoryResource, SharedResource};
use crate::{Context, Result, Stream};
use std::sync::Arc;

/// What buffers count references to: one for each front, so that threads do not all write one count. Alone in its cache
/// lines. Whether the pool notes what is done with its blocks is part of the type, so that it costs nothing where it does
/// not.
#[derive(Debug)]
#[repr(align(128))]
struct Share<const WATCHED: bool> {
    core: Arc<Core>,
}

/// All of a pool's shares.
#[derive(Debug)]
pub(super) struct Shares {
    core: Arc<Core>,
    shares: Box<[SharedResource]>,
}

impl Shares {
    pub fn new(core: Core) -> Self {
        let core = Arc::new(core);
        let share = |core: Arc<Core>| -> SharedResource {
            match core.watch {
                None => Arc::new(Share::<false> { core }),
                Some(_) => Arc::new(Share::<true> { core }),
            }
        };
        let shares = (0..front_count()).map(|_| share(core.clone())).collect();
        Self { core, shares }
    }

    pub fn core(&self) -> &Core {
        &self.core
    }

    #[inline]
    pub fn share(&self) -> SharedResource {
        self.shares[thread_number() & (self.shares.len() - 1)].clone()
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        if inside_host_function() {
            return drop_later(Self { core: self.core.clone(), shares: core::mem::take(&mut self.shares) });
        }
        if let (Some(watch), Some(hook)) = (&self.core.watch, &self.core.options.on_leak) {
            watch.last_handle_gone(hook, self.core.context().drop_errors());
        }
    }
}

// SAFETY: the heap's blocks do not overlap, and lie in memory of the source; the order lets a stream have a block when
// work of its former streams comes before.
unsafe impl<const WATCHED: bool> MemoryResource for Share<WATCHED> {
    #[inline]
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        match &self.core.watch {
            Some(watch) if WATCHED => watch.allocated(size, stream, self.core.allocate(size, alignment, stream)),
            _ => self.core.allocate(size, alignment, stream),
        }
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
        // SAFETY: the caller's contract.
        unsafe { self.core.abandon(block) };
    }

    fn frees_without_context(&self) -> bool {
        // A block of the fallback is freed by the driver.
        self.core.strays.is_none()
    }

    fn context(&self) -> &Context {
        self.core.context()
    }

    fn accessibility(&self) -> Accessibility {
        self.core.upstream.accessibility()
    }

    fn is_on_device(&self) -> bool {
        self.core.upstream.is_on_device()
    }

    fn atom(&self, block: Block) -> usize {
        self.stray(block).map_or(self.core.atom, |source| source.atom(block))
    }

    fn is_coherent(&self, block: Block) -> bool {
        self.stray(block).map_or(self.core.is_coherent, |source| source.is_coherent(block))
    }

    unsafe fn invalidate(&self, start: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.source_at(start).invalidate(start, length) }
    }

    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.source_at(start).begin_write(start, length) }
    }

    fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        self.source_at(start).flush(start, length)
    }
}

impl<const WATCHED: bool> Share<WATCHED> {
    /// The fallback, if the block is of it.
    fn stray(&self, block: Block) -> Option<&SharedResource> {
        self.core.strays.as_ref().and_then(|strays| strays.of(block))
    }

    fn source_at(&self, start: *mut u8) -> &SharedResource {
        self.core.strays.as_ref().and_then(|strays| strays.at(start)).unwrap_or(&self.core.upstream)
    }
}
