//! Pools over virtual memory, which grow and shrink in place. Runs on any driver with virtual memory.

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{DeviceMemory, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions};
use cuda_mem::pool::{Pool, PoolOptions, Reuse};
use cuda_mem::{Buffer, Error, Stream};
use softgpu::Fault;
use std::mem::MaybeUninit;
use testkit::suite::Outcome;
use testkit::timing::Numbers;
use testkit::{Setup, alone, pattern, same};

/// The size of a chunk.
pub(crate) const CHUNK: usize = 2 << 20;

/// Runs a test alone, over the device's virtual memory. The ledger applies to the whole process.
pub(crate) fn over_virtual_memory(test: impl Fn(&Setup, &SharedResource) -> Outcome) -> Outcome {
    alone(|setup| match VirtualMemory::new(&setup.context, &VirtualOptions::default()) {
        Ok(memory) => test(setup, &memory.share()),
        Err(error @ Error::Unsupported { .. }) => {
            println!("skipped: {error}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    })
}

pub(crate) fn options(change: impl FnOnce(&mut PoolOptions)) -> PoolOptions {
    let mut options = PoolOptions::default();
    change(&mut options);
    options
}

#[test]
fn a_pool_never_takes_more_than_its_maximum() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        // No maximum is a multiple of the chunk.
        for maximum in [CHUNK + 1, 5 * CHUNK / 2, 5 * CHUNK - 256] {
            for initial in [0, 1, CHUNK, maximum] {
                let pool =
                    Pool::new(memory, &options(|options| (options.maximum, options.initial) = (maximum, initial)))?;
                let check = |after: &str| {
                    let reserved = pool.statistics().reserved.peak as usize;
                    assert!(reserved <= maximum, "{reserved} bytes of {maximum} after {after} from {initial}");
                };
                check("the beginning");
                let (small, whole) = (pool.reserve(1), pool.reserve(maximum / CHUNK * CHUNK));
                assert!(whole.is_ok() && small.is_ok(), "{small:?}, {whole:?}");
                assert!(pool.reserve(maximum).is_err() && pool.reserve(usize::MAX).is_err());
                check("a reservation");
                let mut blocks = Vec::new();
                while let Ok(block) = Buffer::<u8, _>::uninit(&pool, CHUNK / 4, &stream) {
                    blocks.push(block);
                }
                assert_eq!(blocks.len(), maximum / CHUNK * 4, "of {maximum} bytes");
                check("allocations");
            }
        }
        for (maximum, initial) in [(1000, 0), (CHUNK - 1, 0), (CHUNK + 1, usize::MAX)] {
            let impossible = options(|options| (options.maximum, options.initial) = (maximum, initial));
            assert!(Pool::new(memory, &impossible).is_err(), "{initial} of {maximum}");
        }
        Ok(())
    })
}

#[test]
fn scattered_chunks_serve_a_large_request_without_new_memory() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        const COUNT: usize = 16;
        let pool = Pool::new(memory, &options(|options| (options.maximum, options.initial) = (COUNT * CHUNK, 0)))?;
        let fill = |number: usize| Buffer::from_slice(&pool, &pattern(CHUNK, number as u8), &stream);
        let mut blocks = (0..COUNT).map(fill).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(pool.statistics().reserved.current, (COUNT * CHUNK) as u64);
        // Every second block goes. A pool of separate regions has no room for a large block now.
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        let addresses: Vec<_> = blocks.iter().map(Buffer::device_pointer).collect();
        let large = Buffer::from_slice(&pool, &pattern(COUNT / 2 * CHUNK, 99), &other)?;
        assert_eq!(pool.statistics().reserved.current, (COUNT * CHUNK) as u64, "no new memory was taken");
        same("the large block", &large.to_vec()?, &pattern(COUNT / 2 * CHUNK, 99))?;
        for (index, block) in blocks.iter().enumerate() {
            same("a block that stayed", &block.to_vec()?, &pattern(CHUNK, (2 * index + 1) as u8))?;
            assert_eq!(block.device_pointer(), addresses[index]);
        }
        let full = Buffer::<u8, _>::uninit(&pool, 1, &stream);
        assert!(matches!(full, Err(Error::OutOfMemory { .. })), "{full:?}");
        // The same again, the other way round.
        drop(blocks);
        let rest = Buffer::from_slice(&pool, &pattern(COUNT / 2 * CHUNK, 7), &stream)?;
        same("the rest", &rest.to_vec()?, &pattern(COUNT / 2 * CHUNK, 7))?;
        same("the large block still", &large.to_vec()?, &pattern(COUNT / 2 * CHUNK, 99))?;
        drop((large, rest));
        pool.release_unused()?;
        let statistics = pool.statistics();
        assert_eq!((statistics.reserved.current, statistics.regions.current), (0, 0));
        Ok(())
    })
}

