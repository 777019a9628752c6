//! Filling and reading memory of any source. The CPU does it if it can address the memory, otherwise the driver.

use crate::cpu::host_copy::{self, Stores};
use crate::error::call;
use crate::memory::resource::{Block, SharedResource};
use crate::stream::host_copies::CopySide;
use crate::{Result, Stream};
use core::ops::Range;
use cuda_sys::CUdeviceptr;

/// The size of one read or write, in bytes.
const PIECE: usize = 1 << 20;

/// Memory of a block. Nobody else uses the ranges that are read or filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'guard> {
    pub resource: &'guard SharedResource,
    pub block: Block,
    /// Whether the CPU fills and reads it.
    pub by_cpu: bool,
}

/// Whether the CPU fills and reads the memory of a resource: not managed memory, which devices may be using.
pub(super) fn is_by_cpu(resource: &SharedResource) -> bool {
    let accessibility = resource.accessibility();
    accessibility.host && !accessibility.managed
}

impl Bytes<'_> {
    /// Fills a range: by the CPU immediately, so work on the range must be done, or by the driver in stream order.
    pub fn fill(&self, range: Range<usize>, byte: u8, stream: &Stream) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        if !self.by_cpu {
            let (cuda, _ready) = stream.ready()?;
            let start = self.block.device_pointer() + range.start as CUdeviceptr;
            // SAFETY: the range lies within the block, whose free follows in stream order.
            return unsafe { call!(cuda.cuMemsetD8Async(start, byte, range.len(), stream.raw())) };
        }
        let (pattern, start) = ([byte; 4096], self.block.host_pointer().wrapping_add(range.start));
        let mut stores = Stores::begin();
        for done in (0..range.len()).step_by(pattern.len()) {
            let length = pattern.len().min(range.len() - done);
            // SAFETY: the piece lies within the block, which nobody else uses.
            unsafe { stores.store(pattern.as_ptr(), start.wrapping_add(done), length) };
        }
        drop(stores);
        // SAFETY: the range lies within the block, which nobody else uses.
        unsafe { self.resource.flush(start, range.len()) }
    }

    /// Reads a range piece by piece until `look` returns a value. `look` receives the offset of the piece in the block.
    /// Work on the range must be done, or queued on the stream.
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
            let from = self.block.host_pointer().wrapping_add(start);
            // SAFETY: the piece lies within the block, and no reference exists to memory of its atoms.
            unsafe {
                self.resource.invalidate(from, bytes.len())?;
                host_copy::load(from, bytes.as_mut_ptr(), bytes.len());
            }
            return Ok(());
        }
        let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
        let to = bytes.as_mut_ptr().expose_provenance() as CUdeviceptr;
        let from = self.block.device_pointer() + start as CUdeviceptr;
        // SAFETY: the piece lies within the block, and the bytes are borrowed until the copy is complete.
        let copy = || unsafe { call!(cuda.cuMemcpyAsync(to, from, bytes.len(), stream.raw())) };
        let sides = (CopySide::Pageable, CopySide::PageLocked);
        stream.run_copy(&"Guarded", sides, bytes.len(), copy)
    }
}
