//! Signals
//!
//! Words that the CPU, streams and running kernels write and wait for: flags, counters, and rings of items (below). A
//! kernel launch and the wait for its end take about 8 us; a flag that a running kernel answers takes 1.5 us. The
//! device's side is cudamem/signal.cuh, one header for CUDA C++ without dependencies.
//!
//!     cudamem_flag question, answer;
//!     cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &question);
//!     cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_CPU, &answer);
//!     ... launch a kernel with the addresses from cudamem_signal_get_info, then cudamem_record_use ...
//!     cudamem_flag_store(question, 1);
//!     cudamem_signal_wait(answer.id, CUDAMEM_COMPARE_EQUAL, 1, &options, NULL);
//!
//! Each word must have one writer at a time: if CPU and device write it at once, one of the writes is lost. A write
//! comes after everything that its thread wrote before, to any memory. In coherent memory, a reader that sees the value
//! also sees those writes.
//!
//! A driver may wait for the device when memory is allocated or freed, and when a kernel is launched for the first
//! time. If a kernel then waits for the program, both wait forever. So make flags, rings, memory and kernels before you
//! launch a kernel that waits. Load, store, wait, push and pop make no driver call, except in waits of 5 ms and more.

use crate::call::{self, Options, Out, Outcome, destroy, drop_object, handle_type, invalid, object, options, out, run};
use crate::handles::cudamem_context;
use crate::handles::cudamem_flag;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_signals;
use crate::handles::cudamem_text;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::mem::size_of;
use core::time::Duration;
use cuda_mem::Stream;
use cuda_mem::signal::{Comparison, Flag, Placement, Signals, WaitPolicy, Waiter};
use cuda_mem_dynamic::Resource;

/// A flag of 32 or of 64 bits.
#[derive(Debug)]
pub enum AnyFlag {
    /// Of 32 bits.
    Narrow(Flag<u32>),
    /// Of 64 bits.
    Wide(Flag<u64>),
}

handle_type!(cudamem_signals: Signals);
handle_type!(cudamem_flag: AnyFlag);

/// A flag of cudamem_signals_options: use pinned memory only, even if mapped memory is available.
pub const CUDAMEM_SIGNALS_PINNED_ONLY: u32 = 1;

/// How the memory of signals is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_signals_options {
    /// sizeof(cudamem_signals_options).
    pub size: usize,
    /// The mapped memory to use: a resource that cudamem_resource_create_mapped made in the same context, which may
    /// then be the null handle. This avoids opening the device again. The null handle lets the library open it.
    pub mapped: cudamem_resource,
    /// 0 or CUDAMEM_SIGNALS_PINNED_ONLY.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

// SAFETY: a size, a handle of 8 bytes, and two numbers of 4 bytes.
unsafe impl Options for cudamem_signals_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes the memory for flags, counters and rings of a context. It grows by 64 KiB at a time. options may be NULL. If
/// mapped memory is missing or not coherent, everything lies in pinned memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_signals_create(
    context: cudamem_context,
    options: *const cudamem_signals_options,
    signals: Out<'_, cudamem_signals>,
) -> cudamem_status {
    run("cudamem_signals_create", || {
        let signals = out("signals", signals)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        call::check_flags("options.flags", chosen.flags, CUDAMEM_SIGNALS_PINNED_ONLY)?;
        call::check_flags("options.reserved", chosen.reserved, 0)?;
        let made = match (chosen.mapped.id, chosen.flags) {
            (0, 0) => Signals::new(&*object("context", context)?)?,
            (0, _) => Signals::pinned_only(&*object("context", context)?)?,
            (_, 0) => over(context, &object("options.mapped", chosen.mapped)?.resource)?,
            _ => {
                let rule = "it must be the null handle with CUDAMEM_SIGNALS_PINNED_ONLY";
                return Err(invalid("options.mapped", "a resource", rule));
            }
        };
        signals.write(call::new_handle(made)?);
        Ok(())
    })
}

/// Signals in mapped memory of a resource.
fn over(context: cudamem_context, resource: &Resource) -> Outcome<Signals> {
    let Resource::Mapped(mapped) = resource else {
        return Err(invalid("options.mapped", "another resource", "it must be made by cudamem_resource_create_mapped"));
    };
    if context.id != 0 && object("context", context)?.raw() != mapped.context().raw() {
        return Err(invalid("options.mapped", "a resource of another context", "it must be made in the same context"));
    }
    Ok(Signals::with_resource(mapped)?)
}

/// Gets a text that explains why signals lie in pinned memory only; the null handle if mapped memory is in use. Destroy
/// the text.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signals_get_missing(
    signals: cudamem_signals,
    missing: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_signals_get_missing", || {
        let missing = out("missing", missing)?;
        let signals = object("signals", signals)?;
        missing.write(match signals.why_not_mapped() {
            Some(why) => new_text(why.to_owned())?,
            None => cudamem_text { id: 0 },
        });
        Ok(())
    })
}

