//! The engine, which makes each copy by the fastest method.

use super::builder::{CopyEngineBuilder, CopyOptions, StagingOptions};
use super::host_memory;
use super::job::{CpuCopy, Job};
use super::machine::SharedEngine;
use super::method::{CopyMethod, DeviceSide, Direction, HostSide, Route};
use super::profile::MachineProfile;
use super::staged::{self, HostBytes};
use crate::buffer::{Access, Buffer, Place};
use crate::cpu::borrowed::{Borrowed, check_shared_read, check_shared_write};
use crate::cpu::host_copy;
#[cfg(feature = "tracing")]
use crate::error::told::ToldSpan;
use crate::error::unless_forked;
use crate::memory::resource::{BlockKind, Kind};
use crate::{Context, Error, Result};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use std::sync::Arc;

/// The smallest large copy, in bytes.
pub(super) const LARGE: usize = 1 << 20;

/// Copies between the host and one device, each by the fastest method on this machine for its size and memory. Cheap to
/// clone; any number of threads may use an engine at once.
///
/// ```
/// use cuda_mem::copy::CopyEngine;
/// use cuda_mem::{Buffer, MappedMemory, Stream, memory::DeviceMemory};
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// # let context = driver.device(0)?.primary_context()?;
/// let engine = CopyEngine::new(&context)?;
///
/// let stream = Stream::new(&context)?;
/// let mut mapped = Buffer::<f32, _>::zeroed(&MappedMemory::new(&context)?, 1024, &stream)?;
/// engine.write(&mut mapped, 4, &[1.0, 2.0])?; // CPU stores: 0.1 us
///
/// let mut buffer = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&context), 1 << 20, &stream)?;
/// engine.write(&mut buffer, 0, &vec![7; 1 << 20])?; // through page-locked staging, or by the driver
/// let mut seen = [0; 3];
/// engine.read(&buffer, 5, &mut seen)?;
/// assert_eq!(seen, [7; 3]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// # What "done" means
///
/// | call | state when it returns |
/// |---|---|
/// | [`write`](Self::write) | device work queued from now on sees the bytes |
/// | [`write_complete`](Self::write_complete) | the bytes are in device memory: running kernels and other devices see them when they read past their own caches |
/// | [`write_on`](Self::write_on) | the source may be reused; later work on that stream sees the bytes |
/// | [`read`](Self::read) | the destination holds the bytes |
/// | [`read_on`](Self::read_on) | the copy is queued in stream order; [`PendingRead::wait`](super::PendingRead::wait) completes it |
///
/// A kernel that runs while the CPU stores may see the stores in any order, as with gdrcopy: PCIe keeps the order of
/// writes that leave the CPU, but write-combining buffers leave it in any order, and one large store may arrive in
/// parts. To publish data with a flag, put a fence between the two (each `write` ends with one), and let the kernel
/// read both as volatile or with system scope.
#[derive(Clone)]
pub struct CopyEngine {
    pub(super) inner: Arc<SharedEngine>,
}

