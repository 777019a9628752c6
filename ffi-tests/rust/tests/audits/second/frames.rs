//! Holes F1 to F3: what a ring of frames knows of its readers, after calls that failed.

use super::{LIMIT, SIZE, can_fail, hold, with_fault};
use cuda_mem::frames::{Frame, FrameError, FrameRing};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, kind};
use cuda_mem::signal::{Signals, WaitPolicy};
use cuda_mem::{Buffer, Error, Stream, StreamOptions};
use std::sync::mpsc::channel;
use std::thread;
use testkit::suite::Outcome;
use testkit::{Setup, alone, same};

fn ring(setup: &Setup, frames: usize) -> Result<FrameRing, Error> {
    FrameRing::new(&PinnedMemory::new(&setup.context), &Signals::new(&setup.context)?, frames, SIZE)
}

fn device_buffer(setup: &Setup, home: &Stream) -> Result<Buffer<u8, kind::Device>, Error> {
    Buffer::zeroed(&DeviceMemory::new(&setup.context), SIZE, home)
}

/// Fills and publishes a frame.
fn publish(mut frame: Frame, byte: u8) -> Outcome {
    frame.write(.., |bytes| bytes.fill(byte))?;
    frame.publish().map_err(Error::from)?;
    Ok(())
}

/// Publishes a frame of 7s, whose copy has not run and has no event, because the k-th record of an event failed. Then
/// captures the copy's stream. False if the copy records fewer events.
fn publish_without_a_mark(
    setup: &Setup,
    ring: FrameRing,
    k: u64,
    in_the_capture: impl FnOnce(&FrameRing) -> Outcome,
    after: impl FnOnce(FrameRing) -> Outcome,
) -> Result<bool, Box<dyn std::error::Error>> {
    let consumer = Stream::new(&setup.context)?;
    let mut arrived = device_buffer(setup, &consumer)?;
    consumer.synchronize()?;
    let frame = ring.next()?;
    let held = hold(&consumer)?;
    let (copied, failed) = with_fault("cuEventRecord", k, || arrived.copy_from_frame(0, &frame, ..));
    if copied.is_err() {
        drop(held);
        return Ok(failed);
    }
    publish(frame, 7)?;
    // No event can be recorded in the capture either.
    let mut outcome = Ok(());
    consumer.capture(CaptureMode::Relaxed, |_| {
        outcome = in_the_capture(&ring);
        Ok(())
    })?;
    drop(held);
    same("what the device copied", &arrived.to_vec()?, &[7; SIZE])?;
    outcome?;
    after(ring)?;
    Ok(failed)
}

/// Fails each event of a copy in turn.
fn without_each_mark(
    setup: &Setup,
    in_the_capture: impl Fn(&FrameRing) -> Outcome,
    after: impl Fn(FrameRing) -> Outcome,
) -> Outcome {
    if !can_fail(setup) {
        return Ok(());
    }
    let mut records = 0;
    while publish_without_a_mark(setup, ring(setup, 1)?, records + 1, &in_the_capture, &after)? {
        records += 1;
    }
    assert!(records > 0, "the copy records no event");
    Ok(())
}

// Hole F1. softgpu's faults.
#[test]
fn a_frame_whose_mark_failed_is_not_over_in_a_capture() -> Outcome {
    alone(|setup| {
        let take = |ring: &FrameRing| match ring.try_next() {
            Ok(Some(next)) => publish(next, 9).and(Err("the frame was taken while the device read it".into())),
            Ok(None) | Err(_) => Ok(()),
        };
        without_each_mark(setup, take, |ring| {
            // After the capture the slot is used again.
            publish(ring.next_with(&WaitPolicy::within(LIMIT))?, 8)?;
            assert_eq!(ring.statistics().captured, 0);
            Ok(())
        })
    })
}

// Hole F2.
#[test]
fn a_use_that_a_foreign_capture_refuses_loses_no_frame() -> Outcome {
    alone(|setup| {
        let (ring, legacy) = (ring(setup, 1)?, Stream::legacy_default(&setup.context));
        let mut options = StreamOptions::default();
        options.blocking = true;
        let blocking = Stream::with_options(&setup.context, options)?;
        let frame = ring.next()?;
        frame.wait_on(&legacy)?;
        let (begun, has_begun) = channel();
        let (end, ends) = channel::<()>();
        thread::scope(|threads| {
            let capturing = threads.spawn(move || {
                blocking.capture(CaptureMode::Relaxed, |_| {
                    let _ = begun.send(());
                    let _ = ends.recv_timeout(LIMIT);
                    Ok(())
                })
            });
            has_begun.recv()?;
            // The driver does not answer for the legacy stream now, so that its work cannot be marked.
            let _ = frame.record_use(&legacy);
            publish(frame, 7)?;
            drop(end);
            capturing.join().map_err(|_| "the capturing thread panicked")??;
            Outcome::Ok(())
        })?;
        legacy.synchronize()?;
        let next = ring.next_with(&WaitPolicy::within(LIMIT));
        let figures = ring.statistics();
        assert_eq!(figures.captured, 0, "the slot is out of use: {:?}", next.map(|frame| frame.number()));
        publish(next?, 8)
    })
}

/// Whether the stream's wait reports that the frame was abandoned.
fn is_told(consumer: &Stream) -> Outcome {
    match consumer.synchronize() {
        Err(Error::Frame(FrameError::Abandoned { frame: 1, .. })) => Ok(()),
        other => Err(format!("a stream that waited for an abandoned frame: {other:?}").into()),
    }
}

// Hole F3.
#[test]
fn a_wait_for_a_frame_outlives_a_second_that_was_refused() -> Outcome {
    alone(|setup| {
        let (ring, consumer) = (ring(setup, 1)?, Stream::new(&setup.context)?);
        let frame = ring.next()?;
        frame.wait_on(&consumer)?;
        consumer.capture(CaptureMode::Relaxed, |consumer| {
            super::refused("a second wait", frame.wait_on(consumer)).expect("a frame cannot be waited for in a graph");
            Ok(())
        })?;
        drop(frame);
        is_told(&consumer)
    })
}

// Hole F3. softgpu's faults.
#[test]
fn a_wait_for_a_frame_outlives_a_second_that_failed() -> Outcome {
    alone(|setup| {
        if !can_fail(setup) {
            return Ok(());
        }
        let (ring, consumer) = (ring(setup, 1)?, Stream::new(&setup.context)?);
        let frame = ring.next()?;
        frame.wait_on(&consumer)?;
        let (waited, failed) = with_fault("cuStreamWaitValue32_v2", 1, || frame.wait_on(&consumer));
        assert!(failed && waited.is_err(), "{waited:?}");
        drop(frame);
        is_told(&consumer)
    })
}

/// The counterpart: a stream whose only wait was refused does not wait, and gets no error.
#[test]
fn a_stream_whose_wait_for_a_frame_was_refused_gets_no_error() -> Outcome {
    alone(|setup| {
        let (ring, consumer) = (ring(setup, 1)?, Stream::new(&setup.context)?);
        let frame = ring.next()?;
        consumer.capture(CaptureMode::Relaxed, |consumer| {
            assert!(frame.wait_on(consumer).is_err());
            Ok(())
        })?;
        drop(frame);
        Ok(consumer.synchronize()?)
    })
}
