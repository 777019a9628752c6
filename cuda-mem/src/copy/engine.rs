//! The engine: one call, and the fastest way.

use super::cache::{self, Identity, ProfileCache};
use super::choice::Choice;
use super::job::Job;
use super::measure;
use super::profile::MachineProfile;
use super::side::{CopyMemory, Memory, Place};
use super::staging::Staging;
use super::threads::{CopyThreads, ThreadPool};
use super::way::{DeviceMemory, Direction, HostMemory, Route, Way};
use super::{Posted, host_memory};
use crate::host_copy;
use crate::{Context, Error, Result, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

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
/// | [`post`](Self::post) | the source is free again; the bytes may still be in the CPU |
/// | [`write`](Self::write) | device work given to the driver from now on sees the bytes |
/// | [`write_complete`](Self::write_complete) | the bytes are in the device's memory: kernels that run already, and other devices, see them, once they look past their own caches |
/// | [`write_on`](Self::write_on) | the source is free again; later work of that stream sees the bytes |
/// | [`read`](Self::read) | the destination holds the bytes |
/// | [`read_on`](Self::read_on) | the bytes are on their way, in order of the stream; [`PendingRead::wait`](super::PendingRead::wait) |
///
/// A kernel that runs while the CPU stores sees the stores in no order that may be relied on, as with gdrcopy: PCIe keeps
/// the order of the writes that leave the CPU, but write-combining buffers leave it in any order, and one large store may
/// arrive in parts. Data before a flag needs a fence between the two, [`Posted::visible`], and a kernel that reads both as
/// volatile or with system scope.
#[derive(Clone)]
pub struct CopyEngine {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub context: Context,
    pub threads: Arc<dyn CopyThreads>,
    pub staging: Staging,
    /// Streams of the engine's, for memory that has none of its own.
    streams: Mutex<Vec<Stream>>,
    /// Up to which sizes one thread's stores and loads are chosen, by direction: what small copies look at.
    single_thread_upto: [AtomicUsize; 2],
    choice: RwLock<Arc<Choice>>,
    identity: Identity,
    file: Option<PathBuf>,
    measuring: Measuring,
    /// Held by who measures; what is measured of the machine so far.
    pub measured: Mutex<MachineProfile>,
}

/// When an engine measures its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Measuring {
    /// With the first copy of 1 MiB or more whose route is not known yet. That copy takes up to 0.2 s longer.
    #[default]
    AtFirstLargeCopy,
    /// Only by [`CopyEngine::measure`].
    OnRequest,
}

/// How an engine is made.
///
/// ```
/// use cuda_mem::copy::{CopyEngine, Measuring, NoThreads, ProfileCache};
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// let engine = CopyEngine::builder(&context)
///     .threads(std::sync::Arc::new(NoThreads)) // nobody helps the calling thread
///     .measuring(Measuring::OnRequest)
///     .profile_cache(ProfileCache::Off)
///     .build()?;
/// # drop(engine);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CopyEngineBuilder {
    context: Context,
    threads: Option<Arc<dyn CopyThreads>>,
    cache: ProfileCache,
    profile: Option<MachineProfile>,
    measuring: Measuring,
    staging: StagingSettings,
}

/// How much page-locked staging an engine may have. It is allocated when it is first needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StagingSettings {
    /// The size of a slot in bytes: the largest piece of a copy that goes through staging at once.
    pub slot_size: usize,
    /// How many slots a copy uses in turns.
    pub slots: usize,
    /// How many copies may use staging at once; others wait.
    pub lanes: usize,
}

impl Default for StagingSettings {
    fn default() -> Self {
        Self { slot_size: 2 << 20, slots: 8, lanes: 4 }
    }
}

/// What a caller decides for one copy.
///
/// ```
/// use cuda_mem::copy::{CopyOptions, Way};
/// let mut options = CopyOptions::default();
/// options.way = Some(Way::Driver);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyOptions {
    /// How the copy is done; by default as the profile says.
    pub way: Option<Way>,
    /// What the host's memory is; by default the driver is asked, for copies that are not small.
    pub host: Option<HostMemory>,
}

impl CopyEngineBuilder {
    /// The threads that help; by default the process's pool ([`ThreadPool::shared`]).
    pub fn threads(mut self, threads: Arc<dyn CopyThreads>) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Where profiles are kept.
    pub fn profile_cache(mut self, cache: ProfileCache) -> Self {
        self.cache = cache;
        self
    }

