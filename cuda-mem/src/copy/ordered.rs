//! Stream-ordered copies.

use super::engine::CopyEngine;
use super::job::{CpuCopy, Job};
use super::method::{CopyMethod, Direction};
use super::staged::{self, HostBytes};
use super::staging::Lease;
use crate::buffer::{Access, Buffer, Place};
use crate::cpu::host_copy;
use crate::memory::resource::{BlockKind, Kind};
use crate::{Error, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::ops::Range;
use cuda_sys::CUdeviceptr;
use std::collections::VecDeque;

impl CopyEngine {
    /// Copies a slice to device memory in stream order: after the work queued on `stream` so far, and before later
    /// work. It returns when the source may be reused. That is before the copy is done, unless the source exceeds the
    /// free staging. The memory's own work, and its free, are ordered with the copy.
    ///
    /// If neither the stream nor the memory has work in progress, a small copy to mapped memory is an immediate CPU
    /// store. All other copies pass through page-locked staging, so no copy waits for the stream.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`; the stream or the memory belongs to another device; the stream captures a
    /// graph, which would read the staging at each launch; there is no room for staging.
    ///
    /// ```
    /// # use cuda_mem::{Buffer, Stream, copy::CopyEngine, memory::DeviceMemory};
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let (engine, stream) = (CopyEngine::new(&context)?, Stream::new(&context)?);
    /// let mut buffer = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&context), 4, &stream)?;
    /// let mut values = [1, 2];
    /// engine.write_on(&stream, &mut buffer, 1, &values)?;
    /// values = [0; 2]; // the copy has its own bytes
    /// # let _ = values;
    /// let mut seen = [0; 4];
    /// engine.read_on(&stream, &mut buffer, 0, &mut seen)?.wait()?;
    /// assert_eq!(seen, [0, 1, 2, 0]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn write_on<T, K: Kind, A: Access>(
        &self,
        stream: &Stream,
        memory: &mut Buffer<T, K, A>,
        offset: usize,
        source: &[T],
    ) -> Result<()>
    where
        T: NoUninit,
    {
        const CALL: &str = "CopyEngine::write_on";
        let place = memory.place(CALL, offset, source.len())?;
        memory.check_writable(CALL)?;
        if !self.prepare(CALL, stream, memory, &place)? {
            return Ok(());
        }
        let bytes = bytemuck::cast_slice::<T, u8>(source);
        if self.may_use_cpu(stream, memory, &place, Direction::ToDevice)? {
            // SAFETY: the place lies within the memory, which is borrowed exclusively, so the source does not overlap
            // it.
            unsafe { host_copy::store(bytes.as_ptr(), place.host, place.size) };
            return Ok(());
        }
        memory.order_before(stream)?;
        let threads = (bytes.len() >> 19).clamp(1, 4) as u8;
        let (direction, host) = (Direction::ToDevice, bytes.as_ptr().cast_mut());
        let sides = CpuCopy { direction, mapped: place.host, host, size: place.size };
        let job = Job { sides, device: place.device, stream };
        let mut lane = staged::run(
            &job,
            HostBytes::Memory,
            CopyMethod::Staged { threads },
            &self.inner.threads,
            &self.inner.staging,
        )?;
        // The stream may capture meanwhile, so an error waits for the copies and not for the stream.
        memory.order_after(stream).inspect_err(|_| drop(lane.settle()))
    }

    /// Begins to copy device memory to a slice, in stream order. See [`PendingRead`].
    ///
    /// If the read exceeds one copy's staging, the call waits for and copies the first part of it.
    ///
    /// # Errors
    ///
    /// As [`write_on`](Self::write_on), for the destination.
    pub fn read_on<'host, T, K: Kind, A: Access>(
        &self,
        stream: &Stream,
        memory: &mut Buffer<T, K, A>,
        offset: usize,
        destination: &'host mut [T],
    ) -> Result<PendingRead<'host>>
    where
        T: NoUninit + AnyBitPattern,
    {
        const CALL: &str = "CopyEngine::read_on";
        let place = memory.place(CALL, offset, destination.len())?;
        let bytes = bytemuck::cast_slice_mut::<T, u8>(destination);
        let mut read = PendingRead { lane: None, under_way: VecDeque::new(), destination: bytes };
        if !self.prepare(CALL, stream, memory, &place)? {
            return Ok(read);
        }
        if self.may_use_cpu(stream, memory, &place, Direction::FromDevice)? {
            // SAFETY: the place lies within the memory, which is borrowed, so the destination does not overlap it.
            unsafe { host_copy::load(place.host, read.destination.as_mut_ptr(), place.size) };
            return Ok(read);
        }
        memory.order_before(stream)?;
        let device = place.device;
        read.lane = Some(self.inner.staging.take_apart()?);
        let ran = read.begin(device, self.inner.staging.slot_size(), stream);
        if let Err(error) = ran.and_then(|()| memory.order_after(stream)) {
            // As in `write_on`.
            let _ = read.lane.as_mut().map_or(Ok(()), |lane| lane.settle());
            return Err(error);
        }
        Ok(read)
    }

    /// Checks a copy. Whether there is something to copy.
    fn prepare<T, K: Kind, A: Access>(
        &self,
        call: &'static str,
        stream: &Stream,
        memory: &Buffer<T, K, A>,
        place: &Place<'_>,
    ) -> Result<bool> {
        place.check(call, &self.inner.context)?;
        if *stream.context() != self.inner.context {
            let value = format!("of another context, of device {}", stream.context().device().ordinal());
            let rule = "a copy engine serves streams of its own context; make one for each context";
            return Err(Error::invalid(call, "stream", value, rule));
        }
        stream.check_not_capturing(call)?;
        if place.memory == BlockKind::NonCoherent && place.size > 0 {
            memory.hand_over(place)?;
        }
        Ok(place.size > 0)
    }

    /// Whether the CPU may copy now: neither the stream nor the memory has work in progress.
    fn may_use_cpu<T, K: Kind, A: Access>(
        &self,
        stream: &Stream,
        memory: &Buffer<T, K, A>,
        place: &Place<'_>,
        direction: Direction,
    ) -> Result<bool> {
        Ok(place.memory == BlockKind::Mapped
            && self.inner.is_small(direction, place.size)
            && stream.is_done()?
            && memory.is_idle()?)
    }
}

