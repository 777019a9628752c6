//! Pools and guards beside threads that wait, and sources of the program.

use super::{hold, hold_unknown};
use cuda_mem::adaptor::{GuardOptions, Guarded};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::{
    Accessibility, Block, DeviceMemory, DevicePool, DriverPoolOptions, MemoryResource, PinnedMemory, ResourceHandle,
    SharedResource,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Error, Stream, waiting};
use softgpu::Fault;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::{alone, in_time};

const MIB: usize = 1 << 20;

/// Tells of each wait for an event or a stream that takes longer than a moment.
fn slow_waits() -> Receiver<()> {
    let (tell, told) = channel();
    waiting::set_hook(Some(Arc::new(move |wait| {
        if wait.target != cuda_mem::waiting::WaitTarget::Thread {
            let _ = tell.send(());
        }
    })));
    waiting::set_limit(Some(Duration::from_millis(5)));
    told
}

fn end_slow_waits() {
    waiting::set_limit(Some(waiting::DEFAULT_LIMIT));
    waiting::set_hook(None);
}

#[test]
fn a_pool_grows_while_another_thread_waits_for_its_work() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let sources = [DeviceMemory::new(&setup.context).share(), PinnedMemory::new(&setup.context).share()];
            for (source, trims) in sources.iter().flat_map(|source| [(source, true), (source, false)]) {
                let (busy, idle) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
                let mut options = PoolOptions::default();
                options.maximum = 64 * MIB;
                let pool = Pool::new(source, &options)?;
                let kept = Buffer::<u8, _>::uninit(&pool, 16 * MIB, &idle)?;
                let freed = Buffer::<u8, _>::uninit(&pool, 8 * MIB, &busy)?;
                let open = hold(&busy)?;
                drop(freed);
                let waits = slow_waits();
                thread::scope(|scope| {
                    let waiter = scope.spawn(|| match trims {
                        true => pool.release_unused(),
                        // More than the maximum allows.
                        false => Buffer::<u8, _>::uninit(&pool, 60 * MIB, &idle).map(drop),
                    });
                    waits.recv()?;
                    // Without this memory, the busy stream is never released.
                    let grown = Buffer::<u8, _>::uninit(&pool, 20 * MIB, &idle)?;
                    pool.trim_to(0)?;
                    drop(open);
                    let ended = waiter.join().expect("it does not panic");
                    assert!(if trims { ended.is_ok() } else { ended.is_err_and(|error| error.is_out_of_memory()) });
                    drop(grown);
                    Ok::<(), Box<dyn std::error::Error>>(())
                })?;
                end_slow_waits();
                drop(kept);
            }
            Ok(())
        })
    })
}

/// The program's resource, of which one call waits for another thread of the program.
#[derive(Debug)]
struct Waits {
    of: SharedResource,
    /// Taken by the first call of each.
    allocation: Mutex<Option<Gate>>,
    invalidation: Mutex<Option<Gate>>,
}

/// Where a call tells that it is inside, and what it waits for.
#[derive(Debug)]
struct Gate {
    inside: Sender<()>,
    open: Receiver<()>,
}

impl Gate {
    fn new() -> (Self, Receiver<()>, Sender<()>) {
        let ((inside, is_inside), (opens, open)) = (channel(), channel());
        (Self { inside, open }, is_inside, opens)
    }
}

fn pass(gate: &Mutex<Option<Gate>>) {
    let gate = gate.lock().expect("no panic").take();
    if let Some(Gate { inside, open }) = gate {
        let _ = inside.send(());
        let _ = open.recv();
    }
}

impl Waits {
    fn new(context: &Context) -> Self {
        Self { of: PinnedMemory::new(context).share(), allocation: Mutex::default(), invalidation: Mutex::default() }
    }
}

// SAFETY: the blocks come from another resource, which fulfils this contract.
unsafe impl MemoryResource for Waits {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block, Error> {
        pass(&self.allocation);
        self.of.allocate(size, alignment, stream)
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        unsafe { self.of.deallocate(block, stream) }
    }

