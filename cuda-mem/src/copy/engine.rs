//! The engine: one call, and the fastest way.

use super::builder::{CopyEngineBuilder, CopyOptions, Measuring, StagingOptions};
use super::cache::{Identity, ProfileCache};
use super::choice::Choice;
use super::host_memory;
use super::job::{CpuCopy, Job};
use super::profile::MachineProfile;
use super::staging::Staging;
use super::threads::CopyThreads;
use super::way::{DeviceSide, Direction, HostSide, Route, Way};
use crate::borrowed::Borrowed;
use crate::copy_memory::{CopyMemory, Memory, Place};
use crate::host_copy;
use crate::{Context, Error, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::sync::atomic::AtomicUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

/// From this size on a copy is large: the first one of its kind measures the machine.
pub(super) const LARGE: usize = 1 << 20;

/// Copies between the host and one device, each in the way that is fastest on this machine for its size and its memory.
/// Cheap to clone; of use from any number of threads at once.
///
/// ```
/// use cuda_mem::copy::CopyEngine;
/// use cuda_mem::{Buffer, MappedResource, Stream, memory::DeviceMemory};
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// let engine = CopyEngine::new(&context)?;
///
/// let mut mapped = MappedResource::new(&context)?.allocate(4096)?;
/// engine.write(&mut mapped, 16, &[1.0f32, 2.0])?; // CPU stores: 0.1 us
///
/// let mut buffer = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&context), 1 << 20, &Stream::new(&context)?)?;
/// engine.write(&mut buffer, 0, &vec![7; 1 << 20])?; // by page-locked staging, or by the driver
/// let mut seen = [0; 3];
/// engine.read(&buffer, 5, &mut seen)?;
/// assert_eq!(seen, [7; 3]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// # What "done" means
///
/// | call | when it returns |
/// |---|---|
/// | [`write`](Self::write) | device work given to the driver from now on sees the bytes |
/// | [`write_complete`](Self::write_complete) | the bytes are in the device's memory: kernels that run already, and other devices, see them, once they look past their own caches |
/// | [`write_on`](Self::write_on) | the source is free again; later work of that stream sees the bytes |
/// | [`read`](Self::read) | the destination holds the bytes |
/// | [`read_on`](Self::read_on) | the bytes are on their way, in order of the stream; [`PendingRead::wait`](super::PendingRead::wait) |
///
/// A kernel that runs while the CPU stores sees the stores in no order that may be relied on, as with gdrcopy: PCIe keeps
/// the order of the writes that leave the CPU, but write-combining buffers leave it in any order, and one large store may
/// arrive in parts. Data before a flag needs a fence between the two, which each `write` ends with, and a kernel that reads
/// both as volatile or with system scope.
#[derive(Clone)]
pub struct CopyEngine {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub context: Context,
    pub threads: Arc<dyn CopyThreads>,
    pub staging: Staging,
    /// Streams of the engine's, for memory that has none of its own.
    pub streams: Mutex<Vec<Stream>>,
    /// Up to which sizes one thread's stores and loads are chosen, by direction: what small copies look at.
    pub single_thread_upto: [AtomicUsize; 2],
    pub choice: RwLock<Arc<Choice>>,
    pub identity: Identity,
    pub file: Option<PathBuf>,
    pub measuring: Measuring,
    /// Held by who measures; what is measured of the machine so far.
    pub measured: Mutex<MachineProfile>,
}

impl CopyEngine {
    /// An engine for a context's device, with the process's threads, and the profile of the user's cache directory.
    ///
    /// # Errors
    ///
    /// The driver refuses.
    pub fn new(context: &Context) -> Result<Self> {
        Self::builder(context).build()
    }

    /// For an engine with options.
    pub fn builder(context: &Context) -> CopyEngineBuilder {
        CopyEngineBuilder {
            context: context.clone(),
            threads: None,
            cache: ProfileCache::default(),
            profile: None,
            measuring: Measuring::default(),
            staging: StagingOptions::default(),
        }
    }

    /// Copies a slice to memory of the device. Device work given to the driver after this sees the bytes.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`; the memory is another device's; earlier work on the memory failed; the driver
    /// refuses.
    #[inline]
    pub fn write<T, M>(&self, memory: &mut M, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
        M: CopyMemory<T>,
    {
        self.write_for("CopyEngine::write", memory, offset, source)
    }

    #[inline]
    fn write_for<T, M>(&self, call: &'static str, memory: &M, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
        M: CopyMemory<T>,
    {
        let place = memory.place(call, offset, source.len())?;
        if place.memory == Memory::Mapped && self.inner.is_small(Direction::ToDevice, place.size) {
            memory.settle()?;
            // SAFETY: the place lies within the memory, which the callers borrow exclusively, so the source is no part of it.
            unsafe { host_copy::store(source.as_ptr().cast(), place.host, place.size) };
            return Ok(());
        }
        self.write_large(call, memory, &place, source, &CopyOptions::default())
    }

    /// As [`write`](Self::write), as the caller decides.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); or the way does not serve this memory.
    pub fn write_with<T, M>(&self, memory: &mut M, offset: usize, source: &[T], options: &CopyOptions) -> Result<()>
    where
        T: NoUninit,
        M: CopyMemory<T>,
    {
        const CALL: &str = "CopyEngine::write_with";
        let place = memory.place(CALL, offset, source.len())?;
        self.write_large(CALL, memory, &place, source, options)
    }

    /// As [`write`](Self::write), and waits until the bytes are in the device's memory. Of stores, one word is read back,
    /// which PCIe answers after all writes before it; that takes 1 us on a GPU.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn write_complete<T, M>(&self, memory: &mut M, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
        M: CopyMemory<T>,
    {
        const CALL: &str = "CopyEngine::write_complete";
        self.write_for(CALL, memory, offset, source)?;
        let place = memory.place(CALL, offset, source.len())?;
        // What the driver or a flush has copied is there already.
        if place.memory == Memory::Mapped && place.size > 0 {
            let last = place.host.wrapping_add(place.size - 1);
            // SAFETY: the last byte lies within the memory, which is borrowed.
            unsafe { host_copy::load_word::<u8>(last) };
        }
        Ok(())
    }

    fn write_large<T, M>(
        &self,
        call: &'static str,
        memory: &M,
        place: &Place<'_>,
        source: &[T],
        options: &CopyOptions,
    ) -> Result<()>
    where
        T: NoUninit,
        M: CopyMemory<T>,
    {
        let bytes = bytemuck::cast_slice::<T, u8>(source);
        let direction = Direction::ToDevice;
        let Some(plan) = self.plan(call, place, bytes.as_ptr(), direction, options)? else { return Ok(()) };
        if place.memory == Memory::NonCoherent && matches!(plan, Way::Cpu { .. }) {
            memory.settle()?;
            memory.store(place, bytes)?;
            return memory.flush(place);
        }
        // SAFETY: the source is borrowed until the copy is done, and only read.
        unsafe { self.copy(memory, place, bytes.as_ptr().cast_mut(), direction, plan) }
    }

    /// Copies memory of the device to a slice.
    ///
    /// # Errors
    ///
    /// There are fewer elements from `offset` on; the memory is another device's; earlier work on the memory failed; the
    /// driver refuses.
    #[inline]
    pub fn read<T, M>(&self, memory: &M, offset: usize, destination: &mut [T]) -> Result<()>
    where
        T: NoUninit + AnyBitPattern,
        M: CopyMemory<T>,
    {
        const CALL: &str = "CopyEngine::read";
        let place = memory.place(CALL, offset, destination.len())?;
        if place.memory == Memory::Mapped && self.inner.is_small(Direction::FromDevice, place.size) {
            memory.settle()?;
            // SAFETY: the place lies within the memory, which is borrowed, so the destination is no part of it.
            unsafe { host_copy::load(place.host, destination.as_mut_ptr().cast(), place.size) };
            return Ok(());
        }
        self.read_large(CALL, memory, &place, destination, &CopyOptions::default())
    }

    /// As [`read`](Self::read), as the caller decides.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); or the way does not serve this memory.
    pub fn read_with<T, M>(&self, memory: &M, offset: usize, destination: &mut [T], options: &CopyOptions) -> Result<()>
    where
        T: NoUninit + AnyBitPattern,
        M: CopyMemory<T>,
    {
        const CALL: &str = "CopyEngine::read_with";
        let place = memory.place(CALL, offset, destination.len())?;
        self.read_large(CALL, memory, &place, destination, options)
    }

    fn read_large<T, M>(
        &self,
        call: &'static str,
        memory: &M,
        place: &Place<'_>,
        destination: &mut [T],
        options: &CopyOptions,
    ) -> Result<()>
    where
        T: NoUninit + AnyBitPattern,
        M: CopyMemory<T>,
    {
        let bytes = bytemuck::cast_slice_mut::<T, u8>(destination);
        let direction = Direction::FromDevice;
        let Some(plan) = self.plan(call, place, bytes.as_ptr(), direction, options)? else { return Ok(()) };
        if place.memory == Memory::NonCoherent && matches!(plan, Way::Cpu { .. }) {
            memory.settle()?;
            return memory.load(place, bytes);
        }
        // SAFETY: the destination is borrowed exclusively until the copy is done, and any bytes are values of `T`.
        unsafe { self.copy(memory, place, bytes.as_mut_ptr(), direction, plan) }
    }

    /// The way of a copy; `None` for one of no bytes.
    fn plan(
        &self,
        call: &'static str,
        place: &Place<'_>,
        host: *const u8,
        direction: Direction,
        options: &CopyOptions,
    ) -> Result<Option<Way>> {
        place.check(call, &self.inner.context)?;
        if place.size == 0 {
            return Ok(None);
        }
        let device = match place.memory {
            Memory::Mapped | Memory::NonCoherent => DeviceSide::Mapped,
            Memory::Device => DeviceSide::Plain,
            // The driver alone knows where the memory is.
            Memory::Managed => return only(call, options.way, Way::Driver, "managed memory is copied by Way::Driver"),
            // Plain copies of the CPU: a thread more for each half megabyte.
            Memory::Host => {
                let threads = (place.size >> 19).clamp(1, 1 + self.inner.threads.helpers().min(7)) as u8;
                let way = match options.way {
                    Some(way @ Way::Cpu { threads: 1.. }) => way,
                    _ => Way::Cpu { threads },
                };
                return only(call, options.way, way, "memory of the host is copied by Way::Cpu, of one thread or more");
            }
        };
        let route = |host| Route { direction, host, device };
        let host = match options.host {
            Some(host) => host,
            // The driver takes its time to answer; where the answer does not matter, it is not asked.
            None if options.way.is_none() && self.inner.does_not_matter(route, place.size) => HostSide::Pageable,
            None => host_memory::of(&self.inner.context, host, place.size)?,
        };
        let way = self.inner.way(call, route(host), place.size, options)?;
        // Atoms are flushed by one thread, and never past the memory's account of them.
        Ok(Some(match (place.memory, way) {
            (Memory::NonCoherent, Way::Mixed { storing, staging }) => Way::Staged { threads: storing + staging },
            (_, way) => way,
        }))
    }

    /// Does a copy, and waits.
    ///
    /// # Safety
    ///
    /// `host` is valid for `place.size` bytes, to be read or written, and nobody else writes it.
    unsafe fn copy<T, M: CopyMemory<T>>(
        &self,
        memory: &M,
        place: &Place<'_>,
        host: *mut u8,
        direction: Direction,
        way: Way,
    ) -> Result<()> {
        let by_cpu = matches!(way, Way::Cpu { .. });
        if by_cpu || matches!(way, Way::Mixed { .. }) || place.home.is_none() {
            memory.settle()?;
        }
        if place.memory == Memory::NonCoherent {
            memory.hand_over(place)?;
        }
        let sides = CpuCopy { direction, mapped: place.host, host, size: place.size };
        let Inner { threads, staging, .. } = &*self.inner;
        if by_cpu {
            sides.run(way.threads(), &**threads);
            return Ok(());
        }
        let own;
        let stream = match place.home {
            Some(home) => home,
            None => {
                own = self.inner.stream()?;
                &own
            }
        };
        // What a capture records copies nothing now.
        let submission = stream.submission("CopyEngine::copy")?;
        let _lent = match direction {
            Direction::ToDevice => Borrowed::lent(host, place.size),
            Direction::FromDevice => Borrowed::lent_to_write(host, place.size),
        };
        let job = Job { sides, device: place.device, stream };
        memory.begin_device_work();
        if place.size >= LARGE && way.threads() > 1 && place.home.is_some() {
            // Threads that help do not wait for long: they are called when the device has time.
            stream.synchronize()?;
        }
        let mut ran = job.run(way, &**threads, staging);
        if matches!(way, Way::Staged { .. } | Way::Mixed { .. }) && ran.as_ref().is_err_and(Error::is_out_of_memory) {
            // No staging is to be had: the driver has some of its own.
            ran = job.run(Way::Driver, &**threads, staging);
        }
        if ran.is_ok() && direction == Direction::FromDevice && matches!(way, Way::Staged { .. }) {
            // All of it has come, or it could not have been copied out of the staging.
            return Ok(());
        }
        drop(submission);
        // Also after an error: what was begun must not go on with the caller's memory.
        let waited = stream.complete();
        ran.and(waited)
    }

    /// How much page-locked staging the engine has, in bytes.
    pub fn reserved_staging(&self) -> usize {
        self.inner.staging.reserved()
    }

    /// Frees staging that no copy uses.
    pub fn trim(&self) {
        self.inner.staging.trim();
    }

    /// The threads that help.
    pub fn threads(&self) -> &Arc<dyn CopyThreads> {
        &self.inner.threads
    }

    /// The context that the engine copies in.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }
}

/// The one way of memory, where the caller asks for no other.
fn only(call: &'static str, asked: Option<Way>, way: Way, rule: &'static str) -> Result<Option<Way>> {
    match asked {
        Some(asked) if asked != way => {
            Err(Error::InvalidArgument { call, argument: "way", value: format!("{asked}").into(), rule })
        }
        _ => Ok(Some(way)),
    }
}

impl fmt::Debug for CopyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyEngine")
            .field("threads", &self.inner.threads)
            .field("staging", &self.inner.staging)
            .field("measuring", &self.inner.measuring)
            .field("profile_file", &self.inner.file)
            .finish_non_exhaustive()
    }
}
