//! Which stream is meant: handles of several contexts, streams of others that end, forked children, names.

use cuda_mem::cuda_sys::{CUstream, CUstream_flags, CUstreamCaptureMode};
use cuda_mem::memory::{Accessibility, DeviceMemory, PinnedMemory, kind};
use cuda_mem::pool::{Addresses, Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Error, Stream};
use ffi_tests::suite::Outcome;
use ffi_tests::{LIMIT, Setup, alone, check_call, in_time};
use softgpu::Kind;
use std::ffi::c_void;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A block of the largest size that fronts keep.
const SIZE: usize = 1 << 20;
/// Longer than work takes that waits for nothing.
const SHORT: Duration = Duration::from_millis(100);
/// How many streams of others end between calls.
const MANY: usize = 1000;
/// How many of them may stay unknown to a context, and how many streams a front and a heap keep.
const FEW: usize = 128 + 64 + 32;

/// A stream that the library knows nothing of.
fn foreign(context: &Context) -> Result<CUstream, Error> {
    let (mut raw, _current) = (null_mut(), context.bind()?);
    // SAFETY: `raw` is writable, and the context is current.
    let made = unsafe { context.driver().raw().cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING.0) };
    check_call("cuStreamCreate", made)?;
    Ok(raw)
}

fn destroy(context: &Context, raw: CUstream) -> Result<(), Error> {
    // SAFETY: the test does not use the stream any more.
    check_call("cuStreamDestroy", unsafe { context.driver().raw().cuStreamDestroy_v2(raw) })
}

/// Blocks a stream until the result is dropped.
fn hold(stream: &Stream) -> Result<Sender<()>, Error> {
    let (release, released) = channel();
    stream.launch_host_function(move || {
        let _ = released.recv();
    })?;
    Ok(release)
}

/// A pool of page-locked memory with room for one block.
fn tight(setup: &Setup) -> Result<Pool<kind::Pinned>, Error> {
    let mut options = PoolOptions::default();
    (options.initial, options.maximum) = (SIZE, SIZE);
    Pool::new(&PinnedMemory::new(&setup.context), &options)
}

fn malloc(memory: &Addresses<impl cuda_mem::memory::Kind>, size: usize, stream: CUstream) -> Result<u64, Error> {
    // SAFETY: the tests' streams live during the call.
    unsafe { memory.malloc(size, 1, Accessibility::DEVICE, stream) }
}

fn free(
    memory: &Addresses<impl cuda_mem::memory::Kind>,
    address: u64,
    size: usize,
    stream: CUstream,
) -> Result<(), Error> {
    // SAFETY: as above, and the tests queue no later work with the memory.
    unsafe { memory.free(address, size, stream) }
}

fn must_wait(what: &str, stream: &Stream) -> Outcome {
    match stream.synchronize_for(SHORT) {
        Err(Error::WaitTimedOut { .. }) => Ok(()),
        other => Err(format!("{what} got the memory under the other's work: {other:?}").into()),
    }
}

// Hole C.
#[test]
fn default_streams_of_two_contexts_are_two_streams() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let elsewhere = setup.driver.device(0)?.create_context()?;
            let (here, there) = (Stream::legacy_default(&setup.context), Stream::legacy_default(&elsewhere));
            let pool = tight(setup)?;
            let memory = Addresses::of_pool(&pool)?;

            let block = Buffer::<u8, _>::uninit(&pool, SIZE, &there)?;
            let held = hold(&there)?;
            drop(block);
            let address = malloc(&memory, SIZE, null_mut())?;
            must_wait("an address", &here)?;
            drop(held);
            here.synchronize()?;

            // The front knows the other context's stream now.
            let held = hold(&here)?;
            free(&memory, address, SIZE, null_mut())?;
            let block = Buffer::<u8, _>::uninit(&pool, SIZE, &there)?;
            must_wait("a buffer", &there)?;
            drop(held);
            there.synchronize()?;
            drop(block);
            Ok(())
        })
    })
}

// Hole C.
#[test]
fn figures_tell_default_streams_of_two_contexts_apart() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let elsewhere = setup.driver.device(0)?.create_context()?;
            let (here, there) = (Stream::legacy_default(&setup.context), Stream::legacy_default(&elsewhere));
            let pool = Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?;
            let pending = || pool.statistics().pending.iter().map(|pending| pending.bytes).collect::<Vec<_>>();
            for front in [true, false] {
                // A front keeps no blocks of more than 1 MiB.
                let size = if front { SIZE } else { 2 * SIZE };
                let blocks = [&here, &there].map(|stream| Buffer::<u8, _>::uninit(&pool, size, stream));
                let held = hold(&there)?;
                for block in blocks {
                    drop(block?);
                }
                assert_eq!(pending(), [size as u64], "only one stream has work");
                let both = hold(&here)?;
                assert_eq!(pending(), [size as u64; 2]);
                drop((held, both));
                here.synchronize()?;
                there.synchronize()?;
                assert!(pending().is_empty());
                pool.release_unused()?;
            }
            Ok(())
        })
    })
}

unsafe extern "C" fn await_flag(flag: *mut c_void) {
    // SAFETY: the test passes a static.
    let flag = unsafe { &*flag.cast::<AtomicBool>() };
    let begin = Instant::now();
    while !flag.load(Ordering::Acquire) && begin.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(1));
    }
}

