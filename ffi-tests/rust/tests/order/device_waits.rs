//! Calls that wait for the whole device while queued work waits for the CPU. Each part runs in its own process with a
//! time limit, so a hang is a failure. Runs over the driver that the environment names.

use cuda_mem::buffer::CopyBatch;
use cuda_mem::copy::CopyEngine;
use cuda_mem::memory::{
    DeviceMemory, DriverPoolOptions, ManagedMemory, PinnedMemory, PinnedPool, RegisterOptions, RegisteredMemory,
    ResourceHandle, kind,
};
use cuda_mem::view::{Order, StridedLayout, StridedView};
use cuda_mem::{Buffer, Context, Error, Event, MappedMemory, Stream, StreamOptions};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{Setup, hold, in_its_own_process, softgpu_leaks, test_name};

/// Longer than any part takes, unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// Long enough for other threads to enter their calls.
const SOON: Duration = Duration::from_millis(100);

/// Runs an ignored test in its own process.
fn ends(part: &str) {
    let mut child = in_its_own_process(part).stdin(Stdio::null()).spawn().expect("the program starts");
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("the process is ours") {
            Some(status) => break Some(status),
            None if begin.elapsed() > LIMIT => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if status.is_none() {
        child.kill().expect("the process is ours");
        child.wait().expect("the process is ours");
    }
    let status = status.unwrap_or_else(|| panic!("{part} hung"));
    assert!(status.success(), "{part}: {status}");
}

/// Turns each part into a test that runs it in its own process.
macro_rules! parts {
    ($($(#[doc = $doc:literal])* fn $name:ident($setup:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                ends(&test_name!(concat!("parts::", stringify!($name))));
            }
        )*

        mod parts {
            use super::*;

            $(
                $(#[doc = $doc])*
                #[test]
                #[ignore = "may hang: the test of the same name runs it"]
                fn $name() -> Outcome {
                    let made = Setup::from_environment()?;
                    let run = |$setup: &Setup| -> Outcome { $body };
                    run(&made)?;
                    made.context.synchronize()?;
                    assert_eq!(made.context.take_drop_errors().errors, []);
                    assert_eq!(softgpu_leaks(made), None);
                    Ok(())
                }
            )*
        }
    };
}

/// One buffer of each kind of plain memory. The free of some of them waits for the device.
fn plain_memory(context: &Context, home: &Stream) -> Result<Vec<Box<dyn std::any::Any + Send>>, Error> {
    let registered = RegisteredMemory::new(context, vec![0u8; 1 << 16], RegisterOptions::default())?;
    Ok(vec![
        Box::new(Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 1000, home)?),
        Box::new(Buffer::<u8, _>::zeroed(&PinnedMemory::new(context), 1000, home)?),
        Box::new(Buffer::<u8, _>::zeroed(&ManagedMemory::new(context)?, 1000, home)?),
        Box::new(registered.buffer(home)?),
        Box::new(registered),
    ])
}

/// Number of live allocations of plain memory, or `None` if the driver is not the software GPU.
fn live(setup: &Setup) -> Option<usize> {
    use softgpu::Kind;
    let plain = [Kind::DeviceMemory, Kind::HostMemory, Kind::ManagedMemory, Kind::RegisteredMemory, Kind::VkgdrMemory];
    let count = || softgpu::ledger().entries.iter().filter(|entry| plain.contains(&entry.kind)).count();
    setup.is_software().then(count)
}

parts! {
    /// Three tests of one program that ran at the same time on a machine with many cores and deadlocked.
    fn free_beside_a_blocked_host_function_does_not_deadlock(setup) {
        let context = &setup.context;
        let (held, idle) = (Stream::new(context)?, Stream::new(context)?);
        let memory = plain_memory(context, &idle)?;
        idle.synchronize()?;
        let open = hold(&held)?;
        std::thread::scope(|threads| {
            threads.spawn(|| drop(memory));
            std::thread::sleep(SOON);
            // The host function waits for what the main thread does after these calls.
            let (stream, event) = (Stream::new(context)?, Event::new(context)?);
            event.record(&stream)?;
            drop((event, stream));
            open.send(()).unwrap_or_default();
            Ok::<_, Error>(())
        })?;
        Ok(())
    }

    /// The driver waits within a copy to pageable memory, with its lock.
    fn a_copy_to_the_host_waits_for_a_thread_that_makes_an_event(setup) {
        let context = &setup.context;
        let home = Stream::new(context)?;
        let mut memory = Buffer::<u32, _>::zeroed(&DeviceMemory::new(context), 1000, &home)?;
        memory.copy_from_slice(0, &[7; 1000])?;
        let engine = CopyEngine::new(context)?;
        let to_vec = |memory: &Buffer<u32, _>| memory.to_vec();
        let by_engine = |memory: &Buffer<u32, _>| {
            let mut seen = vec![0; memory.len()];
            engine.read(memory, 0, &mut seen).map(|()| seen)
        };
        let by_view = |memory: &Buffer<u32, _>| {
            let mut seen = vec![0; memory.len()];
            let layout = StridedLayout::dense(&[20, 50], 4, Order::C)?;
            StridedView::of_mut_slice(&mut seen, layout)?.copy_from(&memory.view(&[20, 50])?)?;
            Ok(seen)
        };
        type Copy<'a> = &'a (dyn Fn(&Buffer<u32, kind::Device>) -> Result<Vec<u32>, Error> + Sync);
        for copy in [&to_vec as Copy<'_>, &by_engine, &by_view] {
            let open = hold(&home)?;
            let seen = std::thread::scope(|threads| {
                let copied = threads.spawn(|| copy(&memory));
                std::thread::sleep(SOON);
                let event = Event::new(context)?;
                open.send(()).unwrap_or_default();
                drop(event);
                copied.join().expect("a copy does not panic")
            })?;
            assert_eq!(seen, [7; 1000]);
        }
        Ok(())
    }

    /// As above, for copies within host memory, and for much pageable memory.
    fn a_copy_by_the_cpu_waits_for_a_thread_that_makes_an_event(setup) {
        const MANY: usize = 1 << 20;
        let context = &setup.context;
        let (home, engine) = (Stream::new(context)?, CopyEngine::new(context)?);
        let values = vec![7; MANY];
        type Copy<'a> = &'a (dyn Fn(&mut Buffer<u32, kind::Any>, &Buffer<u32, kind::Any>) -> Result<(), Error> + Sync);
        let copies: [Copy<'_>; 7] = [
            &|to, _| to.copy_from_slice(0, &values),
            &|to, _| engine.write(to, 0, &values),
            &|to, _| to.upload(0, values.clone()).map_err(|refused| refused.error)?.wait().map(drop),
            &|to, from| to.copy_from_buffer(0, from, ..),
            &|to, from| {
                let mut batch = CopyBatch::new(from.stream());
                batch.copy(to, 0, from, ..)?;
                batch.submit()
            },
            &|to, _| {
                let layout = StridedLayout::dense(&[1 << 10, 1 << 10], 4, Order::C)?;
                to.view_mut(&[1 << 10, 1 << 10])?.copy_from(&StridedView::of_slice(&values, layout)?)
            },
            &|to, _| {
                to.copy_from_slice(0, &values[..MANY / 2])?;
                to.copy_within(..MANY / 2, MANY / 2)
            },
        ];
        let sources = [DeviceMemory::new(context).share(), PinnedMemory::new(context).share()];
        for (to, from) in [(0, 1), (1, 1)] {
            let from = Buffer::<u32, kind::Any>::filled(&sources[from], MANY, 7, &home)?;
            let mut to = Buffer::<u32, kind::Any>::zeroed(&sources[to], MANY, &home)?;
            for (n, copy) in copies.into_iter().enumerate() {
                to.fill(.., 0)?;
                let open = hold(&home)?;
                std::thread::scope(|threads| {
                    let copied = threads.spawn(|| copy(&mut to, &from));
                    std::thread::sleep(SOON);
                    let event = Event::new(context)?;
                    open.send(()).unwrap_or_default();
                    drop(event);
                    copied.join().expect("a copy does not panic")
                })?;
                assert!(to.to_vec()?.iter().all(|value| *value == 7), "copy {n}");
            }
        }
        Ok(())
    }

    fn plain_memory_drop_is_deferred_while_a_stream_is_blocked(setup) {
        let context = &setup.context;
        let (held, idle) = (Stream::new(context)?, Stream::new(context)?);
        // The home stream may also be the waiting stream.
        for home in [&idle, &held] {
            let before = live(setup);
            let memory = plain_memory(context, home)?;
            home.synchronize()?;
            let open = hold(&held)?;
            drop(memory);
            // The memory must not be freed while work is pending.
            assert!(live(setup) > before || before.is_none());
            open.send(())?;
            // The call frees it, because no queued work waits for the CPU any more.
            context.synchronize()?;
            assert_eq!(live(setup), before);
        }
        Ok(())
    }

    /// The frees go into the streams. No driver call waits, and nothing is left for a quiet moment.
    fn device_and_pinned_memory_are_freed_while_their_stream_waits(setup) {
        let context = &setup.context;
        let held = Stream::new(context)?;
        let device = Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 1 << 20, &held)?;
        let pinned = Buffer::<u8, _>::zeroed(&PinnedMemory::new(context), 1 << 20, &held)?;
        held.synchronize()?;
        let open = hold(&held)?;
        softgpu::trace(if setup.is_software() { 1 << 10 } else { 0 });
        let begin = Instant::now();
        drop((device, pinned));
        assert!(begin.elapsed() < Duration::from_secs(1));
        let calls: Vec<_> = softgpu::take_trace().into_iter().map(|call| call.function).collect();
        softgpu::trace(0);
        let in_order = calls.iter().filter(|call| call.starts_with("cuMemFreeAsync")).count();
        assert!(!setup.is_software() || in_order == 2, "{calls:?}");
        let waits = ["cuMemFree_v2", "cuMemFreeHost", "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"];
        assert!(!calls.iter().any(|call| waits.contains(call)), "{calls:?}");
        open.send(())?;
        held.synchronize()?;
        assert!(live(setup).is_none_or(|live| live == 0));
        Ok(())
    }

    fn the_cpu_uses_new_pinned_memory_while_its_stream_waits(setup) {
        let context = &setup.context;
        let held = Stream::new(context)?;
        let memory = PinnedMemory::new(context);
        let former = Buffer::<u8, _>::zeroed(&memory, 1 << 20, &held)?;
        let bytes = former.device_pointer()..former.device_pointer() + (1 << 20);
        let open = hold(&held)?;
        // Its free is queued behind the work that waits, so the memory is nobody else's yet.
        drop(former);
        let begin = Instant::now();
        let new = Buffer::<u8, _>::uninit(&memory, 1 << 20, &held)?;
        // SAFETY: the CPU writes all bytes before it reads any.
        let mut new = unsafe { new.assume_init() };
        new.write(..)?.fill(7);
        assert_eq!(new.read(..)?[1000], 7);
        assert!(begin.elapsed() < Duration::from_secs(5));
        assert!(!bytes.contains(&new.device_pointer()));
        open.send(())?;
        assert_eq!(new.to_vec()?[1000], 7);
        Ok(())
    }

    /// The home stream is another context's, so a stream of the memory's context frees after it.
    fn memory_of_another_context_is_freed_while_its_stream_waits(setup) {
        let owned = setup.context.device().create_context()?;
        let held = Stream::new(&owned)?;
        let memory = Buffer::<u8, _>::uninit(&DeviceMemory::new(&setup.context), 1000, &held)?;
        let open = hold(&held)?;
        let begin = Instant::now();
        drop(memory);
        assert!(begin.elapsed() < Duration::from_secs(1));
        let queued = setup.context.memory_info()?.free;
        open.send(())?;
        held.synchronize()?;
        setup.context.synchronize()?;
        assert!(!setup.is_software() || setup.context.memory_info()?.free > queued);
        Ok(())
    }

    /// The driver waits for all work of a stream that ends, if plain memory was freed in its order before.
    fn a_stream_ends_without_a_wait_after_it_was_used_before(setup) {
        let context = &setup.context;
        context.reserve_streams(1)?;
        let (first, held) = (Stream::new(context)?, Stream::new(context)?);
        drop(Buffer::<u8, _>::uninit(&DeviceMemory::new(context), 1000, &first)?);
        assert!(first.is_done()?);
        let raw = first.raw();
        drop(first);
        let open = hold(&held)?;
        let again = Stream::new(context)?;
        assert_eq!(again.raw(), raw, "the stream comes from the reserve");
        again.wait(&held.record()?)?;
        let begin = Instant::now();
        drop(again);
        assert!(begin.elapsed() < Duration::from_secs(1));
        open.send(())?;
        Ok(held.synchronize()?)
    }

    fn a_pipeline_one_frame_ahead_runs_in_constant_memory(setup) {
        let context = &setup.context;
        let (work, gates) = (Stream::new(context)?, [Stream::new(context)?, Stream::new(context)?]);
        let mapped = MappedMemory::new(context).ok();
        context.set_postponed_limit(4 << 20);
        let mut open = hold(&gates[0])?;
        let mut most = 0;
        for round in 1..100 {
            // The next frame is held before this one is let go, so some stream always waits for the CPU.
            let next = hold(&gates[round % 2])?;
            open.send(())?;
            open = next;
            let frame = mapped.as_ref().map(|mapped| Buffer::<u8, _>::zeroed(mapped, 1 << 20, &work)).transpose()?;
            work.synchronize()?;
            drop(frame);
            most = most.max(live(setup).unwrap_or(0));
        }
        open.send(())?;
        // One frame in use, and one whose free waits.
        assert!(most <= 2, "{most} frames");
        Ok(())
    }

    fn what_was_dropped_is_freed_without_a_further_call(setup) {
        let (context, before) = (&setup.context, live(setup));
        let (held, idle) = (Stream::new(context)?, Stream::new(context)?);
        let memory = Buffer::<u8, _>::zeroed(&ManagedMemory::new(context)?, 1000, &idle)?;
        idle.synchronize()?;
        let open = hold(&held)?;
        drop(memory);
        assert!(live(setup) > before || before.is_none());
        open.send(())?;
        let begin = Instant::now();
        while live(setup) != before {
            assert!(begin.elapsed() < Duration::from_secs(10), "nobody frees it");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn beyond_the_limit_an_allocation_waits_for_frees(setup) {
        let context = &setup.context;
        let (held, idle) = (Stream::new(context)?, Stream::new(context)?);
        let memory = ManagedMemory::new(context)?;
        context.set_postponed_limit(1 << 20);
        let frame = || Buffer::<u8, _>::zeroed(&memory, 2 << 20, &idle);
        let (first, second) = (frame()?, frame()?);
        idle.synchronize()?;
        let open = hold(&held)?;
        drop(first);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                std::thread::sleep(SOON);
                open.send(()).unwrap_or_default();
            });
            let begin = Instant::now();
            let third = frame()?;
            assert!(begin.elapsed() >= SOON / 2, "it waits");
            drop(third);
            Ok::<_, Error>(())
        })?;
        let open = hold(&held)?;
        drop(second);
        let refused = frame().expect_err("the first frame cannot be freed");
        let (Error::OutOfMemory { requested, .. }, text) = (&refused, refused.to_string()) else { panic!("{refused}") };
        assert_eq!(*requested, 2 << 20);
        let stream = format!("stream {:#x} waits for the end of a host function", held.raw().addr());
        assert!(text.contains(&stream) && text.contains("limit is 1048576 bytes"), "{text}");
        open.send(())?;
        held.synchronize()?;
        frame().map(drop)?;
        Ok(())
    }

    fn a_close_of_plain_memory_returns_and_frees_later(setup) {
        let stream = Stream::new(&setup.context)?;
        let memory = ManagedMemory::new(&setup.context)?;
        let buffer = Buffer::<u8, _>::zeroed(&memory, 1000, &stream)?;
        stream.synchronize()?;
        let open = hold(&stream)?;
        buffer.close()?;
        open.send(())?;
        stream.synchronize()?;
        // The next allocation frees it too.
        let other = Buffer::<u8, _>::zeroed(&memory, 1000, &stream)?;
        assert!(live(setup).is_none_or(|live| live == 1));
        drop(other);
        Ok(())
    }

    fn mapped_memory_drop_does_not_wait_for_a_blocked_stream(setup) {
        let resource = match MappedMemory::new(&setup.context) {
            Ok(resource) => resource,
            Err(error) => {
                println!("skipped: no mapped memory ({error})");
                return Ok(());
            }
        };
        let stream = Stream::new(&setup.context)?;
        let memory = testkit::mapped(&resource, 1000)?;
        let open = hold(&stream)?;
        drop(memory);
        open.send(())?;
        Ok(())
    }

    fn pinned_pool_trims_while_a_stream_waits_for_this_thread(setup) {
        let (held, idle) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut options = DriverPoolOptions::default();
        options.release_threshold = 0;
        let pool = match PinnedPool::new(&setup.context, &options) {
            Err(error @ Error::Unsupported { .. }) => {
                println!("skipped: {error}");
                return Ok(());
            }
            pool => pool?,
        };
        let buffer = Buffer::<u8, _>::zeroed(&pool, 1 << 20, &idle)?;
        idle.synchronize()?;
        let open = hold(&held)?;
        drop(buffer);
        pool.trim_to(0)?;
        drop(pool);
        open.send(())?;
        Ok(())
    }

    /// A kernel is first used while a stream waits for the thread that uses it.
    fn buffers_are_compared_first_while_a_stream_waits(setup) {
        let (held, idle) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let memory = DeviceMemory::new(&setup.context);
        let one = Buffer::from_slice(&memory, &[1u8; 1000], &idle)?;
        let other = Buffer::from_slice(&memory, &[1u8; 1000], &idle)?;
        let open = hold(&held)?;
        assert!(one.equals(&other)?);
        open.send(())?;
        Ok(())
    }

    fn kernels_are_loaded_on_request(setup) {
        setup.context.load_kernels()?;
        let stream = Stream::new(&setup.context)?;
        let memory = DeviceMemory::new(&setup.context);
        let one = Buffer::from_slice(&memory, &[1u8; 1000], &stream)?;
        assert!(one.equals(&Buffer::from_slice(&memory, &[1u8; 1000], &stream)?)?);
        Ok(())
    }

    /// The wait for all work must not hold a lock that the other thread's calls need.
    fn context_synchronize_does_not_block_calls_of_other_threads(setup) {
        let context = &setup.context;
        let held = Stream::new(context)?;
        let open = hold(&held)?;
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| context.synchronize());
            std::thread::sleep(SOON);
            drop(Stream::new(context)?);
            drop(Buffer::<u8, _>::zeroed(&DeviceMemory::new(context), 1000, &Stream::new(context)?)?);
            open.send(()).unwrap_or_default();
            waiter.join().expect("no panic")
        })?;
        assert!(held.is_done()?);
        Ok(())
    }

    /// A drop that finds another thread destroying something leaves its own object to that thread.
    fn a_context_ends_while_other_threads_destroy_streams(setup) {
        let owned = setup.context.device().create_context()?;
        let held = Stream::new(&owned)?;
        let open = hold(&held)?;
        let ended = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // The end of the context waits for the host function.
                drop((held, owned));
                ended.store(true, Ordering::Release);
            });
            std::thread::sleep(SOON);
            for _ in 0..10 {
                drop((Stream::new(&setup.context)?, Event::new(&setup.context)?));
            }
            assert!(!ended.load(Ordering::Acquire));
            open.send(()).unwrap_or_default();
            Ok::<_, Error>(())
        })?;
        assert!(ended.load(Ordering::Acquire));
        Ok(())
    }

    /// The last value of a context must free the deferred memory, after its work is done.
    fn context_drop_frees_deferred_memory_first(setup) {
        let owned = setup.context.device().create_context()?;
        let stream = Stream::new(&owned)?;
        let memory = plain_memory(&owned, &stream)?;
        let open = hold(&stream)?;
        drop((memory, stream));
        std::thread::scope(|threads| {
            threads.spawn(|| drop(owned));
            std::thread::sleep(SOON);
            open.send(()).unwrap_or_default();
        });
        Ok(())
    }

    /// A panic in a host function also ends the host function's wait.
    fn frees_go_on_after_a_host_function_panicked(setup) {
        let stream = Stream::new(&setup.context)?;
        let before = live(setup);
        let buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 1000, &stream)?;
        stream.launch_host_function(|| {
            std::thread::sleep(SOON);
            panic!("on purpose");
        })?;
        drop(buffer);
        setup.context.synchronize()?;
        assert_eq!(live(setup), before);
        assert_eq!(setup.context.take_drop_errors().errors.len(), 1);
        Ok(())
    }
}

