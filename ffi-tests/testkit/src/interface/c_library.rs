//! The C library's interface.

use super::{Bytes, Interface, MappedBytes, MappedSource, PoolFigures, Refusal, Result, Words, supported};
use crate::c_objects as c;
use crate::sources::SOURCES;

/// A buffer of mapped memory that the CPU stores to and loads from.
#[derive(Debug)]
pub struct StoredTo(c::Buffer);

impl Bytes for StoredTo {
    fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result {
        Ok(self.0.store(offset, source)?)
    }
    fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result {
        Ok(self.0.load(offset, destination)?)
    }
    fn host(&self) -> Option<*mut u8> {
        self.0.host_pointer().ok().map(<*mut _>::cast)
    }
    fn flush_bytes(&mut self, offset: usize, size: usize) -> Result {
        Ok(self.0.flush(offset, size)?)
    }
    fn invalidate_bytes(&mut self, offset: usize, size: usize) -> Result {
        Ok(self.0.invalidate(offset, size)?)
    }
}

impl MappedBytes for StoredTo {
    fn atom(&self) -> usize {
        self.0.info().map_or(0, |info| info.atom)
    }
    fn device_read(&self, offset: usize, destination: &mut [u8]) -> Result {
        Ok(self.0.read(offset, destination)?)
    }
    fn device_write(&mut self, offset: usize, source: &[u8]) -> Result {
        Ok(self.0.write(offset, source)?)
    }
}

impl Words for StoredTo {
    fn store_u64(&self, offset: usize, word: u64) -> Result {
        Ok(self.0.store_u64(offset, word)?)
    }
    fn load_u64(&self, offset: usize) -> Result<u64> {
        Ok(self.0.load_u64(offset)?)
    }
    fn load_u32(&self, offset: usize) -> Result<u32> {
        Ok(self.0.load_u32(offset)?)
    }
}

/// A resource of mapped memory, and the home stream of its buffers.
#[derive(Debug)]
pub struct MappedMemory(pub c::Resource, pub c::Stream);

impl MappedSource for MappedMemory {
    type Memory = StoredTo;
    type Shared = StoredTo;
    fn allocate(&self, size: usize) -> Result<StoredTo> {
        Ok(StoredTo(self.0.allocate(size, &self.1)?))
    }
    fn allocate_shared(&self, size: usize) -> Result<StoredTo> {
        self.allocate(size)
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
        let there = SOURCES.iter().filter_map(|source| {
            let made = supported(source.name, (source.make_in_c)(&self.0).map_err(Refusal::from)).transpose()?;
            Some(made.map(|made| (source.name, made)))
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
