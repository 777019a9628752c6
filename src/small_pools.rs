//! Pools of one size, and rings of staging
//!
//! Two pools for special uses, which are resources: one of blocks of one size, and one that allocates blocks one behind the
//! other and uses them again in the same order.

use crate::call::{self, Options, Out, Outcome, fill, invalid, object, options, out, run};
use crate::handles::cudamem_resource;
use crate::made::{new_resource, of_sort};
use crate::pool::cudamem_figure;
use crate::pool::reuse;
use crate::status::cudamem_status;
use core::mem::size_of;
use cuda_mem::memory::kind::Any;
use cuda_mem::pool::{FixedSizeOptions, FixedSizePool, RingOptions, RingPool, WhenFull};

/// How a pool of one size is made. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_fixed_pool_options {
    /// sizeof(cudamem_fixed_pool_options).
    pub size: usize,
    /// What the pool may have of its upstream, in bytes. No limit by default.
    pub maximum: usize,
    /// How many blocks the pool grows by: 1 to 4096. 1024 by default.
    pub blocks_per_slab: u32,
    /// One of CUDAMEM_REUSE_... .
    pub reuse: i32,
}

// SAFETY: two sizes and two numbers of 4 bytes.
unsafe impl Options for cudamem_fixed_pool_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Makes a pool of blocks of block_size bytes over a resource: smaller allocations get a whole block, larger ones are refused.
/// options may be NULL. Nothing is allocated yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_fixed_pool_create(
    upstream: cudamem_resource,
    block_size: usize,
    options: *const cudamem_fixed_pool_options,
    pool: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_fixed_pool_create", || {
        let pool = out("pool", pool)?;
        // SAFETY: the header's rule for options.
        let chosen = unsafe { self::options("options", options) }?;
        let mut settings = FixedSizeOptions::default();
        settings.reuse = reuse(chosen.reuse)?;
        if chosen.blocks_per_slab != 0 {
            settings.blocks_per_slab = chosen.blocks_per_slab;
        }
        if chosen.maximum != 0 {
            settings.maximum = chosen.maximum;
        }
        let upstream = object("upstream", upstream)?.share();
        pool.write(new_resource(FixedSizePool::<Any>::new(&upstream, block_size, &settings)?)?);
        Ok(())
    })
}

fn fixed(pool: cudamem_resource) -> Outcome<crate::made::OfSort<FixedSizePool<Any>>> {
    of_sort("pool", pool)
}

/// What a pool of one size has and does.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_fixed_pool_statistics {
    /// sizeof(cudamem_fixed_pool_statistics), set by the program.
    pub size: usize,
    /// The size of a block in bytes.
    pub block_size: u64,
    /// The blocks that are in use: a count.
    pub blocks: cudamem_figure,
    /// What the pool has of its upstream, in bytes.
    pub reserved: cudamem_figure,
    /// How many freed blocks wait for the work of their stream, or are kept for it.
    pub pending: u64,
    /// How many events were recorded: a count.
    pub events_recorded: u64,
    /// How often streams were told to wait: a count.
    pub waits: u64,
    /// How often there was no memory: a count.
    pub out_of_memory: u64,
}

