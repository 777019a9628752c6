//! Programs that a further reader wrote against the fixes of the second audit.

use super::{LATER, SIZE, hold, in_time};
use cuda_mem::graph::CaptureMode;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::{Buffer, Error, Event, Stream, StreamOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::alone;
use testkit::suite::Outcome;

fn words(error: Error) -> String {
    error.to_string()
}

fn blocking() -> StreamOptions {
    let mut options = StreamOptions::default();
    options.blocking = true;
    options
}

/// A move between the legacy default stream and a blocking one enters both; so does a capture.
#[test]
fn blocking_captures_and_legacy_stream_moves_do_not_deadlock() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, legacy) =
                (Stream::with_options(&setup.context, blocking())?, Stream::legacy_default(&setup.context));
            let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
            let done = AtomicBool::new(false);
            thread::scope(|threads| {
                threads.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _ = buffer.set_stream(&legacy);
                        let _ = buffer.set_stream(&stream);
                    }
                });
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_secs(4) {
                    let _ = stream.capture(CaptureMode::Relaxed, |_| Ok(()));
                }
                done.store(true, Ordering::Relaxed);
            });
            Ok(())
        })
    })
}

/// The driver records an event again while another thread waits for it.
#[test]
fn event_record_in_a_capture_returns_beside_a_waiting_thread() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let event = Event::new(&setup.context)?;
            let held = hold(&other)?;
            event.record(&other)?;
            thread::scope(|threads| {
                let waiting = threads.spawn(|| event.synchronize());
                thread::sleep(LATER);
                // Either outcome is right, but the call must return: only this thread lets the work go on.
                let recorded = stream.capture(CaptureMode::Relaxed, |stream| event.record(stream));
                assert!(
                    recorded.is_ok()
                        || recorded.is_err_and(|error| error.to_string().contains("in use by another thread"))
                );
                drop(held);
                waiting.join().map_err(|_| "a panic")?.map_err(words)
            })?;
            other.synchronize()?;
            Ok(())
        })
    })
}

#[test]
fn a_reserve_of_urgent_streams_still_gives_usual_ones() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            setup.context.reserve_streams(32)?;
            let (_, most) = Stream::priority_range(&setup.context)?;
            let mut urgent = StreamOptions::default();
            urgent.priority = most;
            let usual: Vec<_> = (0..32).map(|_| Stream::new(&setup.context)).collect::<Result<_, _>>()?;
            let all: Vec<_> =
                (0..32).map(|_| Stream::with_options(&setup.context, urgent)).collect::<Result<_, _>>()?;
            drop(all);
            let held = hold(&usual[0])?;
            let begin = Instant::now();
            let made = Stream::new(&setup.context);
            drop(held);
            usual[0].synchronize()?;
            made?;
            if begin.elapsed() > Duration::from_secs(2) { Err("it took too long".into()) } else { Ok(()) }
        })
    })
}

/// The last value for a stream of a capture ends on another thread.
#[test]
fn a_stream_of_a_capture_may_be_dropped_by_another_thread() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let joined = Stream::new(&setup.context)?;
            let mut mine = Some(joined.clone());
            let captured = stream.capture(CaptureMode::Relaxed, |stream| {
                let own = mine.take().ok_or_else(|| unreachable!()).unwrap_or_else(|_: Error| unreachable!());
                own.join(stream)?;
                stream.join(&own)?;
                drop(own);
                thread::scope(|threads| threads.spawn(|| drop(joined)).join())
                    .map_err(|_| unreachable!())
                    .unwrap_or(());
                Ok(())
            });
            captured.map(drop)?;
            Ok(())
        })
    })
}

/// As above, by the capturing thread, and before the stream is joined again.
#[test]
fn a_stream_of_a_capture_may_be_dropped_in_the_capture() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let captured = stream.capture(CaptureMode::Relaxed, |stream| {
                let own = Stream::new(&setup.context)?;
                own.join(stream)?;
                stream.join(&own)?;
                drop(own);
                Ok(())
            });
            captured.map(drop)?;
            let unjoined = stream.capture(CaptureMode::Relaxed, |stream| {
                let own = Stream::new(&setup.context)?;
                own.join(stream)
            });
            drop(unjoined);
            // The stream works on.
            let buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(&setup.context), SIZE, 3, &stream)?;
            assert_eq!(buffer.to_vec()?, [3; SIZE]);
            Ok(())
        })
    })
}

#[test]
fn a_context_with_a_reserve_ends_in_a_capture() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            for mode in [CaptureMode::Relaxed, CaptureMode::ThreadLocal, CaptureMode::Global] {
                let other = setup.driver.device(0)?.create_context()?;
                other.reserve_streams(5)?;
                drop(Stream::new(&other)?);
                let mut ends = Some(other);
                let captured = stream.capture(mode, |_| {
                    drop(ends.take());
                    Ok(())
                });
                captured.map_err(|error| format!("{mode:?}: {error}"))?;
            }
            Ok(())
        })
    })
}

