//! Rings
//!
//! A ring passes items of one size between the CPU and a running kernel, in order, with one producer and one consumer.
//! The handle is the CPU's end. A kernel gets the other end through the ring's descriptor, and uses it with
//! cudamem/signal.cuh:
//!
//!     __global__ void serve(cudamem::ring_descriptor requests) {
//!         cudamem::ring_consumer<uint64_t> input(requests);
//!         uint64_t item;
//!         while (input.receive(item) == cudamem::outcome::done) { ... }
//!     }
//!
//! Pushing and popping are CPU stores and loads, without driver calls. Concurrent calls with one end run one after the
//! other, and a waiting call blocks the others: give waits a time limit if another thread may have to close the ring.

use crate::call::{self, Options, Out, Outcome, destroy, drop_object, handle_type, invalid, object, options, out, run};
use crate::call::{bytes, bytes_mut};
use crate::handle::{Kind, Use};
use crate::handles::cudamem_ring;
use crate::handles::cudamem_signals;
use crate::handles::cudamem_stream;
use crate::signal::{cudamem_wait_options, placement};
use crate::status::cudamem_status;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use cuda_mem::signal::{ByteConsumer, ByteProducer, RingDescriptor};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The CPU's end of a ring. The lock serializes threads.
#[derive(Debug)]
pub struct Ring(Mutex<End>);

#[derive(Debug)]
enum End {
    Producer(ByteProducer),
    Consumer(ByteConsumer),
}

handle_type!(cudamem_ring: Ring, Kind::Ring);

impl Ring {
    fn lock(&self) -> MutexGuard<'_, End> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl End {
    fn producer(&mut self) -> Outcome<&mut ByteProducer> {
        match self {
            End::Producer(producer) => Ok(producer),
            End::Consumer(_) => Err(invalid("ring", "a ring from the device", "the CPU must be the producer")),
        }
    }

    fn consumer(&mut self) -> Outcome<&mut ByteConsumer> {
        match self {
            End::Producer(_) => Err(invalid("ring", "a ring to the device", "the CPU must be the consumer")),
            End::Consumer(consumer) => Ok(consumer),
        }
    }
}

/// Evaluates an expression with either end.
macro_rules! with {
    ($end:expr, $one:ident => $body:expr) => {
        match $end {
            End::Producer($one) => $body,
            End::Consumer($one) => $body,
        }
    };
}

/// The CPU pushes, and a kernel pops.
pub const CUDAMEM_RING_TO_DEVICE: i32 = 0;
/// A kernel pushes, and the CPU pops.
pub const CUDAMEM_RING_FROM_DEVICE: i32 = 1;

/// How a ring is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_ring_options {
    /// sizeof(cudamem_ring_options).
    pub size: usize,
    /// One of CUDAMEM_RING_TO_DEVICE and CUDAMEM_RING_FROM_DEVICE.
    pub direction: i32,
    /// Not 0: items and tail lie at consumer_place, and the head at producer_place. 0: the library places each where
    /// its reader polls it fastest.
    pub choose_places: i32,
    /// One of CUDAMEM_PLACE_... .
    pub consumer_place: i32,
    /// One of CUDAMEM_PLACE_... .
    pub producer_place: i32,
}

// SAFETY: a size and four numbers of 4 bytes.
unsafe impl Options for cudamem_ring_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes a ring for at least items items of item_size bytes each; items is at most 2^31. The capacity is the next power
/// of two. options may be NULL, for a ring to the device.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if item_size is 0, or if there are too many items.
/// CUDAMEM_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_create(
    signals: cudamem_signals,
    items: usize,
    item_size: usize,
    options: *const cudamem_ring_options,
    ring: Out<'_, cudamem_ring>,
) -> cudamem_status {
    run("cudamem_ring_create", || {
        let ring = out("ring", ring)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        let signals = object("signals", signals)?;
        let places = match chosen.choose_places {
            0 if chosen.consumer_place != 0 || chosen.producer_place != 0 => {
                let value = format!("{} and {}", chosen.consumer_place, chosen.producer_place);
                return Err(invalid("options.consumer_place", value, "without choose_places, places must be 0"));
            }
            0 => None,
            _ => Some((
                placement("options.consumer_place", chosen.consumer_place, &signals)?,
                placement("options.producer_place", chosen.producer_place, &signals)?,
            )),
        };
        let end = match (chosen.direction, places) {
            (CUDAMEM_RING_TO_DEVICE, None) => End::Producer(signals.byte_ring_to_device(items, item_size)?),
            (CUDAMEM_RING_TO_DEVICE, Some((consumer, producer))) => {
                End::Producer(signals.byte_ring_to_device_in(items, item_size, consumer, producer)?)
            }
            (CUDAMEM_RING_FROM_DEVICE, None) => End::Consumer(signals.byte_ring_from_device(items, item_size)?),
            (CUDAMEM_RING_FROM_DEVICE, Some((consumer, producer))) => {
                End::Consumer(signals.byte_ring_from_device_in(items, item_size, consumer, producer)?)
            }
            (other, _) => {
                let rule = "it must be CUDAMEM_RING_TO_DEVICE or CUDAMEM_RING_FROM_DEVICE";
                return Err(invalid("options.direction", other.to_string(), rule));
            }
        };
        ring.write(call::new_handle(Ring(Mutex::new(end)))?);
        Ok(())
    })
}

