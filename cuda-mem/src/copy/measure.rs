//! Measurement of the ways on this machine.

use super::job::{CpuCopy, Job};
use super::machine::SharedEngine;
use super::pieces::Pieces;
use super::profile::{RouteProfile, Sample, WayProfile};
use super::way::{DeviceSide, Direction, HostSide, Route, Way};
use crate::memory::resource::host::available_memory;
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::{Buffer, HostBuffer, MappedMemory, Result, Stream};
use core::time::Duration;
use cuda_sys::CUdeviceptr;
use std::time::Instant;

/// The measured sizes, in bytes.
const SIZES: [usize; 15] = [
    64,
    1 << 10,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    64 << 20,
    256 << 20,
];
/// The limit for the whole measurement. Sizes beyond it are estimated from smaller ones.
const BUDGET: Duration = Duration::from_millis(145);
/// Up to this size everything is measured, however long it takes.
const ALWAYS: usize = 64 << 10;
/// A way this many times slower than the best of its kind is not tried at larger sizes. The limit is lower for large
/// copies, which take long and change little in ranking.
fn hopeless(size: usize) -> f64 {
    if size >= 16 << 20 { 1.3 } else { 2.5 }
}
/// From this size on, helper threads may pay off.
const SHARED_FROM: usize = 16 << 10;
/// Page-locked memory for measurements: rates do not change above this size.
const PINNED: usize = 4 << 20;

/// The memory that the copies connect.
struct Bench<'engine> {
    inner: &'engine SharedEngine,
    stream: Stream,
    host: Vec<u8>,
    pinned: HostBuffer<u8>,
    plain: Buffer<u8, crate::memory::resource::kind::Device>,
    mapped: Option<Buffer<u8, crate::memory::resource::kind::Mapped>>,
    deadline: Instant,
}

/// Measures the routes of plain device memory, and with `mapped` those of mapped memory too.
pub(super) fn measure(inner: &SharedEngine, mapped: bool) -> Result<Vec<RouteProfile>> {
    let context = &inner.context;
    let _current = context.bind()?;
    let stream = Stream::new(context)?;
    let largest = largest_for(available_memory());
    // With little room on the device, only smaller sizes are measured.
    let (plain, mapped) = largest_that_fits(largest, |size| {
        // SAFETY: only copies touch the memory, and bytes may have any value.
        let plain = unsafe { Buffer::<u8, _>::uninit(&DeviceMemory::new(context), size, &stream)?.assume_init() };
        let resource = mapped.then(|| MappedMemory::new(context)).transpose()?;
        let mapped = resource.map(|resource| Buffer::<u8, _>::uninit(&resource, size, &stream)).transpose()?;
        // SAFETY: as above.
        Ok((plain, mapped.map(|mapped| unsafe { mapped.assume_init() })))
    })?;
    let host = touched(plain.len(), inner)?;
    let pinned = HostBuffer::zeroed(&PinnedMemory::new(context), PINNED.min(plain.len()))?;
    let began = Instant::now();
    let mut bench = Bench { inner, stream, host, pinned, plain, mapped, deadline: began };
    let mut routes = Vec::new();
    // Deadlines are cumulative: time that one entry leaves goes to the next.
    for (host, direction, part) in [
        (HostSide::Pinned, Direction::ToDevice, 2),
        (HostSide::Pinned, Direction::FromDevice, 3),
        (HostSide::Pageable, Direction::ToDevice, 6),
        (HostSide::Pageable, Direction::FromDevice, 10),
    ] {
        bench.deadline = began + BUDGET * part / 10;
        routes.extend(bench.routes(direction, host)?);
    }
    Ok(routes)
}

fn largest_that_fits<V>(largest: usize, mut allocate: impl FnMut(usize) -> Result<V>) -> Result<V> {
    let mut size = largest;
    loop {
        match allocate(size) {
            Err(error) if error.is_out_of_memory() && size > 1 << 20 => size /= 4,
            outcome => return outcome,
        }
    }
}

/// The largest measured size if little memory is free, in bytes.
const LEAST: usize = 1 << 20;

/// The largest size to measure: the largest of `SIZES`, which exceeds all caches, unless little memory is free.
fn largest_for(available: Option<usize>) -> usize {
    let fits = |size: &usize| available.is_none_or(|available| *size <= available / 8);
    SIZES.into_iter().rev().find(fits).unwrap_or(LEAST).max(LEAST)
}