/// A read in progress. The device copies to the engine's staging, and [`wait`](Self::wait) copies from there to the
/// slice. Without `wait`, nothing writes to the slice.
#[must_use = "only `wait` copies the bytes to the slice"]
pub struct PendingRead<'host> {
    /// `None` if nothing is left to copy.
    lane: Option<Lease>,
    /// The slot that holds each range.
    under_way: VecDeque<(usize, Range<usize>)>,
    destination: &'host mut [u8],
}

impl PendingRead<'_> {
    fn begin(&mut self, device: CUdeviceptr, slot_size: usize, stream: &Stream) -> Result<()> {
        let mut begin = 0;
        let mut turn = 0;
        while begin < self.destination.len() {
            let range = begin..(begin + slot_size).min(self.destination.len());
            begin = range.end;
            let Some(lane) = &mut self.lane else { return Ok(()) };
            let slot = turn % lane.slots.len();
            turn += 1;
            if self.under_way.len() == lane.slots.len() {
                self.copy_out()?;
            }
            let Some(lane) = &mut self.lane else { return Ok(()) };
            let free = &mut lane.slots[slot];
            free.wait()?;
            // SAFETY: the piece lies within the memory, which `order_after` makes wait for the stream.
            unsafe { free.fetch(device + range.start as CUdeviceptr, range.len(), stream) }?;
            self.under_way.push_back((slot, range));
        }
        Ok(())
    }

    /// Waits for the oldest piece and copies it to the slice.
    fn copy_out(&mut self) -> Result<()> {
        if let (Some(lane), Some((slot, range))) = (&mut self.lane, self.under_way.pop_front()) {
            let slot = &mut lane.slots[slot];
            slot.wait()?;
            // SAFETY: the slot is at least as large, nobody else uses it, and the device has written the bytes.
            let bytes = unsafe { core::slice::from_raw_parts(slot.start(), range.len()) };
            self.destination[range].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Waits for the copy. Afterwards the slice holds the bytes.
    ///
    /// # Errors
    ///
    /// The copy, or work before it, failed.
    pub fn wait(mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.copy_out()?;
        }
        Ok(())
    }

    /// Whether [`wait`](Self::wait) would return without waiting.
    ///
    /// # Errors
    ///
    /// The copy, or work before it, failed.
    pub fn is_done(&self) -> Result<bool> {
        match (&self.lane, self.under_way.back()) {
            (Some(lane), Some((slot, _))) => lane.slots[*slot].is_free(),
            _ => Ok(true),
        }
    }
}

impl fmt::Debug for PendingRead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRead")
            .field("size", &self.destination.len())
            .field("pieces_under_way", &self.under_way.len())
            .finish()
    }
}