    /// The profile to choose by. None is read then, and nothing is measured but on request.
    pub fn profile(mut self, profile: MachineProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// When the machine is measured.
    pub fn measuring(mut self, measuring: Measuring) -> Self {
        self.measuring = measuring;
        self
    }

    /// How much staging there may be.
    pub fn staging(mut self, staging: StagingSettings) -> Self {
        self.staging = staging;
        self
    }

    /// Makes the engine.
    ///
    /// # Errors
    ///
    /// A size or number of the staging is 0; the profile is not valid; the driver refuses.
    pub fn build(self) -> Result<CopyEngine> {
        const CALL: &str = "CopyEngineBuilder::build";
        let StagingSettings { slot_size, slots, lanes } = self.staging;
        if slot_size == 0 || slots == 0 || lanes == 0 {
            return Err(Error::InvalidArgument {
                call: CALL,
                argument: "staging",
                value: format!("{:?}", self.staging).into(),
                rule: "none of its numbers may be 0",
            });
        }
        let threads = self.threads.unwrap_or_else(|| ThreadPool::shared());
        let identity = Identity::of(self.context.device())?;
        let given = self.profile.is_some();
        let file = self.cache.file(&identity);
        let kept = || file.as_deref().and_then(|file| cache::read(file, &identity));
        let measured = match self.profile {
            Some(profile) => check_profile(CALL, profile)?,
            None => kept().unwrap_or_else(|| identity.empty_profile()),
        };
        let inner = Inner {
            staging: Staging::new(&self.context, slot_size, slots, lanes),
            context: self.context,
            streams: Mutex::default(),
            single_thread_upto: Default::default(),
            choice: RwLock::new(Arc::new(Choice::new(MachineProfile::empty(), 1))),
            identity,
            file: file.filter(|_| !given),
            measuring: if given { Measuring::OnRequest } else { self.measuring },
            measured: Mutex::new(measured.clone()),
            threads,
        };
        inner.choose_by(if given { measured } else { over_typical(&measured) });
        Ok(CopyEngine { inner: Arc::new(inner) })
    }
}

fn check_profile(call: &'static str, profile: MachineProfile) -> Result<MachineProfile> {
    if profile.is_valid() {
        return Ok(profile);
    }
    Err(Error::InvalidArgument {
        call,
        argument: "profile",
        value: format!("of format {}, with {} routes", profile.format, profile.routes.len()).into(),
        rule: "its figures must be above zero, its sizes and routes in growing order, its format this version's",
    })
}

/// A profile whose gaps are filled with the typical figures.
fn over_typical(measured: &MachineProfile) -> MachineProfile {
    let mut profile = MachineProfile { routes: MachineProfile::typical().routes, ..measured.clone() };
    measured.routes.iter().for_each(|route| profile.set_route(route.clone()));
    profile
}

impl Inner {
    fn choose_by(&self, profile: MachineProfile) {
        let choice = Choice::new(profile, 1 + self.threads.helpers());
        for direction in [Direction::ToDevice, Direction::FromDevice] {
            let upto = choice.single_thread_upto(direction);
            self.single_thread_upto[direction as usize].store(upto, Ordering::Relaxed);
        }
        *self.choice.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(choice);
    }

    fn choice(&self) -> Arc<Choice> {
        self.choice.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[inline]
    pub fn is_small(&self, direction: Direction, size: usize) -> bool {
        size <= self.single_thread_upto[direction as usize].load(Ordering::Relaxed)
    }

    /// Whether the way is the same whatever the host's memory is.
    fn does_not_matter(&self, route: impl Fn(HostMemory) -> Route, size: usize) -> bool {
        let choice = self.choice.read().unwrap_or_else(PoisonError::into_inner);
        size < LARGE && choice.way(route(HostMemory::Pageable), size) == choice.way(route(HostMemory::Pinned), size)
    }

    /// A stream of the engine's.
    pub fn stream(&self) -> Result<OwnStream<'_>> {
        let free = self.streams.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let stream = match free {
            Some(stream) => stream,
            None => Stream::new(&self.context)?,
        };
        Ok(OwnStream { inner: self, stream: Some(stream) })
    }