/// The size of count items in bytes.
fn size_of_items(item_size: usize, count: usize) -> Outcome<usize> {
    item_size.checked_mul(count).ok_or_else(|| {
        invalid(
            "count",
            count.to_string(),
            format!("that many items of {item_size} bytes must fit into the address space"),
        )
    })
}

fn pushing(
    ring: &Use<Ring>,
    items: *const c_void,
    count: usize,
    push: impl FnOnce(&mut ByteProducer, &[u8]) -> cuda_mem::Result<usize>,
) -> Outcome<usize> {
    let mut end = ring.lock();
    let producer = end.producer()?;
    // SAFETY: the header requires as many items as count says.
    let items = unsafe { bytes("items", items, size_of_items(producer.item_size(), count)?) }?;
    Ok(push(producer, items)?)
}

fn popping(
    ring: &Use<Ring>,
    items: *mut c_void,
    count: usize,
    pop: impl FnOnce(&mut ByteConsumer, &mut [u8]) -> cuda_mem::Result<usize>,
) -> Outcome<usize> {
    let mut end = ring.lock();
    let consumer = end.consumer()?;
    // SAFETY: as in `pushing`.
    let items = unsafe { bytes_mut("items", items, size_of_items(consumer.item_size(), count)?) }?;
    Ok(pop(consumer, items)?)
}

/// Pushes as many of count items as there is room for, and publishes them at once. pushed becomes their number, 0 if
/// the ring is full.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is from the device. CUDAMEM_ERROR_DAMAGED if the other end's
/// index is impossible: the ring's memory was overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_push(
    ring: cudamem_ring,
    items: *const c_void,
    count: usize,
    pushed: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_ring_push", || {
        let pushed = out("pushed", pushed)?;
        pushed.write(pushing(&object("ring", ring)?, items, count, |end, items| end.push_slice(items))?);
        Ok(())
    })
}

/// Pushes at least one of count items, and waits for room if there is none. sent becomes their number; it is 0 only if
/// the other end is closed or count is 0. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if there was no room in time; nothing was pushed. Otherwise as cudamem_ring_push.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_send(
    ring: cudamem_ring,
    items: *const c_void,
    count: usize,
    options: *const cudamem_wait_options,
    sent: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_ring_send", || {
        let sent = out("sent", sent)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let policy = unsafe { cudamem_wait_options::policy(options) }?;
        sent.write(pushing(&object("ring", ring)?, items, count, |end, items| end.send(items, &policy))?);
        Ok(())
    })
}

/// Pops the available items, at most count, and frees their slots at once. popped becomes their number, 0 if the ring
/// is empty.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is to the device. CUDAMEM_ERROR_DAMAGED if the other end's index
/// is impossible: the ring's memory was overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_pop(
    ring: cudamem_ring,
    items: *mut c_void,
    count: usize,
    popped: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_ring_pop", || {
        let popped = out("popped", popped)?;
        popped.write(popping(&object("ring", ring)?, items, count, |end, items| end.pop_slice(items))?);
        Ok(())
    })
}

