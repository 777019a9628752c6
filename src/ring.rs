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
use crate::call::{bytes, bytes_mut, fill};
use crate::handles::cudamem_ring;
use crate::handles::cudamem_signals;
use crate::signal::{cudamem_wait_options, placement};
use crate::status::cudamem_status;
use core::ffi::c_void;
use core::mem::size_of;
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_mem::Stream;
use cuda_mem::signal::{ByteConsumer, ByteProducer, RingDescriptor, RingHandle, WaitPolicy};
use std::sync::{Mutex, PoisonError, TryLockError};

/// The CPU's end of a ring. The lock serializes threads.
///
/// A thread that waits at the end holds its lock. Calls that need not wait use the handle, or learn that nothing is
/// available.
#[derive(Debug)]
pub struct Ring {
    end: Mutex<End>,
    handle: RingHandle,
    /// The number of threads that wait at the end, or are about to.
    waiting: AtomicUsize,
}

#[derive(Debug)]
enum End {
    Producer(ByteProducer),
    Consumer(ByteConsumer),
}

handle_type!(cudamem_ring: Ring);

/// Evaluates an expression with either end.
macro_rules! with {
    ($end:expr, $one:ident => $body:expr) => {
        match $end {
            End::Producer($one) => $body,
            End::Consumer($one) => $body,
        }
    };
}

impl Ring {
    fn new(end: End) -> Self {
        let handle = with!(&end, end => end.handle());
        Self { end: Mutex::new(end), handle, waiting: AtomicUsize::new(0) }
    }

    /// Calls `work`, which may wait, with the end, when it is this thread's turn.
    fn in_turn<R>(&self, work: impl FnOnce(&mut End) -> Outcome<R>) -> Outcome<R> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let done = work(&mut self.end.lock().unwrap_or_else(PoisonError::into_inner));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Calls `work`, which does not wait, with the end. None while another thread waits there, because the ring is then
    /// full, or empty.
    fn at_once<R>(&self, work: impl FnOnce(&mut End) -> Outcome<R>) -> Outcome<Option<R>> {
        loop {
            match self.end.try_lock() {
                Ok(mut end) => return work(&mut end).map(Some),
                Err(TryLockError::Poisoned(end)) => return work(&mut end.into_inner()).map(Some),
                Err(TryLockError::WouldBlock) if self.waiting.load(Ordering::Relaxed) > 0 => return Ok(None),
                // Another thread makes a short call.
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
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

impl Ring {
    pub(crate) fn record_use(&self, stream: &Stream) {
        self.handle.record_use(stream);
    }

    pub(crate) fn set_name(&self, name: &str) {
        self.handle.set_name(name);
    }
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
        ring.write(call::new_handle(Ring::new(end))?);
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

/// How a call waits; None for NULL: it does not.
///
/// # Safety
///
/// As [`options`].
pub(crate) unsafe fn waiting(options: *const cudamem_wait_options) -> Outcome<Option<WaitPolicy>> {
    // SAFETY: this function's contract.
    if options.is_null() { Ok(None) } else { unsafe { cudamem_wait_options::policy(options) }.map(Some) }
}

fn pushing(end: &mut End, items: *const c_void, count: usize, policy: Option<&WaitPolicy>) -> Outcome<usize> {
    let producer = end.producer()?;
    // SAFETY: the header requires as many items as count says.
    let items = unsafe { bytes("items", items, size_of_items(producer.item_size(), count)?) }?;
    Ok(match policy {
        Some(policy) => producer.send(items, policy)?,
        None => producer.push_slice(items)?,
    })
}

fn popping(end: &mut End, items: *mut c_void, count: usize, policy: Option<&WaitPolicy>) -> Outcome<usize> {
    let consumer = end.consumer()?;
    // SAFETY: as in `pushing`.
    let items = unsafe { bytes_mut("items", items, size_of_items(consumer.item_size(), count)?) }?;
    Ok(match policy {
        Some(policy) => consumer.receive(items, policy)?,
        None => consumer.pop_slice(items)?,
    })
}

/// Pushes as many of count items as there is room for, and publishes them at once. pushed becomes their number. If
/// options is NULL, the call does not wait: pushed is 0 if the ring is full. Otherwise the call waits for room as the
/// options say, and pushes at least one item: pushed is 0 only if the other end is closed or count is 0.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if there was no room in time; nothing was pushed. CUDAMEM_ERROR_INVALID_ARGUMENT if
/// the ring is from the device. CUDAMEM_ERROR_DAMAGED if the other end's index is impossible: the ring's memory was
/// overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_push(
    ring: cudamem_ring,
    items: *const c_void,
    count: usize,
    options: *const cudamem_wait_options,
    pushed: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_ring_push", || {
        let pushed = out("pushed", pushed)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let policy = unsafe { waiting(options) }?;
        let ring = object("ring", ring)?;
        pushed.write(match &policy {
            Some(policy) => ring.in_turn(|end| pushing(end, items, count, Some(policy)))?,
            None => ring.at_once(|end| pushing(end, items, count, None))?.unwrap_or(0),
        });
        Ok(())
    })
}

/// Pops the available items, at most count, and frees their slots at once. popped becomes their number. If options is
/// NULL, the call does not wait: popped is 0 if the ring is empty. Otherwise the call waits for an item as the options
/// say: popped is 0 only if the other end is closed and the ring is empty, or if count is 0.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if no item came in time. CUDAMEM_ERROR_INVALID_ARGUMENT if the ring is to the
/// device. CUDAMEM_ERROR_DAMAGED if the other end's index is impossible: the ring's memory was overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_pop(
    ring: cudamem_ring,
    items: *mut c_void,
    count: usize,
    options: *const cudamem_wait_options,
    popped: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_ring_pop", || {
        let popped = out("popped", popped)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let policy = unsafe { waiting(options) }?;
        let ring = object("ring", ring)?;
        popped.write(match &policy {
            Some(policy) => ring.in_turn(|end| popping(end, items, count, Some(policy)))?,
            None => ring.at_once(|end| popping(end, items, count, None))?.unwrap_or(0),
        });
        Ok(())
    })
}

