//! Waits for the device before memory returns to the caller or is freed. While a thread captures a stream, the driver
//! refuses the thread's waits for other streams. Calls that must not return before their work is done must wait
//! nevertheless. Runs over the driver that the environment names.

use cuda_mem::copy::{CopyEngine, CopyMethod, CopyOptions, HostSide};
use cuda_mem::graph::{CaptureMode, RelaxedCalls};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, kind::Device};
use cuda_mem::view::{Order, StridedLayout, StridedView};
use cuda_mem::{Buffer, Error, HostBuffer, MappedMemory, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::suite::Outcome;
use testkit::{Setup, alone, delay, pattern, same};

const SIDE: usize = 256;
const SIZE: usize = SIDE * SIDE;
const SHAPE: [i64; 2] = [SIDE as i64; 2];
const STAGED: CopyMethod = CopyMethod::Staged { threads: 2 };

/// The objects that the calls use. All work on the buffer is delayed when a call begins.
struct Things {
    /// The buffer's home stream.
    work: Stream,
    buffer: Buffer<u8, Device>,
    host: HostBuffer<u8>,
    engine: CopyEngine,
}

impl Things {
    fn new(setup: &Setup, content: &[u8]) -> Result<Self, Error> {
        let work = Stream::new(&setup.context)?;
        let buffer = Buffer::from_slice(&DeviceMemory::new(&setup.context), content, &work)?;
        let host = HostBuffer::zeroed(&PinnedMemory::new(&setup.context), SIZE)?;
        let builder = CopyEngine::builder(&setup.context);
        let engine = builder.build()?;
        // Allocate the staging memory first, because captures forbid allocations.
        engine.read_with(&buffer, 0, &mut vec![0; SIZE], &by(STAGED))?;
        Ok(Self { work, buffer, host, engine })
    }
}

fn by(method: CopyMethod) -> CopyOptions {
    let mut options = CopyOptions::default();
    (options.method, options.host) = (Some(method), Some(HostSide::Pageable));
    options
}

/// Runs a call while this thread captures another stream and `work` is delayed. The capture must continue, and the work
/// must be done when the call returns.
fn beside_a_capture(setup: &Setup, work: &Stream, call: impl FnOnce() -> Outcome) -> Outcome {
    let other = Stream::new(&setup.context)?;
    let (mut outcome, mut done) = (Ok(()), false);
    delay(work)?;
    let graph = other.capture(CaptureMode::ThreadLocal, |_| {
        outcome = call();
        let _relaxed = RelaxedCalls::begin(&setup.driver)?;
        done = work.is_done()?;
        Ok(())
    });
    outcome?;
    assert!(done, "the work goes on");
    assert_eq!(graph?.node_count()?, 0, "the capture was lost, or contains other work");
    Ok(())
}

type Call = fn(&mut Things) -> Outcome;

/// Calls that read the buffer into `host`.
const READS: [(&str, Call); 8] = [
    ("copy_to_slice", |t| Ok(t.buffer.copy_to_slice(0, &mut t.host)?)),
    ("to_vec", |t| {
        t.host.copy_from_slice(&t.buffer.to_vec()?);
        Ok(())
    }),
    ("CopyEngine::read", |t| Ok(t.engine.read(&t.buffer, 0, &mut t.host)?)),
    ("CopyEngine::read_with, the driver", |t| {
        Ok(t.engine.read_with(&t.buffer, 0, &mut t.host, &by(CopyMethod::Driver))?)
    }),
    ("CopyEngine::read_with, staging", |t| Ok(t.engine.read_with(&t.buffer, 0, &mut t.host, &by(STAGED))?)),
    ("CopyEngine::read_on", |t| Ok(t.engine.read_on(&t.work, &mut t.buffer, 0, &mut t.host)?.wait()?)),
    ("StridedView::copy_from", |t| {
        Ok(StridedView::of_mut_slice(&mut t.host, square()?)?.copy_from(&t.buffer.view(&SHAPE)?)?)
    }),
    ("StridedView::copy_from, transposed", |t| {
        let mut turned = StridedView::of_mut_slice(&mut t.host, square()?)?.permuted(&[1, 0])?;
        Ok(turned.copy_from(&t.buffer.view(&SHAPE)?.permuted(&[1, 0])?)?)
    }),
];

/// Calls that write `host` to the buffer. The caller may reuse `host` when they return.
const WRITES: [(&str, Call); 6] = [
    ("copy_from_slice", |t| Ok(t.buffer.copy_from_slice(0, &t.host)?)),
    ("CopyEngine::write", |t| Ok(t.engine.write(&mut t.buffer, 0, &t.host)?)),
    ("CopyEngine::write_with, the driver", |t| {
        Ok(t.engine.write_with(&mut t.buffer, 0, &t.host, &by(CopyMethod::Driver))?)
    }),
    ("CopyEngine::write_with, staging", |t| Ok(t.engine.write_with(&mut t.buffer, 0, &t.host, &by(STAGED))?)),
    ("CopyEngine::write_scattered", |t| Ok(t.engine.write_scattered(&mut t.buffer, [(0, &t.host[..])])?)),
    ("StridedView::copy_from", |t| {
        let host = StridedView::of_slice(&t.host, square()?)?;
        Ok(t.buffer.view_mut(&SHAPE)?.copy_from(&host)?)
    }),
];

fn square() -> Result<StridedLayout, Error> {
    Ok(StridedLayout::dense(&SHAPE, 1, Order::C)?)
}

#[test]
fn what_is_read_is_there_when_the_call_returns() -> Outcome {
    alone(|setup| {
        for (name, read) in READS {
            let bytes = pattern(SIZE, 1);
            let mut things = Things::new(setup, &bytes)?;
            beside_a_capture(setup, &things.work.clone(), || read(&mut things))
                .map_err(|error| format!("{name}: {error}"))?;
            same(name, &things.host, &bytes)?;
            // The memory belongs to the caller again.
            things.host.fill(9);
            things.work.synchronize()?;
            same(name, &things.host, &[9; SIZE])?;
        }
        Ok(())
    })
}

#[test]
fn what_is_written_is_read_before_the_call_returns() -> Outcome {
    alone(|setup| {
        for (name, write) in WRITES {
            let bytes = pattern(SIZE, 2);
            let mut things = Things::new(setup, &[0; SIZE])?;
            things.host.copy_from_slice(&bytes);
            beside_a_capture(setup, &things.work.clone(), || write(&mut things))
                .map_err(|error| format!("{name}: {error}"))?;
            things.host.fill(9);
            same(name, &things.buffer.to_vec()?, &bytes)?;
        }
        Ok(())
    })
}

#[test]
fn a_transfer_that_ends_has_ended() -> Outcome {
    alone(|setup| {
        let bytes = pattern(SIZE, 3);
        let Things { work, mut buffer, host, .. } = Things::new(setup, &bytes)?;
        let (mut host, mut seen) = (Some(host), None);
        beside_a_capture(setup, &work, || {
            let download = buffer.download(0, host.take().ok_or("taken")?)?;
            seen = Some(download.wait()?);
            Ok(())
        })?;
        same("waited for", &seen.ok_or("nothing was read")?, &bytes)?;
        beside_a_capture(setup, &work, || {
            drop(buffer.upload(0, vec![9; SIZE])?);
            Ok(())
        })?;
        same("dropped", &buffer.to_vec()?, &[9; SIZE])?;
        Ok(())
    })
}

#[test]
fn work_of_every_threads_default_stream_is_waited_for() -> Outcome {
    alone(|setup| {
        let resource = MappedMemory::new(&setup.context)?;
        let stream = Stream::per_thread_default(&setup.context);
        let mut memory = testkit::mapped(&resource, 2 * SIZE)?;
        delay(&stream)?;
        testkit::fill_reported(&mut memory, 0, SIZE, 7, &stream)?;
        let there = || testkit::fill_reported(&mut memory, SIZE, SIZE, 8, &stream).map_err(|error| error.to_string());
        let there = std::thread::scope(|scope| scope.spawn(there).join());
        there.map_err(|_| "the thread panicked")??;
        same("this thread's", &memory.read(..SIZE)?, &[7; SIZE])?;
        same("the other thread's", &memory.read(SIZE..)?, &[8; SIZE])?;
        Ok(())
    })
}

#[test]
fn engine_write_on_per_thread_default_stream_keeps_stream_order() -> Outcome {
    alone(|setup| {
        let (bytes, home) = (pattern(4 << 20, 5), Stream::new(&setup.context)?);
        let engine = CopyEngine::builder(&setup.context).helper_threads(1).build()?;
        let mut buffer = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&setup.context), bytes.len(), &home)?;
        engine.write_on(&Stream::per_thread_default(&setup.context), &mut buffer, 0, &bytes)?;
        same("written", &buffer.to_vec()?, &bytes)?;
        Ok(())
    })
}

