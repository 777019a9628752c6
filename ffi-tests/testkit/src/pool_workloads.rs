//! Workloads for pools and for any other source of memory, modelled on the benchmarks of peers. They use only
//! cuda-mem's public interface.
//!
//! Times are CPU times in nanoseconds. No workload queues work on a stream.

use crate::timing::{self, Numbers};
use cuda_mem::memory::{Block, MemoryResource, ResourceHandle};
use cuda_mem::pool::AddressPools;
use cuda_mem::{Buffer, Error, Stream};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// The length of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// The number of rounds. The result is their median.
    pub rounds: usize,
    /// The number of allocations in each round.
    pub batch: usize,
}

fn median(length: Length, run: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    timing::median(length.rounds, length.batch, run)
}

fn free(resource: &dyn MemoryResource, block: Block, stream: &Stream) -> Result<(), Error> {
    // SAFETY: the workloads free each block once and queue no work on it.
    unsafe { resource.deallocate(block, stream) }
}

/// Allocates a block and frees it at once.
///
/// # Errors
///
/// The source's error.
pub fn pair(resource: &dyn MemoryResource, stream: &Stream, size: usize, length: Length) -> Result<f64, Error> {
    median(length, || {
        let block = resource.allocate(black_box(size), 256, stream)?;
        free(resource, black_box(block), stream)
    })
}

/// Allocates a block by address on device 0 and frees it at once. Beforehand allocates `live` blocks of 256 bytes,
/// which live meanwhile.
///
/// # Errors
///
/// As [`pair`].
pub fn address_pair(
    pools: &AddressPools,
    stream: &Stream,
    size: usize,
    live: usize,
    length: Length,
) -> Result<f64, Error> {
    // SAFETY: the stream lives, and no work uses the memory.
    let malloc = |size| unsafe { pools.malloc(size, 0, stream.raw()) };
    // SAFETY: as above.
    let free = |address, size| unsafe { pools.free(address, size, 0, stream.raw()) };
    let others = (0..live).map(|_| malloc(256)).collect::<Result<Vec<_>, _>>()?;
    let time = median(length, || free(black_box(malloc(black_box(size))?), size));
    others.into_iter().try_for_each(|address| free(address, 256))?;
    time
}

/// Allocates and frees blocks of 1000 bytes by address, on a thread for each stream at once. Returns the time of one
/// pair of one thread: the mean over the threads.
///
/// # Errors
///
/// As [`pair`].
///
/// # Panics
///
/// As [`threads`].
pub fn address_threads(pools: &AddressPools, streams: &[Stream], length: Length) -> Result<f64, Error> {
    let start = Barrier::new(streams.len());
    std::thread::scope(|scope| {
        let run = |stream| {
            let start = &start;
            move || {
                address_pair(pools, stream, 1000, 8, Length { rounds: 3, batch: 100 })?;
                start.wait();
                address_pair(pools, stream, 1000, 8, length)
            }
        };
        let threads: Vec<_> = streams.iter().map(|stream| scope.spawn(run(stream))).collect();
        let times = threads.into_iter().map(|thread| thread.join().expect("a worker panicked"));
        Ok(times.collect::<Result<Vec<f64>, Error>>()?.iter().sum::<f64>() / streams.len() as f64)
    })
}

/// Makes a [`Buffer`] and drops it at once.
///
/// # Errors
///
/// As [`pair`].
pub fn buffer_pair<R>(handle: &R, stream: &Stream, size: usize, length: Length) -> Result<f64, Error>
where
    R: ResourceHandle,
{
    median(length, || Buffer::<u8, _>::uninit(handle, black_box(size), stream).map(|buffer| drop(black_box(buffer))))
}

