//! Rings of frames, over every kind of memory that both sides can address.

use cuda_mem::frames::{FrameError, FrameRing};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, PinnedOptions, ResourceHandle, SharedResource, kind,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::signal::{Comparison, Signals, WaitPolicy, Waiter};
use cuda_mem::{Buffer, Error, Stream};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;
use testkit::sources::available;
use testkit::suite::Outcome;
use testkit::{Setup, alone, pattern, same};

const SIZE: usize = 3000;
const PATIENCE: Duration = Duration::from_secs(20);

/// Every source whose memory may hold frames, and a pool over each.
fn sources(setup: &Setup) -> Result<Vec<(String, SharedResource)>, Error> {
    let mut found = Vec::new();
    for (name, memory) in available(&setup.context)? {
        let accessibility = memory.share().accessibility();
        if accessibility.host && !accessibility.processes {
            let pool = Pool::new(&memory.share(), &PoolOptions::default())?;
            found.extend([(name.to_owned(), memory.share()), (format!("a pool of {name}"), pool.share())]);
        }
    }
    Ok(found)
}

fn over_every_source(
    setup: &Setup,
    test: impl Fn(&Setup, &dyn Fn(usize) -> Result<FrameRing, Error>) -> Outcome,
) -> Outcome {
    let signals = Signals::new(&setup.context)?;
    for (name, source) in sources(setup)? {
        FrameRing::new(&source, &signals, 1, 1).map_err(|error| format!("{name}: {error}"))?;
        test(setup, &|frames| FrameRing::new(&source, &signals, frames, SIZE))
            .map_err(|error| format!("over {name}: {error}"))?;
    }
    Ok(())
}

fn device_buffer(setup: &Setup, home: &Stream) -> Result<Buffer<u8, kind::Device>, Error> {
    let pool = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
    Buffer::zeroed(&pool, SIZE, home)
}

fn pinned_ring(setup: &Setup, frames: usize) -> Result<FrameRing, Error> {
    FrameRing::new(&PinnedMemory::new(&setup.context), &Signals::new(&setup.context)?, frames, SIZE)
}

