//! The interface that cases use, so that one table of cases serves both cuda-mem's own interface and the C library's. A
//! refusal of either becomes a [`Refusal`].

mod c_library;
mod native;

use crate::c_objects::Failure;
use core::fmt;
use cuda_mem::Error;
use cudamem::status::*;

pub use c_library::{CLibrary, MappedMemory, StoredTo};
pub use native::Native;

/// What was wrong with a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A range lies outside the memory.
    Range,
    /// An offset, a size or an address is not a multiple of the required unit.
    Alignment,
    /// An argument is invalid.
    Argument,
    /// There is not enough memory.
    Memory,
    /// The device or the driver cannot do it.
    Unsupported,
    /// Something else.
    Other,
}

/// A refused call.
#[derive(Debug)]
pub struct Refusal {
    /// The reason.
    pub wrong: Wrong,
    /// The error's text.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let wrong = match &error {
            error if error.is_out_of_memory() => Wrong::Memory,
            Error::OutOfRange { .. } => Wrong::Range,
            Error::Misaligned { .. } => Wrong::Alignment,
            Error::InvalidArgument { .. } | Error::Alignment { .. } => Wrong::Argument,
            Error::Unsupported { .. } => Wrong::Unsupported,
            _ => Wrong::Other,
        };
        Self { wrong, text: error.to_string() }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let wrong = match failure.status {
            CUDAMEM_ERROR_OUT_OF_RANGE => Wrong::Range,
            CUDAMEM_ERROR_MISALIGNED => Wrong::Alignment,
            CUDAMEM_ERROR_INVALID_ARGUMENT => Wrong::Argument,
            CUDAMEM_ERROR_OUT_OF_MEMORY => Wrong::Memory,
            CUDAMEM_ERROR_UNSUPPORTED => Wrong::Unsupported,
            _ => Wrong::Other,
        };
        Self { wrong, text: failure.to_string() }
    }
}

/// The result of a call.
pub type Result<T = ()> = core::result::Result<T, Refusal>;

/// Checks that a call was refused for this reason.
///
/// # Errors
///
/// The call was not refused, or for another reason.
pub fn refused<T>(what: &str, result: Result<T>, wrong: Wrong) -> core::result::Result<(), String> {
    match result {
        Err(refusal) if refusal.wrong == wrong => Ok(()),
        Err(refusal) => Err(format!("{what}: {refusal:?} in place of {wrong:?}")),
        Ok(_) => Err(format!("{what} was not refused")),
    }
}

/// Bytes of any memory. Offsets and sizes are in bytes.
pub trait Bytes {
    /// Copies from the host.
    ///
    /// # Errors
    ///
    /// The interface's error, as for all methods here.
    fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result;
    /// Copies to the host.
    ///
    /// # Errors
    ///
    /// As [`write_bytes`](Self::write_bytes).
    fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result;
    /// The CPU address, if there is one.
    fn host(&self) -> Option<*mut u8>;
    /// Makes the CPU's writes visible to the device.
    ///
    /// # Errors
    ///
    /// As [`write_bytes`](Self::write_bytes).
    fn flush_bytes(&mut self, offset: usize, size: usize) -> Result;
    /// Makes the device's writes visible to the CPU.
    ///
    /// # Errors
    ///
    /// As [`write_bytes`](Self::write_bytes).
    fn invalidate_bytes(&mut self, offset: usize, size: usize) -> Result;
}

/// Mapped memory.
pub trait MappedBytes: Bytes {
    /// The unit of flush and invalidate.
    fn atom(&self) -> usize;
    /// Reads what the device sees, with the driver.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn device_read(&self, offset: usize, destination: &mut [u8]) -> Result;
    /// Writes with the driver.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn device_write(&mut self, offset: usize, source: &[u8]) -> Result;
}