    /// The way of a copy, and whether the caller named it.
    pub fn way(&self, call: &'static str, route: Route, size: usize, options: &CopyOptions) -> Result<Way> {
        match options.way {
            Some(way) if way.serves(route) => Ok(way),
            Some(way) => Err(Error::InvalidArgument {
                call,
                argument: "way",
                value: format!("{way}, for a copy from {route}").into(),
                rule: "that way cannot do this copy: Way::all names those that can",
            }),
            None => {
                if size >= LARGE && self.measuring == Measuring::AtFirstLargeCopy {
                    self.measure_once(route);
                }
                Ok(self.choice().way(route, size))
            }
        }
    }

    /// Measures what the route needs, unless that is known or somebody is at it. A machine that cannot be measured is
    /// served by what is typical.
    fn measure_once(&self, route: Route) {
        // Others copy on meanwhile.
        let Ok(mut measured) = self.measured.try_lock() else { return };
        if measured.route(route).is_some() {
            return;
        }
        if let Err(error) = self.measure_into(&mut measured, route.device == DeviceMemory::Mapped) {
            self.context.drop_errors().push("measuring how fast copies are; typical figures serve", error);
            // Not again with every copy.
            measured.set_route(super::typical::route(route));
            self.choose_by(over_typical(&measured));
        }
    }

    fn measure_into(&self, measured: &mut MachineProfile, mapped: bool) -> Result<()> {
        for route in measure::measure(self, mapped)? {
            measured.set_route(route);
        }
        self.choose_by(over_typical(measured));
        if let Some(file) = &self.file
            && let Err(error) = cache::write(file, measured)
        {
            let code = error.raw_os_error().unwrap_or(0);
            let error = Error::System { call: "keeping a machine's profile in the cache directory", code };
            self.context.drop_errors().push("keeping a machine's profile", error);
        }
        Ok(())
    }
}

/// A stream that one copy has.
pub(super) struct OwnStream<'engine> {
    inner: &'engine Inner,
    stream: Option<Stream>,
}

impl core::ops::Deref for OwnStream<'_> {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        self.stream.as_ref().unwrap_or_else(|| unreachable!("there until the drop"))
    }
}