/// Gets how many items the CPU can push, or pop, now.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_get_available(ring: cudamem_ring, count: Out<'_, usize>) -> cudamem_status {
    run("cudamem_ring_get_available", || {
        let count = out("count", count)?;
        let available = |end: &mut End| match end {
            End::Producer(producer) => Ok(producer.room()?),
            End::Consumer(consumer) => Ok(consumer.available()?),
        };
        count.write(object("ring", ring)?.at_once(available)?.unwrap_or(0));
        Ok(())
    })
}

/// Closes the CPU's end. A consuming kernel still pops what was pushed, and then sees the end; a producing kernel sees
/// that nothing is popped any more.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_close(ring: cudamem_ring) -> cudamem_status {
    run("cudamem_ring_close", || {
        object("ring", ring)?.handle.close();
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

/// What a ring is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_ring_info {
    /// sizeof(cudamem_ring_info), set by the program.
    pub size: usize,
    /// What a kernel needs to use the other end, with the ring's capacity. One thread of one kernel at a time may use
    /// it; the next kernel continues where the last one ended. Record the launch with cudamem_record_use.
    pub descriptor: cudamem_ring_descriptor,
    /// Whether the other end is closed: 0 or 1. Items that it pushed before may still be in the ring.
    pub closed: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: a size, the descriptor of 32 bytes, and two numbers of 4 bytes.
unsafe impl Options for cudamem_ring_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Describes a ring. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_get_info(ring: cudamem_ring, info: *mut cudamem_ring_info) -> cudamem_status {
    run("cudamem_ring_get_info", || {
        let ring = object("ring", ring)?;
        let (RingDescriptor { consumer_line, producer_line, items, capacity, item_size }, closed) =
            (ring.handle.descriptor(), ring.handle.is_closed());
        let answer = cudamem_ring_info {
            size: size_of::<cudamem_ring_info>(),
            descriptor: cudamem_ring_descriptor { consumer_line, producer_line, items, capacity, item_size },
            closed: closed.into(),
            reserved: 0,
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}

/// Closes the ring and destroys it. Its memory stays until the recorded work is done. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_destroy(ring: cudamem_ring) -> cudamem_status {
    run("cudamem_ring_destroy", || destroy("ring", ring, drop_object))
}
