//! What every source of memory has in common: blocks, the traits, kinds of memory, and where memory lies.
//!
//! Private: [`memory`](crate::memory) has all of it for users, beside the sources of this crate. What holds memory knows this,
//! and no source.

pub(crate) mod host;
pub mod kind;
mod location;
mod pointer;

use crate::descriptor::BlockExport;
use crate::{Context, Error, Result, Stream};
use core::fmt::Debug;
use core::ptr;
use cuda_sys::{CUdeviceptr, CUresult};
use kind::Any;
use std::sync::Arc;

pub use kind::{Accessibility, DeviceAccessible, HostAccessible, Kind};
pub use location::Location;
pub(crate) use location::check_node;
pub use pointer::PointerInfo;

/// A piece of memory as a resource gives it. Plain data: who has it, frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address for devices and for the driver's copies; 0 for a block of no bytes.
    pub device_pointer: CUdeviceptr,
    /// The address for the CPU; null where the CPU does not address the memory.
    pub host_pointer: *mut u8,
    /// The size in bytes: at least what was asked for.
    pub size: usize,
}

// SAFETY: addresses are numbers here; what is behind them is the holder's care.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block of no bytes.
    pub const EMPTY: Self = Self { device_pointer: 0, host_pointer: ptr::null_mut(), size: 0 };

    /// Memory that the CPU does not address.
    pub fn device(device_pointer: CUdeviceptr, size: usize) -> Self {
        Self { device_pointer, host_pointer: ptr::null_mut(), size }
    }

    /// Memory that CPU and device address alike.
    pub fn unified(pointer: *mut u8, size: usize) -> Self {
        Self { device_pointer: pointer.addr() as CUdeviceptr, host_pointer: pointer, size }
    }
}

/// A source of memory. Object-safe: adaptors, pools and buffers hold sources as [`SharedResource`].
///
/// Programs allocate with [`Buffer`](crate::Buffer); they implement this trait for sources of their own.
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
/// // SAFETY: the blocks are those of another resource, which keeps the promise.
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
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let stream = Stream::new(&context)?;
/// let source = Arc::new(Talkative(PinnedMemory::new(&context).share()));
/// assert_eq!(Buffer::from_slice(&source, &[1u8, 2, 3], &stream)?.to_vec()?, [1, 2, 3]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// # Safety
///
/// A block that [`allocate`](Self::allocate) gave is valid, for whom [`accessibility`](Self::accessibility) names and
/// for the driver's copies, for work given to the same stream after the call, until it is deallocated; it overlaps no
/// other block and is aligned as asked.
pub unsafe trait MemoryResource: Debug + Send + Sync {
    /// Allocates at least `size` bytes, at a multiple of `alignment`, for work of `stream` from now on. The memory is
    /// uninitialised.
    ///
    /// # Errors
    ///
    /// There is no room: [`Error::OutOfMemory`]; or the resource does not align so far: [`Error::InvalidArgument`] of the
    /// argument `alignment`, by which [`adaptor::Aligned`](crate::adaptor::Aligned) knows it.
    ///
    /// `size` is not 0, and `alignment` is a power of two: callers take care, and implementations need not.
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block>;

    /// Frees a block when the work given to `stream` so far is done. The call itself may wait for that.
    ///
    /// # Errors
    ///
    /// The driver refuses; the block is not freed.
    ///
    /// # Safety
    ///
    /// The block is of this resource, was not deallocated before, and only work given to `stream` so far uses it. The
    /// stream's context is alive.
    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()>;

    /// Whether [`deallocate`](Self::deallocate) calls the driver not at all, so that it may be called also when the context
    /// has ended. Who frees need not ask then whether it has, and calls no [`abandon`](Self::abandon).
    fn frees_without_context(&self) -> bool {
        false
    }

    /// Forgets a block: the context has ended, and the memory with it.
    ///
    /// # Safety
    ///
    /// The block is of this resource, and was neither deallocated nor abandoned before. The resource's context has ended,
    /// and nobody uses the block any more: the resource may give its memory to others, or free it.
    unsafe fn abandon(&self, _block: Block) {}

