//! Words of flags and counters
//!
//! These functions take the id of a flag or of a counter: flag.id, counter.id. A wait for a counter must compare with
//! CUDAMEM_COMPARE_AT_LEAST.

use crate::call::{Options, Out, Outcome, fill, invalid, object, out, run};
use crate::counter::AnyCounter;
use crate::handles::{cudamem_counter, cudamem_flag, cudamem_stream};
use crate::objects::of_kinds;
use crate::signal::{AnyFlag, CUDAMEM_PLACE_MAPPED, CUDAMEM_PLACE_PINNED, cudamem_wait_options};
use crate::status::cudamem_status;
use core::mem::size_of;
use cuda_mem::signal::{Comparison, Placement};

/// Checks that a counter can be compared so.
fn at_least(comparison: Comparison) -> Outcome {
    if comparison == Comparison::AtLeast {
        return Ok(());
    }
    Err(invalid("comparison", format!("{comparison:?}"), "it must be CUDAMEM_COMPARE_AT_LEAST for a counter"))
}

/// Reads the word. Everything that its writer did before the write is visible after this call.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signal_load(id: u64, value: Out<'_, u64>) -> cudamem_status {
    run("cudamem_signal_load", || {
        let value = out("value", value)?;
        value.write(of_kinds!("id", id;
            cudamem_flag as flag => flag.load(),
            cudamem_counter as counter => counter.value(),
        ));
        Ok(())
    })
}

/// Waits on the CPU until the comparison of the word with value holds, and stores the word then in seen, which may be
/// NULL. comparison is one of CUDAMEM_COMPARE_...; options may be NULL. The wait may miss a word that changes back.
///
/// Errors: CUDAMEM_ERROR_TIMED_OUT after the time limit. CUDAMEM_ERROR_INVALID_ARGUMENT if no word can satisfy the
/// comparison, or if the CPU counts. CUDAMEM_ERROR_CLOSED if another thread destroys the flag or counter.
/// CUDAMEM_ERROR_DRIVER if the device failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_signal_wait(
    id: u64,
    comparison: i32,
    value: u64,
    options: *const cudamem_wait_options,
    seen: Out<'_, u64>,
) -> cudamem_status {
    run("cudamem_signal_wait", || {
        let comparison = crate::signal::comparison(comparison)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let policy = unsafe { cudamem_wait_options::policy(options) }?;
        let word = of_kinds!("id", id;
            cudamem_flag as flag => AnyFlag::wait(&flag, comparison, value, &policy)?,
            cudamem_counter as counter => {
                at_least(comparison)?;
                AnyCounter::wait(&counter, value, &policy)?
            },
        );
        if let Some(seen) = seen {
            seen.write(word);
        }
        Ok(())
    })
}

/// Makes later work of stream wait until the comparison of the word with value holds. The wait takes no processor of
/// the device, but blocks the stream until something writes the word. That write must not depend on the same stream. If
/// more such waits run at a time than the device has queues (CUDA_DEVICE_MAX_CONNECTIONS), they may block each other.
///
/// Errors: CUDAMEM_ERROR_UNSUPPORTED if the device has no such waits. CUDAMEM_ERROR_INVALID_ARGUMENT if the stream
/// belongs to another context or captures a graph, or if no word can satisfy the comparison.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signal_wait_on(
    id: u64,
    stream: cudamem_stream,
    comparison: i32,
    value: u64,
) -> cudamem_status {
    run("cudamem_signal_wait_on", || {
        let comparison = crate::signal::comparison(comparison)?;
        let stream = object("stream", stream)?;
        of_kinds!("id", id;
            cudamem_flag as flag => flag.wait_on(&stream, comparison, value),
            cudamem_counter as counter => {
                at_least(comparison)?;
                counter.wait_on(&stream, value)
            },
        )
    })
}

/// Writes the word when all work queued on stream so far is done. A reader that sees the value also sees that work.
///
/// Errors: as cudamem_signal_wait_on. CUDAMEM_ERROR_INVALID_ARGUMENT if the CPU counts.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_signal_store_on(id: u64, stream: cudamem_stream, value: u64) -> cudamem_status {
    run("cudamem_signal_store_on", || {
        let stream = object("stream", stream)?;
        of_kinds!("id", id;
            cudamem_flag as flag => flag.store_on(&stream, value),
            cudamem_counter as counter => counter.store_on(&stream, value),
        )
    })
}

/// Where a word lies.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_signal_info {
    /// sizeof(cudamem_signal_info), set by the program.
    pub size: usize,
    /// The word's address for kernels (a CUdeviceptr): a pointer to uint32_t or uint64_t, valid while the handle lives.
    pub device_pointer: u64,
    /// The size of the word: 32 or 64.
    pub bits: u32,
    /// Of a flag: CUDAMEM_PLACE_PINNED or CUDAMEM_PLACE_MAPPED. Of a counter: CUDAMEM_PLACE_FOR_DEVICE if the CPU
    /// counts, and otherwise CUDAMEM_PLACE_FOR_CPU.
    pub place: i32,
}

// SAFETY: two numbers of 8 bytes, and two of 4.
unsafe impl Options for cudamem_signal_info {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Gets where a word lies. Set info->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_signal_get_info(id: u64, info: *mut cudamem_signal_info) -> cudamem_status {
    run("cudamem_signal_get_info", || {
        let (device_pointer, bits, place) = of_kinds!("id", id;
            cudamem_flag as flag => {
                let bits = if matches!(&*flag, AnyFlag::Narrow(_)) { 32 } else { 64 };
                let place = match flag.placement() {
                    Placement::Pinned => CUDAMEM_PLACE_PINNED,
                    Placement::Mapped => CUDAMEM_PLACE_MAPPED,
                };
                (flag.device_pointer(), bits, place)
            },
            cudamem_counter as counter => {
                let bits = if matches!(&*counter, AnyCounter::Narrow(_)) { 32 } else { 64 };
                (counter.device_pointer(), bits, counter.place())
            },
        );
        let answer = cudamem_signal_info { size: size_of::<cudamem_signal_info>(), device_pointer, bits, place };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("info", info, answer) }
    })
}