/// This needs a small device, which only the software GPU can be.
#[test]
fn allocation_waits_for_a_deferred_free_before_out_of_memory() {
    ends(&test_name!("runs_out"));
}

#[test]
#[ignore = "may hang: the test above runs it"]
fn runs_out() -> Outcome {
    const SIZE: usize = 60 << 20;
    if std::env::var_os("CUDA_MEM_LIBCUDA").is_some_and(|library| library != "softgpu") {
        println!("skipped: needs the software GPU with 100 MiB of memory");
        return Ok(());
    }
    softgpu::configure(softgpu::Settings { memory: 100 << 20, ..Default::default() })?;
    let driver = cuda_mem::Driver::software()?;
    let context = driver.device(0)?.primary_context()?;
    let stream = Stream::new(&context)?;
    let memory = DeviceMemory::new(&context);
    // A free on the legacy default stream would hold up blocking streams, so it is put off.
    let mut options = StreamOptions::default();
    options.blocking = true;
    let open = hold(&Stream::with_options(&context, options)?)?;
    let first = Buffer::<u8, _>::zeroed(&memory, SIZE, &Stream::legacy_default(&context))?;
    drop(first);
    let refused = Buffer::<u8, _>::uninit(&memory, SIZE, &stream).map(drop);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    open.send(())?;
    Stream::legacy_default(&context).synchronize()?;
    let second = Buffer::<u8, _>::uninit(&memory, SIZE, &stream)?;
    // A free in a stream that waits is done soon. The next allocation waits for it.
    let open = hold(&stream)?;
    drop(second);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(SOON);
            open.send(()).unwrap_or_default();
        });
        drop(Buffer::<u8, _>::uninit(&memory, SIZE, &Stream::new(&context)?)?);
        Ok(())
    })
}