/// Destroys the handle. The memory ends with its last flag, counter and ring, after the recorded device work. Streams
/// that wait for a flag are released; the program must release waiting kernels first. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signals_destroy(signals: cudamem_signals) -> cudamem_status {
    run("cudamem_signals_destroy", || destroy("signals", signals, drop_object))
}

/// Where the CPU polls fastest: pinned memory.
pub const CUDAMEM_PLACE_FOR_CPU: i32 = 0;
/// Where kernels and streams poll fastest: mapped memory if it is available, otherwise pinned memory.
pub const CUDAMEM_PLACE_FOR_DEVICE: i32 = 1;
/// Page-locked host memory.
pub const CUDAMEM_PLACE_PINNED: i32 = 2;
/// Device memory that the CPU addresses too, if it is available and coherent.
pub const CUDAMEM_PLACE_MAPPED: i32 = 3;

pub(crate) fn placement(argument: &'static str, place: i32, signals: &Signals) -> Outcome<Placement> {
    Ok(match place {
        CUDAMEM_PLACE_FOR_CPU => signals.placement_for(Waiter::Cpu),
        CUDAMEM_PLACE_FOR_DEVICE => signals.placement_for(Waiter::Device),
        CUDAMEM_PLACE_PINNED => Placement::Pinned,
        CUDAMEM_PLACE_MAPPED => Placement::Mapped,
        other => return Err(invalid(argument, other.to_string(), "it must be one of CUDAMEM_PLACE_...")),
    })
}

/// The word equals the value.
pub const CUDAMEM_COMPARE_EQUAL: i32 = 0;
/// The word equals the value, or is ahead of it by less than half of the number range: counters may wrap around.
pub const CUDAMEM_COMPARE_AT_LEAST: i32 = 1;
/// A bit of the value is set in the word.
pub const CUDAMEM_COMPARE_ANY_BIT: i32 = 2;
/// A bit is clear in both the word and the value. Some devices do not support this wait on streams.
pub const CUDAMEM_COMPARE_NOT_ALL_BITS: i32 = 3;

pub(crate) fn comparison(comparison: i32) -> Outcome<Comparison> {
    let known = usize::try_from(comparison).ok().and_then(|index| Comparison::ALL.get(index));
    known.copied().ok_or_else(|| invalid("comparison", comparison.to_string(), "it must be one of CUDAMEM_COMPARE_..."))
}

/// How the CPU waits. It polls the word: first without a pause, then yielding the processor, then with naps that
/// double. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_wait_options {
    /// sizeof(cudamem_wait_options).
    pub size: usize,
    /// The time limit in seconds. 0 for none: the wait then ends only when its condition holds, or with the driver's
    /// error if the device fails.
    pub timeout: f64,
    /// The first nap in seconds. 20 us by default.
    pub shortest_nap: f64,
    /// The longest nap in seconds; a long wait may notice a change that late. 1 ms by default.
    pub longest_nap: f64,
    /// How often the wait polls without a pause. 10000 by default; -1 for never.
    pub spins: i32,
    /// How often the wait then polls and yields the processor. 200 by default; -1 for never.
    pub yields: i32,
}

// SAFETY: a size, three numbers of 8 bytes, and two of 4.
unsafe impl Options for cudamem_wait_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

impl cudamem_wait_options {
    /// The wait policy that the program's options describe.
    ///
    /// # Safety
    ///
    /// As [`options`](call::options).
    pub(crate) unsafe fn policy(chosen: *const Self) -> Outcome<WaitPolicy> {
        // SAFETY: this function's contract.
        let chosen = unsafe { options("options", chosen) }?;
        let time = |field, seconds: f64| {
            let refuse = || invalid(field, seconds.to_string(), "it must be 0 or more seconds");
            Duration::try_from_secs_f64(seconds).map_err(|_| refuse())
        };
        let turns = |field, turns: i32, usual: u32| match turns {
            0 => Ok(usual),
            -1 => Ok(0),
            turns => u32::try_from(turns).map_err(|_| invalid(field, turns.to_string(), "it must be -1 or more")),
        };
        let mut policy = WaitPolicy::default();
        policy.spins = turns("options.spins", chosen.spins, policy.spins)?;
        policy.yields = turns("options.yields", chosen.yields, policy.yields)?;
        for (field, seconds, place) in [
            ("options.shortest_nap", chosen.shortest_nap, &mut policy.shortest_nap),
            ("options.longest_nap", chosen.longest_nap, &mut policy.longest_nap),
        ] {
            let time = time(field, seconds)?;
            *place = if seconds == 0.0 { *place } else { time };
        }
        let timeout = time("options.timeout", chosen.timeout)?;
        policy.timeout = (chosen.timeout != 0.0).then_some(timeout);
        Ok(policy)
    }
}

