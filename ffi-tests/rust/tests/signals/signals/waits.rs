//! Waits of the CPU and of streams.

use super::{Bench, PATIENCE, patient};
use cuda_mem::graph::CaptureMode;
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::signal::{Comparison, SignalError, SignalWord, WaitPolicy, Waiter};
use cuda_mem::{Error, Feature, Stream, Support};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{alone, delay};

#[test]
fn waits_that_are_in_vain_end_in_time_and_say_what_they_saw() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let brief = WaitPolicy::within(Duration::from_millis(30));
        let flag = bench.signals.flag::<u32>(Waiter::Cpu)?;
        flag.store(0x12);
        let start = Instant::now();
        let error = flag.wait(Comparison::Equal, 0x34, &brief).expect_err("nobody writes it");
        assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
        match &error {
            Error::Signal(error) => match &**error {
                SignalError::TimedOut { wanted, seen, waited, .. } => {
                    assert_eq!((*wanted, *seen), (0x34, 0x12));
                    assert!(*waited >= Duration::from_millis(30));
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
        let text = error.to_string();
        for part in ["Flag::wait", "pinned memory is 0x12", "equal to 0x34"] {
            assert!(text.contains(part), "{text}");
        }
        let counter = bench.signals.device_counter::<u64>()?;
        let text = counter.wait(7, &brief).expect_err("nobody counts").to_string();
        assert!(text.contains("DeviceCounter::wait") && text.contains("at least 0x7"), "{text}");

        let mut to = bench.signals.ring_to_device::<u64>(2)?;
        let text = to.send(&[1, 2, 3], &brief).expect_err("nobody pops").to_string();
        assert!(text.contains("Producer::send") && text.contains("full ring is 0x0"), "{text}");
        assert_eq!(to.room()?, 0, "the items that had room were pushed");
        let mut from = bench.signals.ring_from_device::<u64>(2)?;
        let text = from.receive(&mut [0], &brief).expect_err("nobody pushes").to_string();
        assert!(text.contains("Consumer::receive") && text.contains("empty ring is 0x0"), "{text}");
        Ok(())
    })
}

#[test]
fn a_long_wait_leaves_the_processor_to_others() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let flag = bench.signals.flag::<u32>(Waiter::Cpu)?;
        let time = || {
            let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the result is writable.
            unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let before = time();
        assert!(flag.wait(Comparison::Equal, 1, &WaitPolicy::within(Duration::from_millis(500))).is_err());
        let used = time() - before;
        assert!(used < Duration::from_millis(200), "{used:?} of 500 ms");
        Ok(())
    })
}

#[test]
fn another_thread_wakes_a_wait() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        for placement in &bench.placements {
            let flag = bench.signals.flag_in::<u64>(*placement)?;
            let clone = flag.clone();
            let writer = thread::spawn(move || {
                thread::sleep(Duration::from_millis(20));
                clone.store(0xffff_0000_0000_0000);
            });
            assert_eq!(flag.wait(Comparison::AnyBit, 1 << 63, &patient())?, 0xffff_0000_0000_0000);
            writer.join().map_err(|_| "the writer panicked")?;
        }
        Ok(())
    })
}

/// Checks that a stream's wait passes exactly when `Comparison::holds` says so, for one word width.
fn stream_waits<W: SignalWord>(bench: &Bench, words: &[W]) -> Outcome {
    for placement in &bench.placements {
        let flag = bench.signals.flag_in::<W>(*placement)?;
        for comparison in Comparison::ALL {
            let device = bench.signals.context().device();
            if comparison == Comparison::NotAllBits && device.supports(Feature::StreamWaitNotAllBits)? == Support::No {
                continue;
            }
            for value in words.iter().copied().filter(|value| comparison.can_hold(*value)) {
                for word in words.iter().copied().filter(|word| comparison.holds(*word, value)) {
                    flag.store(word);
                    flag.wait_on(&bench.stream, comparison, value)?;
                    bench.stream.synchronize()?;
                }
                let Some(other) = words.iter().copied().find(|word| !comparison.holds(*word, value)) else { continue };
                let Some(good) = words.iter().copied().find(|word| comparison.holds(*word, value)) else { continue };
                flag.store(other);
                flag.wait_on(&bench.stream, comparison, value)?;
                let (sender, receiver) = mpsc::channel();
                bench.stream.launch_host_function(move || sender.send(()).unwrap_or_default())?;
                let early = receiver.recv_timeout(Duration::from_millis(3));
                assert!(early.is_err(), "{comparison:?} {value:?} held for {other:?}");
                flag.store(good);
                receiver.recv_timeout(PATIENCE).map_err(|_| format!("{comparison:?} {value:?}: not for {good:?}"))?;
            }
        }
    }
    Ok(())
}

