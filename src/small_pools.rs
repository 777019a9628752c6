//! Pools of one size, and rings of staging
//!
//! Two pools for special uses, which are resources: one has blocks of one size, and one allocates blocks one behind the
//! other and reuses them in the same order.

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
    /// The most memory that the pool may allocate from its upstream, in bytes. No limit by default.
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

/// Makes a pool of blocks of block_size bytes over a resource. Smaller allocations get a whole block, larger ones are
/// refused. options may be NULL. Allocates no memory yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_fixed_pool_create(
    upstream: cudamem_resource,
    block_size: usize,
    options: *const cudamem_fixed_pool_options,
    pool: Out<'_, cudamem_resource>,
) -> cudamem_status {
    run("cudamem_fixed_pool_create", || {
        let pool = out("pool", pool)?;
        // SAFETY: the header requires NULL or `size` bytes.
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

fn fixed(pool: cudamem_resource) -> Outcome<crate::made::TypedUse<FixedSizePool<Any>>> {
    of_sort("pool", pool)
}

/// Statistics of a pool of one size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_fixed_pool_statistics {
    /// sizeof(cudamem_fixed_pool_statistics), set by the program.
    pub size: usize,
    /// The size of a block in bytes.
    pub block_size: u64,
    /// Live blocks: a count.
    pub blocks: cudamem_figure,
    /// Memory that the pool has allocated from its upstream, in bytes.
    pub reserved: cudamem_figure,
    /// Freed blocks that wait for their stream's work, or are kept for their stream: a count.
    pub pending: u64,
    /// Events recorded: a count.
    pub events_recorded: u64,
    /// How often the pool made a stream wait: a count.
    pub waits: u64,
    /// How often the pool was out of memory: a count.
    pub out_of_memory: u64,
}

// SAFETY: only numbers of 8 bytes.
unsafe impl Options for cudamem_fixed_pool_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Gets the statistics of a pool of one size. Set statistics->size first.
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
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Grows a pool of one size until it has at least blocks blocks, free and used together.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_fixed_pool_reserve(pool: cudamem_resource, blocks: usize) -> cudamem_status {
    run("cudamem_fixed_pool_reserve", || Ok(fixed(pool)?.reserve(blocks)?))
}

/// Returns slabs without blocks, whose work is done, to the upstream, but keeps at least keep bytes. Does not wait.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_fixed_pool_trim(pool: cudamem_resource, keep: usize) -> cudamem_status {
    run("cudamem_fixed_pool_trim", || Ok(fixed(pool)?.trim_to(keep)?))
}

/// Waits for the work that freed blocks wait for, and returns all slabs without blocks to the upstream.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_fixed_pool_release_unused(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_fixed_pool_release_unused", || Ok(fixed(pool)?.release_unused()?))
}

/// A flag of cudamem_ring_pool_create: a full ring refuses an allocation, instead of waiting for the work of freed
/// blocks.
pub const CUDAMEM_RING_POOL_REFUSE: u32 = 1;

/// Makes a ring of capacity bytes, rounded up to a multiple of 256, over a resource: for staging. The ring hands a
/// block out only when all work of its previous users is done, so the CPU may write it at once. A block that is not
/// freed delays all blocks behind it. The call allocates the memory. flags is 0 or CUDAMEM_RING_POOL_REFUSE.
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
            return Err(invalid("capacity", capacity.to_string(), "it must fit into the address space"));
        }
        let mut settings = RingOptions::default();
        settings.when_full = if flags == 0 { WhenFull::Wait } else { WhenFull::Refuse };
        let upstream = object("upstream", upstream)?.share();
        pool.write(new_resource(RingPool::<Any>::new(&upstream, capacity, &settings)?)?);
        Ok(())
    })
}

/// Statistics of a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_ring_pool_statistics {
    /// sizeof(cudamem_ring_pool_statistics), set by the program.
    pub size: usize,
    /// The ring's size in bytes.
    pub capacity: u64,
    /// The bytes in live blocks, in whole units.
    pub used: cudamem_figure,
    /// Live blocks: a count.
    pub blocks: u64,
    /// Freed blocks that still take room: a count.
    pub pending: u64,
    /// The bytes that no block takes.
    pub free: u64,
    /// Events recorded: a count.
    pub events_recorded: u64,
    /// How often an allocation was refused: a count.
    pub full: u64,
}

// SAFETY: only numbers of 8 bytes.
unsafe impl Options for cudamem_ring_pool_statistics {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Gets the statistics of a ring. Set statistics->size first.
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
        // SAFETY: the header requires NULL or `size` writable bytes.
        unsafe { fill("statistics", statistics, answer) }
    })
}

/// Waits for the work of all freed blocks. Afterwards they take no room.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_ring_pool_synchronize(pool: cudamem_resource) -> cudamem_status {
    run("cudamem_ring_pool_synchronize", || Ok(of_sort::<RingPool<Any>>("pool", pool)?.synchronize()?))
}
