//! Ends of signals that streams wait for: nothing may hang, and a stream that ran without its awaited value must get an
//! error.

use super::Bench;
use cuda_mem::graph::{CaptureMode, GraphOptions};
use cuda_mem::memory::PinnedMemory;
use cuda_mem::signal::{Comparison, Flag, SignalError, Signals, Waiter};
use cuda_mem::{Buffer, Error, Feature, Stream, Support};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{LIMIT, Setup, alone};

/// Longer than any test here takes, even if other programs use most of the device's time.
const HANGS: Duration = Duration::from_secs(120);

/// Runs a test with a time limit, which begins when the test has its turn: the tests before it may take long. A hang
/// ends the process with a message, because a hanging drop would hide a panic.
fn in_time(test: impl FnOnce(&Setup) -> Outcome) -> Outcome {
    alone(|setup| {
        let (ended, end) = mpsc::channel::<()>();
        let name = thread::current().name().unwrap_or("the test").to_owned();
        let watch = thread::spawn(move || {
            if end.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{name} hangs: it has run for {HANGS:?}");
                std::process::abort();
            }
        });
        let outcome = test(setup);
        drop(ended);
        watch.join().map_err(|_| "the watch panicked")?;
        outcome
    })
}

/// The error that a stream got.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    name: String,
    wanted: u64,
    value: u64,
}

/// Parses the error, which must report a wait that nothing satisfied.
fn told<T>(result: Result<T, Error>) -> Result<Told, Box<dyn std::error::Error>> {
    match result.map(drop) {
        Err(Error::Signal(error)) => match *error {
            SignalError::Abandoned { name, wanted, value, .. } => Ok(Told { name: name.into(), wanted, value }),
            other => Err(other.into()),
        },
        Err(other) => Err(other.into()),
        Ok(()) => Err("no stream got an error".into()),
    }
}

/// Delays a stream's work until the sender is dropped.
fn gate(stream: &Stream) -> Result<mpsc::Sender<()>, Error> {
    let (open, gate) = mpsc::channel::<()>();
    stream.launch_host_function(move || {
        let _ = gate.recv();
    })?;
    Ok(open)
}

/// Sends a message when the stream has reached this point.
fn passed(stream: &Stream) -> Result<mpsc::Receiver<()>, Error> {
    let (sender, receiver) = mpsc::channel();
    stream.launch_host_function(move || sender.send(()).unwrap_or_default())?;
    Ok(receiver)
}

/// Works as a typical program does: it queues the consumer's work first, and then something fails.
fn ingest(signals: &Signals, stream: &Stream, what: &str) -> Result<(), Box<dyn std::error::Error>> {
    match what {
        "flag" => {
            let ready = signals.flag::<u32>(Waiter::Device)?.named("ready");
            ready.wait_on(stream, Comparison::Equal, 1)?;
            "no number".parse::<u32>()?;
            ready.store(1);
        }
        "counter" => {
            let mut pieces = signals.counter::<u64>()?.named("pieces");
            pieces.wait_on(stream, 3)?;
            pieces.add(1);
            "no number".parse::<u32>()?;
            pieces.add(2);
        }
        _ => {
            let mut requests = signals.ring_to_device::<u64>(16)?.named("requests");
            let (mut answers, sum) = (signals.ring_from_device::<u64>(16)?, signals.flag::<u64>(Waiter::Cpu)?);
            let kernels = cuda_mem::signal::SignalKernels::of(signals.context())?;
            kernels.echo_ring(&requests, &answers, Duration::ZERO, stream)?;
            requests.push(1)?;
            "no number".parse::<u32>()?;
            answers.pop()?;
            sum.store(1);
        }
    }
    Ok(())
}

