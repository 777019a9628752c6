//! Access between devices, rings of staging, and pools that grow.

use super::hold;
use cuda_mem::buffer::{BatchOptions, CopyBatch, PeerRoute};
use cuda_mem::cuda_sys::CUresult;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, ResourceHandle, SharedResource, VirtualMemory,
    VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool, WhenFull};
use cuda_mem::view::Index;
use cuda_mem::{Buffer, Context, Error, Stream, Topology, waiting};
use softgpu::{Fault, When};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{Setup, alone, in_time, joined, pattern, same};

/// Threads that copy, more than there are processors, so that some rest in the middle of a copy.
const COPIERS: usize = 8;
/// How long each of them copies at most.
const WHILE: Duration = Duration::from_secs(2);
/// How many times each of them copies.
const ROUNDS: usize = 64;

/// One of two devices that access each other.
struct Side {
    context: Context,
    stream: Stream,
}

impl Side {
    fn new(setup: &Setup, ordinal: i32) -> Result<Self, Error> {
        let context = setup.driver.device(ordinal)?.primary_context()?;
        Ok(Self { stream: Stream::new(&context)?, context })
    }

    fn plain(&self) -> SharedResource {
        DeviceMemory::new(&self.context).share()
    }

    /// A source for each call that gives access.
    fn sources(&self) -> Result<[(&'static str, SharedResource); 3], Error> {
        Ok([
            ("plain memory", self.plain()),
            ("the driver's pool", DevicePool::new(&self.context, &DriverPoolOptions::default())?.share()),
            ("virtual memory", VirtualMemory::new(&self.context, &VirtualOptions::default())?.share()),
        ])
    }
}

/// Runs a program that may hang with two devices, if they access each other.
fn with_two(test: impl FnOnce(&Setup, &Side, &Side) -> Outcome + Send + 'static) -> Outcome {
    alone(|setup| {
        if setup.driver.device_count()? < 2 || !Topology::of(&setup.driver)?.is_mesh() {
            println!("skipped: two devices that access each other are needed (nvidia-smi topo -p2p r)");
            return Ok(());
        }
        in_time(setup, |setup| test(setup, &Side::new(setup, 0)?, &Side::new(setup, 1)?))
    })
}

/// Whether driver calls can be made to fail. Otherwise says that the test is skipped.
fn can_fail(setup: &Setup) -> bool {
    if !setup.is_software() {
        println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
    }
    setup.is_software()
}

/// Makes driver calls fail until the result is dropped.
fn failing(faults: impl IntoIterator<Item = Fault>) -> impl Drop {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            softgpu::faults([]);
        }
    }
    softgpu::faults(faults);
    End
}

/// Copies in each way that uses access for a while, and compares what arrived.
fn copy_in_all_ways(near: &Side, memory: &Buffer<u8, Any>, bytes: &[u8]) -> Outcome {
    let stream = Stream::new(&near.context)?;
    let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3000, &stream)?;
    let begin = Instant::now();
    for n in (0..ROUNDS).take_while(|_| begin.elapsed() < WHILE) {
        let view = memory.view(&[60, 100])?.sliced(&[Index::ALL, Index::ALL.step(2)])?;
        copy.view_mut(&[60, 50])?.copy_from(&view)?;
        if n % 8 == 0 {
            let even: Vec<u8> = bytes.iter().copied().step_by(2).collect();
            same("a strided view", &copy.to_vec()?, &even)?;
            copy.copy_from_buffer(0, memory, ..3000)?;
            same("a copy", &copy.to_vec()?, &bytes[..3000])?;
            let mut batch = CopyBatch::new(&stream);
            batch.copy(&mut copy, 0, memory, 3000..)?;
            batch.submit()?;
            same("a batch", &copy.to_vec()?, &bytes[3000..])?;
        }
    }
    Ok(())
}