/// Frees random blocks and allocates others in their places, with `live` blocks live. Returns the time of one
/// operation, a free or an allocation.
///
/// # Errors
///
/// As [`pair`].
pub fn random(resource: &dyn MemoryResource, stream: &Stream, live: usize, length: Length) -> Result<f64, Error> {
    let mut numbers = Numbers(live as u64);
    let mut blocks = Vec::with_capacity(live);
    for _ in 0..live {
        blocks.push(resource.allocate(numbers.size(8..21) as usize, 256, stream)?);
    }
    let plan: Vec<(usize, usize)> =
        (0..length.batch).map(|_| (numbers.next_number() as usize % live, numbers.size(8..21) as usize)).collect();
    let mut next = 0;
    let time = median(length, || {
        let (index, size) = plan[next % plan.len()];
        next += 1;
        free(resource, blocks[index], stream)?;
        blocks[index] = resource.allocate(size, 256, stream)?;
        Ok(())
    })?;
    blocks.into_iter().try_for_each(|block| free(resource, block, stream))?;
    Ok(time / 2.0)
}

/// The time of a workload whose single operations were measured, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    /// The mean, measured over many operations at once.
    pub mean: f64,
    /// The 99.9th percentile, less the time that the clock readings take.
    pub p999: f64,
}

/// Allocates and frees a block of 1 KiB beside many holes of 1 KiB, no two of which are neighbours.
///
/// # Errors
///
/// As [`pair`].
pub fn holes(
    resource: &dyn MemoryResource,
    stream: &Stream,
    holes: usize,
    length: Length,
) -> Result<Distribution, Error> {
    let mut blocks = Vec::with_capacity(2 * holes);
    for _ in 0..2 * holes {
        blocks.push(resource.allocate(1024, 256, stream)?);
    }
    for block in blocks.iter().step_by(2) {
        free(resource, *block, stream)?;
    }
    let mut run = || {
        let block = resource.allocate(black_box(1024), 256, stream)?;
        free(resource, black_box(block), stream)
    };
    let mean = median(length, &mut run)?;
    let (mut times, mut clock) = (Vec::new(), Vec::new());
    for _ in 0..length.rounds * length.batch {
        let start = Instant::now();
        run()?;
        let end = Instant::now();
        times.push((end - start).as_nanos() as f64);
        clock.push(end.elapsed().as_nanos() as f64);
    }
    times.sort_by(f64::total_cmp);
    clock.sort_by(f64::total_cmp);
    for block in blocks.iter().skip(1).step_by(2) {
        free(resource, *block, stream)?;
    }
    let p999 = times[times.len() * 999 / 1000] - clock[clock.len() / 2];
    Ok(Distribution { mean, p999: p999.max(0.0) })
}

/// Each thread keeps 8 blocks of 256 bytes to 64 KiB live and replaces them in turn. Returns millions of operations per
/// second of all threads together. Thread `n` uses stream `n` of `streams`, modulo their number.
///
/// # Errors
///
/// As [`pair`].
///
/// # Panics
///
/// `streams` is empty.
pub fn threads<R>(handle: &R, streams: &[Stream], threads: usize, length: Length) -> Result<f64, Error>
where
    R: ResourceHandle + Sync,
{
    let (ready, rounds) = (Barrier::new(threads + 1), length.rounds * length.batch);
    std::thread::scope(|scope| {
        let work = |thread: usize| -> Result<(), Error> {
            // Share on this thread, because pools may give each thread its own handle.
            let resource = handle.share();
            let stream = &streams[thread % streams.len()];
            let sizes: Vec<usize> = (0..8).map(|step| 256 << step).collect();
            let mut blocks = Vec::new();
            for size in &sizes {
                blocks.push(resource.allocate(*size, 256, stream)?);
            }
            ready.wait();
            for round in 0..rounds {
                let place = round % 8;
                free(&*resource, blocks[place], stream)?;
                blocks[place] = resource.allocate(sizes[place], 256, stream)?;
            }
            ready.wait();
            blocks.into_iter().try_for_each(|block| free(&*resource, block, stream))
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        ready.wait();
        let start = Instant::now();
        ready.wait();
        let time = start.elapsed().as_secs_f64();
        for handle in handles {
            handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(2.0 * (threads * rounds) as f64 / time / 1e6)
    })
}
