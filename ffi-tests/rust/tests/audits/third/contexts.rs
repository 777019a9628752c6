//! Waits for a whole context beside captures. The driver (580.159) crashes if such a wait meets the end of a capture:
//! `ffi-tests/benches/peers/waits_beside_captures.c` shows it.

use cuda_mem::cuda_sys::CUhostFn;
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::PinnedMemory;
use cuda_mem::{Buffer, Context, Error, HostBuffer, Stream};
use softgpu::Misuse;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{Setup, alone_with_late_ends, check_call, in_time};

/// How long to capture beside copies.
const CAPTURES: Duration = Duration::from_secs(3);

/// A context of the test's own: a wait for a context that is refused invalidates the captures of others there.
fn own(setup: &Setup) -> Result<Context, Error> {
    setup.context.device().create_context()
}

#[test]
fn a_wait_for_a_context_meets_no_end_of_a_capture() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let context = own(setup)?;
            let streams = [Stream::new(&context)?, Stream::new(&context)?];
            let (over, made) = (&AtomicBool::new(false), &AtomicUsize::new(0));
            thread::scope(|threads| {
                // No capture may be lost.
                let capture = |stream| {
                    let capture = move || -> Result<(), Error> {
                        while !over.load(Ordering::Relaxed) {
                            Stream::capture(stream, CaptureMode::Relaxed, |_| Ok(()))?;
                            made.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(())
                    };
                    threads.spawn(capture)
                };
                let capturing = streams.each_ref().map(capture);
                let mut waits = 0;
                let waited = loop {
                    let waited = context.synchronize();
                    waits += 1;
                    let is_enough = waits >= 50 && made.load(Ordering::Relaxed) >= 50;
                    if waited.is_err() || is_enough || capturing.iter().any(ScopedJoinHandle::is_finished) {
                        break waited;
                    }
                };
                over.store(true, Ordering::Relaxed);
                for thread in capturing {
                    thread.join().map_err(|_| "a capturing thread panicked")??;
                }
                waited?;
                let met: Vec<_> =
                    softgpu::misuse().into_iter().filter(|one| one.misuse == Misuse::EndOfCapture).collect();
                assert!(met.is_empty(), "{met:?}");
                Ok(())
            })
        })
    })
}

/// Blocks a stream until the sender is dropped, by a call of another library: this crate does not know that the stream
/// waits for the CPU.
fn hold(stream: &Stream, released: Receiver<()>) -> Result<(), Error> {
    extern "C" fn wait(released: *mut c_void) {
        // SAFETY: `hold` has made the box, and the function runs once.
        let released = unsafe { Box::from_raw(released.cast::<Receiver<()>>()) };
        let _ = released.recv();
    }
    let function: CUhostFn = Some(wait);
    let _current = stream.context().bind()?;
    // SAFETY: the stream lives, and the function takes the box.
    let queued = unsafe {
        let released = Box::into_raw(Box::new(released)).cast();
        stream.context().driver().raw().cuLaunchHostFunc(stream.raw(), function, released)
    };
    check_call("cuLaunchHostFunc", queued)
}

#[test]
fn a_capture_begins_beside_a_long_wait_for_a_context() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let context = own(setup)?;
            let (busy, captured) = (Stream::new(&context)?, Stream::new(&context)?);
            let (release, released) = channel();
            hold(&busy, released)?;
            thread::scope(|threads| {
                let waiting = threads.spawn(|| context.synchronize());
                // The wait is in the driver by then, or it waits for the capture.
                thread::sleep(Duration::from_millis(50));
                let captured = captured.capture(CaptureMode::Relaxed, |_| Ok(())).map(drop);
                drop(release);
                waiting.join().map_err(|_| "the waiting thread panicked")??;
                Ok(captured?)
            })
        })
    })
}

#[test]
fn a_wait_for_a_context_in_its_own_capture_is_refused() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let context = own(setup)?;
            let stream = Stream::new(&context)?;
            let mut refused = None;
            let captured = stream.capture(CaptureMode::Relaxed, |_| {
                refused = context.synchronize().err();
                Ok(())
            });
            assert!(captured.is_err() && refused.is_some(), "{refused:?}");
            Ok(context.synchronize()?)
        })
    })
}

#[test]
fn a_copy_ends_no_capture_that_begins_beside_it() -> Outcome {
    alone_with_late_ends(|setup| {
        in_time(setup, |setup| {
            let (stream, captured) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let buffer = Buffer::filled(&PinnedMemory::new(&setup.context), 64, 7u8, &stream)?;
            // Before the captures: in global mode they refuse allocations of other threads.
            let mut bytes = HostBuffer::<u8>::zeroed(&PinnedMemory::new(&setup.context), 64)?;
            let over = &AtomicBool::new(false);
            thread::scope(|threads| {
                let copying = threads.spawn(|| -> Result<(), Error> {
                    while !over.load(Ordering::Relaxed) {
                        buffer.copy_to_slice(0, &mut bytes)?;
                    }
                    Ok(())
                });
                let begin = Instant::now();
                let mut captures = Ok(());
                while captures.is_ok() && begin.elapsed() < CAPTURES {
                    captures = captured.capture(CaptureMode::Global, |_| Ok(())).map(drop);
                }
                over.store(true, Ordering::Relaxed);
                copying.join().map_err(|_| "the copying thread panicked")??;
                Ok(captures?)
            })
        })
    })
}
