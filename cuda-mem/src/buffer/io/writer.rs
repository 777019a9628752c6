//! The writer into a buffer.

use super::staging::{IoStaging, StagingMemory};
use super::{ByteBufferMut, clamp, seek_target};
use crate::{Refused, Result};
use std::io::{self, Seek, SeekFrom, Write};

/// Writes into a buffer of bytes, owned or borrowed, in order of the buffer's stream.
///
/// Without staging, each write is a driver copy and waits for it. [With staging](Self::with_staging), the writer
/// gathers small writes in host memory and sends them together: one half is copied while the other fills. Call
/// [`flush`](Write::flush) before work that must see the writes. A write as large as a half goes directly to the
/// buffer.
///
/// The buffer does not grow. A write at its end is short or takes 0 bytes; `write_all` turns that into
/// [`WriteZero`](std::io::ErrorKind::WriteZero).
///
/// The writer keeps staged bytes whose copy fails: the call that met the error returns it, and the next flush retries.
/// [`close`](Self::close) and [`into_inner`](Self::into_inner) flush and return errors. A drop also flushes, and
/// reports errors to [the context](crate::Context::take_drop_errors).
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # let stream = cuda_mem::Stream::new(&context)?;
/// use cuda_mem::{Buffer, io::BufferWriter, memory::DeviceMemory};
/// use std::io::Write;
/// let buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 8, &stream)?;
/// let mut writer = BufferWriter::with_staging(buffer, 4096); // owns the buffer
/// writer.write_all(b"abc")?;
/// writer.write_all(b"def")?;
/// assert_eq!((writer.position(), writer.staged()), (6, 6));
/// writer.write_at(1, b"X")?; // after the staged bytes
/// let buffer = writer.into_inner().map_err(|refused| refused.error)?;
/// assert_eq!(buffer.to_vec()?, b"aXcdef\0\0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BufferWriter<B: ByteBufferMut, H: StagingMemory = Vec<u8>> {
    /// `None` after `into_inner` has returned it; only a drop follows.
    buffer: Option<B>,
    position: usize,
    staging: Option<IoStaging<H>>,
}

impl<B: ByteBufferMut> BufferWriter<B> {
    /// Makes a writer from the start of the buffer on, without staging.
    pub fn new(buffer: B) -> Self {
        Self { buffer: Some(buffer), position: 0, staging: None }
    }

    /// Makes a writer from the start of the buffer on that gathers small writes in `bytes` bytes of host memory, in two
    /// halves. With fewer than two bytes it gathers nothing.
    pub fn with_staging(buffer: B, bytes: usize) -> Self {
        Self { buffer: Some(buffer), position: 0, staging: halves(bytes) }
    }

    /// Flushes, then replaces the staging by `bytes` bytes; fewer than two end the staging.
    ///
    /// # Errors
    ///
    /// As [`flush`](Write::flush); the staging is unchanged.
    pub fn set_staging(&mut self, bytes: usize) -> Result<()> {
        self.send_staged()?;
        self.staging = halves(bytes);
        Ok(())
    }
}

fn halves(bytes: usize) -> Option<IoStaging<Vec<u8>>> {
    let half = bytes / 2;
    (half != 0).then(|| IoStaging::new([vec![0; half], vec![0; half]]))
}

