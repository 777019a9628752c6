//! Memory that comes from, or goes to, other code.

use super::allocation::{Allocation, Foreign, Hold, Origin};
use super::{Buffer, Refused, check_aligned, check_home, check_stream};
use crate::context::ForeignOwner;
use crate::resource::{Block, Kind, PointerInfo, ResourceHandle, SharedResource};
use crate::{Error, Result, Stream};
use core::ptr;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

impl<T, K: Kind> Buffer<T, K> {
    /// Uses memory of another library without owning it: `length` elements at an address of a device or of the CPU. The
    /// end of the buffer waits for its work.
    ///
    /// # Errors
    ///
    /// The address is 0 or not aligned for `T`, or the driver says that it is not addressable as the kind promises.
    ///
    /// # Safety
    ///
    /// The memory holds `length` values of `T`, stays allocated while this buffer and its parts live, and meanwhile is
    /// used by nothing else that is not ordered with this buffer's stream.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, memory::kind::Any};
    /// let heap = [1u64, 2, 3];
    /// // SAFETY: the array outlives the buffer, and nobody changes it.
    /// let buffer = unsafe { Buffer::<u64, Any>::from_raw(heap.as_ptr() as u64, 3, &stream) }?;
    /// assert_eq!(buffer.to_vec()?, heap);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub unsafe fn from_raw(pointer: CUdeviceptr, length: usize, stream: &Stream) -> Result<Self> {
        Self::foreign(pointer, length, None, stream)
    }

    /// As [`from_raw`](Self::from_raw), and holds `owner` until the work on the memory is done.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use std::sync::Arc;
    /// // Another library's array, of which the address is known.
    /// let theirs = Arc::new(Buffer::from_slice(&memory, &[1u32, 2, 3], &stream)?);
    /// let pointer = theirs.device_pointer();
    ///
    /// // SAFETY: three numbers lie there while the owner lives, and nobody else uses them meanwhile.
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
    /// As [`from_raw`](Self::from_raw); the memory stays allocated while `owner` lives.
    pub unsafe fn from_raw_with_owner(
        pointer: CUdeviceptr,
        length: usize,
        owner: ForeignOwner,
        stream: &Stream,
    ) -> Result<Self> {
        Self::foreign(pointer, length, Some(owner), stream)
    }

    /// Takes a block over from a resource: the buffer frees it there.
    ///
    /// # Errors
    ///
    /// The block is smaller than `length` elements, or not aligned for them; the stream cannot be its home.
    ///
    /// # Safety
    ///
    /// The block is the resource's and nobody else frees it; it holds `length` values of `T`; only work given to `stream`
    /// so far uses it.
    pub unsafe fn from_block<R>(block: Block, resource: &R, length: usize, stream: &Stream) -> Result<Self>
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        const CALL: &str = "Buffer::from_block";
        let resource = resource.share();
        check_home(CALL, &resource, stream)?;
        let size = check_elements::<T>(CALL, block.device_pointer, block.host_pointer, length)?;
        if size > block.size {
            return Err(Error::OutOfRange { call: CALL, offset: 0, length: size, size: block.size });
        }
        Ok(Self::whole(Allocation::new(block, Origin::Resource(resource), stream.clone()), length))
    }

    /// Moves the ownership out: the block, the resource that frees it, and the stream that its work is ordered on.
    /// [`from_block`](Self::from_block) moves it in again.
    ///
    /// Waits for the buffer's work: a block keeps no resource alive, and a resource that ends frees its memory, also blocks
    /// that were handed out. Whoever uses the block holds the resource meanwhile.
    ///
    /// # Errors
    ///
    /// The memory was divided, or is another library's; work failed, or cannot be waited for during a capture. The buffer
    /// is given back.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// let buffer = Buffer::from_slice(&memory, &[1u8, 2], &stream)?;
    /// let (block, _resource, stream) = buffer.into_block()?;
    /// // SAFETY: the block comes from this resource, and nobody else has it.
    /// let again = unsafe { Buffer::<u8, _>::from_block(block, &memory, 2, &stream) }?;
    /// assert_eq!(again.to_vec()?, [1, 2]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn into_block(mut self) -> Result<(Block, SharedResource, Stream), Box<Refused<Self>>> {
        let refusal = |value: &str, rule| Error::InvalidArgument {
            call: "Buffer::into_block",
            argument: "the buffer",
            value: value.into(),
            rule,
        };
        let Hold::Whole(allocation) = &mut self.hold else {
            return Err(Refused::new(self, refusal("a part", "only undivided memory can be handed out")));
        };
        let Origin::Resource(resource) = &allocation.origin else {
            return Err(Refused::new(
                self,
                refusal("another library's", "only memory of a resource can be handed out"),
            ));
        };
        let parts = (allocation.block, resource.clone(), allocation.home.clone());
        if let Err(error) = allocation.finish() {
            return Err(Refused::new(self, error));
        }
        allocation.disown();
        Ok(parts)
    }

    /// Exchanges the block of undivided memory for another of the same resource, and the length with it. `exchange` gets
    /// the block and the home stream; where it fails, nothing changes.
    ///
    /// # Safety
    ///
    /// What `exchange` gives is as for [`from_block`](Self::from_block); the block that it got is then the resource's again.
    pub(crate) unsafe fn exchange_block<R>(
        &mut self,
        call: &'static str,
        owner: &SharedResource,
        length: usize,
        exchange: impl FnOnce(Block, &Stream) -> Result<(Block, R)>,
    ) -> Result<R> {
        let refusal = |value: &str| Error::InvalidArgument {
            call,
            argument: "the buffer",
            value: value.into(),
            rule: "it must be undivided memory of the same resource",
        };
        let Hold::Whole(allocation) = &mut self.hold else {
            return Err(refusal("a part"));
        };
        match &allocation.origin {
            _ if self.offset != 0 => return Err(refusal("what is left of divided memory")),
            Origin::Resource(resource) if ptr::addr_eq(Arc::as_ptr(resource), Arc::as_ptr(owner)) => {}
            _ => return Err(refusal("another resource's")),
        }
        let (block, outcome) = exchange(allocation.block, &allocation.home)?;
        allocation.block = block;
        self.length = length;
        self.mark_busy();
        Ok(outcome)
    }

    fn foreign(pointer: CUdeviceptr, length: usize, owner: Option<ForeignOwner>, stream: &Stream) -> Result<Self> {
        const CALL: &str = "Buffer::from_raw";
        check_stream(CALL, stream)?;
        let size = check_elements::<T>(CALL, pointer, ptr::null(), length)?;
        let info = match size {
            0 => None,
            _ => Some(PointerInfo::of(stream.context(), pointer)?),
        };
        let accessibility = info.map_or(K::ACCESSIBILITY.unwrap_or_default(), |info| info.accessibility);
        if !K::ACCESSIBILITY.is_none_or(|promised| accessibility.covers(promised)) {
            return Err(Error::InvalidArgument {
                call: CALL,
                argument: "pointer",
                value: format!("{pointer:#x}, of which the driver says {accessibility:?}").into(),
                rule: "it must be addressable by whom the kind names",
            });
        }
        check_aligned::<T>(CALL, pointer, info.map_or(ptr::null(), |info| info.host_pointer))?;
        let block = info.map_or(Block::EMPTY, |info| Block {
            // The driver's copies take the CPU's address of memory that devices do not address.
            device_pointer: if accessibility.device { info.device_pointer } else { pointer },
            host_pointer: info.host_pointer,
            size,
        });
        let foreign = Foreign { owner, accessibility, device: info.and_then(|info| info.device), ordered: None };
        Ok(Self::whole(Allocation::new(block, Origin::Foreign(foreign), stream.clone()), length))
    }
}

/// Checks an address for `length` values of `T`, and gives their size in bytes.
fn check_elements<T>(
    call: &'static str,
    pointer: CUdeviceptr,
    host_pointer: *const u8,
    length: usize,
) -> Result<usize> {
    const { assert!(size_of::<T>() != 0, "an element of a buffer has a size") };
    let invalid = |argument, value: String, rule| Error::InvalidArgument { call, argument, value: value.into(), rule };
    let size = length.checked_mul(size_of::<T>()).filter(|size| pointer.checked_add(*size as u64).is_some());
    let Some(size) = size else {
        return Err(invalid("length", format!("{length} elements"), "the memory must end within the address space"));
    };
    if pointer == 0 && size != 0 {
        return Err(invalid("pointer", "0".into(), "memory has an address"));
    }
    check_aligned::<T>(call, pointer, host_pointer)?;
    Ok(size)
}