#[test]
fn the_end_of_a_counter_releases_the_waits_of_its_readers() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let mut pieces = bench.signals.counter::<u64>()?.named("pieces");
        let reader = pieces.reader();
        reader.wait_on(&bench.stream, 1)?;
        pieces.add(1);
        bench.stream.synchronize()?;
        reader.wait_on(&bench.stream, 3)?;
        drop(pieces);
        let expected = Told { name: "counter \"pieces\"".into(), wanted: 3, value: 1 };
        assert_eq!(told(bench.stream.synchronize())?, expected);
        let late = reader.wait_on(&bench.stream, 3).expect_err("nobody counts any more");
        assert!(matches!(late, Error::Signal(_)), "{late}");
        Ok(())
    })
}

#[test]
fn an_early_return_after_a_wait_hangs_nothing() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let memory = PinnedMemory::new(&setup.context);
        for (what, name, wanted, value) in
            [("flag", "flag \"ready\"", 1, 0), ("counter", "counter \"pieces\"", 3, 1), ("ring", "", 0, 0)]
        {
            let mut buffer = Buffer::<u32, _>::zeroed(&memory, 256, &bench.stream)?;
            let error = ingest(&bench.signals, &bench.stream, what).expect_err("it is no number");
            assert!(error.to_string().contains("invalid digit"), "{error}");
            buffer.fill(.., 7)?;
            if what == "ring" {
                // A ring's end tells a kernel that no more items come.
                bench.stream.synchronize()?;
            } else {
                let expected = Told { name: name.into(), wanted, value };
                assert_eq!(told(buffer.to_vec())?, expected, "the next access gets the error");
            }
            assert_eq!(buffer.to_vec()?, [7; 256], "and only that");
            bench.stream.synchronize()?;
        }
        Ok(())
    })
}

#[test]
fn waits_for_different_values_are_all_satisfied() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let device = setup.context.device();
        for placement in &bench.placements {
            let mut waits = vec![
                (Comparison::Equal, 5),
                (Comparison::Equal, 7),
                (Comparison::AtLeast, 1 << 40),
                (Comparison::AnyBit, 1 << 63),
            ];
            if device.supports(Feature::StreamWaitNotAllBits)? != Support::No {
                waits.push((Comparison::NotAllBits, u64::MAX - 1));
            }
            let streams: Vec<Stream> = waits.iter().map(|_| Stream::new(&setup.context)).collect::<Result<_, _>>()?;
            let flag = bench.signals.flag_in::<u64>(*placement)?;
            flag.store(if waits.len() == 5 { u64::MAX >> 1 | 1 } else { 0 });
            let before = flag.load();
            // Each stream waits once more, for a value that no other stream waits for.
            let then = |comparison: &Comparison| 1000 + *comparison as u64;
            for (stream, (comparison, value)) in streams.iter().zip(&waits) {
                flag.wait_on(stream, *comparison, *value)?;
                flag.wait_on(stream, Comparison::Equal, then(comparison))?;
            }
            drop(flag);
            for (stream, (comparison, value)) in streams.iter().zip(&waits) {
                let told = told(stream.synchronize())?;
                // Streams whose wait the word satisfied already get an error for their second wait.
                let satisfied = comparison.holds(before, *value);
                assert_eq!(told.wanted, if satisfied { then(comparison) } else { *value }, "{comparison:?}");
                stream.synchronize()?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_wait_that_queued_work_satisfies_is_not_released_before() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let other = Stream::new(&setup.context)?;
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        let open = gate(&other)?;
        flag.store_on(&other, 1)?;
        flag.wait_on(&bench.stream, Comparison::Equal, 1)?;
        let after = passed(&bench.stream)?;
        drop(flag);
        assert!(after.recv_timeout(Duration::from_millis(50)).is_err(), "the other stream has not written it");
        drop(open);
        bench.stream.synchronize()?;
        other.synchronize()?;

        // A write of another value satisfies no wait, and the library's value replaces it.
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        let open = gate(&other)?;
        flag.store_on(&other, 2)?;
        flag.wait_on(&bench.stream, Comparison::Equal, 1)?;
        drop(flag);
        assert_eq!(told(bench.stream.synchronize())?.wanted, 1);
        drop(open);
        Ok(other.synchronize()?)
    })
}

