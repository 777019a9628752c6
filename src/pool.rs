//! Pools
//!
//! A pool allocates large regions from another resource, its upstream, and divides them. Allocations and frees are in
//! stream order, and most make no driver call. A pool is a resource; the functions here refuse other resources with
//! CUDAMEM_ERROR_INVALID_ARGUMENT. Functions for what pools keep also take driver pools, the pools of
//! cudamem/adaptors.h, and the memory of graphs.
//!
//! Memory that was freed on one stream is at once available to the same stream, and to others as `reuse` says.

use crate::call::{self, Options, Out, Outcome, invalid, object, options, out, run};
use crate::callbacks::{Callback, call_once};
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::handles::cudamem_text;
use crate::made::{TypedUse, new_resource, of_type};
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use cuda_mem::memory::kind::Any;
use cuda_mem::pool::{Figure, Flow, OutOfMemoryInfo, Pool, PoolOptions, Reuse, Tracked};
use std::sync::Arc;

/// A stream may reuse memory that another stream freed once an event recorded after the free has passed. If the pool
/// would otherwise have to grow, the stream waits for the event instead. The default.
pub const CUDAMEM_REUSE_WAIT: i32 = 0;
/// A stream may reuse memory that another stream freed once an event recorded after the free has passed.
pub const CUDAMEM_REUSE_WHEN_PASSED: i32 = 1;
/// A stream never reuses memory that another stream freed while the pool can grow.
pub const CUDAMEM_REUSE_SAME_STREAM_ONLY: i32 = 2;

/// A flag of cudamem_pool_options: threads do not cache freed memory.
pub const CUDAMEM_POOL_NO_CACHES: u32 = 1;
/// A flag of cudamem_pool_options: the pool records its live blocks, and refuses to free a block twice.
pub const CUDAMEM_POOL_TRACKED: u32 = 2;
/// A flag of cudamem_pool_options: the pool allocates regions from its source, and does not grow in place. For
/// libraries that must find a block in memory of cuMemAlloc.
pub const CUDAMEM_POOL_REGIONS: u32 = 4;

/// The library calls this function when a pool is out of memory. It may free memory, also of this pool, and returns
/// whether to retry. requested and free are in bytes; attempt counts the calls for one allocation from 0. user is the
/// program's pointer. An allocation that the function itself makes from the same pool fails without another call of it.
/// It must not unwind.
pub type cudamem_out_of_memory_callback =
    Option<extern "C" fn(requested: usize, free: usize, attempt: u32, user: *mut c_void) -> bool>;

/// How a pool is made. Zeros are the defaults; sizes are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_pool_options {
    /// sizeof(cudamem_pool_options).
    pub size: usize,
    /// The size of the first region, which the pool allocates when it is made. 2 MiB by default, or the maximum if that is
    /// less; other sizes beyond the maximum are refused.
    pub initial: u64,
    /// The smallest region that the pool grows by. 2 MiB by default. A pool that grows in place adds at least so much new
    /// memory. Pools over device memory and over virtual memory grow in place: they waste little memory, whatever the
    /// sizes of their blocks. Over device memory this needs a device with virtual memory, and a maximum of at least 64
    /// MiB.
    pub smallest_growth: u64,
    /// The largest region that the pool grows by, unless a block needs a larger one. 256 MiB by default.
    pub largest_growth: u64,
    /// The largest total size of all regions. No limit by default. A pool that grows in place takes whole chunks (2 MiB
    /// on an H100), never more than this. A maximum below one chunk, or below 256 bytes, is refused.
    pub maximum: u64,
    /// How much freed memory each thread may cache until memory runs short. 64 MiB by default.
    pub cache_capacity: u64,
    /// How many of the newest events a snapshot shows. None by default.
    pub trace_capacity: u64,
    /// Each time the pool grows by a region, its size grows by this factor. 2 by default.
    pub growth_factor: f64,
    /// One of CUDAMEM_REUSE_... .
    pub reuse: i32,
    /// CUDAMEM_POOL_... combined by |.
    pub flags: u32,
    /// The function to call when the pool is out of memory. None by default.
    pub on_out_of_memory: cudamem_out_of_memory_callback,
    /// The last argument of on_out_of_memory.
    pub user: *mut c_void,
}

// SAFETY: numbers of 8 bytes, two of 4, and two addresses that may be NULL.
unsafe impl Options for cudamem_pool_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

type OutOfMemory = Callback<extern "C" fn(usize, usize, u32, *mut c_void) -> bool>;

/// Calls the program's function, unless it already runs on this thread.
fn make_room(asked: &OutOfMemory, info: &OutOfMemoryInfo) -> bool {
    let call = || asked.call(|function, user| function(info.requested, info.free, info.attempt, user));
    call_once(asked, call).unwrap_or(false)
}

fn reuse(reuse: i32) -> Outcome<Reuse> {
    match reuse {
        CUDAMEM_REUSE_WAIT => Ok(Reuse::Wait),
        CUDAMEM_REUSE_WHEN_PASSED => Ok(Reuse::WhenPassed),
        CUDAMEM_REUSE_SAME_STREAM_ONLY => Ok(Reuse::SameStreamOnly),
        other => Err(invalid("options.reuse", other.to_string(), "it must be one of CUDAMEM_REUSE_...")),
    }
}

