//! Memory that comes from other code, or goes to it.

use super::allocation::{Allocation, Foreign, Origin, OwnersFree};
use super::creation::{check_aligned, check_home, check_stream};
use super::foreign::Owner;
use super::holder::AllocationHolder;
use super::memory_order::ALL;
use super::work::Work;
use super::{Buffer, Refused};
use crate::driver::context::ForeignOwner;
use crate::error::check_not_forked;
use crate::memory::resource::{Block, Kind, PointerInfo, ResourceHandle, SharedResource};
use crate::{Error, Result, Stream};
use core::ptr;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

impl<T, K: Kind> Buffer<T, K> {
    /// Uses memory of another library without owning it: `length` elements at a device or CPU address. The drop of the
    /// buffer waits for its work.
    ///
    /// # Errors
    ///
    /// The address is 0 or not aligned for `T`, or the driver reports that it is not accessible as the kind requires.
    ///
    /// # Safety
    ///
    /// The memory holds `length` values of `T` and stays allocated while this buffer and its parts are alive.
    /// Meanwhile, only work ordered with this buffer's stream uses it.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, memory::kind::Any};
    /// let heap = [1u64, 2, 3];
    /// // SAFETY: the array outlives the buffer, and nobody changes the array.
    /// let buffer = unsafe { Buffer::<u64, Any>::from_raw(heap.as_ptr() as u64, 3, &stream) }?;
    /// assert_eq!(buffer.to_vec()?, heap);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub unsafe fn from_raw(pointer: CUdeviceptr, length: usize, stream: &Stream) -> Result<Self> {
        Self::foreign("Buffer::from_raw", pointer, length, None, OwnersFree::AtOnce, stream)
    }

    /// Uses memory of another library, `length` elements at a device or CPU address, and drops `owner` only after the
    /// work on the memory is done.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use std::sync::Arc;
    /// // Another library's array, whose address is known.
    /// let theirs = Arc::new(Buffer::from_slice(&memory, &[1u32, 2, 3], &stream)?);
    /// let pointer = theirs.device_pointer();
    ///
    /// // SAFETY: the owner keeps three numbers there, and nobody else uses them meanwhile.
    /// let ours = unsafe { Buffer::<u32>::from_raw_with_owner(pointer, 3, theirs, &stream) }?;
    /// assert_eq!(ours.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    ///
    /// As [`from_raw`](Self::from_raw); the memory stays allocated while `owner` is alive.
    pub unsafe fn from_raw_with_owner(
        pointer: CUdeviceptr,
        length: usize,
        owner: ForeignOwner,
        stream: &Stream,
    ) -> Result<Self> {
        Self::foreign("Buffer::from_raw", pointer, length, Some(owner), OwnersFree::AtOnce, stream)
    }

    /// Uses memory of another library whose `owner` frees it in order of `stream`. So the drop of the buffer waits for
    /// nothing. Otherwise as [`from_raw_with_owner`](Self::from_raw_with_owner).
    ///
    /// # Safety
    ///
    /// As for [`from_raw_with_owner`](Self::from_raw_with_owner).
    #[cfg(feature = "cudarc")]
    pub(crate) unsafe fn freed_in_order(
        call: &'static str,
        pointer: CUdeviceptr,
        length: usize,
        owner: ForeignOwner,
        stream: &Stream,
    ) -> Result<Self> {
        Self::foreign(call, pointer, length, Some(owner), OwnersFree::AtHome, stream)
    }

    /// Takes ownership of a resource's block. The buffer returns it to the resource.
    ///
    /// # Errors
    ///
    /// The block is smaller than `length` elements, or not aligned for them; the stream cannot be its home stream.
    ///
    /// # Safety
    ///
    /// The block belongs to the resource and nobody else frees it; it holds `length` values of `T`; only work queued on
    /// `stream` so far uses it.
    pub unsafe fn from_block<R>(block: Block, resource: &R, length: usize, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        // SAFETY: this function's contract.
        let buffer = unsafe { Self::of_own_block(block, resource, length, stream) }?;
        // The caller knows the address.
        buffer.tell_address();
        Ok(buffer)
    }

    /// The same for a block whose address this library alone knows.
    ///
    /// # Safety
    ///
    /// As [`from_block`](Self::from_block).
    pub(super) unsafe fn of_own_block<R>(block: Block, resource: &R, length: usize, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        const CALL: &str = "Buffer::from_block";
        let resource = resource.share();
        check_home(CALL, &resource, stream)?;
        let size = check_elements::<T>(CALL, block.device_pointer(), block.host_pointer(), length)?;
        if size > block.size() {
            return Err(Error::OutOfRange { call: CALL, offset: 0, length: size, size: block.size() });
        }
        Ok(Self::whole(Allocation::new(block, Origin::Resource(resource), stream.clone()), length, Work::new(true)))
    }

    /// Gives up ownership: returns the block, the resource that frees it, and the stream that orders its work.
    /// [`from_block`](Self::from_block) is the reverse.
    ///
    /// Waits for the buffer's work. A block does not keep its resource alive, and the drop of a resource frees its
    /// memory, including such blocks. So hold the resource while you use the block.
    ///
    /// # Errors
    ///
    /// The memory was divided or belongs to another library; work failed; or a capture prevents the wait. The error
    /// returns the buffer.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::from_slice(&memory, &[1u8, 2], &stream)?;
    /// let (block, _resource, stream) = buffer.into_block()?;
    /// // SAFETY: the block comes from this resource, and nobody else holds it.
    /// let again = unsafe { Buffer::<u8, _>::from_block(block, &memory, 2, &stream) }?;
    /// assert_eq!(again.to_vec()?, [1, 2]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn into_block(mut self) -> Result<(Block, SharedResource, Stream), Box<Refused<Self>>> {
        let refusal = |value: &str, rule| Error::invalid("Buffer::into_block", "the buffer", value, rule);
        let AllocationHolder::Whole(allocation) = &mut self.hold else {
            return Err(Refused::new(self, refusal("a part", "only undivided memory can be handed out")));
        };
        let Origin::Resource(resource) = allocation.origin() else {
            return Err(Refused::new(
                self,
                refusal("another library's", "only memory of a resource can be handed out"),
            ));
        };
        let parts = (allocation.block, resource.clone(), allocation.home().clone());
        if let Err(error) = allocation.finish() {
            return Err(Refused::new(self, error));
        }
        allocation.disown();
        Ok(parts)
    }

    /// Replaces the block of undivided memory by another of the same resource, and sets the length. `exchange` gets the
    /// block and the home stream; if it fails, nothing changes.
    ///
    /// # Safety
    ///
    /// The block that `exchange` returns satisfies [`from_block`](Self::from_block); the resource owns the other again.
    pub(crate) unsafe fn exchange_block<R>(
        &mut self,
        call: &'static str,
        owner: &SharedResource,
        length: usize,
        exchange: impl FnOnce(Block, &Stream) -> Result<(Block, R)>,
    ) -> Result<R> {
        check_not_forked(call)?;
        let refusal =
            |value: &str| Error::invalid(call, "the buffer", value, "it must be undivided memory of the same resource");
        let AllocationHolder::Whole(allocation) = &mut self.hold else {
            return Err(refusal("a part"));
        };
        match allocation.origin() {
            _ if self.offset != 0 => return Err(refusal("the rest of divided memory")),
            Origin::Resource(resource) if ptr::addr_eq(Arc::as_ptr(resource), Arc::as_ptr(owner)) => {}
            _ => return Err(refusal("another resource's")),
        }
        allocation.order.after_reads(allocation.home(), &ALL);
        let (block, outcome) = exchange(allocation.block, allocation.home())?;
        allocation.block = block;
        self.length = length;
        self.mark_busy();
        Ok(outcome)
    }

    /// Memory of another library, with its owner if it is known.
    fn foreign(
        call: &'static str,
        pointer: CUdeviceptr,
        length: usize,
        owner: Option<ForeignOwner>,
        free: OwnersFree,
        stream: &Stream,
    ) -> Result<Self> {
        check_stream(call, stream)?;
        let size = check_elements::<T>(call, pointer, ptr::null(), length)?;
        let info = match size {
            0 => None,
            _ => Some(PointerInfo::of_range(stream.context(), pointer, size)?),
        };
        let accessibility = info.map_or(K::ACCESSIBILITY.unwrap_or_default(), |info| info.accessibility);
        if !K::ACCESSIBILITY.is_none_or(|promised| accessibility.covers(promised)) {
            let value = format!("{pointer:#x}, which the driver reports as {accessibility:?}");
            let rule = "it must be accessible to everybody that the kind names";
            return Err(Error::invalid(call, "pointer", value, rule));
        }
        check_aligned::<T>(call, pointer, info.map_or(ptr::null(), |info| info.host_pointer))?;
        let block = info.map_or(Block::EMPTY, |info| info.block(pointer, size));
        let (owner, device) = (owner.map(Owner::Shared), info.and_then(|info| info.device));
        let foreign = Foreign { owner, accessibility, device, free };
        Ok(Self::whole(Allocation::new(block, Origin::Foreign(foreign), stream.clone()), length, Work::new(true)))
    }
}

/// Checks an address for `length` values of `T`, and returns their size in bytes.
fn check_elements<T>(
    call: &'static str,
    pointer: CUdeviceptr,
    host_pointer: *const u8,
    length: usize,
) -> Result<usize> {
    const { assert!(size_of::<T>() != 0, "the elements of a buffer must not be zero-sized") };
    let invalid = |argument, value: String, rule| Error::invalid(call, argument, value, rule);
    let size = length.checked_mul(size_of::<T>()).filter(|size| pointer.checked_add(*size as u64).is_some());
    let Some(size) = size else {
        return Err(invalid("length", format!("{length} elements"), "the memory must end within the address space"));
    };
    if pointer == 0 && size != 0 {
        return Err(invalid("pointer", "0".into(), "memory must have an address"));
    }
    check_aligned::<T>(call, pointer, host_pointer)?;
    Ok(size)
}