fn frame_error(error: Error) -> FrameError {
    match error {
        Error::Frame(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn consumer_work_queued_early_reads_the_frame_published_later() -> Outcome {
    alone(|setup| {
        over_every_source(setup, |setup, ring| {
            let (ring, consumer) = (ring(2)?, Stream::new(&setup.context)?);
            let mut arrived = device_buffer(setup, &consumer)?;
            for round in 1..=9u8 {
                let mut frame = ring.next()?;
                assert_eq!(frame.number(), u64::from(round));
                arrived.copy_from_frame(0, &frame, ..)?;
                let bytes = pattern(SIZE, round);
                frame.write(..1000, |part| part.copy_from_slice(&bytes[..1000]))?;
                frame.flush(..1000)?;
                frame.store(1000, &bytes[1000..])?;
                assert!(!consumer.is_done()?, "the copy waits for the frame");
                frame.publish()?;
                same("what arrived", &arrived.to_vec()?, &bytes)?;
            }
            let figures = ring.statistics();
            assert_eq!((figures.taken, figures.published, figures.abandoned, figures.open), (9, 9, 0, 0));
            Ok(())
        })
    })
}

#[test]
fn a_frame_is_taken_again_only_when_all_that_reads_it_is_done() -> Outcome {
    alone(|setup| {
        over_every_source(setup, |setup, ring| {
            let (ring, consumer) = (ring(2)?, Stream::new(&setup.context)?);
            let mut arrived = device_buffer(setup, &consumer)?;
            let go = Signals::new(&setup.context)?.flag::<u32>(Waiter::Device)?;
            // Delays the copies until the frames are published.
            go.wait_on(&consumer, Comparison::Equal, 1)?;
            for number in 1..=2 {
                let mut frame = ring.next()?;
                arrived.copy_from_frame(0, &frame, ..)?;
                frame.write(.., |bytes| bytes.fill(number))?;
                frame.publish()?;
            }
            assert!(ring.try_next()?.is_none(), "the first frame's copy has not begun");
            let brief = WaitPolicy::within(Duration::from_millis(20));
            let error = frame_error(ring.next_with(&brief).expect_err("still not"));
            let FrameError::TimedOut { waited, .. } = error else { panic!("{error:?}") };
            assert!(waited >= Duration::from_millis(20));
            assert_eq!(ring.statistics().overruns, 2);
            go.store(1);
            let third = ring.next()?;
            assert_eq!((third.number(), arrived.to_vec()?[0]), (3, 2));
            third.publish()?;
            assert_eq!(ring.next_with(&WaitPolicy::within(PATIENCE))?.publish()?, 4);
            Ok(())
        })
    })
}

#[test]
fn several_open_frames_are_filled_concurrently_by_other_threads() -> Outcome {
    alone(|setup| {
        over_every_source(setup, |setup, ring| {
            let ring = ring(3)?;
            let streams = [Stream::new(&setup.context)?, Stream::new(&setup.context)?, Stream::new(&setup.context)?];
            let mut buffers = Vec::new();
            for stream in &streams {
                buffers.push(device_buffer(setup, stream)?);
            }
            for round in 0..4u8 {
                let mut frames = Vec::new();
                for (buffer, seed) in buffers.iter_mut().zip(round..) {
                    let frame = ring.next()?;
                    buffer.copy_from_frame(0, &frame, ..)?;
                    frames.push((frame, seed));
                }
                let fillers: Vec<_> = frames
                    .into_iter()
                    .rev()
                    .map(|(mut frame, seed)| {
                        std::thread::spawn(move || -> Result<(), Error> {
                            frame.write(.., |bytes| bytes.copy_from_slice(&pattern(SIZE, seed)))?;
                            frame.publish()?;
                            Ok(())
                        })
                    })
                    .collect();
                for filler in fillers {
                    filler.join().expect("no thread panics")?;
                }
                for (buffer, seed) in buffers.iter().zip(round..) {
                    same("a frame of three", &buffer.to_vec()?, &pattern(SIZE, seed))?;
                }
            }
            Ok(())
        })
    })
}

#[test]
fn a_ring_is_shared_by_threads_and_every_frame_arrives_once() -> Outcome {
    alone(|setup| {
        let ring = pinned_ring(setup, 8)?;
        let work = |thread: u8| -> Outcome {
            let stream = Stream::new(&setup.context)?;
            let mut arrived = device_buffer(setup, &stream)?;
            for round in 0..200u8 {
                let mut frame = ring.next()?;
                arrived.copy_from_frame(0, &frame, ..100)?;
                let seed = thread.wrapping_mul(61) ^ round;
                frame.store(0, &pattern(100, seed))?;
                if round % 16 == 3 {
                    drop(frame);
                    let error = frame_error(stream.synchronize().expect_err("nobody published it"));
                    assert!(matches!(error, FrameError::Abandoned { .. }), "{error:?}");
                } else {
                    frame.publish()?;
                    same("a thread's frame", &arrived.to_vec()?[..100], &pattern(100, seed))?;
                }
            }
            Ok(())
        };
        assert_eq!(testkit::sources::failures_of_four_threads(work), Vec::<String>::new());
        let figures = ring.statistics();
        assert_eq!((figures.taken, figures.abandoned, figures.open, figures.captured), (800, 52, 0, 0));
        Ok(())
    })
}

#[test]
fn dropped_frame_unblocks_its_stream_and_is_reported_once() -> Outcome {
    alone(|setup| {
        over_every_source(setup, |setup, ring| {
            let (ring, consumer) = (ring(2)?, Stream::new(&setup.context)?);
            let mut arrived = device_buffer(setup, &consumer)?;
            let early = |arrived: &mut Buffer<u8, kind::Device>| -> Result<(), Error> {
                let frame = ring.next()?;
                arrived.copy_from_frame(0, &frame, ..)?;
                // An early return, such as `?` makes.
                arrived.copy_from_frame(1, &frame, ..)
            };
            assert!(matches!(early(&mut arrived), Err(Error::OutOfRange { .. })));
            let error = frame_error(arrived.to_vec().expect_err("nobody filled it"));
            assert_eq!(error, FrameError::Abandoned { frame: 1, why: "the frame was dropped" });
            assert!(error.to_string().contains("frame 1 was abandoned"), "{error}");
            // The error is reported once, and the stream continues.
            arrived.to_vec()?;
            for seed in [1, 2] {
                let mut frame = ring.next()?;
                arrived.copy_from_frame(0, &frame, ..)?;
                frame.store(0, &pattern(SIZE, seed))?;
                frame.publish()?;
                same("later frames", &arrived.to_vec()?, &pattern(SIZE, seed))?;
            }
            // A stream that does not wait for the frame gets no error.
            drop(ring.next()?);
            consumer.synchronize()?;
            assert_eq!((ring.statistics().abandoned, ring.statistics().published), (2, 2));
            Ok(())
        })
    })
}

#[test]
fn forgotten_frame_occupies_its_slot_until_the_ring_is_dropped() -> Outcome {
    alone(|setup| {
        over_every_source(setup, |setup, ring| {
            let (ring, consumer) = (ring(3)?, Stream::new(&setup.context)?);
            let mut arrived = device_buffer(setup, &consumer)?;
            let mut frame = ring.next()?;
            arrived.copy_from_frame(0, &frame, ..)?;
            frame.write(.., |bytes| bytes.fill(1))?;
            frame.flush(..)?;
            // The frame counts as forgotten. The test drops it at its end, because tests may leave nothing behind.
            let forgotten = ManuallyDrop::new(frame);
            for number in 2..=7u8 {
                let mut frame = ring.next()?;
                frame.write(.., |bytes| bytes.fill(number))?;
                frame.publish()?;
            }
            let two = [ring.next()?, ring.next()?];
            let error = frame_error(ring.try_next().expect_err("no slot is left"));
            assert_eq!(error, FrameError::AllOpen { call: "FrameRing::try_next", frames: 3, open: 3, captured: 0 });
            drop(two);
            assert!(!consumer.is_done()?);
            drop(ring);
            let error = frame_error(consumer.synchronize().expect_err("it was abandoned"));
            assert_eq!(error, FrameError::Abandoned { frame: 1, why: "the ring was dropped" });

            let mut frame = ManuallyDrop::into_inner(forgotten);
            let dropped = |call| FrameError::RingDropped { call, frame: 1 };
            let error = frame.write(.., |_| panic!("it no longer belongs to the CPU")).expect_err("the ring is gone");
            assert_eq!(frame_error(error), dropped("Frame::write"));
            let error = frame.store(0, &[1]).expect_err("the ring is gone");
            assert!(matches!(frame_error(error), FrameError::RingDropped { .. }));
            assert_eq!(frame_error(frame.wait_on(&consumer).expect_err("the ring is gone")), dropped("Frame::wait_on"));
            let refused = frame.publish().expect_err("the ring is gone");
            assert_eq!(frame_error(refused.error), dropped("Frame::publish"));
            Ok(())
        })
    })
}

#[test]
fn ring_drop_does_not_release_a_frame_during_a_cpu_write() -> Outcome {
    alone(|setup| {
        let (ring, consumer) = (pinned_ring(setup, 2)?, Stream::new(&setup.context)?);
        let mut arrived = device_buffer(setup, &consumer)?;
        let mut frame = ring.next()?;
        arrived.copy_from_frame(0, &frame, ..)?;
        let (begun, begins) = mpsc::channel();
        let (dropped, drops) = mpsc::channel::<()>();
        std::thread::scope(|scope| -> Outcome {
            let writer = scope.spawn(move || {
                frame.write(.., |bytes| {
                    bytes[..1500].fill(5);
                    begun.send(()).expect("the test waits");
                    drops.recv().expect("the test drops the ring");
                    bytes[1500..].fill(5);
                })
            });
            begins.recv()?;
            drop(ring);
            assert!(!consumer.is_done()?, "the CPU writes the frame");
            dropped.send(())?;
            writer.join().map_err(|_| "the writer panicked")??;
            let error = frame_error(consumer.synchronize().expect_err("it was abandoned"));
            assert!(matches!(error, FrameError::Abandoned { frame: 1, .. }), "{error:?}");
            assert_eq!(arrived.to_vec()?, [5; SIZE], "the copy came after the whole write");
            Ok(())
        })
    })
}

#[test]
fn recorded_kernels_read_published_frames_and_block_slot_reuse() -> Outcome {
    alone(|setup| {
        over_every_source(setup, |setup, ring| {
            let (ring, consumer) = (ring(1)?, Stream::new(&setup.context)?);
            let arrived = device_buffer(setup, &consumer)?;
            for seed in 1..=3 {
                let mut frame = ring.next()?;
                frame.wait_on(&consumer)?;
                // A copy plays the kernel's part: the program makes it, and the frame learns of it only through
                // `record_use`.
                let raw = setup.driver.raw();
                let bound = setup.context.bind()?;
                // SAFETY: both are alive, and the frame is told about the work.
                let code = unsafe {
                    raw.cuMemcpyAsync(arrived.device_pointer(), frame.device_pointer(), SIZE, consumer.raw())
                }?;
                drop(bound);
                assert_eq!(code.0, 0);
                arrived.record_use(&consumer)?;
                frame.record_use(&consumer)?;
                frame.store(0, &pattern(SIZE, seed))?;
                frame.publish()?;
                // The ring has one slot, so this waits for the copy.
                let frame = ring.next()?;
                assert!(consumer.is_done()?);
                frame.publish()?;
                same("the kernel's", &arrived.to_vec()?, &pattern(SIZE, seed))?;
                ring.next()?.publish()?;
            }
            Ok(())
        })
    })
}

#[test]
fn streams_that_capture_are_refused_and_their_captures_go_on() -> Outcome {
    alone(|setup| {
        let (ring, stream) = (pinned_ring(setup, 2)?, Stream::new(&setup.context)?);
        let mut arrived = device_buffer(setup, &stream)?;
        let frame = ring.next()?;
        for mode in [CaptureMode::Relaxed, CaptureMode::ThreadLocal, CaptureMode::Global] {
            stream.capture(mode, |_| {
                for error in [
                    frame.wait_on(&stream).expect_err("it captures"),
                    arrived.copy_from_frame(0, &frame, ..).expect_err("it captures"),
                ] {
                    assert!(error.to_string().contains("capturing a graph"), "{error}");
                }
                // Frames and captures of other streams do not disturb each other.
                let mut other = ring.next()?;
                other.write(.., |bytes| bytes.fill(1))?;
                other.publish()?;
                Ok(())
            })?;
        }
        drop(frame);
        stream.synchronize()?;
        assert_eq!(ring.statistics().captured, 0);
        Ok(())
    })
}

#[test]
fn a_frame_that_a_graph_may_read_is_not_used_again() -> Outcome {
    alone(|setup| {
        let context = setup.context.device().create_context()?;
        let setup = &Setup { driver: setup.driver.clone(), context };
        // Not from a pool, whose memory would outlive the context.
        let mut options = PinnedOptions::default();
        options.portable = false;
        let memory = PinnedMemory::with_options(&setup.context, options);
        let (signals, stream) = (Signals::new(&setup.context)?, Stream::new(&setup.context)?);
        let ring = FrameRing::new(&memory, &signals, 2, 8)?;
        let frame = ring.next()?;
        // As if a kernel that reads the frame was captured.
        let graph = stream.capture(CaptureMode::Relaxed, |_| {
            let error = frame_error(frame.record_use(&stream).expect_err("the graph reads it"));
            assert_eq!(error, FrameError::Captured { call: "Frame::record_use", frame: frame.number() });
            Ok(())
        })?;
        let address = frame.device_pointer();
        frame.publish()?;
        assert_eq!(ring.statistics().captured, 1);
        let last = ring.next()?;
        assert_ne!(last.device_pointer(), address);
        assert!(matches!(frame_error(ring.next().expect_err("one is lost")), FrameError::AllOpen { captured: 1, .. }));
        drop((last, ring, graph, stream, signals));
        // The frame's memory and what it needs stay for good. The end of the context frees them.
        // SAFETY: the handle is a live context's, and no other call uses it.
        assert_eq!(unsafe { setup.driver.raw().cuCtxDestroy_v2(setup.context.raw()) }?.0, 0);
        Ok(())
    })
}

#[test]
fn what_cannot_be_is_refused_by_name() -> Outcome {
    alone(|setup| {
        let (signals, stream) = (Signals::new(&setup.context)?, Stream::new(&setup.context)?);
        let pinned = PinnedMemory::new(&setup.context);
        for (frames, size, argument) in [(0, 8, "frames"), (8, 0, "frame_size")] {
            let error = FrameRing::new(&pinned, &signals, frames, size).expect_err("none");
            assert!(error.to_string().contains(&format!("FrameRing::new: {argument} is 0")), "{error}");
        }
        let error = FrameRing::new(&DeviceMemory::new(&setup.context), &signals, 2, 8).expect_err("not the CPU's");
        assert!(error.to_string().contains("take pinned or mapped memory"), "{error}");
        assert!(FrameRing::new(&pinned, &signals, 2, usize::MAX).is_err());

        let ring = FrameRing::new(&pinned, &signals, 2, 10)?;
        let mut frame = ring.next()?;
        assert!(matches!(frame.write(3..11, |_| ()), Err(Error::OutOfRange { size: 10, .. })));
        assert!(matches!(frame.store(8, &[0; 3]), Err(Error::OutOfRange { .. })));
        assert!(matches!(frame.flush(11..), Err(Error::OutOfRange { .. })));
        let mut words = Buffer::<u32, _>::zeroed(&DeviceMemory::new(&setup.context), 2, &stream)?;
        assert!(matches!(words.copy_from_frame(0, &frame, ..), Err(Error::Misaligned { value: 10, multiple: 4, .. })));
        assert!(matches!(words.copy_from_frame(1, &frame, ..8), Err(Error::OutOfRange { .. })));
        assert!(matches!(words.copy_from_frame(0, &frame, 8..16), Err(Error::OutOfRange { .. })));
        words.copy_from_frame(3, &frame, 4..4).expect_err("behind the end, however little");
        words.copy_from_frame(2, &frame, 4..4)?;
        let per_thread = Stream::per_thread_default(&setup.context);
        for error in [frame.wait_on(&per_thread), frame.record_use(&per_thread)] {
            let text = error.expect_err("another one on each thread").to_string();
            assert!(text.contains("per-thread default stream") && text.contains("Stream::new"), "{text}");
        }
        // None of those calls was queued, so the stream does not wait for the frame.
        stream.synchronize()?;
        words.copy_from_frame(0, &frame, 2..10)?;
        frame.store(2, bytemuck::cast_slice(&[7u32, 8]))?;
        frame.publish()?;
        assert_eq!(words.to_vec()?, [7, 8]);
        Ok(())
    })
}

#[test]
fn a_panic_in_a_fill_leaves_the_frame_open() -> Outcome {
    alone(|setup| {
        let (ring, stream) = (pinned_ring(setup, 2)?, Stream::new(&setup.context)?);
        let mut arrived = device_buffer(setup, &stream)?;
        let mut frame = ring.next()?;
        arrived.copy_from_frame(0, &frame, ..)?;
        let filled = catch_unwind(AssertUnwindSafe(|| {
            frame.write(.., |bytes| {
                bytes.fill(1);
                panic!("the card is gone");
            })
        }));
        assert!(filled.is_err() && !stream.is_done()?);
        frame.write(..10, |bytes| bytes.fill(2))?;
        frame.publish()?;
        assert_eq!(arrived.to_vec()?[9..11], [2, 1]);
        Ok(())
    })
}

#[test]
fn a_ring_and_its_frames_outlive_their_context_quietly() -> Outcome {
    alone(|setup| {
        let context = setup.context.device().create_context()?;
        let (stream, signals) = (Stream::new(&context)?, Signals::new(&context)?);
        let ring = FrameRing::new(&PinnedMemory::new(&context), &signals, 2, SIZE)?;
        let mut arrived = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), SIZE, &stream)?;
        let frame = ring.next()?;
        arrived.copy_from_frame(0, &frame, ..)?;
        frame.publish()?;
        stream.synchronize()?;
        let open = ring.next()?;
        // SAFETY: the handle is a live context's, and no other call uses it.
        assert_eq!(unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) }?.0, 0);
        assert!(ring.next().is_err(), "it is unknown what is read");
        assert!(open.wait_on(&stream).is_err());
        drop((ring, open, arrived, signals, stream));
        assert_eq!(context.take_drop_errors().errors, []);
        Ok(())
    })
}
