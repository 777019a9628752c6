//! The device's side of a copy: memory that an engine copies to or from. Memory implements it, and [`copy`](crate::copy) uses it.

use crate::{Context, Error, Result, Stream};
use cuda_sys::CUdeviceptr;

/// Memory that a [`CopyEngine`](crate::copy::CopyEngine) reads and writes: [`MappedMemory`](crate::MappedMemory) and
/// [`SharedMemory`](crate::SharedMemory), where offsets are in bytes, and every [`Buffer`](crate::Buffer), where they are
/// in elements.
pub trait CopyMemory<T>: sealed::Side<T> {}

impl<T, M: sealed::Side<T>> CopyMemory<T> for M {}

/// Memory whose copies can be in order of a stream: it waits for them when it ends.
pub trait OrderedCopyMemory<T>: CopyMemory<T> + sealed::Ordered {}

impl<T, M: CopyMemory<T> + sealed::Ordered> OrderedCopyMemory<T> for M {}

/// What the memory is, for the rules of copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The CPU does not address it.
    Device,
    /// Device memory that the CPU addresses, coherently.
    Mapped,
    /// Device memory that the CPU addresses through flushes and invalidates.
    NonCoherent,
    /// The host's.
    Host,
    /// The driver moves it.
    Managed,
}

/// A range of the memory.
#[derive(Clone, Copy, Debug)]
pub struct Place<'memory> {
    pub context: &'memory Context,
    /// The device's address.
    pub device: CUdeviceptr,
    /// The CPU's address; null where it has none.
    pub host: *mut u8,
    /// In bytes.
    pub size: usize,
    pub memory: Memory,
    /// The stream that the memory's work is in order of, where it has one.
    pub home: Option<&'memory Stream>,
}

pub(crate) mod sealed {
    use super::Place;
    use crate::{Result, Stream};

    pub trait Side<T> {
        /// `count` elements from `offset` on.
        fn place(&self, call: &'static str, offset: usize, count: usize) -> Result<Place<'_>>;

        /// Waits for device work on the memory, before the CPU touches it.
        fn settle(&self) -> Result<()>;

        /// Device work on the memory is about to be given to its home stream.
        fn begin_device_work(&self) {}

        /// Stores to memory that is not coherent, without the flush.
        fn store(&self, place: &Place<'_>, source: &[u8]) -> Result<()>;

        /// Loads from memory that is not coherent, after the invalidate.
        fn load(&self, place: &Place<'_>, destination: &mut [u8]) -> Result<()>;

        /// Posts what was just stored to memory that is not coherent.
        fn flush(&self, place: &Place<'_>) -> Result<()>;

        /// Makes memory that is not coherent ready for device work: what the CPU wrote and did not flush is flushed, and
        /// nothing else, so that no write of the device's is undone.
        fn hand_over(&self, place: &Place<'_>) -> Result<()>;
    }

    pub trait Ordered {
        /// Lets work given to `stream` from now on wait for the device's work on the memory.
        fn order_before(&self, stream: &Stream) -> Result<()>;

        /// Lets the memory's later work, and its end, wait for what was given to `stream` so far.
        fn order_after(&mut self, stream: &Stream) -> Result<()>;

        /// Whether no device work on the memory is under way.
        fn is_idle(&self) -> Result<bool>;
    }
}

impl Place<'_> {
    /// Checks that an engine of `context` may copy here.
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
