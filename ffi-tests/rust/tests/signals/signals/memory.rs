//! Where signals lie in memory, and the order of their ends.

use super::{Bench, PATIENCE};
use cuda_mem::graph::CaptureMode;
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::signal::{Comparison, Flag, Placement, Signals, WaitPolicy, Waiter};
use cuda_mem::{Error, Stream};
use std::thread;
use std::time::Duration;
use testkit::alone;
use testkit::suite::Outcome;

#[test]
fn memory_that_a_kernel_uses_serves_nothing_else_until_it_ends() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let (to, from) = (bench.signals.ring_to_device::<u64>(16)?, bench.signals.ring_from_device::<u64>(16)?);
        let used = from.descriptor().consumer_line;
        // Enough flags to fill a chunk, so that they get the ring's words if those are free. The first flags are made
        // before the kernel runs, because an allocation might wait for it.
        let others =
            || (0..1000).map(|_| bench.signals.flag_in::<u64>(Placement::Pinned)).collect::<Result<Vec<_>, _>>();
        drop(others()?);
        bench.kernels.echo_ring(&to, &from, PATIENCE, &bench.stream)?;
        // The drop does not wait for the kernel, which waits for the other ring.
        drop(from);
        assert!(!bench.stream.is_done()?);
        let lies_there = |flag: &Flag<u64>| (used..used + 256).contains(&flag.device_pointer());
        let flags = others()?;
        assert!(!flags.iter().any(lies_there));
        drop((to, flags));
        bench.stream.synchronize()?;
        assert!(others()?.iter().any(lies_there), "and then they do");
        Ok(())
    })
}

#[test]
fn without_coherent_mapped_memory_all_is_pinned_and_it_says_why() -> Outcome {
    alone(|setup| {
        let resource = MappedMemory::with_coherence(&setup.context, CoherencePolicy::ForcedNonCoherent)?;
        let non_coherent = Signals::with_resource(&resource)?;
        let pinned_only = Signals::pinned_only(&setup.context)?;
        for (signals, why) in [(&non_coherent, "coherent mapped memory"), (&pinned_only, "chose not to use")] {
            assert!(signals.why_not_mapped().is_some_and(|missing| missing.contains(why)), "{signals:?}");
            let flag: Flag<u32> = signals.flag(Waiter::Device)?;
            assert_eq!(flag.placement(), Placement::Pinned);
            let error = signals.flag_in::<u32>(Placement::Mapped).expect_err("there is none");
            assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(why), "{error}");
            let ring = signals.ring_to_device::<u8>(1 << 17)?; // more than a chunk
            assert_eq!(ring.placements(), (Placement::Pinned, Placement::Pinned));
            assert!(signals.ring_to_device_in::<u8>(1, Placement::Mapped, Placement::Pinned).is_err());
        }
        Ok(())
    })
}

#[test]
fn a_wait_ends_when_its_context_does() -> Outcome {
    alone(|setup| {
        let context = setup.context.device().create_context()?;
        let signals = Signals::new(&context)?;
        let (flag, mut ring) = (signals.flag::<u32>(Waiter::Cpu)?, signals.ring_from_device::<u32>(8)?);
        let waiters = (
            thread::spawn(move || flag.wait(Comparison::Equal, 1, &WaitPolicy::default())),
            thread::spawn(move || ring.receive(&mut [0], &WaitPolicy::default())),
        );
        thread::sleep(Duration::from_millis(30));
        // SAFETY: the handle is a live context's. The only other calls that use it ask for its number.
        assert_eq!(unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?.0, 0);
        let errors = [
            waiters.0.join().map_err(|_| "the wait panicked")?.expect_err("it never came"),
            waiters.1.join().map_err(|_| "the wait panicked")?.map(|_| 0).expect_err("it never came"),
        ];
        for error in errors {
            assert!(error.driver_code().is_some(), "{error}");
        }
        drop(signals);
        assert_eq!(context.take_drop_errors().errors, []);
        Ok(())
    })
}

#[test]
fn what_outlives_its_context_is_dropped_quietly() -> Outcome {
    alone(|setup| {
        let context = setup.context.device().create_context()?;
        let (signals, stream) = (Signals::new(&context)?, Stream::new(&context)?);
        let flag = signals.flag::<u32>(Waiter::Device)?;
        let (to, from) = (signals.ring_to_device::<u64>(4)?, signals.ring_from_device::<u64>(4)?);
        flag.store_on(&stream, 1)?;
        to.record_use(&stream);
        from.record_use(&stream);
        stream.synchronize()?;
        // One ring retires before the context ends, the others afterwards.
        drop(to);
        // SAFETY: the handle is a live context's, and no other call uses it.
        assert_eq!(unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?.0, 0);
        assert!(
            flag.wait_on(&stream, Comparison::Equal, 2).is_err()
                && signals.counter::<u64>().is_ok_and(|mut n| n.add(1) == 1)
        );
        drop((from, flag, signals, stream));
        assert_eq!(context.take_drop_errors().errors, []);
        Ok(())
    })
}

#[test]
fn a_signal_may_end_while_its_stream_captures() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let flag = bench.signals.flag::<u32>(Waiter::Cpu)?;
        flag.store_on(&bench.stream, 7)?;
        let graph = bench.stream.capture(CaptureMode::Global, move |_| {
            drop(flag);
            Ok(())
        })?;
        drop(graph);
        bench.kernels.nothing(&bench.stream)?;
        Ok(bench.stream.synchronize()?)
    })
}

#[test]
fn many_flags_lie_in_lines_of_their_own_and_are_zero_at_first() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        for placement in &bench.placements {
            for _ in 0..2 {
                let flags: Vec<Flag<u64>> =
                    (0..2000).map(|_| bench.signals.flag_in(*placement)).collect::<Result<_, _>>()?;
                assert!(flags.iter().all(|flag| flag.load() == 0 && flag.device_pointer() % 128 == 0));
                let mut places: Vec<_> = flags.iter().map(Flag::device_pointer).collect();
                places.sort_unstable();
                assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128));
                // The next flags use the same memory and must be 0 again.
                flags.iter().for_each(|flag| flag.store(u64::MAX));
            }
        }
        Ok(())
    })
}
