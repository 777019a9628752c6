//! Many threads use one pool without waiting for each other: no block may belong to two threads at once.

use cuda_mem::memory::{DeviceMemory, ResourceHandle};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Error, Stream};
use ffi_tests::alone;
use ffi_tests::suite::Outcome;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

const THREADS: usize = 24;
const ROUNDS: usize = 300_000;

#[test]
fn no_block_is_two_threads_at_once() -> Outcome {
    alone(|setup| {
        let mut settings = PoolOptions::default();
        (settings.initial, settings.maximum) = (32 << 20, 32 << 20);
        let pool = Pool::new(&DeviceMemory::new(&setup.context), &settings)?;
        let (resource, unit) = (pool.share(), pool.granularity());
        let region = &pool.snapshot().regions[0];
        let base = region.address;
        let taken: Vec<_> = (0..region.size as usize / unit).map(|_| AtomicBool::new(false)).collect();
        let (stream, begin) = (Stream::new(&setup.context)?, Barrier::new(THREADS));
        std::thread::scope(|scope| {
            // More threads than fronts, so that some share a front.
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (resource, stream, taken, begin) = (&resource, &stream, &taken, &begin);
                    scope.spawn(move || -> Result<(), Error> {
                        begin.wait();
                        let mut kept = Vec::new();
                        for round in 0..ROUNDS {
                            let block = resource.allocate(256, 256, stream)?;
                            let place = &taken[(block.device_pointer - base) as usize / unit];
                            assert!(!place.swap(true, Ordering::Relaxed), "{block:?} is another's too");
                            kept.push((block, place));
                            if kept.len() > 3 {
                                let (block, place) = kept.swap_remove(round % 3);
                                place.store(false, Ordering::Relaxed);
                                // SAFETY: the block is this thread's, it is freed once, and no work uses it.
                                unsafe { resource.deallocate(block, stream) }?;
                            }
                        }
                        for (block, place) in kept {
                            place.store(false, Ordering::Relaxed);
                            // SAFETY: as above.
                            unsafe { resource.deallocate(block, stream) }?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        let blocks = pool.statistics().blocks;
        assert_eq!((blocks.current, blocks.total), (0, (THREADS * ROUNDS) as u64));
        Ok(())
    })
}
