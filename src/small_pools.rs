//! Pools of one size, and rings of staging
//!
//! Two pools for special uses, which are resources: one has blocks of one size, and one allocates blocks one behind the
//! other and reuses them in the same order.

use crate::call::{self, Options, Out, invalid, object, options, out, run};
use crate::handles::cudamem_resource;
use crate::made::new_resource;
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
