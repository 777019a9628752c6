//! softgpu: the CUDA driver's memory interface and the vkgdr interface over host memory.
//!
//! Programs that use CUDA memory run with it on machines without a GPU, and tests run on it. It answers bad calls as
//! the real driver does, its streams are asynchronous, its device memory has a size, and mapped memory can be
//! non-coherent, so that a missing flush shows. [`ledger()`] lists the live objects. [`misuse()`] lists what the
//! program did wrong: with [`Settings::races`] also unordered work on two streams, work on memory that the CPU has
//! [borrowed](CpuBorrow) or that has a [new owner](CpuBorrow::new_owner), reads of what was only recorded, and uses of
//! another thread's capture. [`faults`] makes calls fail, [`calls`] counts them, [`trace`] records them.
//!
//! Device addresses are addresses of this process, so a debugger can show device memory. With [`Settings::strict`] the
//! CPU faults there. softgpu runs no instruction of device code. It reads which kernels and variables PTX and cubins
//! declare, and a launch runs the code that is known under the kernel's name: a function of the program
//! ([`register_kernel`]), one that a library exports ([`Settings::kernels`]), or a built-in one. The text
//! `softgpu kernels` is an image of all built-in kernels; names after it select some.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | `fill_bytes` | address, u64 length, u32 value | sets bytes |
//! | `increment_u32` | address, u64 count | adds 1 to 32-bit words |
//! | `double_bytes` | address, u64 length | doubles bytes |
//! | `spin_until` | address, u32 value | waits until a word has a value, for ten seconds at most |
//! | `answer` | two addresses, u32 count | writes each of 1, 2, ... to the second word when the first word has it |
//! | `cuda_mem_echo_flag`, `cuda_mem_echo_ring`, `cuda_mem_count_ring`, `cuda_mem_sum_ring`, `cuda_mem_nothing` | as in cuda-mem's `signal.cu` | the same as the kernels there |
//! | `cuda_mem_differ` | as in cuda-mem | sets a word if two ranges of bytes differ |
//! | `cuda_mem_copy_1` to `_16`, `cuda_mem_copy_tiles_1` to `_16` | as in cuda-mem | copies words along axes |
//!
//! Each thread of a launch works on one byte or word. A kernel that touches an invalid address leaves an error in its
//! context, which all later calls answer. A semaphore of another API is an eventfd. Other processes of the same user
//! can open what a program exports.
//!
//! ```
//! use cuda_sys::{CUresult, Driver};
//! // SAFETY: softgpu's functions have the signatures that cuda-sys states; the compiler has compared them.
//! let driver = unsafe { Driver::from_resolver("softgpu", &mut softgpu::cuda_symbol) };
//! // SAFETY: 0 is the one value that cuInit takes.
//! let answer = unsafe { driver.cuInit(0) }?;
//! assert_eq!(answer, CUresult::CUDA_SUCCESS);
//! assert!(softgpu::ledger().is_empty());
//! # Ok::<(), cuda_sys::MissingSymbol>(())
//! ```
//!
//! A function that softgpu does not implement is absent from its table; no function only pretends to work. softgpu
//! knows the driver's interface and nothing of `cuda-mem`. Other programs use it too, as the library `libcuda.so.1` of
//! the package `softgpu-cdylib`, so it must behave like the driver and not as `cuda-mem` expects.
//!
//! A test chooses the machine, makes a call fail, and looks at what is left:
//!
//! ```
//! use cuda_sys::CUresult;
//! use softgpu::{FUNCTIONS, Fault, Settings};
//! softgpu::configure(Settings { devices: 1, memory: 1 << 30, ..Default::default() })?;
//! softgpu::faults([Fault::call("cuMemAlloc_v2", 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY)]);
//! let (mut context, mut memory) = (std::ptr::null_mut(), 0);
//! // SAFETY: results are written to variables of ours.
//! unsafe {
//!     assert_eq!(FUNCTIONS.cuInit.unwrap()(0), CUresult::CUDA_SUCCESS);
//!     assert_eq!(FUNCTIONS.cuDevicePrimaryCtxRetain.unwrap()(&mut context, 0), CUresult::CUDA_SUCCESS);
//!     assert_eq!(FUNCTIONS.cuCtxSetCurrent.unwrap()(context), CUresult::CUDA_SUCCESS);
//!     assert_eq!(FUNCTIONS.cuMemAlloc_v2.unwrap()(&mut memory, 4096), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
//!     assert_eq!(FUNCTIONS.cuMemAlloc_v2.unwrap()(&mut memory, 4096), CUresult::CUDA_SUCCESS);
//! }
//! let left: Vec<_> = softgpu::ledger().entries.iter().map(|entry| entry.kind).collect();
//! assert_eq!(left, [softgpu::Kind::PrimaryContext, softgpu::Kind::DeviceMemory]);
//! # Ok::<(), softgpu::SettingsError>(())
//! ```
//!
//! Settings come from [`configure`], or else from the environment: each field of [`Settings`] names its variable. Three
//! more variables request faults (`SOFTGPU_FAIL`, see [`faults_from`]), a trace (`SOFTGPU_TRACE`, a file to which every
//! call is appended), and misuse on standard error (`SOFTGPU_REPORT=1`) or in a file (its path). cuInit fails if a variable cannot
//! be read, and a line on standard error names it.

#![allow(clippy::disallowed_types, reason = "the locks of the driver that it stands for")]

mod api;
mod borrow;
mod call;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod ledger;
mod machine;
mod misuse;
mod rig;
mod settings;
mod state;
mod sync;
mod table;
mod vkgdr;
mod vulkan;

pub use borrow::{Borrow, CpuBorrow};
pub use call::shut_down;
pub use ledger::{Entry, Kind, Ledger, ledger, ledger_within, softgpu_ledger_live, softgpu_ledger_report};
pub use machine::{DeviceIdentity, machine, softgpu_memory_used};
pub use misuse::{Misuse, MisuseReport, misuse, softgpu_misuse_report};
pub use rig::{
    Call, Fault, FaultError, When, calls, calls_of, count_calls, faults, faults_from, injected, softgpu_faults,
    softgpu_injected, take_trace, trace,
};
pub use settings::{Peers, Settings, SettingsError, configure};
pub use state::graphs::finish_destructors;
pub use state::kernels::{KernelError, KernelLaunch, Number, register_kernel, register_parameters};
pub use state::{reset, start_number};
pub use table::{FUNCTIONS, cuda_symbol, vkgdr_symbol};
