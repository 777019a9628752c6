//! Flags, counters and rings between the CPU, streams and kernels that run: over whatever driver serves.

use cuda_mem::graph::CaptureMode;
use cuda_mem::mapped::{CoherenceWish, MappedResource};
use cuda_mem::signal::{
    Comparison, Consumer, Flag, Placement, Producer, SignalError, SignalKernels, SignalWord, Signals, WaitPolicy,
    Waiter,
};
use cuda_mem::{Error, Feature, Stream, Support};
use ffi_tests::suite::Outcome;
use ffi_tests::{Setup, alone, delay};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long kernels and waits have patience, before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn patient() -> WaitPolicy {
    WaitPolicy::within(PATIENCE)
}

/// What a test begins with.
struct Bench {
    signals: Signals,
    kernels: SignalKernels,
    stream: Stream,
    /// Where words may lie.
    placements: Vec<Placement>,
}

impl Bench {
    fn new(setup: &Setup) -> Result<Self, Error> {
        let signals = Signals::new(&setup.context)?;
        let mut placements = vec![Placement::Pinned];
        match signals.why_not_mapped() {
            None => placements.push(Placement::Mapped),
            Some(missing) => println!("without mapped memory: {missing}"),
        }
        let (kernels, stream) = (SignalKernels::of(&setup.context)?, Stream::new(&setup.context)?);
        Ok(Self { signals, kernels, stream, placements })
    }

    /// Every place of one side with every place of the other.
    fn pairs(&self) -> impl Iterator<Item = (Placement, Placement)> {
        let all = &self.placements;
        all.iter().flat_map(move |one| all.iter().map(|other| (*one, *other)))
    }
}

#[test]
fn a_kernel_answers_every_question_wherever_the_words_lie() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        for (here, there) in bench.pairs() {
            let (question, answer) = (bench.signals.flag_in::<u32>(here)?, bench.signals.flag_in::<u32>(there)?);
            assert_eq!((question.placement(), answer.placement()), (here, there));
            let rounds = 500;
            bench.kernels.echo_flag(&question, &answer, rounds.into(), PATIENCE, &bench.stream)?;
            for number in 1..=rounds {
                question.store(number);
                assert_eq!(answer.wait(Comparison::AtLeast, number, &patient())?, number);
            }
            bench.stream.synchronize()?;
            question.store(0);
            bench.kernels.echo_flag_in_order(&question, &answer, 9, PATIENCE, &bench.stream)?;
            for number in 1..=9 {
                question.store(number);
                answer.wait(Comparison::Equal, number, &patient())?;
            }
            bench.stream.synchronize()?;
        }
        Ok(())
    })
}

/// Sends all numbers up to `count` through two rings and a kernel, and checks what comes back.
fn through_a_kernel(
    bench: &Bench,
    mut to: Producer<u64>,
    mut from: Consumer<u64>,
    count: u64,
    batch: usize,
) -> Outcome {
    bench.kernels.echo_ring(&to, &from, PATIENCE, &bench.stream)?;
    let sender = thread::spawn(move || -> Result<(), Error> {
        let numbers: Vec<u64> = (0..count).map(scrambled).collect();
        for part in numbers.chunks(batch) {
            assert_eq!(to.send(part, &patient())?, part.len());
        }
        Ok(()) // the drop closes the ring
    });
    let (mut items, mut next) = (vec![0; batch], 0);
    loop {
        let some = from.receive(&mut items, &patient())?;
        if some == 0 {
            break;
        }
        for item in &items[..some] {
            assert_eq!(*item, scrambled(next), "item {next}");
            next += 1;
        }
    }
    sender.join().map_err(|_| "the sender panicked")??;
    assert_eq!(next, count);
    assert!(from.is_closed() && from.pop()?.is_none());
    Ok(bench.stream.synchronize()?)
}

/// A number in which every byte counts.
fn scrambled(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number
}

