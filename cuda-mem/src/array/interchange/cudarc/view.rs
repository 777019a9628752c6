//! Views of buffers for calls of cudarc.

use crate::buffer::{Access, Viewed};
use crate::error::range::resolve_elements;
use crate::memory::resource::Kind;
use crate::{Buffer, Error, Result};
use ::cudarc::driver::result::ctx::get_current;
use ::cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, DriverError, LaunchArgs, PushKernelArg, SyncOnDrop, sys,
};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use core::ops::RangeBounds;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// A buffer's elements for calls of cudarc that read them, and `&` arguments of kernels.
/// [`Buffer::cudarc_view`] makes it.
#[must_use = "cudarc uses the memory through the view"]
pub struct CudarcView<'a, T> {
    lent: Lent<'a>,
    elements: PhantomData<&'a [T]>,
}

/// A buffer's elements for calls of cudarc that write them, and `&mut` arguments of kernels.
/// [`Buffer::cudarc_view_mut`] makes it.
#[must_use = "cudarc uses the memory through the view"]
pub struct CudarcViewMut<'a, T> {
    lent: Lent<'a>,
    elements: PhantomData<&'a mut [T]>,
}

/// Memory that cudarc may use on its home stream.
struct Lent<'a> {
    memory: &'a dyn Viewed,
    /// A kernel's argument is the address of this field.
    pointer: CUdeviceptr,
    /// In elements.
    length: usize,
    stream: Arc<CudaStream>,
}

impl<'a> Lent<'a> {
    fn new<T>(call: &'static str, memory: &'a dyn Viewed, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve_elements(call, range, memory.size() / size_of::<T>(), size_of::<T>())?;
        let refusal = |value: String, rule| Error::invalid(call, "the buffer", value, rule);
        if !memory.accessibility().device {
            return Err(refusal(format!("{:?}", memory.accessibility()), "the device must be able to address it"));
        }
        let stream = memory.stream().as_cudarc(call)?;
        // cudarc launches graphs by safe calls, at a time when the memory may be another buffer's.
        memory.stream().check_not_capturing(call)?;
        memory.tell_address();
        memory.prepare()?;
        if !memory.lend() {
            return Err(refusal("lent a million times".into(), "drop views, instead of forgetting them"));
        }
        let pointer = memory.first_byte() + (range.start * size_of::<T>()) as CUdeviceptr;
        Ok(Self { memory, pointer, length: range.len(), stream })
    }

    /// The address for work on a stream, if `checked` says so. These calls of cudarc cannot fail. As cudarc does, this leaves
    /// an error for the next call with the context; the address 0 makes the driver refuse this one, except in a capture.
    fn address<'s>(&self, stream: &CudaStream, checked: Result<(), sys::CUresult>) -> (CUdeviceptr, SyncOnDrop<'s>) {
        let address = checked.map(|()| self.pointer).unwrap_or_else(|code| {
            stream.context().record_err(Err::<(), _>(DriverError(code)));
            0
        });
        (address, SyncOnDrop::Record(None))
    }

    /// Refuses all streams but the home stream. After work on another one, the buffer's later work would have to wait for
    /// it, and nothing makes sure of that: what cudarc does at the end of its call may fail, and then it only notes the
    /// error; and the program may forget the view.
    fn check(&self, stream: &CudaStream) -> Result<(), sys::CUresult> {
        if *stream != *self.stream {
            return Err(sys::CUresult::CUDA_ERROR_NOT_PERMITTED);
        }
        let captures = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        self.memory.stream().check_not_capturing("a call of cudarc").map_err(|_| captures)
    }

    /// Refuses a stream for reads: all but the home stream, and the home stream while another context is current. A
    /// copy of cudarc to another context makes that context current and reads on one of its streams, and yet asks for
    /// the address on this stream.
    fn check_read(&self, stream: &CudaStream) -> Result<(), sys::CUresult> {
        let current = get_current().map_err(|error| error.0)?;
        if current.is_some_and(|current| current != self.stream.context().cu_ctx()) {
            return Err(sys::CUresult::CUDA_ERROR_NOT_PERMITTED);
        }
        self.check(stream)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.memory.take_back();
    }
}

