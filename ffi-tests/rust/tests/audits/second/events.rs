//! Holes J and X: an event that a capture has recorded belongs to the thread that captures, until the capture ends.

use super::{LIMIT, SIZE, in_time, refused};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle};
use cuda_mem::{Buffer, Error, Event, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{Setup, alone, same};

/// The modes in which other threads may wait and allocate.
const MODES: [CaptureMode; 2] = [CaptureMode::ThreadLocal, CaptureMode::Relaxed];
/// How long threads race.
const TRIES: Duration = Duration::from_millis(500);

/// Captures a stream and records an event there, and runs a program on another thread before the capture ends.
fn beside_a_recorded_event(
    stream: &Stream,
    event: &Event,
    mode: CaptureMode,
    program: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), String> {
    let mut outcome = Ok(());
    let captured = stream.capture(mode, |stream| {
        event.record(stream)?;
        outcome = thread::scope(|threads| threads.spawn(program).join().unwrap_or_else(|_| Err("a panic".into())));
        Ok(())
    });
    // A stream that joined unseen leaves the capture unjoined.
    outcome.and(captured.map(drop).map_err(|error| format!("the capture: {error}")))
}

fn words(error: Error) -> String {
    error.to_string()
}

// Hole J.
#[test]
fn a_stream_joins_no_capture_of_another_thread() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            for memory in [DeviceMemory::new(&setup.context).share(), PinnedMemory::new(&setup.context).share()] {
                for mode in MODES {
                    let mut buffer = Buffer::<u8, cuda_mem::memory::kind::Any>::zeroed(&memory, SIZE, &other)?;
                    other.synchronize()?;
                    let event = Event::new(&setup.context)?;
                    beside_a_recorded_event(&stream, &event, mode, || {
                        refused("a wait of another thread's stream", other.wait(&event))?;
                        assert!(!other.is_capturing().map_err(words)?, "the stream joined");
                        buffer.fill(.., 7).map_err(words)?;
                        same("a fill beside the capture", &buffer.to_vec().map_err(words)?, &[7; SIZE])
                    })?;
                    same("a fill beside a capture that has ended", &buffer.to_vec()?, &[7; SIZE])?;
                }
            }
            Ok(())
        })
    })
}

// Hole J.
#[test]
fn work_of_other_threads_runs_while_they_try_to_join_captures() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &other)?;
            let event = Event::new(&setup.context)?;
            let begin = Instant::now();
            let (mut fills, mut captures) = (0u8, 0);
            thread::scope(|threads| {
                let capturing = threads.spawn(|| {
                    while begin.elapsed() < TRIES {
                        let record = |stream: &Stream| {
                            event.record(stream)?;
                            thread::yield_now();
                            Ok(())
                        };
                        // The other thread may hold the event at the moment.
                        captures += usize::from(stream.capture(CaptureMode::Relaxed, record).is_ok());
                    }
                });
                while begin.elapsed() < TRIES {
                    let _ = other.wait(&event);
                    fills = fills.wrapping_add(1);
                    buffer.fill(.., fills)?;
                    same("a fill beside captures", &buffer.to_vec()?, &[fills; SIZE])?;
                }
                capturing.join().map_err(|_| "the capturing thread panicked")?;
                Outcome::Ok(())
            })?;
            assert!(captures > 0, "no capture was made");
            Ok(())
        })
    })
}

/// One use of an event by a thread that does not capture.
type Use = fn(&Setup, &Stream, &Event, &Event) -> Result<(), Error>;

const USES: [(&str, Use); 6] = [
    ("a question", |_, _, event, _| event.is_done().map(drop)),
    ("a wait", |_, _, event, _| event.synchronize()),
    ("a wait with a limit", |_, _, event, _| event.synchronize_for(LIMIT)),
    ("a record", |_, stream, event, _| event.record(stream)),
    ("a wait of a stream", |_, stream, event, _| stream.wait(event)),
    ("the time since an event", |_, _, event, earlier| earlier.elapsed(event).map(drop)),
];

// Hole X.
#[test]
fn events_of_a_capture_are_refused_to_other_threads() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let mut wrong = Vec::new();
            for mode in MODES {
                let (event, earlier) = (Event::with_timing(&setup.context)?, Event::with_timing(&setup.context)?);
                earlier.record(&other)?;
                for (name, used) in USES {
                    // The event marked work before, so the refusal is not that of a new event.
                    event.record(&other)?;
                    other.synchronize()?;
                    let attempt = || refused(name, used(setup, &other, &event, &earlier));
                    wrong.extend(beside_a_recorded_event(&stream, &event, mode, attempt).err());
                }
                // The next record makes the event everybody's again.
                event.record(&other)?;
                for (name, used) in USES {
                    other.synchronize()?;
                    used(setup, &other, &event, &earlier).map_err(|error| format!("{name} afterwards: {error}"))?;
                }
            }
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
        })
    })
}

// Hole X.
#[test]
fn events_shared_beside_captures_end_no_capture_while_in_use() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let (event, earlier) = (Event::with_timing(&setup.context)?, Event::with_timing(&setup.context)?);
            let over = AtomicBool::new(false);
            thread::scope(|threads| {
                let using = threads.spawn(|| {
                    let mut accepted = 0;
                    while !over.load(Ordering::Relaxed) {
                        // Each use may be refused. softgpu must see no misuse.
                        let tried = USES.map(|(_, used)| used(setup, &other, &event, &earlier).is_ok());
                        accepted += tried.into_iter().filter(|accepted| *accepted).count();
                    }
                    accepted
                });
                let begin = Instant::now();
                let mut captures = 0;
                while begin.elapsed() < TRIES {
                    let captured = stream.capture(CaptureMode::Relaxed, |stream| event.record(stream));
                    captures += usize::from(captured.is_ok());
                    thread::yield_now();
                }
                over.store(true, Ordering::Relaxed);
                let accepted = using.join().map_err(|_| "the other thread panicked")?;
                assert!(captures > 0 && accepted > 0, "{captures} captures, {accepted} uses");
                Ok(())
            })
        })
    })
}