    fn context(&self) -> &Context {
        self.of.context()
    }

    fn accessibility(&self) -> Accessibility {
        self.of.accessibility()
    }

    unsafe fn invalidate(&self, start: *mut u8, length: usize) -> Result<(), Error> {
        pass(&self.invalidation);
        // SAFETY: the caller's contract.
        unsafe { self.of.invalidate(start, length) }
    }
}

#[test]
fn no_thread_waits_for_a_growth_that_waits_for_it() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let source = Arc::new(Waits::new(&setup.context));
            let pool = Pool::new(&source, &PoolOptions::default())?;
            let (gate, inside, open) = Gate::new();
            *source.allocation.lock().expect("no panic") = Some(gate);
            thread::scope(|scope| {
                let growing = scope.spawn(|| Buffer::<u8, _>::uninit(&pool, 30 * MIB, &stream).map(drop));
                inside.recv()?;
                let other = Buffer::<u8, _>::uninit(&pool, 10 * MIB, &stream)?;
                drop(other);
                pool.trim_to(0)?;
                pool.release_unused()?;
                drop(open);
                growing.join().expect("it does not panic")?;
                Ok::<(), Box<dyn std::error::Error>>(())
            })?;
            assert_eq!(pool.statistics().blocks.current, 0);
            Ok(())
        })
    })
}

#[test]
fn a_guarded_block_is_freed_while_a_check_reads_it() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            for quarantine in [0, MIB] {
                let source = Arc::new(Waits::new(&setup.context));
                let mut options = GuardOptions::default();
                options.quarantine = quarantine;
                let guarded = Guarded::new(&source, &options)?;
                let (one, two) =
                    (Buffer::<u8, _>::zeroed(&guarded, 64, &stream)?, Buffer::<u8, _>::zeroed(&guarded, 64, &stream)?);
                let (gate, inside, open) = Gate::new();
                *source.invalidation.lock().expect("no panic") = Some(gate);
                thread::scope(|scope| {
                    let checking = scope.spawn(|| guarded.check());
                    inside.recv()?;
                    one.close()?;
                    // The check may be reading either.
                    two.close()?;
                    assert_ne!(guarded.quarantined(), 0);
                    guarded.release_quarantine();
                    assert_ne!(guarded.quarantined(), 0);
                    drop(open);
                    assert_eq!(checking.join().expect("it does not panic")?, []);
                    Ok::<(), Box<dyn std::error::Error>>(())
                })?;
                assert_eq!(guarded.quarantined(), 0);
            }
            Ok(())
        })
    })
}

#[test]
fn a_pool_of_pinned_memory_is_made_after_a_failure() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let context = setup.driver.device(0)?.create_context()?;
        let (stream, memory) = (Stream::new(&context)?, PinnedMemory::new(&context));
        softgpu::faults([Fault::call("cuMemPoolCreate", 1, CUresult::CUDA_ERROR_UNKNOWN)]);
        let first = Buffer::<u8, _>::zeroed(&memory, 100, &stream);
        let met = softgpu::injected();
        softgpu::faults([]);
        softgpu::count_calls(true);
        let second = Buffer::<u8, _>::zeroed(&memory, 100, &stream)?;
        let from_pool = softgpu::calls_of("cuMemAllocFromPoolAsync");
        softgpu::count_calls(false);
        assert_eq!((met, from_pool), (1, 1));
        // Each goes back to where it came from.
        drop((first?, second));
        context.synchronize()?;
        assert_eq!(context.take_drop_errors().errors, []);
        Ok(())
    })
}

