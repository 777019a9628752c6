//! What cases need of an interface, so that one table holds for both: cuda-mem's own, and the C library's. A refusal of
//! either becomes a [`Refusal`].

use crate::c_objects::{self as c, Failure};
use core::fmt;
use cuda_mem::copy::CopyEngine;
use cuda_mem::mapped::{MappedMemory, MappedResource};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, ManagedMemory, ManagedPool, PinnedMemory, PinnedPool, PoolOptions, ResourceHandle,
    SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolSettings};
use cuda_mem::{Buffer, Context, Error, SharedBuffer, SharedMemory, Stream};
use cudamem::resource::{CUDAMEM_MEMORY_DEVICE, CUDAMEM_MEMORY_MANAGED, CUDAMEM_MEMORY_PINNED};
use cudamem::status::*;

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

macro_rules! mapped_bytes {
    ($($memory:ty),*) => { $(
        impl Bytes for $memory {
            fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result {
                Ok(self.copy_from_slice(offset, source)?)
            }
            fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result {
                Ok(self.copy_to_slice(offset, destination)?)
            }
            fn host(&self) -> Option<*mut u8> {
                Some(self.host_pointer())
            }
            fn flush_bytes(&mut self, offset: usize, size: usize) -> Result {
                Ok(<$memory>::flush(self, offset..offset.saturating_add(size))?)
            }
            fn invalidate_bytes(&mut self, offset: usize, size: usize) -> Result {
                Ok(<$memory>::invalidate(self, offset..offset.saturating_add(size))?)
            }
        }

        impl MappedBytes for $memory {
            fn atom(&self) -> usize {
                self.coherence().atom()
            }
            fn device_read(&self, offset: usize, destination: &mut [u8]) -> Result {
                Ok(<$memory>::device_read(self, offset, destination)?)
            }
            fn device_write(&mut self, offset: usize, source: &[u8]) -> Result {
                Ok(<$memory>::device_write(self, offset, source)?)
            }
        }
    )* };
}
mapped_bytes!(MappedMemory, SharedMemory);

impl Words for SharedMemory {
    fn store_u64(&self, offset: usize, word: u64) -> Result {
        Ok(self.cell::<u64>(offset)?.store(word)?)
    }
    fn load_u64(&self, offset: usize) -> Result<u64> {
        Ok(self.cell::<u64>(offset)?.load()?)
    }
    fn load_u32(&self, offset: usize) -> Result<u32> {
        Ok(self.cell::<u32>(offset)?.load()?)
    }
}

impl MappedSource for MappedResource {
    type Memory = MappedMemory;
    type Shared = SharedMemory;
    fn allocate(&self, size: usize) -> Result<MappedMemory> {
        Ok(MappedResource::allocate(self, size)?)
    }
    fn allocate_shared(&self, size: usize) -> Result<SharedMemory> {
        Ok(MappedResource::allocate(self, size)?.into_shared())
    }
}

impl Bytes for c::Mapped {
    fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result {
        Ok(c::Mapped::write(self, offset, source)?)
    }
    fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result {
        Ok(c::Mapped::read(self, offset, destination)?)
    }
    fn host(&self) -> Option<*mut u8> {
        self.host_pointer().ok().map(<*mut _>::cast)
    }
    fn flush_bytes(&mut self, offset: usize, size: usize) -> Result {
        Ok(c::Mapped::flush(self, offset, size)?)
    }
    fn invalidate_bytes(&mut self, offset: usize, size: usize) -> Result {
        Ok(c::Mapped::invalidate(self, offset, size)?)
    }
}

impl MappedBytes for c::Mapped {
    fn atom(&self) -> usize {
        c::Mapped::atom(self).unwrap_or_default()
    }
    fn device_read(&self, offset: usize, destination: &mut [u8]) -> Result {
        Ok(c::Mapped::device_read(self, offset, destination)?)
    }
    fn device_write(&mut self, offset: usize, source: &[u8]) -> Result {
        Ok(c::Mapped::device_write(self, offset, source)?)
    }
}

