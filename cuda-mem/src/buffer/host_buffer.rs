//! Page-locked memory as a slice.

use crate::buffer::{Refused, TransferDestination, TransferSource};
use crate::cpu::borrowed::{check_read, check_write};
use crate::memory::resource::{HostAccessible, Kind, ResourceHandle, SharedResource, kind::Any, no_slices};
use crate::{Buffer, Context, Error, Result, Stream};
use bytemuck::{AnyBitPattern, Zeroable};
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;
use cuda_sys::CUdeviceptr;

/// A slice in memory that devices can address, as a `Box<[T]>` is one on the heap. Copies from and to it run at the
/// full speed of the bus, and kernels can read it over the bus.
///
/// Only the value gives access to the memory. It has no stream: if a device uses the memory, own or borrow the value
/// until the device is done. Moving the value does not change the address. Elements are not dropped.
///
/// Any resource whose memory the CPU may use like the heap can provide it: pinned memory, and coherent managed or
/// mapped memory.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::{HostBuffer, memory::PinnedMemory};
/// let mut samples = HostBuffer::from_slice(&PinnedMemory::new(&context), &[3, 1, 2])?;
/// samples.sort();
/// samples[0] = 0;
/// assert_eq!(*samples, [0, 2, 3]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct HostBuffer<T> {
    /// Owns the memory. No device work on it is in progress.
    memory: Buffer<T, Any>,
    start: NonNull<T>,
}

// SAFETY: the value owns its elements, as a `Box` does.
unsafe impl<T: Send> Send for HostBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostBuffer<T> {}

impl<T: Copy> HostBuffer<T> {
    /// Allocates `length` uninitialized elements.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if there is no room; the size overflows; [`Error::InvalidArgument`] if the memory is not
    /// coherent.
    pub fn uninit<R>(resource: &R, length: usize) -> Result<HostBuffer<MaybeUninit<T>>>
    where
        R: ResourceHandle<Kind: HostAccessible> + ?Sized,
    {
        let stream = Stream::legacy_default(resource.share().context());
        Ok(HostBuffer::take(Buffer::<T, R::Kind>::uninit(resource, length, &stream)?)?)
    }

    /// Allocates `length` zeroed elements.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    pub fn zeroed<R>(resource: &R, length: usize) -> Result<Self>
    where
        R: ResourceHandle<Kind: HostAccessible> + ?Sized,
        T: Zeroable,
    {
        let mut memory = Self::uninit(resource, length)?;
        memory.fill(MaybeUninit::zeroed());
        // SAFETY: `T: Zeroable`.
        Ok(unsafe { memory.assume_init() })
    }

    /// Allocates, and copies `source` with the CPU.
    ///
    /// # Errors
    ///
    /// As [`uninit`](Self::uninit).
    pub fn from_slice<R>(resource: &R, source: &[T]) -> Result<Self>
    where
        R: ResourceHandle<Kind: HostAccessible> + ?Sized,
    {
        Ok(Self::uninit(resource, source.len())?.init_from(source))
    }

    /// Copies the elements to new memory from the same resource.
    ///
    /// # Errors
    ///
    /// The memory belongs to another library, so there is no resource to allocate from; or there is no room.
    pub fn try_clone(&self) -> Result<Self> {
        let Some(resource) = self.memory.resource() else {
            let rule = "memory of another library has none: allocate a buffer and copy to it";
            return Err(Error::invalid("HostBuffer::try_clone", "the buffer's resource", "none", rule));
        };
        let copy = HostBuffer::take(Buffer::<T, Any>::uninit(resource, self.len(), self.memory.stream())?)?;
        Ok(copy.init_from(self))
    }
}

impl<T: Copy> HostBuffer<MaybeUninit<T>> {
    /// Asserts that every element is initialized.
    ///
    /// # Safety
    ///
    /// As for [`MaybeUninit::assume_init`].
    pub unsafe fn assume_init(self) -> HostBuffer<T> {
        // SAFETY: this function's contract.
        HostBuffer { memory: unsafe { self.memory.assume_init() }, start: self.start.cast() }
    }

    /// Initializes every element from a slice of the same length.
    fn init_from(mut self, source: &[T]) -> HostBuffer<T> {
        self.iter_mut().zip(source).for_each(|(element, value)| {
            element.write(*value);
        });
        // SAFETY: the loop wrote every element.
        unsafe { self.assume_init() }
    }
}

