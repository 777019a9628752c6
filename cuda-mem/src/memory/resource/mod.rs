//! What all sources of memory share: blocks, traits, kinds of memory, and locations.
//!
//! This module is private; [`memory`](crate::memory) exports it to users, beside the sources of this crate. The types
//! that hold memory depend on this module and on no source.

mod block;
mod block_table;
mod coherence;
mod free;
mod held;
pub(crate) mod host;
pub mod kind;
mod location;
mod pointer;

use crate::cpu::host_copy;
use crate::cpu::presence::Inside;
use crate::memory::peers::source_of;
use crate::{Context, Device, Error, Result, Stream};
use core::fmt::Debug;
use core::num::NonZeroUsize;
use cuda_sys::CUresult;
use kind::Any;
use std::sync::Arc;

pub use block::{Block, BlockKind, PendingUse};
pub(crate) use block_table::{BlockOwner, BlockTable};
pub use coherence::Coherence;
pub(crate) use held::{Held, Keeping};
pub use kind::{Accessibility, DeviceAccessible, HostAccessible, Kind};
pub use location::Location;
pub(crate) use location::check_node;
pub use pointer::PointerInfo;

/// A source of memory. Object-safe: adaptors, pools and buffers hold sources as [`SharedResource`].
///
/// Programs allocate with [`Buffer`](crate::Buffer); they implement this trait only for their own sources.
///
/// ```
/// use cuda_mem::memory::{Accessibility, Block, MemoryResource, PinnedMemory, ResourceHandle, SharedResource};
/// use cuda_mem::{Buffer, Context, Result, Stream};
/// use std::sync::Arc;
///
/// /// Pinned memory whose allocations are printed.
/// #[derive(Debug)]
/// struct Talkative(SharedResource);
///
/// // SAFETY: the blocks come from another resource, which fulfils this contract.
/// unsafe impl MemoryResource for Talkative {
///     fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
///         println!("{size} bytes");
///         self.0.allocate(size, alignment, stream)
///     }
///     unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
///         // SAFETY: the caller's contract.
///         unsafe { self.0.deallocate(block, stream) }
///     }
///     unsafe fn abandon(&self, block: Block) {
///         // SAFETY: the caller's contract.
///         unsafe { self.0.abandon(block) }
///     }
///     fn context(&self) -> &Context {
///         self.0.context()
///     }
///     fn accessibility(&self) -> Accessibility {
///         self.0.accessibility()
///     }
/// }
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = Stream::new(&context)?;
/// let source = Arc::new(Talkative(PinnedMemory::new(&context).share()));
/// assert_eq!(Buffer::from_slice(&source, &[1u8, 2, 3], &stream)?.to_vec()?, [1, 2, 3]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// # Safety
///
/// A block from [`allocate`](Self::allocate) is valid for the users that [`accessibility`](Self::accessibility) names
/// and for the driver's copies, in work queued on the same stream after the call, until it is deallocated. It overlaps
/// no other block and has the requested alignment. Its [kind](Block::kind) is true, and no work uses a block whose
/// former owners' work is [over](PendingUse::Over). [`atom`](Self::atom), [`is_coherent`](Self::is_coherent) and
/// [`frees_without_context`](Self::frees_without_context) say what holds for each block while it lives.
pub unsafe trait MemoryResource: Debug + Send + Sync {
    /// Allocates at least `size` bytes, at a multiple of `alignment`, for work queued on `stream` from now on. The
    /// memory is uninitialised.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if there is no room. [`Error::InvalidArgument`] for the argument `alignment` if the
    /// resource cannot align so; [`adaptor::Aligned`](crate::adaptor::Aligned) checks for that name. [`Error::Foreign`] for
    /// failures of a resource outside of this crate that are neither.
    ///
    /// Callers ensure that `size` is not 0, that `alignment` is a power of two, and that the stream is of the resource's
    /// driver. The resources of this crate refuse anything else.
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block>;

    /// Frees a block after the work queued on `stream` so far. The call may wait for that work.
    ///
    /// # Errors
    ///
    /// As every call of the driver; the block is not freed then.
    ///
    /// # Safety
    ///
    /// The block came from this resource and was not deallocated before. Only work queued on `stream` so far uses it.
    /// The stream's context is alive.
    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()>;

