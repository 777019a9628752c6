//! Which stream is meant: handles of several contexts, streams of others that end, forked children, names.

use super::hold;
use cuda_mem::adaptor::{
    Aligned, FailWhen, FailureInjection, Fallback, GuardOptions, Guarded, Logging, Recording, Statistics, Tracking,
};
use cuda_mem::copy::CopyEngine;
use cuda_mem::cuda_sys::{CUstream, CUstream_flags, CUstreamCaptureMode};
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{Accessibility, Block, DeviceMemory, PinnedMemory, ResourceHandle, SharedResource, kind};
use cuda_mem::pool::{Addresses, Pool, PoolOptions, RingOptions, RingPool, Tracked};
use cuda_mem::signal::{Flag, Signals, Waiter};
use cuda_mem::{Buffer, Context, Error, Stream};
use softgpu::Kind;
use std::ffi::c_void;
use std::mem::{ManuallyDrop, forget};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use testkit::forks::in_child;
use testkit::suite::Outcome;
use testkit::{LIMIT, Setup, alone, check_call, in_time};

/// A block of the largest size that thread caches keep.
const SIZE: usize = 1 << 20;
/// Longer than work takes that waits for nothing.
const SHORT: Duration = Duration::from_millis(100);
/// How many streams of others end between calls.
const MANY: usize = 1000;
/// How many of them may stay unknown to a context, and how many streams a thread cache and a heap keep.
const FEW: usize = 128 + 64 + 32;

/// A stream that the library knows nothing of.
pub fn foreign(context: &Context) -> Result<CUstream, Error> {
    let (mut raw, _current) = (null_mut(), context.bind()?);
    // SAFETY: `raw` is writable, and the context is current.
    let made = unsafe { context.driver().raw().cuStreamCreate(&mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING.0) };
    check_call("cuStreamCreate", made)?;
    Ok(raw)
}