#[test]
fn chunks_stay_while_a_stream_may_use_them() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let (slow, quick) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        for reuse in [Reuse::SameStreamOnly, Reuse::WhenPassed, Reuse::Wait] {
            let pool = Pool::new(memory, &options(|options| (options.reuse, options.initial) = (reuse, 0)))?;
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let mut blocks =
                (0..3).map(|_| Buffer::<u8, _>::zeroed(&pool, CHUNK, &slow)).collect::<Result<Vec<_>, _>>()?;
            let between = blocks.remove(1);
            slow.launch_host_function(move || gate.recv().unwrap_or_default())?;
            // The fills wait for the gate. The blocks are freed behind them.
            for block in &mut blocks {
                block.fill(.., 5)?;
            }
            drop(blocks);
            pool.trim_to(0)?;
            assert_eq!(pool.statistics().reserved.current, 3 * CHUNK as u64, "{reuse:?}: work uses the chunks");
            // Larger than any free range. The chunks under work must not move.
            let large = match reuse {
                Reuse::Wait => None,
                _ => Some(Buffer::from_slice(&pool, &pattern(2 * CHUNK, 3), &quick)?),
            };
            drop(open);
            slow.synchronize()?;
            if let Some(large) = &large {
                same("the large block", &large.to_vec()?, &pattern(2 * CHUNK, 3))?;
            }
            same("the block between", &between.to_vec()?, &[0; CHUNK])?;
            drop((large, between));
            pool.release_unused()?;
            assert_eq!(pool.statistics().reserved.current, 0);
        }
        Ok(())
    })
}

#[test]
fn chunks_move_at_once_and_are_unmapped_after_their_work() -> Outcome {
    over_virtual_memory(|setup, memory| {
        const COUNT: usize = 8;
        let (slow, quick) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = Pool::new(memory, &options(|options| (options.maximum, options.initial) = (COUNT * CHUNK, 0)))?;
        let mut blocks =
            (0..COUNT).map(|_| Buffer::<u8, _>::zeroed(&pool, CHUNK, &slow)).collect::<Result<Vec<_>, _>>()?;
        let (open, gate) = std::sync::mpsc::channel::<()>();
        slow.launch_host_function(move || gate.recv().unwrap_or_default())?;
        // The fills wait for the gate.
        for block in &mut blocks {
            block.fill(.., 5)?;
        }
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        // Two growths, each with two chunks that the fills still write at their old addresses. Nobody waits.
        let large = [&quick, &slow].map(|stream| Buffer::filled(&pool, 2 * CHUNK, 9u8, stream));
        assert_eq!(pool.statistics().reserved.current, (COUNT * CHUNK) as u64, "no new memory was taken");
        drop(open);
        for block in large {
            same("a large block", &block?.to_vec()?, &[9; 2 * CHUNK])?;
        }
        for block in blocks {
            same("a block that stayed", &block.to_vec()?, &[5; CHUNK])?;
        }
        pool.release_unused()?;
        assert_eq!(pool.statistics().reserved.current, 0);
        Ok(())
    })
}

