//! The measured copies.

use super::raw::{self, Place};
use super::report::Row;
use cuda_mem::buffer::{CopyBatch, PeerRoute, Piece};
use cuda_mem::copy::{HostLinks, HostLinksOptions, LinkRate};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory,
    VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Driver, Result, Stream};
use std::time::Instant;

/// How much each measurement does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// The size of large copies in bytes.
    pub(super) size: usize,
    /// The size of copies over several host links in bytes.
    host_size: usize,
    /// Repeats of large copies.
    repeats: usize,
    /// Repeats of small copies.
    small_repeats: usize,
}

impl Effort {
    pub(super) const BRIEF: Self = Self { size: 1 << 20, host_size: 1 << 20, repeats: 2, small_repeats: 20 };

    pub(super) fn full(size: usize) -> Self {
        Self { size, host_size: 2 << 30, repeats: 9, small_repeats: 1001 }
    }
}

/// The sizes of copies that are waited for one by one.
const SMALL: [usize; 5] = [1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
/// The blocks of a batch, and the size of each in bytes.
const BLOCKS: usize = 1000;
const BLOCK: usize = 4 << 10;

/// A device's context with its streams: the one of its buffers, and one for copies in the other direction.
pub(super) struct Side {
    pub(super) context: Context,
    stream: Stream,
}

/// All devices.
pub(super) struct Machine {
    pub(super) sides: Vec<Side>,
}

/// A copy between two buffers.
struct Copy {
    from: Buffer<u8, Any>,
    to: Buffer<u8, Any>,
}

impl Copy {
    fn new(from: (&SharedResource, &Side), to: (&SharedResource, &Side), size: usize) -> Result<Self> {
        let make = |(resource, side): (&SharedResource, &Side)| Buffer::zeroed(resource, size, &side.stream);
        let copy = Self { from: make(from)?, to: make(to)? };
        copy.from.synchronize()?;
        copy.to.synchronize()?;
        Ok(copy)
    }

    fn ours(&mut self) -> Result<()> {
        self.to.copy_from_buffer(0, &self.from, ..)
    }

    fn raw(&mut self) -> Result<()> {
        let place = |buffer: &Buffer<u8, Any>| buffer.device_pointer();
        let to = Place { context: self.to.context(), address: place(&self.to) };
        let from = Place { context: self.from.context(), address: place(&self.from) };
        // SAFETY: both buffers live until the callers have waited, and nothing else uses them.
        unsafe { raw::copy(to, from, self.to.len(), self.to.stream()) }
    }
}

/// The median time of `work` in seconds, after one untimed run.
fn median(repeats: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let mut times = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

impl Machine {
    pub(super) fn new(driver: &Driver) -> Result<Self> {
        let sides: Vec<Side> = driver
            .devices()?
            .iter()
            .map(|device| {
                let context = device.primary_context()?;
                Ok(Side { stream: Stream::new(&context)?, context })
            })
            .collect::<Result<_>>()?;
        for peer in &sides {
            for owner in sides.iter().filter(|owner| owner.context != peer.context) {
                raw::enable_access(&peer.context, &owner.context)?;
            }
        }
        Ok(Self { sides })
    }

    fn plain(&self, device: usize) -> SharedResource {
        DeviceMemory::new(&self.sides[device].context).share()
    }

    /// The sources of device memory, by name.
    fn sources(&self, device: usize) -> Result<[(&'static str, SharedResource); 4]> {
        let context = &self.sides[device].context;
        Ok([
            ("plain", self.plain(device)),
            ("driver pool", DevicePool::new(context, &DriverPoolOptions::default())?.share()),
            ("virtual", VirtualMemory::new(context, &VirtualOptions::default())?.share()),
            ("pool", Pool::new(&DeviceMemory::new(context), &PoolOptions::default())?.share()),
        ])
    }

    /// Measures everything. If one case fails, the others may still work.
    pub(super) fn measure_all(&self, effort: Effort) -> Vec<Row> {
        let count = self.sides.len();
        let mut rows = Vec::new();
        let mut add = |row: Row, measured: Result<Row>| {
            rows.push(measured.unwrap_or_else(|error| row.failed(&error)));
        };
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let row = Row::of("one way", effort.size).between(from, to);
                add(row.clone(), self.together(row, &[(from, to)], effort.size, effort.repeats));
            }
        }
        for number in 1..4 {
            let row = Row::of("one way", effort.size).between(0, 1);
            let measured = self.of_source(row.clone(), number, effort);
            add(row, measured);
        }
        let row = Row::of("both ways", effort.size).between(0, 1);
        add(row.clone(), self.together(row, &[(0, 1), (1, 0)], effort.size, effort.repeats));
        let ring: Vec<_> = (0..count).map(|device| (device, (device + 1) % count)).collect();
        let row = Row::of("ring", effort.size);
        add(row.clone(), self.together(row, &ring, effort.size, effort.repeats));
        let row = Row::of("ring, one stream a device", effort.size);
        add(row.clone(), self.on_own_streams(row, &ring, effort.size, effort.repeats));
        let all: Vec<_> = (0..count).flat_map(|from| (0..count).map(move |to| (from, to))).collect();
        let all: Vec<_> = all.into_iter().filter(|(from, to)| from != to).collect();
        let part = effort.size / count;
        let row = Row::of("all to all", part);
        add(row.clone(), self.together(row, &all, part, effort.repeats));
        let row = Row::of("all to all, one stream a device", part);
        add(row.clone(), self.on_own_streams(row, &all, part, effort.repeats));
        for size in SMALL {
            let row = Row::of("with its wait", size).between(0, 1);
            add(row.clone(), self.together(row, &[(0, 1)], size, effort.small_repeats));
        }
        let row = Row::of("batch of 4 KiB", BLOCK).between(0, 1);
        add(row.clone(), self.batch(row, effort.repeats));
        // Twice as many links each time, and all of them.
        let mut named: Vec<usize> = (1..).map(|power| 1 << power).take_while(|links| *links < count).collect();
        named.push(count);
        for links in named {
            for (case, is_upload) in [("host to device", true), ("device to host", false)] {
                let row = Row::of(case, effort.host_size).of_device(0).over(links);
                add(row.clone(), self.over_links(row, links, is_upload, effort));
            }
        }
        rows
    }

    /// Copies between buffers on the devices' streams, as a program writes them, then a wait for all.
    fn on_own_streams(&self, row: Row, pairs: &[(usize, usize)], size: usize, repeats: usize) -> Result<Row> {
        let side = |device: usize| (self.plain(device), &self.sides[device]);
        let make = |(from, to): &(usize, usize)| {
            let (from, to) = (side(*from), side(*to));
            Copy::new((&from.0, from.1), (&to.0, to.1), size)
        };
        self.both(row, pairs.iter().map(make).collect::<Result<_>>()?, repeats)
    }

    /// Copies that run at the same time, each on streams of its own, then a wait for all.
    fn together(&self, row: Row, pairs: &[(usize, usize)], size: usize, repeats: usize) -> Result<Row> {
        let make = |(from, to): &(usize, usize)| {
            let side = |device: usize| -> Result<Side> {
                let context = self.sides[device].context.clone();
                Ok(Side { stream: Stream::new(&context)?, context })
            };
            Copy::new((&self.plain(*from), &side(*from)?), (&self.plain(*to), &side(*to)?), size)
        };
        self.both(row, pairs.iter().map(make).collect::<Result<_>>()?, repeats)
    }

    /// Copies of memory of one source, from device 0 to 1. The driver's own call runs on plain memory.
    fn of_source(&self, row: Row, number: usize, effort: Effort) -> Result<Row> {
        let (from, to) = (self.sources(0)?, self.sources(1)?);
        let (name, from) = &from[number];
        let copy = Copy::new((from, &self.sides[0]), (&to[number].1, &self.sides[1]), effort.size)?;
        self.both(row.of_source(name), vec![copy], effort.repeats)
    }

    fn both(&self, row: Row, mut copies: Vec<Copy>, repeats: usize) -> Result<Row> {
        // The route is decided, and access given, before anything is timed.
        let direct = copies.iter().all(|copy| copy.from.route_to(&copy.to) == PeerRoute::Direct);
        let bytes: usize = copies.iter().map(|copy| copy.to.len()).sum();
        let ours = median(repeats, || {
            copies.iter_mut().try_for_each(Copy::ours)?;
            copies.iter().try_for_each(|copy| copy.to.synchronize())
        })?;
        let raw = median(repeats, || {
            copies.iter_mut().try_for_each(Copy::raw)?;
            copies.iter().try_for_each(|copy| raw::wait(copy.to.stream()))
        })?;
        Ok(row.by_route(direct).timed(bytes, ours, raw))
    }

    /// A copy between page-locked host memory and device 0 over several links, beside the driver's copy over one.
    fn over_links(&self, row: Row, links: usize, is_upload: bool, effort: Effort) -> Result<Row> {
        let (near, size) = (&self.sides[0], effort.host_size);
        let through: Vec<Context> = self.sides[1..links].iter().map(|side| side.context.clone()).collect();
        let mut options = HostLinksOptions::default();
        options.minimum = options.minimum.min(size);
        let mut over = HostLinks::new(&near.context, &through, options)?;
        let end = |rate: &LinkRate| if is_upload { rate.to } else { rate.from };
        let used = over.rates().iter().filter_map(end).collect();
        let mut memory = Buffer::<u8, _>::zeroed(&self.plain(0), size, &near.stream)?;
        let mut host = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&near.context), size, &near.stream)?;
        let ours = median(effort.repeats, || {
            match is_upload {
                true => over.upload(&mut memory, 0, &host, ..)?,
                false => over.download(&mut host, 0, &memory, ..)?,
            }
            near.stream.synchronize()
        })?;
        let addresses = (memory.device_pointer(), host.device_pointer());
        let (to, from) = if is_upload { addresses } else { (addresses.1, addresses.0) };
        let raw = median(effort.repeats, || {
            // SAFETY: both buffers live until the wait, and nothing else uses them.
            unsafe { raw::copy_with_host(to, from, size, &near.stream) }?;
            raw::wait(&near.stream)
        })?;
        Ok(row.used(used).timed(size, ours, raw))
    }

    /// Many blocks in one batch, beside a loop of the driver's copies.
    fn batch(&self, row: Row, repeats: usize) -> Result<Row> {
        let size = 2 * BLOCKS * BLOCK;
        let mut copy = Copy::new((&self.plain(0), &self.sides[0]), (&self.plain(1), &self.sides[1]), size)?;
        let direct = copy.from.route_to(&copy.to) == PeerRoute::Direct;
        // Every other block, in another order on each side.
        let pieces: Vec<Piece> = (0..BLOCKS)
            .map(|n| Piece { to: 2 * BLOCK * n, from: 2 * BLOCK * (n * 7 % BLOCKS), length: BLOCK })
            .collect();
        let stream = self.sides[1].stream.clone();
        let ours = median(repeats, || {
            let mut batch = CopyBatch::new(&stream);
            batch.copy_pieces(&mut copy.to, &copy.from, &pieces)?;
            batch.submit()?;
            stream.synchronize()
        })?;
        let raw = median(repeats, || {
            for piece in &pieces {
                let to = Place { context: copy.to.context(), address: copy.to.device_pointer() + piece.to as u64 };
                let from =
                    Place { context: copy.from.context(), address: copy.from.device_pointer() + piece.from as u64 };
                // SAFETY: both ranges lie within the buffers, which live until the wait.
                unsafe { raw::copy(to, from, piece.length, &stream) }?;
            }
            raw::wait(&stream)
        })?;
        Ok(row.of_copies(BLOCKS).by_route(direct).timed(BLOCKS * BLOCK, ours, raw))
    }
}