impl cudamem_pool_options {
    pub(crate) fn settings(&self) -> Outcome<PoolOptions> {
        let flags = CUDAMEM_POOL_NO_CACHES | CUDAMEM_POOL_TRACKED | CUDAMEM_POOL_REGIONS;
        call::check_flags("options.flags", self.flags, flags)?;
        let mut settings = PoolOptions::default();
        settings.in_place = self.flags & CUDAMEM_POOL_REGIONS == 0;
        settings.reuse = reuse(self.reuse)?;
        for (field, value, place) in [
            ("options.initial", self.initial, &mut settings.initial),
            ("options.smallest_growth", self.smallest_growth, &mut settings.smallest_growth),
            ("options.largest_growth", self.largest_growth, &mut settings.largest_growth),
            ("options.maximum", self.maximum, &mut settings.maximum),
            ("options.cache_capacity", self.cache_capacity, &mut settings.cache_capacity),
        ] {
            if value != 0 {
                let fits = usize::try_from(value).ok().filter(|size| *size <= isize::MAX as usize);
                *place = fits.ok_or_else(|| invalid(field, value.to_string(), "it must fit into the address space"))?;
            }
        }
        // The pool allocates about 100 bytes for each event when it is made.
        const MOST_EVENTS: u64 = 1 << 24;
        if self.trace_capacity > MOST_EVENTS {
            let rule = format!("it must be at most {MOST_EVENTS} events");
            return Err(invalid("options.trace_capacity", self.trace_capacity.to_string(), rule));
        }
        settings.trace_capacity = self.trace_capacity as usize;
        if self.growth_factor != 0.0 {
            if !(self.growth_factor >= 1.0 && self.growth_factor.is_finite()) {
                let value = self.growth_factor.to_string();
                return Err(invalid("options.growth_factor", value, "it must be 1 or more, or 0 for the default"));
            }
            settings.growth_factor = self.growth_factor;
        }
        if self.flags & CUDAMEM_POOL_NO_CACHES != 0 {
            settings.cache_capacity = 0;
        }
        if self.flags & CUDAMEM_POOL_TRACKED != 0 {
            settings.tracking = Tracked::Names;
        }
        if let Some(function) = self.on_out_of_memory {
            let hook = OutOfMemory { function, user: self.user };
            settings.on_out_of_memory = Some(Arc::new(move |info| make_room(&hook, info)));
        }
        Ok(settings)
    }
}

fn pool(handle: cudamem_resource) -> Outcome<TypedUse<Pool<Any>>> {
    of_type("pool", handle)
}

/// Makes a pool over a resource, and allocates the first region. options may be NULL. The upstream's handle may be
/// destroyed before the pool's.
///
/// Errors: CUDAMEM_ERROR_OUT_OF_MEMORY if the resource has no room for the first region.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_pool_create(
    upstream: cudamem_resource,
    options: *const cudamem_pool_options,
    pool: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_pool_create", || {
        let pool = out("pool", pool)?;
        // SAFETY: the header requires NULL or `size` bytes.
        let settings = unsafe { self::options("options", options) }?.settings()?;
        let upstream = object("upstream", upstream)?.share();
        pool.write(new_resource(Pool::new(&upstream, &settings)?)?);
        Ok(())
    })
}

/// One figure over the life of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_figure {
    /// The current value.
    pub current: u64,
    /// The largest value since the peaks were last reset.
    pub peak: u64,
    /// The sum of all additions.
    pub total: u64,
    /// The sum of all removals.
    pub freed: u64,
}

impl From<Figure> for cudamem_figure {
    fn from(Figure { current, peak, total, freed, .. }: Figure) -> Self {
        Self { current, peak, total, freed }
    }
}

/// One figure over the life of a pool, without a peak. A statistics adaptor over the pool knows the peak
/// (CUDAMEM_ADAPTOR_STATISTICS).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_flow {
    /// The current value.
    pub current: u64,
    /// The sum of all additions.
    pub total: u64,
    /// The sum of all removals.
    pub freed: u64,
}

impl From<Flow> for cudamem_flow {
    fn from(Flow { current, total, freed, .. }: Flow) -> Self {
        Self { current, total, freed }
    }
}

/// Gets every region with its blocks as JSON. `cuda-mem pool-map` draws it. Calls of other threads to the pool wait
/// meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_get_snapshot(pool: cudamem_resource, json: Out<'_, cudamem_text>) -> cudamem_status {
    run("cudamem_pool_get_snapshot", || {
        let json = out("json", json)?;
        json.write(new_text(self::pool(pool)?.snapshot().to_json())?);
        Ok(())
    })
}

/// Waits for the work of a stream, and takes back what its frees left in the pool's caches. A stream of your own
/// (cudamem_stream_borrow) needs no such call before you destroy it: the end of its last handle marks the end of its
/// work.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_release_stream(pool: cudamem_resource, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_pool_release_stream", || Ok(self::pool(pool)?.release_stream(&*object("stream", stream)?)?))
}

/// Names the block at a device address. Snapshots show the name until the block is freed.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if no block of the pool begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_pool_set_name(
    pool: cudamem_resource,
    device_pointer: u64,
    name: *const c_char,
) -> cudamem_status {
    run("cudamem_pool_set_name", || {
        // SAFETY: the header requires NULL or a zero-terminated string.
        let name = unsafe { call::name(name) }?;
        if self::pool(pool)?.set_name(device_pointer, name) {
            return Ok(());
        }
        Err(invalid("device_pointer", format!("{device_pointer:#x}"), "it must be the start of a block of the pool"))
    })
}