impl CopyEngine {
    /// Makes an engine for a context's device, with the process's threads and the typical profile.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    pub fn new(context: &Context) -> Result<Self> {
        Self::builder(context).build()
    }

    /// A builder for an engine with options.
    pub fn builder(context: &Context) -> CopyEngineBuilder {
        CopyEngineBuilder {
            context: context.clone(),
            helper_threads: None,
            profile: MachineProfile::typical(),
            staging: StagingOptions::default(),
        }
    }

    /// Copies a slice to device memory. Device work queued after this call sees the bytes.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`; the memory belongs to another device; earlier work on the memory failed.
    #[inline]
    pub fn write<T, K: Kind, A: Access>(&self, memory: &mut Buffer<T, K, A>, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        self.write_for("CopyEngine::write", memory, offset, source)
    }

    #[inline]
    fn write_for<T, K: Kind, A: Access>(
        &self,
        call: &'static str,
        memory: &Buffer<T, K, A>,
        offset: usize,
        source: &[T],
    ) -> Result<()>
    where
        T: NoUninit,
    {
        let place = memory.place(call, offset, source.len())?;
        if place.memory == BlockKind::Mapped && self.inner.is_small(Direction::ToDevice, place.size) {
            memory.settle()?;
            check_shared_write(place.host, place.size);
            // SAFETY: the place lies within the memory, which the callers borrow exclusively, so the source does not
            // overlap it.
            unsafe { host_copy::store(source.as_ptr().cast(), place.host, place.size) };
            return Ok(());
        }
        self.write_large(call, memory, &place, source, &CopyOptions::default())
    }

    /// Copies a slice to device memory with the options' choice of method and type of host memory. Device work queued
    /// after this call sees the bytes.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); or the chosen method cannot serve this memory.
    pub fn write_with<T, K: Kind, A: Access>(
        &self,
        memory: &mut Buffer<T, K, A>,
        offset: usize,
        source: &[T],
        options: &CopyOptions,
    ) -> Result<()>
    where
        T: NoUninit,
    {
        const CALL: &str = "CopyEngine::write_with";
        let place = memory.place(CALL, offset, source.len())?;
        self.write_large(CALL, memory, &place, source, options)
    }

    /// Copies a slice to device memory and waits until the bytes are there. After CPU stores it reads one byte back,
    /// because PCIe answers a read after all writes before it. That takes 1 us on a GPU.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_complete<T, K: Kind, A: Access>(
        &self,
        memory: &mut Buffer<T, K, A>,
        offset: usize,
        source: &[T],
    ) -> Result<()>
    where
        T: NoUninit,
    {
        const CALL: &str = "CopyEngine::write_complete";
        self.write_for(CALL, memory, offset, source)?;
        let place = memory.place(CALL, offset, source.len())?;
        // Copies by the driver and flushes are complete already.
        if place.memory == BlockKind::Mapped && place.size > 0 {
            let last = place.host.wrapping_add(place.size - 1);
            // SAFETY: the last byte lies within the memory, which is borrowed.
            unsafe { host_copy::load_word::<u8>(last) };
        }
        Ok(())
    }

    fn write_large<T, K: Kind, A: Access>(
        &self,
        call: &'static str,
        memory: &Buffer<T, K, A>,
        place: &Place<'_>,
        source: &[T],
        options: &CopyOptions,
    ) -> Result<()>
    where
        T: NoUninit,
    {
        memory.check_writable(call)?;
        let bytes = bytemuck::cast_slice::<T, u8>(source);
        let direction = Direction::ToDevice;
        let Some(plan) = self.plan(call, place, bytes.as_ptr(), direction, options)? else { return Ok(()) };
        if place.memory == BlockKind::NonCoherent && matches!(plan, CopyMethod::Cpu { .. }) {
            return memory.store_at(memory.settle()?, place, bytes);
        }
        // SAFETY: the source is borrowed until the copy is done, and the copy only reads it.
        unsafe { self.copy(memory, place, bytes.as_ptr().cast_mut(), direction, plan) }
    }

    /// Copies device memory to a slice.
    ///
    /// # Errors
    ///
    /// The range exceeds the memory; the memory belongs to another device; earlier work on the memory failed.
    #[inline]
    pub fn read<T, K: Kind, A: Access>(
        &self,
        memory: &Buffer<T, K, A>,
        offset: usize,
        destination: &mut [T],
    ) -> Result<()>
    where
        T: NoUninit + AnyBitPattern,
    {
        const CALL: &str = "CopyEngine::read";
        let place = memory.place(CALL, offset, destination.len())?;
        if place.memory == BlockKind::Mapped && self.inner.is_small(Direction::FromDevice, place.size) {
            memory.settle()?;
            check_shared_read(place.host, place.size);
            // SAFETY: the place lies within the memory, which is borrowed, so the destination does not overlap it.
            unsafe { host_copy::load(place.host, destination.as_mut_ptr().cast(), place.size) };
            return Ok(());
        }
        self.read_large(CALL, memory, &place, destination, &CopyOptions::default())
    }

    /// Copies device memory to a slice with the options' choice of method and type of host memory.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); or the chosen method cannot serve this memory.
    pub fn read_with<T, K: Kind, A: Access>(
        &self,
        memory: &Buffer<T, K, A>,
        offset: usize,
        destination: &mut [T],
        options: &CopyOptions,
    ) -> Result<()>
    where
        T: NoUninit + AnyBitPattern,
    {
        const CALL: &str = "CopyEngine::read_with";
        let place = memory.place(CALL, offset, destination.len())?;
        self.read_large(CALL, memory, &place, destination, options)
    }

    fn read_large<T, K: Kind, A: Access>(
        &self,
        call: &'static str,
        memory: &Buffer<T, K, A>,
        place: &Place<'_>,
        destination: &mut [T],
        options: &CopyOptions,
    ) -> Result<()>
    where
        T: NoUninit + AnyBitPattern,
    {
        let bytes = bytemuck::cast_slice_mut::<T, u8>(destination);
        let direction = Direction::FromDevice;
        let Some(plan) = self.plan(call, place, bytes.as_ptr(), direction, options)? else { return Ok(()) };
        if place.memory == BlockKind::NonCoherent && matches!(plan, CopyMethod::Cpu { .. }) {
            return memory.load_at(memory.settle()?, place, bytes);
        }
        // SAFETY: the destination is borrowed exclusively until the copy is done, and any bytes are values of `T`.
        unsafe { self.copy(memory, place, bytes.as_mut_ptr(), direction, plan) }
    }

    /// Chooses the way of a copy; `None` for a copy of 0 bytes.
    fn plan(
        &self,
        call: &'static str,
        place: &Place<'_>,
        host: *const u8,
        direction: Direction,
        options: &CopyOptions,
    ) -> Result<Option<CopyMethod>> {
        place.check(call, &self.inner.context)?;
        if place.size == 0 {
            return Ok(None);
        }
        let device = match place.memory {
            BlockKind::Mapped | BlockKind::NonCoherent => DeviceSide::Mapped,
            BlockKind::Nothing => return Ok(None),
            BlockKind::Device => DeviceSide::Plain,
            // Only the driver knows where the memory is.
            BlockKind::Managed => {
                return only(call, options.method, CopyMethod::Driver, "only CopyMethod::Driver copies managed memory");
            }
            // Plain CPU copies, with one more thread per half megabyte.
            BlockKind::Host | BlockKind::ReadOnly => {
                let threads = (place.size >> 19).clamp(1, 1 + self.inner.threads.helpers().min(7)) as u8;
                let method = match options.method {
                    Some(method @ CopyMethod::Cpu { threads: 1.. }) => method,
                    _ => CopyMethod::Cpu { threads },
                };
                return only(
                    call,
                    options.method,
                    method,
                    "only CopyMethod::Cpu, with 1 or more threads, copies host memory",
                );
            }
        };
        let route = |host| Route { direction, host, device };
        let host = match options.host {
            Some(host) => host,
            // Asking the driver takes time, so it is skipped if the method does not depend on the answer.
            None if options.method.is_none() && self.inner.does_not_matter(route, place.size) => HostSide::Pageable,
            None => host_memory::of(&self.inner.context, host, place.size)?,
        };
        let method = self.inner.method(call, route(host), place.size, options)?;
        // One thread flushes atoms, and every store must update the record of dirty atoms.
        Ok(Some(match (place.memory, method) {
            (BlockKind::NonCoherent, CopyMethod::Mixed { storing, staging }) => {
                CopyMethod::Staged { threads: storing + staging }
            }
            (_, method) => method,
        }))
    }

    /// Makes a copy and waits for it.
    ///
    /// # Safety
    ///
    /// `host` is valid for reads or writes of `place.size` bytes, and nobody else writes them.
    unsafe fn copy<T, K: Kind, A: Access>(
        &self,
        memory: &Buffer<T, K, A>,
        place: &Place<'_>,
        host: *mut u8,
        direction: Direction,
        method: CopyMethod,
    ) -> Result<()> {
        #[cfg(feature = "tracing")]
        let _span = ToldSpan::begin(
            || tracing::debug_span!(target: "cuda_mem::copy", "copy", bytes = place.size, ?direction, ?method),
        );
        let by_cpu = matches!(method, CopyMethod::Cpu { .. });
        if by_cpu || matches!(method, CopyMethod::Mixed { .. }) {
            memory.settle()?;
        }
        if place.memory == BlockKind::NonCoherent {
            memory.hand_over(place)?;
        }
        let sides = CpuCopy { direction, mapped: place.host, host, size: place.size };
        if by_cpu {
            sides.run(method.threads(), &self.inner.threads);
            return Ok(());
        }
        if matches!(method, CopyMethod::Staged { .. } | CopyMethod::Mixed { .. }) {
            match self.copy_staged(memory, place, sides, method) {
                // There is no room for staging. The driver has its own.
                Err(error) if error.is_out_of_memory() => {}
                done => return done,
            }
        }
        let stream = place.home;
        stream.drain(&"CopyEngine::copy")?;
        // A capture would only record the copy.
        let submission = stream.running("CopyEngine::copy")?;
        let _lent = match direction {
            Direction::ToDevice => Borrowed::lent(host, place.size),
            Direction::FromDevice => Borrowed::lent_to_write(host, place.size),
        };
        let job = Job { sides, device: place.device, stream };
        memory.mark_busy();
        let ran = job.run(method);
        drop(submission);
        // Wait also after an error: no copy may outlive the borrow of the caller's memory.
        let waited = stream.wait_certainly();
        ran.and(waited)
    }

    /// Makes a copy by the engine's threads, with nothing held: they may be the program's.
    fn copy_staged<T, K: Kind, A: Access>(
        &self,
        memory: &Buffer<T, K, A>,
        place: &Place<'_>,
        sides: CpuCopy,
        method: CopyMethod,
    ) -> Result<()> {
        let stream = place.home;
        stream.check_not_capturing("CopyEngine::copy")?;
        let _lent = match sides.direction {
            Direction::ToDevice => Borrowed::lent(sides.host, place.size),
            Direction::FromDevice => Borrowed::lent_to_write(sides.host, place.size),
        };
        memory.mark_busy();
        if place.size >= LARGE && method.threads() > 1 {
            // Wait for the stream first: helper threads only wait briefly for the device.
            stream.synchronize()?;
        }
        let job = Job { sides, device: place.device, stream };
        let mut lane = staged::run(&job, HostBytes::Memory, method, &self.inner.threads, &self.inner.staging)?;
        // After a copy from the device, all slots are free.
        lane.settle()
    }

    /// The page-locked staging that the engine holds, in bytes. 0 in a forked process.
    pub fn reserved_staging(&self) -> usize {
        unless_forked(|| self.inner.staging.reserved())
    }

    /// Frees staging that no copy uses.
    pub fn trim(&self) {
        unless_forked(|| self.inner.staging.trim());
    }

    /// How many threads help with large copies, beside the thread that copies.
    pub fn helper_threads(&self) -> usize {
        self.inner.threads.helpers()
    }

    /// The context in which the engine copies.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

/// The only method for this memory; an error if the caller chose another.
fn only(
    call: &'static str,
    asked: Option<CopyMethod>,
    method: CopyMethod,
    rule: &'static str,
) -> Result<Option<CopyMethod>> {
    match asked {
        Some(asked) if asked != method => Err(Error::invalid(call, "method", asked, rule)),
        _ => Ok(Some(method)),
    }
}

impl fmt::Debug for CopyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyEngine")
            .field("threads", &self.inner.threads)
            .field("staging", &self.inner.staging)
            .finish_non_exhaustive()
    }
}