// An H200's pool refuses 32 GiB while the host has 125 GiB free.
#[test]
fn pinned_memory_comes_from_elsewhere_if_its_pool_is_full() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        let context = setup.driver.device(0)?.create_context()?;
        let (stream, memory) = (Stream::new(&context)?, PinnedMemory::new(&context));
        let small = Buffer::filled(&memory, 100, 1u8, &stream)?;
        softgpu::count_calls(true);
        softgpu::faults([Fault::call("cuMemAllocFromPoolAsync", 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY)]);
        let large = Buffer::filled(&memory, 1 << 20, 2u8, &stream);
        let elsewhere = softgpu::calls_of("cuMemHostAlloc");
        softgpu::faults([]);
        let (large, next) = (large?, Buffer::filled(&memory, 100, 3u8, &stream)?);
        assert_eq!((small.to_vec()?[99], large.to_vec()?[(1 << 20) - 1], next.to_vec()?[99]), (1, 2, 3));
        // Each goes back to where it came from.
        drop((small, large, next));
        context.synchronize()?;
        let freed = softgpu::calls_of("cuMemFreeHost");
        softgpu::count_calls(false);
        assert_eq!((elsewhere, freed, context.take_drop_errors().errors), (1, 1, vec![]));
        Ok(())
    })
}

// The driver crashes if several streams use a pool that is destroyed before.
#[test]
fn a_dropped_pool_is_destroyed_after_the_frees_of_its_memory() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let destroyed = || softgpu::calls_of("cuMemPoolDestroy");
            softgpu::count_calls(true);
            // The second time, the streams end before the pool.
            for ends_first in [false, true] {
                let pool = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
                let streams = [Stream::new(&setup.context)?, Stream::new(&setup.context)?];
                let open = [hold(&streams[0])?, hold(&streams[1])?];
                let before = destroyed();
                for stream in &streams {
                    drop(Buffer::<u8, _>::zeroed(&pool, 100, stream)?);
                }
                if ends_first {
                    drop(streams);
                    drop(pool);
                } else {
                    drop(pool);
                    drop(streams);
                }
                assert_eq!(destroyed(), before, "frees are under way");
                drop(open);
                while setup.is_software() && destroyed() == before {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let (pool, stream) =
                (DevicePool::new(&setup.context, &DriverPoolOptions::default())?, Stream::new(&setup.context)?);
            drop(Buffer::<u8, _>::zeroed(&pool, 100, &stream)?);
            stream.synchronize()?;
            let before = destroyed();
            drop(pool);
            assert!(!setup.is_software() || destroyed() == before + 1, "no free is under way");
            softgpu::count_calls(false);
            Ok(())
        })
    })
}

#[test]
fn the_drop_of_a_pool_waits_for_each_stream_that_freed() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let destroyed = || softgpu::calls_of("cuMemPoolDestroy");
            softgpu::count_calls(true);
            let pool = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
            let (idle, busy) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            drop(Buffer::<u8, _>::zeroed(&pool, 100, &idle)?);
            let memory = Buffer::<u8, _>::zeroed(&pool, 100, &busy)?;
            // The drop does not wait for host functions that the library knows of.
            let open = hold_unknown(&busy)?;
            drop(memory);
            let before = destroyed();
            thread::scope(|scope| {
                let dropping = scope.spawn(move || drop(pool));
                thread::sleep(Duration::from_millis(100));
                let (has_ended, count) = (dropping.is_finished(), destroyed());
                drop(open);
                assert!(!has_ended && count == before, "a free is under way on the second stream");
            });
            assert!(!setup.is_software() || destroyed() == before + 1);
            softgpu::count_calls(false);
            Ok(())
        })
    })
}

// On a GPU, such a wait met the end of another thread's capture, and the driver crashed.
#[test]
fn pinned_memory_that_a_capture_refuses_to_free_waits_for_no_context() -> Outcome {
    alone(|setup| {
        if !setup.is_software() {
            println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
            return Ok(());
        }
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let memory = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), 4096, &stream)?;
            softgpu::count_calls(true);
            softgpu::faults([Fault::call("cuMemFreeAsync", 1, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)]);
            drop(memory);
            // The end of the faults begins a new count.
            let (refused, waits) = (softgpu::injected(), softgpu::calls_of("cuCtxSynchronize"));
            softgpu::faults([]);
            assert_eq!((refused, waits), (1, 0));
            softgpu::count_calls(false);
            Ok(())
        })
    })
}
