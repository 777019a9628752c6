//! The kernels of `kernels.ptx`, for tests with a GPU.

use cuda_mem::cuda_sys::{self, CUdeviceptr, CUfunction, CUmodule, CUresult};
use cuda_mem::{Context, Stream};
use std::error::Error;
use std::ffi::{CStr, CString, c_void};
use std::ptr;

const PTX: &str = include_str!("kernels.ptx");

/// The loaded kernels. They live as long as the context.
#[derive(Debug)]
pub struct Kernels {
    context: Context,
    module: CUmodule,
}

fn check(what: &str, result: Result<CUresult, cuda_sys::MissingSymbol>) -> Result<(), Box<dyn Error>> {
    match result? {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(format!("{what}: {} ({})", code.name().unwrap_or("?"), code.0).into()),
    }
}

impl Kernels {
    /// Loads the kernels.
    ///
    /// # Errors
    ///
    /// The driver does not accept the kernels, because it is not a real driver.
    pub fn new(context: &Context) -> Result<Self, Box<dyn Error>> {
        let _current = context.bind()?;
        let (image, mut module) = (CString::new(PTX)?, ptr::null_mut());
        // SAFETY: the image is text that ends with a zero byte, and the result is writable.
        check("cuModuleLoadData", unsafe {
            context.driver().raw().cuModuleLoadData(&mut module, image.as_ptr().cast())
        })?;
        Ok(Self { context: context.clone(), module })
    }

    fn function(&self, name: &CStr) -> Result<CUfunction, Box<dyn Error>> {
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded; the result is writable.
        check("cuModuleGetFunction", unsafe {
            self.context.driver().raw().cuModuleGetFunction(&mut function, self.module, name.as_ptr())
        })?;
        Ok(function)
    }

    fn launch(
        &self,
        name: &CStr,
        blocks: u32,
        threads: u32,
        stream: &Stream,
        arguments: &mut [*mut c_void],
    ) -> Result<(), Box<dyn Error>> {
        let _current = self.context.bind()?;
        let function = self.function(name)?;
        // SAFETY: each argument points to a value of the kernel's type that lives through the call.
        check("cuLaunchKernel", unsafe {
            self.context.driver().raw().cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.raw(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    /// Doubles bytes in place, in stream order.
    ///
    /// # Errors
    ///
    /// The launch failed.
    ///
    /// # Safety
    ///
    /// The memory is the device's, and nothing else uses it until the work is done.
    pub unsafe fn double_bytes(
        &self,
        mut memory: CUdeviceptr,
        mut length: u64,
        stream: &Stream,
    ) -> Result<(), Box<dyn Error>> {
        let blocks = u32::try_from(length.div_ceil(256))?;
        let mut arguments = [ptr::from_mut(&mut memory).cast(), ptr::from_mut(&mut length).cast()];
        self.launch(c"double_bytes", blocks, 256, stream, &mut arguments)
    }

    /// Answers `count` questions, one after the other, in stream order.
    ///
    /// # Errors
    ///
    /// The launch failed.
    ///
    /// # Safety
    ///
    /// Both are words that the device can address, and they stay valid until the work is done.
    pub unsafe fn answer(
        &self,
        mut question: CUdeviceptr,
        mut answer: CUdeviceptr,
        mut count: u32,
        stream: &Stream,
    ) -> Result<(), Box<dyn Error>> {
        let mut arguments =
            [ptr::from_mut(&mut question).cast(), ptr::from_mut(&mut answer).cast(), ptr::from_mut(&mut count).cast()];
        self.launch(c"answer", 1, 1, stream, &mut arguments)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.bind() {
            // SAFETY: this object owns the module, and its work is done, because the tests wait for it.
            let _ = unsafe { self.context.driver().raw().cuModuleUnload(self.module) };
        }
    }
}
