//! This crate's kernels as PTX text. Their launchers know the parameters; each [`Context`](crate::Context) keeps the
//! kernels that it has loaded.

use crate::error::{Result, call};
use core::ffi::{CStr, c_void};
use core::ptr;
use cuda_sys::{CUfunction, CUstream, Driver};

/// A kernel of one context, which unloads it at its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel(CUfunction);

// SAFETY: a CUfunction is a token that every thread may pass to the driver.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Launches the kernel in the current context, with one-dimensional blocks and threads.
    ///
    /// # Safety
    ///
    /// Kernel and stream belong to the current context. Each argument points to a value of the parameter's type. The
    /// kernel may access the memory that the arguments name until it has ended.
    pub unsafe fn launch(
        self,
        cuda: &Driver,
        blocks: u32,
        threads: u32,
        arguments: &mut [*mut c_void],
        stream: CUstream,
    ) -> Result<()> {
        let (arguments, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        // SAFETY: this function's contract.
        unsafe { call!(cuda.cuLaunchKernel(self.0, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, none)) }
    }
}

/// The kernels of `signal.cu`.
#[derive(Debug)]
pub(crate) struct SignalKernels {
    pub echo_flag: Kernel,
    pub echo_ring: Kernel,
    pub count_ring: Kernel,
    pub sum_ring: Kernel,
    pub nothing: Kernel,
}

/// The kernels of `strided.cu`, indexed by the binary logarithm of the word size.
#[derive(Debug)]
pub(crate) struct StridedKernels {
    pub plain: [Kernel; 5],
    pub tiled: [Kernel; 5],
}

pub(crate) fn differ(cuda: &Driver) -> Result<Kernel> {
    let [differ] = load(cuda, concat!(include_str!("builtin.ptx"), "\0"), [c"cuda_mem_differ"])?;
    Ok(differ)
}

pub(crate) fn signal(cuda: &Driver) -> Result<SignalKernels> {
    let names = [
        c"cuda_mem_echo_flag",
        c"cuda_mem_echo_ring",
        c"cuda_mem_count_ring",
        c"cuda_mem_sum_ring",
        c"cuda_mem_nothing",
    ];
    let [echo_flag, echo_ring, count_ring, sum_ring, nothing] =
        load(cuda, concat!(include_str!("signal.ptx"), "\0"), names)?;
    Ok(SignalKernels { echo_flag, echo_ring, count_ring, sum_ring, nothing })
}

pub(crate) fn strided(cuda: &Driver) -> Result<StridedKernels> {
    let names = [
        c"cuda_mem_copy_1",
        c"cuda_mem_copy_2",
        c"cuda_mem_copy_4",
        c"cuda_mem_copy_8",
        c"cuda_mem_copy_16",
        c"cuda_mem_copy_tiles_1",
        c"cuda_mem_copy_tiles_2",
        c"cuda_mem_copy_tiles_4",
        c"cuda_mem_copy_tiles_8",
        c"cuda_mem_copy_tiles_16",
    ];
    let [plain @ .., t1, t2, t4, t8, t16] = load(cuda, concat!(include_str!("strided.ptx"), "\0"), names)?;
    Ok(StridedKernels { plain, tiled: [t1, t2, t4, t8, t16] })
}

/// Loads a PTX text, which ends with a zero byte for the driver, into the current context. The context unloads the
/// module at its end.
fn load<const N: usize>(cuda: &Driver, text: &'static str, names: [&CStr; N]) -> Result<[Kernel; N]> {
    debug_assert!(text.ends_with('\0'));
    let mut module = ptr::null_mut();
    // SAFETY: the text ends with a zero byte, and `module` is writable.
    unsafe { call!(cuda.cuModuleLoadData(&mut module, text.as_ptr().cast())) }?;
    let mut kernels = [Kernel(ptr::null_mut()); N];
    for (kernel, name) in kernels.iter_mut().zip(names) {
        // SAFETY: the module is loaded, and `kernel.0` is writable.
        unsafe { call!(cuda.cuModuleGetFunction(&mut kernel.0, module, name.as_ptr())) }?;
    }
    Ok(kernels)
}
