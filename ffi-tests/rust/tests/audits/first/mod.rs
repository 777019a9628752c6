//! Programs from an audit of the safe interface. They once caused undefined behaviour or hung.
//!
//! They use the driver that the environment names. Programs that hung run on a thread with a time limit.

mod default_streams;
mod kinds;

use cuda_mem::adaptor::Limit;
use cuda_mem::buffer::CopyBatch;
use cuda_mem::frames::FrameRing;
use cuda_mem::graph::CaptureMode;
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::memory::{DeviceMemory, Location, ManagedMemory, PinnedMemory, ResourceHandle, SharedResource, kind};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::signal::{Comparison, Flag, Signals, WaitPolicy, Waiter};
use cuda_mem::{Buffer, Context, Error, Event, HostBuffer, Stream};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as Task, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use testkit::suite::Outcome;
use testkit::{LIMIT, Setup, alone, hold, in_time, same};

const SIZE: usize = 4096;
/// How long each race is tried.
const TRIES: Duration = Duration::from_secs(1);
/// Long enough for work that was released too early to cause damage.
const LATER: Duration = Duration::from_millis(100);

/// Releases delayed work after a while, when the program already waits for it.
fn let_go<H: Send + 'static>(held: H, after: Duration) {
    thread::spawn(move || {
        thread::sleep(after);
        drop(held);
    });
}

/// Checks that all bytes are unchanged when they are read again later.
fn stay(what: &str, bytes: &[u8], value: u8) -> Result<(), String> {
    let first = bytes.to_vec();
    thread::sleep(3 * LATER);
    same(&format!("{what}, in one slice, later"), bytes, &first)?;
    same(what, &first, &vec![value; first.len()])
}

/// Repeats an attempt while another thread begins and ends captures of the stream.
fn beside_captures(stream: &Stream, attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    beside_captures_of(stream, |_| Ok(()), attempt)
}

/// Repeats an attempt while another thread begins captures of the stream, records something in each, and ends them.
fn beside_captures_of(
    stream: &Stream,
    record: impl Fn(&Stream) -> Result<(), Error> + Sync,
    mut attempt: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|threads| {
        let stop = Stop(&over);
        threads.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = stream.capture(CaptureMode::Relaxed, &record);
                for _ in 0..200 {
                    std::hint::spin_loop();
                }
            }
        });
        let begin = Instant::now();
        while begin.elapsed() < TRIES {
            attempt()?;
        }
        drop(stop);
        Ok(())
    })
}

fn atoms(context: &Context) -> Result<MappedMemory, Error> {
    MappedMemory::with_coherence(context, CoherencePolicy::ForcedNonCoherent)
}

// ---- Captures that another thread begins at any moment ----

#[test]
fn a_vector_never_holds_bytes_that_nobody_wrote_beside_captures() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, DeviceMemory::new(&setup.context));
        let buffer = Buffer::<u8, _>::filled(&memory, SIZE, 7, &stream)?;
        let mut vectors = 0;
        beside_captures(&stream, || {
            // Fill the heap memory that the next allocation will probably get.
            drop(vec![0x55u8; SIZE]);
            if let Ok(vector) = buffer.to_vec() {
                same("the vector", &vector, &[7; SIZE])?;
                vectors += 1;
            }
            Ok(())
        })?;
        assert!(vectors > 0, "no copy was made");
        Ok(())
    })
}

#[test]
fn a_frame_is_copied_as_it_was_published_beside_captures() -> Outcome {
    alone(|setup| {
        let (stream, memory) = (Stream::new(&setup.context)?, PinnedMemory::new(&setup.context));
        let signals = Signals::new(&setup.context)?;
        let mut arrived = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), 64, &stream)?;
        let mut on_the_host = Buffer::<u8, _>::zeroed(&memory, 64, &stream)?;
        let patience = WaitPolicy::within(Duration::from_millis(200));
        // A slot that was read in a capture is not used again, so a ring lasts only for some frames.
        let mut ring: Option<FrameRing> = None;
        let (mut number, mut copies) = (0u8, 0);
        beside_captures(&stream, || {
            let Some(mut frame) = ring.as_ref().and_then(|ring| ring.next_with(&patience).ok()) else {
                ring = FrameRing::new(&memory, &signals, 64, 64).ok();
                return Ok(());
            };
            number = number.wrapping_add(1);
            // The driver would wait for the frame inside the call.
            assert!(on_the_host.copy_from_frame(0, &frame, ..).is_err());
            let copied = arrived.copy_from_frame(0, &frame, ..);
            thread::yield_now();
            frame.write(.., |bytes| bytes.fill(number)).map_err(|error| error.to_string())?;
            frame.publish().map_err(|error| error.to_string())?;
            if copied.is_ok()
                && let Ok(seen) = arrived.to_vec()
            {
                same("the frame's copy", &seen, &[number; 64])?;
                copies += 1;
            }
            Ok(())
        })?;
        assert!(copies > 0, "no frame was copied");
        Ok(())
    })
}