/// Lets threads copy while this one changes access again and again, until all have copied.
fn copy_beside_changes(
    name: &str,
    copy: impl Fn() -> Outcome + Sync,
    change: impl Fn() -> Result<(), Error>,
) -> Outcome {
    let left = AtomicUsize::new(COPIERS);
    let (copied, changed) = thread::scope(|scope| {
        let copying = [(); COPIERS].map(|()| {
            scope.spawn(|| {
                let copied = copy().map_err(|error| error.to_string());
                left.fetch_sub(1, Ordering::Release);
                copied
            })
        });
        let mut changed = Ok(());
        while left.load(Ordering::Acquire) > 0 && changed.is_ok() {
            changed = change();
        }
        (joined(copying), changed)
    });
    copied.map_err(|error| format!("{name}: {error}"))?;
    Ok(changed?)
}

// Hole D.
#[test]
fn copies_between_devices_go_on_while_access_is_denied() -> Outcome {
    with_two(|_, near, far| {
        let bytes = pattern(6000, 5);
        for (name, source) in far.sources()? {
            let memory = Buffer::from_slice(&source, &bytes, &far.stream)?;
            let deny = || source.deny_access(near.context.device());
            let change = || deny().and_then(|()| source.allow_access(near.context.device()));
            copy_beside_changes(name, || copy_in_all_ways(near, &memory, &bytes), change)?;
            let copy = Buffer::<u8, _>::zeroed(&near.plain(), 1, &near.stream)?;
            assert_eq!(memory.route_to(&copy), PeerRoute::Direct, "{name}");
        }
        Ok(())
    })
}

/// Copies near memory to a device by a stream of that device, and compares what arrived.
fn copy_to(far: &Side, source: &SharedResource, near: &Buffer<u8, Any>, bytes: &[u8]) -> Outcome {
    let mut there = Buffer::<u8, _>::zeroed(source, bytes.len(), &Stream::new(&far.context)?)?;
    let begin = Instant::now();
    for _ in (0..4 * ROUNDS).take_while(|_| begin.elapsed() < WHILE) {
        there.copy_from_buffer(0, near, ..)?;
    }
    same("a copy to the other device", &there.to_vec()?, bytes)?;
    Ok(())
}

// A change of access to the destination breaks a copy, too.
#[test]
fn copies_to_memory_go_on_while_access_to_it_changes() -> Outcome {
    with_two(|_, near, far| {
        let bytes = pattern(6000, 7);
        let memory = Buffer::from_slice(&near.plain(), &bytes, &near.stream)?;
        for (name, source) in far.sources()? {
            let allow = || source.allow_access(near.context.device());
            let change = || allow().and_then(|()| source.deny_access(near.context.device()));
            copy_beside_changes(name, || copy_to(far, &source, &memory, &bytes), change)?;
        }
        Ok(())
    })
}

// Hole D.
#[test]
fn a_batch_does_without_access_that_was_denied_since() -> Outcome {
    with_two(|_, near, far| {
        for (name, source) in far.sources()? {
            let bytes = pattern(1000, 2);
            let memory = Buffer::from_slice(&source, &bytes, &far.stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 1000, &near.stream)?;
            let mut own = Buffer::<u8, _>::zeroed(&near.plain(), 5, &near.stream)?;
            let five = Buffer::from_slice(&near.plain(), &[1u8, 2, 3, 4, 5], &near.stream)?;
            let mut batch = CopyBatch::new(&near.stream);
            batch.copy(&mut copy, 0, &memory, ..)?;
            batch.copy(&mut own, 0, &five, ..)?;
            source.deny_access(near.context.device())?;
            assert_eq!(batch.len(), 2);
            batch.submit()?;
            same(name, &copy.to_vec()?, &bytes)?;
            same(name, &own.to_vec()?, &[1, 2, 3, 4, 5])?;
            source.allow_access(near.context.device())?;
            let mut options = BatchOptions::default();
            options.require_direct = true;
            let mut batch = CopyBatch::with_options(&near.stream, options);
            batch.copy(&mut copy, 0, &memory, ..)?;
            source.deny_access(near.context.device())?;
            assert!(matches!(batch.submit(), Err(Error::Peer(_))), "{name}");
        }
        Ok(())
    })
}

/// Makes all calls of a function fail until the result is dropped.
fn failing_each(function: &str, code: CUresult) -> impl Drop {
    let mut each = Fault::call(function, 1, code);
    each.when = When::Every(1);
    failing([each])
}

/// The k-th call of a function does its work, and fails nevertheless.
fn failing_after(function: &str, k: u64) -> Fault {
    Fault { after: true, ..Fault::call(function, k, CUresult::CUDA_ERROR_UNKNOWN) }
}

