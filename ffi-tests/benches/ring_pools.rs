//! The cost of rings and guards, compared with the pool and the driver's own pool.
//!
//! `cargo bench -p benches --bench ring_pools` runs it over the driver that the environment names.
//! `--brief` is a short run that only shows that it works.

use cuda_mem::adaptor::{GuardOptions, Guarded};
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Buffer, Stream};
use std::hint::black_box;
use testkit::Setup;
use testkit::timing::median_between;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The block size of the pairs.
const SIZE: usize = 256;
/// The number of live blocks while blocks are replaced.
const LIVE: usize = 1000;

fn main() -> Result<()> {
    let brief = std::env::args().any(|argument| argument == "--brief");
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let (rounds, batch) = if brief { (3, 10) } else { (101, 1000) };
    // Programs usually make the context current on the working thread, so do that here.
    let _current = setup.context.bind()?;
    pairs(&setup, rounds, batch)?;
    uploads(&setup, rounds, batch)
}

fn pair(resource: &SharedResource, stream: &Stream) -> cuda_mem::Result<()> {
    let block = black_box(resource.allocate(SIZE, 16, stream)?);
    // SAFETY: the block was just allocated, and nothing uses it.
    unsafe { resource.deallocate(block, stream) }
}

/// An allocation and a free on one stream, directly on the resource.
fn pairs(setup: &Setup, rounds: usize, batch: usize) -> Result<()> {
    let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
    let (device, pinned) = (DeviceMemory::new(context), PinnedMemory::new(context));
    let pool = Pool::new(&device, &PoolOptions::default())?;
    let resources = [
        ("pool", pool.share(), batch),
        ("the driver's pool", DevicePool::new(context, &DriverPoolOptions::default())?.share(), batch),
        ("ring of 1 MiB", RingPool::new(&pinned, 1 << 20, &RingOptions::default())?.share(), batch),
        ("guarded pool, device", Guarded::new(&pool, &GuardOptions::default())?.share(), batch.div_ceil(20)),
        (
            "guarded pool, pinned",
            Guarded::new(&Pool::new(&pinned, &PoolOptions::default())?, &GuardOptions::default())?.share(),
            batch.div_ceil(20),
        ),
    ];
    println!("\nblocks of {SIZE} B on one stream, one thread; medians of {rounds} rounds");
    println!("pair: allocated and freed at once; replaced: a block of {LIVE} live ones freed, another allocated");
    println!("{:>22} {:>10} {:>14}", "", "pair, ns", "replaced, ns");
    for (name, resource, batch) in resources {
        let wait = || stream.synchronize();
        let alone = median_between(rounds, batch, || pair(&resource, &stream), wait)?;
        let mut live = Vec::with_capacity(LIVE);
        for _ in 0..LIVE {
            live.push(resource.allocate(SIZE, 16, &stream)?);
        }
        // Replace the oldest block, which is the pattern that rings are made for.
        let mut oldest = 0;
        let replace = || {
            // SAFETY: the block is live, and nothing uses it.
            unsafe { resource.deallocate(live[oldest], &stream) }?;
            live[oldest] = resource.allocate(SIZE, 16, &stream)?;
            oldest = (oldest + 1) % LIVE;
            Ok(())
        };
        let replaced = median_between(rounds, batch, replace, wait)?;
        for block in live {
            // SAFETY: as above.
            unsafe { resource.deallocate(block, &stream) }?;
        }
        println!("{name:>22} {alone:>10.1} {replaced:>14.1}");
    }
    Ok(())
}

/// Uploads of a slice that the program reuses: through a ring, and with a copy that waits.
fn uploads(setup: &Setup, rounds: usize, batch: usize) -> Result<()> {
    let stream = Stream::new(&setup.context)?;
    let staging = RingPool::new(&PinnedMemory::new(&setup.context), 64 << 20, &RingOptions::default())?;
    println!("\nuploads of a slice on one stream, one thread; time until the slice may be used again");
    println!("{:>12} {:>16} {:>22}", "bytes", "ring, ns", "copy_from_slice, ns");
    for size in [64, 4 << 10, 64 << 10, 1 << 20] {
        let batch = batch.min((1 << 30) / rounds / size).max(1);
        let slice = vec![1u8; size];
        let target =
            std::cell::RefCell::new(Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), size, &stream)?);
        let wait = || stream.synchronize();
        let upload = || staging.upload(&mut *target.borrow_mut(), 0, &slice);
        let by_ring = median_between(rounds, batch, upload, wait)?;
        let by_copy = median_between(rounds, batch, || target.borrow_mut().copy_from_slice(0, &slice), wait)?;
        println!("{size:>12} {by_ring:>16.0} {by_copy:>22.0}");
    }
    Ok(())
}