impl<T: NoUninit + AnyBitPattern, K: Kind, A: Access> Buffer<T, K, A> {
    /// A range of elements for calls of cudarc that read: a [`DevicePtr`], and a kernel's argument.
    ///
    /// The home stream must be [one of cudarc](crate::Stream::from_cudarc). Calls on another stream fail
    /// (CUDA_ERROR_NOT_PERMITTED, which cudarc's next call with the context returns): first make that stream the home stream
    /// ([`set_stream`](Self::set_stream)). So do copies to another context, for which
    /// [`copy_from_buffer`](Self::copy_from_buffer) is. To read on two streams at a time, give each a [clone](crate::SharedBuffer) with a
    /// home stream of its own.
    ///
    /// **Kernels.** `LaunchArgs::launch` is unsafe. With views, its caller also promises that the launch is on the
    /// buffer's home stream, that this stream does not capture then, and that the kernel only reads what is not mutable.
    ///
    /// ```
    /// # let Ok(library) = std::env::var("SOFTGPU_LIBRARY") else { return Ok(()) };
    /// # // SAFETY: the tests name softgpu.
    /// # let _loaded = unsafe { cuda_mem::Driver::builder().cuda(library).load() }?;
    /// use cuda_mem::{Allocate, Stream, memory::DeviceMemory};
    /// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
    /// let stream = Stream::from_cudarc(&theirs)?;
    /// let buffer = DeviceMemory::new(stream.context()).from_slice(&[1u32, 2, 3], &stream)?;
    /// assert_eq!(theirs.clone_dtoh(&buffer.cudarc_view(1..)?)?, [2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A call that writes does not take it:
    ///
    /// ```compile_fail,E0277
    /// # use cuda_mem::{Buffer, memory::kind::Device};
    /// # fn program(theirs: std::sync::Arc<cudarc::driver::CudaStream>, buffer: Buffer<f32, Device>)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// theirs.memset_zeros(&mut buffer.cudarc_view(..)?)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// The range exceeds the buffer; the home stream is none of cudarc, or captures; the device cannot address the
    /// memory.
    pub fn cudarc_view(&self, range: impl RangeBounds<usize>) -> Result<CudarcView<'_, T>> {
        Ok(CudarcView { lent: Lent::new::<T>("Buffer::cudarc_view", self, range)?, elements: PhantomData })
    }

    /// A range of elements for calls of cudarc that write: a [`DevicePtrMut`], and a kernel's mutable argument. All
    /// else is as with [`cudarc_view`](Self::cudarc_view).
    ///
    /// ```
    /// # let Ok(library) = std::env::var("SOFTGPU_LIBRARY") else { return Ok(()) };
    /// # // SAFETY: the tests name softgpu.
    /// # let _loaded = unsafe { cuda_mem::Driver::builder().cuda(library).load() }?;
    /// use cuda_mem::{Allocate, Stream, memory::DeviceMemory};
    /// let theirs = cudarc::driver::CudaContext::new(0)?.new_stream()?;
    /// let stream = Stream::from_cudarc(&theirs)?;
    /// let mut buffer = DeviceMemory::new(stream.context()).from_slice(&[1u32, 2, 3], &stream)?;
    /// theirs.memset_zeros(&mut buffer.cudarc_view_mut(..2)?)?;
    /// assert_eq!(buffer.to_vec()?, [0, 0, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Nobody else reads or writes the buffer meanwhile:
    ///
    /// ```compile_fail,E0502
    /// # use cuda_mem::{Buffer, memory::kind::Device};
    /// # fn program(theirs: std::sync::Arc<cudarc::driver::CudaStream>, mut buffer: Buffer<f32, Device>)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let mut written = buffer.cudarc_view_mut(..)?;
    /// let read = buffer.cudarc_view(..)?;
    /// theirs.memcpy_dtod(&read, &mut written)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`cudarc_view`](Self::cudarc_view).
    pub fn cudarc_view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<CudarcViewMut<'_, T>> {
        const CALL: &str = "Buffer::cudarc_view_mut";
        self.check_writable(CALL)?;
        Ok(CudarcViewMut { lent: Lent::new::<T>(CALL, self, range)?, elements: PhantomData })
    }
}

macro_rules! views {
    ($($view:ident),*) => { $(
        impl<T> DeviceSlice<T> for $view<'_, T> {
            fn len(&self) -> usize {
                self.lent.length
            }

            fn stream(&self) -> &Arc<CudaStream> {
                &self.lent.stream
            }
        }

        impl<T> DevicePtr<T> for $view<'_, T> {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
                self.lent.address(stream, self.lent.check_read(stream))
            }
        }

        impl<T> fmt::Debug for $view<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($view))
                    .field("device_pointer", &format_args!("{:#x}", self.lent.pointer))
                    .field("len", &self.lent.length)
                    .finish_non_exhaustive()
            }
        }
    )* };
}

views!(CudarcView, CudarcViewMut);

impl<T> DevicePtrMut<T> for CudarcViewMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.lent.address(stream, self.lent.check(stream))
    }
}

// SAFETY: the argument is a device pointer, which is read while the view is borrowed.
unsafe impl<'a, 'b: 'a, 'v: 'b, T> PushKernelArg<&'b CudarcView<'v, T>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b CudarcView<'v, T>) -> &mut Self {
        self.arg(&view.lent.pointer)
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, 'v: 'b, T> PushKernelArg<&'b mut CudarcViewMut<'v, T>> for LaunchArgs<'a> {
    fn arg(&mut self, view: &'b mut CudarcViewMut<'v, T>) -> &mut Self {
        self.arg(&view.lent.pointer)
    }
}
