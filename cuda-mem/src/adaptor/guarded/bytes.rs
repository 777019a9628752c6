//! Filling and reading memory of any source: by the CPU where it addresses the memory, else by the driver.

use crate::error::call;
use crate::host_copy::{self, Stores};
use crate::resource::{Block, SharedResource};
use crate::{Result, Stream};
use core::ops::Range;
use cuda_sys::CUdeviceptr;

/// How many bytes are read or written at a time.
const PIECE: usize = 1 << 20;

/// Memory of a block of the resource, of which nobody else uses what is read or filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'guard> {
    pub resource: &'guard SharedResource,
    pub block: Block,
    /// Whether the CPU fills and reads it.
    pub by_cpu: bool,
}

/// Whether the CPU fills and reads the memory of a resource: managed memory it may not always touch while devices work.
pub(super) fn is_by_cpu(resource: &SharedResource) -> bool {
    let accessibility = resource.accessibility();
    accessibility.host && !accessibility.managed
}

impl Bytes<'_> {
    /// Fills a range: by the CPU now, when the work on it has to be done; else in order of the stream.
    pub fn fill(&self, range: Range<usize>, byte: u8, stream: &Stream) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        if !self.by_cpu {
            let (cuda, _ready) = stream.ready()?;
            let start = self.block.device_pointer + range.start as CUdeviceptr;
            // SAFETY: the range lies within the block, which is freed after this in stream order.
            return unsafe { call!(cuda.cuMemsetD8Async(start, byte, range.len(), stream.raw())) };
        }
        let (pattern, start) = ([byte; 4096], self.block.host_pointer.wrapping_add(range.start));
        let mut stores = Stores::begin();
        for done in (0..range.len()).step_by(pattern.len()) {
            let length = pattern.len().min(range.len() - done);
            // SAFETY: the piece lies within the block, which nobody else uses.
            unsafe { stores.store(pattern.as_ptr(), start.wrapping_add(done), length) };
        }
        drop(stores);
        self.resource.flush(start, range.len())
    }

    /// Reads a range piece by piece, and ends where `look` gives something. `look` gets where the piece begins in the block.
    /// The work on the range has to be done, or given to the stream.
    pub fn read<R>(
        &self,
        range: Range<usize>,
        stream: &Stream,
        mut look: impl FnMut(usize, &[u8]) -> Option<R>,
    ) -> Result<Option<R>> {
        let mut bytes = vec![0; range.len().min(PIECE)];
        for start in range.clone().step_by(PIECE) {
            let piece = &mut bytes[..PIECE.min(range.end - start)];
            self.copy(start, piece, stream)?;
            if let Some(found) = look(start, piece) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn copy(&self, start: usize, bytes: &mut [u8], stream: &Stream) -> Result<()> {
        if self.by_cpu {
            let from = self.block.host_pointer.wrapping_add(start);
            // SAFETY: the piece lies within the block; of what shares its atoms, nobody has a reference.
            unsafe {
                self.resource.invalidate(from, bytes.len())?;
                host_copy::load(from, bytes.as_mut_ptr(), bytes.len());
            }
            return Ok(());
        }
        let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
        let to = bytes.as_mut_ptr().expose_provenance() as CUdeviceptr;
        let from = self.block.device_pointer + start as CUdeviceptr;
        // SAFETY: the piece lies within the block, and the bytes are borrowed until the copy is complete.
        let copy = || unsafe { call!(cuda.cuMemcpyAsync(to, from, bytes.len(), stream.raw())) };
        stream.complete_with(&"Guarded", copy)
    }
}
