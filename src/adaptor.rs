//! Adaptors
//!
//! An adaptor is a resource on top of another resource, its upstream: it counts, limits, logs or retries allocations.
//! Adaptors and pools stack in any order. The upstream's handle may be destroyed before the adaptor's. A function for
//! one kind of adaptor refuses other resources with CUDAMEM_ERROR_INVALID_ARGUMENT.

use crate::call::{self, Options, Out, fill, invalid, object, out, run, text};
use crate::callbacks::{Callback, call_once};
use crate::handles::cudamem_resource;
use crate::handles::cudamem_text;
use crate::made::{new_resource, of_sort};
use crate::message::c_text;
use crate::resource::Resource;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use cuda_mem::Error;
use cuda_mem::adaptor::{AfterFailure, Aligned, Fallback, Limit, Logging, Recording, Retry, Statistics, Tracking};
use cuda_mem::memory::kind::Any;
use std::io::{self, BufWriter};

/// Makes an adaptor that counts allocations: cudamem_resource_get_counts.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_statistics(
    upstream: cudamem_resource,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_statistics", || {
        let resource = out("resource", resource)?;
        resource.write(new_resource(Statistics::new(&object("upstream", upstream)?.share()))?);
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

/// Gets the counts of cudamem_resource_create_statistics. Set counts->size first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_resource_get_counts(
    resource: cudamem_resource,
    counts: *mut cudamem_counts,
) -> cudamem_status {
    run("cudamem_resource_get_counts", || {
        let found = of_sort::<Statistics<Any>>("resource", resource)?.counts();
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

/// Resets the peaks of cudamem_resource_get_counts to the current values.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_reset_peaks(resource: cudamem_resource) -> cudamem_status {
    run("cudamem_resource_reset_peaks", || {
        of_sort::<Statistics<Any>>("resource", resource)?.reset_peaks();
        Ok(())
    })
}

/// Makes an adaptor that limits live memory. An allocation beyond limit bytes fails with CUDAMEM_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_limit(
    upstream: cudamem_resource,
    limit: usize,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_limit", || {
        let resource = out("resource", resource)?;
        resource.write(new_resource(Limit::new(&object("upstream", upstream)?.share(), limit))?);
        Ok(())
    })
}

/// Sets the limit of cudamem_resource_create_limit. Live blocks stay, even beyond the new limit.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_set_limit(resource: cudamem_resource, limit: usize) -> cudamem_status {
    run("cudamem_resource_set_limit", || {
        of_sort::<Limit<Any>>("resource", resource)?.set_limit(limit);
        Ok(())
    })
}

/// Gets the limit and the live bytes. Either place may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_get_limit(
    resource: cudamem_resource,
    limit: Out<'_, usize>,
    used: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_resource_get_limit", || {
        let adaptor = of_sort::<Limit<Any>>("resource", resource)?;
        if let Some(limit) = limit {
            limit.write(adaptor.limit());
        }
        if let Some(used) = used {
            used.write(adaptor.used());
        }
        Ok(())
    })
}

/// A flag of cudamem_resource_create_tracking: record a backtrace of each allocation, which takes microseconds.
pub const CUDAMEM_TRACKING_BACKTRACES: u32 = 1;

/// Makes an adaptor that records every live block. cudamem_resource_get_leaks reports them. flags is 0 or
/// CUDAMEM_TRACKING_BACKTRACES.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_tracking(
    upstream: cudamem_resource,
    flags: u32,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_tracking", || {
        let resource = out("resource", resource)?;
        call::check_flags("flags", flags, CUDAMEM_TRACKING_BACKTRACES)?;
        let upstream = object("upstream", upstream)?.share();
        let made = if flags == 0 { Tracking::new(&upstream) } else { Tracking::with_backtraces(&upstream) };
        resource.write(new_resource(made)?);
        Ok(())
    })
}

/// Gets the number of live blocks of cudamem_resource_create_tracking, and a readable report on each. Either place may
/// be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_get_leaks(
    resource: cudamem_resource,
    blocks: Out<'_, usize>,
    report: Out<'_, cudamem_text>,
) -> cudamem_status {
    run("cudamem_resource_get_leaks", || {
        let leaks = of_sort::<Tracking<Any>>("resource", resource)?.leak_report();
        if let Some(report) = report {
            report.write(new_text(leaks.to_string())?);
        }
        if let Some(blocks) = blocks {
            blocks.write(leaks.blocks.len());
        }
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
        let logging = of_sort::<Logging<Any>>("resource", resource)?;
        logging.flush().map_err(|error| system("write", &error))?;
        if let Some(lost) = lost {
            lost.write(logging.lost_lines());
        }
        Ok(())
    })
}

/// Makes an adaptor that keeps the newest capacity allocations and frees, at about 100 bytes each:
/// cudamem_resource_get_trace.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_recording(
    upstream: cudamem_resource,
    capacity: usize,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_recording", || {
        let resource = out("resource", resource)?;
        const MOST_EVENTS: usize = 1 << 24;
        if capacity > MOST_EVENTS {
            return Err(invalid("capacity", capacity.to_string(), format!("it must be at most {MOST_EVENTS} events")));
        }
        resource.write(new_resource(Recording::new(&object("upstream", upstream)?.share(), capacity))?);
        Ok(())
    })
}

/// Gets the newest allocations and frees of cudamem_resource_create_recording, or of a pool with a trace_capacity, as
/// CSV: oldest first, with times, threads and streams. `cuda-mem replay` repeats them.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_get_trace(resource: cudamem_resource, csv: Out<'_, cudamem_text>) -> cudamem_status {
    run("cudamem_resource_get_trace", || {
        let csv = out("csv", csv)?;
        let trace = match &*object("resource", resource)? {
            Resource::Pool(pool) => pool.trace(),
            _ => of_sort::<Recording<Any>>("resource", resource)?.trace(),
        };
        let mut bytes = Vec::new();
        trace.write(&mut bytes).map_err(|error| system("write", &error))?;
        csv.write(new_text(String::from_utf8_lossy(&bytes).into_owned())?);
        Ok(())
    })
}

/// Makes an adaptor that allocates from first, and from second when first is out of memory. Both must belong to one
/// context and allow the same access.
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

/// Gets how many live blocks of cudamem_resource_create_fallback come from the second resource.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_get_fallback_blocks(
    resource: cudamem_resource,
    blocks: Out<'_, usize>,
) -> cudamem_status {
    run("cudamem_resource_get_fallback_blocks", || {
        let blocks = out("blocks", blocks)?;
        blocks.write(of_sort::<Fallback<Any>>("resource", resource)?.blocks_of_second());
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

/// Makes an adaptor whose blocks begin at multiples of alignment, a power of two.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_resource_create_aligned(
    upstream: cudamem_resource,
    alignment: usize,
    resource: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_resource_create_aligned", || {
        let resource = out("resource", resource)?;
        resource.write(new_resource(Aligned::<Any>::new(&object("upstream", upstream)?.share(), alignment)?)?);
        Ok(())
    })
}