/// Records whether the work was done when another library's memory ended.
struct Owner(Stream, Arc<AtomicBool>);

impl Drop for Owner {
    fn drop(&mut self) {
        let _relaxed = RelaxedCalls::begin(self.0.context().driver());
        self.1.store(self.0.is_done() == Ok(true), Ordering::Relaxed);
    }
}

#[test]
fn the_owner_of_foreign_memory_is_let_go_after_the_work() -> Outcome {
    alone(|setup| {
        let Things { work, buffer, .. } = Things::new(setup, &[1; SIZE])?;
        let done = Arc::new(AtomicBool::new(false));
        let owner = Arc::new(Owner(work.clone(), done.clone()));
        // SAFETY: the bytes live longer, and nothing else uses them meanwhile.
        let foreign = unsafe { Buffer::<u8>::from_raw_with_owner(buffer.device_pointer(), SIZE, owner, &work) }?;
        beside_a_capture(setup, &work, || {
            drop(foreign);
            Ok(())
        })?;
        assert!(done.load(Ordering::Relaxed), "the owner ended before the work");
        Ok(())
    })
}

#[test]
fn mapped_memory_waits_for_its_work_and_ends_after_it() -> Outcome {
    alone(|setup| {
        let resource = MappedMemory::new(&setup.context)?;
        let work = Stream::new(&setup.context)?;
        let mut memory = testkit::mapped(&resource, SIZE)?;
        delay(&work)?;
        testkit::fill_on(&mut memory, .., 7, &work)?;
        beside_a_capture(setup, &work, || {
            memory.record_use(&work)?;
            Ok(same("the fill", &memory.read(..)?, &[7; SIZE])?)
        })?;
        // Captured work cannot be waited for, so it cannot be reported. It does not hide earlier work.
        delay(&work)?;
        testkit::fill_on(&mut memory, .., 8, &work)?;
        let mut refused = Ok(());
        work.capture(CaptureMode::ThreadLocal, |_| {
            refused = memory.record_use(&work);
            Ok(())
        })?;
        assert!(matches!(refused, Err(Error::Capturing { .. })), "{refused:?}");
        same("the later fill", &memory.read(..)?, &[8; SIZE])?;
        assert!(work.is_done()?, "the work before it is waited for");
        // The memory outlives its work: softgpu reports work on freed memory, and then the stream fails.
        delay(&work)?;
        testkit::fill_on(&mut memory, .., 9, &work)?;
        drop(memory);
        work.synchronize()?;
        Ok(())
    })
}
