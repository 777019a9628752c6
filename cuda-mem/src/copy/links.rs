//! Copies between page-locked host memory and one device over the host links of several devices.

use super::link::{Job, Link, Timer, copy};
use super::method::Direction;
use super::rates::LinkRate;
use super::shares::{Trial, UNIT, choose, parts};
use crate::buffer::{Access, Buffer, DeviceRoute, Place, Viewed, not_open, route};
use crate::memory::kind::Device;
use crate::memory::peers::PeerSource;
use crate::memory::resource::{BlockKind, Kind};
use crate::memory::{DeviceMemory, PinnedMemory};
use crate::stream::host_copies::CopySide;
use crate::{Context, Error, Result, Stream};
use core::fmt;
use core::ops::RangeBounds;
use std::time::Instant;

/// The pieces of staging on each device: some are filled while others are emptied.
pub(super) const SLOTS: usize = 4;
/// The bytes that a trial copies over each link: enough to hide what a copy costs at its start.
const TRIAL: usize = 32 << 20;
/// Timed copies of a trial; the fastest counts.
const REPEATS: usize = 2;

/// Limits of [`HostLinks`].
///
/// ```
/// use cuda_mem::copy::HostLinksOptions;
/// let mut options = HostLinksOptions::default();
/// options.staging = 8 << 20; // on each device whose link is used
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostLinksOptions {
    /// The device memory taken on each other device, in bytes: at least 1024. 32 MiB by default. Parts of a copy pass
    /// through it in pieces of a quarter.
    pub staging: usize,
    /// The size of the smallest copy that is divided, in bytes. 16 MiB by default. Smaller copies use the device's own link.
    pub minimum: usize,
}

impl Default for HostLinksOptions {
    fn default() -> Self {
        Self { staging: 32 << 20, minimum: 16 << 20 }
    }
}

/// Copies between page-locked host memory and one device over the host links of several devices. A host link is much slower
/// than NVLink, so a part of the bytes travels over the link of another device, and between the two devices over NVLink.
///
/// Only devices that the program names take part. A link is used in a direction if it raises the rate of all links
/// together there, which [`new`](Self::new) measures, and if the device copies directly to and from the other one. Staging on
/// the other devices is bounded by [`HostLinksOptions::staging`].
///
/// ```
/// use cuda_mem::copy::{HostLinks, HostLinksOptions};
/// use cuda_mem::memory::{DeviceMemory, PinnedMemory};
/// use cuda_mem::{Buffer, Stream};
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// let (near, far) = (driver.device(0)?.primary_context()?, driver.device(1)?.primary_context()?);
/// let mut links = HostLinks::new(&near, &[far], HostLinksOptions::default())?;
/// for rate in links.rates() {
///     println!("{:?} to {:?}: {} MB/s", rate.from, rate.to, rate.bytes_per_second / 1_000_000);
/// }
/// let stream = Stream::new(&near)?;
/// let host = Buffer::from_slice(&PinnedMemory::new(&near), &[7u8; 1000], &stream)?;
/// let mut memory = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&near), 2000, &stream)?;
/// links.upload(&mut memory, 500, &host, ..)?; // queued in stream order
/// assert_eq!(memory.to_vec()?[499..501], [0, 7]);
/// # Ok::<(), cuda_mem::Error>(())
/// ```
///
/// The copies of one value run one after another. Several values share the links: the rates of each were measured while
/// nothing else copied.
pub struct HostLinks {
    context: Context,
    /// Copies over the device's own link.
    own: Stream,
    /// The other links.
    links: Vec<Link>,
    /// The rates of the own link and of the others, by direction. 0: not used.
    rates: [Vec<u64>; 2],
    minimum: usize,
}

impl HostLinks {
    /// Measures which links of the devices `through` are worth their use for copies of a context's device. The copies take
    /// some milliseconds for each link while nothing else copies, and 32 MiB for each link on the device and on the host. They
    /// are freed afterwards, as is the staging on devices whose links are not used.
    ///
    /// # Errors
    ///
    /// A device is named twice, or is the context's own; the staging is too small; there is no room for it.
    pub fn new(device: &Context, through: &[Context], options: HostLinksOptions) -> Result<Self> {
        let mut links = Self::unused("HostLinks::new", device, through, options)?;
        links.measure()?;
        links.drop_unused();
        Ok(links)
    }

