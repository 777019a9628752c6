//! What pools keep
//!
//! Functions for all resources that keep memory: pools of this library, driver pools, rings of staging, and
//! the memory of graphs. CUDAMEM_ERROR_INVALID_ARGUMENT means that a function does not suit the resource.

use crate::call::{Failure, Options, fill, invalid, object, run};
use crate::handles::cudamem_resource;
use crate::pool::{cudamem_figure, cudamem_flow};
use crate::status::cudamem_status;
use core::mem::size_of;
use cuda_mem::memory::kind::Any;
use cuda_mem::pool::{Pool, RingPool};
use cuda_mem_dynamic::Resource;

/// Statistics of a pool: in bytes, unless a field says count. A figure that a kind of pool does not have is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_pool_statistics {
    /// sizeof(cudamem_pool_statistics), set by the program.
    pub size: usize,
    /// The requested sizes of the live blocks.
    pub requested: cudamem_flow,
    /// The sizes of the live blocks.
    pub allocated: cudamem_flow,
    /// Live blocks: a count.
    pub blocks: cudamem_flow,
    /// Memory in live blocks and in the caches of threads.
    pub active: cudamem_figure,
    /// Free memory in regions that hold blocks.
    pub inactive_split: cudamem_figure,
    /// Memory that the pool has allocated from its upstream, or a driver pool from the system. The size of a ring.
    pub reserved: cudamem_figure,
    /// Regions: a count.
    pub regions: cudamem_figure,
    /// Memory in the caches of threads.
    pub in_caches: u64,
    /// Freed memory whose work is not done. The call checks the work first.
    pub pending: u64,
    /// The largest free range. The caches of threads count as free. Of a ring: all free memory.
    pub largest_free: u64,
    /// The fragmented part of the free memory, from 0 to 1: in regions that hold blocks, what lies outside of the
    /// largest free range. The caches of threads count as free.
    pub fragmentation: f64,
    /// Events recorded: a count.
    pub events_recorded: u64,
    /// How often the pool made a stream wait: a count.
    pub waits: u64,
    /// How often on_out_of_memory requested another attempt: a count.
    pub retries: u64,
    /// How often the pool was out of memory, or a ring refused an allocation: a count.
    pub out_of_memory: u64,
    /// How much unused memory a driver pool keeps when the program waits for a stream.
    pub release_threshold: u64,
}

// SAFETY: only numbers of 8 bytes.
unsafe impl Options for cudamem_pool_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// A figure of which only the current value and the peak are known.
fn peaking(current: usize, peak: usize) -> cudamem_figure {
    cudamem_figure { current: current as u64, peak: peak as u64, total: 0, freed: 0 }
}

impl cudamem_pool_statistics {
    fn none() -> Self {
        let (figure, flow) = (peaking(0, 0), cudamem_flow { current: 0, total: 0, freed: 0 });
        Self {
            size: size_of::<Self>(),
            requested: flow,
            allocated: flow,
            blocks: flow,
            active: figure,
            inactive_split: figure,
            reserved: figure,
            regions: figure,
            in_caches: 0,
            pending: 0,
            largest_free: 0,
            fragmentation: 0.0,
            events_recorded: 0,
            waits: 0,
            retries: 0,
            out_of_memory: 0,
            release_threshold: 0,
        }
    }

    fn of_pool(pool: &Pool<Any>) -> Self {
        let figures = pool.statistics();
        Self {
            requested: figures.requested.into(),
            allocated: figures.allocated.into(),
            blocks: figures.blocks.into(),
            active: figures.active.into(),
            inactive_split: figures.inactive_split.into(),
            reserved: figures.reserved.into(),
            regions: figures.regions.into(),
            in_caches: figures.in_caches,
            pending: figures.pending.iter().map(|pending| pending.bytes).sum(),
            largest_free: figures.largest_free,
            fragmentation: figures.fragmentation,
            events_recorded: figures.events_recorded,
            waits: figures.waits,
            retries: figures.retries,
            out_of_memory: figures.out_of_memory,
            ..Self::none()
        }
    }

    fn of_ring(ring: &RingPool<Any>) -> Self {
        let (figures, capacity) = (ring.statistics(), ring.capacity());
        let used: cudamem_figure = figures.used.into();
        Self {
            allocated: cudamem_flow { current: used.current, total: used.total, freed: used.freed },
            blocks: cudamem_flow { current: figures.blocks, total: 0, freed: 0 },
            active: used,
            reserved: peaking(capacity, capacity),
            pending: (capacity as u64).saturating_sub(used.current).saturating_sub(figures.free),
            largest_free: figures.free,
            events_recorded: figures.events_recorded,
            out_of_memory: figures.full,
            ..Self::none()
        }
    }
}

