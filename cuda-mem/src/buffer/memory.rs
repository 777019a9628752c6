//! Who addresses a buffer's memory, and a range of it as a copy engine sees it.

use crate::{Context, Error, Result, Stream};
use cuda_sys::CUdeviceptr;

/// Who addresses the memory, and how. The rules of copying depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The CPU cannot address it.
    Device,
    /// Device memory that the CPU addresses coherently.
    Mapped,
    /// Device memory that the CPU addresses, but only through flushes and invalidates.
    NonCoherent,
    /// Host memory.
    Host,
    /// Managed memory: the driver moves it.
    Managed,
}

/// A range of the memory.
#[derive(Clone, Copy, Debug)]
pub struct Place<'memory> {
    pub context: &'memory Context,
    /// The device address.
    pub device: CUdeviceptr,
    /// The CPU address, or null.
    pub host: *mut u8,
    /// In bytes.
    pub size: usize,
    pub memory: Memory,
    /// The stream that orders work on the memory.
    pub home: &'memory Stream,
}

impl Place<'_> {
    /// Checks that an engine of `context` may copy this memory.
    pub(crate) fn check(&self, call: &'static str, context: &Context) -> Result<()> {
        if self.context == context || self.context.device() == context.device() {
            return Ok(());
        }
        let rule = "a copy engine serves memory of its own device; make one for each device";
        Err(Error::invalid(call, "the memory", format_args!("of device {}", self.context.device().ordinal()), rule))
    }
}
