//! This crate's kernels as PTX text, and those that a context has loaded. Their launchers know the parameters.

use crate::driver::context::{Context, PATIENCE};
use crate::driver::relaxed::RelaxedCalls;
use crate::error::{Error, Result, call, check_not_forked};
use crate::lifetime::CpuWait;
use crate::lifetime::captures::WaitWithoutCaptures;
use crate::lifetime::waiting::{self, Target};
use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_sys::{CUfunction, CUresult, CUstream, Driver};
use once_cell::sync::OnceCell;

const CALL: &str = "Context::load_kernels";

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

/// The kernels of `pieces.cu`: for few pieces in a launch, and for many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PiecesKernels {
    pub few: Kernel,
    pub many: Kernel,
}

/// The kernels of one driver context, once loaded.
#[derive(Default)]
pub(crate) struct Kernels {
    differ: OnceCell<Kernel>,
    signal: OnceCell<SignalKernels>,
    strided: OnceCell<StridedKernels>,
    /// None if the driver or the device refuses them.
    pieces: OnceCell<Option<PiecesKernels>>,
    /// Whether the program has queued work that waits for the CPU, or is about to.
    wanted: AtomicBool,
}

impl Context {
    /// Loads the kernels of this crate before their first use: comparisons, strided copies, copies of many pieces
    /// ([`CopyBatch`](crate::buffer::CopyBatch)), and [`SignalKernels`](crate::signal::SignalKernels).
    ///
    /// The driver waits for all work of the context when it loads a kernel: a call that loads one takes milliseconds or
    /// longer, where the next takes microseconds. A program that cannot accept this in its first copy between views, or in
    /// its first batch of many copies, calls this at its start.
    ///
    /// While queued work waits for the CPU, no kernel can be loaded. So the first
    /// [`Signals`](crate::signal::Signals) and the first
    /// [`Stream::launch_host_function`](crate::Stream::launch_host_function) of a context load all kernels. Before a
    /// program queues other such work, like a kernel that waits for the CPU, it must call this.
    ///
    /// # Errors
    ///
    /// Queued work waited for the CPU for ten seconds: [`Error::InvalidArgument`].
    #[doc(alias = "cuModuleLoadData")]
    pub fn load_kernels(&self) -> Result<()> {
        check_not_forked(CALL)?;
        self.differ_kernel()?;
        self.signal_kernels()?;
        self.strided_kernels()?;
        self.loaded(&self.state().kernels.pieces, pieces).map(drop)
    }

    /// The kernel that compares memory. The first call loads it.
    pub(crate) fn differ_kernel(&self) -> Result<Kernel> {
        self.loaded(&self.state().kernels.differ, differ).copied()
    }

    /// The kernels of [`signal`](crate::signal). The first call loads them.
    pub(crate) fn signal_kernels(&self) -> Result<&SignalKernels> {
        self.loaded(&self.state().kernels.signal, signal)
    }

    /// The kernels of strided copies. The first call loads them.
    pub(crate) fn strided_kernels(&self) -> Result<&StridedKernels> {
        self.loaded(&self.state().kernels.strided, strided)
    }

    /// The kernels that copy pieces. None if the driver or the device refuses them, or if they cannot be loaded now:
    /// queued work waits for the CPU, or a capture is under way. The caller copies without them then.
    pub(crate) fn pieces_kernels(&self) -> Option<PiecesKernels> {
        let place = &self.state().kernels.pieces;
        if let Some(kernels) = place.get() {
            return *kernels;
        }
        check_not_forked(CALL).ok()?;
        let _quiet = self.try_quiet()?;
        let _no_captures = WaitWithoutCaptures::begin()?;
        // Another library's capture must not be invalidated.
        let _relaxed = RelaxedCalls::begin(self.driver()).ok()?;
        self.load_once(place, pieces).ok().copied().flatten()
    }

