//! Pools
//!
//! A pool takes large regions from another resource and divides them: allocations and frees are in stream order, and most of
//! them need no call of the driver. A pool is a resource; the functions here take resources that are such pools, and refuse
//! others with CUDAMEM_ERROR_INVALID_ARGUMENT.
//!
//! Memory that is freed on one stream serves the same stream again at once, and others as `reuse` says.

use crate::call::{self, Options, Out, Outcome, fill, invalid, object, options, out, run};
use crate::callbacks::{Callback, call_once};
use crate::handle::Use;
use crate::handles::cudamem_resource;
use crate::handles::cudamem_stream;
use crate::handles::cudamem_text;
use crate::resource::Resource;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use core::ops::Deref;
use cuda_mem::memory::kind::Any;
use cuda_mem::pool::{Figure, Flow, OutOfMemoryInfo, Pool, PoolOptions, Reuse, Tracked};
use std::sync::Arc;

/// A stream may have another's memory when an event that was recorded after the free has passed; and where the pool would
/// have to grow, it is told to wait for the event. The default.
pub const CUDAMEM_REUSE_WAIT: i32 = 0;
/// A stream may have another's memory when an event that was recorded after the free has passed.
pub const CUDAMEM_REUSE_WHEN_PASSED: i32 = 1;
/// A stream never has another's memory while the pool can grow.
pub const CUDAMEM_REUSE_SAME_STREAM_ONLY: i32 = 2;

/// A flag of cudamem_pool_options: threads keep no freed memory to themselves.
pub const CUDAMEM_POOL_NO_FRONTS: u32 = 1;
/// A flag of cudamem_pool_options: an account is kept of the blocks that are there; a block that is freed twice is refused.
pub const CUDAMEM_POOL_TRACKED: u32 = 2;

/// Is called where a pool has no memory left: it may free some, also of this pool, and says whether to look again. requested
/// and free are in bytes; attempt counts the calls for one allocation from 0. An allocation that the function itself makes from the
/// same pool fails without another call of it. It must not unwind.
pub type cudamem_out_of_memory_callback =
    Option<extern "C" fn(requested: usize, free: usize, attempt: u32, user: *mut c_void) -> bool>;

/// How a pool is made. Zeros are the defaults; sizes are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_pool_options {
    /// sizeof(cudamem_pool_options).
    pub size: usize,
    /// The first region, which the pool is made with. 2 MiB by default.
    pub initial: u64,
    /// The smallest region that the pool grows by. 2 MiB by default.
    pub smallest_growth: u64,
    /// The largest region that the pool grows by, unless a block needs a larger one. 256 MiB by default.
    pub largest_growth: u64,
    /// What all regions together may have. No limit by default.
    pub maximum: u64,
    /// How much freed memory each thread may keep to itself until memory runs short. 64 MiB by default.
    pub front_capacity: u64,
    /// How many of the newest events a snapshot shows. None by default.
    pub trace_capacity: u64,
    /// Each time it grows, the pool becomes larger by this factor. 2 by default.
    pub growth_factor: f64,
    /// One of CUDAMEM_REUSE_... .
    pub reuse: i32,
    /// CUDAMEM_POOL_... combined by |.
    pub flags: u32,
    /// Is called where there is no memory left. None by default.
    pub on_out_of_memory: cudamem_out_of_memory_callback,
    /// Given to on_out_of_memory.
    pub user: *mut c_void,
}

// SAFETY: numbers of 8 bytes, two of 4, and two addresses, of which NULL is one.
unsafe impl Options for cudamem_pool_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

type OutOfMemory = Callback<extern "C" fn(usize, usize, u32, *mut c_void) -> bool>;

/// Asks the program's function, unless it runs already.
fn make_room(asked: &OutOfMemory, info: &OutOfMemoryInfo) -> bool {
    let call = || asked.call(|function, user| function(info.requested, info.free, info.attempt, user));
    call_once(asked, call).unwrap_or(false)
}

pub(crate) fn reuse(reuse: i32) -> Outcome<Reuse> {
    match reuse {
        CUDAMEM_REUSE_WAIT => Ok(Reuse::Wait),
        CUDAMEM_REUSE_WHEN_PASSED => Ok(Reuse::WhenPassed),
        CUDAMEM_REUSE_SAME_STREAM_ONLY => Ok(Reuse::SameStreamOnly),
        other => Err(invalid("options.reuse", other.to_string(), "it is one of CUDAMEM_REUSE_...")),
    }
}