#[test]
fn two_faults_in_a_row_leave_no_address_to_stumble_over() -> Outcome {
    over_virtual_memory(|setup, memory| {
        if !setup.is_software() {
            println!("skipped: faults are injected by the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        const COUNT: usize = 8;
        let stream = Stream::new(&setup.context)?;
        let error = CUresult::CUDA_ERROR_UNKNOWN;
        for undo in 1..3 {
            let pool = Pool::new(memory, &options(|options| (options.maximum, options.initial) = (COUNT * CHUNK, 0)))?;
            let block = |size: usize| Buffer::filled(&pool, size, 7u8, &stream);
            let mut blocks = (0..4).map(|_| block(CHUNK)).collect::<Result<Vec<_>, _>>()?;
            drop((blocks.remove(2), blocks.remove(0)));
            // Access is refused after the mapping, and then the undoing too.
            softgpu::faults([Fault::call("cuMemSetAccess", 1, error), Fault::call("cuMemUnmap", undo, error)]);
            let refused = Buffer::<u8, _>::uninit(&pool, 6 * CHUNK, &stream);
            softgpu::faults([]);
            assert!(refused.is_err());
            assert_eq!(pool.statistics().reserved.current, 4 * CHUNK as u64);
            let large = block(6 * CHUNK)?;
            same("the large block", &large.to_vec()?, &[7; 6 * CHUNK])?;
            drop((large, blocks));
            pool.release_unused()?;
            assert_eq!(pool.statistics().reserved.current, 0);
            setup.context.take_drop_errors();
        }
        Ok(())
    })
}

/// Takes all memory that the device has left, as another process might.
fn take_the_rest(memory: &SharedResource, stream: &Stream) -> Result<Vec<Buffer<MaybeUninit<u8>>>, Error> {
    let mut taken = Vec::new();
    let mut size = 16 << 30;
    while size >= CHUNK {
        match Buffer::<u8, _>::uninit(memory, size, stream) {
            Ok(block) => taken.push(block),
            Err(Error::OutOfMemory { .. }) => size /= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

#[test]
fn memory_that_others_take_meanwhile_limits_a_pool() -> Outcome {
    over_virtual_memory(|setup, memory| {
        const COUNT: usize = 8;
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &options(|options| options.initial = 0))?;
        let block = |count: usize| Buffer::filled(&pool, count * CHUNK, 7u8, &stream);
        let mut blocks = (0..COUNT).map(|_| block(1)).collect::<Result<Vec<_>, _>>()?;
        let mut others = take_the_rest(memory, &stream)?;
        let refused = block(1);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        // The pool's own free chunks serve a request, wherever they are.
        for number in (0..COUNT).rev().step_by(2) {
            blocks.remove(number);
        }
        let gathered = block(COUNT / 2)?;
        let refused = block(1);
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
        assert_eq!(pool.statistics().reserved.current, (COUNT * CHUNK) as u64);
        same("the gathered block", &gathered.to_vec()?, &[7; COUNT / 2 * CHUNK])?;
        // Memory that comes back serves together with free chunks.
        drop(gathered);
        let freed = others.pop().ok_or("the device had no memory left")?;
        let count = freed.len() / CHUNK;
        drop(freed);
        stream.synchronize()?;
        let large = block(COUNT / 2 + count)?;
        same("the larger block", &large.to_vec()?, &vec![7; large.len()])?;
        drop((large, blocks, others));
        pool.release_unused()?;
        assert_eq!(pool.statistics().reserved.current, 0);
        Ok(())
    })
}

#[test]
fn chunks_of_a_failed_attempt_do_not_take_the_last_memory() -> Outcome {
    over_virtual_memory(|setup, memory| {
        const COUNT: usize = 11;
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &options(|options| options.initial = 0))?;
        let block = |count: usize| Buffer::filled(&pool, count * CHUNK, 7u8, &stream);
        let mut blocks = (0..COUNT).map(|_| block(1)).collect::<Result<Vec<_>, _>>()?;
        let room = Buffer::<u8, _>::uninit(memory, 4 * CHUNK, &stream)?;
        let others = take_the_rest(memory, &stream)?;
        drop(room);
        stream.synchronize()?;
        // Five free chunks, of which none lies beside another or beside addresses without memory.
        for number in (0..COUNT - 1).rev().step_by(2) {
            blocks.remove(number);
        }
        // An attempt without them makes a chunk of four units. With them, three units are missing.
        let gathered = block(8)?;
        same("the gathered block", &gathered.to_vec()?, &[7; 8 * CHUNK])?;
        assert_eq!(pool.statistics().reserved.current, ((COUNT + 3) * CHUNK) as u64);
        drop(others);
        Ok(())
    })
}

#[test]
fn a_small_maximum_makes_a_pool_of_device_memory_use_regions() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        if !setup.is_software() {
            println!("skipped: the software GPU counts calls: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        for (maximum, in_place, expected) in
            [(64 << 20, true, true), ((64 << 20) - 1, true, false), (usize::MAX, false, false)]
        {
            let settings = options(|options| (options.maximum, options.in_place) = (maximum, in_place));
            softgpu::count_calls(true);
            let pool = Pool::new(&DeviceMemory::new(&setup.context), &settings)?;
            drop(Buffer::<u8, _>::uninit(&pool, 1000, &stream)?);
            let (chunks, regions) = (softgpu::calls_of("cuMemCreate"), softgpu::calls_of("cuMemAlloc_v2"));
            softgpu::count_calls(false);
            assert_eq!((chunks == 1, regions == 1), (expected, !expected), "maximum {maximum}, in place {in_place}");
        }
        Ok(())
    })
}

#[test]
fn ragged_sizes_waste_little() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let waste = |in_place: bool| -> Result<f64, Box<dyn std::error::Error>> {
            let mut settings = options(|options| (options.initial, options.cache_capacity) = (0, 0));
            settings.in_place = in_place;
            let pool = Pool::new(memory, &settings)?;
            let mut numbers = Numbers(11);
            let (mut live, mut peak) = (Vec::<Buffer<_, _>>::new(), 0);
            for step in 0..400 {
                // Batches of different lengths: the sizes of each step depend on its length.
                let length = 64 + numbers.below(1984);
                for _ in 0..6 {
                    let size = length * (1 + numbers.below(16)) * 4096;
                    live.push(Buffer::<u8, _>::uninit(&pool, size, &stream)?);
                    peak = peak.max(pool.statistics().requested.current);
                }
                while live.len() > 12 + step % 20 {
                    let which = numbers.below(live.len());
                    drop(live.swap_remove(which));
                }
            }
            Ok(pool.statistics().reserved.peak as f64 / peak as f64)
        };
        let (in_place, regions) = (waste(true)?, waste(false)?);
        println!("reserved, relative to what was requested: in place {in_place:.3}, in regions {regions:.3}");
        assert!(in_place < 1.08 && in_place < regions, "{in_place} in place, {regions} in regions");
        Ok(())
    })
}

