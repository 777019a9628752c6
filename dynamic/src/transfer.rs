//! Copies, fills and comparisons of any buffers, and what the CPU does with their memory.

use crate::memory::{Content, Memory, lock_both};
use crate::with;
use cuda_mem::buffer::{BatchOptions, CopyBatch, Piece};
use cuda_mem::memory::SharedResource;
use cuda_mem::{Error, Result, Stream};

impl Memory {
    /// The CPU's address of the first byte, if the CPU addresses the memory.
    pub fn host_pointer(&self) -> Option<*mut u8> {
        with!(&*self.read(), buffer => buffer.host_pointer_if_any())
    }

    /// Copies `size` bytes of `source` from `source_offset` on to this buffer, to `offset`, in the order of the work on
    /// both. `source` may be this buffer. Copies within host memory are done when the call returns.
    ///
    /// # Errors
    ///
    /// A range does not lie within its buffer; those of [`Buffer::copy_from_buffer`](cuda_mem::Buffer::copy_from_buffer).
    pub fn copy_from(&self, offset: usize, source: &Memory, source_offset: usize, size: usize) -> Result<()> {
        if core::ptr::eq(self, source) {
            let copy = |content: &mut Content| {
                let range = content.range("Memory::copy_from", source_offset, size)?;
                with!(content, buffer => buffer.copy_within(range, offset))
            };
            return if self.is_of_host() { self.write_aside(copy) } else { copy(&mut self.write()) };
        }
        let copy = |to: &mut Content, from: &Content| {
            let range = from.range("Memory::copy_from", source_offset, size)?;
            with!(to, buffer => with!(from, source => buffer.copy_from_buffer(offset, source, range)))
        };
        if self.is_of_host() && source.is_of_host() {
            // The driver itself waits in a copy within host memory. All threads take turns in the same order.
            return if self.is_before(source) {
                self.write_aside(|to| source.read_aside(|from| copy(to, from)))
            } else {
                source.read_aside(|from| self.write_aside(|to| copy(to, from)))
            };
        }
        let (mut to, from) = lock_both(self, source);
        copy(&mut to, &from)
    }

    /// Copies pieces of `source`, which is another buffer, to this one, in order of `stream`.
    ///
    /// # Errors
    ///
    /// Those of [`CopyBatch::copy_pieces`] and [`CopyBatch::submit`].
    pub fn copy_pieces(&self, source: &Memory, pieces: &[Piece], options: BatchOptions, stream: &Stream) -> Result<()> {
        if core::ptr::eq(self, source) {
            let rule = "it must be another buffer than the destination";
            let value = "the destination".into();
            return Err(Error::InvalidArgument { call: "Memory::copy_pieces", argument: "source", value, rule });
        }
        let (mut to, from) = lock_both(self, source);
        let mut batch = CopyBatch::with_options(stream, options);
        with!(&mut *to, to => with!(&*from, from => batch.copy_pieces(to, from, pieces)))?;
        batch.submit()
    }

    /// Fills `size` bytes from `offset` on with copies of a value of 1, 2, 4, 8 or 16 bytes, in stream order.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for another length of the value; the range does not lie within the buffer, or is not a
    /// multiple of the value's length.
    pub fn fill(&self, offset: usize, size: usize, value: &[u8]) -> Result<()> {
        match *value {
            [byte] => {
                let mut content = self.write();
                let range = content.range("Memory::fill", offset, size)?;
                with!(&mut *content, buffer => buffer.fill(range, byte))
            }
            [a, b] => self.fill_with(offset, size, u16::from_ne_bytes([a, b])),
            [a, b, c, d] => self.fill_with(offset, size, u32::from_ne_bytes([a, b, c, d])),
            _ => match *value.chunks_exact(4).map(bytemuck::pod_read_unaligned::<u32>).collect::<Vec<_>>() {
                [a, b] if value.len() == 8 => self.fill_with(offset, size, [a, b]),
                [a, b, c, d] if value.len() == 16 => self.fill_with(offset, size, [a, b, c, d]),
                _ => Err(Error::InvalidArgument {
                    call: "Memory::fill",
                    argument: "the value's length",
                    value: value.len().to_string().into(),
                    rule: "it must be 1, 2, 4, 8 or 16 bytes",
                }),
            },
        }
    }

    /// Fills a part of the memory as elements of type `T`.
    fn fill_with<T>(&self, offset: usize, size: usize, value: T) -> Result<()>
    where
        T: Copy + bytemuck::NoUninit + bytemuck::AnyBitPattern,
    {
        self.with_part(offset, size, |part| part.cast::<T>()?.fill(.., value))
    }

    /// Whether two buffers hold the same bytes after all work on both so far. Waits for that work.
    ///
    /// # Errors
    ///
    /// Those of [`Buffer::equals`](cuda_mem::Buffer::equals).
    pub fn equals(&self, other: &Memory) -> Result<bool> {
        // Two turns at one buffer on one thread could deadlock; so could turns in another order than other threads'.
        let (first, second) = if self.is_before(other) { (self, other) } else { (other, self) };
        let compare = |left: &Content, right: &Content| with!(left, left => with!(right, right => left.equals(right)));
        Ok(core::ptr::eq(self, other) || first.read_aside(|left| second.read_aside(|right| compare(left, right)))?)
    }

    /// Calls `work` with the resource, the CPU's address and the size of a range, as a flush or an invalidate needs them.
    /// Does nothing for an empty range, and for memory that has no resource or that the CPU does not address. `size` is
    /// `usize::MAX` for everything from `offset` on.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; those of `work`.
    pub fn with_host_range(
        &self,
        offset: usize,
        size: usize,
        work: impl FnOnce(&SharedResource, *mut u8, usize) -> Result<()>,
    ) -> Result<()> {
        let content = self.read();
        let range = content.range("Memory::with_host_range", offset, size)?;
        with!(&*content, buffer => match (buffer.resource(), buffer.host_pointer_if_any()) {
            (Some(resource), Some(start)) if !range.is_empty() => {
                work(resource, start.wrapping_add(range.start), range.len())
            }
            _ => Ok(()),
        })
    }
}
