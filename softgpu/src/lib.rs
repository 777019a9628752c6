//! softgpu: the CUDA driver's memory interface and the vkgdr interface over host memory.
//!
//! It lets a program that uses CUDA memory run on a machine without a GPU, and it is the rig that tests run on: it
//! answers bad calls as the real driver does, its streams are truly asynchronous, its device memory has a size, and
//! mapped memory can be non-coherent, so that a missing flush shows. A [`ledger()`] lists what is alive.
//!
//! Device addresses are addresses of this process: a debugger can look at device memory. There are no kernels.
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
//! A function that softgpu does not serve is absent from its table: nothing here only pretends.
//!
//! Settings come from [`configure`], or else from the environment: see [`Settings`].

mod api;
mod call;
mod ledger;
mod settings;
mod state;
mod table;
mod vkgdr;
mod vulkan;

pub use call::shut_down;
pub use ledger::{Entry, Kind, Ledger, ledger, softgpu_ledger_live, softgpu_ledger_report};
pub use settings::{Settings, SettingsError, configure};
pub use state::reset;
pub use table::{FUNCTIONS, cuda_symbol, vkgdr_symbol};