#[cold]
fn refused(rule: &str) -> Failure {
    invalid("pool", "another resource", rule)
}

/// Gets the statistics of a pool, a driver pool, a ring of staging, or the memory of graphs. Set statistics->size
/// first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_pool_get_statistics(
    pool: cudamem_resource,
    statistics: *mut cudamem_pool_statistics,
) -> cudamem_status {
    run("cudamem_pool_get_statistics", || {
        let answer = match &object("pool", pool)?.resource {
            Resource::Pool(pool) => cudamem_pool_statistics::of_pool(pool),
            Resource::Ring(ring) => cudamem_pool_statistics::of_ring(ring),
            Resource::DriverPool(pool) => {
                let figures = pool.attributes()?;
                cudamem_pool_statistics {
                    reserved: peaking(figures.reserved, figures.reserved_high),
                    active: peaking(figures.used, figures.used_high),
                    release_threshold: figures.release_threshold as u64,
                    ..cudamem_pool_statistics::none()
                }
            }
            Resource::Graph(memory) => {
                let figures = memory.attributes()?;
                cudamem_pool_statistics {
                    reserved: peaking(figures.reserved, figures.reserved_high),
                    active: peaking(figures.used, figures.used_high),
                    ..cudamem_pool_statistics::none()
                }
            }
            _ => return Err(refused("it must be a pool or the memory of graphs")),
        };
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Resets all peaks to the current values: those of a pool, a driver pool and the memory of graphs, and those of
/// cudamem_resource_get_counts.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_reset_peaks(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_pool_reset_peaks", || {
        match &object("pool", pool)?.resource {
            Resource::Pool(pool) => pool.reset_peaks(),
            Resource::Statistics(adaptor) => adaptor.reset_peaks(),
            Resource::DriverPool(pool) => pool.reset_high_marks()?,
            Resource::Graph(memory) => memory.reset_high_marks()?,
            _ => return Err(refused("it must have peaks: a pool, the memory of graphs, or a statistics adaptor")),
        }
        Ok(())
    })
}

/// Grows a pool until it has size bytes from its upstream, free and used together.
///
/// Errors: CUDAMEM_ERROR_INVALID_ARGUMENT if the maximum forbids it. CUDAMEM_ERROR_OUT_OF_MEMORY if the upstream has no
/// room.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_reserve(pool: cudamem_resource, size: usize) -> cudamem_status {
    run("cudamem_pool_reserve", || match &object("pool", pool)?.resource {
        Resource::Pool(pool) => Ok(pool.reserve(size)?),
        _ => Err(refused("it must be made by cudamem_pool_create")),
    })
}

/// Returns memory without blocks, whose work is done, to the upstream or to the system, but keeps at least keep bytes.
/// Does not wait. Takes pools, driver pools, and the memory of graphs, of which keep must be 0.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_trim(pool: cudamem_resource, keep: usize) -> cudamem_status {
    run("cudamem_pool_trim", || {
        match &object("pool", pool)?.resource {
            Resource::Pool(pool) => pool.trim_to(keep)?,
            Resource::DriverPool(pool) => pool.trim_to(keep)?,
            Resource::Graph(memory) if keep == 0 => memory.trim()?,
            Resource::Graph(_) => {
                return Err(invalid("keep", keep.to_string(), "it must be 0 for the memory of graphs"));
            }
            _ => return Err(refused("it must be a pool with blocks of any place, or the memory of graphs")),
        }
        Ok(())
    })
}

/// Waits for the work that freed memory waits for. A pool then returns all memory without blocks to the upstream. In a
/// ring of staging, freed blocks take no room afterwards. A guarded resource checks the blocks in quarantine and frees
/// them; findings go to the callback of cudamem_set_drop_error_callback.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_pool_release_unused(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_pool_release_unused", || {
        match &object("pool", pool)?.resource {
            Resource::Pool(pool) => pool.release_unused()?,
            Resource::Ring(ring) => ring.synchronize()?,
            Resource::Guarded(adaptor) => adaptor.release_quarantine(),
            _ => return Err(refused("it must be a pool of this library, or made by cudamem_resource_create_guarded")),
        }
        Ok(())
    })
}