pub fn destroy(context: &Context, raw: CUstream) -> Result<(), Error> {
    // SAFETY: the test does not use the stream any more.
    check_call("cuStreamDestroy", unsafe { context.driver().raw().cuStreamDestroy_v2(raw) })
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

            // The thread cache knows the other context's stream now.
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
            // A thread cache keeps no blocks of more than 1 MiB.
            for (size, both) in [(SIZE, false), (SIZE, true), (2 * SIZE, false), (2 * SIZE, true)] {
                let blocks = [&here, &there].map(|stream| Buffer::<u8, _>::uninit(&pool, size, stream));
                let held = [Some(hold(&there)?), if both { Some(hold(&here)?) } else { None }];
                for block in blocks {
                    drop(block?);
                }
                assert_eq!(pending(), vec![size as u64; 1 + usize::from(both)], "{size} bytes");
                drop(held);
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
        let events = softgpu::ledger().count(Kind::Event);
        softgpu::count_calls(true);
        see_many(setup, &memory, BLOCK)?;
        let stayed = softgpu::ledger().count(Kind::Event) - events;
        let figures = pool.statistics();
        assert!(stayed <= FEW, "{stayed} events stay of {MANY} streams");
        assert!(figures.pending.len() <= FEW, "memory waits for {} streams that have ended", figures.pending.len());
        assert!(figures.reserved.current <= (FEW * BLOCK + SIZE) as u64, "{} bytes", figures.reserved.current);
        assert_eq!(softgpu::calls_of("cuCtxSynchronize"), 0, "a call waited for the context");

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
        // In a thread cache, and in the heap.
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

/// Objects with locks, of a parent.
struct Things {
    context: Context,
    stream: Stream,
    pool: Pool<kind::Device>,
    /// Records its blocks and a trace.
    watched: Pool<kind::Device>,
    ring: RingPool<kind::Pinned>,
    memory: Addresses<kind::Device>,
    /// A block of a pool that is too large for the table without locks.
    address: u64,
    statistics: Statistics<kind::Device>,
    tracking: Tracking<kind::Device>,
    fallback: Fallback<kind::Device>,
    failing: FailureInjection<kind::Device>,
    guarded: Guarded<kind::Device>,
    recording: Recording<kind::Device>,
    logging: Logging<kind::Device>,
    frames: FrameRing,
    flag: Flag<u32>,
    engine: CopyEngine,
    /// Blocks of all resources, which the child frees too.
    blocks: Vec<(SharedResource, Block)>,
}

impl Things {
    fn new(context: &Context) -> Result<Self, Error> {
        let (stream, device) = (Stream::new(context)?, DeviceMemory::new(context));
        let pool = Pool::new(&device, &PoolOptions::default())?;
        let mut options = PoolOptions::default();
        (options.tracking, options.trace_capacity) = (Tracked::Names, 100);
        let watched = Pool::new(&device, &options)?;
        let memory = Addresses::of_pool(&pool)?;
        let signals = Signals::new(context)?;
        let mut things = Self {
            address: malloc(&memory, 2 * SIZE, null_mut())?,
            ring: RingPool::new(&PinnedMemory::new(context), SIZE, &RingOptions::default())?,
            statistics: Statistics::new(&device),
            tracking: Tracking::new(&device),
            fallback: Fallback::new(&pool, &device)?,
            failing: FailureInjection::new(&device, [FailWhen::Nth(1000)]),
            guarded: Guarded::new(&device, &GuardOptions::default())?,
            recording: Recording::new(&device, 100),
            logging: Logging::new(&device, Vec::new()),
            frames: FrameRing::new(&PinnedMemory::new(context), &signals, 2, 64)?,
            flag: signals.flag(Waiter::Device)?,
            engine: CopyEngine::builder(context).build()?,
            context: context.clone(),
            blocks: Vec::new(),
            stream,
            pool,
            watched,
            memory,
        };
        let aligned = Aligned::new(&device, 4096)?.share();
        let resources = [
            things.pool.share(),
            things.watched.share(),
            things.ring.share(),
            things.statistics.share(),
            things.tracking.share(),
            things.fallback.share(),
            things.failing.share(),
            things.guarded.share(),
            things.recording.share(),
            things.logging.share(),
            aligned,
        ];
        for resource in resources {
            let block = resource.allocate(1000, 64, &things.stream)?;
            things.blocks.push((resource, block));
        }
        Ok(things)
    }

    /// Makes calls that take a lock in the parent. Those that return errors must be refused.
    fn know_of_the_fork(self) -> Result<(), &'static str> {
        fn refused<T>(call: &'static str, result: impl FnOnce() -> Result<T, Error>) -> Result<(), &'static str> {
            let result = catch_unwind(AssertUnwindSafe(result)).map_err(|_| call)?;
            let forked = matches!(result, Err(Error::Forked { .. }));
            forget(result);
            if forked { Ok(()) } else { Err(call) }
        }
        fn empty(call: &'static str, is_empty: impl FnOnce() -> bool) -> Result<(), &'static str> {
            match catch_unwind(AssertUnwindSafe(is_empty)) {
                Ok(true) => Ok(()),
                _ => Err(call),
            }
        }
        for pool in [&self.pool, &self.watched] {
            refused("Pool::reserve", || pool.reserve(SIZE))?;
            refused("Pool::trim_to", || pool.trim_to(0))?;
            refused("Pool::release_unused", || pool.release_unused())?;
            refused("Pool::release_stream", || pool.release_stream(&self.stream))?;
            empty("Pool::statistics", || pool.statistics().reserved.current == 0)?;
            empty("Pool::snapshot", || pool.snapshot().regions.is_empty())?;
            empty("Pool::reset_peaks", || {
                pool.reset_peaks();
                true
            })?;
            empty("Pool::trace", || pool.trace().events.is_empty())?;
            empty("Pool::leak_report", || pool.leak_report().is_none_or(|report| report.blocks.is_empty()))?;
        }
        empty("Pool::set_name", || !self.pool.set_name(self.blocks[0].1.device_pointer(), "name"))?;
        refused("Addresses::free", || free(&self.memory, self.address, 2 * SIZE, null_mut()))?;
        refused("Addresses::malloc", || malloc(&self.memory, 2 * SIZE, null_mut()))?;
        refused("RingPool::synchronize", || self.ring.synchronize())?;
        empty("RingPool::statistics", || self.ring.statistics().blocks == 0)?;
        for (resource, block) in &self.blocks {
            refused("SharedResource::allocate", || resource.allocate(1000, 64, &self.stream))?;
            // SAFETY: the process is a copy in which nobody uses the block.
            refused("SharedResource::deallocate", || unsafe { resource.deallocate(*block, &self.stream) })?;
        }
        empty("Statistics::counts", || self.statistics.counts().blocks.current == 0)?;
        empty("Statistics::reset_peaks", || {
            self.statistics.reset_peaks();
            true
        })?;
        empty("Statistics::section", || {
            drop(self.statistics.section());
            true
        })?;
        empty("Tracking::live", || self.tracking.live().is_empty())?;
        empty("Fallback::blocks_of_second", || self.fallback.blocks_of_second() == 0)?;
        empty("FailureInjection::allocations", || self.failing.allocations() == 0)?;
        empty("FailureInjection::set_rules", || {
            self.failing.set_rules([]);
            true
        })?;
        refused("Guarded::check", || self.guarded.check())?;
        empty("Guarded::quarantined", || self.guarded.quarantined() == 0)?;
        empty("Guarded::release_quarantine", || {
            self.guarded.release_quarantine();
            true
        })?;
        empty("Recording::trace", || self.recording.trace().events.is_empty())?;
        empty("Logging::flush", || self.logging.flush().is_err())?;
        empty("Logging::lost_lines", || self.logging.lost_lines() == 0)?;
        empty("FrameRing::statistics", || self.frames.statistics() == Default::default())?;
        empty("Flag::set_name", || {
            self.flag.set_name("name");
            true
        })?;
        empty("CopyEngine::trim", || {
            self.engine.trim();
            true
        })?;
        empty("CopyEngine::reserved_staging", || self.engine.reserved_staging() == 0)?;
        empty("Context::set_drop_error_hook", || {
            self.context.set_drop_error_hook(None);
            true
        })?;
        empty("waiting::set_hook", || {
            cuda_mem::waiting::set_hook(None);
            true
        })?;
        empty("the drops", || {
            drop(self);
            true
        })
    }
}

// Hole O.
#[test]
fn calls_of_a_forked_child_take_no_lock_of_their_objects() -> Outcome {
    alone(|setup| {
        let things = Things::new(&setup.context)?;
        let ended = AtomicBool::new(false);
        // Some thread holds the locks of the pool and of the ring at most times.
        let look = || {
            while !ended.load(Ordering::Relaxed) {
                let _ = (things.pool.snapshot(), things.pool.statistics(), things.ring.statistics());
            }
        };
        let wrong = thread::scope(|scope| {
            let busy = [scope.spawn(look), scope.spawn(look)];
            let wrong = (0..10).find_map(|_| {
                // SAFETY: only the child uses the copy, in a memory of its own.
                let copy = ManuallyDrop::new(unsafe { std::ptr::read(&things) });
                in_child(|| ManuallyDrop::into_inner(copy).know_of_the_fork())
            });
            ended.store(true, Ordering::Relaxed);
            busy.into_iter().for_each(|thread| thread.join().expect("no panic"));
            wrong
        });
        assert_eq!(wrong, None);
        // The parent's things still work.
        free(&things.memory, things.address, 2 * SIZE, null_mut())?;
        for (resource, block) in &things.blocks {
            // SAFETY: nobody uses the block any more.
            unsafe { resource.deallocate(*block, &things.stream) }?;
        }
        Ok(())
    })
}
