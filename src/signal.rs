//! Signals
//!
//! Words that the CPU, streams and kernels that run write and wait for: flags, counters, and rings of items (below). A kernel
//! launch and the wait for its end take about 8 us; a flag that a running kernel answers takes 1.5. The device's side is
//! cudamem/signal.cuh, one header for CUDA C++ without dependencies.
//!
//!     cudamem_flag question, answer;
//!     cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_DEVICE, &question);
//!     cudamem_flag_create(signals, 32, CUDAMEM_PLACE_FOR_CPU, &answer);
//!     ... launch a kernel with the addresses that cudamem_flag_get_device_pointer gives, then cudamem_flag_record_use ...
//!     cudamem_flag_store(question, 1);
//!     cudamem_flag_wait(answer, CUDAMEM_COMPARE_EQUAL, 1, &options, NULL);
//!
//! Each word has one writer at a time: what CPU and device write at once, one of them loses. A write comes after all that its
//! thread wrote before, to any memory; who sees the value sees those writes, in coherent memory.
//!
//! A driver may wait for the device when memory is allocated or freed and when a kernel is launched for the first time: so for
//! a kernel that waits for the program. Make flags, rings, memory and kernels before launching one that waits. Load, store,
//! wait, push and pop make no call of the driver but where they wait for 5 ms and more.

use crate::call::{self, Options, Out, Outcome, destroy, drop_object, handle_type, invalid, object, options, out, run};
use crate::handle::Kind;
use crate::handles::cudamem_context;
use crate::handles::cudamem_flag;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_signals;
use crate::handles::cudamem_stream;
use crate::handles::cudamem_text;
use crate::resource::Resource;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::c_char;
use core::mem::size_of;
use core::time::Duration;
use cuda_mem::signal::{Comparison, Flag, Placement, Signals, WaitPolicy, Waiter};

/// A flag of 32 or of 64 bits.
#[derive(Debug)]
pub enum AnyFlag {
    /// Of 32 bits.
    Narrow(Flag<u32>),
    /// Of 64 bits.
    Wide(Flag<u64>),
}

handle_type!(cudamem_signals: Signals, Kind::Signals);
handle_type!(cudamem_flag: AnyFlag, Kind::Flag);

/// A flag of cudamem_signals_create: pinned memory alone, also where there is mapped memory.
pub const CUDAMEM_SIGNALS_PINNED_ONLY: u32 = 1;

/// Makes the memory that flags, counters and rings of a context are cut from, 64 KiB at a time. flags is 0 or
/// CUDAMEM_SIGNALS_PINNED_ONLY. Where mapped memory is missing or not coherent, all lies in pinned memory.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signals_create(
    context: cudamem_context,
    flags: u32,
    signals: Out<'_, cudamem_signals>,
) -> cudamem_status {
    run("cudamem_signals_create", || {
        let signals = out("signals", signals)?;
        call::check_flags("flags", flags, CUDAMEM_SIGNALS_PINNED_ONLY)?;
        let context = object("context", context)?;
        let made = if flags == 0 { Signals::new(&context)? } else { Signals::pinned_only(&context)? };
        signals.write(call::new_handle(made)?);
        Ok(())
    })
}

/// As cudamem_signals_create, with mapped memory of a resource that cudamem_resource_create_mapped made: its device is not
/// opened once more.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signals_create_over(
    resource: cudamem_resource,
    signals: Out<'_, cudamem_signals>,
) -> cudamem_status {
    run("cudamem_signals_create_over", || {
        let signals = out("signals", signals)?;
        let resource = object("resource", resource)?;
        let Resource::Mapped { mapped, .. } = &*resource else {
            return Err(invalid("resource", "another resource", "it has to be made by cudamem_resource_create_mapped"));
        };
        signals.write(call::new_handle(Signals::with_resource(mapped)?)?);
        Ok(())
    })
}

/// Tells why signals lie in pinned memory alone, as a text to be destroyed; the null handle where mapped memory is there.
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

/// Destroys the handle. The memory ends with the last flag, counter and ring of it, after the device work that they know of.
/// Streams that wait for a flag are released; kernels that wait for one have to be before. The null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signals_destroy(signals: cudamem_signals) -> cudamem_status {
    run("cudamem_signals_destroy", || destroy("signals", signals, drop_object))
}

/// Where the CPU looks fastest: pinned memory.
pub const CUDAMEM_PLACE_FOR_CPU: i32 = 0;
/// Where kernels and streams look fastest: mapped memory if it is there, else pinned memory.
pub const CUDAMEM_PLACE_FOR_DEVICE: i32 = 1;
/// Page-locked memory of the host.
pub const CUDAMEM_PLACE_PINNED: i32 = 2;
/// Device memory that the CPU addresses too, if it is there and coherent.
pub const CUDAMEM_PLACE_MAPPED: i32 = 3;

