//! Adaptors: resources that forward to an upstream resource, and count, limit, name, log, retry or fail its
//! allocations.
//!
//! Each is a handle of the same kind as its upstream, made from any [`ResourceHandle`], so adaptors stack in any order.
//! Calls that an adaptor does not handle go to the upstream unchanged. No adaptor holds a lock while it calls the
//! upstream.
//!
//! | adaptor | what it does |
//! |---|---|
//! | [`Statistics`] | counts bytes, blocks and failures, for all time and for sections of a program |
//! | [`Limit`] | refuses allocations that would exceed a number of bytes |
//! | [`Tracking`] | lists the blocks that are live, with [names](named) and backtraces; finds wrong frees |
//! | [`Logging`] | writes each allocation and free as a line of CSV |
//! | [`Recording`] | records the newest allocations and frees as a [trace] |
//! | [`Fallback`] | allocates from a second resource when the first is out of memory |
//! | [`Retry`] | calls a hook that may free memory, and tries again |
//! | [`Aligned`] | aligns blocks more strictly than the upstream |
//! | [`Guarded`] | finds writes outside of blocks and after their free |
//! | [`FailureInjection`] | fails allocations on purpose, for tests |
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::adaptor::{Limit, Statistics, Tracking, named};
//! use cuda_mem::{Buffer, memory::DeviceMemory};
//! let statistics = Statistics::new(&DeviceMemory::new(&context));
//! let tracking = Tracking::new(&Limit::new(&statistics, 1 << 20)); // tracking over a limit over statistics
//!
//! let weights = named("weights", || Buffer::from_slice(&tracking, &[1.0f32; 1000], &stream))?;
//! assert_eq!(tracking.live()[0].name.as_deref(), Some("weights"));
//! assert_eq!(statistics.counts().bytes.current, 4000);
//! assert!(Buffer::<f32, _>::zeroed(&tracking, 1 << 20, &stream).unwrap_err().is_out_of_memory());
//! drop(weights);
//! assert_eq!(statistics.counts().bytes.current, 0);
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod aligned;
mod counts;
mod failure_injection;
mod fallback;
mod guarded;
mod limit;
mod logging;
mod observe;
mod recording;
mod retry;
mod statistics;
pub mod trace;
mod tracking;

use crate::memory::peers::PeerSource;
use crate::memory::resource::{Accessibility, Block, MemoryResource, SharedResource};
use crate::{Context, Result, Stream};
use core::fmt::Debug;

#[cfg(doc)]
use crate::memory::ResourceHandle;

pub use crate::adaptor::trace::name::{current_name, named};
pub use crate::error::{Damage, DamagedPlace};
pub use aligned::Aligned;
pub use counts::{Count, Counts, SizeClasses};
pub use failure_injection::{FailWhen, FailureInjection};
pub use fallback::Fallback;
pub use guarded::{GuardOptions, Guarded};
pub use limit::Limit;
pub use logging::Logging;
pub(crate) use observe::{Observe, observed_free};
pub use recording::Recording;
pub use retry::{AfterFailure, Retry};
pub use statistics::{Section, Statistics};
pub(crate) use tracking::Account;
pub use tracking::{LeakReport, LiveBlock, Tracking};

/// How an adaptor changes allocations and frees. The upstream answers all other calls.
///
/// # Safety
///
/// Together with `upstream`, the adaptor keeps the contract of [`MemoryResource`].
unsafe trait Adapt: Debug + Send + Sync + 'static {
    /// Allocates a block, usually by a call of `upstream`. Arguments and errors: see [`MemoryResource::allocate`].
    fn allocate(&self, upstream: &SharedResource, size: usize, alignment: usize, stream: &Stream) -> Result<Block>;

    /// Frees a block of this adaptor after the work queued on `stream` so far. The default implementation frees it
    /// upstream.
    ///
    /// # Safety
    ///
    /// As for [`MemoryResource::deallocate`].
    unsafe fn deallocate(&self, upstream: &SharedResource, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract; the block is the upstream's own.
        unsafe { upstream.deallocate(block, stream) }
    }

    /// Forgets a block of this adaptor whose context has ended. The default implementation forgets it upstream.
    ///
    /// # Safety
    ///
    /// As for [`MemoryResource::abandon`].
    unsafe fn abandon(&self, upstream: &SharedResource, block: Block) {
        // SAFETY: the caller's contract; the block is the upstream's own.
        unsafe { upstream.abandon(block) };
    }

    /// Describes a block for other processes. The default implementation asks the upstream.
    #[cfg(feature = "sharing")]
    fn export(&self, upstream: &SharedResource, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        upstream.export(block)
    }
}

/// An adaptor with its upstream.
#[derive(Debug)]
struct Adapted<A> {
    adaptor: A,
    upstream: SharedResource,
}

// SAFETY: `Adapt` guarantees the contract for allocations and frees. The upstream answers the rest for its own memory.
unsafe impl<A: Adapt> MemoryResource for Adapted<A> {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        self.adaptor.allocate(&self.upstream, size, alignment, stream)
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.adaptor.deallocate(&self.upstream, block, stream) }
    }

    unsafe fn abandon(&self, block: Block) {
        // SAFETY: the caller's contract.
        unsafe { self.adaptor.abandon(&self.upstream, block) };
    }

    fn context(&self) -> &Context {
        self.upstream.context()
    }

    fn accessibility(&self) -> Accessibility {
        self.upstream.accessibility()
    }

    fn peer_source(&self) -> Option<PeerSource<'_>> {
        self.upstream.peer_source()
    }

    fn is_on_device(&self) -> bool {
        self.upstream.is_on_device()
    }

    fn atom(&self, block: Block) -> usize {
        self.upstream.atom(block)
    }

    fn is_coherent(&self, block: Block) -> bool {
        self.upstream.is_coherent(block)
    }

    #[cfg(feature = "sharing")]
    fn export(&self, block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        self.adaptor.export(&self.upstream, block)
    }

    unsafe fn invalidate(&self, start: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.invalidate(start, length) }
    }

    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.begin_write(start, length) }
    }

    unsafe fn store(&self, start: *mut u8, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.store(start, bytes) }
    }

    unsafe fn load(&self, start: *mut u8, to: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.load(start, to, length) }
    }

    unsafe fn flush(&self, start: *mut u8, length: usize) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.upstream.flush(start, length) }
    }
}

/// Declares a handle of kind `K`: a counted reference to a resource over resources of kind `K`.
macro_rules! handle {
    ($(#[$text:meta])* $name:ident holds $inner:ty) => {
        $(#[$text])*
        pub struct $name<K = crate::memory::kind::Any> {
            inner: std::sync::Arc<$inner>,
            kind: core::marker::PhantomData<K>,
        }

        impl<K> $name<K> {
            fn from_inner(inner: $inner) -> Self {
                Self { inner: std::sync::Arc::new(inner), kind: core::marker::PhantomData }
            }
        }

        impl<K> Clone for $name<K> {
            fn clone(&self) -> Self {
                Self { inner: self.inner.clone(), kind: core::marker::PhantomData }
            }
        }

        impl<K> core::fmt::Debug for $name<K> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.inner.fmt(f)
            }
        }

        // SAFETY: the memory is that of the upstream resources; the constructors accept only handles of kind `K`.
        unsafe impl<K: crate::memory::resource::Kind> crate::memory::resource::ResourceHandle for $name<K> {
            type Kind = K;

            fn share(&self) -> crate::memory::resource::SharedResource {
                self.inner.clone()
            }
        }
    };
}
use handle;
