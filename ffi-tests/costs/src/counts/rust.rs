//! The paths through cuda-mem.

use crate::{OPERATIONS, Result, count, current_context};
use cuda_mem::interchange::dlpack::ManagedTensor;
use cuda_mem::interchange::{Consumer, ExportOptions, SharedTensor};
use cuda_mem::memory::{DeviceMemory, ResourceHandle, SharedResource, kind};
use cuda_mem::pool::{AddressPools, Pool, PoolOptions};
use cuda_mem::view::Index;
use cuda_mem::{Buffer, Context, Driver, Error, MappedMemory, Stream};
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// The size of a block.
const SIZE: usize = 1000;

struct World {
    driver: Driver,
    context: Context,
    stream: Stream,
}

fn world() -> Result<World> {
    let (driver, context) = current_context()?;
    Ok(World { driver, stream: Stream::new(&context)?, context })
}

impl World {
    fn pool(&self) -> Result<Pool<kind::Device>> {
        Ok(Pool::new(&DeviceMemory::new(&self.context), &PoolOptions::default())?)
    }
}

pub(crate) fn pool_pair() -> Result {
    let world = world()?;
    let resource = world.pool()?.share();
    count(|| {
        let block = resource.allocate(black_box(SIZE), 256, &world.stream)?;
        // SAFETY: nothing uses the block, and it is freed once.
        unsafe { resource.deallocate(black_box(block), &world.stream) }
    });
    Ok(())
}

pub(crate) fn buffer_pair() -> Result {
    let world = world()?;
    let pool = world.pool()?;
    count(|| Buffer::<u8, _>::uninit(&pool, black_box(SIZE), &world.stream).map(drop));
    Ok(())
}

/// 500 live blocks, each replaced in turn. A round of 1000 operations is a period: the same blocks get the same sizes.
pub(crate) fn random_sizes() -> Result {
    let world = world()?;
    let resource = world.pool()?.share();
    // A linear congruential generator; its high bits are random enough for sizes.
    let mut state = 1u64;
    let sizes: Vec<usize> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 44) as usize + 1
    })
    .take(OPERATIONS)
    .collect();
    let live = OPERATIONS / 2;
    let mut blocks = Vec::with_capacity(live);
    for size in &sizes[..live] {
        blocks.push(resource.allocate(*size, 256, &world.stream)?);
    }
    let mut next = 0;
    count(|| {
        let (place, size) = (next % live, sizes[next % OPERATIONS]);
        next += 1;
        // SAFETY: nothing uses the block, and another takes its place.
        unsafe { resource.deallocate(blocks[place], &world.stream)? };
        blocks[place] = resource.allocate(size, 256, &world.stream)?;
        Ok::<(), Error>(())
    });
    for block in blocks {
        // SAFETY: as above.
        unsafe { resource.deallocate(block, &world.stream)? };
    }
    Ok(())
}

pub(crate) fn address_pair() -> Result {
    let world = world()?;
    let pools = AddressPools::new(&world.driver, &PoolOptions::default())?;
    count(|| {
        // SAFETY: the stream lives, no work uses the memory, and it is freed once.
        unsafe {
            let address = pools.malloc(black_box(SIZE), 0, world.stream.raw())?;
            pools.free(black_box(address), SIZE, 0, world.stream.raw())
        }
    });
    Ok(())
}

pub(crate) fn store() -> Result {
    let world = world()?;
    let memory = Buffer::<u8, _>::zeroed(&MappedMemory::new(&world.context)?, 4096, &world.stream)?.into_shared();
    let word = 5u32.to_ne_bytes();
    count(|| memory.store(0, black_box(&word[..])));
    Ok(())
}

pub(crate) fn copy_in() -> Result {
    let world = world()?;
    let mut buffer = Buffer::<u8, _>::zeroed(&world.pool()?, 4096, &world.stream)?;
    let bytes = [7; 64];
    count(|| buffer.copy_from_slice(0, black_box(&bytes)));
    Ok(())
}

pub(crate) fn copy_out() -> Result {
    let world = world()?;
    let buffer = Buffer::<u8, _>::zeroed(&world.pool()?, 4096, &world.stream)?;
    let mut bytes = [0; 64];
    count(|| buffer.copy_to_slice(0, black_box(&mut bytes)));
    Ok(())
}

type Numbers = Buffer<f32, kind::Any>;

fn numbers(world: &World) -> Result<Numbers> {
    let memory: SharedResource = DeviceMemory::new(&world.context).share();
    let pool: Pool<kind::Any> = Pool::new(&memory, &PoolOptions::default())?;
    Ok(Buffer::zeroed(&pool, 1 << 20, &world.stream)?)
}

pub(crate) fn view_part() -> Result {
    let world = world()?;
    let view = numbers(&world)?.into_shared().into_view(&[1024, 1024])?;
    count(|| black_box(&view).clone().sliced(&[Index::At(5)]));
    Ok(())
}

/// A tensor for a consumer that looks after the order itself.
pub(crate) fn dlpack() -> Result {
    let world = world()?;
    let view = numbers(&world)?.into_shared().into_view(&[1024, 1024])?;
    let unordered = ExportOptions { consumer: Consumer::Unordered, ..Default::default() };
    count(|| {
        let raw =
            view.to_tensor().and_then(|tensor| tensor.to_dlpack(&unordered)).map(ManagedTensor::into_versioned)?;
        // SAFETY: the tensor was exported just now, and nothing uses it.
        let shared =
            unsafe { ManagedTensor::from_versioned(raw)?.check()?.into_shared(&world.stream, Some(&world.stream))? };
        SharedTensor::into_view(shared).map(drop)
    });
    Ok(())
}

/// Pairs of buffers on 16 threads, each on the stream that `of` gives its number.
fn buffers_on_threads<'a>(world: &'a World, of: impl Fn(usize) -> &'a Stream + Sync) -> Result {
    const THREADS: usize = 16;
    // Enough that the start of the threads does not matter.
    const PAIRS: usize = 200 * OPERATIONS;
    let (pool, begin) = (world.pool()?, Barrier::new(THREADS));
    let mut times: Vec<f64> = (0..11)
        .map(|_| {
            let run = &|number| {
                let stream = of(number);
                begin.wait();
                let started = Instant::now();
                for _ in 0..PAIRS {
                    let _ = black_box(Buffer::<u8, _>::uninit(&pool, black_box(SIZE), stream));
                }
                started.elapsed().as_secs_f64() * 1e9 / PAIRS as f64
            };
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || run(number))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or(f64::NAN)).fold(0.0, f64::max)
            })
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(" {:>10.1} {:>10.1}", times[times.len() / 2], times[0]);
    Ok(())
}

pub(crate) fn buffers_on_one_stream() -> Result {
    let world = world()?;
    buffers_on_threads(&world, |_| &world.stream)
}

pub(crate) fn buffers_on_own_streams() -> Result {
    let world = world()?;
    let streams: Vec<Stream> = (0..16).map(|_| Stream::new(&world.context)).collect::<std::result::Result<_, _>>()?;
    buffers_on_threads(&world, |number| &streams[number])
}

pub(crate) fn buffers_on_streams() -> Result {
    let world = world()?;
    let pool = world.pool()?;
    let streams: Vec<Stream> = (0..48).map(|_| Stream::new(&world.context)).collect::<std::result::Result<_, _>>()?;
    let mut next = 0;
    count(|| {
        next = (next + 1) % streams.len();
        Buffer::<u8, _>::uninit(&pool, black_box(SIZE), &streams[next]).map(drop)
    });
    Ok(())
}