    /// Allocates a block, as [`allocate`](Self::allocate) does, and puts into `_held` the references that a freed
    /// buffer of the same home stream held, if the resource has [kept](Self::keep) some.
    #[doc(hidden)]
    #[inline]
    fn allocate_held(&self, size: usize, alignment: usize, stream: &Stream, _held: &mut Option<Held>) -> Result<Block> {
        self.allocate(size, alignment, stream)
    }

    /// The set of caches that threads enter for [`keep`](Self::keep). `None` if this resource keeps no references.
    #[doc(hidden)]
    #[inline]
    fn cache_set_id(&self) -> Option<NonZeroUsize> {
        None
    }

    /// Frees a block on the home stream by putting it into a cache, if that is possible at once. The cache may also
    /// take the references of the buffer. It may drop them at any time after the thread has left the caches, and the
    /// resource with them.
    ///
    /// # Safety
    ///
    /// As [`deallocate`](Self::deallocate). The thread is inside the resource's [set of caches](Self::cache_set_id). `held` points to a
    /// reference to this resource, or to another that frees the same blocks, and to the home stream. The caller does not
    /// use or drop them if they were taken.
    #[doc(hidden)]
    #[inline]
    unsafe fn keep(
        &self,
        _inside: &Inside<'_>,
        _block: &Block,
        _held: (*const SharedResource, *const Stream),
    ) -> Keeping {
        Keeping::Nothing
    }

    /// Whether [`deallocate`](Self::deallocate) never calls the driver. Callers may then deallocate after the context
    /// has ended: they skip the liveness check, and never call [`abandon`](Self::abandon).
    fn frees_without_context(&self) -> bool {
        false
    }

    /// Forgets a block after its context has ended, which also ended the memory.
    ///
    /// # Safety
    ///
    /// The block came from this resource, and was neither deallocated nor abandoned before. The resource's context has
    /// ended. Nobody uses the block any more: the resource may free its memory or reuse it.
    unsafe fn abandon(&self, _block: Block) {}

    /// The context in which the resource works.
    fn context(&self) -> &Context;

    /// Who may address the memory.
    fn accessibility(&self) -> Accessibility;

    /// The virtual memory of which a pool over this resource maps chunks, so that it grows in place. `None` if the pool
    /// must allocate regions from this resource.
    #[doc(hidden)]
    fn chunks(&self) -> Option<super::virtual_memory::ChunkSource> {
        None
    }