#[test]
fn a_hundred_thousand_items_go_there_and_back_in_order() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let (to, from) = (bench.signals.ring_to_device(1000)?, bench.signals.ring_from_device(1000)?);
        assert_eq!((to.capacity(), from.capacity()), (1024, 1024));
        through_a_kernel(&bench, to, from, 100_000, 32)
    })
}

#[test]
fn indices_wrap_around_wherever_the_ring_lies() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        for (consumer, producer) in bench.pairs() {
            for (items, batch) in [(1, 1), (8, 3), (64, 64)] {
                let to = bench.signals.ring_to_device_in(items, consumer, producer)?.at_position(u32::MAX - 300);
                let from = bench.signals.ring_from_device_in(items, consumer, producer)?.at_position(u32::MAX - 500);
                assert_eq!((to.placements(), from.placements()), ((consumer, producer), (consumer, producer)));
                through_a_kernel(&bench, to, from, if items == 1 { 600 } else { 3000 }, batch)?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_kernel_adds_up_what_is_pushed_and_counts_for_the_cpu() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let count = 100_000;
        let mut ring = bench.signals.ring_to_device::<u64>(256)?;
        let sum = bench.signals.flag::<u64>(Waiter::Cpu)?;
        bench.kernels.sum_ring(&ring, &sum, PATIENCE, &bench.stream)?;
        let numbers: Vec<u64> = (1..=count).collect();
        assert_eq!(ring.send(&numbers, &patient())?, numbers.len());
        ring.close();
        let expected = count * (count + 1) / 2;
        assert_eq!(sum.wait(Comparison::Equal, expected, &patient())?, expected);

        let mut ring = bench.signals.ring_from_device::<u64>(256)?;
        bench.kernels.count_ring(&ring, count, PATIENCE, &bench.stream)?;
        let (mut next, mut items) = (0, [0; 100]);
        loop {
            let some = ring.receive(&mut items, &patient())?;
            if some == 0 {
                break;
            }
            items[..some].iter().for_each(|item| {
                assert_eq!(*item, next);
                next += 1;
            });
        }
        assert_eq!(next, count);
        Ok(())
    })
}

#[test]
fn full_and_empty_are_values() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let mut to = bench.signals.ring_to_device::<[u32; 3]>(3)?;
        assert_eq!((to.capacity(), to.room()?), (4, 4));
        assert!(to.push([1, 2, 3])?);
        assert_eq!(to.push_slice(&[[4; 3]; 9])?, 3);
        assert_eq!((to.push([5; 3])?, to.push_slice(&[[6; 3]])?, to.room()?), (false, 0, 0));
        assert_eq!((to.push_slice(&[])?, to.is_closed()), (0, false));
        let mut from = bench.signals.ring_from_device::<[u32; 3]>(3)?;
        let mut items = [[7; 3]; 2];
        assert_eq!((from.pop()?, from.pop_slice(&mut items)?, items, from.available()?), (None, 0, [[7; 3]; 2], 0));
        assert_eq!(from.receive(&mut [], &WaitPolicy::default())?, 0);
        Ok(())
    })
}

#[test]
fn a_ring_that_is_closed_by_the_cpu_ends_the_kernel() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        // The kernel waits for room, which will never come.
        let mut from = bench.signals.ring_from_device::<u64>(16)?;
        bench.kernels.count_ring(&from, 1000, Duration::ZERO, &bench.stream)?;
        for _ in 0..4 {
            assert_eq!(from.receive(&mut [0], &patient())?, 1);
        }
        assert!(!bench.stream.is_done()?);
        drop(from);
        bench.stream.synchronize()?;
        // The kernel waits for items; those that were pushed before the end still come.
        let (mut to, sum) = (bench.signals.ring_to_device::<u64>(16)?, bench.signals.flag::<u64>(Waiter::Cpu)?);
        bench.kernels.sum_ring(&to, &sum, Duration::ZERO, &bench.stream)?;
        assert_eq!(to.push_slice(&[5, 6, 7])?, 3);
        drop(to);
        bench.stream.synchronize()?;
        assert_eq!(sum.load(), 18);
        Ok(())
    })
}