#[test]
fn every_host_function_that_was_accepted_runs_beside_captures() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let (mut accepted, ran) = (0, Arc::new(AtomicU64::new(0)));
        beside_captures(&stream, || {
            let ran = ran.clone();
            let launched = stream.launch_host_function(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            accepted += u64::from(launched.is_ok());
            if accepted.is_multiple_of(64) {
                // This fails while the stream captures. It keeps the queue short.
                let _ = stream.synchronize();
            }
            Ok(())
        })?;
        stream.synchronize()?;
        let ran = ran.load(Ordering::Relaxed);
        if ran != accepted {
            // The end of the context would wait for the other host functions.
            mem::forget(setup.clone());
            return Err(format!("{ran} of {accepted} host functions ran").into());
        }
        assert!(accepted > 0, "no host function was accepted");
        Ok(())
    })
}

#[test]
fn no_call_with_a_stream_meets_the_end_of_its_capture() -> Outcome {
    /// Makes one call, which may be refused. The test only requires that the software GPU sees no misuse.
    fn round(
        setup: &Setup,
        stream: &Stream,
        other: &Stream,
        memory: &[SharedResource],
        flag: &Flag<u32>,
    ) -> Result<(), Error> {
        let tried = |result: Result<(), Error>| drop(result);
        let event = Event::new(&setup.context)?;
        tried(event.record(stream));
        tried(stream.wait(&event));
        tried(stream.join(other));
        tried(other.join(stream));
        tried(stream.is_done().map(drop));
        tried(stream.synchronize());
        tried(stream.synchronize_for(Duration::ZERO));
        tried(stream.launch_host_function(|| ()));
        tried(flag.store_on(stream, 1));
        tried(flag.wait_on(stream, Comparison::Equal, 1));
        for memory in memory {
            let Ok(mut buffer) = Buffer::<u8, kind::Any>::filled(memory, SIZE, 1, stream) else { continue };
            tried(buffer.copy_from_slice(0, &[2; 16]));
            tried(buffer.to_vec().map(drop));
            tried(buffer.fill(.., 3));
            tried(buffer.copy_within(..16, 32));
            tried(buffer.synchronize());
            tried(buffer.record_use(other));
            tried(buffer.set_stream(other));
            tried(buffer.record_use(stream));
            tried(buffer.set_stream(stream));
            if let Ok(clone) = buffer.try_clone() {
                drop(buffer);
                let mut batch = CopyBatch::new(stream);
                let mut target = Buffer::<u8, kind::Any>::zeroed(memory, SIZE, other)?;
                tried(batch.copy(&mut target, 0, &clone, 0..16));
                tried(batch.submit());
            }
        }
        Ok(())
    }
    alone(|setup| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        let signals = Signals::new(&setup.context)?;
        let flag = signals.flag::<u32>(Waiter::Device)?;
        // A store may be refused where the wait after it is not, and nobody else would store.
        flag.store(1);
        let memory: [SharedResource; 3] = [
            DeviceMemory::new(&setup.context).share(),
            PinnedMemory::new(&setup.context).share(),
            Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?.share(),
        ];
        let mut rounds = 0;
        let join_both = |stream: &Stream| {
            other.join(stream)?;
            stream.join(&other)
        };
        beside_captures_of(&stream, join_both, || {
            rounds += usize::from(round(setup, &stream, &other, &memory, &flag).is_ok());
            Ok(())
        })?;
        assert!(rounds > 0);
        stream.synchronize()?;
        Ok(other.synchronize()?)
    })
}