/// Runs a program on another thread, and waits for it, as a hook may.
fn elsewhere<R: Send>(program: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(program).join().expect("it does not panic"))
}

#[test]
fn a_denial_holds_for_all_values_of_a_pool() -> Outcome {
    with_two(|_, near, far| {
        let [one, other] = [DevicePool::current(&far.context)?, DevicePool::current(&far.context)?];
        let memory = Buffer::from_slice(&one, &[1u8, 2, 3], &far.stream)?;
        let copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
        assert_eq!(memory.route_to(&copy), PeerRoute::Direct);
        other.deny_access(near.context.device())?;
        assert_eq!(memory.route_to(&copy), PeerRoute::ThroughHost);
        one.allow_access(near.context.device())?;
        assert_eq!(memory.route_to(&copy), PeerRoute::Direct);
        other.deny_access(near.context.device())?;
        Ok(())
    })
}

// Hole I.
#[test]
fn the_hook_of_a_failed_verification_asks_for_routes() -> Outcome {
    with_two(|setup, near, far| {
        if !can_fail(setup) {
            return Ok(());
        }
        let pool = DevicePool::new(&far.context, &DriverPoolOptions::default())?;
        let memory = Buffer::from_slice(&pool, &[1u8, 2, 3], &far.stream)?.into_shared();
        let copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?.into_shared();
        let (tell, told) = channel();
        let (from, to) = (memory.clone(), copy.clone());
        far.context.set_drop_error_hook(Some(Arc::new(move |error| {
            let routes = (from.route_to(&to), elsewhere(|| from.route_to(&to)));
            let _ = tell.send((error.doing, routes));
        })));
        // The second free is that of the pool's block.
        let failing = failing([failing_after("cuMemFreeAsync", 2)]);
        let route = memory.route_to(&copy);
        drop(failing);
        assert_eq!(route, PeerRoute::Direct);
        far.context.set_drop_error_hook(None);
        let expected = ("freeing memory of a test copy", (PeerRoute::Direct, PeerRoute::Direct));
        assert_eq!(told.iter().collect::<Vec<_>>(), [expected]);
        Ok(())
    })
}