impl Words for c::Mapped {
    fn store_u64(&self, offset: usize, word: u64) -> Result {
        Ok(c::Mapped::store_u64(self, offset, word)?)
    }
    fn load_u64(&self, offset: usize) -> Result<u64> {
        Ok(c::Mapped::load_u64(self, offset)?)
    }
    fn load_u32(&self, offset: usize) -> Result<u32> {
        Ok(c::Mapped::load_u32(self, offset)?)
    }
}

impl MappedSource for c::Resource {
    type Memory = c::Mapped;
    type Shared = c::Mapped;
    fn allocate(&self, size: usize) -> Result<c::Mapped> {
        Ok(self.allocate_mapped(size)?)
    }
    fn allocate_shared(&self, size: usize) -> Result<c::Mapped> {
        Ok(self.allocate_mapped(size)?)
    }
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

/// cuda-mem's own interface.
#[derive(Debug)]
pub struct Native(Context);

/// A source, and the pool that it is.
#[derive(Debug)]
pub struct NativeResource(SharedResource, Option<Pool<Any>>);

impl From<SharedResource> for NativeResource {
    fn from(shared: SharedResource) -> Self {
        Self(shared, None)
    }
}

impl NativeResource {
    fn own_pool(&self) -> &Pool<Any> {
        self.1.as_ref().expect("cases ask pools only")
    }
}

impl Bytes for SharedBuffer<u8, Any> {
    fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result {
        Ok(self.copy_from_slice(offset, source)?)
    }
    fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result {
        Ok(self.copy_to_slice(offset, destination)?)
    }
    fn host(&self) -> Option<*mut u8> {
        self.host_pointer_if_any()
    }
    fn flush_bytes(&mut self, offset: usize, size: usize) -> Result {
        match (self.resource(), self.host_pointer_if_any()) {
            (Some(resource), Some(host)) => Ok(resource.flush(host.wrapping_add(offset), size)?),
            _ => Ok(()),
        }
    }
    fn invalidate_bytes(&mut self, offset: usize, size: usize) -> Result {
        match (self.resource(), self.host_pointer_if_any()) {
            (Some(resource), Some(host)) => Ok(resource.invalidate(host.wrapping_add(offset), size)?),
            _ => Ok(()),
        }
    }
}

impl Interface for Native {
    type Stream = Stream;
    type Resource = NativeResource;
    type Buffer = SharedBuffer<u8, Any>;
    type Engine = CopyEngine;

