//! Memory of one resource that programs name by its address.

use super::calls::named;
use super::live::LiveBlocks;
use super::table::NotLive;
use crate::driver::context::Liveness;
use crate::memory::resource::{Accessibility, Block, Kind, ResourceHandle, SharedResource, kind::Any};
use crate::pool::Pool;
use crate::pool::shared::SharedPool;
use crate::{Context, Error, Result, Stream, check_not_forked};
use cuda_sys::{CU_STREAM_LEGACY, CUdeviceptr, CUstream};
use std::sync::Arc;

const MALLOC: &str = "Addresses::malloc";
const FREE: &str = "Addresses::free";

/// Memory of one resource that programs free by its address.
///
/// For allocators that other libraries call: they pass an address, a size and a stream's handle, and keep no value. Of
/// a pool, a pair takes no lock that all threads share and allocates no host memory, and the time of a call does not
/// depend on the number of blocks. The blocks of other resources, and those whose address alone does not tell where
/// they begin, are in maps with locks.
///
/// Streams are handles of the driver, of any library, of the context of the memory. A handle is used only during the
/// calls that name it; the caller may destroy the stream after any call. A null handle is the legacy default stream.
///
/// Of a pool, frees on streams that may have ended are limited as [`AddressPools`](crate::pool::AddressPools) says.
///
/// If this is dropped before its blocks are freed, their memory stays until the process ends.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::memory::{Accessibility, PinnedMemory};
/// use cuda_mem::pool::{Addresses, Pool, PoolOptions};
/// let memory = Addresses::of_pool(&Pool::new(&PinnedMemory::new(&context), &PoolOptions::default())?)?;
/// let stream = cuda_mem::Stream::new(&context)?;
/// // SAFETY: the stream lives, and no work uses the memory after the free.
/// unsafe {
///     let address = memory.malloc(1000, 64, Accessibility::BOTH, stream.raw())?;
///     memory.free(address, 1000, stream.raw())?;
///     assert!(memory.free(address, 1000, stream.raw()).is_err()); // freed twice
/// }
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Debug)]
pub struct Addresses<K: Kind = Any> {
    source: AddressSource<K>,
    accessibility: Accessibility,
    pub(super) live: LiveBlocks,
}

#[derive(Debug)]
enum AddressSource<K> {
    /// A pool that records nothing about its blocks. Its thread caches serve calls without a value of the stream.
    Direct(Pool<K>),
    /// A pool that records a trace or its live blocks.
    Watched(Pool<K>),
    Resource(SharedResource),
}

