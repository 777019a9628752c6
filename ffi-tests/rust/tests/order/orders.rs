//! What a capture records orders nothing now. These safe programs move, free, share or copy memory during a capture,
//! while work from before the capture is running. They must never see a byte change behind a slice. Runs over the
//! driver that the environment names.

use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, RegisterOptions, RegisteredMemory};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Error, Stream, StreamOptions};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::{Setup, alone, hold};

const SIZE: usize = 4096;
/// Long enough for work that was released too early to cause damage.
const LATER: Duration = Duration::from_millis(100);

/// Releases delayed work after a while, when the program already waits for it.
fn let_go(held: Sender<()>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(LATER);
        drop(held);
    })
}

/// Checks that all bytes are unchanged when they are read again later.
fn stay(bytes: &[u8], value: u8) {
    let first = bytes.to_vec();
    thread::sleep(2 * LATER);
    assert!(bytes == first, "bytes changed behind a slice");
    assert!(first.iter().all(|byte| *byte == value), "the work was not done: {} instead of {value}", first[0]);
}

fn refused(result: Result<(), Error>) {
    let error = result.expect_err("the stream captures");
    assert!(error.to_string().contains("capturing a graph"), "{error}");
}

#[test]
fn a_buffer_does_not_move_to_a_stream_by_a_captured_join() -> Outcome {
    alone(|setup: &Setup| {
        let (from, to) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut buffer = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &from)?;
        let held = hold(&from)?;
        buffer.fill(.., 7)?;
        let mut moved = Ok(());
        from.capture(CaptureMode::Relaxed, |_| {
            moved = buffer.set_stream(&to);
            Ok(())
        })?;
        refused(moved);
        let letting_go = let_go(held);
        stay(&buffer.read(..)?, 7);
        letting_go.join().expect("it only waits");
        Ok(())
    })
}

#[test]
fn a_buffer_does_not_move_to_a_stream_that_captures() -> Outcome {
    alone(|setup: &Setup| {
        let (from, to) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let mut buffer = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &from)?;
        let mut moved = Ok(());
        to.capture(CaptureMode::Relaxed, |_| {
            moved = buffer.set_stream(&to);
            Ok(())
        })?;
        refused(moved);
        buffer.set_stream(&to)?;
        stay(&buffer.read(..)?, 0);
        Ok(())
    })
}

#[test]
fn pool_reuses_a_buffer_moved_in_a_capture_only_after_its_work() -> Outcome {
    alone(|setup: &Setup| {
        let (from, to) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let pool = Pool::new(&PinnedMemory::new(&setup.context), &PoolOptions::default())?;
        let mut buffer = Buffer::<u8, _>::zeroed(&pool, SIZE, &from)?;
        let held = hold(&from)?;
        buffer.fill(.., 7)?;
        from.capture(CaptureMode::Relaxed, |_| {
            let _ = buffer.set_stream(&to);
            drop(buffer);
            Ok(())
        })?;
        let letting_go = let_go(held);
        // As many blocks as fit into the pool, so that one of them is where the work writes.
        let mut others: Vec<_> =
            (0..32).map(|_| Buffer::<u8, _>::zeroed(&pool, SIZE, &to)).collect::<Result<_, Error>>()?;
        for buffer in &mut others {
            assert!(buffer.read(..)?.iter().all(|byte| *byte == 0));
        }
        thread::sleep(2 * LATER);
        for buffer in &mut others {
            assert!(
                buffer.read(..)?.iter().all(|byte| *byte == 0),
                "the former owner's work wrote to the next owner's memory"
            );
        }
        letting_go.join().expect("it only waits");
        Ok(())
    })
}