/// The words of mapped memory.
pub trait Words {
    /// Stores 8 bytes.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn store_u64(&self, offset: usize, word: u64) -> Result;
    /// Loads 8 bytes.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn load_u64(&self, offset: usize) -> Result<u64>;
    /// Loads 4 bytes.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn load_u32(&self, offset: usize) -> Result<u32>;
}

/// A source of mapped memory.
pub trait MappedSource {
    /// Memory with one owner.
    type Memory: MappedBytes;
    /// Memory with shared ownership.
    type Shared: MappedBytes + Words;
    /// Allocates bytes with one owner.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn allocate(&self, size: usize) -> Result<Self::Memory>;
    /// Allocates bytes with shared ownership.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn allocate_shared(&self, size: usize) -> Result<Self::Shared>;
}

/// A pool's figures, in bytes and in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFigures {
    /// The requested bytes that are not freed.
    pub requested: u64,
    /// Their number of blocks.
    pub blocks: u64,
    /// The bytes that the pool holds of its source.
    pub reserved: u64,
    /// The bytes requested in total, and the bytes freed in total.
    pub total: (u64, u64),
}

/// An interface: its objects, and what cases do with them. Errors are the interface's.
#[expect(clippy::missing_errors_doc, reason = "said above")]
pub trait Interface: Sized {
    /// A stream.
    type Stream;
    /// A source of memory.
    type Resource;
    /// Memory of any source.
    type Buffer: Bytes;
    /// A copy engine.
    type Engine;

    /// Opens the first device of the driver that the tests use.
    fn open() -> Result<Self>;
    /// A stream.
    fn stream(&self) -> Result<Self::Stream>;
    /// Delays a stream's work for a short time.
    fn delay(stream: &Self::Stream) -> Result;
    /// The memory sources of the device, by name. Prints which ones are missing.
    fn sources(&self) -> Result<Vec<(&'static str, Self::Resource)>>;
    /// A pool over a source, with a maximum size in bytes; 0 means no limit.
    fn pool(source: &Self::Resource, maximum: u64) -> Result<Self::Resource>;
    /// Returns a pool's figures.
    fn figures(pool: &Self::Resource) -> Result<PoolFigures>;
    /// Releases a pool's unused memory.
    fn release_unused(pool: &Self::Resource) -> Result;
    /// Allocates bytes with undefined contents.
    fn allocate(resource: &Self::Resource, size: usize, stream: &Self::Stream) -> Result<Self::Buffer>;
    /// The address for kernels.
    fn address(buffer: &Self::Buffer) -> u64;
    /// Fills a range with words.
    fn fill(buffer: &mut Self::Buffer, offset: usize, size: usize, word: u32) -> Result;
    /// Copies between buffers.
    fn copy(to: &mut Self::Buffer, offset: usize, from: &Self::Buffer, start: usize, size: usize) -> Result;
    /// A part that shares the ownership.
    fn slice(buffer: &Self::Buffer, offset: usize, size: usize) -> Result<Self::Buffer>;
    /// Whether two buffers hold the same bytes.
    fn equals(one: &Self::Buffer, other: &Self::Buffer) -> Result<bool>;
    /// Sets a buffer's home stream.
    fn set_stream(buffer: &mut Self::Buffer, stream: &Self::Stream) -> Result;
    /// Waits for a buffer's work.
    fn synchronize(buffer: &Self::Buffer) -> Result;
    /// A copy engine.
    fn engine(&self) -> Result<Self::Engine>;
    /// Copies to a buffer with the engine.
    fn engine_write(engine: &Self::Engine, buffer: &mut Self::Buffer, offset: usize, source: &[u8]) -> Result;
    /// Copies from a buffer with the engine.
    fn engine_read(engine: &Self::Engine, buffer: &Self::Buffer, offset: usize, destination: &mut [u8]) -> Result;
}

/// Turns a refusal as unsupported into `None`, and prints what is missing.
fn supported<T>(name: &str, result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(refusal) if refusal.wrong == Wrong::Unsupported => {
            println!("skipped: {name}: {refusal}");
            Ok(None)
        }
        other => other.map(Some),
    }
}