impl<K: Kind> Addresses<K> {
    /// Memory of a resource. For a pool use [`of_pool`](Self::of_pool), which is faster.
    ///
    /// # Errors
    ///
    /// The host has no memory for the table of blocks.
    pub fn new<R>(resource: &R) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        let resource = resource.share();
        Self::over(resource.accessibility(), AddressSource::Resource(resource))
    }

    /// Memory of a pool.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn of_pool(pool: &Pool<K>) -> Result<Self> {
        let source = match pool.core().watch {
            None => AddressSource::Direct(pool.clone()),
            Some(_) => AddressSource::Watched(pool.clone()),
        };
        Self::over(pool.upstream().accessibility(), source)
    }

    fn over(accessibility: Accessibility, source: AddressSource<K>) -> Result<Self> {
        let Some(live) = LiveBlocks::new() else {
            let rule = "the host must have memory for the table of blocks";
            return Err(Error::invalid("Addresses::new", "the table", "4 MiB of addresses", rule));
        };
        Ok(Self { source, accessibility, live })
    }

    /// The pool, for statistics and snapshots. `None` for another resource.
    pub fn pool(&self) -> Option<&Pool<K>> {
        match &self.source {
            AddressSource::Direct(pool) | AddressSource::Watched(pool) => Some(pool),
            AddressSource::Resource(_) => None,
        }
    }

    pub(super) fn resource(&self) -> SharedResource {
        match &self.source {
            AddressSource::Direct(pool) | AddressSource::Watched(pool) => pool.share(),
            AddressSource::Resource(resource) => resource.clone(),
        }
    }

    /// Allocates `size` bytes at a multiple of `alignment`, for work of a stream. 0 bytes have an address too.
    ///
    /// The address is one for all users that `access` names: [`Accessibility::DEVICE`], [`HOST`](Accessibility::HOST)
    /// or [`BOTH`](Accessibility::BOTH). The CPU may use the memory when the stream's work is done. If the resource does
    /// not align so far by itself, the block is larger by the alignment.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; the resource's memory has no such users, or no common address for them; the stream is of
    /// another context; this crate captures the stream ([`Error::Capturing`]).
    ///
    /// # Safety
    ///
    /// `stream` is null, one of the driver's constants for default streams, or a stream of the resource's context that
    /// lives during the call. No other thread begins or ends a capture of it meanwhile.
    #[doc(alias = "cuMemAllocAsync")]
    #[inline]
    pub unsafe fn malloc(
        &self,
        size: usize,
        alignment: usize,
        access: Accessibility,
        stream: CUstream,
    ) -> Result<CUdeviceptr> {
        // SAFETY: this function's contract.
        unsafe { self.malloc_in(MALLOC, size, alignment, access, stream) }
    }

    /// Frees memory that only work queued on `stream` so far still uses. The stream may be another one than that of the
    /// allocation: the next user gets the memory after the work of this stream.
    ///
    /// # Errors
    ///
    /// No live block of this size begins at the address: it was freed before, has another size, or is from elsewhere.
    /// The stream is of another context. After an error nothing is freed.
    ///
    /// The address may have been handed out again after the first of two frees. Then a second free of the same size
    /// frees the new block.
    ///
    /// # Safety
    ///
    /// As for [`malloc`](Self::malloc). The caller does not use the memory in work that it queues later. If `stream` is
    /// another one than that of the allocation, its work so far comes after the allocation, as all uses of the memory do;
    /// [`Pool`] does not need this.
    #[doc(alias = "cuMemFreeAsync")]
    #[inline]
    pub unsafe fn free(&self, address: CUdeviceptr, size: usize, stream: CUstream) -> Result<()> {
        // SAFETY: this function's contract.
        unsafe { self.free_in(FREE, address, size, stream) }
    }

    /// # Safety
    ///
    /// As [`malloc`](Self::malloc).
    #[inline]
    pub(super) unsafe fn malloc_in(
        &self,
        call: &'static str,
        size: usize,
        alignment: usize,
        access: Accessibility,
        stream: CUstream,
    ) -> Result<CUdeviceptr> {
        if !alignment.is_power_of_two() || !self.has_users(access) {
            return Err(self.refused(call, alignment, access));
        }
        let stream = not_null(stream);
        // SAFETY: this function's contract.
        let block = unsafe { self.allocate(call, size.max(1), stream) }?;
        match address_of(block, access) {
            Some(address) if address.is_multiple_of(alignment as u64) => {
                self.live.insert(address, size, block);
                Ok(address)
            }
            // SAFETY: as above. Nobody has got the block.
            _ => unsafe {
                self.deallocate(call, block, stream)?;
                self.malloc_aligned(call, size, alignment, access, stream)
            },
        }
    }

    /// Allocates a block that is larger by the alignment.
    ///
    /// # Safety
    ///
    /// As [`malloc`](Self::malloc).
    #[cold]
    unsafe fn malloc_aligned(
        &self,
        call: &'static str,
        size: usize,
        alignment: usize,
        access: Accessibility,
        stream: CUstream,
    ) -> Result<CUdeviceptr> {
        let Some(room) = size.max(1).checked_add(alignment) else { return Err(self.too_large(call, size)) };
        // SAFETY: this function's contract.
        let block = unsafe { self.allocate(call, room, stream) }?;
        let Some(start) = address_of(block, access) else {
            // SAFETY: as above. Nobody has got the block.
            unsafe { self.deallocate(call, block, stream) }?;
            let (device, host) = (block.device_pointer(), block.host_pointer());
            let rule = "they must be one: use pinned or managed memory, or a pool of it";
            return Err(Error::invalid(call, "access", format_args!("for addresses {device:#x} and {host:p}"), rule));
        };
        let address = start.next_multiple_of(alignment as u64);
        self.live.insert(address, size, block);
        Ok(address)
    }

    /// # Safety
    ///
    /// As [`free`](Self::free).
    #[inline]
    pub(super) unsafe fn free_in(
        &self,
        call: &'static str,
        address: CUdeviceptr,
        size: usize,
        stream: CUstream,
    ) -> Result<()> {
        check_not_forked(call)?;
        let block = match self.live.remove(address, size) {
            Ok(block) => block,
            // SAFETY: this function's contract.
            Err(why) => return unsafe { self.free_used(call, address, size, stream, why) },
        };
        // SAFETY: this function's contract. The block is this thread's, because it has removed it from the table.
        let freed = unsafe { self.deallocate(call, block, not_null(stream)) };
        if freed.is_err() {
            self.live.insert(address, size, block);
        }
        freed
    }

    /// # Safety
    ///
    /// As [`malloc`](Self::malloc).
    #[inline]
    unsafe fn allocate(&self, call: &'static str, size: usize, stream: CUstream) -> Result<Block> {
        match &self.source {
            // SAFETY: this function's contract.
            AddressSource::Direct(pool) => unsafe { pool.refs.core().allocate_for(call, size, stream) },
            // SAFETY: as above.
            _ => unsafe { self.allocate_by_value(call, size, stream) },
        }
    }

    /// # Safety
    ///
    /// As [`malloc`](Self::malloc).
    #[inline(never)]
    unsafe fn allocate_by_value(&self, call: &'static str, size: usize, stream: CUstream) -> Result<Block> {
        check_not_forked(call)?;
        if size > isize::MAX as usize {
            return Err(self.too_large(call, size));
        }
        let resource = self.resource();
        // SAFETY: this function's contract.
        let stream = unsafe { named(call, resource.context(), stream) }?;
        resource.allocate(size, 1, &stream)
    }

    /// # Safety
    ///
    /// As [`free`](Self::free). The block is of this resource, and the caller's alone.
    #[inline]
    unsafe fn deallocate(&self, call: &'static str, block: Block, stream: CUstream) -> Result<()> {
        match &self.source {
            // SAFETY: this function's contract.
            AddressSource::Direct(pool) => match unsafe { pool.refs.core().deallocate_for(call, block, stream) } {
                Err(error) => end_with_context(pool.refs.core(), block, error),
                freed => freed,
            },
            // SAFETY: as above.
            _ => unsafe { self.deallocate_by_value(call, block, stream) },
        }
    }

    /// # Safety
    ///
    /// As [`deallocate`](Self::deallocate).
    #[inline(never)]
    unsafe fn deallocate_by_value(&self, call: &'static str, block: Block, stream: CUstream) -> Result<()> {
        check_not_forked(call)?;
        let resource = self.resource();
        let context = resource.context();
        match context.liveness() {
            Liveness::Alive => {
                // SAFETY: this function's contract.
                let stream = unsafe { named(call, context, stream) }?;
                // The program may have another value for the stream, so that this one is not the last.
                stream.note_unmarked_work();
                // SAFETY: as above.
                unsafe { resource.deallocate(block, &stream) }
            }
            _ if resource.frees_without_context() => {
                // SAFETY: as above. The work has ended with the context.
                unsafe { resource.deallocate(block, &Stream::legacy_default(context)) }
            }
            Liveness::Gone => {
                // SAFETY: as above, and the context has ended.
                unsafe { resource.abandon(block) };
                Ok(())
            }
            Liveness::DriverGone => Ok(()),
        }
    }

    #[inline]
    fn has_users(&self, access: Accessibility) -> bool {
        (access.device || access.host)
            && self.accessibility.device >= access.device
            && self.accessibility.host >= access.host
    }

    fn context(&self) -> Context {
        self.resource().context().clone()
    }

    #[cold]
    fn refused(&self, call: &'static str, alignment: usize, access: Accessibility) -> Error {
        if !alignment.is_power_of_two() {
            return Error::invalid(call, "alignment", alignment, "it must be a power of two");
        }
        let rule = match access.host && !self.accessibility.host {
            true => "the CPU does not address this memory: use pinned or managed memory, or a pool of it",
            false if access.device => "devices do not address this memory: use another kind",
            false => "it must name the device, the CPU, or both",
        };
        let name = |on, name| if on { name } else { "" };
        let value = format!("[{}{}]", name(access.device, "device "), name(access.host, "host"));
        Error::invalid(call, "access", value, rule)
    }

    #[cold]
    fn too_large(&self, call: &'static str, requested: usize) -> Error {
        let context = self.context();
        Error::OutOfMemory {
            call,
            requested,
            device: context.device().name().unwrap_or_default().into(),
            free: context.memory_info().ok().map(|info| info.free),
            message: "no allocation is as large as half of the address space".into(),
        }
    }

    #[cold]
    pub(super) fn not_live(&self, call: &'static str, address: u64, size: usize, why: NotLive) -> Error {
        match why {
            NotLive::Unknown => {
                let value = format!("{address:#x} on device {}", self.context().device().ordinal());
                let rule =
                    "it must be a live address of this memory: this one was freed before, or came from elsewhere";
                Error::invalid(call, "address", value, rule)
            }
            NotLive::Size(live) => {
                let value = format!("{size}, for a block of {live} bytes at {address:#x}");
                Error::invalid(call, "size", value, "it must be the size that the block was allocated with")
            }
        }
    }
}

impl<K: Kind> Drop for Addresses<K> {
    fn drop(&mut self) {
        // The program still uses blocks, so the resource must not end.
        if self.live.has_some() {
            core::mem::forget(self.resource());
        }
    }
}

/// Takes a block back whose context has ended; returns the error of a free in a living context.
#[cold]
fn end_with_context(pool: &Arc<SharedPool>, block: Block, error: Error) -> Result<()> {
    check_not_forked("freeing memory")?;
    if pool.context().liveness() == Liveness::Alive {
        return Err(error);
    }
    pool.abandon(block);
    Ok(())
}

/// The one address of a block for its users. `None` if there is none.
#[inline]
fn address_of(block: Block, access: Accessibility) -> Option<u64> {
    if !access.host {
        return Some(block.device_pointer());
    }
    // A free makes the pointer anew.
    let host = block.host_pointer().expose_provenance() as u64;
    (block.is_on_cpu() && host != 0 && (!access.device || host == block.device_pointer())).then_some(host)
}

#[inline]
pub(super) fn not_null(stream: CUstream) -> CUstream {
    if stream.is_null() { CU_STREAM_LEGACY } else { stream }
}
