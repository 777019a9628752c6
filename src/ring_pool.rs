//! Rings of staging
//!
//! A ring is a resource that allocates blocks one behind the other and reuses them in the same order.

use crate::call::{self, Out, invalid, object, out, run};
use crate::handles::cudamem_resource;
use crate::made::new_resource;
use crate::status::cudamem_status;
use cuda_mem::memory::kind::Any;
use cuda_mem::pool::{RingOptions, RingPool, WhenFull};

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
