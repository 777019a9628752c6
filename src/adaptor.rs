//! Adaptors
//!
//! An adaptor is a resource on top of another resource, its upstream: it counts, limits, logs or retries allocations.
//! Adaptors and pools stack in any order. The upstream's handle may be destroyed before the adaptor's. A function for
//! one kind of adaptor refuses other resources with CUDAMEM_ERROR_INVALID_ARGUMENT.

use crate::call::{Options, Out, Outcome, fill, invalid, object, out, run, text};
use crate::callbacks::{Callback, call_once};
use crate::handles::cudamem_resource;
use crate::handles::cudamem_text;
use crate::made::{new_resource, of_type};
use crate::message::c_text;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use cuda_mem::Error;
use cuda_mem::adaptor::{AfterFailure, Aligned, Fallback, Limit, Logging, Recording, Retry, Statistics, Tracking};
use cuda_mem::memory::kind::Any;
use cuda_mem::trace::Trace;
use cuda_mem_dynamic::Resource;
use std::io::{self, BufWriter};

/// An adaptor that counts allocations: cudamem_resource_get_counts. number is 0.
pub const CUDAMEM_ADAPTOR_STATISTICS: i32 = 0;
/// An adaptor that limits live memory. An allocation beyond number bytes fails with CUDAMEM_ERROR_OUT_OF_MEMORY.
pub const CUDAMEM_ADAPTOR_LIMIT: i32 = 1;
/// An adaptor that records every live block: cudamem_resource_get_report. number is 0 or CUDAMEM_TRACKING_BACKTRACES.
pub const CUDAMEM_ADAPTOR_TRACKING: i32 = 2;
/// An adaptor that keeps the newest number allocations and frees, at about 100 bytes each: cudamem_resource_get_report.
pub const CUDAMEM_ADAPTOR_RECORDING: i32 = 3;
/// An adaptor whose blocks begin at multiples of number, a power of two.
pub const CUDAMEM_ADAPTOR_ALIGNED: i32 = 4;

/// With CUDAMEM_ADAPTOR_TRACKING: record a backtrace of each allocation, which takes microseconds.
pub const CUDAMEM_TRACKING_BACKTRACES: usize = 1;

/// Makes an adaptor that needs at most a number. kind is one of CUDAMEM_ADAPTOR_..., which describes the number.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_adaptor(
    upstream: cudamem_resource,
    kind: i32,
    number: usize,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_adaptor", || {
        const MOST_EVENTS: usize = 1 << 24;
        let resource = out("resource", resource)?;
        let wrong = |rule: String| Err(invalid("number", number.to_string(), rule));
        let upstream = object("upstream", upstream)?.share();
        resource.write(match (kind, number) {
            (CUDAMEM_ADAPTOR_STATISTICS, 0) => new_resource(Statistics::new(&upstream))?,
            (CUDAMEM_ADAPTOR_STATISTICS, _) => return wrong("it must be 0 for CUDAMEM_ADAPTOR_STATISTICS".to_owned()),
            (CUDAMEM_ADAPTOR_LIMIT, limit) => new_resource(Limit::new(&upstream, limit))?,
            (CUDAMEM_ADAPTOR_TRACKING, 0) => new_resource(Tracking::new(&upstream))?,
            (CUDAMEM_ADAPTOR_TRACKING, CUDAMEM_TRACKING_BACKTRACES) => {
                new_resource(Tracking::with_backtraces(&upstream))?
            }
            (CUDAMEM_ADAPTOR_TRACKING, _) => return wrong("it must be 0 or CUDAMEM_TRACKING_BACKTRACES".to_owned()),
            (CUDAMEM_ADAPTOR_RECORDING, capacity) if capacity > MOST_EVENTS => {
                return wrong(format!("it must be at most {MOST_EVENTS} events"));
            }
            (CUDAMEM_ADAPTOR_RECORDING, capacity) => new_resource(Recording::new(&upstream, capacity))?,
            (CUDAMEM_ADAPTOR_ALIGNED, alignment) => new_resource(Aligned::<Any>::new(&upstream, alignment)?)?,
            _ => return Err(invalid("kind", kind.to_string(), "it must be one of CUDAMEM_ADAPTOR_...")),
        });
        Ok(())
    })
}