/// Widens a word of either size, for results.
pub(crate) fn wide(word: impl Into<u64>) -> u64 {
    word.into()
}

/// Narrows a value for a word of 32 bits. A larger value is refused.
pub(crate) fn narrow(argument: &'static str, value: u64) -> Outcome<u32> {
    u32::try_from(value).map_err(|_| invalid(argument, format!("{value:#x}"), "it must fit into the word's 32 bits"))
}

/// Chooses a function by the bits of a word.
pub(crate) fn of_bits<T>(
    bits: u32,
    of_32: impl FnOnce() -> Outcome<T>,
    of_64: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    match bits {
        32 => of_32(),
        64 => of_64(),
        other => Err(invalid("bits", other.to_string(), "it must be 32 or 64")),
    }
}

/// Makes a flag: a word of 32 or 64 bits in cache lines of its own, with the value 0. place is CUDAMEM_PLACE_... .
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if there is no such memory. CUDAMEM_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_create(
    signals: cudamem_signals,
    bits: u32,
    place: i32,
    flag: Out<'_, cudamem_flag>,
) -> cudamem_status {
    run("cudamem_flag_create", || {
        let flag = out("flag", flag)?;
        let signals = object("signals", signals)?;
        let placement = placement("place", place, &signals)?;
        let made = of_bits(
            bits,
            || Ok(AnyFlag::Narrow(signals.flag_in(placement)?)),
            || Ok(AnyFlag::Wide(signals.flag_in(placement)?)),
        )?;
        flag.write(call::new_handle(made)?);
        Ok(())
    })
}

/// Evaluates an expression with a flag of either size.
macro_rules! with {
    ($flag:expr, $one:ident => $body:expr) => {
        match $flag {
            AnyFlag::Narrow($one) => $body,
            AnyFlag::Wide($one) => $body,
        }
    };
}

impl AnyFlag {
    pub(crate) fn load(&self) -> u64 {
        with!(self, flag => wide(flag.load()))
    }

    pub(crate) fn wait(&self, comparison: Comparison, value: u64, policy: &WaitPolicy) -> Outcome<u64> {
        Ok(match self {
            AnyFlag::Narrow(flag) => flag.wait(comparison, narrow("value", value)?, policy)?.into(),
            AnyFlag::Wide(flag) => flag.wait(comparison, value, policy)?,
        })
    }

    pub(crate) fn wait_on(&self, stream: &Stream, comparison: Comparison, value: u64) -> Outcome {
        match self {
            AnyFlag::Narrow(flag) => Ok(flag.wait_on(stream, comparison, narrow("value", value)?)?),
            AnyFlag::Wide(flag) => Ok(flag.wait_on(stream, comparison, value)?),
        }
    }

    pub(crate) fn store_on(&self, stream: &Stream, value: u64) -> Outcome {
        match self {
            AnyFlag::Narrow(flag) => Ok(flag.store_on(stream, narrow("value", value)?)?),
            AnyFlag::Wide(flag) => Ok(flag.store_on(stream, value)?),
        }
    }

    pub(crate) fn record_use(&self, stream: &Stream) {
        with!(self, flag => flag.record_use(stream));
    }

    pub(crate) fn set_name(&self, name: &str) {
        with!(self, flag => flag.set_name(name));
    }

    pub(crate) fn device_pointer(&self) -> u64 {
        with!(self, flag => flag.device_pointer())
    }

    pub(crate) fn placement(&self) -> Placement {
        with!(self, flag => flag.placement())
    }
}

/// Writes the word, after all earlier writes of this thread. The write is posted: a polling kernel sees it after at
/// most one trip over PCIe.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_store(flag: cudamem_flag, value: u64) -> cudamem_status {
    run("cudamem_flag_store", || {
        match &*object("flag", flag)? {
            AnyFlag::Narrow(flag) => flag.store(narrow("value", value)?),
            AnyFlag::Wide(flag) => flag.store(value),
        }
        Ok(())
    })
}

/// Destroys a flag. A wait of another thread for it fails with CUDAMEM_ERROR_CLOSED. A stream that waits for it is
/// released: by a queued write of another stream if that satisfies the wait, otherwise at once. In the second case the
/// stream's next cudamem_stream_synchronize, access to memory, or wait fails with CUDAMEM_ERROR_CLOSED. The flag's
/// memory stays until the recorded work is done. Kernels of the program that wait for the flag must be released before,
/// or have a time limit. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_destroy(flag: cudamem_flag) -> cudamem_status {
    run("cudamem_flag_destroy", || {
        if let Ok(flag) = object("flag", flag) {
            // Closing the flag ends waits of other threads, which are uses of the handle.
            with!(&*flag, flag => flag.close());
        }
        destroy("flag", flag, drop_object)
    })
}
