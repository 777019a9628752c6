//! Counters
//!
//! A counter is a word that only grows. The CPU counts pieces that are ready, and streams and kernels wait for them. Or
//! a stream or kernel counts pieces that are done, and the CPU waits for them. Counts may wrap around.
//! The functions for words (above) read counters, wait for them, and set those of the device.

use crate::call::{self, Out, Outcome, destroy, drop_object, handle_type, invalid, object, out, run};
use crate::handles::cudamem_counter;
use crate::handles::cudamem_signals;
use crate::signal::{CUDAMEM_PLACE_FOR_CPU, CUDAMEM_PLACE_FOR_DEVICE, narrow, of_bits, wide};
use crate::status::cudamem_status;
use cuda_mem::Stream;
use cuda_mem::signal::{Counter, DeviceCounter, SignalWord, WaitPolicy};
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

handle_type!(cudamem_counter: AnyCounter);

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

impl AnyCounter {
    pub(crate) fn value(&self) -> u64 {
        with!(self, counter => wide(counter.value()))
    }

    pub(crate) fn wait(&self, count: u64, policy: &WaitPolicy) -> Outcome<u64> {
        Ok(match self {
            AnyCounter::Narrow(counter) => counter.by_device()?.wait(narrow("value", count)?, policy)?.into(),
            AnyCounter::Wide(counter) => counter.by_device()?.wait(count, policy)?,
        })
    }

    pub(crate) fn wait_on(&self, stream: &Stream, count: u64) -> Outcome {
        match self {
            AnyCounter::Narrow(Counted::ByCpu(counter)) => lock(counter).wait_on(stream, narrow("value", count)?)?,
            AnyCounter::Narrow(Counted::ByDevice(counter)) => counter.wait_on(stream, narrow("value", count)?)?,
            AnyCounter::Wide(Counted::ByCpu(counter)) => lock(counter).wait_on(stream, count)?,
            AnyCounter::Wide(Counted::ByDevice(counter)) => counter.wait_on(stream, count)?,
        }
        Ok(())
    }

    pub(crate) fn store_on(&self, stream: &Stream, count: u64) -> Outcome {
        match self {
            AnyCounter::Narrow(counter) => counter.by_device()?.store_on(stream, narrow("value", count)?)?,
            AnyCounter::Wide(counter) => counter.by_device()?.store_on(stream, count)?,
        }
        Ok(())
    }

    pub(crate) fn record_use(&self, stream: &Stream) {
        with!(self, counter => counter.record_use(stream));
    }

    pub(crate) fn set_name(&self, name: &str) {
        with!(self, counter => counter.set_name(name));
    }

    /// Where the one that waits polls fastest.
    pub(crate) fn place(&self) -> i32 {
        match self {
            AnyCounter::Narrow(Counted::ByCpu(_)) | AnyCounter::Wide(Counted::ByCpu(_)) => CUDAMEM_PLACE_FOR_DEVICE,
            AnyCounter::Narrow(Counted::ByDevice(_)) | AnyCounter::Wide(Counted::ByDevice(_)) => CUDAMEM_PLACE_FOR_CPU,
        }
    }

    pub(crate) fn device_pointer(&self) -> u64 {
        with!(self, counter => counter.device_pointer())
    }
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
