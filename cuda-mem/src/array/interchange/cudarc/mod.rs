//! The crate [`cudarc`]: its contexts, streams and memory here, and our buffers in its calls.
//!
//! | of cudarc | here | |
//! |---|---|---|
//! | `Arc<CudaContext>` | [`Context::from_cudarc`], [`Context::to_cudarc`] | the same context; each side keeps it alive |
//! | `Arc<CudaStream>` | [`Stream::from_cudarc`] | the same stream |
//! | [`CudaSlice`](::cudarc::driver::CudaSlice) | [`Buffer::from_cudarc`](crate::Buffer::from_cudarc) | the same memory, which cudarc frees |
//! | [`DevicePtr`](::cudarc::driver::DevicePtr), `&` argument of a kernel | [`Buffer::cudarc_view`](crate::Buffer::cudarc_view) | a view, which is read |
//! | [`DevicePtrMut`](::cudarc::driver::DevicePtrMut), `&mut` argument of a kernel | [`Buffer::cudarc_view_mut`](crate::Buffer::cudarc_view_mut) | a view, which is written |
//!
//! **Order.** A buffer whose home stream is cudarc's needs no events: cudarc's work on that stream comes after the
//! buffer's earlier work, and the buffer's later work and its free come after cudarc's.
//!
//! **One driver.** Both crates must use the same libcuda. cudarc loads it by name. cuda-mem uses [`Driver::load`], and
//! refuses a context of another library.
//!
//! **Releases.** This is for cudarc 0.19, from 0.19.10 on. The program chooses cudarc's CUDA release and how cudarc
//! finds its libraries, by cudarc's own features. Without a choice, cudarc loads them at run time, and has the release
//! of the installed toolkit, or else its newest.
//!
//! ```
//! # let Ok(library) = std::env::var("SOFTGPU_LIBRARY") else { return Ok(()) };
//! # // SAFETY: the tests name softgpu.
//! # let _loaded = unsafe { cuda_mem::Driver::builder().cuda(library).load() }?;
//! use cuda_mem::{Allocate, Stream, memory::DeviceMemory, pool::{Pool, PoolOptions}};
//! use cudarc::driver::CudaContext;
//!
//! let theirs = CudaContext::new(0)?.new_stream()?;
//! let stream = Stream::from_cudarc(&theirs)?;
//! let pool = Pool::new(&DeviceMemory::new(stream.context()), &PoolOptions::default())?;
//! let mut numbers = pool.zeroed::<f32>(1000, &stream)?;
//! theirs.memcpy_htod(&[1.0; 10], &mut numbers.cudarc_view_mut(..)?)?; // a call of cudarc
//! assert_eq!(numbers.to_vec()?[..11], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod library;
mod slice;
mod view;

pub use view::{CudarcView, CudarcViewMut};

use crate::error::DriverError;
use crate::error::callback::call_back;
use crate::{Context, Driver, Error, Result, Stream};
use ::cudarc::driver::{self, CudaContext, CudaStream};
use cuda_sys::CUresult;
use std::sync::Arc;

/// An error of cudarc.
fn error_of(call: &'static str, error: driver::DriverError) -> Error {
    DriverError { call, code: CUresult(error.0 as _) }.into()
}

/// So that `?` serves both crates in one function.
impl From<driver::DriverError> for Error {
    fn from(error: driver::DriverError) -> Self {
        error_of("a call of cudarc", error)
    }
}

impl Context {
    /// Uses a context of cudarc, and keeps it alive.
    ///
    /// # Errors
    ///
    /// No driver is found ([`Driver::load`]), or it is another library than cudarc's.
    pub fn from_cudarc(context: &Arc<CudaContext>) -> Result<Self> {
        let driver = Driver::load()?;
        library::check_same("Context::from_cudarc", &driver, context)?;
        // SAFETY: a CudaContext keeps its context until its drop, and the driver is the one that made it.
        unsafe { Self::borrow_with_owner(&driver, context.cu_ctx().cast(), context.clone()) }
    }

    /// The context as one of cudarc, which holds a count of the device's primary context. As `CudaContext::new`, this
    /// makes the context current on the calling thread.
    ///
    /// ```
    /// # let Ok(library) = std::env::var("SOFTGPU_LIBRARY") else { return Ok(()) };
    /// # // SAFETY: the tests name softgpu.
    /// # let _loaded = unsafe { cuda_mem::Driver::builder().cuda(library).load() }?;
    /// use cuda_mem::{Driver, Stream};
    /// let context = Driver::load()?.device(0)?.primary_context()?;
    /// let theirs = context.to_cudarc()?.new_stream()?;
    /// let stream = Stream::from_cudarc(&theirs)?;
    /// assert_eq!(*stream.context(), context);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The context is neither cudarc's nor a primary context. cudarc finds no libcuda ([`Error::Panicked`]), or another
    /// one.
    pub fn to_cudarc(&self) -> Result<Arc<CudaContext>> {
        const CALL: &str = "Context::to_cudarc";
        if let Some(theirs) = self.foreign_owner().and_then(|owner| owner.clone().downcast().ok()) {
            return Ok(theirs);
        }
        self.check_alive()?;
        let ordinal = self.device().ordinal() as usize;
        // cudarc panics if it finds no library.
        let made = call_back(|| CudaContext::new(ordinal)).map_err(|panic| panic.of("cudarc's CudaContext::new"))?;
        let theirs = made.map_err(|error| error_of(CALL, error))?;
        library::check_same(CALL, self.driver(), &theirs)?;
        if theirs.cu_ctx().cast() == self.raw() {
            return Ok(theirs);
        }
        let rule = "cudarc can hold the primary context only: use Device::primary_context, or a context of cudarc";
        Err(Error::invalid(CALL, "the context", "not the device's primary context", rule))
    }
}

impl Stream {
    /// Uses a stream of cudarc, and keeps it and its context alive. Buffers with this home stream need no events for
    /// cudarc's work on the stream.
    ///
    /// While the stream captures, calls of this crate on it are refused, and it joins no capture: cudarc could launch the
    /// graph when memory that it names belongs to others
    /// ([`CaptureRefusal::OthersLaunch`](crate::graph::CaptureRefusal::OthersLaunch)).
    ///
    /// As with cudarc's own calls: while one thread uses the stream, no other may begin or end a capture of it.
    ///
    /// For a stream of both crates, make it in cudarc: cudarc has no safe way to use a stream of another owner.
    ///
    /// # Errors
    ///
    /// As [`Context::from_cudarc`].
    pub fn from_cudarc(stream: &Arc<CudaStream>) -> Result<Self> {
        let context = Context::from_cudarc(stream.context())?;
        // SAFETY: a CudaStream keeps its stream until its drop. Captures: cudarc requires the same of its users.
        Ok(unsafe { Self::borrow_of_safe_owner(&context, stream.cu_stream().cast(), stream.clone()) })
    }

    /// The stream of cudarc that [`from_cudarc`](Self::from_cudarc) took.
    fn as_cudarc(&self, call: &'static str) -> Result<Arc<CudaStream>> {
        self.foreign_owner().and_then(|owner| owner.clone().downcast().ok()).ok_or_else(|| {
            let rule = "cudarc must know it: make a stream in cudarc, and pass Stream::from_cudarc of it to \
                        Buffer::set_stream";
            Error::invalid(call, "the buffer's home stream", format_args!("{:p}", self.raw()), rule)
        })
    }
}