    fn loaded<'a, T>(&self, place: &'a OnceCell<T>, load: fn(&Driver) -> Result<T>) -> Result<&'a T> {
        if let Some(kernels) = place.get() {
            return Ok(kernels);
        }
        check_not_forked(CALL)?;
        // The driver waits for all work of the context while it loads a kernel.
        let _quiet = self.quiet_moment(&CALL, Some(PATIENCE)).ok_or_else(|| {
            let rule =
                "kernels are loaded only while no queued work waits for the CPU: call this before queuing such work";
            Error::invalid(CALL, "the context's work", "waiting for the CPU", rule)
        })?;
        self.load_once(place, load)
    }

    /// Loads kernels, unless another thread has done so. In a quiet moment.
    fn load_once<'a, T>(&self, place: &'a OnceCell<T>, load: fn(&Driver) -> Result<T>) -> Result<&'a T> {
        let load = || {
            let _current = self.bind()?;
            load(self.driver().raw())
        };
        waiting::during(&CALL, Target::context(self), || place.get_or_try_init(load))
    }

    /// Prepares for work that waits for the CPU: loads the kernels, and fills the reserve of streams. While such work is
    /// queued, the driver does neither.
    pub(crate) fn prepare_cpu_waits(&self) {
        if !self.state().kernels.wanted.swap(true, Ordering::Relaxed)
            && let Some(_quiet) = self.try_quiet()
        {
            let _relaxed = RelaxedCalls::begin(self.driver());
            // If a load fails here, the call that needs the kernel reports the error.
            let _ = self.load_kernels();
        }
        self.fill_reserve_if_quiet();
    }

    /// Announces work of a stream that waits for the CPU, before it is queued. Afterwards the driver loads no kernels,
    /// makes no streams and frees no memory by calls that wait, so this first does so while it can.
    pub(crate) fn begin_cpu_wait(&self, stream: CUstream) -> CpuWait {
        self.prepare_cpu_waits();
        self.free_postponed();
        let begin = || self.state().quiet.begin(stream.addr());
        waiting::during(&"queuing work that waits for the CPU", Target::context(self), begin)
    }
}

fn differ(cuda: &Driver) -> Result<Kernel> {
    let [differ] = load(cuda, concat!(include_str!("builtin.ptx"), "\0"), [c"cuda_mem_differ"])?;
    Ok(differ)
}

fn signal(cuda: &Driver) -> Result<SignalKernels> {
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

fn strided(cuda: &Driver) -> Result<StridedKernels> {
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

/// A refusal is an answer: drivers before CUDA 12.1 and devices before Volta take no parameters of more than 4 KiB, and some
/// drivers have no compiler of PTX.
fn pieces(cuda: &Driver) -> Result<Option<PiecesKernels>> {
    let names = [c"cuda_mem_copy_pieces", c"cuda_mem_copy_many_pieces"];
    match load(cuda, concat!(include_str!("pieces.ptx"), "\0"), names) {
        Ok([few, many]) => Ok(Some(PiecesKernels { few, many })),
        Err(error) if error.driver_code().is_some_and(refuses) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a code says that a module never loads in this context.
fn refuses(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            | CUresult::CUDA_ERROR_INVALID_PTX
            | CUresult::CUDA_ERROR_INVALID_IMAGE
            | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED
            | CUresult::CUDA_ERROR_NOT_SUPPORTED
    )
}

/// Loads a PTX text, which ends with a zero byte for the driver, into the current context. The context unloads the
/// module at its end.
fn load<const N: usize>(cuda: &Driver, text: &'static str, names: [&CStr; N]) -> Result<[Kernel; N]> {
    debug_assert!(text.ends_with('\0'));
    let mut module = ptr::null_mut();
    #[expect(clippy::disallowed_methods, reason = "`Context::loaded` is watched")]
    // SAFETY: the text ends with a zero byte, and `module` is writable.
    unsafe { call!(cuda.cuModuleLoadData(&mut module, text.as_ptr().cast())) }?;
    let mut kernels = [Kernel(ptr::null_mut()); N];
    for (kernel, name) in kernels.iter_mut().zip(names) {
        // SAFETY: the module is loaded, and `kernel.0` is writable.
        unsafe { call!(cuda.cuModuleGetFunction(&mut kernel.0, module, name.as_ptr())) }?;
    }
    Ok(kernels)
}
