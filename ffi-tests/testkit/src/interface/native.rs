//! cuda-mem's own interface.

use super::{Bytes, Interface, MappedBytes, MappedSource, PoolFigures, Refusal, Result, Words, supported};
use crate::sources::SOURCES;
use crate::{MappedBuffer, SharedMapped};
use cuda_mem::copy::CopyEngine;
use cuda_mem::mapped::MappedMemory;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{ResourceHandle, SharedResource};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Error, SharedBuffer, Stream};

macro_rules! mapped_bytes {
    ($($memory:ty),*) => { $(
        impl Bytes for $memory {
            fn write_bytes(&mut self, offset: usize, source: &[u8]) -> Result {
                Ok(self.store(offset, source)?)
            }
            fn read_bytes(&self, offset: usize, destination: &mut [u8]) -> Result {
                Ok(self.load(offset, destination)?)
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
                Ok(self.copy_to_slice(offset, destination)?)
            }
            fn device_write(&mut self, offset: usize, source: &[u8]) -> Result {
                Ok(self.copy_from_slice(offset, source)?)
            }
        }
    )* };
}
mapped_bytes!(MappedBuffer, SharedMapped);

impl Words for SharedMapped {
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

impl MappedSource for MappedMemory {
    type Memory = MappedBuffer;
    type Shared = SharedMapped;
    fn allocate(&self, size: usize) -> Result<MappedBuffer> {
        Ok(crate::mapped(self, size)?)
    }
    fn allocate_shared(&self, size: usize) -> Result<SharedMapped> {
        Ok(crate::mapped(self, size)?.into_shared())
    }
}

/// cuda-mem's own interface.
#[derive(Debug)]
pub struct Native(Context);

/// A source of memory, and the pool if the source is one.
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
            // SAFETY: nobody else uses the buffer.
            (Some(resource), Some(host)) => Ok(unsafe { resource.flush(host.wrapping_add(offset), size) }?),
            _ => Ok(()),
        }
    }
    fn invalidate_bytes(&mut self, offset: usize, size: usize) -> Result {
        match (self.resource(), self.host_pointer_if_any()) {
            (Some(resource), Some(host)) => {
                // SAFETY: there are no references into shared memory.
                Ok(unsafe { resource.invalidate(host.wrapping_add(offset), size) }?)
            }
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
        let there = SOURCES.iter().filter_map(|source| {
            let made = supported(source.name, (source.make)(&self.0).map_err(Refusal::from)).transpose()?;
            Some(made.map(|made| (source.name, made.share().into())))
        });
        there.collect()
    }
    fn pool(source: &NativeResource, maximum: u64) -> Result<NativeResource> {
        let mut settings = PoolOptions::default();
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
        // SAFETY: the driver's memory is always initialised bytes, and every byte is a value of `u8`.
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