pub(crate) fn placement(argument: &'static str, place: i32, signals: &Signals) -> Outcome<Placement> {
    Ok(match place {
        CUDAMEM_PLACE_FOR_CPU => signals.placement_for(Waiter::Cpu),
        CUDAMEM_PLACE_FOR_DEVICE => signals.placement_for(Waiter::Device),
        CUDAMEM_PLACE_PINNED => Placement::Pinned,
        CUDAMEM_PLACE_MAPPED => Placement::Mapped,
        other => return Err(invalid(argument, other.to_string(), "it is one of CUDAMEM_PLACE_...")),
    })
}

/// The word is the value.
pub const CUDAMEM_COMPARE_EQUAL: i32 = 0;
/// The word is the value, or ahead of it by less than half of all numbers: counters may wrap around.
pub const CUDAMEM_COMPARE_AT_LEAST: i32 = 1;
/// A bit of the value is set in the word.
pub const CUDAMEM_COMPARE_ANY_BIT: i32 = 2;
/// A bit is clear in the word and in the value. Not every device's streams can wait so.
pub const CUDAMEM_COMPARE_NOT_ALL_BITS: i32 = 3;

fn comparison(comparison: i32) -> Outcome<Comparison> {
    let known = usize::try_from(comparison).ok().and_then(|index| Comparison::ALL.get(index));
    known.copied().ok_or_else(|| invalid("comparison", comparison.to_string(), "it is one of CUDAMEM_COMPARE_..."))
}

/// How the CPU waits: it looks again and again, in turns without a pause, then leaving the processor to other threads, then
/// with naps that double. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_wait_options {
    /// sizeof(cudamem_wait_options).
    pub size: usize,
    /// When to give up, in seconds. 0 for never: the wait then ends only with what it waits for, or with the driver's error
    /// when the device has failed.
    pub timeout: f64,
    /// The first nap in seconds. 20 us by default.
    pub shortest_nap: f64,
    /// The longest nap in seconds, and so how late a long wait may notice. 1 ms by default.
    pub longest_nap: f64,
    /// How often the wait looks without a pause. 10000 by default; -1 for not at all.
    pub spins: i32,
    /// How often it looks after that, leaving the processor to other threads in between. 200 by default; -1 for not at all.
    pub yields: i32,
}

// SAFETY: a size, three numbers of 8 bytes, and two of 4.
unsafe impl Options for cudamem_wait_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

impl cudamem_wait_options {
    /// What the program's options say.
    ///
    /// # Safety
    ///
    /// As [`options`](call::options).
    pub(crate) unsafe fn policy(chosen: *const Self) -> Outcome<WaitPolicy> {
        // SAFETY: this function's contract.
        let chosen = unsafe { options("options", chosen) }?;
        let time = |field, seconds: f64| {
            let refuse = || invalid(field, seconds.to_string(), "it is a time in seconds, 0 or more");
            Duration::try_from_secs_f64(seconds).map_err(|_| refuse())
        };
        let turns = |field, turns: i32, usual: u32| match turns {
            0 => Ok(usual),
            -1 => Ok(0),
            turns => u32::try_from(turns).map_err(|_| invalid(field, turns.to_string(), "it is -1 or more")),
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

/// A word of either size, as results have it.
pub(crate) fn wide(word: impl Into<u64>) -> u64 {
    word.into()
}

/// A value of 32 bits, where the word has so many.
pub(crate) fn narrow(argument: &'static str, value: u64) -> Outcome<u32> {
    u32::try_from(value).map_err(|_| invalid(argument, format!("{value:#x}"), "the word has 32 bits"))
}

/// Chooses by the bits of a word.
pub(crate) fn of_bits<T>(
    bits: u32,
    of_32: impl FnOnce() -> Outcome<T>,
    of_64: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    match bits {
        32 => of_32(),
        64 => of_64(),
        other => Err(invalid("bits", other.to_string(), "a word has 32 or 64")),
    }
}

/// Makes a flag: a word of 32 or 64 bits, alone in its cache lines, 0 at first. place is one of CUDAMEM_PLACE_... .
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if there is no such memory; CUDAMEM_ERROR_OUT_OF_MEMORY.
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

/// Does something with a flag of any size.
macro_rules! with {
    ($flag:expr, $one:ident => $body:expr) => {
        match $flag {
            AnyFlag::Narrow($one) => $body,
            AnyFlag::Wide($one) => $body,
        }
    };
}

/// Reads the word. What its writer did before the write is seen after this.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_load(flag: cudamem_flag, value: Out<'_, u64>) -> cudamem_status {
    run("cudamem_flag_load", || {
        let value = out("value", value)?;
        value.write(with!(&*object("flag", flag)?, flag => wide(flag.load())));
        Ok(())
    })
}

/// Writes the word, after all earlier writes of this thread. The write is posted: a kernel that looks sees it after a trip over
/// PCIe at most.
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

/// Waits on the CPU until the word compares with value, and gives what it was then in seen, which may be NULL. comparison is one
/// of CUDAMEM_COMPARE_...; options may be NULL. A word that changes back may be missed.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT if time is up; CUDAMEM_ERROR_INVALID_ARGUMENT if no word can ever compare so;
/// CUDAMEM_ERROR_CLOSED if another thread destroys the flag; CUDAMEM_ERROR_DRIVER if the device has failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_flag_wait(
    flag: cudamem_flag,
    comparison: i32,
    value: u64,
    options: *const cudamem_wait_options,
    seen: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_flag_wait", || {
        let comparison = self::comparison(comparison)?;
        // SAFETY: the header's rule for options.
        let policy = unsafe { cudamem_wait_options::policy(options) }?;
        let word = match &*object("flag", flag)? {
            AnyFlag::Narrow(flag) => flag.wait(comparison, narrow("value", value)?, &policy)?.into(),
            AnyFlag::Wide(flag) => flag.wait(comparison, value, &policy)?,
        };
        if let Some(seen) = seen {
            seen.write(word);
        }
        Ok(())
    })
}