/// A copy of another thread on the legacy stream waits inside the driver for work that this thread lets go.
#[test]
fn a_capture_begins_beside_a_copy_on_the_legacy_stream() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, legacy) =
                (Stream::with_options(&setup.context, blocking())?, Stream::legacy_default(&setup.context));
            let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &legacy)?;
            legacy.synchronize()?;
            let other = Stream::with_options(&setup.context, blocking())?;
            let held = hold(&other)?;
            thread::scope(|threads| {
                let copy = threads.spawn(|| buffer.copy_from_slice(0, &[1; SIZE]));
                thread::sleep(LATER);
                let captured = stream.capture(CaptureMode::Relaxed, |_| Ok(()));
                drop(held);
                captured.map_err(words)?;
                copy.join().map_err(|_| "a panic")?.map_err(words)
            })?;
            Ok(())
        })
    })
}

/// Each thread has a per-thread default stream of its own, so a capture of one concerns no other.
#[test]
fn a_capture_of_a_threads_default_stream_is_no_other_threads() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::per_thread_default(&setup.context);
            let mut outcome = Ok(());
            stream.capture(CaptureMode::Relaxed, |_| {
                outcome = thread::scope(|threads| {
                    let elsewhere = threads.spawn(|| {
                        let own = Stream::per_thread_default(&setup.context);
                        assert!(!own.is_capturing()?, "another thread's capture");
                        own.synchronize()?;
                        stream.synchronize()?;
                        own.capture(CaptureMode::Relaxed, |own| {
                            assert!(own.is_capturing()?);
                            Ok(())
                        })?;
                        assert!(!own.is_capturing()?);
                        Ok::<_, Error>(())
                    });
                    elsewhere.join().map_err(|_| "a panic".to_string())?.map_err(words)
                });
                assert!(stream.is_capturing()?);
                Ok(())
            })?;
            assert!(!stream.is_capturing()?);
            stream.synchronize()?;
            Ok(outcome?)
        })
    })
}

/// A capture whose end fails leaves no stream and no event in it.
#[test]
fn a_capture_that_cannot_end_leaves_nothing_captured() -> Outcome {
    alone(|setup| {
        if !super::can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            for function in ["cuCtxPushCurrent_v2", "cuCtxGetCurrent", "cuCtxGetId", "cuStreamEndCapture"] {
                for k in 1.. {
                    let context = setup.driver.device(0)?.create_context()?;
                    let (stream, joined) = (Stream::with_options(&context, blocking())?, Stream::new(&context)?);
                    let event = Event::new(&context)?;
                    let (captured, met) = super::with_fault(function, k, || {
                        stream.capture(CaptureMode::Relaxed, |stream| {
                            event.record(stream)?;
                            joined.join(stream)?;
                            stream.join(&joined)
                        })
                    });
                    if let Err(error) = &captured {
                        assert!(!stream.is_capturing()?, "{function} {k}: {error}");
                    }
                    drop((event, joined, stream));
                    let _ = context.take_drop_errors();
                    drop((captured, context));
                    let _ = setup.driver.take_drop_errors();
                    if !met {
                        break;
                    }
                }
            }
            Ok(())
        })
    })
}

/// Threads drop the last values for streams and events of a capture while it ends.
#[test]
fn values_of_a_capture_end_beside_its_end() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::with_options(&setup.context, blocking())?;
            let (give, take) = std::sync::mpsc::channel::<(Stream, Event)>();
            let begin = Instant::now();
            let outcome = thread::scope(|threads| {
                threads.spawn(move || take.into_iter().for_each(drop));
                while begin.elapsed() < Duration::from_secs(2) {
                    let (joined, event) =
                        (Stream::with_options(&setup.context, blocking())?, Event::new(&setup.context)?);
                    stream.capture(CaptureMode::Relaxed, |stream| {
                        event.record(stream)?;
                        joined.join(stream)?;
                        stream.join(&joined)?;
                        let _ = give.send((joined, event));
                        thread::yield_now();
                        Ok(())
                    })?;
                }
                drop(give);
                Ok::<_, Error>(())
            });
            Ok(outcome?)
        })
    })
}

#[test]
fn captures_nest_on_one_thread() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let context = &setup.context;
            let (a, b) = (Stream::with_options(context, blocking())?, Stream::with_options(context, blocking())?);
            let (x, event) = (Stream::new(context)?, Event::new(context)?);
            let legacy = Stream::legacy_default(context);
            a.capture(CaptureMode::Relaxed, |a| {
                event.record(a)?;
                assert!(a.capture(CaptureMode::Relaxed, |_| Ok(())).is_err(), "captured twice");
                b.capture(CaptureMode::Relaxed, |b| {
                    assert!(legacy.synchronize().is_err());
                    x.join(b)?;
                    event.record(&x)?;
                    b.join(&x)
                })?;
                assert!(legacy.synchronize().is_err(), "one capture goes on");
                let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    b.capture(CaptureMode::Relaxed, |b| -> Result<(), Error> {
                        event.record(b)?;
                        panic!("in a capture")
                    })
                }));
                assert!(panicked.is_err() && !b.is_capturing()?);
                b.synchronize()
            })?;
            legacy.synchronize()?;
            event.record(&b)?;
            event.synchronize()?;
            Ok(())
        })
    })
}

