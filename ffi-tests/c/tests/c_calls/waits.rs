//! A call of the C library that waits for the device, or for the other end of a ring, keeps no other call on the same
//! handle waiting. A host function may wait for a thread that makes such a call.

use core::ffi::c_void;
use core::ptr;
use cudamem::buffer::*;
use cudamem::handles::*;
use cudamem::objects::cudamem_set_name;
use cudamem::ring::*;
use cudamem::signal::*;
use cudamem::status::*;
use cudamem::stream::*;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use testkit::c_objects::{Buffer, Context, Engine, Resource, Result, Stream, done, filled, told};
use testkit::forks::in_child;

const SIZE: usize = 1 << 16;

/// Blocks a stream until the result is dropped, or for at most ten seconds.
fn block(stream: &Stream) -> Result<Sender<()>> {
    extern "C" fn hold(until: *mut c_void) {
        // SAFETY: the pointer comes from a box, and the function runs once.
        let until = unsafe { Box::from_raw(until.cast::<Receiver<()>>()) };
        let _ = until.recv_timeout(Duration::from_secs(10));
    }
    let (go_on, until) = channel();
    let until = Box::into_raw(Box::new(until));
    done(cudamem_stream_launch_host_function(stream.0, Some(hold), until.cast()))?;
    Ok(go_on)
}

/// Makes a call, which must not wait.
fn at_once(what: &str, call: impl FnOnce() -> Result) -> Result {
    let begin = Instant::now();
    call()?;
    assert!(begin.elapsed() < Duration::from_secs(1), "{what} has waited {:?}", begin.elapsed());
    Ok(())
}

/// What the calls use.
struct Things {
    buffer: Buffer,
    other: Buffer,
    engine: Engine,
    stream: Stream,
}

type Call = fn(&Things) -> Result<u8>;

const WAITING: [(&str, Call); 6] = [
    ("cudamem_buffer_write", |things| things.buffer.write(0, &[7; SIZE]).map(|()| 7)),
    ("cudamem_buffer_read", |things| {
        let mut bytes = [0; SIZE];
        things.buffer.read(0, &mut bytes).map(|()| bytes[0])
    }),
    ("cudamem_buffer_equals", |things| {
        let equal: bool = told(|place| cudamem_buffer_equals(things.buffer.0, things.other.0, place))?;
        Ok(if equal { 7 } else { 0 })
    }),
    ("cudamem_engine_write_buffer", |things| things.engine.write_buffer(&things.buffer, 0, &[7; SIZE]).map(|()| 7)),
    ("cudamem_engine_read_buffer", |things| {
        let mut bytes = [0; SIZE];
        things.engine.read_buffer(&things.buffer, 0, &mut bytes).map(|()| bytes[0])
    }),
    ("cudamem_buffer_copy", |things| {
        done(cudamem_buffer_copy(things.buffer.0, 0, things.other.0, 0, SIZE)).map(|()| 7)
    }),
];

fn beside_waits(context: &Context, memory: &Resource) -> Result {
    let (home, second) = (context.stream()?, context.stream()?);
    for (name, waits) in WAITING {
        let things = Things {
            buffer: memory.allocate(SIZE, &home)?,
            other: memory.allocate(SIZE, &home)?,
            engine: context.engine()?,
            stream: context.stream()?,
        };
        things.buffer.fill(0, SIZE, &[7])?;
        things.other.fill(0, SIZE, &[7])?;
        home.synchronize()?;
        // The first use of some calls loads kernels.
        assert_eq!(waits(&things)?, 7);
        let go_on = block(&home)?;
        thread::scope(|scope| -> Result {
            let waiting = scope.spawn(|| waits(&things));
            thread::sleep(Duration::from_millis(50));
            at_once(name, || things.buffer.info().map(drop))?;
            at_once(name, || things.buffer.record_use(&things.stream))?;
            at_once(name, || things.buffer.fill(SIZE / 2, 16, &[9]))?;
            at_once(name, || things.other.info().map(drop))?;
            let slice: cudamem_buffer = told(|place| cudamem_buffer_slice(things.buffer.0, 0, 16, place))?;
            at_once(name, || done(cudamem_buffer_set_stream(things.buffer.0, second.0)))?;
            at_once(name, || done(cudamem_buffer_destroy(slice)))?;
            drop(go_on);
            assert_eq!(waiting.join().expect("no panic")?, 7, "{name}");
            Ok(())
        })?;
        let mut bytes = [0; 16];
        things.buffer.read(0, &mut bytes)?;
        assert_eq!(bytes, [7; 16], "{name}");
        things.buffer.read(SIZE / 2, &mut bytes)?;
        let last = if name.contains("read") || name.contains("equals") { [9, 9] } else { [7, 9] };
        assert!(last.contains(&bytes[0]), "{name}: {bytes:?}");
    }
    Ok(())
}