#[test]
fn streams_that_answer_each_other_are_released() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let other = Stream::new(&setup.context)?;
        let (ping, pong) = (bench.signals.flag::<u32>(Waiter::Device)?, bench.signals.flag::<u32>(Waiter::Device)?);
        for round in 1..=3 {
            ping.wait_on(&bench.stream, Comparison::Equal, round)?;
            pong.store_on(&bench.stream, round)?;
            pong.wait_on(&other, Comparison::Equal, round)?;
            ping.store_on(&other, round + 1)?;
        }
        // Nothing stores the value.
        drop((ping, pong));
        assert_eq!(told(bench.stream.synchronize())?.wanted, 1);
        other.synchronize().or_else(|error| told(Err::<(), _>(error)).map(drop))
    })
}

#[test]
fn a_wait_that_was_satisfied_is_no_error() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        // The stream has passed the wait, and the word was reset for the next round.
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        flag.wait_on(&bench.stream, Comparison::Equal, 1)?;
        let here = passed(&bench.stream)?;
        let open = gate(&bench.stream)?;
        flag.store(1);
        here.recv_timeout(Duration::from_secs(20))?;
        flag.store(0);
        drop(flag);
        drop(open);
        bench.stream.synchronize()?;

        // The word has the value that the stream waits for, but the stream has not reached its wait. Another stream
        // waits for another value.
        let other = Stream::new(&setup.context)?;
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        let open = gate(&bench.stream)?;
        flag.wait_on(&bench.stream, Comparison::Equal, 1)?;
        flag.wait_on(&other, Comparison::Equal, 2)?;
        flag.store(1);
        drop(flag);
        assert_eq!(told(other.synchronize())?.wanted, 2);
        drop(open);
        Ok(bench.stream.synchronize()?)
    })
}

#[test]
fn signals_may_end_on_another_thread_and_in_a_panic() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let armed = || -> Result<Flag<u32>, Error> {
            let flag = bench.signals.flag::<u32>(Waiter::Device)?;
            flag.wait_on(&bench.stream, Comparison::Equal, 1)?;
            Ok(flag)
        };
        let flag = armed()?;
        thread::spawn(move || drop(flag)).join().map_err(|_| "the drop panicked")?;
        told(bench.stream.synchronize())?;
        let flag = armed()?;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _flag = flag;
            panic!("something else went wrong");
        }));
        assert!(unwound.is_err());
        told(bench.stream.synchronize())?;
        // The flag is dropped while a thread waits for the stream.
        let (flag, stream) = (armed()?, bench.stream.clone());
        let waiter = thread::spawn(move || stream.synchronize());
        thread::sleep(Duration::from_millis(20));
        drop(flag);
        told(waiter.join().map_err(|_| "the wait panicked")?)?;
        Ok(())
    })
}

#[test]
fn the_last_clone_releases() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        flag.wait_on(&bench.stream, Comparison::Equal, 1)?;
        let clone = flag.clone();
        drop(flag);
        let after = passed(&bench.stream)?;
        assert!(after.recv_timeout(Duration::from_millis(20)).is_err());
        clone.store(1);
        bench.stream.synchronize()?;
        drop(clone);
        Ok(bench.stream.synchronize()?)
    })
}

#[test]
fn a_kernel_that_waits_for_a_flag_ends_with_it() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let (question, answer) = (bench.signals.flag::<u32>(Waiter::Device)?, bench.signals.flag::<u32>(Waiter::Cpu)?);
        bench.kernels.echo_flag(&question, &answer, 3, Duration::ZERO, &bench.stream)?;
        question.store(1);
        answer.wait(Comparison::Equal, 1, &super::patient())?;
        drop(question);
        assert_eq!(told(bench.stream.synchronize())?.wanted, 3);
        assert_eq!(answer.load(), 3);
        Ok(())
    })
}