/// The counts of a statistics adaptor. Sizes are the sizes of the allocated blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_counts {
    /// sizeof(cudamem_counts), set by the program.
    pub size: usize,
    /// Bytes in live blocks.
    pub bytes: i64,
    /// The largest number of live bytes since the peaks were last reset.
    pub bytes_peak: i64,
    /// Bytes in all blocks that were ever allocated.
    pub bytes_total: u64,
    /// Live blocks.
    pub blocks: i64,
    /// The largest number of live blocks since the peaks were last reset.
    pub blocks_peak: i64,
    /// Blocks that were ever allocated.
    pub blocks_total: u64,
    /// Failed allocations.
    pub failed_allocations: u64,
    /// Failed frees. Their blocks stay live.
    pub failed_frees: u64,
    /// Blocks that were ever allocated, by size: sizes[n] counts the blocks of 2^n to 2^(n+1) - 1 bytes.
    pub sizes: [u64; 48],
}

// SAFETY: only numbers of 8 bytes.
unsafe impl Options for cudamem_counts {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Gets the counts of CUDAMEM_ADAPTOR_STATISTICS. Set counts->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_get_counts(
    resource: cudamem_resource,
    counts: *mut cudamem_counts,
) -> cudamem_status {
    run("cudamem_resource_get_counts", || {
        let found = of_type::<Statistics<Any>>("resource", resource)?.counts();
        let mut sizes = [0; 48];
        for (class, count) in sizes.iter_mut().enumerate() {
            *count = 1usize.checked_shl(class as u32).map_or(0, |size| found.sizes.of(size));
        }
        let answer = cudamem_counts {
            size: size_of::<cudamem_counts>(),
            bytes: found.bytes.current,
            bytes_peak: found.bytes.peak,
            bytes_total: found.bytes.total,
            blocks: found.blocks.current,
            blocks_peak: found.blocks.peak,
            blocks_total: found.blocks.total,
            failed_allocations: found.failed_allocations,
            failed_frees: found.failed_frees,
            sizes,
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("counts", counts, answer) }
    })
}

/// Sets the limit of CUDAMEM_ADAPTOR_LIMIT. Live blocks stay, even beyond the new limit.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_set_limit(resource: cudamem_resource, limit: usize) -> cudamem_status {
    run("cudamem_resource_set_limit", || {
        of_type::<Limit<Any>>("resource", resource)?.set_limit(limit);
        Ok(())
    })
}

fn system(call: &'static str, error: &io::Error) -> Error {
    Error::System { call, code: error.raw_os_error().unwrap_or(0) }
}

/// Makes an adaptor that writes each allocation and each free to a file, as a line of CSV in the format of RMM's logs:
/// Thread,Time,Action,Pointer,Size,Stream. It overwrites an existing file.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if the file cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_create_logging(
    upstream: cudamem_resource,
    path: *const c_char,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_logging", || {
        let resource = out("resource", resource)?;
        // SAFETY: the header requires NULL or a zero-terminated string.
        let path = unsafe { text("path", path) }?.ok_or_else(|| invalid("path", "NULL", "it must name a file"))?;
        let upstream = object("upstream", upstream)?.share();
        let file = std::fs::File::create(path).map_err(|error| system("open", &error))?;
        resource.write(new_resource(Logging::new(&upstream, BufWriter::new(file)))?);
        Ok(())
    })
}

/// Writes all buffered lines of cudamem_resource_create_logging to the file. lost, which may be NULL, receives the
/// number of lines lost so far.
///
/// Errors: CUDAMEM_ERROR_SYSTEM if the file cannot be written.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_flush_log(resource: cudamem_resource, lost: Out<'_, u64>) -> cudamem_status {
    run("cudamem_resource_flush_log", || {
        let logging = of_type::<Logging<Any>>("resource", resource)?;
        logging.flush().map_err(|error| system("write", &error))?;
        if let Some(lost) = lost {
            lost.write(logging.lost_lines());
        }
        Ok(())
    })
}