#[test]
fn a_call_that_waits_for_device_memory_blocks_no_other() -> Result {
    let context = Context::open()?;
    beside_waits(&context, &context.device_memory()?)
}

#[test]
fn a_call_that_waits_for_host_memory_blocks_no_other() -> Result {
    let context = Context::open()?;
    beside_waits(&context, &context.pinned_memory(0)?)
}

#[test]
fn a_buffer_that_is_destroyed_beside_a_wait_lives_until_its_end() -> Result {
    let context = Context::open()?;
    let home = context.stream()?;
    let buffer = std::mem::ManuallyDrop::new(context.device_memory()?.allocate(SIZE, &home)?);
    buffer.fill(0, SIZE, &[7])?;
    let (handle, go_on) = (buffer.0, block(&home)?);
    thread::scope(|scope| -> Result {
        let reading = scope.spawn(|| {
            let mut bytes = [0; SIZE];
            buffer.read(0, &mut bytes).map(|()| bytes)
        });
        thread::sleep(Duration::from_millis(50));
        at_once("cudamem_buffer_destroy", || done(cudamem_buffer_destroy(handle)))?;
        drop(go_on);
        assert_eq!(reading.join().expect("no panic")?, [7; SIZE]);
        Ok(())
    })?;
    home.synchronize()
}

#[test]
fn a_thread_that_waits_at_a_ring_blocks_no_other() -> Result {
    let context = Context::open()?;
    // SAFETY: NULL stands for the defaults.
    let signals: cudamem_signals = told(|place| unsafe { cudamem_signals_create(context.0, ptr::null(), place) })?;
    // SAFETY: as above.
    let ring: cudamem_ring = told(|place| unsafe { cudamem_ring_create(signals, 2, 4, ptr::null(), place) })?;
    let push = |options: *const cudamem_wait_options| -> Result<usize> {
        let items = [1u32, 2];
        // SAFETY: there are two items of four bytes, and the options are valid or NULL.
        told(|place| unsafe { cudamem_ring_push(ring, items.as_ptr().cast(), 2, options, place) })
    };
    assert_eq!(push(ptr::null())?, 2);
    thread::scope(|scope| -> Result {
        // Without a kernel that pops, the push ends after its time.
        let waiting = scope.spawn(|| {
            // SAFETY: the struct consists of numbers, for which zero is a valid value.
            let mut options: cudamem_wait_options = unsafe { core::mem::zeroed() };
            (options.size, options.timeout) = (size_of::<cudamem_wait_options>(), 2.0);
            let begin = Instant::now();
            push(&options).expect_err("the ring is full");
            begin.elapsed()
        });
        thread::sleep(Duration::from_millis(50));
        // SAFETY: the name ends with a zero, and the struct is as large as it says.
        at_once("cudamem_set_name", || done(unsafe { cudamem_set_name(ring.id, c"requests".as_ptr()) }))?;
        at_once("cudamem_ring_get_info", || {
            // SAFETY: as above.
            let info: cudamem_ring_info = filled(|info| unsafe { cudamem_ring_get_info(ring, info) })?;
            assert_eq!((info.descriptor.capacity, info.closed), (2, 0));
            Ok(())
        })?;
        at_once("cudamem_ring_get_available", || {
            assert_eq!(told::<usize>(|place| cudamem_ring_get_available(ring, place))?, 0);
            Ok(())
        })?;
        at_once("cudamem_ring_push", || {
            assert_eq!(push(ptr::null())?, 0);
            Ok(())
        })?;
        at_once("cudamem_ring_close", || done(cudamem_ring_close(ring)))?;
        assert!(waiting.join().expect("no panic") >= Duration::from_secs(2));
        Ok(())
    })?;
    done(cudamem_ring_destroy(ring))?;
    assert_eq!(cudamem_ring_destroy(ring), CUDAMEM_ERROR_INVALID_HANDLE);
    done(cudamem_signals_destroy(signals))
}

