//! Runs with pools, guards and signals.

use super::Outcome;
use cuda_mem::adaptor::{GuardOptions, Guarded};
use cuda_mem::cuda_sys::{self, CUgraph, CUresult, CUstream, CUstreamCaptureMode};
use cuda_mem::frames::FrameRing;
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::memory::kind::{self, Kind};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, ResourceHandle, VirtualMemory, VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool, SleepOptions};
use cuda_mem::signal::{Comparison, SignalError, SignalKernels, Signals, WaitPolicy, Waiter};
use cuda_mem::{Buffer, Driver, Error, Stream};
use testkit::{check_call as check, pattern, same};

/// A pool over several sources: growth, waits, reuse across streams, trimming, and its end. After an error the pool
/// must still work.
pub fn pools(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (one, two) = (Stream::new(&context)?, Stream::new(&context)?);
    let mut settings = PoolOptions::default();
    settings.initial = 1 << 16;
    settings.smallest_growth = 1 << 16;
    settings.maximum = 1 << 18;
    settings.cache_capacity = 1 << 12;
    pool_work(&Pool::new(&DeviceMemory::new(&context), &settings)?, &one, &two)?;
    pool_work(&Pool::new(&PinnedMemory::new(&context), &settings)?, &one, &two)?;
    let upstream = DevicePool::new(&context, &DriverPoolOptions::default())?;
    pool_work(&Pool::new(&upstream, &settings)?, &one, &two)
}

/// A pool that grows in place: chunks come, move and go.
pub fn pools_in_place(driver: &Driver) -> Outcome {
    const CHUNK: usize = 2 << 20;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let memory = VirtualMemory::new(&context, &VirtualOptions::default())?;
    let mut options = PoolOptions::default();
    (options.initial, options.maximum, options.cache_capacity) = (CHUNK, 4 * CHUNK, 0);
    let pool = Pool::new(&memory, &options)?;
    let work = || -> Outcome {
        let buffer = |size: usize, mark: u8| Buffer::filled(&pool, size, mark, &stream);
        let mut blocks = (0..4).map(|mark| buffer(CHUNK, mark)).collect::<Result<Vec<_>, _>>()?;
        // The first and the third chunk move under one range of addresses.
        drop((blocks.remove(2), blocks.remove(0)));
        let large = buffer(2 * CHUNK, 9)?;
        same("the large block", &large.to_vec()?, &[9; 2 * CHUNK])?;
        same("the second", &blocks[0].to_vec()?, &[1; CHUNK])?;
        same("the fourth", &blocks[1].to_vec()?, &[3; CHUNK])?;
        drop(large);
        pool.trim_to(3 * CHUNK)?;
        pool.reserve(4 * CHUNK)?;
        drop(blocks);
        pool.release_unused()?;
        Ok(())
    };
    let outcome = work();
    let statistics = pool.statistics();
    assert_eq!((statistics.blocks.current, statistics.requested.current), (0, 0), "{outcome:?}");
    if outcome.is_err() {
        // There was one fault, and the pool must still have room for its maximum.
        let again = Buffer::filled(&pool, 4 * CHUNK, 7u8, &stream)?;
        same("after the fault", &again.to_vec()?, &[7; 4 * CHUNK])?;
    }
    outcome
}

/// A pool that sleeps and wakes. A failed call leaves it asleep or awake, with its contents.
pub fn sleeping_pools(driver: &Driver) -> Outcome {
    const SIZE: usize = 3 << 20;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let pool = Pool::new(&DeviceMemory::new(&context), &PoolOptions::default())?;
    let buffer = Buffer::from_slice(&pool, &pattern(SIZE, 5), &stream)?;
    let small = Buffer::from_slice(&pool, &pattern(100, 6), &stream)?;
    let outcome = pool.sleep(&SleepOptions::default()).and_then(|_| {
        assert!(pool.is_asleep());
        pool.wake()
    });
    if outcome.is_err() && pool.is_asleep() {
        // There was one fault.
        pool.wake()?;
    }
    assert!(!pool.is_asleep());
    let what = format!("after {outcome:?}");
    same(&what, &buffer.to_vec()?, &pattern(SIZE, 5))?;
    same(&what, &small.to_vec()?, &pattern(100, 6))?;
    drop((buffer, small));
    pool.release_unused()?;
    Ok(outcome.map(drop)?)
}

/// A pool whose memory another library's capture uses: growth beside the capture, frees within it and after it, and the
/// end of its graph.
pub fn captured_by_others(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let mut options = PoolOptions::default();
    (options.initial, options.maximum) = (0, 1 << 21);
    let pool = Pool::new(&DeviceMemory::new(&context), &options)?;
    let outcome = graph_work(&pool);
    // The pool learns of the graph's end on a thread of the driver.
    softgpu::finish_destructors();
    let again = pool.release_unused().and_then(|()| Buffer::filled(&pool, 1 << 21, 7u8, &Stream::new(&context)?));
    match again {
        Ok(again) => same("the whole pool, after the graph", &again.to_vec()?, &[7; 1 << 21])?,
        // The one fault may come here.
        Err(error) if outcome.is_ok() => return Err(error.into()),
        Err(error) => panic!("a pool lost memory: {error}, after {outcome:?}"),
    }
    outcome
}