#[test]
fn registered_memory_is_not_returned_before_precapture_work() -> Outcome {
    alone(|setup: &Setup| {
        let (from, to) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let registered = RegisteredMemory::new(&setup.context, vec![0u8; SIZE], RegisterOptions::default())?;
        let mut buffer = Buffer::<u8, _>::zeroed(&registered, SIZE, &from)?;
        let held = hold(&from)?;
        buffer.fill(.., 7)?;
        let letting_go = let_go(held);
        let _ = from.capture(CaptureMode::Relaxed, |_| {
            let _ = buffer.set_stream(&to);
            drop(buffer);
            Ok(())
        });
        // If the memory cannot be returned yet, the call refuses it.
        match registered.into_owner() {
            Ok(owner) => stay(&owner, 7),
            Err(refused) => drop(refused),
        }
        letting_go.join().expect("it only waits");
        Ok(())
    })
}

#[test]
fn buffer_part_dropped_in_a_capture_delays_exclusive_access() -> Outcome {
    alone(|setup: &Setup| {
        let (home, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let whole = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &home)?.into_shared();
        let mut part = whole.clone();
        part.set_stream(&other)?;
        let held = hold(&other)?;
        part.fill(.., 7)?;
        other.capture(CaptureMode::Relaxed, |other| {
            // `home` takes part in the capture, so that a join of the two would only be recorded.
            home.join(other)?;
            drop(part);
            other.join(&home)
        })?;
        let letting_go = let_go(held);
        match whole.try_into_exclusive() {
            Ok(mut whole) => stay(&whole.read(..)?, 7),
            Err(shared) => drop(shared),
        }
        letting_go.join().expect("it only waits");
        assert!(setup.context.take_drop_errors().errors.is_empty(), "the part ended after the capture");
        Ok(())
    })
}

#[test]
fn work_is_not_recorded_for_memory_by_a_captured_join() -> Outcome {
    alone(|setup: &Setup| {
        let (home, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let buffer = Buffer::<u8, _>::zeroed(&PinnedMemory::new(&setup.context), SIZE, &home)?;
        let mut told = Ok(());
        other.capture(CaptureMode::Relaxed, |other| {
            told = buffer.record_use(other);
            Ok(())
        })?;
        refused(told);
        Ok(())
    })
}

#[test]
fn slice_copies_finish_beside_a_blocking_stream_capture() -> Outcome {
    alone(|setup: &Setup| {
        let legacy = Stream::legacy_default(&setup.context);
        let mut options = StreamOptions::default();
        options.blocking = true;
        let blocking = Stream::with_options(&setup.context, options)?;
        let buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(&setup.context), SIZE, 7, &legacy)?;
        let mut host = cuda_mem::HostBuffer::<u8>::zeroed(&PinnedMemory::new(&setup.context), SIZE)?;
        let held = hold(&legacy)?;
        let (begun, has_begun) = channel();
        let copied = thread::scope(|scope| {
            // The capture begins while the copy waits, and ends later.
            scope.spawn(move || {
                has_begun.recv().expect("the copy is about to begin");
                thread::sleep(LATER);
                let _ = blocking.capture(CaptureMode::Relaxed, |_| {
                    drop(held);
                    thread::sleep(LATER);
                    Ok(())
                });
            });
            begun.send(()).expect("the thread listens");
            buffer.copy_to_slice(0, &mut host)
        });
        copied?;
        stay(&host, 7);
        Ok(())
    })
}

#[test]
fn capturing_stream_refuses_copies_with_borrowed_host_memory() -> Outcome {
    alone(|setup: &Setup| {
        let stream = Stream::new(&setup.context)?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
        let mut host = cuda_mem::HostBuffer::<u8>::zeroed(&PinnedMemory::new(&setup.context), SIZE)?;
        let graph = stream.capture(CaptureMode::Relaxed, |_| {
            refused(buffer.copy_from_slice(0, &host));
            refused(buffer.copy_to_slice(0, &mut host));
            refused(buffer.download(0, vec![0; SIZE]).map(drop).map_err(Error::from));
            Ok(())
        })?;
        assert_eq!(graph.node_count()?, 0, "nothing was recorded");
        Ok(())
    })
}