/// Lets work given to stream from now on wait until the word compares with value. The wait takes no processor of the device; it
/// holds the stream until somebody writes, which must not depend on the same stream. More such waits at a time than the device
/// has queues (CUDA_DEVICE_MAX_CONNECTIONS) may hold each other.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device has no such waits; CUDAMEM_ERROR_INVALID_ARGUMENT if the stream is of another
/// context or captures a graph, or no word can ever compare so.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_wait_on(
    flag: cudamem_flag,
    stream: cudamem_stream,
    comparison: i32,
    value: u64,
) -> cudamem_status {
    run("cudamem_flag_wait_on", || {
        let comparison = self::comparison(comparison)?;
        let (flag, stream) = (object("flag", flag)?, object("stream", stream)?);
        match &*flag {
            AnyFlag::Narrow(flag) => Ok(flag.wait_on(&stream, comparison, narrow("value", value)?)?),
            AnyFlag::Wide(flag) => Ok(flag.wait_on(&stream, comparison, value)?),
        }
    })
}

/// Writes the word when all work given to stream so far is done; who sees the value sees that work.
///
/// Errors: as cudamem_flag_wait_on.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_store_on(flag: cudamem_flag, stream: cudamem_stream, value: u64) -> cudamem_status {
    run("cudamem_flag_store_on", || {
        let (flag, stream) = (object("flag", flag)?, object("stream", stream)?);
        match &*flag {
            AnyFlag::Narrow(flag) => Ok(flag.store_on(&stream, narrow("value", value)?)?),
            AnyFlag::Wide(flag) => Ok(flag.store_on(&stream, value)?),
        }
    })
}

/// Tells the flag that work given to stream so far uses it: kernels that were launched with its address. Its memory serves
/// nothing else until that work is done.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_record_use(flag: cudamem_flag, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_flag_record_use", || {
        let (flag, stream) = (object("flag", flag)?, object("stream", stream)?);
        with!(&*flag, flag => flag.record_use(&stream));
        Ok(())
    })
}

/// Gives the word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle lives.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_get_device_pointer(flag: cudamem_flag, pointer: Out<'_, u64>) -> cudamem_status {
    run("cudamem_flag_get_device_pointer", || {
        let pointer = out("pointer", pointer)?;
        pointer.write(with!(&*object("flag", flag)?, flag => flag.device_pointer()));
        Ok(())
    })
}

/// Tells where the word lies: place becomes CUDAMEM_PLACE_PINNED or CUDAMEM_PLACE_MAPPED.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_get_place(flag: cudamem_flag, place: Out<'_, i32>) -> cudamem_status {
    run("cudamem_flag_get_place", || {
        let place = out("place", place)?;
        place.write(match with!(&*object("flag", flag)?, flag => flag.placement()) {
            Placement::Pinned => CUDAMEM_PLACE_PINNED,
            Placement::Mapped => CUDAMEM_PLACE_MAPPED,
        });
        Ok(())
    })
}

/// Gives a flag a name, for errors and for reports of waits that take long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_flag_set_name(flag: cudamem_flag, name: *const c_char) -> cudamem_status {
    run("cudamem_flag_set_name", || {
        // SAFETY: the header's rule for texts.
        let name = unsafe { call::name(name) }?;
        with!(&*object("flag", flag)?, flag => flag.set_name(name));
        Ok(())
    })
}

/// Destroys a flag. A wait of another thread for it fails with CUDAMEM_ERROR_CLOSED. A stream that waits for it goes on: when a
/// queued write of another stream satisfies the wait, or else at once. Then nobody satisfied the wait, and the stream's next
/// cudamem_stream_synchronize, access to memory, or wait fails with CUDAMEM_ERROR_CLOSED. The flag's memory stays until the work
/// that it was told of is done. Kernels of the program that wait for it have to be released before, or to give up in time. The
/// null handle is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_flag_destroy(flag: cudamem_flag) -> cudamem_status {
    run("cudamem_flag_destroy", || {
        if let Ok(flag) = object("flag", flag) {
            // Another thread may wait for it, and its end is that of the wait.
            with!(&*flag, flag => flag.close());
        }
        destroy("flag", flag, drop_object)
    })
}