fn graph_work(pool: &Pool<kind::Device>) -> Outcome {
    /// Ends what another library has made.
    struct Library<'a>(&'a cuda_sys::Driver, CUstream, CUgraph);
    impl Drop for Library<'_> {
        fn drop(&mut self) {
            // SAFETY: both are this value's. A stream that still captures ends its capture.
            unsafe {
                // The one fault may come here.
                if !self.2.is_null() && self.0.cuGraphDestroy(self.2) != Ok(CUresult::CUDA_SUCCESS) {
                    let _ = self.0.cuGraphDestroy(self.2);
                }
                if self.0.cuStreamDestroy_v2(self.1) != Ok(CUresult::CUDA_SUCCESS) {
                    let _ = self.0.cuStreamDestroy_v2(self.1);
                }
            }
        }
    }
    let (context, cuda) = (pool.context().clone(), pool.context().driver().raw());
    let mut library = Library(cuda, std::ptr::null_mut(), std::ptr::null_mut());
    let _current = context.bind()?;
    // SAFETY: the place is writable.
    if let Err(error) = check("cuStreamCreate", unsafe { cuda.cuStreamCreate(&mut library.1, 1) }) {
        core::mem::forget(library);
        return Err(error.into());
    }
    // SAFETY: the stream lives longer than this value.
    let stream = unsafe { Stream::borrow_raw(&context, library.1) };
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream lives.
    check("cuStreamBeginCapture", unsafe { cuda.cuStreamBeginCapture_v2(library.1, mode) })?;
    let (freed, held) =
        (Buffer::<u8, _>::uninit(pool, 1 << 18, &stream)?, Buffer::<u8, _>::uninit(pool, 1 << 19, &stream)?);
    freed.close().map_err(Error::from)?;
    Buffer::<u8, _>::uninit(pool, 1 << 18, &stream)?.close().map_err(Error::from)?;
    // SAFETY: the stream lives, and the place is writable.
    check("cuStreamEndCapture", unsafe { cuda.cuStreamEndCapture(library.1, &mut library.2) })?;
    held.close().map_err(Error::from)?;
    // The stream ends before its memory would wait for it.
    pool.release_stream(&stream)?;
    Ok(())
}

fn pool_work<K: Kind>(pool: &Pool<K>, one: &Stream, two: &Stream) -> Outcome {
    let work = || -> Outcome {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        // Delays the stream until the other end is dropped, also after an error.
        one.launch_host_function(move || gate.recv().unwrap_or_default())?;
        drop(Buffer::<u8, _>::uninit(pool, 1 << 16, one)?);
        // The other stream waits, and then the pool grows.
        let second = Buffer::<u8, _>::uninit(pool, 1 << 16, two)?;
        drop(open);
        two.synchronize()?;
        let third = Buffer::filled(pool, 1 << 17, 3u8, one)?;
        let small = Buffer::filled(pool, 100, 4u8, one)?;
        same("the third", &third.to_vec()?, &[3; 1 << 17])?;
        drop((second, third, small));
        // The whole pool, as one block.
        let large = Buffer::filled(pool, 1 << 18, 5u8, two)?;
        same("the large one", &large.to_vec()?, &[5; 1 << 18])?;
        let beyond = Buffer::filled(pool, 100, 6u8, one);
        drop(large);
        match beyond {
            Err(Error::OutOfMemory { .. }) => {}
            other => drop(other?),
        }
        pool.trim_to(0)?;
        pool.reserve(1 << 17)?;
        pool.release_stream(one)?;
        pool.release_unused()?;
        Ok(())
    };
    let outcome = work();
    let statistics = pool.statistics();
    assert_eq!((statistics.blocks.current, statistics.requested.current), (0, 0), "{outcome:?}");
    if outcome.is_err() {
        // There was one fault, and the pool must still work.
        let again = Buffer::filled(pool, 1 << 16, 7u8, two)?;
        same("after the fault", &again.to_vec()?, &[7; 1 << 16])?;
    }
    outcome
}

/// A ring with memory that moves between streams.
pub fn ring_pools(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let ring = RingPool::new(&PinnedMemory::new(&context), 1024, &RingOptions::default())?;
    let mut target = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 1000, &stream)?;
    for home in [&stream, &other, &stream] {
        target.set_stream(home)?;
        ring.upload(&mut target, 0, &pattern(1000, 1))?;
        same("what was uploaded", &target.to_vec()?, &pattern(1000, 1))?;
    }
    ring.synchronize()?;
    Ok(())
}

/// A ring that must wait for work, depending on timing.
pub fn rings_under_way(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);
    let ring = RingPool::new(&PinnedMemory::new(&context), 1024, &RingOptions::default())?;
    let mut target = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 4000, &stream)?;
    for home in [&stream, &other] {
        home.launch_host_function(|| std::thread::sleep(std::time::Duration::from_millis(2)))?;
        target.set_stream(home)?;
        ring.upload(&mut target, 0, &pattern(4000, 1))?;
    }
    same("what was uploaded", &target.to_vec()?, &pattern(4000, 1))?;
    Ok(())
}

