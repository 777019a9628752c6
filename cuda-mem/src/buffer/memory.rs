//! A range of a buffer's memory, as a copy engine sees it.

use crate::memory::resource::BlockKind;
use crate::{Context, Error, Result, Stream};
use cuda_sys::CUdeviceptr;

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
    pub memory: BlockKind,
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
