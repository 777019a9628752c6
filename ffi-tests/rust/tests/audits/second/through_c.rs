//! Holes G and W through the C library.

use super::LATER;
use core::ffi::c_void;
use core::ptr;
use cudamem::buffer::cudamem_buffer_fill;
use cudamem::status::CUDAMEM_ERROR_UNSUPPORTED;
use cudamem::stream::cudamem_stream_launch_host_function;
use cudamem::virtual_memory::{CUDAMEM_LOCATION_DEVICE, cudamem_buffer_create_growable, cudamem_buffer_grow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testkit::c_objects::{Buffer, Context, Resource, Result, Stream, done, told};
use testkit::suite::Outcome;
use testkit::{alone, pattern, same};

const SIZE: usize = super::SIZE;

/// Blocks a stream until it is opened.
#[derive(Debug, Default)]
struct Gate {
    open: AtomicBool,
    passed: AtomicBool,
}

impl Gate {
    fn before(stream: &Stream) -> Result<&'static Self> {
        extern "C" fn hold(gate: *mut c_void) {
            // SAFETY: the pointer is a gate, which is never freed.
            let gate = unsafe { &*gate.cast::<Gate>() };
            while !gate.open.load(Ordering::Acquire) {
                thread::sleep(LATER / 100);
            }
            gate.passed.store(true, Ordering::Release);
        }
        let gate: &Self = Box::leak(Box::default());
        done(cudamem_stream_launch_host_function(stream.0, Some(hold), ptr::from_ref(gate).cast_mut().cast()))?;
        Ok(gate)
    }

    /// Opens the gate after a while, when the program already waits for it.
    fn open_later(&'static self) -> thread::JoinHandle<()> {
        thread::spawn(|| {
            thread::sleep(LATER);
            self.open.store(true, Ordering::Release);
        })
    }
}

fn fill(buffer: &Buffer, byte: u8) -> Result {
    // SAFETY: the value has one byte.
    done(unsafe { cudamem_buffer_fill(buffer.0, 0, SIZE, ptr::from_ref(&byte).cast(), 1) })
}

// Hole G.
#[test]
fn in_c_a_buffer_that_was_described_while_empty_is_not_the_cpus() -> Outcome {
    alone(|_| {
        let context = Context::open()?;
        let stream = context.stream()?;
        let memory = match context.virtual_memory(CUDAMEM_LOCATION_DEVICE, 0) {
            Err(failure) if failure.status == CUDAMEM_ERROR_UNSUPPORTED => {
                println!("skipped: {failure}");
                return Ok(());
            }
            memory => memory?,
        };
        for described in [false, true] {
            let buffer = told(|place| cudamem_buffer_create_growable(memory.0, 1, stream.0, place)).map(Buffer)?;
            if described {
                assert_eq!(buffer.info()?.length, 0);
            }
            done(cudamem_buffer_grow(buffer.0, SIZE, None))?;
            let (bytes, mut seen) = (pattern(SIZE, 3), vec![0; SIZE]);
            buffer.write(0, &bytes)?;
            assert!(buffer.store(0, &[1]).is_err() && buffer.load(0, &mut [0]).is_err(), "described: {described}");
            assert!(buffer.store_u32(0, 1).is_err() && buffer.load_u64(0).is_err(), "described: {described}");
            buffer.read(0, &mut seen)?;
            same("the buffer", &seen, &bytes)?;
        }
        Ok(())
    })
}

/// A CPU access of the next owner.
type Access = fn(&Buffer) -> Result;

const ACCESSES: [(&str, Access); 4] = [
    ("a store", |buffer| buffer.store(0, &[9; SIZE])),
    ("a store of a word", |buffer| buffer.store_u64(SIZE - 8, 9)),
    ("a load", |buffer| buffer.load(0, &mut [0; SIZE])),
    ("a load of a word", |buffer| buffer.load_u32(SIZE - 4).map(drop)),
];

/// Checks all accesses to a block of a pool of pinned memory whose former owner's copy is still queued.
fn accesses_wait(pool: &Resource, stream: &Stream, kept: &Buffer) -> Outcome {
    for (name, access) in ACCESSES {
        let former = pool.allocate(SIZE, stream)?;
        fill(&former, 7)?;
        fill(kept, 1)?;
        stream.synchronize()?;
        let gate = Gate::before(stream)?;
        kept.copy(0, &former, 0, SIZE)?;
        let address = former.device_pointer()?;
        drop(former);
        let next = pool.allocate(SIZE, stream)?;
        assert_eq!(next.device_pointer()?, address, "the pool serves the block that was freed last");
        let opening = gate.open_later();
        let accessed = access(&next);
        let waited = gate.passed.load(Ordering::Acquire);
        opening.join().map_err(|_| "a thread panicked")?;
        accessed?;
        let mut seen = vec![0; SIZE];
        kept.read(0, &mut seen)?;
        same(&format!("the former owner's copy, beside {name}"), &seen, &[7; SIZE])?;
        assert!(waited, "{name} did not wait for the former owner's work");
    }
    Ok(())
}

// Hole W.
#[test]
fn in_c_a_store_waits_for_the_work_of_the_former_owner() -> Outcome {
    alone(|_| {
        let context = Context::open()?;
        let stream = context.stream()?;
        let kept = context.device_memory()?.allocate(SIZE, &stream)?;
        let pool = context.pinned_memory(0)?.pool(0)?;
        accesses_wait(&pool, &stream, &kept)
    })
}
