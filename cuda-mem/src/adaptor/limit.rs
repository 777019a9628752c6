//! A limit on allocated bytes.

use super::{Adapt, Adapted, handle};
use crate::error::callback::or_undo;
use crate::memory::resource::{Block, Kind, ResourceHandle, SharedResource};
use crate::{Error, Result, Stream};
use core::sync::atomic::{AtomicUsize, Ordering};

handle! {
    /// Refuses allocations beyond a number of bytes. The limit is exact for any number of threads: this reserves bytes
    /// before it calls the upstream, and releases them after the upstream has freed the block. Cheap to clone; the
    /// clones share the limit.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, Error, adaptor::Limit, memory::DeviceMemory};
    /// let limit = Limit::new(&DeviceMemory::new(&context), 1000);
    /// let buffer = Buffer::<u8, _>::zeroed(&limit, 900, &stream)?;
    /// match Buffer::<u8, _>::zeroed(&limit, 101, &stream) {
    ///     Err(Error::LimitReached { requested, used, limit, .. }) => assert_eq!((requested, used, limit), (101, 900, 1000)),
    ///     other => panic!("{other:?}"),
    /// }
    /// drop(buffer);
    /// assert_eq!(limit.available(), 1000);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    Limit holds Adapted<Budget>
}

impl<K: Kind> Limit<K> {
    /// Allows at most `bytes` live bytes from `upstream` through the new handle.
    pub fn new<R: ResourceHandle<Kind = K> + ?Sized>(upstream: &R, bytes: usize) -> Self {
        Self::from_inner(Adapted { adaptor: Budget::new(bytes), upstream: upstream.share() })
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.inner.adaptor.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. A limit below the used bytes frees nothing, and refuses allocations until enough is freed.
    pub fn set_limit(&self, bytes: usize) {
        self.inner.adaptor.limit.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that are allocated, or are being allocated.
    pub fn used(&self) -> usize {
        self.inner.adaptor.used.load(Ordering::Relaxed)
    }

    /// The bytes that may still be allocated.
    pub fn available(&self) -> usize {
        self.limit().saturating_sub(self.used())
    }
}

/// The limit and the bytes in use. Relaxed: the counts order no other memory.
#[derive(Debug)]
struct Budget {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl Budget {
    fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), used: AtomicUsize::new(0) }
    }

    /// Reserves bytes. If there is no room, the error reports the size `requested`.
    fn reserve(&self, bytes: usize, requested: usize) -> Result<()> {
        let limit = self.limit.load(Ordering::Relaxed);
        let within = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit || bytes == 0);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(()),
            Err(used) => Err(Error::LimitReached { call: "Limit::allocate", requested, used, limit }),
        }
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: the blocks are the upstream's, unchanged.
unsafe impl Adapt for Budget {
    fn allocate(&self, upstream: &SharedResource, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        self.reserve(size, size)?;
        let block = or_undo(|| upstream.allocate(size, alignment, stream), || self.release(size))?;
        // Some resources allocate more than requested, for example whole pages.
        let Err(error) = self.reserve(block.size().saturating_sub(size), block.size()) else { return Ok(block) };
        // SAFETY: the upstream has just returned the block, and nobody uses it.
        match unsafe { upstream.deallocate(block, stream) } {
            Ok(()) => self.release(size),
            Err(error) => {
                // The block remains allocated, although nobody uses it.
                self.used.fetch_add(block.size() - size, Ordering::Relaxed);
                upstream.context().drop_errors().push("giving back a block that goes over a limit", error);
            }
        }
        Err(error)
    }

    unsafe fn deallocate(&self, upstream: &SharedResource, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { upstream.deallocate(block, stream) }?;
        self.release(block.size());
        Ok(())
    }

    unsafe fn abandon(&self, upstream: &SharedResource, block: Block) {
        // SAFETY: the caller's contract.
        unsafe { upstream.abandon(block) };
        self.release(block.size());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_fits_and_one_more_does_not() {
        let budget = Budget::new(100);
        budget.reserve(60, 60).unwrap();
        budget.reserve(40, 40).unwrap();
        let error = budget.reserve(1, 7).unwrap_err();
        assert_eq!(error, Error::LimitReached { call: "Limit::allocate", requested: 7, used: 100, limit: 100 });
        assert!(budget.reserve(usize::MAX, usize::MAX).is_err(), "the sum overflows");
        budget.release(60);
        assert!(budget.reserve(61, 61).is_err());
        budget.reserve(60, 60).unwrap();
        budget.limit.store(10, Ordering::Relaxed);
        budget.reserve(0, 5).unwrap();
        assert!(budget.reserve(1, 1).is_err());
    }

    #[test]
    fn threads_never_go_over_and_nothing_is_lost() {
        let budget = Budget::new(100);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for seed in 1..5 {
                let (budget, most) = (&budget, &most);
                scope.spawn(move || {
                    for round in 0..50 {
                        let bytes = (round * seed) % 60 + 1;
                        if budget.reserve(bytes, bytes).is_ok() {
                            most.fetch_max(budget.used.load(Ordering::Relaxed), Ordering::Relaxed);
                            budget.release(bytes);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
        assert!((1..=100).contains(&most.load(Ordering::Relaxed)));
    }
}
