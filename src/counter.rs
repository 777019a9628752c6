//! Counters
//!
//! A counter is a word that only grows. The CPU counts pieces that are ready, and streams and kernels wait for them. Or
//! a stream or kernel counts pieces that are done, and the CPU waits for them. Counts may wrap around.

use crate::call::{self, Out, Outcome, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_counter;
use crate::handles::cudamem_signals;
use crate::handles::cudamem_stream;
use crate::signal::{cudamem_wait_options, narrow, of_bits, wide};
use crate::status::cudamem_status;
use core::ffi::c_char;
use cuda_mem::signal::{Counter, DeviceCounter, SignalWord};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A counter of one word type.
#[derive(Debug)]
pub enum Counted<W: SignalWord> {
    /// The CPU counts. The lock serializes threads.
    ByCpu(Mutex<Counter<W>>),
    /// The device counts.
    ByDevice(DeviceCounter<W>),
}

/// A counter of 32 or of 64 bits.
#[derive(Debug)]
pub enum AnyCounter {
    /// Of 32 bits.
    Narrow(Counted<u32>),
    /// Of 64 bits.
    Wide(Counted<u64>),
}

handle_type!(cudamem_counter: AnyCounter, Kind::Counter);

/// The CPU counts. Streams and kernels wait.
pub const CUDAMEM_COUNTED_BY_CPU: i32 = 0;
/// One stream or kernel at a time counts. The CPU and streams wait.
pub const CUDAMEM_COUNTED_BY_DEVICE: i32 = 1;

/// Makes a counter of 32 or 64 bits with the value 0. by is one of CUDAMEM_COUNTED_BY_... .
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_create(
    signals: cudamem_signals,
    bits: u32,
    by: i32,
    counter: Out<'_, cudamem_counter>,
) -> cudamem_status {
    run("cudamem_counter_create", || {
        let counter = out("counter", counter)?;
        let signals = object("signals", signals)?;
        let made = of_bits(
            bits,
            || Ok(AnyCounter::Narrow(Counted::new(&signals, by)?)),
            || Ok(AnyCounter::Wide(Counted::new(&signals, by)?)),
        )?;
        counter.write(call::new_handle(made)?);
        Ok(())
    })
}

impl<W: SignalWord> Counted<W> {
    fn new(signals: &cuda_mem::signal::Signals, by: i32) -> Outcome<Self> {
        match by {
            CUDAMEM_COUNTED_BY_CPU => Ok(Self::ByCpu(Mutex::new(signals.counter()?))),
            CUDAMEM_COUNTED_BY_DEVICE => Ok(Self::ByDevice(signals.device_counter()?)),
            other => Err(invalid("by", other.to_string(), "it must be one of CUDAMEM_COUNTED_BY_...")),
        }
    }

    fn by_cpu(&self) -> Outcome<MutexGuard<'_, Counter<W>>> {
        match self {
            Self::ByCpu(counter) => Ok(lock(counter)),
            Self::ByDevice(_) => Err(invalid("counter", "counted by the device", "the CPU must count it")),
        }
    }

    fn by_device(&self) -> Outcome<&DeviceCounter<W>> {
        match self {
            Self::ByCpu(_) => Err(invalid("counter", "counted by the CPU", "the device must count it")),
            Self::ByDevice(counter) => Ok(counter),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Evaluates an expression with a counter of any type.
macro_rules! with {
    ($counter:expr, $one:ident => $body:expr) => {
        match $counter {
            AnyCounter::Narrow(Counted::ByCpu(counter)) => {
                let $one = &*lock(counter);
                $body
            }
            AnyCounter::Wide(Counted::ByCpu(counter)) => {
                let $one = &*lock(counter);
                $body
            }
            AnyCounter::Narrow(Counted::ByDevice($one)) => $body,
            AnyCounter::Wide(Counted::ByDevice($one)) => $body,
        }
    };
}

/// Adds more to the count on the CPU, after all earlier writes of this thread. Stores the new count in count, which may
/// be NULL.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the device counts.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_add(counter: cudamem_counter, more: u64, count: Out<'_, u64>) -> cudamem_status {
    run("cudamem_counter_add", || {
        let now = match &*object("counter", counter)? {
            AnyCounter::Narrow(counter) => counter.by_cpu()?.add(narrow("more", more)?).into(),
            AnyCounter::Wide(counter) => counter.by_cpu()?.add(more),
        };
        if let Some(count) = count {
            count.write(now);
        }
        Ok(())
    })
}

/// Gets the current count. Everything that its writer did before it counted is visible after this call.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_get_value(counter: cudamem_counter, count: Out<'_, u64>) -> cudamem_status {
    run("cudamem_counter_get_value", || {
        let count = out("count", count)?;
        count.write(with!(&*object("counter", counter)?, counter => wide(counter.value())));
        Ok(())
    })
}

/// Waits on the CPU until the counter's value is at least count, and stores the value then in seen, which may be NULL.
/// options may be NULL.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT after the time limit. CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts.
/// CUDAMEM_ERROR_DRIVER if the device failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_counter_wait(
    counter: cudamem_counter,
    count: u64,
    options: *const cudamem_wait_options,
    seen: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_counter_wait", || {
        // SAFETY: the header requires NULL or `size` bytes.
        let policy = unsafe { cudamem_wait_options::policy(options) }?;
        let now = match &*object("counter", counter)? {
            AnyCounter::Narrow(counter) => counter.by_device()?.wait(narrow("count", count)?, &policy)?.into(),
            AnyCounter::Wide(counter) => counter.by_device()?.wait(count, &policy)?,
        };
        if let Some(seen) = seen {
            seen.write(now);
        }
        Ok(())
    })
}