#[test]
fn foreign_context_destroy_during_capture_leaks_nothing() -> Outcome {
    alone(|setup| {
        if !super::can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let context = setup.driver.device(0)?.create_context()?;
            context.reserve_streams(4)?;
            let (stream, joined) = (Stream::with_options(&context, blocking())?, Stream::new(&context)?);
            let event = Event::new(&context)?;
            let captured = stream.capture(CaptureMode::Relaxed, |stream| {
                event.record(stream)?;
                joined.join(stream)?;
                // SAFETY: another library may end any context.
                let _ = unsafe { setup.driver.raw().cuCtxDestroy_v2(context.raw()) };
                Ok(())
            });
            assert!(captured.is_err());
            drop((event, joined, stream, captured));
            context.take_drop_errors();
            drop(context);
            setup.driver.take_drop_errors();
            Ok(())
        })
    })
}

/// Every driver call that the fixes added fails once.
#[test]
fn each_new_driver_call_may_fail() -> Outcome {
    alone(|setup| {
        if !super::can_fail(setup) {
            return Ok(());
        }
        in_time(setup, |setup| {
            let pinned = PinnedMemory::new(&setup.context);
            let pool = cuda_mem::pool::Pool::new(&pinned, &cuda_mem::pool::PoolOptions::default())?;
            for function in [
                "cuStreamGetFlags",
                "cuEventRecord",
                "cuEventCreate",
                "cuStreamQuery",
                "cuStreamCreateWithPriority",
                "cuStreamBeginCapture_v2",
            ] {
                for k in 1..40 {
                    let ((), met) = super::with_fault(function, k, || {
                        let run = || {
                            let stream = Stream::with_options(&setup.context, blocking())?;
                            let former = Buffer::<u8, _>::filled(&pool, SIZE, 7, &stream)?;
                            drop(former);
                            let held = hold(&stream)?;
                            let mut next = None;
                            let captured = stream.capture(CaptureMode::Relaxed, |_| Ok(()));
                            let made = Buffer::<u8, _>::zeroed(&pool, SIZE, &stream);
                            drop(held);
                            if let Ok(made) = made {
                                let shared = made.into_shared();
                                if shared.store(0, &[9; SIZE]).is_ok() {
                                    let mut seen = [0; SIZE];
                                    if shared.load(0, &mut seen).is_ok() {
                                        assert_eq!(seen, [9; SIZE]);
                                    }
                                }
                                next = Some(shared);
                            }
                            drop((captured, next, stream));
                            drop(Stream::new(&setup.context)?);
                            Ok::<_, Error>(())
                        };
                        let _ = run();
                    });
                    setup.context.synchronize()?;
                    setup.context.take_drop_errors();
                    if !met {
                        break;
                    }
                }
            }
            // Nothing is captured, and the legacy default stream works.
            Stream::legacy_default(&setup.context).synchronize()?;
            drop(pool);
            setup.context.take_drop_errors();
            Ok(())
        })
    })
}

#[test]
fn pinned_memory_is_allocated_beside_a_blocking_stream_capture() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::with_options(&setup.context, blocking())?;
            let mut made = Err("the capture did not begin".to_string());
            stream.capture(CaptureMode::Relaxed, |_| {
                let elsewhere = || cuda_mem::HostBuffer::<u8>::zeroed(&PinnedMemory::new(&setup.context), SIZE);
                made = thread::scope(|threads| {
                    let made = threads.spawn(elsewhere).join().map_err(|_| "a panic".to_string())?;
                    made.map(drop).map_err(words)
                });
                Ok(())
            })?;
            Ok(made?)
        })
    })
}

/// A thread's copy on its default stream waits inside the driver for work that this thread lets go.
#[test]
fn per_thread_default_stream_capture_blocks_no_other_thread() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let (entered, inside) = std::sync::mpsc::channel::<()>();
            let (go, gone) = std::sync::mpsc::channel::<()>();
            thread::scope(|threads| {
                let other = threads.spawn(move || {
                    let own = Stream::per_thread_default(&setup.context);
                    own.capture(CaptureMode::Relaxed, |_| {
                        let _ = entered.send(());
                        let _ = gone.recv();
                        Ok(())
                    })
                });
                let _ = inside.recv();
                let own = Stream::per_thread_default(&setup.context);
                own.synchronize()?;
                own.capture(CaptureMode::Relaxed, |_| Ok(()))?;
                drop(go);
                other.join().map_err(|_| "a panic")?.map_err(words)?;
                Ok(())
            })
        })
    })
}
