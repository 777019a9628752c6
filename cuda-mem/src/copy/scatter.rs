//! Many small writes in one call.

use super::engine::CopyEngine;
use super::staging::Lane;
use crate::buffer::{Access, Buffer, CpuReady, Place};
use crate::buffer::{BatchOptions, copy_all};
use crate::cpu::host_copy::Stores;
use crate::error::call;
use crate::memory::resource::{BlockKind, Kind};
use crate::{Result, Stream};
use bytemuck::NoUninit;
use core::ops::Range;
use cuda_sys::CUdeviceptr;

const CALL: &str = "CopyEngine::write_scattered";

impl CopyEngine {
    /// Copies many slices into one memory, in the given order: where two overlap, the later one remains. Writes to
    /// mapped memory are CPU stores with one fence for all. Writes to other memory are gathered in staging and sent
    /// with few driver calls. Device work queued after this call sees the bytes.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), for any of the writes. Writes before one that does not fit are made.
    ///
    /// ```
    /// # use cuda_mem::{Buffer, MappedMemory, Stream, copy::CopyEngine};
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let engine = CopyEngine::new(&context)?;
    /// let stream = Stream::new(&context)?;
    /// let mut memory = Buffer::<u32, _>::zeroed(&MappedMemory::new(&context)?, 1024, &stream)?;
    /// let (left, right) = ([1, 2], [3]);
    /// engine.write_scattered(&mut memory, [(0, &left[..]), (1000, &right[..])])?;
    /// # let mut seen = [0];
    /// # memory.copy_to_slice(1000, &mut seen)?;
    /// # assert_eq!(seen, [3]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuMemcpyBatchAsync")]
    pub fn write_scattered<'source, T, K: Kind, A: Access>(
        &self,
        memory: &mut Buffer<T, K, A>,
        writes: impl IntoIterator<Item = (usize, &'source [T])>,
    ) -> Result<()>
    where
        T: NoUninit,
    {
        let whole = memory.place(CALL, 0, 0)?;
        whole.check(CALL, &self.inner.context)?;
        memory.check_writable(CALL)?;
        match whole.memory {
            BlockKind::Mapped | BlockKind::NonCoherent | BlockKind::Host | BlockKind::ReadOnly => {
                let ready = memory.settle()?;
                let mut stores = Stores::begin();
                writes.into_iter().try_for_each(|(offset, source)| {
                    let place = memory.place(CALL, offset, source.len())?;
                    store(&mut stores, memory, ready, &place, bytemuck::cast_slice(source))
                })
            }
            BlockKind::Nothing | BlockKind::Device | BlockKind::Managed => {
                let stream = whole.home;
                // The iterator is code of the program, and runs before anything is held.
                let writes: Vec<_> = writes.into_iter().collect();
                stream.check_not_capturing(CALL)?;
                memory.mark_busy();
                let mut lane = self.inner.staging.take()?;
                let mut gathered = Gathered::new(&mut lane, stream);
                let outcome = writes.into_iter().try_for_each(|(offset, source)| {
                    let place = memory.place(CALL, offset, source.len())?;
                    gathered.add(place.device, bytemuck::cast_slice(source))
                });
                let sent = gathered.send();
                // Wait also after an error.
                outcome.and(sent).and(lane.settle())
            }
        }
    }
}

fn store<T, K: Kind, A: Access>(
    stores: &mut Stores,
    memory: &Buffer<T, K, A>,
    ready: CpuReady<'_>,
    place: &Place<'_>,
    bytes: &[u8],
) -> Result<()> {
    if place.memory == BlockKind::NonCoherent {
        return memory.store_at(ready, place, bytes);
    }
    // SAFETY: the place lies within the memory, which the caller borrows exclusively.
    unsafe { stores.store(bytes.as_ptr(), place.host, bytes.len()) };
    Ok(())
}

/// Writes that lie in a staging slot and are not sent yet.
struct Gathered<'lane> {
    lane: &'lane mut Lane,
    slot: usize,
    used: usize,
    /// The range in the slot, and the destination.
    pieces: Vec<(Range<usize>, CUdeviceptr)>,
    stream: &'lane Stream,
}

impl<'lane> Gathered<'lane> {
    fn new(lane: &'lane mut Lane, stream: &'lane Stream) -> Self {
        Self { lane, slot: 0, used: 0, pieces: vec![], stream }
    }

    fn add(&mut self, mut to: CUdeviceptr, mut source: &[u8]) -> Result<()> {
        while !source.is_empty() {
            let slot = &mut self.lane.slots[self.slot];
            slot.wait()?;
            let room = slot.size() - self.used;
            if room == 0 {
                self.send()?;
                continue;
            }
            let (now, later) = source.split_at(source.len().min(room));
            // SAFETY: the slot has `room` bytes after the used ones, and nobody else uses the slot.
            unsafe { core::ptr::copy_nonoverlapping(now.as_ptr(), slot.start().add(self.used), now.len()) };
            self.pieces.push((self.used..self.used + now.len(), to));
            self.used += now.len();
            to += now.len() as CUdeviceptr;
            source = later;
        }
        Ok(())
    }

    /// Sends the gathered writes, and continues with the next slot.
    fn send(&mut self) -> Result<()> {
        let pieces = core::mem::take(&mut self.pieces);
        self.used = 0;
        if pieces.is_empty() {
            return Ok(());
        }
        let apart = are_apart(pieces.iter().map(|(range, to)| (*to, range.len())));
        let stream = self.stream;
        let slot = self.slot;
        self.slot = (slot + 1) % self.lane.slots.len();
        self.lane.slots[slot].use_with(stream, |from| copies(stream, from, &pieces, apart))
    }
}

/// Whether no two ranges share a byte. Their copies then need no order.
fn are_apart(ranges: impl Iterator<Item = (CUdeviceptr, usize)>) -> bool {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_unstable();
    ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 as CUdeviceptr <= pair[1].0)
}

/// Queues the copies from a slot, in one batch if their order does not matter.
fn copies(stream: &Stream, from: CUdeviceptr, pieces: &[(Range<usize>, CUdeviceptr)], apart: bool) -> Result<()> {
    let mut to: Vec<CUdeviceptr> = pieces.iter().map(|(_, to)| *to).collect();
    let mut sources: Vec<CUdeviceptr> = pieces.iter().map(|(range, _)| from + range.start as CUdeviceptr).collect();
    let mut sizes: Vec<usize> = pieces.iter().map(|(range, _)| range.len()).collect();
    if apart && pieces.len() > 1 {
        // SAFETY: the sources lie within a slot that stays until its event has passed. The targets lie within memory
        // that the caller waits for. No ranges overlap.
        return unsafe { copy_all(&mut to, &mut sources, &mut sizes, BatchOptions::default(), stream) };
    }
    let context = stream.context();
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    // SAFETY: as above.
    (0..sizes.len()).try_for_each(|n| unsafe { call!(cuda.cuMemcpyAsync(to[n], sources[n], sizes[n], stream.raw())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_share_a_byte_are_found_in_any_order() {
        assert!(are_apart([(100, 10), (90, 10), (110, 1)].into_iter()));
        assert!(!are_apart([(100, 10), (90, 11)].into_iter()));
        assert!(!are_apart([(100, 1), (100, 1)].into_iter()));
        assert!(are_apart(core::iter::empty()));
    }
}