#[test]
fn captured_event_survives_a_drop_on_another_thread() -> Outcome {
    alone(|setup| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        thread::scope(|threads| {
            let (drop_it, dropped) = channel::<Event>();
            threads.spawn(move || dropped.into_iter().for_each(drop));
            let begin = Instant::now();
            while begin.elapsed() < TRIES / 2 {
                stream.capture(CaptureMode::Relaxed, |stream| {
                    let event = Event::new(&setup.context)?;
                    event.record(stream)?;
                    other.wait(&event)?;
                    let _ = drop_it.send(event);
                    stream.join(&other)
                })?;
            }
            Ok(())
        })
    })
}

// ---- Host functions and wakers ----

#[test]
fn transfer_dropped_in_a_host_function_frees_its_memory_later() -> Outcome {
    alone(|setup| {
        let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
        // It counts a block as used until the free has returned.
        let memory = Limit::new(&PinnedMemory::new(&setup.context), usize::MAX);
        let buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(&setup.context), SIZE, 7, &stream)?;
        for is_complete in [false, true] {
            let host = HostBuffer::<u8>::zeroed(&memory, SIZE)?;
            let mut held = Some(hold(&stream)?);
            let transfer = buffer.download(0, host).map_err(Error::from)?;
            if is_complete {
                held = None;
                stream.synchronize()?;
            }
            other.launch_host_function(move || drop(transfer))?;
            if setup.is_software() {
                // A GPU's driver runs the host functions of all streams on one thread, so the delaying function must
                // run first.
                other.synchronize()?;
            }
            drop(held);
            other.synchronize()?;
            let begin = Instant::now();
            while memory.used() != 0 {
                assert!(begin.elapsed() < LIMIT, "the host memory of the transfer never comes back");
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    })
}

#[test]
fn pinned_memory_drop_does_not_deadlock_with_a_locking_waker() -> Outcome {
    struct Locks(Arc<Mutex<()>>);
    impl Wake for Locks {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
    alone(|setup| {
        in_time(setup, |setup| {
            let (stream, other) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let pinned = PinnedMemory::new(&setup.context);
            let plain = Buffer::<u8, _>::filled(&pinned, SIZE, 7, &other)?;
            let buffer = Buffer::<u8, _>::filled(&DeviceMemory::new(&setup.context), SIZE, 7, &stream)?;
            let held = hold(&stream)?;
            let mut transfer = buffer.download(0, HostBuffer::<u8>::zeroed(&pinned, SIZE)?).map_err(Error::from)?;
            let mutex = Arc::new(Mutex::new(()));
            let waker = Waker::from(Arc::new(Locks(mutex.clone())));
            let polled = Future::poll(Pin::new(&mut transfer), &mut Task::from_waker(&waker));
            assert!(polled.is_pending(), "the stream is held");
            let lock = mutex.lock().map_err(|error| error.to_string())?;
            drop(held);
            // Meanwhile the waker is called, and waits for the mutex.
            thread::sleep(2 * LATER);
            drop(plain);
            drop(lock);
            same("the copy", &transfer.wait()?, &[7; SIZE])?;
            Ok(())
        })
    })
}

// ---- Forgotten guards ----

// ---- Default streams, which depend on the current context ----

// ---- Memory of two kinds ----

#[test]
fn a_batch_that_a_capture_refuses_returns_the_error() -> Outcome {
    alone(|setup| {
        let memory = match ManagedMemory::new(&setup.context) {
            Err(error @ Error::Unsupported { .. }) => {
                println!("skipped: {error}");
                return Ok(());
            }
            memory => memory?,
        };
        in_time(setup, move |setup| {
            let (stream, side) = (Stream::new(&setup.context)?, Stream::new(&setup.context)?);
            let buffer = Buffer::<u8, _>::zeroed(&memory, SIZE, &side)?;
            side.synchronize()?;
            let captured = stream.capture(CaptureMode::Relaxed, |stream| {
                side.join(stream)?;
                Buffer::prefetch_batch(&[&buffer], &[Location::Host], stream)
            });
            if captured.is_ok() {
                println!("skipped: this driver records prefetches into graphs");
            }
            same("the buffer", &buffer.to_vec()?, &[0; SIZE])?;
            Ok(())
        })
    })
}