#[test]
fn a_kernel_that_ended_closes_its_ends() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let (mut to, sum) = (bench.signals.ring_to_device::<u64>(4)?, bench.signals.flag::<u64>(Waiter::Cpu)?);
        bench.kernels.sum_ring(&to, &sum, Duration::from_millis(1), &bench.stream)?;
        bench.stream.synchronize()?;
        assert!(to.is_closed(), "it had no patience");
        assert_eq!(to.send(&[1, 2, 3], &patient())?, 0, "nobody would pop them");
        Ok(())
    })
}

#[test]
fn the_next_kernel_goes_on_where_the_last_one_ended() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let mut ring = bench.signals.ring_from_device::<u64>(64)?;
        let mut seen = Vec::new();
        for count in [40, 50, 3] {
            bench.kernels.count_ring(&ring, count, PATIENCE, &bench.stream)?;
            let mut items = [0; 7];
            for _ in 0..count.div_ceil(7) {
                while ring.available()? < 7 && !bench.stream.is_done()? {
                    thread::yield_now();
                }
                let some = ring.pop_slice(&mut items)?;
                seen.extend_from_slice(&items[..some]);
            }
            bench.stream.synchronize()?;
        }
        let expected: Vec<u64> = (0..40).chain(0..50).chain(0..3).collect();
        assert_eq!(seen, expected);
        Ok(())
    })
}

#[test]
fn memory_that_a_kernel_uses_serves_nothing_else_until_it_ends() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let (to, from) = (bench.signals.ring_to_device::<u64>(16)?, bench.signals.ring_from_device::<u64>(16)?);
        let used = from.descriptor().consumer_line;
        // So many that they fill a chunk: whoever has the lines, if they are free. The first time they are made before the
        // kernel runs, which an allocation might wait for.
        let others =
            || (0..1000).map(|_| bench.signals.flag_in::<u64>(Placement::Pinned)).collect::<Result<Vec<_>, _>>();
        drop(others()?);
        bench.kernels.echo_ring(&to, &from, PATIENCE, &bench.stream)?;
        // The end does not wait for the kernel, which waits for the other ring.
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
        assert_eq!(to.room()?, 0, "what had room was pushed");
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

/// Whether a stream's wait holds is what `Comparison::holds` says, for one width of words.
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
            assert_eq!(done.value(), u64::from(piece) - 1, "nothing goes on before it is ready");
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

/// The data first, then the flag: on the stream's side a copy reads what was stored before.
#[test]
fn data_stored_before_a_flag_is_there_when_a_stream_sees_the_flag() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        let Ok(resource) = MappedResource::with_coherence(&setup.context, CoherenceWish::Required) else {
            println!("without coherent mapped memory there is nothing to order");
            return Ok(());
        };
        let data = resource.allocate(4096)?.into_shared();
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
                // SAFETY: both have 4096 bytes, and live until the stream is waited for.
                let code = unsafe {
                    cuda.cuMemcpyDtoDAsync_v2(target.device_pointer(), data.device_pointer(), 4096, bench.stream.raw())
                }?;
                assert_eq!(code.0, 0);
            }
            done.store_on(&bench.stream, round)?;
            data.copy_from_slice(0, &[round; 1024])?;
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

#[test]
fn without_coherent_mapped_memory_all_is_pinned_and_it_says_why() -> Outcome {
    alone(|setup| {
        let resource = MappedResource::with_coherence(&setup.context, CoherenceWish::ForcedNonCoherent)?;
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
        // SAFETY: the handle is a live context's, and no other call of it is under way but those that ask for its number.
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
        // One has retired before the context ends, the others do after.
        drop(to);
        // SAFETY: the handle is a live context's, and no other call of it is under way.
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
                // The next ones lie in the same memory, and must be 0 again.
                flags.iter().for_each(|flag| flag.store(u64::MAX));
            }
        }
        Ok(())
    })
}