impl<T> HostBuffer<T> {
    /// Waits for a buffer's device work, and takes over its memory and values. The memory is later freed in order of
    /// the buffer's home stream.
    ///
    /// # Errors
    ///
    /// The memory is not coherent, or device work failed. The error returns the buffer.
    pub fn from_buffer<K: HostAccessible>(buffer: Buffer<T, K>) -> Result<Self, Box<Refused<Buffer<T, K>>>>
    where
        T: AnyBitPattern,
    {
        Self::take(buffer)
    }

    /// Converts to a buffer with `stream` as its home stream.
    ///
    /// # Errors
    ///
    /// The stream cannot be its home stream. The error returns this value.
    pub fn into_buffer(mut self, stream: &Stream) -> Result<Buffer<T, Any>, Box<Refused<Self>>> {
        match self.memory.set_stream(stream) {
            Ok(()) => Ok(self.memory),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// Frees the memory, as a drop does, but returns errors.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver). The error returns this value.
    #[doc(alias = "cuMemFreeHost")]
    pub fn close(self) -> Result<(), Box<Refused<Self>>> {
        let start = self.start;
        self.memory.close().map_err(|refused| {
            let Refused { value: memory, error } = *refused;
            Refused::new(Self { memory, start }, error)
        })
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// The address of the first element for kernels; 0 if there is no memory. Device work on the memory must be
    /// complete before you access or drop the value: use [`Stream::synchronize`] or an event.
    #[doc(alias = "cuMemHostGetDevicePointer")]
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.memory.device_pointer()
    }

    /// The address of the first element, for callers that hand out parts of the memory.
    pub(crate) fn host_address(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// The context of the memory.
    pub fn context(&self) -> &Context {
        self.memory.context()
    }

    /// The resource that allocated the memory; `None` for memory of other libraries.
    pub fn resource(&self) -> Option<&SharedResource> {
        self.memory.resource()
    }

    fn take<K: Kind>(memory: Buffer<T, K>) -> Result<Self, Box<Refused<Buffer<T, K>>>> {
        if memory.accessibility().processes {
            return Err(Refused::new(memory, no_slices("HostBuffer")));
        }
        if let Err(error) = memory.check_writable("HostBuffer") {
            return Err(Refused::new(memory, error));
        }
        if !memory.is_coherent() || memory.accessibility().write_combined {
            let error = Error::invalid(
                "HostBuffer",
                "the resource",
                if memory.is_coherent() { "write-combined memory" } else { "non-coherent memory" },
                "it must give coherent memory that is not write-combined; for other memory use a Buffer, which \
                       flushes, fences and waits",
            );
            return Err(Refused::new(memory, error));
        }
        // The allocation itself may be stream-ordered. New memory needs no wait, which a capture could forbid.
        if let Err(error) = memory.settle().map(drop) {
            return Err(Refused::new(memory, error));
        }
        let start = NonNull::new(memory.host_address()).unwrap_or(NonNull::dangling());
        Ok(Self { memory: memory.into_any(), start })
    }
}

// SAFETY: the elements lie in memory of a resource, so a move of the value does not move them.
unsafe impl<T: Send + Sync + 'static> TransferSource<T> for HostBuffer<T> {
    fn source(&self) -> &[T] {
        self
    }
}

// SAFETY: as above, and nothing else has access to them.
unsafe impl<T: Send + 'static> TransferDestination<T> for HostBuffer<T> {
    fn destination(&mut self) -> &mut [T] {
        self
    }
}

impl<T> Deref for HostBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        check_read(self.start.as_ptr(), self.memory.size());
        // SAFETY: constructors ensure `len` initialized, aligned elements without device work. Only this value gives
        // access to them.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.memory.len()) }
    }
}

impl<T> DerefMut for HostBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        check_write(self.start.as_ptr(), self.memory.size());
        // SAFETY: as above; the borrow is exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.memory.len()) }
    }
}

impl<T> AsRef<[T]> for HostBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for HostBuffer<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer")
            .field("start", &self.start)
            .field("len", &self.memory.len())
            .finish_non_exhaustive()
    }
}