    /// Uses the links by these rates, and measures nothing: earlier [`rates`](Self::rates) of the same machine. A link is not
    /// used in a direction without a rate. Rates of other links are ignored.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); the device's own link has no rate.
    pub fn with_rates(
        device: &Context,
        through: &[Context],
        rates: &[LinkRate],
        options: HostLinksOptions,
    ) -> Result<Self> {
        const CALL: &str = "HostLinks::with_rates";
        let mut links = Self::unused(CALL, device, through, options)?;
        for direction in [Direction::ToDevice, Direction::FromDevice] {
            let rate_of = |ordinal: i32| {
                let ends = ends(direction, ordinal);
                rates.iter().find(|rate| (rate.from, rate.to) == ends).map_or(0, |rate| rate.bytes_per_second)
            };
            links.rates[direction as usize] = links.ordinals().map(rate_of).collect();
        }
        if links.rates.iter().all(|rates| rates[0] == 0) {
            let value = format!("{} rates, none of device {} with the host", rates.len(), device.device().ordinal());
            let rule =
                "they must contain one of the device's own link: those that `rates` of an earlier value returned do";
            return Err(Error::invalid(CALL, "rates", value, rule));
        }
        links.drop_unused();
        Ok(links)
    }

    /// The links to all devices that have access, without rates.
    fn unused(call: &'static str, device: &Context, through: &[Context], options: HostLinksOptions) -> Result<Self> {
        let piece = options.staging / SLOTS / UNIT * UNIT;
        if piece == 0 {
            let rule = "it must be at least 1024 bytes, which make four pieces";
            return Err(Error::invalid(call, "options.staging", options.staging, rule));
        }
        let mut seen = vec![device.device().ordinal()];
        let mut links = Vec::new();
        for other in through {
            device.driver().check_same(call, "through", other.driver())?;
            let ordinal = other.device().ordinal();
            if seen.contains(&ordinal) {
                let rule = "each device must be named once, and not the one whose memory is copied";
                return Err(Error::invalid(call, "through", format_args!("device {ordinal} again"), rule));
            }
            seen.push(ordinal);
            if PeerSource::plain(other).ensure_access(device) {
                links.push(Link::new(device, other, piece)?);
            }
        }
        let rates = [const { Vec::new() }; 2].map(|_: Vec<u64>| vec![0; 1 + links.len()]);
        Ok(Self { context: device.clone(), own: Stream::new(device)?, links, rates, minimum: options.minimum })
    }

    /// The ordinals of the devices whose links are the own one and the others.
    fn ordinals(&self) -> impl Iterator<Item = i32> {
        let others = self.links.iter().map(|link| link.context().device().ordinal());
        core::iter::once(self.context.device().ordinal()).chain(others)
    }

    /// The rates of the links that are used, each measured while all of them copied: from the host for uploads, to the host
    /// for downloads. The share of a link is its part of the sum in its direction.
    pub fn rates(&self) -> Vec<LinkRate> {
        let mut all = Vec::new();
        for direction in [Direction::ToDevice, Direction::FromDevice] {
            for (ordinal, rate) in self.ordinals().zip(&self.rates[direction as usize]).filter(|(_, rate)| **rate > 0) {
                let (from, to) = ends(direction, ordinal);
                all.push(LinkRate::new(from, to, *rate));
            }
        }
        all
    }

    /// The device memory taken on the other devices, in bytes, all of them together.
    pub fn reserved_staging(&self) -> usize {
        self.links.iter().map(Link::staging_size).sum()
    }

    /// Copies a range of page-locked host memory to the elements from `offset` on, in stream order: after the work of both
    /// buffers so far, and before their later work. Returns when the copies are queued.
    ///
    /// Copies below [`HostLinksOptions::minimum`], and copies to managed or mapped memory, are those of
    /// [`Buffer::copy_from_buffer`].
    ///
    /// # Errors
    ///
    /// A range does not lie within its buffer; the destination is not memory of the device, or the source not page-locked
    /// host memory; a home stream captures a graph.
    pub fn upload<T, K: Kind, A: Access, L: Kind, B: Access>(
        &mut self,
        to: &mut Buffer<T, K, A>,
        offset: usize,
        from: &Buffer<T, L, B>,
        range: impl RangeBounds<usize>,
    ) -> Result<()> {
        self.copy("HostLinks::upload", Direction::ToDevice, to, offset, from, range)
    }

    /// Copies a range of the device's memory to the elements of page-locked host memory from `offset` on, in stream order,
    /// as [`upload`](Self::upload).
    ///
    /// # Errors
    ///
    /// As [`upload`](Self::upload), with the sides exchanged.
    pub fn download<T, K: Kind, A: Access, L: Kind, B: Access>(
        &mut self,
        to: &mut Buffer<T, K, A>,
        offset: usize,
        from: &Buffer<T, L, B>,
        range: impl RangeBounds<usize>,
    ) -> Result<()> {
        self.copy("HostLinks::download", Direction::FromDevice, to, offset, from, range)
    }