    /// The context that the resource works in.
    fn context(&self) -> &Context;

    /// Who may address the memory.
    fn accessibility(&self) -> Accessibility;

    /// Whether the memory lies on one device: its copies to other devices are then copies between peers.
    fn is_on_device(&self) -> bool {
        let Accessibility { host, managed, .. } = self.accessibility();
        !host && !managed
    }

    /// The unit in which [`flush`](Self::flush) and [`invalidate`](Self::invalidate) move a block's bytes. Parts of a
    /// block that are written independently must not share one.
    fn atom(&self, _block: Block) -> usize {
        1
    }

    /// Describes a block for other processes. Whoever gets the export may reach all of the source's allocation, so only a
    /// block that is a whole one is described: a resource that divides blocks of another refuses. One that gives another's
    /// blocks unchanged may pass its answer on.
    ///
    /// # Errors
    ///
    /// The resource's memory cannot be shared with other processes, which it cannot unless this is implemented; the
    /// driver refuses.
    fn export(&self, _block: Block) -> Result<BlockExport> {
        Err(Error::Unsupported {
            feature: "sharing memory of this resource with other processes",
            needs: "a whole allocation of its source: allocate it from VirtualMemory, from a shareable pool of the driver's, \
                    or from DeviceMemory itself, or use mapped memory; blocks of a pool over them are not exported".into(),
        })
    }

    /// Whether the CPU may use a block as it uses the heap, once the device work on it is done: without
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
    /// No reference to memory of the range's atoms is alive: their bytes change, as if another thread wrote them. What the
    /// CPU wrote there and has not flushed may be lost.
    unsafe fn invalidate(&self, _start: *mut u8, _length: usize) -> Result<()> {
        Ok(())
    }

    /// As [`invalidate`](Self::invalidate), for a range that the CPU is about to write. What it writes is not lost where
    /// nobody flushes it: the next invalidate posts it first. Gives whether it is so remembered, until a
    /// [`flush`](Self::flush) of the range; coherent memory has nothing to remember.
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

    /// Makes the CPU's writes of a range visible to device work given after this. The range lies within one block.
    ///
    /// # Errors
    ///
    /// The flush failed.
    fn flush(&self, _start: *mut u8, _length: usize) -> Result<()> {
        Ok(())
    }
}

/// A source of memory, shared by what holds its memory.
pub type SharedResource = Arc<dyn MemoryResource>;

/// What buffers are allocated from: a source whose kind of memory the compiler knows. All resources of this crate are
/// such handles, cheap to clone; a [`SharedResource`] is one too, of kind [`Any`].
///
/// # Safety
///
/// The memory of [`share`](Self::share) is of kind [`Kind`](Self::Kind).
pub unsafe trait ResourceHandle {
    /// The kind of the memory.
    type Kind: Kind;

    /// The source itself.
    fn share(&self) -> SharedResource;
}

// SAFETY: `Any` promises nothing.
unsafe impl ResourceHandle for SharedResource {
    type Kind = Any;

    fn share(&self) -> SharedResource {
        self.clone()
    }
}

// SAFETY: `Any` promises nothing.
unsafe impl<R: MemoryResource + 'static> ResourceHandle for Arc<R> {
    type Kind = Any;

    fn share(&self) -> SharedResource {
        self.clone()
    }
}

/// Checks that a resource's own alignment is enough for what is asked.
pub(crate) fn check_alignment(call: &'static str, alignment: usize, own: usize) -> Result<()> {
    if alignment <= own {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        call,
        argument: "alignment",
        value: alignment.to_string().into(),
        rule: "this resource aligns less; wrap it in `adaptor::Aligned`",
    })
}

/// Refuses slices of memory that other processes may write at any time.
#[cold]
pub(crate) fn no_slices(call: &'static str) -> Error {
    Error::InvalidArgument {
        call,
        argument: "the memory",
        value: "of a shareable pool, which every process that was given the pool may write at any time".into(),
        rule: "only copies of it are taken (copy_to_slice, copy_from_slice); allocate slices from a pool that is not shareable",
    }
}

/// Gives "no room" its own error, with what the device has free.
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