/// Gets what a resource has recorded: a count, and a readable report. Either place may be NULL.
///
/// - CUDAMEM_ADAPTOR_TRACKING: the live blocks, with their sizes and perhaps backtraces.
/// - cudamem_resource_create_guarded: the damage. The call waits for all work of the context, and checks for it now.
/// - CUDAMEM_ADAPTOR_RECORDING, and pools with a trace_capacity: the newest allocations and frees as CSV, oldest
///   first, with times, threads and streams. `cuda-mem replay` repeats them.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_get_report(
    resource: cudamem_resource,
    count: Out<'_, usize>,
    report: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_resource_get_report", || {
        let wanted = report.is_some();
        let (number, text) = match &object("resource", resource)?.resource {
            Resource::Pool(pool) => csv(&pool.trace())?,
            Resource::Recording(adaptor) => csv(&adaptor.trace())?,
            Resource::Tracking(adaptor) => {
                let leaks = adaptor.leak_report();
                (leaks.blocks.len(), if wanted { leaks.to_string() } else { String::new() })
            }
            Resource::Guarded(adaptor) => {
                let damages = adaptor.check()?;
                let lines: Vec<String> = damages.iter().map(ToString::to_string).collect();
                (lines.len(), lines.join("\n"))
            }
            _ => {
                let rule = "it must be a pool, a guarded resource, or a CUDAMEM_ADAPTOR_TRACKING or _RECORDING";
                return Err(invalid("resource", "another resource", rule));
            }
        };
        if let Some(report) = report {
            report.write(new_text(text)?);
        }
        if let Some(count) = count {
            count.write(number);
        }
        Ok(())
    })
}

/// The number of events, and their text.
fn csv(trace: &Trace) -> Outcome<(usize, String)> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).map_err(|error| system("write", &error))?;
    Ok((trace.events.len(), String::from_utf8_lossy(&bytes).into_owned()))
}

/// Makes an adaptor that allocates from first, and from second when first is out of memory. Both must belong to one
/// context. All its memory counts as accessible only as that of both is: by the CPU, or by devices, if both allow it.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_fallback(
    first: cudamem_resource,
    second: cudamem_resource,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_fallback", || {
        let resource = out("resource", resource)?;
        let (first, second) = (object("first", first)?.share(), object("second", second)?.share());
        resource.write(new_resource(Fallback::<Any>::new(&first, &second)?)?);
        Ok(())
    })
}

/// The library calls this function when the upstream is out of memory, on the allocating thread. message describes the
/// failure and is valid during the call. attempt is the number of the failed attempt, from 1. user is the program's
/// pointer. The function may free memory, and returns whether to try again. An allocation that the function itself
/// makes from the same resource fails without another call of it. It must not unwind.
pub type cudamem_retry_callback =
    Option<extern "C" fn(message: *const c_char, attempt: u32, user: *mut c_void) -> bool>;

type Decide = Callback<extern "C" fn(*const c_char, u32, *mut c_void) -> bool>;

/// Calls the program's function, unless it already runs on this thread.
fn after(asked: &Decide, error: &Error, attempt: u32) -> AfterFailure {
    let message = c_text(error.to_string());
    let call = || asked.call(|function, user| function(message.as_ptr(), attempt, user));
    match call_once(asked, call) {
        Some(true) => AfterFailure::Again,
        Some(false) | None => AfterFailure::GiveUp,
    }
}

/// Makes an adaptor that calls callback when the upstream is out of memory, and tries again if it returns true, at most
/// attempts times for one allocation.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_retry(
    upstream: cudamem_resource,
    attempts: u32,
    callback: cudamem_retry_callback,
    user: *mut c_void,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_retry", || {
        let resource = out("resource", resource)?;
        let function = callback.ok_or_else(|| invalid("callback", "NULL", "it must be the function to call"))?;
        let upstream = object("upstream", upstream)?.share();
        let decide = Decide { function, user };
        resource.write(new_resource(Retry::new(&upstream, attempts, move |error, attempt| {
            after(&decide, error, attempt)
        }))?);
        Ok(())
    })
}