// SAFETY: numbers of 8 bytes.
unsafe impl Options for cudamem_fixed_pool_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Tells what a pool of one size has and does. statistics->size is set by the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_fixed_pool_get_statistics(
    pool: cudamem_resource,
    statistics: *mut cudamem_fixed_pool_statistics,
) -> cudamem_status {
    run("cudamem_fixed_pool_get_statistics", || {
        let pool = fixed(pool)?;
        let figures = pool.statistics();
        let answer = cudamem_fixed_pool_statistics {
            size: size_of::<cudamem_fixed_pool_statistics>(),
            block_size: pool.block_size() as u64,
            blocks: figures.blocks.into(),
            reserved: figures.reserved.into(),
            pending: figures.pending,
            events_recorded: figures.events_recorded,
            waits: figures.waits,
            out_of_memory: figures.out_of_memory,
        };
        // SAFETY: the header's rule for results.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Grows until a pool of one size has as many blocks, free and used together.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_fixed_pool_reserve(pool: cudamem_resource, blocks: usize) -> cudamem_status {
    run("cudamem_fixed_pool_reserve", || Ok(fixed(pool)?.reserve(blocks)?))
}

/// Gives slabs back that hold no blocks and whose work is done, as long as at least keep bytes stay. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_fixed_pool_trim(pool: cudamem_resource, keep: usize) -> cudamem_status {
    run("cudamem_fixed_pool_trim", || Ok(fixed(pool)?.trim_to(keep)?))
}

/// Waits for the work that freed blocks wait for, and gives all slabs back that hold no blocks.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_fixed_pool_release_unused(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_fixed_pool_release_unused", || Ok(fixed(pool)?.release_unused()?))
}

/// A flag of cudamem_ring_pool_create: a full ring refuses, and does not wait for freed blocks whose work goes on.
pub const CUDAMEM_RING_POOL_REFUSE: u32 = 1;

/// Makes a ring of capacity bytes, rounded up to a multiple of 256, over a resource: for data on its way. A block is handed out
/// when all work of its former users is done, so that the CPU may write it at once. A block that is not freed holds up all behind
/// it. The memory is allocated now. flags is 0 or CUDAMEM_RING_POOL_REFUSE.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_pool_create(
    upstream: cudamem_resource,
    capacity: usize,
    flags: u32,
    pool: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_ring_pool_create", || {
        let pool = out("pool", pool)?;
        call::check_flags("flags", flags, CUDAMEM_RING_POOL_REFUSE)?;
        if capacity > isize::MAX as usize {
            return Err(invalid("capacity", capacity.to_string(), "no memory is as large as that"));
        }
        let mut settings = RingOptions::default();
        settings.when_full = if flags == 0 { WhenFull::Wait } else { WhenFull::Refuse };
        let upstream = object("upstream", upstream)?.share();
        pool.write(new_resource(RingPool::<Any>::new(&upstream, capacity, &settings)?)?);
        Ok(())
    })
}

/// What a ring has and does.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_ring_pool_statistics {
    /// sizeof(cudamem_ring_pool_statistics), set by the program.
    pub size: usize,
    /// The ring's size in bytes.
    pub capacity: u64,
    /// The bytes of blocks that are in use, in whole units.
    pub used: cudamem_figure,
    /// How many blocks are in use.
    pub blocks: u64,
    /// How many freed blocks still take room.
    pub pending: u64,
    /// The bytes that no block takes.
    pub free: u64,
    /// How many events were recorded: a count.
    pub events_recorded: u64,
    /// How often an allocation was refused: a count.
    pub full: u64,
}

// SAFETY: numbers of 8 bytes.
unsafe impl Options for cudamem_ring_pool_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Tells what a ring has and does. statistics->size is set by the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_ring_pool_get_statistics(
    pool: cudamem_resource,
    statistics: *mut cudamem_ring_pool_statistics,
) -> cudamem_status {
    run("cudamem_ring_pool_get_statistics", || {
        let pool = of_sort::<RingPool<Any>>("pool", pool)?;
        let figures = pool.statistics();
        let answer = cudamem_ring_pool_statistics {
            size: size_of::<cudamem_ring_pool_statistics>(),
            capacity: pool.capacity() as u64,
            used: figures.used.into(),
            blocks: figures.blocks,
            pending: figures.pending,
            free: figures.free,
            events_recorded: figures.events_recorded,
            full: figures.full,
        };
        // SAFETY: the header's rule for results.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Waits for the work of all freed blocks, which then take no room any more.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_pool_synchronize(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_ring_pool_synchronize", || Ok(of_sort::<RingPool<Any>>("pool", pool)?.synchronize()?))
}