/// Makes later work of stream wait until the counter's value is at least count.
///
/// Errors: as cudamem_flag_wait_on.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_wait_on(
    counter: cudamem_counter,
    stream: cudamem_stream,
    count: u64,
) -> cudamem_status {
    run("cudamem_counter_wait_on", || {
        let (counter, stream) = (object("counter", counter)?, object("stream", stream)?);
        match &*counter {
            AnyCounter::Narrow(Counted::ByCpu(counter)) => lock(counter).wait_on(&stream, narrow("count", count)?)?,
            AnyCounter::Narrow(Counted::ByDevice(counter)) => counter.wait_on(&stream, narrow("count", count)?)?,
            AnyCounter::Wide(Counted::ByCpu(counter)) => lock(counter).wait_on(&stream, count)?,
            AnyCounter::Wide(Counted::ByDevice(counter)) => counter.wait_on(&stream, count)?,
        }
        Ok(())
    })
}

/// Sets a count of the device, once all work queued on stream so far is done.
///
/// Errors: as cudamem_flag_wait_on. CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_store_on(
    counter: cudamem_counter,
    stream: cudamem_stream,
    count: u64,
) -> cudamem_status {
    run("cudamem_counter_store_on", || {
        let (counter, stream) = (object("counter", counter)?, object("stream", stream)?);
        match &*counter {
            AnyCounter::Narrow(counter) => counter.by_device()?.store_on(&stream, narrow("count", count)?)?,
            AnyCounter::Wide(counter) => counter.by_device()?.store_on(&stream, count)?,
        }
        Ok(())
    })
}

/// Records that work queued on stream so far uses this counter: kernels that were launched with its address. Its memory
/// is not reused before that work is done.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_record_use(counter: cudamem_counter, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_counter_record_use", || {
        let (counter, stream) = (object("counter", counter)?, object("stream", stream)?);
        with!(&*counter, counter => counter.record_use(&stream));
        Ok(())
    })
}

/// Gets the word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle
/// lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_get_device_pointer(
    counter: cudamem_counter,
    pointer: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_counter_get_device_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(with!(&*object("counter", counter)?, counter => counter.device_pointer()));
        Ok(())
    })
}

/// Names a counter, as cudamem_flag_set_name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_counter_set_name(counter: cudamem_counter, name: *const c_char) -> cudamem_status {
    run("cudamem_counter_set_name", || {
        // SAFETY: the header requires NULL or a zero-terminated string.
        let name = unsafe { call::name(name) }?;
        with!(&*object("counter", counter)?, counter => counter.set_name(name));
        Ok(())
    })
}

/// Destroys a counter. Waits for it end as with cudamem_flag_destroy. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_counter_destroy(counter: cudamem_counter) -> cudamem_status {
    run("cudamem_counter_destroy", || {
        if let Ok(counter) = object("counter", counter) {
            // As in `cudamem_flag_destroy`.
            match &*counter {
                AnyCounter::Narrow(Counted::ByDevice(counter)) => counter.close(),
                AnyCounter::Wide(Counted::ByDevice(counter)) => counter.close(),
                AnyCounter::Narrow(Counted::ByCpu(_)) | AnyCounter::Wide(Counted::ByCpu(_)) => {}
            }
        }
        destroy("counter", counter, drop_object)
    })
}