#[test]
fn streams_wait_as_the_cpu_compares() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        stream_waits(&bench, &[0u32, 1, 6, 0x8000_0000, u32::MAX])?;
        stream_waits(&bench, &[0u64, 6, 1 << 32, 1 << 63, u64::MAX])
    })
}

#[test]
fn what_can_never_come_is_refused_before_anything_waits() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        for (comparison, value) in [(Comparison::AnyBit, 0), (Comparison::NotAllBits, u32::MAX)] {
            for error in [
                flag.wait(comparison, value, &WaitPolicy::default()).expect_err("it never comes"),
                flag.wait_on(&bench.stream, comparison, value).expect_err("it never comes"),
            ] {
                assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
                assert!(error.to_string().contains("never end"), "{error}");
            }
        }
        Ok(bench.stream.synchronize()?)
    })
}

#[test]
fn streams_and_the_cpu_take_turns() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let other = Stream::new(&setup.context)?;
        let signals = &bench.signals;
        let (mut ready, done) = (signals.counter::<u64>()?, signals.device_counter::<u64>()?);
        let between = signals.flag::<u32>(Waiter::Device)?;
        let steps = Arc::new(AtomicU32::new(0));
        for piece in 1..=20u32 {
            ready.wait_on(&bench.stream, piece.into())?;
            let seen = steps.clone();
            bench.stream.launch_host_function(move || {
                seen.fetch_add(1, Ordering::Relaxed);
            })?;
            between.store_on(&bench.stream, piece)?;
            between.wait_on(&other, Comparison::AtLeast, piece)?;
            done.store_on(&other, piece.into())?;
        }
        for piece in 1..=20u32 {
            assert_eq!(done.value(), u64::from(piece) - 1, "nothing continues before it is ready");
            if piece == 7 {
                delay(&other)?;
            }
            ready.add(1);
            done.wait(piece.into(), &patient())?;
            assert!(steps.load(Ordering::Relaxed) >= piece, "earlier work of the stream is done");
        }
        assert_eq!(ready.value(), 20);
        other.synchronize()?;
        Ok(())
    })
}

/// Stores the data first, then the flag. After the flag, a copy on the stream must read that data.
#[test]
fn stream_that_sees_a_flag_reads_the_data_stored_before_it() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let Ok(resource) = MappedMemory::with_coherence(&setup.context, CoherencePolicy::Required) else {
            println!("without coherent mapped memory nothing needs ordering");
            return Ok(());
        };
        let data = testkit::mapped(&resource, 4096)?.cast::<u32>()?.into_shared();
        let (go, done) = (bench.signals.flag::<u32>(Waiter::Device)?, bench.signals.flag::<u32>(Waiter::Cpu)?);
        let target = cuda_mem::Buffer::<u32, _>::zeroed(
            &cuda_mem::memory::PinnedMemory::new(&setup.context),
            1024,
            &bench.stream,
        )?;
        let cuda = setup.driver.raw();
        for round in 1..=50u32 {
            go.wait_on(&bench.stream, Comparison::Equal, round)?;
            {
                let _current = setup.context.bind()?;
                // SAFETY: both have 4096 bytes and live until the stream is waited for.
                let code = unsafe {
                    cuda.cuMemcpyAsync(target.device_pointer(), data.device_pointer(), 4096, bench.stream.raw())
                }?;
                assert_eq!(code.0, 0);
            }
            done.store_on(&bench.stream, round)?;
            data.store(0, &[round; 1024])?;
            go.store(round);
            done.wait(Comparison::Equal, round, &patient())?;
            bench.stream.synchronize()?;
            assert_eq!(target.to_vec()?, [round; 1024]);
        }
        Ok(())
    })
}

#[test]
fn streams_of_other_contexts_and_captures_are_refused() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        let context = setup.context.device().create_context()?;
        let elsewhere = Stream::new(&context)?;
        for refused in [
            flag.wait_on(&elsewhere, Comparison::Equal, 1),
            flag.store_on(&elsewhere, 1),
            bench.kernels.nothing(&elsewhere),
        ] {
            let text = refused.expect_err("another context's stream").to_string();
            assert!(text.contains("stream is another context's"), "{text}");
        }
        let graph = bench.stream.capture(CaptureMode::Relaxed, |stream| {
            let text = flag.store_on(stream, 1).expect_err("a capturing stream").to_string();
            assert!(text.contains("capturing a graph"), "{text}");
            Ok(())
        })?;
        drop(graph);
        bench.kernels.nothing(&bench.stream)?;
        Ok(bench.stream.synchronize()?)
    })
}
