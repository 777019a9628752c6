//! Growing and shrinking of a block's mapping.

use super::VirtualMemoryResource;
use super::mapping::Mapping;
use super::physical::round_up;
use crate::error::call;
use crate::memory::resource::Block;
use crate::{Result, Stream};
use core::ops::Range;
use cuda_sys::CUdeviceptr;

/// The location of memory after it has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "addresses that were handed out are no longer valid when the memory has moved"]
pub enum Growth {
    /// The address is unchanged.
    InPlace,
    /// The same physical memory is at another address: kernels need the new one.
    Moved,
}

/// A mapping removed from the table. Its drop, also after a panic, puts it back.
struct Taken<'resource>(&'resource VirtualMemoryResource, Option<Mapping>);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(mapping) = self.1.take() {
            self.0.keep(mapping);
        }
    }
}

impl VirtualMemoryResource {
    /// Grows the memory of a block to `bytes.end` bytes, and makes the stream zero the new `bytes`. An error leaves the
    /// memory unchanged. Moved memory keeps the alignment.
    pub(crate) fn grow(
        &self,
        call: &'static str,
        block: Block,
        alignment: usize,
        bytes: Range<usize>,
        stream: &Stream,
    ) -> Result<(Block, Growth)> {
        let size = round_up(call, bytes.end, self.granularity)?;
        stream.check_not_capturing(call)?;
        self.change(call, block, |mapping| {
            if size <= mapping.reserved() {
                self.grow_in_place(call, mapping, size, bytes, stream).map(|()| Growth::InPlace)
            } else {
                self.grow_elsewhere(call, (mapping, alignment), size, bytes, stream).map(|()| Growth::Moved)
            }
        })
    }

    /// Changes the mapping of a block, and returns the changed block. The mapping is out of the table meanwhile, so
    /// that calls for other blocks need not wait.
    fn change<R>(
        &self,
        call: &'static str,
        block: Block,
        change: impl FnOnce(&mut Mapping) -> Result<R>,
    ) -> Result<(Block, R)> {
        let mut taken = Taken(self, Some(self.take(call, block)?));
        let Some(mapping) = &mut taken.1 else { unreachable!("it was just put there") };
        let value = change(mapping)?;
        Ok((self.block_of(mapping), value))
    }

    fn grow_in_place(
        &self,
        call: &'static str,
        mapping: &mut Mapping,
        size: usize,
        bytes: Range<usize>,
        stream: &Stream,
    ) -> Result<()> {
        let before = mapping.mapped();
        self.extend(call, mapping, size)?;
        let zeroed = self.zero(mapping, bytes, stream);
        if zeroed.is_err()
            && let Err(error) = mapping.truncate(before)
        {
            self.context.drop_errors().push("undoing a growth", error);
        }
        zeroed
    }

    /// Maps the same physical memory at a larger range of addresses.
    fn grow_elsewhere(
        &self,
        call: &'static str,
        (mapping, alignment): (&mut Mapping, usize),
        size: usize,
        bytes: Range<usize>,
        stream: &Stream,
    ) -> Result<()> {
        // Earlier work uses the addresses that are freed here.
        stream.synchronize()?;
        // Addresses cost nothing. Doubling them makes moves rare.
        let addresses = size.max(mapping.reserved().saturating_mul(2));
        let mut moved = self.reserve(call, addresses, alignment)?;
        mapping.chunks().iter().try_for_each(|chunk| moved.push(chunk.clone()))?;
        self.extend(call, &mut moved, size)?;
        self.zero(&moved, bytes, stream)?;
        if let Err(error) = mapping.truncate(0) {
            // `moved` is dropped here, which must not happen while it is being zeroed.
            if let Err(error) = stream.wait_certainly() {
                self.context.drop_errors().push("undoing a growth", error);
            }
            return Err(error);
        }
        // Frees the old addresses.
        *mapping = moved;
        Ok(())
    }

    /// Adds physical memory up to `size` bytes.
    fn extend(&self, call: &'static str, mapping: &mut Mapping, size: usize) -> Result<()> {
        match size.checked_sub(mapping.mapped()) {
            None | Some(0) => Ok(()),
            Some(missing) => mapping.push(self.create(call, missing)?),
        }
    }

    fn zero(&self, mapping: &Mapping, bytes: Range<usize>, stream: &Stream) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (cuda, ready) = stream.ready()?;
        // One call for each chunk: drivers fill no range of host memory that spans several chunks.
        let mut end = 0;
        let zeroed = mapping.chunks().iter().try_for_each(|chunk| {
            let (begin, rest) = (end.max(bytes.start), end + chunk.size());
            end = rest;
            let length = rest.min(bytes.end).saturating_sub(begin);
            if length == 0 {
                return Ok(());
            }
            let start = mapping.base() + begin as CUdeviceptr;
            // SAFETY: the range is mapped, and its unmapping waits for the stream.
            unsafe { call!(cuda.cuMemsetD8Async(start, 0, length, stream.raw())) }
        });
        drop(ready);
        if zeroed.is_err()
            && let Err(error) = stream.wait_certainly()
        {
            // The growth will be undone, which must not happen while some of it is being zeroed.
            self.context.drop_errors().push("undoing a growth", error);
        }
        zeroed
    }

    /// Returns whole chunks of a block to the system, but keeps `size` bytes. An error leaves the memory unchanged.
    pub(crate) fn shrink(&self, call: &'static str, block: Block, size: usize, stream: &Stream) -> Result<Block> {
        let cut = self.change(call, block, |mapping| {
            let border = mapping.border(size);
            if border < mapping.mapped() {
                stream.synchronize()?;
                mapping.truncate(border)?;
            }
            Ok(())
        });
        cut.map(|(block, ())| block)
    }

    /// The sizes of a block's addresses and of its physical memory, in bytes.
    pub(crate) fn extent(&self, pointer: CUdeviceptr) -> (usize, usize) {
        self.mappings.read().get(&pointer).map_or((0, 0), |mapping| (mapping.reserved(), mapping.mapped()))
    }
}