#[test]
fn no_graph_waits_for_a_signal_and_a_capture_outlives_a_release() -> Outcome {
    in_time(|setup| {
        let bench = Bench::new(setup)?;
        let waiting = Stream::new(&setup.context)?;
        let flag = bench.signals.flag::<u32>(Waiter::Device)?;
        flag.wait_on(&waiting, Comparison::Equal, 1)?;
        let graph = bench.stream.capture(CaptureMode::Global, |stream| {
            let refused = flag.wait_on(stream, Comparison::Equal, 1).expect_err("a graph may be launched later");
            assert!(refused.to_string().contains("capturing a graph"), "{refused}");
            drop(flag);
            Ok(())
        })?;
        told(waiting.synchronize())?;
        let executable = graph.instantiate(GraphOptions::default())?;
        // SAFETY: the graph is empty.
        unsafe { executable.launch(&bench.stream) }?;
        Ok(bench.stream.synchronize()?)
    })
}

/// Drops signals and streams in every order. If nothing takes a stream's error, the context gets it.
#[test]
fn every_order_of_ends_releases_the_streams() -> Outcome {
    in_time(|setup| {
        let mut orders = vec![vec![]];
        for _ in 0..6 {
            orders = orders
                .into_iter()
                .flat_map(|order: Vec<usize>| {
                    let rest: Vec<usize> = (0..6).filter(|next| !order.contains(next)).collect();
                    rest.into_iter().map(move |next| [order.clone(), vec![next]].concat())
                })
                .collect();
        }
        assert_eq!(orders.len(), 720);
        for order in orders.iter().step_by(if setup.is_software() { 1 } else { 7 }) {
            let context = setup.context.device().create_context()?;
            let signals = Signals::new(&context)?;
            let (one, two) = (Stream::new(&context)?, Stream::new(&context)?);
            let (flag, counter) = (signals.flag::<u32>(Waiter::Device)?, signals.counter::<u64>()?);
            let ring = signals.ring_to_device::<u32>(4)?;
            flag.wait_on(&one, Comparison::Equal, 5)?;
            flag.wait_on(&two, Comparison::Equal, 7)?;
            counter.wait_on(&two, 3)?;
            ring.record_use(&two);
            let mut values: [Option<Box<dyn std::any::Any>>; 6] = [
                Some(Box::new(signals)),
                Some(Box::new(one)),
                Some(Box::new(two)),
                Some(Box::new(flag)),
                Some(Box::new(counter)),
                Some(Box::new(ring)),
            ];
            for index in order {
                drop(values[*index].take());
            }
            // The worker may drop the last owner of a stream, and report its error, after these drops.
            let (mut errors, begin) = (Vec::new(), Instant::now());
            while errors.len() < 2 && begin.elapsed() < LIMIT {
                errors.extend(context.take_drop_errors().errors);
                thread::yield_now();
            }
            assert_eq!(errors.len(), 2, "{order:?}: {errors:?}");
            for error in errors {
                told(Err::<(), _>(error.error))?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_context_that_ends_before_what_waits_is_quiet() -> Outcome {
    in_time(|setup| {
        let context = setup.context.device().create_context()?;
        let (signals, one, two) = (Signals::new(&context)?, Stream::new(&context)?, Stream::new(&context)?);
        let (flag, early) = (signals.flag::<u32>(Waiter::Device)?, signals.flag::<u32>(Waiter::Device)?);
        early.wait_on(&one, Comparison::Equal, 5)?;
        early.wait_on(&two, Comparison::Equal, 7)?;
        flag.wait_on(&one, Comparison::Equal, 5)?;
        if !setup.is_software() {
            println!("skipped: a real driver does not end a context while a stream waits for a word");
            return Ok(());
        }
        drop(early);
        // SAFETY: the handle is a live context's. The only other call that uses it is in the library's thread, which
        // asks whether the context is alive.
        assert_eq!(unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?.0, 0);
        drop((flag, signals, one, two));
        for error in context.take_drop_errors().errors {
            told(Err::<(), _>(error.error))?;
        }
        Ok(())
    })
}
