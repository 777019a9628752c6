//! Page-locked memory as a slice of the CPU's.

use crate::borrowed::{check_read, check_write};
use crate::buffer::{Refused, TransferDestination, TransferSource};
use crate::resource::{HostAccessible, Kind, ResourceHandle, SharedResource, kind::Any, no_slices};
use crate::{Buffer, Context, Error, Result, Stream};
use bytemuck::{AnyBitPattern, Zeroable};
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use core::slice;
use cuda_sys::CUdeviceptr;

/// A slice in memory that devices address too, as a `Box<[T]>` is one on the heap: for the CPU's side of copies, at the
/// full speed of the bus, and for kernels that read it over the bus.
///
/// It is reached by this value alone, and has no stream: whoever lets a device use the memory owns or borrows the value
/// until that is done. Its address stays the same when the value moves. Elements are not dropped.
///
/// It is made of any resource that the CPU may use as the heap: page-locked memory, and managed and mapped memory where it
/// is coherent.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// use cuda_mem::{HostBuffer, memory::PinnedMemory};
/// let mut samples = HostBuffer::from_slice(&PinnedMemory::new(&context), &[3, 1, 2])?;
/// samples.sort();
/// samples[0] = 0;
/// assert_eq!(*samples, [0, 2, 3]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
pub struct HostBuffer<T> {
    /// Owns the memory. Its work is done: the CPU has the memory.
    memory: Buffer<T, Any>,
    start: NonNull<T>,
}

// SAFETY: the value owns its elements, as a box does.
unsafe impl<T: Send> Send for HostBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostBuffer<T> {}

impl<T: Copy> HostBuffer<T> {
    /// Allocates `length` elements without a value.
    ///
    /// # Errors
    ///
    /// There is no room: [`Error::OutOfMemory`]. The size overflows. The memory is not coherent:
    /// [`Error::InvalidArgument`].
    pub fn uninit<R>(resource: &R, length: usize) -> Result<HostBuffer<MaybeUninit<T>>>
    where
        R: ResourceHandle<Kind: HostAccessible> + ?Sized,
    {
        let stream = Stream::legacy_default(resource.share().context());
        Ok(HostBuffer::take(Buffer::<T, R::Kind>::uninit(resource, length, &stream)?)?)
    }

    /// Allocates `length` elements, all bytes zero.
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
        // SAFETY: zeros are a value of `T`.
        Ok(unsafe { memory.assume_init() })
    }

    /// Allocates, and copies a slice by the CPU.
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

    /// A copy of the elements, in memory of the same resource.
    ///
    /// # Errors
    ///
    /// The memory is another library's, so there is no resource to allocate from; there is no room.
    pub fn try_clone(&self) -> Result<Self> {
        let Some(resource) = self.memory.resource() else {
            return Err(Error::InvalidArgument {
                call: "HostBuffer::try_clone",
                argument: "the buffer's resource",
                value: "none".into(),
                rule: "memory of another library is copied to a buffer that the caller allocates",
            });
        };
        let copy = HostBuffer::take(Buffer::<T, Any>::uninit(resource, self.len(), self.memory.stream())?)?;
        Ok(copy.init_from(self))
    }
}

impl<T: Copy> HostBuffer<MaybeUninit<T>> {
    /// Says that every element has a value.
    ///
    /// # Safety
    ///
    /// As for [`MaybeUninit::assume_init`].
    pub unsafe fn assume_init(self) -> HostBuffer<T> {
        // SAFETY: this function's contract.
        HostBuffer { memory: unsafe { self.memory.assume_init() }, start: self.start.cast() }
    }

    /// Gives every element its value, from a slice of the same length.
    fn init_from(mut self, source: &[T]) -> HostBuffer<T> {
        self.iter_mut().zip(source).for_each(|(element, value)| {
            element.write(*value);
        });
        // SAFETY: each element was written.
        unsafe { self.assume_init() }
    }
}

impl<T> HostBuffer<T> {
    /// Takes the memory of a buffer, with its values, when its device work is done. It is freed in order of that buffer's
    /// home stream.
    ///
    /// # Errors
    ///
    /// The memory is not coherent; device work failed; the buffer is given back.
    pub fn from_buffer<K: HostAccessible>(buffer: Buffer<T, K>) -> Result<Self, Box<Refused<Buffer<T, K>>>>
    where
        T: AnyBitPattern,
    {
        Self::take(buffer)
    }

    /// The memory as a buffer, with `stream` as its home stream.
    ///
    /// # Errors
    ///
    /// The stream cannot be its home; this value is given back.
    pub fn into_buffer(mut self, stream: &Stream) -> Result<Buffer<T, Any>, Box<Refused<Self>>> {
        match self.memory.set_stream(stream) {
            Ok(()) => Ok(self.memory),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// Frees the memory, as a drop does, and gives errors.
    ///
    /// # Errors
    ///
    /// The driver refuses; this value is given back.
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

    /// The address of the first element for kernels; 0 where there is no memory. What a device does there must be done
    /// before this value is touched or ends: [`Stream::synchronize`], or an event.
    #[doc(alias = "cuMemHostGetDevicePointer")]
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.memory.device_pointer()
    }

    /// The address of the first element, for those that share the memory out.
    pub(crate) fn host_address(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// The context that the memory belongs to.
    pub fn context(&self) -> &Context {
        self.memory.context()
    }

    /// The resource that the memory is of; none for memory of other libraries.
    pub fn resource(&self) -> Option<&SharedResource> {
        self.memory.resource()
    }

    fn take<K: Kind>(memory: Buffer<T, K>) -> Result<Self, Box<Refused<Buffer<T, K>>>> {
        if memory.accessibility().processes {
            return Err(Refused::new(memory, no_slices("HostBuffer")));
        }
        if !memory.is_coherent() || memory.accessibility().write_combined {
            let error = Error::InvalidArgument {
                call: "HostBuffer",
                argument: "the resource",
                value: if memory.is_coherent() { "write-combined memory" } else { "non-coherent memory" }.into(),
                rule: "its memory must be coherent and not write-combined; a Buffer does the flushes, fences and waits that other \
                       memory needs",
            };
            return Err(Refused::new(memory, error));
        }
        // The allocation itself may be in order of the stream.
        if let Err(error) = memory.synchronize() {
            return Err(Refused::new(memory, error));
        }
        let start = NonNull::new(memory.host_address()).unwrap_or(NonNull::dangling());
        Ok(Self { memory: memory.into_any(), start })
    }
}

// SAFETY: the elements lie in memory of a resource, where a move of the value leaves them.
unsafe impl<T: Send + Sync + 'static> TransferSource<T> for HostBuffer<T> {
    fn source(&self) -> &[T] {
        self
    }
}

// SAFETY: as above, and nothing else reaches them.
unsafe impl<T: Send + 'static> TransferDestination<T> for HostBuffer<T> {
    fn destination(&mut self) -> &mut [T] {
        self
    }
}

impl<T> Deref for HostBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        check_read(self.start.as_ptr(), self.memory.size());
        // SAFETY: the memory holds that many elements, each with a value: constructors see to it. It is aligned, as
        // allocations are, and reached by this value alone; no device work on it is under way.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.memory.len()) }
    }
}

impl<T> DerefMut for HostBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        check_write(self.start.as_ptr(), self.memory.size());
        // SAFETY: as above; the value is borrowed exclusively.
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