impl cudamem_pool_options {
    fn settings(&self) -> Outcome<PoolOptions> {
        call::check_flags("options.flags", self.flags, CUDAMEM_POOL_NO_FRONTS | CUDAMEM_POOL_TRACKED)?;
        let mut settings = PoolOptions::default();
        settings.reuse = reuse(self.reuse)?;
        for (field, value, place) in [
            ("options.initial", self.initial, &mut settings.initial),
            ("options.smallest_growth", self.smallest_growth, &mut settings.smallest_growth),
            ("options.largest_growth", self.largest_growth, &mut settings.largest_growth),
            ("options.maximum", self.maximum, &mut settings.maximum),
            ("options.front_capacity", self.front_capacity, &mut settings.front_capacity),
        ] {
            if value != 0 {
                let fits = usize::try_from(value).ok().filter(|size| *size <= isize::MAX as usize);
                *place = fits.ok_or_else(|| invalid(field, value.to_string(), "no memory is as large as that"))?;
            }
        }
        // Each takes some 100 bytes, from the beginning on.
        const MOST_EVENTS: u64 = 1 << 24;
        if self.trace_capacity > MOST_EVENTS {
            let rule = format!("at most {MOST_EVENTS} events are kept");
            return Err(invalid("options.trace_capacity", self.trace_capacity.to_string(), rule));
        }
        settings.trace_capacity = self.trace_capacity as usize;
        if self.growth_factor != 0.0 {
            if !(self.growth_factor >= 1.0 && self.growth_factor.is_finite()) {
                let value = self.growth_factor.to_string();
                return Err(invalid("options.growth_factor", value, "it is 1 or more, or 0 for the default"));
            }
            settings.growth_factor = self.growth_factor;
        }
        if self.flags & CUDAMEM_POOL_NO_FRONTS != 0 {
            settings.front_capacity = 0;
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

/// A resource that is a pool of ours.
struct PoolUse(Use<Resource>);

impl Deref for PoolUse {
    type Target = Pool<Any>;

    fn deref(&self) -> &Pool<Any> {
        match &*self.0 {
            Resource::Pool(pool) => pool,
            _ => unreachable!("looked at when this was made"),
        }
    }
}

fn pool(handle: cudamem_resource) -> Outcome<PoolUse> {
    let resource = object("pool", handle)?;
    match &*resource {
        Resource::Pool(_) => Ok(PoolUse(resource)),
        _ => Err(invalid("pool", "another resource", "it has to be made by cudamem_pool_create")),
    }
}

/// Makes a pool over a resource. options may be NULL. The first region is allocated now. The upstream's handle may be destroyed
/// before the pool's.
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
        // SAFETY: the header's rule for options.
        let settings = unsafe { self::options("options", options) }?.settings()?;
        let upstream = object("upstream", upstream)?.share();
        pool.write(call::new_handle(Resource::Pool(Pool::new(&upstream, &settings)?))?);
        Ok(())
    })
}

/// One figure over the life of a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_figure {
    /// What it is now.
    pub current: u64,
    /// The most that it was since the peaks were reset.
    pub peak: u64,
    /// All that was ever added.
    pub total: u64,
    /// All that was ever taken away.
    pub freed: u64,
}

impl From<Figure> for cudamem_figure {
    fn from(Figure { current, peak, total, freed, .. }: Figure) -> Self {
        Self { current, peak, total, freed }
    }
}

/// What came and went over the life of a pool. How much there was at most is not known; a statistics resource before the pool
/// knows (cudamem_resource_create_statistics).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_flow {
    /// What there is now.
    pub current: u64,
    /// All that ever came.
    pub total: u64,
    /// All that ever went.
    pub freed: u64,
}

impl From<Flow> for cudamem_flow {
    fn from(Flow { current, total, freed, .. }: Flow) -> Self {
        Self { current, total, freed }
    }
}