/// Guarded memory of the device and of the host, with blocks in quarantine.
pub fn guarded_memory(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    for quarantine in [0, 2000] {
        let mut settings = GuardOptions::default();
        settings.quarantine = quarantine;
        let device = Guarded::new(&DeviceMemory::new(&context), &settings)?;
        let host = Guarded::new(&PinnedMemory::new(&context), &settings)?;
        for number in 0..3u8 {
            let one = Buffer::filled(&device, 500, number, &stream)?;
            let two = Buffer::filled(&host, 500, number, &stream)?;
            same("device memory", &one.to_vec()?, &[number; 500])?;
            same("host memory", &two.to_vec()?, &[number; 500])?;
            one.close().map_err(Error::from)?;
            drop(two);
        }
        if !device.check()?.is_empty() || !host.check()?.is_empty() {
            return Err("damage".into());
        }
        host.release_quarantine();
    }
    Ok(())
}

/// Flags, counters and rings. All work is done before a wait polls, so that the number of polls does not vary.
pub fn signals(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.create_context()?;
    let (stream, patience) = (Stream::new(&context)?, std::time::Duration::from_secs(10));
    let signals = Signals::new(&context)?;
    // A fault while mapped memory is opened is not an error: all signals are then pinned.
    let (question, answer) = (signals.flag::<u32>(Waiter::Device)?, signals.flag::<u32>(Waiter::Cpu)?);
    let kernels = SignalKernels::of(&context)?;
    // The question is stored before the kernel starts, because after a fault nothing would release a waiting kernel.
    question.store(3);
    kernels.echo_flag(&question, &answer, 3, patience, &stream)?;
    stream.synchronize()?;
    assert_eq!(answer.wait(Comparison::Equal, 3, &WaitPolicy::default())?, 3);
    let (mut ready, done) = (signals.counter::<u64>()?, signals.device_counter::<u64>()?);
    ready.add(1);
    ready.wait_on(&stream, 1)?;
    question.wait_on(&stream, Comparison::NotAllBits, 1)?;
    done.store_on(&stream, 5)?;
    stream.synchronize()?;
    assert_eq!(done.wait(5, &WaitPolicy::default())?, 5);
    let (mut to, mut from) = (signals.ring_to_device::<u64>(8)?, signals.ring_from_device::<u64>(8)?);
    assert_eq!(to.push_slice(&[1, 2, 3])?, 3);
    to.close();
    kernels.echo_ring(&to, &from, patience, &stream)?;
    kernels.nothing(&stream)?;
    stream.synchronize()?;
    let mut items = [0; 4];
    assert_eq!((from.receive(&mut items, &WaitPolicy::default())?, items), (3, [1, 2, 3, 0]));
    // Whatever fails, dropping a flag must release the stream that waits for it.
    let late = signals.flag::<u32>(Waiter::Device)?;
    late.wait_on(&stream, Comparison::Equal, 9)?;
    ready.wait_on(&stream, 2)?;
    // The stream stays in the first wait until this drop, so that each run makes the same number of calls.
    drop(ready);
    drop(late);
    match stream.synchronize() {
        Err(Error::Signal(told)) if matches!(*told, SignalError::Abandoned { .. }) => Ok(stream.synchronize()?),
        Err(error) => Err(error.into()),
        Ok(()) => panic!("no stream got an error"),
    }
}

/// Frames of pinned and of mapped memory: copies, uses by kernels, waits, abandoned frames, a ring that ends before its
/// frames.
pub fn frames(driver: &Driver) -> Outcome {
    let context = driver.device(0)?.create_context()?;
    let consumer = Stream::new(&context)?;
    let signals = Signals::new(&context)?;
    let mut arrived = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 100, &consumer)?;
    let atoms = MappedMemory::with_coherence(&context, CoherencePolicy::ForcedNonCoherent)?;
    for resource in [PinnedMemory::new(&context).share(), atoms.share()] {
        let ring = FrameRing::new(&resource, &signals, 2, 100)?;
        for number in 1..=4u8 {
            let mut frame = ring.next()?;
            arrived.copy_from_frame(0, &frame, ..)?;
            frame.write(.., |bytes| bytes.fill(number))?;
            frame.flush(..10)?;
            frame.publish().map_err(Error::from)?;
            // Whatever failed, a reader that gets no error must see the frame.
            same("the frame", &arrived.to_vec()?, &[number; 100])?;
        }
        let frame = ring.next_with(&WaitPolicy::within(std::time::Duration::from_secs(10)))?;
        frame.wait_on(&consumer)?;
        frame.record_use(&consumer)?;
        drop(frame);
        if let Ok(()) = consumer.synchronize() {
            return Err("no stream got an error about the abandoned frame".into());
        }
        let mut open = ring.next()?;
        open.store(0, &[9; 100])?;
        arrived.copy_from_frame(0, &open, ..)?;
        open.flush(..)?;
        drop((ring, open));
        if let Ok(()) = consumer.synchronize() {
            return Err("no stream got an error about the ring's end".into());
        }
    }
    Ok(())
}
