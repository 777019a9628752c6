//! NVML, NVIDIA's management library, for the machine that softgpu simulates.
//!
//! It reads the settings of softgpu from the environment, so both describe the same devices. Like NVML, it lists all
//! devices of the machine, also those that `CUDA_VISIBLE_DEVICES` hides from the program. Every pair of devices is
//! joined by one NVLink, because softgpu's devices can all address each other. A device without a peer has no link.
//!
//! Functions that it does not have are absent.

#![allow(clippy::disallowed_types, reason = "a library of its own")]

mod calls;
mod devices;
mod fields;
mod links;
mod memory;
mod text;

pub use devices::*;
pub use fields::*;
pub use links::*;
pub use text::*;

#[cfg(test)]
mod tests;