// Hole R.
#[test]
fn copies_ask_again_for_access_that_lacked_memory() -> Outcome {
    with_two(|setup, near, far| {
        if !can_fail(setup) {
            return Ok(());
        }
        for (name, source) in far.sources()? {
            let memory = Buffer::from_slice(&source, &[1u8, 2, 3], &far.stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
            let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
            for function in
                ["cuMemAlloc_v2", "cuMemcpyAsync", "cuMemPoolSetAccess", "cuMemSetAccess", "cuCtxEnablePeerAccess"]
            {
                let failing = failing_each(function, code);
                let route = memory.route_to(&copy);
                let met = softgpu::injected() > 0;
                drop(failing);
                assert!(
                    !met || route == PeerRoute::ThroughHost,
                    "{name}: {function} failed, and the route is {route:?}"
                );
                copy.copy_from_buffer(0, &memory, ..)?;
                assert_eq!(
                    (memory.route_to(&copy), copy.to_vec()?),
                    (PeerRoute::Direct, vec![1, 2, 3]),
                    "{name}: {function}"
                );
                // From here on, access must be given anew.
                source.deny_access(near.context.device())?;
                assert_eq!(memory.route_to(&copy), PeerRoute::ThroughHost, "{name}");
                let failing = failing_each(function, code);
                let allowed = source.allow_access(near.context.device());
                assert_eq!(allowed.is_err(), softgpu::injected() > 0, "{name}: {function}: {allowed:?}");
                drop(failing);
            }
        }
        Ok(())
    })
}

/// Learns of the waits that take longer than a moment, until it is dropped.
struct SlowWaits(Receiver<Box<str>>);

impl SlowWaits {
    fn new() -> Self {
        let (tell, told) = channel();
        waiting::set_hook(Some(Arc::new(move |wait| {
            let _ = tell.send(wait.to_string().into());
        })));
        waiting::set_limit(Some(Duration::from_millis(5)));
        Self(told)
    }
}

impl Drop for SlowWaits {
    fn drop(&mut self) {
        waiting::set_limit(Some(waiting::DEFAULT_LIMIT));
        waiting::set_hook(None);
    }
}

#[test]
fn a_denial_waits_for_copies_between_devices() -> Outcome {
    with_two(|_, near, far| {
        for (name, source) in far.sources()? {
            let memory = Buffer::from_slice(&source, &[1u8, 2, 3], &far.stream)?;
            let mut copy = Buffer::<u8, _>::zeroed(&near.plain(), 3, &near.stream)?;
            assert_eq!(memory.route_to(&copy), PeerRoute::Direct, "{name}");
            let open = hold(&near.stream)?;
            copy.copy_from_buffer(0, &memory, ..)?;
            let waits = SlowWaits::new();
            thread::scope(|scope| {
                let denying = scope.spawn(|| source.deny_access(near.context.device()));
                while waits.0.try_recv().is_err() && !denying.is_finished() {
                    thread::yield_now();
                }
                let is_early = denying.is_finished();
                drop(open);
                assert!(!is_early, "{name}: the denial did not wait");
                denying.join().expect("it does not panic")
            })?;
            same(name, &copy.to_vec()?, &[1, 2, 3])?;
        }
        Ok(())
    })
}

// Hole E.
#[test]
fn a_ring_is_used_while_an_allocation_waits_for_it() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let memory = PinnedMemory::new(&setup.context);
            let (busy, idle) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let mut at_most = RingOptions::default();
            at_most.when_full = WhenFull::WaitAtMost(testkit::LIMIT);
            for options in [RingOptions::default(), at_most] {
                let ring = RingPool::new(&memory, 4096, &options)?;
                let first = Buffer::<u8, _>::zeroed(&ring, 2048, &busy)?;
                let second = Buffer::<u8, _>::zeroed(&ring, 1024, &idle)?;
                busy.synchronize()?;
                let waits = SlowWaits::new();
                let open = hold(&busy)?;
                drop(first);
                thread::scope(|scope| {
                    let allocating = scope.spawn(|| Buffer::<u8, _>::uninit(&ring, 2048, &idle).map(drop));
                    waits.0.recv()?;
                    assert_eq!(ring.statistics().blocks, 1);
                    drop(second);
                    assert_eq!(ring.statistics().blocks, 0);
                    let small = Buffer::<u8, _>::uninit(&ring, 512, &idle)?;
                    drop(small);
                    drop(open);
                    allocating.join().expect("it does not panic")?;
                    Ok::<(), Box<dyn std::error::Error>>(())
                })?;
                let third = Buffer::<u8, _>::uninit(&ring, 1024, &busy)?;
                let open = hold(&busy)?;
                drop(third);
                while waits.0.try_recv().is_ok() {}
                thread::scope(|scope| {
                    let synchronizing = scope.spawn(|| ring.synchronize());
                    waits.0.recv()?;
                    assert_ne!(ring.statistics().pending, 0);
                    drop(open);
                    synchronizing.join().expect("it does not panic")?;
                    Ok::<(), Box<dyn std::error::Error>>(())
                })?;
                assert_eq!(ring.statistics().pending, 0);
            }
            Ok(())
        })
    })
}

// Hole J.
#[test]
fn the_hook_of_a_failed_release_uses_the_pool() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let pool = Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?;
            let buffer = Buffer::<u8, _>::uninit(&pool, 40 << 20, &stream)?;
            let (tell, told) = channel();
            let (hooks, hooks_stream) = (pool.clone(), stream.clone());
            setup.context.set_drop_error_hook(Some(Arc::new(move |error| {
                let grow = || Buffer::<u8, _>::uninit(&hooks, 60 << 20, &hooks_stream).map(drop);
                let _ = tell.send((error.doing, elsewhere(grow).and(grow())));
            })));
            drop(buffer);
            stream.synchronize()?;
            let failing = failing([failing_after("cuMemRelease", 1)]);
            pool.release_unused()?;
            assert!(softgpu::injected() > 0);
            drop(failing);
            setup.context.set_drop_error_hook(None);
            assert_eq!(told.iter().collect::<Vec<_>>(), [("releasing physical memory", Ok(()))]);
            assert_eq!(setup.context.take_drop_errors().errors.len(), 1);
            Ok(())
        })
    })
}