    /// What gives other devices access to the memory. `None` if nothing does, or if blocks differ in it.
    #[doc(hidden)]
    fn peer_source(&self) -> Option<super::peers::PeerSource<'_>> {
        None
    }

    /// Whether the memory lies on one device. Copies between such memory of different devices are peer copies.
    fn is_on_device(&self) -> bool {
        let Accessibility { host, managed, .. } = self.accessibility();
        !host && !managed
    }

    /// The unit in which [`flush`](Self::flush) and [`invalidate`](Self::invalidate) move a block's bytes. Parts of a
    /// block that are written independently must not share a unit.
    fn atom(&self, _block: Block) -> usize {
        1
    }

    /// Describes a block for other processes (feature `sharing`). A receiver may reach the source's whole allocation,
    /// so only a whole allocation can be exported. A resource that divides another resource's blocks must refuse; one
    /// that returns them unchanged may forward the call.
    ///
    /// # Errors
    ///
    /// The resource's memory cannot be shared with other processes (the default implementation returns this).
    #[cfg(feature = "sharing")]
    fn export(&self, _block: Block) -> Result<crate::memory::descriptor::BlockExport> {
        Err(Error::Unsupported {
            feature: "sharing memory of this resource with other processes",
            needs:
                "a whole allocation: allocate from VirtualMemory, from a shareable driver pool or from DeviceMemory \
                    itself, or use mapped memory; blocks of a pool over these cannot be exported"
                    .into(),
        })
    }

    /// Whether the CPU may use a block as it uses the heap once the device work on the block is done, without
    /// [`invalidate`](Self::invalidate) and [`flush`](Self::flush).
    fn is_coherent(&self, block: Block) -> bool {
        self.atom(block) == 1
    }

    /// Makes the device's writes of a range visible to the CPU. The range lies within one block.
    ///
    /// # Errors
    ///
    /// The invalidate failed.
    ///
    /// # Safety
    ///
    /// No reference to memory in the range's atoms is alive: their bytes change as if another thread wrote them.
    /// Unflushed CPU writes there may be lost.
    unsafe fn invalidate(&self, _start: *mut u8, _length: usize) -> Result<()> {
        Ok(())
    }

    /// Makes the device's writes of a range visible to the CPU, which is about to write the range. If nobody flushes
    /// these writes, the next invalidate flushes them first. Returns whether the resource remembers the range for that,
    /// until a [`flush`](Self::flush) of the range; coherent memory remembers nothing.
    ///
    /// # Errors
    ///
    /// The invalidate failed.
    ///
    /// # Safety
    ///
    /// As [`invalidate`](Self::invalidate).
    unsafe fn begin_write(&self, start: *mut u8, length: usize) -> Result<bool> {
        // SAFETY: the caller's contract.
        unsafe { self.invalidate(start, length) }.map(|()| false)
    }

    /// Writes bytes with CPU stores, and flushes them. Others may use other bytes of the same atoms at the same time.
    ///
    /// # Errors
    ///
    /// The flush failed.
    ///
    /// # Safety
    ///
    /// The range at `start` lies within one block, which the CPU can address. No reference to it is alive.
    unsafe fn store(&self, start: *mut u8, bytes: &[u8]) -> Result<()> {
        // SAFETY: this function's contract.
        unsafe {
            self.begin_write(start, bytes.len())?;
            host_copy::store(bytes.as_ptr(), start, bytes.len());
            self.flush(start, bytes.len())
        }
    }

    /// Reads `length` bytes with CPU loads, after an invalidate.
    ///
    /// # Errors
    ///
    /// The invalidate failed.
    ///
    /// # Safety
    ///
    /// As [`store`](Self::store). `to` is valid for writes of `length` bytes.
    unsafe fn load(&self, start: *mut u8, to: *mut u8, length: usize) -> Result<()> {
        // SAFETY: this function's contract.
        unsafe {
            self.invalidate(start, length)?;
            host_copy::load(start, to, length);
        }
        Ok(())
    }

    /// Makes the CPU's writes of a range visible to device work queued after this call. The range lies within one
    /// block.
    ///
    /// # Errors
    ///
    /// The flush failed.
    ///
    /// # Safety
    ///
    /// Nobody else uses memory in the range's atoms: the CPU's bytes replace what devices have written there.
    ///
    /// ```compile_fail,E0133
    /// # fn flush(resource: &cuda_mem::memory::SharedResource, another_owners: *mut u8) -> cuda_mem::Result<()> {
    /// resource.flush(another_owners, 1)
    /// # }
    /// ```
    unsafe fn flush(&self, _start: *mut u8, _length: usize) -> Result<()> {
        Ok(())
    }
}

/// A source of memory. All holders of its memory share it.
pub type SharedResource = Arc<dyn MemoryResource>;

/// What buffers are allocated from: a source whose kind of memory the compiler knows. All resources of this crate are
/// such handles, cheap to clone. A [`SharedResource`] is a handle of kind [`Any`].
///
/// # Safety
///
/// [`share`](Self::share) returns a resource with memory of kind [`Kind`](Self::Kind).
pub unsafe trait ResourceHandle {
    /// The kind of the memory.
    type Kind: Kind;

    /// The source itself.
    fn share(&self) -> SharedResource;

    /// The source without a new reference, if the handle has it as such.
    #[doc(hidden)]
    #[inline]
    fn shared_resource(&self) -> Option<&SharedResource> {
        None
    }