/// What a pool has and does: bytes, unless it is called a count.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_pool_statistics {
    /// sizeof(cudamem_pool_statistics), set by the program.
    pub size: usize,
    /// What was asked for in the blocks that there are.
    pub requested: cudamem_flow,
    /// The sizes of the blocks that there are.
    pub allocated: cudamem_flow,
    /// How many blocks there are: a count.
    pub blocks: cudamem_flow,
    /// What blocks use, and what threads keep.
    pub active: cudamem_figure,
    /// What is free in regions that hold blocks.
    pub inactive_split: cudamem_figure,
    /// What the pool has of its upstream.
    pub reserved: cudamem_figure,
    /// In how many regions: a count.
    pub regions: cudamem_figure,
    /// What threads keep.
    pub in_fronts: u64,
    /// Freed memory that waits for work, which is asked for these figures.
    pub pending: u64,
    /// The largest free range, where what threads keep is free too.
    pub largest_free: u64,
    /// Which part of the free memory is in pieces: in regions that hold blocks, outside of the largest free range there.
    /// What threads keep is free. 0 to 1.
    pub fragmentation: f64,
    /// How many events were recorded: a count.
    pub events_recorded: u64,
    /// How often streams were told to wait: a count.
    pub waits: u64,
    /// How often on_out_of_memory asked for another look: a count.
    pub retries: u64,
    /// How often there was no memory: a count.
    pub out_of_memory: u64,
}

// SAFETY: numbers of 8 bytes.
unsafe impl Options for cudamem_pool_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Tells what a pool has and does. statistics->size is set by the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_pool_get_statistics(
    pool: cudamem_resource,
    statistics: *mut cudamem_pool_statistics,
) -> cudamem_status {
    run("cudamem_pool_get_statistics", || {
        let figures = self::pool(pool)?.statistics();
        let answer = cudamem_pool_statistics {
            size: size_of::<cudamem_pool_statistics>(),
            requested: figures.requested.into(),
            allocated: figures.allocated.into(),
            blocks: figures.blocks.into(),
            active: figures.active.into(),
            inactive_split: figures.inactive_split.into(),
            reserved: figures.reserved.into(),
            regions: figures.regions.into(),
            in_fronts: figures.in_fronts,
            pending: figures.pending.iter().map(|pending| pending.bytes).sum(),
            largest_free: figures.largest_free,
            fragmentation: figures.fragmentation,
            events_recorded: figures.events_recorded,
            waits: figures.waits,
            retries: figures.retries,
            out_of_memory: figures.out_of_memory,
        };
        // SAFETY: the header's rule for results.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Lets all peaks of the statistics begin anew.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_reset_peaks(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_pool_reset_peaks", || {
        self::pool(pool)?.reset_peaks();
        Ok(())
    })
}

/// Gives every region with its blocks as JSON, which `cuda-mem pool-map` draws. Other threads' calls of the pool wait meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_get_snapshot(pool: cudamem_resource, json: Out<'_, cudamem_text>) -> cudamem_status {
    run("cudamem_pool_get_snapshot", || {
        let json = out("json", json)?;
        json.write(new_text(self::pool(pool)?.snapshot().to_json())?);
        Ok(())
    })
}

/// Grows until the pool has size bytes of its upstream, free and used together.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the maximum forbids it; CUDAMEM_ERROR_OUT_OF_MEMORY if the upstream has no room.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_reserve(pool: cudamem_resource, size: usize) -> cudamem_status {
    run("cudamem_pool_reserve", || Ok(self::pool(pool)?.reserve(size)?))
}

/// Gives regions back that hold no blocks and whose work is done, as long as at least keep bytes stay. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_trim(pool: cudamem_resource, keep: usize) -> cudamem_status {
    run("cudamem_pool_trim", || Ok(self::pool(pool)?.trim_to(keep)?))
}

/// Waits for the work that freed memory waits for, and gives all regions back that hold no blocks.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_release_unused(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_pool_release_unused", || Ok(self::pool(pool)?.release_unused()?))
}

/// Waits for the work of a stream, and lets go of the stream: to be called before a stream of the program's
/// (cudamem_stream_borrow) is destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_release_stream(pool: cudamem_resource, stream: cudamem_stream) -> cudamem_status {
    run("cudamem_pool_release_stream", || Ok(self::pool(pool)?.release_stream(&*object("stream", stream)?)?))
}

/// Gives the block at a device address a name, which snapshots show until the block is freed.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the pool has no block that begins there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_pool_set_name(
    pool: cudamem_resource,
    device_pointer: u64,
    name: *const c_char,
) -> cudamem_status {
    run("cudamem_pool_set_name", || {
        // SAFETY: the header's rule for texts.
        let name = unsafe { call::name(name) }?;
        if self::pool(pool)?.set_name(device_pointer, name) {
            return Ok(());
        }
        Err(invalid("device_pointer", format!("{device_pointer:#x}"), "it has to be where a block of the pool begins"))
    })
}
