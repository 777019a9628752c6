//! The few kernels that this crate brings: PTX text, which the driver compiles when a context first needs it.

mod strided;

use crate::error::call;
use crate::{Context, Result, Stream};
use core::ffi::CStr;
use core::ptr;
use cuda_sys::{CUdeviceptr, CUfunction};

pub(crate) use strided::StridedKernels;

/// Ends with the zero that the driver looks for.
const PTX: &str = concat!(include_str!("builtin.ptx"), "\0");
const THREADS: u32 = 256;
/// Enough to fill any device; each thread then takes several elements.
const MOST_BLOCKS: u64 = 2048;

/// The kernels of one context. They end with it.
#[derive(Debug)]
pub(crate) struct Kernels {
    differ: CUfunction,
}

// SAFETY: a CUfunction is a token that every thread may pass to the driver.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads the kernels. The module is left to the context, which unloads it when it ends.
    pub fn load(context: &Context) -> Result<Self> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let (mut module, mut differ) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the text ends with a zero, and `module` is writable.
        unsafe { call!(cuda.cuModuleLoadData(&mut module, PTX.as_ptr().cast())) }?;
        let name: &CStr = c"cuda_mem_differ";
        // SAFETY: the module is loaded, and `differ` is writable.
        unsafe { call!(cuda.cuModuleGetFunction(&mut differ, module, name.as_ptr())) }?;
        Ok(Self { differ })
    }

    /// Sets the word at `flag` to 1 if two ranges of `length` bytes differ, in stream order.
    ///
    /// # Safety
    ///
    /// The kernels are of the stream's context, whose device may read both ranges and write the word until it is done.
    pub unsafe fn differ(
        &self,
        mut left: CUdeviceptr,
        mut right: CUdeviceptr,
        mut length: u64,
        mut flag: CUdeviceptr,
        stream: &Stream,
    ) -> Result<()> {
        let aligned = (left | right).is_multiple_of(8);
        let mut words = if aligned { length / 8 } else { 0 };
        let threads = if aligned { length.div_ceil(8) } else { length };
        let blocks = threads.div_ceil(THREADS.into()).clamp(1, MOST_BLOCKS) as u32;
        let mut arguments =
            [&raw mut left, &raw mut right, &raw mut words, &raw mut length, &raw mut flag].map(|value| value.cast());
        let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
        let (stream, arguments) = (stream.raw(), arguments.as_mut_ptr());
        // SAFETY: the arguments are five words of 8 bytes, as the kernel takes; the rest is this function's contract.
        unsafe {
            call!(cuda.cuLaunchKernel(self.differ, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, ptr::null_mut()))
        }
    }
}
