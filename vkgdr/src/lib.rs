//! CPU-mapped memory of NVIDIA GPUs, without a kernel module. Vulkan allocates the memory and maps it for the CPU; CUDA
//! imports it.
//!
//! This crate is the C library `libvkgdr.so.1`, described in `include/vkgdr.h`: the API of upstream's vkgdr 0.1 with
//! additions. Programs load it as a shared library, or link this crate and find the functions with [`symbol`]. Rust
//! programs should use the crate `cuda-mem`, which builds on this crate. This crate uses Vulkan and the few CUDA calls
//! that an import needs. It does not depend on `cuda-mem`.
//!
//! ```
//! use std::ffi::CStr;
//! // The functions by their C names, for a table such as that of `vkgdr-sys`.
//! assert!(!vkgdr::symbol(c"vkgdr_memory_alloc").is_null());
//!
//! // SAFETY: the text lives as long as the process.
//! let version = unsafe { CStr::from_ptr(vkgdr::vkgdr_version()) };
//! assert!(version.to_bytes().starts_with(b"0.1")); // upstream's interface, then this library
//!
//! // No CUDA device has this number, so the call fails and sets the thread's last error.
//! // SAFETY: the call accepts any device number and any flags.
//! assert!(unsafe { vkgdr::vkgdr_open(-1, 0) }.is_null());
//! let error = vkgdr::vkgdr_last_error();
//! assert!(!error.is_null());
//! // SAFETY: malloc allocated the text for this call.
//! unsafe { libc::free(error.cast()) };
//! ```
//!
//! The path of a call: `api` and `additions` are the C functions; `handle` checks handles, catches panics and keeps
//! errors per thread; `cache` shares one Vulkan instance and one device per GPU among all handles; `memory` allocates,
//! maps and imports; `select` makes every choice that needs no driver.
//!
//! Besides new functions, this library adds to upstream's 0.1:
//!
//! - It checks sizes, flags, ranges and handles, and rounds ranges to whole atoms.
//! - A flush is a store fence on coherent memory.
//! - The Vulkan objects stay for later opens.
//! - It uses NVIDIA's driver directly where the Vulkan loader is missing or does not find the driver.
//! - It frees memory in the context that the memory was allocated in, whichever context is current.

#![allow(clippy::disallowed_types, reason = "a library of its own")]

mod additions;
mod api;
mod cache;
mod cuda;
#[cfg(feature = "describe")]
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
