//! The order that a pool keeps in special cases: default streams, foreign streams, captures, hooks that use the pool
//! while it works, and streams that are late. One test runs at a time, because the ledger applies to the whole process.

use cuda_mem::adaptor::{AfterFailure, Limit, Retry};
use cuda_mem::cuda_sys::{CUresult, CUstream, CUstream_flags};
use cuda_mem::memory::{Block, DeviceMemory, PinnedMemory, ResourceHandle, kind};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, CaptureMode, Error, MappedMemory, Stream};
use softgpu::Misuse;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use testkit::suite::Outcome;
use testkit::{Setup, alone, alone_with_misuse, delay, hold, same};

const SIZE: usize = 1 << 20;

/// A pool of one region with room for one block.
fn tight(setup: &Setup) -> Result<Pool<kind::Device>, Error> {
    let mut settings = PoolOptions::default();
    settings.initial = SIZE;
    settings.maximum = SIZE;
    Pool::new(&DeviceMemory::new(&setup.context), &settings)
}

/// Delayed work of the first stream must be done before the second stream's work on the same memory.
fn in_order(pool: &Pool<kind::Device>, first: &Stream, second: &Stream) -> Outcome {
    delay(first)?;
    drop(Buffer::filled(pool, SIZE, 1u8, first)?);
    let buffer = Buffer::filled(pool, SIZE, 2u8, second)?;
    second.synchronize()?;
    first.synchronize()?;
    same("the later work", &buffer.to_vec()?, &[2; SIZE])?;
    Ok(())
}

