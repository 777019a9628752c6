//! Many threads use one pool without waiting for each other: no block may belong to two threads at once.

use cuda_mem::memory::{
    Accessibility, Block, DeviceMemory, MemoryResource, PinnedMemory, ResourceHandle, SharedResource,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Error, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use testkit::suite::Outcome;
use testkit::{alone, joined};

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
            // On machines of few processors more threads than thread caches with an owner, so that some share a thread
            // cache.
            let threads = (0..THREADS).map(|_| {
                let (resource, stream, taken, begin) = (&resource, &stream, &taken, &begin);
                scope.spawn(move || -> Result<(), Error> {
                    begin.wait();
                    let mut kept = Vec::new();
                    for round in 0..ROUNDS {
                        let block = resource.allocate(256, 256, stream)?;
                        let place = &taken[(block.device_pointer() - base) as usize / unit];
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
            });
            joined(threads).map(drop)
        })?;
        let blocks = pool.statistics().blocks;
        assert_eq!((blocks.current, blocks.total), (0, (THREADS * ROUNDS) as u64));
        Ok(())
    })
}

/// A resource that tells when its last user has gone.
#[derive(Debug)]
struct Watched(SharedResource);

// SAFETY: the blocks come from another resource, which fulfils this contract.
unsafe impl MemoryResource for Watched {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block, Error> {
        self.0.allocate(size, alignment, stream)
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        unsafe { self.0.deallocate(block, stream) }
    }

    fn context(&self) -> &Context {
        self.0.context()
    }

    fn accessibility(&self) -> Accessibility {
        self.0.accessibility()
    }
}

#[test]
fn a_pool_ends_with_its_last_handle_and_its_last_buffer() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        for buffers_end_last in [false, true] {
            let source = Arc::new(Watched(PinnedMemory::new(&setup.context).share()));
            let watched = Arc::downgrade(&source);
            let pool = Pool::new(&source, &PoolOptions::default())?;
            drop(source);
            let make = || Buffer::<u32, _>::zeroed(&pool, 100, &stream);
            // Thread caches of three threads get blocks and what the buffers held. The last buffers end on another
            // thread.
            let left = std::thread::scope(|scope| -> Result<Vec<_>, Error> {
                let threads = (0..3).map(|_| {
                    scope.spawn(|| -> Result<_, Error> {
                        for _ in 0..10 {
                            let (_one, _other) = (make()?, make()?);
                        }
                        make()
                    })
                });
                joined(threads)
            })?;
            if buffers_end_last {
                drop(pool);
                assert!(watched.strong_count() != 0, "buffers keep the pool");
                drop(left);
            } else {
                drop(left);
                assert!(watched.strong_count() != 0, "a handle keeps the pool");
                drop(pool);
            }
            assert_eq!(watched.strong_count(), 0, "the pool has ended, {buffers_end_last}");
        }
        Ok(())
    })
}

#[test]
fn threads_on_an_exhausted_pool_never_share_buffer_bytes() -> Outcome {
    alone(|setup| {
        let mut settings = PoolOptions::default();
        // So short that threads often empty each other's caches.
        (settings.initial, settings.maximum) = (1 << 20, 1 << 20);
        let pool = Pool::new(&PinnedMemory::new(&setup.context), &settings)?;
        std::thread::scope(|scope| {
            let threads = (0..8u32).map(|number| {
                let (pool, setup) = (&pool, &setup);
                scope.spawn(move || -> Result<(), Error> {
                    let stream = Stream::new(&setup.context)?;
                    for round in 0..2000 {
                        let length = 1 + (round * 37 + number as usize * 101) % 8000;
                        let buffer = match Buffer::filled(pool, length, number, &stream) {
                            Err(Error::OutOfMemory { .. }) => continue,
                            made => made?,
                        };
                        let last = buffer.to_vec()?;
                        assert!(last.iter().all(|element| *element == number), "another thread's bytes");
                    }
                    Ok(())
                })
            });
            joined(threads).map(drop)
        })?;
        Ok(())
    })
}