    fn open() -> Result<Self> {
        Ok(Self(crate::Setup::from_environment()?.context))
    }
    fn stream(&self) -> Result<Stream> {
        Ok(Stream::new(&self.0)?)
    }
    fn delay(stream: &Stream) -> Result {
        Ok(crate::delay(stream)?)
    }
    fn sources(&self) -> Result<Vec<(&'static str, NativeResource)>> {
        let (context, options) = (&self.0, PoolOptions::default());
        let managed = |memory: ManagedMemory| memory.share();
        let all: [(&'static str, core::result::Result<SharedResource, Error>); 8] = [
            ("device memory", Ok(DeviceMemory::new(context).share())),
            ("pinned memory", Ok(PinnedMemory::new(context).share())),
            ("managed memory", ManagedMemory::new(context).map(managed)),
            ("mapped memory", MappedResource::new(context).map(|memory| memory.share())),
            ("device pool", DevicePool::new(context, &options).map(|pool| pool.share())),
            ("pinned pool", PinnedPool::new(context, &options).map(|pool| pool.share())),
            ("managed pool", ManagedPool::new(context, &options).map(|pool| pool.share())),
            ("virtual memory", VirtualMemory::new(context, &VirtualOptions::default()).map(|memory| memory.share())),
        ];
        let there = all.into_iter().filter_map(|(name, source)| {
            let source = supported(name, source.map_err(Refusal::from)).transpose()?;
            Some(source.map(|source| (name, source.into())))
        });
        there.collect()
    }
    fn pool(source: &NativeResource, maximum: u64) -> Result<NativeResource> {
        let mut settings = PoolSettings::default();
        if maximum != 0 {
            settings.maximum = maximum as usize;
        }
        let pool = Pool::new(&source.0, &settings)?;
        Ok(NativeResource(pool.share(), Some(pool)))
    }
    fn figures(pool: &NativeResource) -> Result<PoolFigures> {
        let statistics = pool.own_pool().statistics();
        Ok(PoolFigures {
            requested: statistics.requested.current,
            blocks: statistics.blocks.current,
            reserved: statistics.reserved.current,
            total: (statistics.requested.total, statistics.requested.freed),
        })
    }
    fn release_unused(pool: &NativeResource) -> Result {
        pool.own_pool().release_unused()?;
        Ok(())
    }
    fn allocate(resource: &NativeResource, size: usize, stream: &Stream) -> Result<SharedBuffer<u8, Any>> {
        // SAFETY: memory of the driver's always has bytes, and every byte is a value of `u8`.
        Ok(unsafe { Buffer::uninit_assumed(&resource.0, size, stream) }?.into_shared())
    }
    fn address(buffer: &SharedBuffer<u8, Any>) -> u64 {
        buffer.device_pointer()
    }
    fn fill(buffer: &mut SharedBuffer<u8, Any>, offset: usize, size: usize, word: u32) -> Result {
        let mut words = buffer.slice(offset..offset.saturating_add(size))?.cast::<u32>().map_err(Error::from)?;
        Ok(words.fill(.., word)?)
    }
    fn copy(
        to: &mut SharedBuffer<u8, Any>,
        offset: usize,
        from: &SharedBuffer<u8, Any>,
        start: usize,
        size: usize,
    ) -> Result {
        Ok(to.copy_from_buffer(offset, from, start..start.saturating_add(size))?)
    }
    fn slice(buffer: &SharedBuffer<u8, Any>, offset: usize, size: usize) -> Result<SharedBuffer<u8, Any>> {
        Ok(buffer.slice(offset..offset.saturating_add(size))?)
    }
    fn equals(one: &SharedBuffer<u8, Any>, other: &SharedBuffer<u8, Any>) -> Result<bool> {
        Ok(one.equals(other)?)
    }
    fn set_stream(buffer: &mut SharedBuffer<u8, Any>, stream: &Stream) -> Result {
        Ok(buffer.set_stream(stream)?)
    }
    fn synchronize(buffer: &SharedBuffer<u8, Any>) -> Result {
        Ok(buffer.synchronize()?)
    }
    fn engine(&self) -> Result<CopyEngine> {
        Ok(CopyEngine::new(&self.0)?)
    }
    fn engine_write(engine: &CopyEngine, buffer: &mut SharedBuffer<u8, Any>, offset: usize, source: &[u8]) -> Result {
        Ok(engine.write(buffer, offset, source)?)
    }
    fn engine_read(
        engine: &CopyEngine,
        buffer: &SharedBuffer<u8, Any>,
        offset: usize,
        destination: &mut [u8],
    ) -> Result {
        Ok(engine.read(buffer, offset, destination)?)
    }
}

/// The C library.
#[derive(Debug)]
pub struct CLibrary(c::Context);

impl Bytes for c::Buffer {
    fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result {
        Ok(c::Buffer::write(self, offset, source)?)
    }
    fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result {
        Ok(c::Buffer::read(self, offset, destination)?)
    }
    fn host(&self) -> Option<*mut u8> {
        self.host_pointer().ok().map(<*mut _>::cast)
    }
    fn flush_bytes(&mut self, offset: usize, size: usize) -> Result {
        Ok(c::Buffer::flush(self, offset, size)?)
    }
    fn invalidate_bytes(&mut self, offset: usize, size: usize) -> Result {
        Ok(c::Buffer::invalidate(self, offset, size)?)
    }
}

impl Interface for CLibrary {
    type Stream = c::Stream;
    type Resource = c::Resource;
    type Buffer = c::Buffer;
    type Engine = c::Engine;

