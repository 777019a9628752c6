//! Pools that sleep
//!
//! A pool of cudamem_pool_create that grows in place, over memory of a device, gives its memory back to the device and
//! keeps its addresses. When it wakes, it has memory at the same addresses again, with the old contents if they were
//! saved. So buffers, pointers and recorded graphs stay valid, and other programs use the memory meanwhile.
//!
//! While a pool sleeps, allocations from it and work on its buffers are refused with CUDAMEM_ERROR_ASLEEP. A kernel that
//! uses its memory fails with an illegal address, which ends the context: launch none. Buffers may be destroyed.

use crate::call::{self, Options, Out, Outcome, invalid, object, options, out, run};
use crate::handles::cudamem_resource;
use crate::made::of_type;
use crate::status::cudamem_status;
use core::mem::size_of;
use core::time::Duration;
use cuda_mem::memory::kind::Any;
use cuda_mem::pool::{Contents, Pool, SleepOptions};

/// The contents are copied to host memory, and back when the pool wakes. The default.
pub const CUDAMEM_CONTENTS_SAVE: i32 = 0;
/// The contents are lost. When the pool wakes, its blocks have any contents, as new memory of the driver.
pub const CUDAMEM_CONTENTS_DISCARD: i32 = 1;

/// How a pool sleeps. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_sleep_options {
    /// sizeof(cudamem_sleep_options).
    pub size: usize,
    /// One of CUDAMEM_CONTENTS_... .
    pub contents: i32,
    /// Must be 0.
    pub reserved: u32,
    /// Where the contents are saved: page-locked memory, or a pool over it. The null handle lets the call allocate such
    /// memory, which takes longer than the copies: 60 ms for a GiB. So a program whose pools sleep often passes a
    /// pool of page-locked memory that has room already.
    pub host: cudamem_resource,
    /// How many seconds the call waits for a moment in which no queued work waits for the CPU. 0 for the default, 10
    /// seconds; INFINITY (from math.h) means no limit.
    pub patience: f64,
}

// SAFETY: 8 + 4 + 4 bytes, a handle of 8 bytes, and a number of 8.
unsafe impl Options for cudamem_sleep_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

impl cudamem_sleep_options {
    fn settings(&self) -> Outcome<SleepOptions> {
        let mut settings = SleepOptions::default();
        settings.contents = match self.contents {
            CUDAMEM_CONTENTS_SAVE => Contents::Save,
            CUDAMEM_CONTENTS_DISCARD => Contents::Discard,
            other => {
                let rule = "it must be CUDAMEM_CONTENTS_SAVE or CUDAMEM_CONTENTS_DISCARD";
                return Err(invalid("options.contents", other.to_string(), rule));
            }
        };
        call::check_flags("options.reserved", self.reserved, 0)?;
        if self.patience != 0.0 {
            settings.patience = call::time_limit("options.patience", self.patience)?.unwrap_or(Duration::MAX);
        }
        if self.host.id != 0 {
            settings.host = Some(object("options.host", self.host)?.share());
        }
        Ok(settings)
    }
}

/// What a pool did when it fell asleep. Sizes are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_slept {
    /// sizeof(cudamem_slept), set by the program.
    pub size: usize,
    /// How much lies in host memory.
    pub saved: u64,
    /// How much the device got back.
    pub released: u64,
}

// SAFETY: only numbers of 8 bytes.
unsafe impl Options for cudamem_slept {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Puts a pool to sleep. options may be NULL. slept may be NULL; otherwise set slept->size first. Waits for the work of
/// the pool's context, and of the primary contexts of devices that have access to the memory or copy from it. The pool's options stay as they are. While it sleeps, its figure of reserved memory is 0.
///
/// Errors leave the pool awake. CUDAMEM_ERROR_UNSUPPORTED if the pool does not grow in place, or lies in host memory.
/// CUDAMEM_ERROR_INVALID_ARGUMENT if it is asleep, if another thread puts it to sleep or wakes it, if a stream captures a
/// graph, or if the host memory is not page-locked. CUDAMEM_ERROR_TIMED_OUT if queued work goes on waiting for the CPU.
/// CUDAMEM_ERROR_OUT_OF_MEMORY if the host has no room for the contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_pool_sleep(
    pool: cudamem_resource,
    options: *const cudamem_sleep_options,
    slept: *mut cudamem_slept,
) -> cudamem_status {
    run("cudamem_pool_sleep", || {
        // SAFETY: the header requires NULL or `size` bytes.
        let settings = unsafe { self::options("options", options) }?;
        if !slept.is_null() {
            // SAFETY: the header requires NULL or `size` writable bytes.
            unsafe { call::check_fill("slept", slept) }?;
        }
        let pool = of_type::<Pool<Any>>("pool", pool)?;
        let answer = pool.sleep(&settings.settings()?)?;
        if slept.is_null() {
            return Ok(());
        }
        let answer = cudamem_slept {
            size: size_of::<cudamem_slept>(),
            saved: answer.saved as u64,
            released: answer.released as u64,
        };
        // SAFETY: as above.
        unsafe { call::fill("slept", slept, answer) }
    })
}

/// Gives a pool that sleeps memory at its addresses again, and restores its contents.
///
/// Errors leave the pool asleep; it may be woken later. CUDAMEM_ERROR_OUT_OF_MEMORY if the device has no room for it.
/// CUDAMEM_ERROR_INVALID_ARGUMENT if it is awake, or if another thread puts it to sleep or wakes it.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_wake(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_pool_wake", || Ok(of_type::<Pool<Any>>("pool", pool)?.wake()?))
}

/// Whether a pool sleeps.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_is_asleep(pool: cudamem_resource, asleep: Out<'_, bool>) -> cudamem_status {
    run("cudamem_pool_is_asleep", || {
        let asleep = out("asleep", asleep)?;
        asleep.write(of_type::<Pool<Any>>("pool", pool)?.is_asleep());
        Ok(())
    })
}