#[test]
fn default_streams_are_streams_as_others() -> Outcome {
    alone(|setup| {
        let pool = tight(setup)?;
        let (legacy, stream) = (Stream::legacy_default(&setup.context), Stream::new(&setup.context)?);
        // SAFETY: the null stream always exists.
        let null = unsafe { Stream::borrow_raw(&setup.context, std::ptr::null_mut()) };
        let mut blocking = cuda_mem::StreamOptions::default();
        blocking.blocking = true;
        let blocking = Stream::with_options(&setup.context, blocking)?;
        for first in [&legacy, &null, &stream, &blocking] {
            for second in [&legacy, &null, &stream, &blocking] {
                in_order(&pool, first, second)?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_threads_own_stream_is_another_stream_on_each_thread() -> Outcome {
    alone(|setup| {
        let pool = tight(setup)?;
        let (resource, home) = (pool.share(), Stream::new(&setup.context)?);
        // Delayed work on the block, then its free, on the calling thread's default stream.
        let turn = |value: u8, held: Option<Block>| -> Result<Block, Error> {
            let own = Stream::per_thread_default(&setup.context);
            let block = held.map_or_else(|| resource.allocate(SIZE, 256, &own), Ok)?;
            delay(&own)?;
            let _current = setup.context.bind()?;
            // SAFETY: the block has that many bytes.
            let filled = unsafe { setup.driver.raw().cuMemsetD8Async(block.device_pointer(), value, SIZE, own.raw()) }?;
            assert_eq!(filled, CUresult::CUDA_SUCCESS);
            // SAFETY: the block is freed once, on the stream of its work.
            unsafe { resource.deallocate(block, &own) }?;
            assert!(!own.is_done()?, "no free waits on the CPU");
            Ok(block)
        };
        for round in 0..3u8 {
            let waits = pool.statistics().waits;
            // The thread has its block again at once; other threads and streams after its work.
            assert_eq!(turn(round, None)?, turn(round + 1, None)?);
            assert_eq!(pool.statistics().waits, waits, "the thread waited for itself");
            std::thread::scope(|scope| scope.spawn(|| turn(round + 2, None).map(drop)).join().expect("no panic"))?;
            // The first use of a thread's stream may take the driver longer than the work of this thread.
            let was_late = !Stream::per_thread_default(&setup.context).is_done()?;
            assert!(!was_late || pool.statistics().waits == waits + 1, "the other thread did not wait");
            // That thread has ended, and its work has not.
            let last = Buffer::filled(&pool, SIZE, 9u8, &home)?;
            same("the last work", &last.to_vec()?, &[9; SIZE])?;
        }
        // A block of another stream may be freed on it.
        let block = resource.allocate(SIZE, 256, &home)?;
        Stream::per_thread_default(&setup.context).join(&home)?;
        turn(1, Some(block))?;
        let last = Buffer::filled(&pool, SIZE, 9u8, &home)?;
        same("the last work", &last.to_vec()?, &[9; SIZE])?;
        Ok(())
    })
}

#[test]
fn released_foreign_streams_can_be_destroyed_beside_the_pool() -> Outcome {
    alone(|setup| {
        let cuda = setup.driver.raw();
        let pool = tight(setup)?;
        let _current = setup.context.bind()?;
        for _ in 0..20 {
            let mut raw = std::ptr::null_mut();
            // SAFETY: `raw` is writable, and the context is current.
            let code = unsafe { cuda.cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING.0) }?;
            assert_eq!(code, CUresult::CUDA_SUCCESS);
            // SAFETY: the pool releases the stream before it is destroyed.
            let stream = unsafe { Stream::borrow_raw(&setup.context, raw) };
            let own = Stream::new(&setup.context)?;
            delay(&stream)?;
            drop(Buffer::filled(&pool, 1000, 1u8, &stream)?);
            drop(Buffer::filled(&pool, SIZE / 2, 1u8, &stream)?);
            in_order(&pool, &own, &stream)?;
            pool.release_stream(&stream)?;
            assert!(pool.statistics().pending.iter().all(|pending| pending.stream != raw.addr() as u64));
            drop(stream);
            // SAFETY: nothing uses the stream any more.
            assert_eq!(unsafe { cuda.cuStreamDestroy_v2(raw) }, Ok(CUresult::CUDA_SUCCESS));
        }
        Ok(())
    })
}

/// A stream of another library.
fn foreign_stream(setup: &Setup) -> Result<CUstream, Error> {
    let (mut raw, _current) = (std::ptr::null_mut(), setup.context.bind()?);
    // SAFETY: `raw` is writable, and the context is current.
    let code = unsafe { setup.driver.raw().cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING.0) }?;
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    Ok(raw)
}

#[test]
fn a_stream_may_end_while_a_pool_has_memory_that_it_freed() -> Outcome {
    alone(|setup| {
        let pool = tight(setup)?;
        for size in [SIZE, SIZE / 2, 1000] {
            for _ in 0..10 {
                let raw = foreign_stream(setup)?;
                // SAFETY: the stream lives longer than this value.
                let stream = unsafe { Stream::borrow_raw(&setup.context, raw) };
                delay(&stream)?;
                // A large block goes to the heap, a small one to a thread cache.
                let buffer = Buffer::filled(&pool, size, 1u8, &stream)?;
                drop(buffer);
                drop(stream);
                // SAFETY: nothing uses the stream any more. Its work goes on.
                assert_eq!(unsafe { setup.driver.raw().cuStreamDestroy_v2(raw) }, Ok(CUresult::CUDA_SUCCESS));
                pool.statistics();
                let other = Stream::new(&setup.context)?;
                let next = Buffer::filled(&pool, SIZE, 2u8, &other)?;
                same("the next owner's", &next.to_vec()?, &[2; SIZE])?;
            }
        }
        assert!(pool.statistics().events_recorded < 100);
        Ok(())
    })
}

#[test]
fn a_stream_that_is_borrowed_again_is_known_by_its_number() -> Outcome {
    alone(|setup| {
        let (pool, raw) = (tight(setup)?, foreign_stream(setup)?);
        // SAFETY: the stream lives longer than these values.
        let borrow = || unsafe { Stream::borrow_raw(&setup.context, raw) };
        let first = borrow();
        delay(&first)?;
        let buffer = Buffer::filled(&pool, SIZE, 1u8, &first)?;
        let address = buffer.device_pointer();
        drop((buffer, first));
        let again = borrow();
        let buffer = Buffer::filled(&pool, SIZE, 2u8, &again)?;
        assert_eq!((buffer.device_pointer(), pool.statistics().waits), (address, 0), "it has its own memory at once");
        assert!(!again.is_done()?);
        drop((buffer, again));
        // SAFETY: nothing uses the stream any more.
        assert_eq!(unsafe { setup.driver.raw().cuStreamDestroy_v2(raw) }, Ok(CUresult::CUDA_SUCCESS));
        let other = Stream::new(&setup.context)?;
        let last = Buffer::filled(&pool, SIZE, 3u8, &other)?;
        same("the last work", &last.to_vec()?, &[3; SIZE])?;
        Ok(())
    })
}

#[test]
fn a_pool_ends_after_a_stream_of_others_with_work() -> Outcome {
    alone(|setup| {
        for size in [SIZE, 1000] {
            let (pool, raw) = (tight(setup)?, foreign_stream(setup)?);
            // SAFETY: the stream lives longer than this value.
            let stream = unsafe { Stream::borrow_raw(&setup.context, raw) };
            delay(&stream)?;
            drop(Buffer::filled(&pool, size, 1u8, &stream)?);
            drop(stream);
            // SAFETY: nothing uses the stream any more. Its work goes on.
            assert_eq!(unsafe { setup.driver.raw().cuStreamDestroy_v2(raw) }, Ok(CUresult::CUDA_SUCCESS));
            drop(pool);
        }
        Ok(())
    })
}

#[test]
fn pool_reuses_memory_freed_in_a_capture_only_after_its_work() -> Outcome {
    alone(|setup| {
        let pool = tight(setup)?;
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        delay(&one)?;
        let buffer = Buffer::filled(&pool, SIZE, 1u8, &one)?;
        let graph = one.capture(CaptureMode::Global, |_| {
            drop(buffer);
            // The stream cannot record an event now.
            let refused = Buffer::<u8, _>::uninit(&pool, SIZE, &two);
            assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
            Ok(())
        })?;
        drop(graph);
        let buffer = Buffer::filled(&pool, SIZE, 2u8, &two)?;
        one.synchronize()?;
        same("after the capture", &buffer.to_vec()?, &[2; SIZE])?;
        Ok(())
    })
}

#[test]
fn a_pool_dropped_in_a_capture_gives_its_memory_back_after_it() -> Outcome {
    alone(|setup| {
        let context = &setup.context;
        let sources = [
            PinnedMemory::new(context).share(),
            DeviceMemory::new(context).share(), // in place
            MappedMemory::new(context)?.share(),
        ];
        for source in sources {
            let (one, two) = (Stream::new(context)?, Stream::new(context)?);
            let pool = Pool::new(&source, &PoolOptions::default())?;
            pool.reserve(SIZE * 4)?;
            delay(&one)?;
            let (buffer, other) = (Buffer::filled(&pool, SIZE, 1u8, &one)?, Buffer::filled(&pool, SIZE, 1u8, &two)?);
            one.capture(CaptureMode::Relaxed, |_| {
                drop((buffer, other, pool));
                Ok(())
            })?;
            assert!(context.take_drop_errors().errors.is_empty());
        }
        Ok(())
    })
}

#[test]
fn hooks_may_use_the_pool_while_it_grows() -> Outcome {
    alone(|setup| {
        let slot: Arc<Mutex<Option<Pool<kind::Device>>>> = Arc::default();
        let stream = Stream::new(&setup.context)?;
        let (called, inner) = (Arc::new(AtomicUsize::new(0)), (slot.clone(), stream.clone()));
        let count = called.clone();
        let source = Retry::new(&Limit::new(&DeviceMemory::new(&setup.context), 6 << 20), 2, move |_, _| {
            // Act only once, because the calls below may call this hook again.
            if count.fetch_add(1, Ordering::Relaxed) > 0 {
                return AfterFailure::GiveUp;
            }
            let pool = inner.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(pool) = pool {
                // Calls everything that takes the pool's locks. The large allocation makes the pool grow inside a call
                // that is already growing it.
                drop(Buffer::filled(&pool, 100, 1u8, &inner.1));
                drop(Buffer::filled(&pool, 5 << 20, 1u8, &inner.1));
                pool.statistics();
                pool.snapshot();
                pool.trim_to(0).expect("nothing failed");
            }
            AfterFailure::Again
        });
        let pool = Pool::new(&source, &PoolOptions::default())?;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(pool.clone());
        let held = Buffer::filled(&pool, SIZE, 1u8, &stream)?;
        let other = {
            let (pool, stream) = (pool.clone(), Stream::new(&setup.context)?);
            std::thread::spawn(move || -> Result<(), Error> {
                (0..50).try_for_each(|round| Buffer::filled(&pool, 1000 + round, 1u8, &stream).map(drop))
            })
        };
        let error = Buffer::<u8, _>::uninit(&pool, 8 << 20, &stream).expect_err("the limit is lower");
        assert!(matches!(&error, Error::OutOfMemory { requested, .. } if *requested == 8 << 20), "{error}");
        assert!(called.load(Ordering::Relaxed) > 0);
        other.join().expect("no thread panics")?;
        same("what was there", &held.to_vec()?, &[1; SIZE])?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    })
}

#[test]
fn many_threads_that_grow_at_once_grow_once() -> Outcome {
    alone(|setup| {
        let mut settings = PoolOptions::default();
        settings.smallest_growth = 64 << 20;
        for in_place in [true, false] {
            settings.in_place = in_place;
            grow_at_once(setup, &settings)?;
        }
        Ok(())
    })
}

/// Eight threads need memory of one growth at the same time.
fn grow_at_once(setup: &Setup, settings: &PoolOptions) -> Outcome {
    let pool = Pool::new(&DeviceMemory::new(&setup.context), settings)?;
    let ready = std::sync::Barrier::new(8);
    let outcomes: Vec<Result<_, Error>> = std::thread::scope(|scope| {
        let work = || {
            let stream = Stream::new(&setup.context)?;
            ready.wait();
            Buffer::filled(&pool, 3 << 20, 1u8, &stream)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let buffers = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
    assert_eq!((buffers.len(), pool.statistics().reserved.current), (8, 66 << 20));
    Ok(())
}

#[test]
fn what_idle_threads_keep_is_bounded_and_taken_back() -> Outcome {
    alone(|setup| {
        let mut settings = PoolOptions::default();
        settings.initial = 8 * SIZE;
        settings.maximum = 8 * SIZE;
        settings.cache_capacity = SIZE / 4;
        let pool = Pool::new(&DeviceMemory::new(&setup.context), &settings)?;
        let work = || -> Result<(), Error> {
            let stream = Stream::new(&setup.context)?;
            let buffers: Result<Vec<_>, _> = (0..200).map(|_| Buffer::filled(&pool, 4096, 1u8, &stream)).collect();
            buffers.map(drop)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
        })?;
        // All threads have ended.
        let kept = pool.statistics().in_caches;
        assert!(kept > 0 && kept <= 8 * (SIZE as u64 / 4), "{kept} bytes");
        let all = Buffer::filled(&pool, 8 * SIZE, 2u8, &Stream::new(&setup.context)?)?;
        same("all of it", &all.to_vec()?, &[2; 8 * SIZE])?;
        assert_eq!(pool.statistics().in_caches, 0);
        Ok(())
    })
}

/// Does the same work once in order and once, by a free that names the wrong stream, out of order. Only the second must
/// be detected. This proves that streams are late enough for the other tests to detect a block that is reused too
/// early. With race detection, as in the test command, the software GPU also reports it.
#[test]
fn a_block_that_is_given_away_too_early_would_be_seen() -> Outcome {
    let software = Cell::new(false);
    let test = |setup: &Setup| {
        software.set(setup.is_software());
        if !setup.is_software() {
            println!("skipped: broken order is for the software GPU: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let pool = tight(setup)?;
        let resource = pool.share();
        let (one, two) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        for broken in [false, true] {
            let fill = |block: Block, value: u8, stream: &Stream| {
                // SAFETY: the block has that many bytes. If `broken`, only this test sees the consequences.
                let code =
                    unsafe { setup.driver.raw().cuMemsetD8Async(block.device_pointer(), value, SIZE, stream.raw()) };
                assert_eq!(code, Ok(CUresult::CUDA_SUCCESS));
            };
            let held = hold(&one)?;
            let block = resource.allocate(SIZE, 256, &one)?;
            fill(block, 1, &one);
            // SAFETY: the block is freed once; otherwise as above.
            unsafe { resource.deallocate(block, if broken { &two } else { &one }) }?;
            let buffer = Buffer::filled(&pool, SIZE, 2u8, &two)?;
            if broken {
                two.synchronize()?;
            }
            drop(held);
            one.synchronize()?;
            two.synchronize()?;
            assert_eq!(buffer.to_vec()? != vec![2; SIZE], broken);
        }
        Ok(())
    };
    alone_with_misuse(test, |misuse| {
        let looked_at = std::env::var("SOFTGPU_RACES").is_ok_and(|value| value == "1") && software.get();
        let named: Vec<Misuse> = misuse.iter().map(|report| report.misuse).collect();
        assert_eq!(named, if looked_at { vec![Misuse::NoOrder] } else { vec![] });
    })
}