impl Drop for OwnStream<'_> {
    fn drop(&mut self) {
        self.inner.streams.lock().unwrap_or_else(PoisonError::into_inner).extend(self.stream.take());
    }
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

    /// For an engine with settings.
    pub fn builder(context: &Context) -> CopyEngineBuilder {
        CopyEngineBuilder {
            context: context.clone(),
            threads: None,
            cache: ProfileCache::default(),
            profile: None,
            measuring: Measuring::default(),
            staging: StagingSettings::default(),
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
        const CALL: &str = "CopyEngine::write";
        let place = memory.place(CALL, offset, source.len())?;
        if place.memory == Memory::Mapped && self.inner.is_small(Direction::ToDevice, place.size) {
            memory.settle()?;
            // SAFETY: the place lies within the memory, which is borrowed exclusively, so the source is no part of it.
            unsafe { host_copy::store(source.as_ptr().cast(), place.host, place.size) };
            host_copy::store_fence();
            return Ok(());
        }
        self.write_large(CALL, memory, &place, source, &CopyOptions::default())
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
        self.post(memory, offset, source)?.complete();
        Ok(())
    }

    /// Begins a write: the source is free again when this returns, and what comes of the bytes is the caller's to say, once
    /// for several writes. See [`Posted`].
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub fn post<'memory, T, M>(&self, memory: &'memory mut M, offset: usize, source: &[T]) -> Result<Posted<'memory>>
    where
        T: NoUninit,
        M: CopyMemory<T>,
    {
        const CALL: &str = "CopyEngine::post";
        let place = memory.place(CALL, offset, source.len())?;
        let (host, size) = (place.host, place.size);
        if place.memory == Memory::Mapped && self.inner.is_small(Direction::ToDevice, size) {
            memory.settle()?;
            // SAFETY: as in `write`.
            unsafe { host_copy::store(source.as_ptr().cast(), host, size) };
        } else {
            self.write_large(CALL, memory, &place, source, &CopyOptions::default())?;
        }
        // What the driver or a flush has copied is there; what was stored is asked for by its last byte.
        let stored = place.memory == Memory::Mapped && size > 0;
        // SAFETY: the last byte lies within the memory, which stays borrowed.
        Ok(unsafe { Posted::new(stored.then(|| host.wrapping_add(size - 1))) })
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
        let Some(plan) = self.plan(call, memory, place, bytes.as_ptr(), direction, options)? else { return Ok(()) };
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
        let Some(plan) = self.plan(call, memory, place, bytes.as_ptr(), direction, options)? else { return Ok(()) };
        if place.memory == Memory::NonCoherent && matches!(plan, Way::Cpu { .. }) {
            memory.settle()?;
            return memory.load(place, bytes);
        }
        // SAFETY: the destination is borrowed exclusively until the copy is done, and any bytes are values of `T`.
        unsafe { self.copy(memory, place, bytes.as_mut_ptr(), direction, plan) }
    }

    /// The way of a copy; `None` for one of no bytes.
    fn plan<T, M: CopyMemory<T>>(
        &self,
        call: &'static str,
        _memory: &M,
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
            Memory::Mapped | Memory::NonCoherent => DeviceMemory::Mapped,
            Memory::Device => DeviceMemory::Plain,
            // The driver alone knows where the memory is.
            Memory::Managed => return Ok(Some(Way::Driver)),
            // Plain copies of the CPU: a thread more for each half megabyte.
            Memory::Host => {
                let threads = (place.size >> 19).clamp(1, 1 + self.inner.threads.helpers().min(7));
                return Ok(Some(Way::Cpu { threads: threads as u8 }));
            }
        };
        let route = |host| Route { direction, host, device };
        let host = match options.host {
            Some(host) => host,
            // The driver takes its time to answer; where the answer does not matter, it is not asked.
            None if options.way.is_none() && self.inner.does_not_matter(route, place.size) => HostMemory::Pageable,
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
        let own;
        let stream = match place.home {
            Some(home) => home,
            None if by_cpu => &Stream::legacy_default(&self.inner.context), // not used
            None => {
                own = self.inner.stream()?;
                &own
            }
        };
        let job = Job { direction, device: place.device, mapped: place.host, host, size: place.size, stream };
        let Inner { threads, staging, .. } = &*self.inner;
        if by_cpu {
            return job.run(way, &**threads, staging);
        }
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
        // Also after an error: what was begun must not go on with the caller's memory.
        let waited = stream.synchronize();
        ran.and(waited)
    }

    /// The profile that ways are chosen by.
    pub fn profile(&self) -> MachineProfile {
        self.inner.choice().profile.clone()
    }

    /// Chooses by another profile from now on. It is not kept in the cache directory.
    ///
    /// # Errors
    ///
    /// The profile is not valid.
    pub fn set_profile(&self, profile: MachineProfile) -> Result<()> {
        let profile = check_profile("CopyEngine::set_profile", profile)?;
        let mut measured = self.inner.measured.lock().unwrap_or_else(PoisonError::into_inner);
        *measured = profile.clone();
        self.inner.choose_by(profile);
        Ok(())
    }

    /// Measures the machine, chooses by what was found, and keeps it in the cache directory. Takes 0.2 s or less, and as
    /// much longer as opening mapped memory takes where the program has not done so. On a device without mapped memory,
    /// what there is is measured.
    ///
    /// # Errors
    ///
    /// The driver refuses; there is no memory to measure with.
    pub fn measure(&self) -> Result<MachineProfile> {
        let mut measured = self.inner.measured.lock().unwrap_or_else(PoisonError::into_inner);
        *measured = self.inner.identity.empty_profile();
        let mapped = crate::MappedResource::new(&self.inner.context).is_ok();
        self.inner.measure_into(&mut measured, mapped)?;
        Ok(measured.clone())
    }

    /// The way that a copy of `size` bytes would be done.
    pub fn way(&self, route: Route, size: usize) -> Way {
        self.inner.choice().way(route, size)
    }

    /// Where what is measured is kept, if it is.
    pub fn profile_file(&self) -> Option<&std::path::Path> {
        self.inner.file.as_deref()
    }

    /// Whether it pays to register `size` bytes of pageable memory that is copied `copies` times, by the profile; `None`
    /// where that was not measured. Register with [`RegisteredMemory`](crate::memory::RegisteredMemory).
    pub fn pays_to_register(&self, direction: Direction, size: usize, copies: usize) -> Option<bool> {
        let choice = self.inner.choice();
        let route = |host| Route { direction, host, device: DeviceMemory::Plain };
        let (pageable, pinned) = (route(HostMemory::Pageable), route(HostMemory::Pinned));
        let once = choice.profile.estimate(pageable, Way::Registered, size)?;
        let again = choice.profile.estimate(pinned, Way::Driver, size)?;
        let without = choice.profile.estimate(pageable, choice.way(pageable, size), size)?;
        Some(once + again * (copies.max(1) - 1) as f64 <= without * copies.max(1) as f64)
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