    fn open() -> Result<Self> {
        Ok(Self(c::Context::open()?))
    }
    fn stream(&self) -> Result<c::Stream> {
        Ok(self.0.stream()?)
    }
    fn delay(stream: &c::Stream) -> Result {
        Ok(stream.delay()?)
    }
    fn sources(&self) -> Result<Vec<(&'static str, c::Resource)>> {
        let all = [
            ("device memory", self.0.device_memory()),
            ("pinned memory", self.0.pinned_memory(0)),
            ("managed memory", self.0.managed_memory(0)),
            ("mapped memory", self.0.mapped_memory(0)),
            ("device pool", self.0.driver_pool(CUDAMEM_MEMORY_DEVICE, 0)),
            ("pinned pool", self.0.driver_pool(CUDAMEM_MEMORY_PINNED, 0)),
            ("managed pool", self.0.driver_pool(CUDAMEM_MEMORY_MANAGED, 0)),
            ("virtual memory", self.0.virtual_memory(0)),
        ];
        let there = all.into_iter().filter_map(|(name, source)| {
            let source = supported(name, source.map_err(Refusal::from)).transpose()?;
            Some(source.map(|source| (name, source)))
        });
        there.collect()
    }
    fn pool(source: &c::Resource, maximum: u64) -> Result<c::Resource> {
        Ok(source.pool(maximum)?)
    }
    fn figures(pool: &c::Resource) -> Result<PoolFigures> {
        let statistics = pool.statistics()?;
        Ok(PoolFigures {
            requested: statistics.requested.current,
            blocks: statistics.blocks.current,
            reserved: statistics.reserved.current,
            total: (statistics.requested.total, statistics.requested.freed),
        })
    }
    fn release_unused(pool: &c::Resource) -> Result {
        Ok(pool.release_unused()?)
    }
    fn allocate(resource: &c::Resource, size: usize, stream: &c::Stream) -> Result<c::Buffer> {
        Ok(resource.allocate(size, stream)?)
    }
    fn address(buffer: &c::Buffer) -> u64 {
        buffer.device_pointer().unwrap_or(u64::MAX)
    }
    fn fill(buffer: &mut c::Buffer, offset: usize, size: usize, word: u32) -> Result {
        Ok(c::Buffer::fill(buffer, offset, size, &word.to_ne_bytes())?)
    }
    fn copy(to: &mut c::Buffer, offset: usize, from: &c::Buffer, start: usize, size: usize) -> Result {
        Ok(c::Buffer::copy(to, offset, from, start, size)?)
    }
    fn slice(buffer: &c::Buffer, offset: usize, size: usize) -> Result<c::Buffer> {
        Ok(c::Buffer::slice(buffer, offset, size)?)
    }
    fn equals(one: &c::Buffer, other: &c::Buffer) -> Result<bool> {
        Ok(c::Buffer::equals(one, other)?)
    }
    fn set_stream(buffer: &mut c::Buffer, stream: &c::Stream) -> Result {
        Ok(c::Buffer::set_stream(buffer, stream)?)
    }
    fn synchronize(buffer: &c::Buffer) -> Result {
        Ok(c::Buffer::synchronize(buffer)?)
    }
    fn engine(&self) -> Result<c::Engine> {
        Ok(self.0.engine()?)
    }
    fn engine_write(engine: &c::Engine, buffer: &mut c::Buffer, offset: usize, source: &[u8]) -> Result {
        Ok(engine.write_buffer(buffer, offset, source)?)
    }
    fn engine_read(engine: &c::Engine, buffer: &c::Buffer, offset: usize, destination: &mut [u8]) -> Result {
        Ok(engine.read_buffer(buffer, offset, destination)?)
    }
}