// Hole C, elsewhere: the wait for streams that have ended was for the context of the pool.
#[test]
fn an_ended_stream_of_another_context_is_waited_for_there() -> Outcome {
    static GO_ON: AtomicBool = AtomicBool::new(false);
    alone(|setup| {
        in_time(setup, |setup| {
            let elsewhere = setup.driver.device(0)?.create_context()?;
            let (cuda, raw) = (setup.driver.raw(), foreign(&elsewhere)?);
            let pool = tight(setup)?;
            let memory = Addresses::of_pool(&pool)?;
            // SAFETY: the stream lives until the test destroys it.
            let stream = unsafe { Stream::borrow_raw(&elsewhere, raw) };
            let block = Buffer::<u8, _>::uninit(&pool, SIZE, &stream)?;
            let mut graph = null_mut();
            // SAFETY: the streams and the flag live, and `graph` is writable. The drop of the last value meets a capture
            // by another library, so it can mark no work.
            unsafe {
                let flag = from_ref(&GO_ON).cast_mut().cast();
                check_call("cuLaunchHostFunc", cuda.cuLaunchHostFunc(raw, Some(await_flag), flag))?;
                drop(block);
                let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
                check_call("cuStreamBeginCapture", cuda.cuStreamBeginCapture_v2(raw, mode))?;
                drop(stream);
                check_call("cuStreamEndCapture", cuda.cuStreamEndCapture(raw, &mut graph))?;
                check_call("cuGraphDestroy", cuda.cuGraphDestroy(graph))?;
            }
            let (tell, told) = channel();
            thread::scope(|scope| -> Outcome {
                let memory = &memory;
                scope.spawn(move || tell.send(malloc(memory, SIZE, null_mut())));
                let early = told.recv_timeout(SHORT);
                GO_ON.store(true, Ordering::Release);
                if let Ok(address) = early {
                    return Err(format!("{address:?} was handed out under work of the ended stream").into());
                }
                Ok(free(memory, told.recv_timeout(LIMIT)??, SIZE, null_mut())?)
            })?;
            Ok(destroy(&elsewhere, raw)?)
        })
    })
}

/// Allocates and frees twice on each of many streams that end.
fn see_many(setup: &Setup, memory: &Addresses<kind::Device>, size: usize) -> Outcome {
    for _ in 0..MANY {
        let raw = foreign(&setup.context)?;
        for _ in 0..2 {
            free(memory, malloc(memory, size, raw)?, size, raw)?;
        }
        destroy(&setup.context, raw)?;
    }
    Ok(())
}

// Hole P.
#[test]
fn streams_of_others_that_end_between_calls_do_not_pile_up() -> Outcome {
    const BLOCK: usize = 64 << 10;
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU counts events and calls: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let pool = Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?;
        let memory = Addresses::of_pool(&pool)?;
        let (events, waits) = (softgpu::ledger().count(Kind::Event), softgpu::calls_of("cuCtxSynchronize"));
        softgpu::count_calls(true);
        see_many(setup, &memory, BLOCK)?;
        let stayed = softgpu::ledger().count(Kind::Event) - events;
        let figures = pool.statistics();
        assert!(stayed <= FEW, "{stayed} events stay of {MANY} streams");
        assert!(figures.pending.len() <= FEW, "memory waits for {} streams that have ended", figures.pending.len());
        assert!(figures.reserved.current <= (FEW * BLOCK + SIZE) as u64, "{} bytes", figures.reserved.current);
        assert_eq!(softgpu::calls_of("cuCtxSynchronize"), waits, "a call waited for the context");

        // A wait that the program asks for makes room again.
        let raw = foreign(&setup.context)?;
        let records_of_pairs = || -> Result<u64, Error> {
            let before = softgpu::calls_of("cuEventRecord");
            for _ in 0..10 {
                free(&memory, malloc(&memory, BLOCK, raw)?, BLOCK, raw)?;
            }
            Ok(softgpu::calls_of("cuEventRecord") - before)
        };
        assert!(records_of_pairs()? >= 9, "the last work of too many streams is unknown");
        pool.release_unused()?;
        free(&memory, malloc(&memory, BLOCK, raw)?, BLOCK, raw)?;
        assert_eq!(records_of_pairs()?, 0);
        softgpu::count_calls(false);
        Ok(destroy(&setup.context, raw)?)
    })
}

// Hole S.
#[test]
fn a_freed_block_gets_no_name() -> Outcome {
    alone(|setup| {
        let pool = Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?;
        let stream = Stream::new(&setup.context)?;
        let names = || {
            let blocks = pool.snapshot().regions.into_iter().flat_map(|region| region.blocks);
            blocks.filter_map(|block| block.name).collect::<Vec<_>>()
        };
        // In a front, and in the heap.
        for size in [1000, 4 * SIZE] {
            let first = Buffer::<u8, _>::uninit(&pool, size, &stream)?;
            let address = first.device_pointer();
            assert!(pool.set_name(address, "first"));
            assert_eq!(names(), ["first"]);
            drop(first);
            assert!(!pool.set_name(address, "freed"), "the block of {size} bytes was freed");
            let second = Buffer::<u8, _>::uninit(&pool, size, &stream)?;
            assert_eq!((second.device_pointer(), names()), (address, vec![]));
            assert!(pool.set_name(address, "second"));
            assert_eq!(names(), ["second"]);
        }
        Ok(())
    })
}
