//! Memory that a copy engine copies to or from. Memory types implement these traits, and [`copy`](crate::copy) uses
//! them.

use crate::{Context, Error, Result, Stream};
use cuda_sys::CUdeviceptr;

/// Memory that a [`CopyEngine`](crate::copy::CopyEngine) reads and writes. Offsets are in bytes for
/// [`MappedMemory`](crate::MappedMemory) and [`SharedMemory`](crate::SharedMemory), and in elements for every
/// [`Buffer`](crate::Buffer).
pub trait CopyMemory<T>: sealed::Side<T> {}

impl<T, M: sealed::Side<T>> CopyMemory<T> for M {}

/// Memory that supports stream-ordered copies: it waits for them before it is freed.
pub trait OrderedCopyMemory<T>: CopyMemory<T> + sealed::Ordered {}

impl<T, M: CopyMemory<T> + sealed::Ordered> OrderedCopyMemory<T> for M {}

/// Type of the memory. The rules of copying depend on it.
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
    /// The stream that orders work on the memory, if there is such a stream.
    pub home: Option<&'memory Stream>,
}

pub(crate) mod sealed {
    use super::Place;
    use crate::{Result, Stream};

    pub trait Side<T> {
        /// The range of `count` elements from `offset` on.
        fn place(&self, call: &'static str, offset: usize, count: usize) -> Result<Place<'_>>;

        /// Waits for device work on the memory, before the CPU touches it.
        fn settle(&self) -> Result<()>;

        /// Called before device work on the memory is queued on its home stream.
        fn begin_device_work(&self) {}

        /// Stores to non-coherent memory, without the flush.
        fn store(&self, place: &Place<'_>, source: &[u8]) -> Result<()>;

        /// Loads from non-coherent memory, after the invalidate.
        fn load(&self, place: &Place<'_>, destination: &mut [u8]) -> Result<()>;

        /// Flushes bytes that were just stored to non-coherent memory.
        fn flush(&self, place: &Place<'_>) -> Result<()>;

        /// Prepares non-coherent memory for device work: flushes only unflushed CPU writes, so that it overwrites no
        /// device writes.
        fn hand_over(&self, place: &Place<'_>) -> Result<()>;
    }

    pub trait Ordered {
        /// Makes later work on `stream` wait for the device work on the memory.
        fn order_before(&self, stream: &Stream) -> Result<()>;

        /// Makes later work on the memory, and its free, wait for the work queued on `stream` so far.
        fn order_after(&mut self, stream: &Stream) -> Result<()>;

        /// Whether no device work on the memory is in progress.
        fn is_idle(&self) -> Result<bool>;
    }
}

impl Place<'_> {
    /// Checks that an engine of `context` may copy this memory.
    pub(crate) fn check(&self, call: &'static str, context: &Context) -> Result<()> {
        if self.context == context || self.context.device() == context.device() {
            return Ok(());
        }
        Err(Error::InvalidArgument {
            call,
            argument: "the memory",
            value: format!("of device {}", self.context.device().ordinal()).into(),
            rule: "a copy engine serves memory of its own device; make one for each device",
        })
    }
}