    fn copy<T, K: Kind, A: Access, L: Kind, B: Access>(
        &self,
        call: &'static str,
        direction: Direction,
        to: &mut Buffer<T, K, A>,
        offset: usize,
        from: &Buffer<T, L, B>,
        range: impl RangeBounds<usize>,
    ) -> Result<()> {
        let range = from.resolve(call, range)?;
        let target: (_, _, &dyn Viewed) = (to.place(call, offset, range.len())?, to.copy_side(), &*to);
        let source: (_, _, &dyn Viewed) = (from.place(call, range.start, range.len())?, from.copy_side(), from);
        let ((device, _, device_memory), (host, host_side, host_memory)) = match direction {
            Direction::ToDevice => (target, source),
            Direction::FromDevice => (source, target),
        };
        to.check_writable(call)?;
        self.check(call, &device, &host, host_side)?;
        if !self.divides(direction, &device) {
            return to.copy_from_buffer(offset, from, range);
        }
        let (device_at, host_at, size) = (device.device, host.device, device.size);
        let job = Job { call, direction, device: device_memory, device_at, host: host_memory, host_at, size };
        let writes = to.bytes_of_allocation(offset..offset + range.len());
        let ranges = (writes, from.bytes_of_allocation(range));
        to.ordered_after(from, ranges, |home| self.run(&job, home, &self.rates[direction as usize], &[]))
    }

    fn check(&self, call: &'static str, device: &Place<'_>, host: &Place<'_>, host_side: CopySide) -> Result<()> {
        let ours = self.context.device().ordinal();
        self.context.driver().check_same(call, "the device's memory", device.context.driver())?;
        self.context.driver().check_same(call, "the host's memory", host.context.driver())?;
        if matches!(device.memory, BlockKind::Host | BlockKind::ReadOnly) || device.context.device().ordinal() != ours {
            let value = match device.memory {
                BlockKind::Host | BlockKind::ReadOnly => "host memory".to_owned(),
                _ => format!("of device {}", device.context.device().ordinal()),
            };
            let rule = "it must be memory of the device that these links serve: make a `HostLinks` for each device";
            return Err(Error::invalid(call, "the device's memory", value, rule));
        }
        if host_side != CopySide::PageLocked {
            let value = if host_side == CopySide::Device { "memory of a device" } else { "pageable" };
            let rule = "it must be page-locked host memory: allocate it from `PinnedMemory`, or register it";
            return Err(Error::invalid(call, "the host's memory", value, rule));
        }
        [device, host].iter().try_for_each(|place| place.home.check_not_capturing(call))
    }

    /// Whether a copy goes over several links.
    fn divides(&self, direction: Direction, device: &Place<'_>) -> bool {
        let is_large = device.size >= self.minimum.max(UNIT);
        is_large
            && device.memory == BlockKind::Device
            && self.rates[direction as usize][1..].iter().any(|rate| *rate > 0)
    }

    /// Queues a copy in parts proportional to the rates: after the work of `home`, and before its later work.
    fn run(&self, job: &Job<'_>, home: &Stream, rates: &[u64], timers: &[Timer]) -> Result<()> {
        let own = route(&self.context, Some(job.device), Some(job.host));
        if !own.ensure_access(&self.context) {
            return Err(not_open(job.call, &self.own));
        }
        // Links that cannot copy directly have no part.
        let used = |(link, rate): (&Link, &u64)| if *rate > 0 && link.ensure_access(job) { *rate } else { 0 };
        let others: Vec<u64> = self.links.iter().zip(&rates[1..]).map(used).collect();
        let using = || self.links.iter().zip(&others).filter(|(_, rate)| **rate > 0).map(|(link, _)| link);
        self.own.order_work_after(home)?;
        using().try_for_each(|link| link.order_after(home, job.direction))?;
        let queued = self.queue(job, &own, rates[0], &others, timers);
        // Also after an error, because parts may have begun.
        let mut ordered = home.order_work_after_or_wait(&self.own);
        for link in using() {
            ordered = ordered.and(link.order_before(home));
        }
        queued.and(ordered)
    }

