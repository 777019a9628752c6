//! What cases need of an interface, so that one table holds for both: cuda-mem's own, and the C library's. A refusal of
//! either becomes a [`Refusal`].

mod c_library;
mod native;

use crate::c_objects::Failure;
use core::fmt;
use cuda_mem::Error;
use cudamem::status::*;

pub use c_library::CLibrary;
pub use native::Native;

/// What was wrong with a call that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A range lies outside.
    Range,
    /// An offset, a size or an address is no multiple of what it has to be.
    Alignment,
    /// An argument cannot be.
    Argument,
    /// There is no room.
    Memory,
    /// The device or the driver cannot do it.
    Unsupported,
    /// Something else.
    Other,
}

/// A call that was refused.
#[derive(Debug)]
pub struct Refusal {
    /// Why.
    pub wrong: Wrong,
    /// In words.
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
            Error::InvalidArgument { .. } => Wrong::Argument,
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

/// What a call gives.
pub type Result<T = ()> = core::result::Result<T, Refusal>;

/// Checks that a call was refused for a reason.
///
/// # Errors
///
/// It was not, or for another.
pub fn refused<T>(what: &str, result: Result<T>, wrong: Wrong) -> core::result::Result<(), String> {
    match result {
        Err(refusal) if refusal.wrong == wrong => Ok(()),
        Err(refusal) => Err(format!("{what}: {refusal:?} in place of {wrong:?}")),
        Ok(_) => Err(format!("{what} was not refused")),
    }
}

/// Bytes of any memory. Offsets and sizes in bytes.
pub trait Bytes {
    /// Copies from the host.
    ///
    /// # Errors
    ///
    /// The interface's, as of all methods here.
    fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result;
    /// Copies to the host.
    ///
    /// # Errors
    ///
    /// As [`write_bytes`](Self::write_bytes).
    fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result;
    /// The address for the CPU, if it has one.
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
    /// What the device sees.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn device_read(&self, offset: usize, destination: &mut [u8]) -> Result;
    /// By the driver.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn device_write(&mut self, offset: usize, source: &[u8]) -> Result;
}

/// Mapped memory's words.
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
    /// Memory of one owner.
    type Memory: MappedBytes;
    /// Memory of several.
    type Shared: MappedBytes + Words;
    /// Some bytes.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn allocate(&self, size: usize) -> Result<Self::Memory>;
    /// Some bytes.
    ///
    /// # Errors
    ///
    /// The interface's.
    fn allocate_shared(&self, size: usize) -> Result<Self::Shared>;
}

/// What a pool has, in bytes and in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolFigures {
    /// What was asked for, and is not freed.
    pub requested: u64,
    /// In how many blocks.
    pub blocks: u64,
    /// What the pool has of its source.
    pub reserved: u64,
    /// What has been asked for in all, and what has been freed.
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

    /// The first device of the driver that tests run over.
    fn open() -> Result<Self>;
    /// A stream.
    fn stream(&self) -> Result<Self::Stream>;
    /// Holds a stream back for a while.
    fn delay(stream: &Self::Stream) -> Result;
    /// The sources that the device has, by name; what it lacks is said.
    fn sources(&self) -> Result<Vec<(&'static str, Self::Resource)>>;
    /// A pool over a source, of at most so many bytes; 0 is no limit.
    fn pool(source: &Self::Resource, maximum: u64) -> Result<Self::Resource>;
    /// What a pool has.
    fn figures(pool: &Self::Resource) -> Result<PoolFigures>;
    /// Gives a pool's unused memory back.
    fn release_unused(pool: &Self::Resource) -> Result;
    /// Some bytes, which are undefined.
    fn allocate(resource: &Self::Resource, size: usize, stream: &Self::Stream) -> Result<Self::Buffer>;
    /// The address for kernels.
    fn address(buffer: &Self::Buffer) -> u64;
    /// Fills a range with words.
    fn fill(buffer: &mut Self::Buffer, offset: usize, size: usize, word: u32) -> Result;
    /// Copies between buffers.
    fn copy(to: &mut Self::Buffer, offset: usize, from: &Self::Buffer, start: usize, size: usize) -> Result;
    /// A part that shares the ownership.
    fn slice(buffer: &Self::Buffer, offset: usize, size: usize) -> Result<Self::Buffer>;
    /// Whether two hold the same bytes.
    fn equals(one: &Self::Buffer, other: &Self::Buffer) -> Result<bool>;
    /// Gives a buffer another home.
    fn set_stream(buffer: &mut Self::Buffer, stream: &Self::Stream) -> Result;
    /// Waits for a buffer's work.
    fn synchronize(buffer: &Self::Buffer) -> Result;
    /// A copy engine.
    fn engine(&self) -> Result<Self::Engine>;
    /// A copy by the engine.
    fn engine_write(engine: &Self::Engine, buffer: &mut Self::Buffer, offset: usize, source: &[u8]) -> Result;
    /// A copy by the engine.
    fn engine_read(engine: &Self::Engine, buffer: &Self::Buffer, offset: usize, destination: &mut [u8]) -> Result;
}

/// What this machine has of something.
fn supported<T>(name: &str, result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(refusal) if refusal.wrong == Wrong::Unsupported => {
            println!("skipped: {name}: {refusal}");
            Ok(None)
        }
        other => other.map(Some),
    }
}