    /// Lets a device's kernels and copies access the memory of this source directly: all its present and future memory.
    /// Copies between devices do so at their first need; kernels that address another device's memory need this call.
    /// The first call for a source and a device verifies the access by two copies of a few bytes, as soon as the device has
    /// a primary context.
    ///
    /// [`DeviceMemory`](crate::memory::DeviceMemory), [`DevicePool`](crate::memory::DevicePool),
    /// [`VirtualMemory`](crate::memory::VirtualMemory), and pools and adaptors over these can do this. For `DeviceMemory`
    /// it concerns all plain memory of the context, and the device's primary context; see
    /// [`Context::allow_access`](crate::Context::allow_access) for other contexts.
    ///
    /// ```
    /// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
    /// # let context = driver.device(0)?.primary_context()?;
    /// use cuda_mem::memory::{DeviceMemory, ResourceHandle};
    /// use cuda_mem::pool::{Pool, PoolOptions};
    /// let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
    /// pool.allow_access(&driver.device(1)?)?; // also to what the pool grows by
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The devices have no path to each other, or the access does not work: [`Error::Peer`]. The source has other memory:
    /// [`Error::Unsupported`].
    #[doc(alias("cuCtxEnablePeerAccess", "cuMemPoolSetAccess", "cuMemSetAccess"))]
    fn allow_access(&self, device: &Device) -> Result<()> {
        const CALL: &str = "allow_access";
        source_of(CALL, &self.share())?.allow_device(CALL, device)
    }

    /// Takes a device its access to the memory of this source. Waits for the work of the device's primary context first;
    /// work in other contexts must be done. From then on, copies go through the host, until the program allows access
    /// again.
    ///
    /// # Errors
    ///
    /// The memory lies on the device itself. Work of the device failed. The source has other memory:
    /// [`Error::Unsupported`].
    fn deny_access(&self, device: &Device) -> Result<()> {
        const CALL: &str = "deny_access";
        source_of(CALL, &self.share())?.deny_device(CALL, device)
    }
}

// SAFETY: `Any` promises nothing.
unsafe impl ResourceHandle for SharedResource {
    type Kind = Any;

    fn share(&self) -> SharedResource {
        self.clone()
    }

    #[inline]
    fn shared_resource(&self) -> Option<&SharedResource> {
        Some(self)
    }
}

// SAFETY: `Any` promises nothing.
unsafe impl<R: MemoryResource + 'static> ResourceHandle for Arc<R> {
    type Kind = Any;

    fn share(&self) -> SharedResource {
        self.clone()
    }
}

/// Checks an allocation by a resource that aligns to multiples of `own`.
#[inline]
pub(crate) fn check_request(
    call: &'static str,
    (size, alignment): (usize, usize),
    own: usize,
    context: &Context,
    stream: &Stream,
) -> Result<()> {
    check_shape(call, size, alignment, own)?;
    check_driver(call, context, stream)
}

/// Checks size and alignment of an allocation by a resource that aligns to multiples of `own`.
#[inline]
pub(crate) fn check_shape(call: &'static str, size: usize, alignment: usize, own: usize) -> Result<()> {
    let fits = size != 0 && alignment.is_power_of_two() && alignment <= own;
    if fits { Ok(()) } else { Err(refused_shape(call, size, alignment, own)) }
}

#[cold]
fn refused_shape(call: &'static str, size: usize, alignment: usize, largest: usize) -> Error {
    if size == 0 {
        return Error::invalid(call, "size", size, "a block has at least one byte; an empty buffer needs none");
    }
    match alignment.is_power_of_two() {
        true => Error::Alignment { call, alignment, largest },
        false => Error::invalid(call, "alignment", alignment, "it must be a power of two"),
    }
}

/// Checks that a stream belongs to a resource's driver. A handle of another driver may be anything here.
#[inline]
pub(crate) fn check_driver(call: &'static str, context: &Context, stream: &Stream) -> Result<()> {
    // The comparison of contexts mostly compares one address.
    if stream.context() == context {
        return Ok(());
    }
    context.driver().check_same(call, "stream", stream.context().driver())
}

/// Refuses slices of memory that other processes may write at any time.
#[cold]
pub(crate) fn no_slices(call: &'static str) -> Error {
    Error::invalid(
        call,
        "the memory",
        "of a shareable pool, which every process that received the pool may write at any time",
        "the CPU may only copy it (copy_to_slice, copy_from_slice); for slices, use a pool that is not shareable",
    )
}

/// Maps the driver's out-of-memory code to [`Error::OutOfMemory`].
pub(crate) fn out_of_memory(call: &'static str, error: Error, requested: usize, context: &Context) -> Error {
    if error.driver_code() != Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
        return error;
    }
    Error::OutOfMemory {
        call,
        requested,
        device: context.device().name().unwrap_or_default().into(),
        free: context.memory_info().ok().map(|info| info.free),
        message: error.to_string().into(),
    }
}