impl<B: ByteBufferMut, H: StagingMemory> BufferWriter<B, H> {
    /// Makes a writer from the start of the buffer on that gathers small writes in the caller's memory. From pinned
    /// memory, one half is copied while the other fills.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// # use cuda_mem::{Buffer, io::BufferWriter, memory::DeviceMemory};
    /// # use std::io::Write;
    /// let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 3, &stream)?;
    /// let half = || vec![0u8; 4096].into_boxed_slice();
    /// let mut writer = BufferWriter::with_staging_memory(&mut buffer, [half(), half()]);
    /// writer.write_all(b"abc")?;
    /// writer.close().map_err(|refused| refused.error)?;
    /// assert_eq!(buffer.to_vec()?, b"abc");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_staging_memory(buffer: B, halves: [H; 2]) -> Self {
        Self { buffer: Some(buffer), position: 0, staging: Some(IoStaging::new(halves)) }
    }

    /// The offset of the next write, in bytes.
    pub fn position(&self) -> usize {
        self.position
    }

    /// How many bytes fit from the position on.
    pub fn remaining(&self) -> usize {
        self.size().saturating_sub(self.position)
    }

    /// How many staged bytes were not sent yet.
    pub fn staged(&self) -> usize {
        self.staging.as_ref().map_or(0, IoStaging::filled)
    }

    /// Writes at `offset`, after all earlier writes, as many bytes as fit, and returns their number. The position does
    /// not change.
    ///
    /// # Errors
    ///
    /// `offset` lies after the end ([`Error::OutOfRange`](crate::Error::OutOfRange)); the staged bytes could not be
    /// sent; the copy failed.
    pub fn write_at(&mut self, offset: usize, source: &[u8]) -> Result<usize> {
        let count = clamp("BufferWriter::write_at", offset, source.len(), self.size())?;
        // Staged bytes may overlap these, and were written earlier.
        self.send_staged()?;
        self.target().buffer_mut().copy_from_slice(offset, &source[..count])?;
        Ok(count)
    }

    /// The buffer. It lacks staged bytes until a flush.
    pub fn get_ref(&self) -> &B {
        match &self.buffer {
            Some(buffer) => buffer,
            None => unreachable!("a writer that returned its buffer no longer exists"),
        }
    }

    /// Flushes, and returns the buffer.
    ///
    /// # Errors
    ///
    /// As [`flush`](Write::flush). The error returns the writer.
    pub fn into_inner(mut self) -> Result<B, Box<Refused<Self>>> {
        if let Err(error) = self.send_staged() {
            return Err(Refused::new(self, error));
        }
        match self.buffer.take() {
            Some(buffer) => Ok(buffer),
            None => unreachable!("as above"),
        }
    }

    /// Flushes, and ends the writer.
    ///
    /// # Errors
    ///
    /// As [`flush`](Write::flush). The error returns the writer.
    pub fn close(self) -> Result<(), Box<Refused<Self>>> {
        self.into_inner().map(drop)
    }

    fn size(&self) -> usize {
        self.get_ref().buffer().len()
    }

    fn target(&mut self) -> &mut B {
        match &mut self.buffer {
            Some(buffer) => buffer,
            None => unreachable!("as above"),
        }
    }

    fn send_staged(&mut self) -> Result<()> {
        match (&mut self.staging, &mut self.buffer) {
            (Some(staging), Some(buffer)) => staging.flush(buffer, self.position),
            _ => Ok(()),
        }
    }

    /// Takes some of the bytes, all of which fit in the buffer.
    fn put(&mut self, bytes: &[u8]) -> Result<usize> {
        let position = self.position;
        // A direct copy needs no wait for the sent half: the position moves back only by a seek, which waits for that
        // half.
        if let (Some(staging), Some(buffer)) = (&mut self.staging, &mut self.buffer)
            && (bytes.len() < staging.capacity() || staging.filled() != 0)
        {
            return staging.take(buffer, position, bytes);
        }
        self.target().buffer_mut().copy_from_slice(position, bytes)?;
        Ok(bytes.len())
    }
}

impl<B: ByteBufferMut, H: StagingMemory> Write for BufferWriter<B, H> {
    /// May take fewer bytes than fit. After an error, no bytes were taken.
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        let count = source.len().min(self.remaining());
        if count == 0 {
            return Ok(0);
        }
        let taken = self.put(&source[..count])?;
        self.position += taken;
        Ok(taken)
    }

    /// Sends the staged bytes, and waits until the buffer has them.
    fn flush(&mut self) -> io::Result<()> {
        Ok(self.send_staged()?)
    }
}

impl<B: ByteBufferMut, H: StagingMemory> Seek for BufferWriter<B, H> {
    /// Flushes first. The end of the buffer is allowed; beyond it is an error of kind
    /// [`InvalidInput`](std::io::ErrorKind::InvalidInput), and the position stays.
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        let position = seek_target("BufferWriter::seek", target, self.position, self.size())?;
        self.send_staged()?;
        self.position = position;
        Ok(position as u64)
    }

    /// Does not flush.
    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position as u64)
    }
}

impl<B: ByteBufferMut, H: StagingMemory> Drop for BufferWriter<B, H> {
    fn drop(&mut self) {
        if self.buffer.is_none() {
            return;
        }
        if let Err(error) = self.send_staged()
            && !error.is_teardown()
        {
            self.get_ref().buffer().context().drop_errors().push("flushing a dropped writer", error);
        }
    }
}
