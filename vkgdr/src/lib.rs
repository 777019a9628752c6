//! CPU-mapped memory of NVIDIA GPUs, without a kernel module: allocated by Vulkan, mapped for the CPU, imported into
//! CUDA.
//!
//! This crate is the C library `libvkgdr.so.1`, described in `include/vkgdr.h`: the API of upstream's vkgdr 0.1 with
//! additions. It is loaded like any shared library, or linked in as a crate and resolved by [`symbol`]. Rust programs
//! use the crate `cuda-mem` on top of it.
//! It knows Vulkan and the few calls of CUDA that an import takes, and nothing of `cuda-mem`.
//!
//! ```
//! use std::ffi::CStr;
//! // The functions by their C names, for a table such as that of `vkgdr-sys`.
//! assert!(!vkgdr::symbol(c"vkgdr_memory_alloc").is_null());
//!
//! // SAFETY: the text lives as long as the process.
//! let version = unsafe { CStr::from_ptr(vkgdr::vkgdr_version()) };
//! assert!(version.to_bytes().starts_with(b"0.1")); // the interface, then this library
//!
//! // No Vulkan device has this number: the thread's last error says so.
//! // SAFETY: any number and flags may be asked for.
//! assert!(unsafe { vkgdr::vkgdr_open(-1, 0) }.is_null());
//! let error = vkgdr::vkgdr_last_error();
//! assert!(!error.is_null());
//! // SAFETY: the text was allocated by malloc for this call.
//! unsafe { libc::free(error.cast()) };
//! ```
//!
//! How a call goes: `api` and `additions` are the C functions; `handle` checks handles, stops panics and keeps errors
//! per thread; `cache` shares one Vulkan instance and one device per GPU among all handles; `memory` allocates, maps and
//! imports; `select` holds every choice that needs no driver.
//!
//! What this library adds to the interface of upstream's 0.1 beyond its functions: sizes, flags, ranges and handles are
//! checked; ranges are rounded to whole atoms; flush is a store fence on coherent memory; the Vulkan objects stay for
//! later opens; NVIDIA's driver is used directly where Vulkan's loader is missing or does not find it; memory is freed
//! in its own context, whichever is current.

mod additions;
mod api;
mod cache;
mod cuda;
mod describe;
mod device;
mod error;
mod fence;
mod handle;
mod instance;
mod library;
mod memory;
mod process;
mod select;
mod trace;

pub use additions::*;
pub use api::*;
pub use cuda::Resolver;
pub use error::{INTERNAL, INVALID_HANDLE, INVALID_VALUE, LIBRARY_NOT_FOUND, NO_DEVICE, SYSTEM};
pub use handle::{
    Allocation, Gpu, VKGDR_OPEN_CURRENT_CONTEXT_BIT, VKGDR_OPEN_FORCE_NON_COHERENT_BIT,
    VKGDR_OPEN_REQUIRE_COHERENT_BIT, vkgdr_memory_t, vkgdr_t,
};