#[test]
fn bad_sizes_and_maxima_are_refused() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(memory, &options(|options| options.maximum = 3 * CHUNK))?;
        for size in [3 * CHUNK + 1, 1 << 40, isize::MAX as usize - 100] {
            let refused = Buffer::<u8, _>::uninit(&pool, size, &stream);
            assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{size}: {refused:?}");
        }
        assert!(pool.reserve(4 * CHUNK).is_err() && pool.reserve(usize::MAX).is_err());
        pool.reserve(3 * CHUNK)?;
        let whole = Buffer::filled(&pool, 3 * CHUNK, 1u8, &stream)?;
        same("all of it", &whole.to_vec()?, &[1; 3 * CHUNK])?;
        // A maximum that is no multiple of a chunk is not exceeded.
        let odd = Pool::new(memory, &options(|options| (options.maximum, options.initial) = (CHUNK + 1, 0)))?;
        let first = Buffer::<u8, _>::zeroed(&odd, CHUNK, &stream)?;
        assert!(matches!(Buffer::<u8, _>::uninit(&odd, 1, &stream), Err(Error::OutOfMemory { .. })));
        drop((whole, first));
        let large = options(|options| (options.smallest_growth, options.initial) = (3 * CHUNK, 0));
        let large = Pool::new(memory, &large)?;
        drop(Buffer::<u8, _>::uninit(&large, 1, &stream)?);
        assert_eq!(large.statistics().reserved.current, 3 * CHUNK as u64);
        let (all, none) = (options(|options| options.initial = usize::MAX), options(|options| options.maximum = 0));
        assert!(Pool::new(memory, &all).is_err());
        let text = Pool::new(memory, &none).expect_err("no chunk fits").to_string();
        assert!(text.contains("maximum is 0 bytes"), "{text}");
        Ok(())
    })
}

#[test]
fn threads_share_a_pool_that_grows_in_place() -> Outcome {
    over_virtual_memory(|setup, memory| {
        let pool = Pool::new(memory, &options(|options| options.maximum = 64 * CHUNK))?;
        let failures = testkit::sources::failures_of_four_threads(|thread| {
            let stream = Stream::new(&setup.context)?;
            let mut numbers = Numbers(u64::from(thread) + 1);
            let mut live: Vec<(Buffer<u8, _>, u8)> = Vec::new();
            for step in 0..120 {
                let size = 1 + numbers.below([1000, CHUNK, 5 * CHUNK][step % 3]);
                let mark = numbers.below(255) as u8;
                match Buffer::filled(&pool, size, mark, &stream) {
                    Ok(buffer) => live.push((buffer, mark)),
                    Err(Error::OutOfMemory { .. }) => live.clear(),
                    Err(error) => return Err(error.into()),
                }
                if numbers.below(10) == 0 {
                    pool.trim_to(numbers.below(32) * CHUNK)?;
                }
                while live.len() > 5 {
                    let (buffer, mark) = live.swap_remove(numbers.below(live.len()));
                    let seen = buffer.to_vec()?;
                    same("a buffer of this thread", &seen, &vec![mark; seen.len()])?;
                }
            }
            Ok(())
        });
        assert!(failures.is_empty(), "{failures:?}");
        pool.release_unused()?;
        assert_eq!(pool.statistics().reserved.current, 0);
        Ok(())
    })
}