/// Host memory with all pages written: unwritten pages all map to one page of zeros.
fn touched(size: usize, inner: &SharedEngine) -> Result<Vec<u8>> {
    let mut host: Vec<u8> = Vec::new();
    if host.try_reserve_exact(size).is_err() {
        return Err(crate::Error::OutOfMemory {
            call: "CopyEngine::measure",
            requested: size,
            device: "the host".into(),
            free: None,
            message: "measuring copies needs host memory to copy".into(),
        });
    }
    let start = SharedStart(host.as_mut_ptr());
    let pieces = Pieces::new(size, 4 << 20, 0, 1);
    let write = || {
        while let Some(range) = pieces.claim() {
            // SAFETY: the range lies within the capacity, and no other thread uses it.
            unsafe { start.at(range.start).write_bytes(1, range.len()) };
        }
    };
    inner.threads.run(inner.threads.helpers(), &write);
    // A program's own threads may have left some or all of the pieces.
    write();
    // SAFETY: all bytes were written.
    unsafe { host.set_len(size) };
    Ok(host)
}

/// An address that threads share; each uses its own parts of the memory.
struct SharedStart(*mut u8);

// SAFETY: see the type's documentation.
unsafe impl Sync for SharedStart {}

impl SharedStart {
    /// # Safety
    ///
    /// As for `<*mut u8>::add`.
    unsafe fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: this function's contract.
        unsafe { self.0.add(offset) }
    }
}

/// The times of one way so far.
struct Timed {
    profile: WayProfile,
    hopeless: bool,
}

impl Bench<'_> {
    /// Measures the two routes of a direction and a type of host memory. Driver copies take equally long for both types
    /// of device memory, so they are measured once.
    fn routes(&mut self, direction: Direction, host: HostSide) -> Result<Vec<RouteProfile>> {
        let threads = 1 + self.inner.threads.helpers();
        let route = |device| Route { direction, host, device };
        let widest = if self.mapped.is_some() { DeviceSide::Mapped } else { DeviceSide::Plain };
        let new = |way| Timed { profile: WayProfile { way, samples: vec![] }, hopeless: false };
        let mut ways: Vec<Timed> = Way::all(route(widest), threads).into_iter().map(new).collect();
        let limit = match host {
            HostSide::Pageable => self.host.len(),
            HostSide::Pinned => self.pinned.len(),
        };
        let plain = route(DeviceSide::Plain);
        for size in SIZES.into_iter().filter(|size| *size <= limit) {
            // The best of all ways, and of those that also serve plain memory, which compete among themselves.
            let mut best = [f64::INFINITY; 2];
            for timed in ways.iter_mut().filter(|timed| !timed.hopeless && is_tried(timed.profile.way, size)) {
                let expected = timed.profile.estimate(size).unwrap_or(0.0);
                let end = Instant::now() + Duration::from_nanos(expected as u64);
                if size > ALWAYS && end > self.deadline {
                    continue;
                }
                match self.time(route(widest), timed.profile.way, size) {
                    Ok(nanoseconds) => {
                        best[0] = best[0].min(nanoseconds);
                        if timed.profile.way.serves(plain) {
                            best[1] = best[1].min(nanoseconds);
                        }
                        timed.profile.samples.push(Sample { bytes: size, nanoseconds });
                    }
                    // The system may refuse to lock pages; then skip this way.
                    Err(_) if timed.profile.way == Way::Registered => timed.hopeless = true,
                    Err(error) => return Err(error),
                }
            }
            for timed in &mut ways {
                let best = best[usize::from(timed.profile.way.serves(plain))];
                let last = timed.profile.samples.last();
                let slow = last.is_some_and(|last| last.bytes == size && last.nanoseconds > hopeless(size) * best);
                // Small copies say nothing about ways made for large ones.
                timed.hopeless |= slow && size >= 64 << 10 && timed.profile.way != Way::Driver;
            }
        }
        let of = |device| {
            let known = ways.iter().map(|timed| &timed.profile);
            let known = known.filter(|known| known.way.serves(route(device)) && !known.samples.is_empty());
            RouteProfile { route: route(device), ways: known.cloned().collect() }
        };
        let mut routes = vec![of(DeviceSide::Plain)];
        if widest == DeviceSide::Mapped {
            routes.insert(0, of(DeviceSide::Mapped));
        }
        Ok(routes)
    }

    /// The median time of a few copies, in nanoseconds.
    fn time(&mut self, route: Route, way: Way, size: usize) -> Result<f64> {
        // Small copies are timed in batches: the clock's resolution is limited.
        let (batch, rounds, warm) = match size {
            0..=4096 => (8, 3, true),
            4097..=65_536 => (3, 3, true),
            65_537..=4_194_304 => (1, 3, true),
            4_194_305..=16_777_216 => (1, 2, true),
            _ => (1, 1, false),
        };
        if warm {
            self.copy(route, way, size)?;
        }
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            for _ in 0..batch {
                self.copy(route, way, size)?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(batch));
        }
        times.sort_by(f64::total_cmp);
        // Whole numbers, which every text format keeps exactly. At least 1, in case the clock did not advance.
        Ok(times[times.len() / 2].round().max(1.0))
    }

    fn copy(&mut self, route: Route, way: Way, size: usize) -> Result<()> {
        let host = match route.host {
            HostSide::Pageable => self.host.as_mut_ptr(),
            HostSide::Pinned => self.pinned.as_mut_ptr(),
        };
        let (device, mapped): (CUdeviceptr, *mut u8) = match (&self.mapped, way) {
            (Some(memory), Way::Cpu { .. } | Way::Mixed { .. }) => (memory.device_pointer(), memory.host_pointer()),
            _ => (self.plain.device_pointer(), core::ptr::null_mut()),
        };
        let sides = CpuCopy { direction: route.direction, mapped, host, size };
        let job = Job { sides, device, stream: &self.stream };
        let ran = job.run(way, &*self.inner.threads, &self.inner.staging);
        match way {
            Way::Cpu { .. } => ran,
            // Wait also after an error: the caller may free the memory next.
            _ => ran.and(self.stream.wait_certainly()),
        }
    }
}