    fn queue(
        &self,
        job: &Job<'_>,
        own: &DeviceRoute<'_>,
        own_rate: u64,
        others: &[u64],
        timers: &[Timer],
    ) -> Result<()> {
        let held_own = own.hold(&self.context);
        if !held_own.is_reached {
            // Another thread has denied access since.
            return Err(not_open(job.call, &self.own));
        }
        let mut rates = vec![own_rate];
        let mut held = Vec::new();
        for (link, rate) in self.links.iter().zip(others) {
            let access = if *rate > 0 { Some(link.hold(job)) } else { None };
            rates.push(
                access.as_ref().map_or(0, |access| if access.iter().all(|held| held.is_reached) { *rate } else { 0 }),
            );
            held.push(access);
        }
        let parts = parts(job.size, &rates);
        let streams = || core::iter::once(&self.own).chain(self.links.iter().map(Link::host_stream));
        for ((stream, timer), _) in streams().zip(timers).zip(&parts).filter(|(_, part)| !part.is_empty()) {
            timer.begin.mark(&stream.running(job.call)?)?;
        }
        let (to, from) = job.ends(job.device_at + parts[0].start as u64, job.host_at + parts[0].start as u64);
        if !parts[0].is_empty() {
            // SAFETY: both ranges lie within their buffers, which are freed after the copy in stream order.
            unsafe { copy(&self.own, to, from, parts[0].len()) }?;
        }
        // In turn, so that all links begin at once.
        let mut turn = 0;
        loop {
            let mut is_done = true;
            for (link, part) in self.links.iter().zip(&parts[1..]) {
                let begin = part.start + turn * link.piece();
                if begin < part.end {
                    link.queue(job, begin..part.end.min(begin + link.piece()), turn)?;
                    is_done = false;
                }
            }
            if is_done {
                break;
            }
            turn += 1;
        }
        for ((stream, timer), _) in streams().zip(timers).zip(&parts).filter(|(_, part)| !part.is_empty()) {
            timer.end.mark(&stream.running(job.call)?)?;
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<()> {
        let count = 1 + self.links.len();
        let home = Stream::new(&self.context)?;
        let memory = Buffer::zeroed(&DeviceMemory::new(&self.context), count * TRIAL, &home)?;
        let host = Buffer::zeroed(&PinnedMemory::new(&self.context), count * TRIAL, &home)?;
        let contexts = core::iter::once(&self.context).chain(self.links.iter().map(Link::context));
        let timers: Vec<Timer> = contexts.map(Timer::new).collect::<Result<_>>()?;
        for direction in [Direction::ToDevice, Direction::FromDevice] {
            let rates = choose(count, |weights| self.trial(direction, weights, &memory, &host, &timers))?;
            self.rates[direction as usize] = rates;
        }
        Ok(())
    }

    /// Measures a copy in parts proportional to the weights.
    fn trial<K: Kind>(
        &self,
        direction: Direction,
        weights: &[u64],
        memory: &Buffer<u8, Device>,
        host: &Buffer<u8, K>,
        timers: &[Timer],
    ) -> Result<Trial> {
        let size = TRIAL * weights.iter().filter(|weight| **weight > 0).count();
        let (device_at, host_at) = (memory.address(0), host.address(0));
        let job = Job { call: "HostLinks::new", direction, device: memory, device_at, host, host_at, size };
        let parts = parts(size, weights);
        let mut best = Trial { total: 0.0, each: vec![0; weights.len()] };
        for timed in 0..=REPEATS {
            memory.synchronize()?;
            let start = Instant::now();
            let all = (0..memory.len(), 0..host.len());
            memory.ordered_after(host, all, |home| self.run(&job, home, weights, timers))?;
            memory.synchronize()?;
            let total = size as f64 / start.elapsed().as_secs_f64();
            if timed == 0 || total <= best.total {
                continue;
            }
            best.total = total;
            for ((rate, timer), part) in
                best.each.iter_mut().zip(timers).zip(&parts).filter(|(_, part)| !part.is_empty())
            {
                let seconds = timer.begin.elapsed(&timer.end)?.as_secs_f64();
                *rate = (part.len() as f64 / seconds.max(1e-6)) as u64;
            }
        }
        Ok(best)
    }

    /// Frees the staging of links that are used in neither direction.
    fn drop_unused(&mut self) {
        for link in (1..self.rates[0].len()).rev() {
            if self.rates.iter().all(|rates| rates[link] == 0) {
                self.links.remove(link - 1);
                for rates in &mut self.rates {
                    rates.remove(link);
                }
            }
        }
    }

    /// The context of the device whose memory is copied.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

/// Where the copies over a device's link begin and end, as [`LinkRate`] names it.
fn ends(direction: Direction, ordinal: i32) -> (Option<i32>, Option<i32>) {
    match direction {
        Direction::ToDevice => (None, Some(ordinal)),
        Direction::FromDevice => (Some(ordinal), None),
    }
}

impl fmt::Debug for HostLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostLinks")
            .field("rates", &self.rates())
            .field("minimum", &self.minimum)
            .finish_non_exhaustive()
    }
}