/// Pops at least one item, at most count, and waits if there is none. received becomes their number; it is 0 only if
/// the other end is closed and the ring is empty, or if count is 0. options may be NULL.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if no item came in time. Otherwise as cudamem_ring_pop.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_receive(
    ring: cudamem_ring,
    items: *mut c_void,
    count: usize,
    options: *const cudamem_wait_options,
    received: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_ring_receive", || {
        let received = out("received", received)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let policy = unsafe { cudamem_wait_options::policy(options) }?;
        received.write(popping(&object("ring", ring)?, items, count, |end, items| end.receive(items, &policy))?);
        Ok(())
    })
}

/// Gets how many items the CPU can push, or pop, now.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_get_available(ring: cudamem_ring, count: Out<'_, usize>) -> cudamem_status {
    run("cudamem_ring_get_available", || {
        let count = out("count", count)?;
        count.write(match &mut *object("ring", ring)?.lock() {
            End::Producer(producer) => producer.room()?,
            End::Consumer(consumer) => consumer.available()?,
        });
        Ok(())
    })
}

/// Gets the ring's capacity in items.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_get_capacity(ring: cudamem_ring, capacity: Out<'_, usize>) -> cudamem_status {
    run("cudamem_ring_get_capacity", || {
        let capacity = out("capacity", capacity)?;
        capacity.write(with!(&*object("ring", ring)?.lock(), end => end.capacity()));
        Ok(())
    })
}

/// Checks whether the other end is closed. Items that it pushed before may still be in the ring.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_is_closed(ring: cudamem_ring, closed: Out<'_, bool>) -> cudamem_status {
    run("cudamem_ring_is_closed", || {
        let closed = out("closed", closed)?;
        closed.write(with!(&*object("ring", ring)?.lock(), end => end.is_closed()));
        Ok(())
    })
}

/// Closes the CPU's end. A consuming kernel still pops what was pushed, and then sees the end; a producing kernel sees
/// that nothing is popped any more.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_close(ring: cudamem_ring) -> cudamem_status {
    run("cudamem_ring_close", || {
        with!(&mut *object("ring", ring)?.lock(), end => end.close());
        Ok(())
    })
}

/// What a kernel takes by value to use the other end: cudamem::ring_descriptor in CUDA C++. The addresses are device
/// addresses, valid while the handle lives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_ring_descriptor {
    /// Where the consumer polls: the tail.
    pub consumer_line: u64,
    /// Where the producer polls: the head.
    pub producer_line: u64,
    /// The items.
    pub items: u64,
    /// The ring's capacity in items: a power of two.
    pub capacity: u32,
    /// The size of an item in bytes.
    pub item_size: u32,
}

const _: () = assert!(size_of::<cudamem_ring_descriptor>() == size_of::<RingDescriptor>());

/// Gets the descriptor that a kernel needs to use the other end. One thread of one kernel at a time may use it; the
/// next kernel continues where the last one ended. Record the launch with cudamem_ring_record_use.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_get_descriptor(
    ring: cudamem_ring,
    descriptor: Out<'_, cudamem_ring_descriptor>,
) -> cudamem_status {
    run("cudamem_ring_get_descriptor", || {
        let descriptor = out("descriptor", descriptor)?;
        let RingDescriptor { consumer_line, producer_line, items, capacity, item_size } =
            with!(&*object("ring", ring)?.lock(), end => end.descriptor());
        descriptor.write(cudamem_ring_descriptor { consumer_line, producer_line, items, capacity, item_size });
        Ok(())
    })
}

/// Records that work queued on stream so far uses this ring: kernels that were launched with its descriptor. Its memory
/// is not reused before that work is done.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_record_use(ring: cudamem_ring, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_ring_record_use", || {
        let (ring, stream) = (object("ring", ring)?, object("stream", stream)?);
        with!(&*ring.lock(), end => end.record_use(&stream));
        Ok(())
    })
}

/// Names a ring, as cudamem_flag_set_name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_set_name(ring: cudamem_ring, name: *const c_char) -> cudamem_status {
    run("cudamem_ring_set_name", || {
        // SAFETY: the header requires NULL or a zero-terminated string.
        let name = unsafe { call::name(name) }?;
        with!(&*object("ring", ring)?.lock(), end => end.set_name(name));
        Ok(())
    })
}

/// Closes the ring and destroys it. Its memory stays until the recorded work is done. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_destroy(ring: cudamem_ring) -> cudamem_status {
    run("cudamem_ring_destroy", || destroy("ring", ring, drop_object))
}
