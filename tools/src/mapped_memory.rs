//! Mapped memory for the commands.

use cuda_mem::memory::kind::Mapped;
use cuda_mem::{Buffer, MappedMemory, Result, Stream};

/// Bytes of mapped memory.
pub type MappedBuffer = Buffer<u8, Mapped>;

/// Zeroed mapped memory with a home stream of its own.
pub fn mapped_memory(resource: &MappedMemory, size: usize) -> Result<MappedBuffer> {
    let memory = Buffer::zeroed(resource, size, &Stream::new(resource.context())?)?;
    memory.synchronize()?;
    Ok(memory)
}
