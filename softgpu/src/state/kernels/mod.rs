//! The code of kernels: the program's, found by the name of the kernel, or softgpu's own; and launches.

mod built_in;
mod code;
mod from_library;
mod launch;
mod parameters;
mod pieces;
mod registered;
mod ring;
mod strided;
mod touched;

pub(crate) use built_in::read;
pub(crate) use from_library::CodeLibrary;
pub(crate) use launch::Launch;
pub(crate) use parameters::parameters;

pub use parameters::register_parameters;
pub use registered::{KernelError, KernelLaunch, Number, register_kernel};