/// Whether a way is worth measuring at a size.
fn is_tried(way: Way, size: usize) -> bool {
    match way {
        Way::Driver | Way::Cpu { threads: 1 } | Way::Staged { threads: 1 } => true,
        Way::Cpu { .. } | Way::Staged { .. } => size >= SHARED_FROM,
        Way::Mixed { .. } => size >= 1 << 20,
        // Locking pages is slow, so two sizes must do.
        Way::Registered => size == 256 << 10 || size == 4 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CopyEngine, MachineProfile, NoThreads, ProfileCache, ThreadPool};
    use super::*;
    use crate::Driver;
    use std::sync::Arc;

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn every_route_is_measured_and_every_figure_is_one() {
        let context = Driver::software().unwrap().device(0).unwrap().primary_context().unwrap();
        for threads in [Arc::new(NoThreads) as Arc<dyn super::super::CopyThreads>, Arc::new(ThreadPool::new(2))] {
            let engine =
                CopyEngine::builder(&context).profile_cache(ProfileCache::Off).threads(threads).build().unwrap();
            let profile = engine.measure().unwrap();
            assert!(profile.is_valid(), "{profile:?}");
            assert_eq!(profile.routes.len(), Route::ALL.len());
            assert_eq!(profile.device_name, context.device().name().unwrap());
            for known in &profile.routes {
                assert!(known.ways.iter().any(|known| known.way == Way::Driver), "{}", known.route);
                for way in &known.ways {
                    assert!(way.way.threads() <= 1 + engine.threads().helpers());
                }
            }
            assert_eq!(engine.profile(), profile);
            assert_ne!(profile, MachineProfile::typical());
        }
        assert!(context.take_drop_errors().errors.is_empty());
    }

    #[test]
    fn small_sizes_are_tried_until_one_fits() {
        let no_room = || crate::Error::OutOfMemory {
            call: "test",
            requested: 0,
            device: "".into(),
            free: None,
            message: "".into(),
        };
        let fits =
            |limit| largest_that_fits(64 << 20, move |size| if size <= limit { Ok(size) } else { Err(no_room()) });
        assert_eq!(fits(64 << 20), Ok(64 << 20));
        assert_eq!(fits(20 << 20), Ok(16 << 20));
        assert!(fits(1000).is_err_and(|error| error.is_out_of_memory()));
        assert_eq!((largest_for(None), largest_for(Some(64 << 30))), (256 << 20, 256 << 20));
        assert_eq!((largest_for(Some(1 << 30)), largest_for(Some(0))), (64 << 20, 1 << 20));
    }
}
