//! The reader of a buffer.

use super::{ByteBuffer, clamp, seek_target};
use crate::buffer::Shared;
use crate::{Result, SharedBuffer};
use std::io::{self, Read, Seek, SeekFrom};

/// Reads from a buffer of bytes, owned or borrowed. Each read is a driver copy in order of the buffer's stream, and
/// waits for it. For many small reads wrap it in a [`std::io::BufReader`], which is also [`BufRead`](std::io::BufRead).
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::{Buffer, io::BufferReader, memory::DeviceMemory};
/// use std::io::{Read, Seek, SeekFrom};
/// let buffer = Buffer::from_slice(&DeviceMemory::new(&context), b"head and body", &stream)?;
/// let mut reader = BufferReader::new(&buffer);
/// reader.seek(SeekFrom::Start(9))?;
/// let mut body = String::new();
/// reader.read_to_string(&mut body)?;
/// assert_eq!(body, "body");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BufferReader<B> {
    buffer: B,
    position: usize,
}

impl<B: ByteBuffer> BufferReader<B> {
    /// Makes a reader from the start of the buffer on.
    pub fn new(buffer: B) -> Self {
        Self { buffer, position: 0 }
    }

    /// The offset of the next read, in bytes.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes are left to read.
    pub fn remaining(&self) -> usize {
        self.size().saturating_sub(self.position)
    }

    /// Reads from `offset` on, as many bytes as exist and fit, and returns their number. The position does not change.
    ///
    /// # Errors
    ///
    /// `offset` lies after the end ([`Error::OutOfRange`](crate::Error::OutOfRange)); the copy failed.
    pub fn read_at(&self, offset: usize, destination: &mut [u8]) -> Result<usize> {
        let count = clamp("BufferReader::read_at", offset, destination.len(), self.size())?;
        self.buffer.buffer().copy_to_slice(offset, &mut destination[..count])?;
        Ok(count)
    }

    /// The buffer.
    pub fn get_ref(&self) -> &B {
        &self.buffer
    }

    /// Returns the buffer.
    pub fn into_inner(self) -> B {
        self.buffer
    }

    fn size(&self) -> usize {
        self.buffer.buffer().len()
    }
}

impl<B: ByteBuffer<Access = Shared>> BufferReader<B> {
    /// The next `count` bytes, or as many as exist, as a part of the buffer, without a copy. The position moves past
    /// them.
    ///
    /// # Errors
    ///
    /// None at present: the part always lies within the buffer.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, io::BufferReader, memory::DeviceMemory};
    /// let shared = Buffer::from_slice(&DeviceMemory::new(&context), b"head and body", &stream)?.into_shared();
    /// let mut reader = BufferReader::new(&shared);
    /// let head = reader.read_shared(4)?;
    /// assert_eq!((head.to_vec()?, reader.position()), (b"head".to_vec(), 4));
    /// assert_eq!(head.device_pointer(), shared.device_pointer());
    /// assert_eq!(reader.read_shared(usize::MAX)?.len(), 9);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn read_shared(&mut self, count: usize) -> Result<SharedBuffer<u8, B::Kind>> {
        let end = self.position + self.remaining().min(count);
        let part = self.buffer.buffer().slice(self.position..end)?;
        self.position = end;
        Ok(part)
    }
}

impl<B: ByteBuffer> Read for BufferReader<B> {
    fn read(&mut self, destination: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(self.position, destination)?;
        self.position += count;
        Ok(count)
    }

    /// Reads all remaining bytes with one copy.
    fn read_to_end(&mut self, destination: &mut Vec<u8>) -> io::Result<usize> {
        let (start, count) = (destination.len(), self.remaining());
        destination.try_reserve(count)?;
        destination.resize(start + count, 0);
        let read = self.read(&mut destination[start..]);
        destination.truncate(start + *read.as_ref().unwrap_or(&0));
        read
    }
}

impl<B: ByteBuffer> Seek for BufferReader<B> {
    /// The end of the buffer is allowed; beyond it is an error of kind
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput), and the position stays.
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        self.position = seek_target("BufferReader::seek", target, self.position, self.size())?;
        Ok(self.position as u64)
    }
}