#[test]
fn a_forked_child_is_refused_beside_waits() -> Result {
    let context = Context::open()?;
    let stream = context.stream()?;
    let buffer = context.device_memory()?.allocate(64, &stream)?;
    // SAFETY: NULL stands for the defaults.
    let signals: cudamem_signals = told(|place| unsafe { cudamem_signals_create(context.0, ptr::null(), place) })?;
    // SAFETY: as above.
    let ring: cudamem_ring = told(|place| unsafe { cudamem_ring_create(signals, 2, 4, ptr::null(), place) })?;
    let push = |count: usize, timeout: f64| {
        // SAFETY: the struct consists of numbers, for which zero is a valid value.
        let mut options: cudamem_wait_options = unsafe { core::mem::zeroed() };
        (options.size, options.timeout) = (size_of::<cudamem_wait_options>(), timeout);
        let mut pushed = core::mem::MaybeUninit::uninit();
        // SAFETY: there are two items of four bytes.
        unsafe { cudamem_ring_push(ring, [1u32, 2].as_ptr().cast(), count, &options, Some(&mut pushed)) }
    };
    assert_eq!(push(2, 1.0), CUDAMEM_SUCCESS);
    let go_on = block(&stream)?;
    let read = || {
        let mut bytes = [0u8; 64];
        // SAFETY: the array has that many bytes.
        unsafe { cudamem_buffer_read(buffer.0, 0, bytes.as_mut_ptr().cast(), bytes.len()) }
    };
    thread::scope(|scope| {
        let reading = scope.spawn(read);
        let pushing = scope.spawn(|| push(1, 2.0));
        thread::sleep(Duration::from_millis(100));
        let wrong = in_child(|| {
            let forked = [
                ("cudamem_buffer_read", read()),
                ("cudamem_ring_push", push(1, 1.0)),
                ("cudamem_stream_synchronize", cudamem_buffer_synchronize(buffer.0)),
                ("cudamem_stream_create", context.stream().map_or(CUDAMEM_ERROR_FORKED, |_| CUDAMEM_SUCCESS)),
            ];
            let quiet = [
                ("cudamem_buffer_destroy", cudamem_buffer_destroy(buffer.0)),
                ("cudamem_ring_destroy", cudamem_ring_destroy(ring)),
                ("cudamem_signals_destroy", cudamem_signals_destroy(signals)),
            ];
            let wrong = forked.iter().find(|(_, status)| *status != CUDAMEM_ERROR_FORKED);
            let wrong = wrong.or(quiet.iter().find(|(_, status)| *status != CUDAMEM_SUCCESS));
            wrong.map_or(Ok(()), |(call, _)| Err(*call))
        });
        drop(go_on);
        assert_eq!(wrong, None);
        assert_eq!(reading.join().expect("no panic"), CUDAMEM_SUCCESS);
        assert_eq!(pushing.join().expect("no panic"), CUDAMEM_ERROR_TIMED_OUT);
    });
    done(cudamem_ring_destroy(ring))?;
    done(cudamem_signals_destroy(signals))
}
