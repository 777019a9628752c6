//! Code of the program that runs inside of calls: threads of copies, owners of streams and contexts.

use cuda_mem::copy::{CopyEngine, CopyOptions, CopyThreads, StagingOptions, Way};
use cuda_mem::memory::DeviceMemory;
use cuda_mem::{Buffer, CaptureMode, Context, Error, Stream};
use ffi_tests::suite::Outcome;
use ffi_tests::{alone, in_time, pattern, same};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;

/// More than one piece.
const SIZE: usize = 1 << 20;

type Work<'work> = &'work (dyn Fn() + Sync);

/// Threads of the program's, whose `run` is a function of the test's.
struct Threads<F>(F);

impl<F> fmt::Debug for Threads<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Threads")
    }
}

impl<F: Fn(Work<'_>) + Send + Sync> CopyThreads for Threads<F> {
    fn helpers(&self) -> usize {
        1
    }

    fn run(&self, _helpers: usize, work: Work<'_>) {
        (self.0)(work);
    }
}

/// An engine with one lane of small slots.
fn engine(context: &Context, run: impl Fn(Work<'_>) + Send + Sync + 'static) -> Result<CopyEngine, Error> {
    let mut staging = StagingOptions::default();
    (staging.slot_size, staging.lanes) = (SIZE / 8, 1);
    CopyEngine::builder(context).staging(staging).threads(Arc::new(Threads(run))).build()
}

fn staged() -> CopyOptions {
    let mut options = CopyOptions::default();
    options.way = Some(Way::Staged { threads: 2 });
    options
}

/// Copies to and from memory, in and out of stream order.
fn copy_in_all_ways(engine: &CopyEngine, stream: &Stream) -> Outcome {
    let memory = DeviceMemory::new(stream.context());
    let mut buffer = Buffer::<u8, _>::zeroed(&memory, SIZE, stream)?;
    let (first, second) = (pattern(SIZE, 1), pattern(SIZE, 2));
    engine.write_on(stream, &mut buffer, 0, &first)?;
    let mut seen = vec![0; SIZE];
    engine.read_with(&buffer, 0, &mut seen, &staged())?;
    same("in stream order", &seen, &first)?;
    engine.write_with(&mut buffer, 0, &second, &staged())?;
    engine.read_on(stream, &mut buffer, 0, &mut seen)?.wait()?;
    Ok(same("at once", &seen, &second)?)
}

#[test]
fn threads_of_a_copy_may_capture_its_stream() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let captured = stream.clone();
            let engine = engine(&setup.context, move |work| {
                let capture = || captured.capture(CaptureMode::ThreadLocal, |_| Ok(())).map(drop);
                // On this thread, and on another one, which waits until the stream is free.
                capture().expect("nothing is held");
                thread::scope(|scope| scope.spawn(capture).join()).expect("no panic").expect("nothing is held");
                work();
            })?;
            copy_in_all_ways(&engine, &stream)
        })
    })
}

#[test]
fn a_capture_that_begins_within_a_copy_makes_it_fail() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let captured = stream.clone();
            let engine = engine(&setup.context, move |work| {
                let recorded = captured.capture(CaptureMode::ThreadLocal, |_| {
                    work();
                    Ok(())
                });
                drop(recorded.expect("nothing is held"));
            })?;
            let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), SIZE, &stream)?;
            let bytes = pattern(SIZE, 1);
            for _ in 0..2 {
                let refused = engine.write_on(&stream, &mut buffer, 0, &bytes);
                assert!(matches!(refused, Err(Error::Capturing { .. })), "{refused:?}");
                let refused = engine.write_with(&mut buffer, 0, &bytes, &staged());
                assert!(matches!(refused, Err(Error::Capturing { .. })), "{refused:?}");
            }
            buffer.close()?;
            Ok(())
        })
    })
}

#[test]
fn threads_of_a_copy_may_copy_with_the_same_engine() -> Outcome {
    alone(|setup| {
        in_time(setup, |setup| {
            let stream = Stream::new(&setup.context)?;
            let (inner, own) = (stream.clone(), Arc::new(Mutex::new(None::<CopyEngine>)));
            let known = own.clone();
            let engine = engine(&setup.context, move |work| {
                // Once only: the copy inside has threads too.
                let engine = known.lock().expect("no panic").take();
                if let Some(engine) = engine {
                    copy_in_all_ways(&engine, &inner).expect("no lane is waited for");
                }
                work();
            })?;
            *own.lock().map_err(|_| "a panic")? = Some(engine.clone());
            copy_in_all_ways(&engine, &stream)
        })
    })
}
