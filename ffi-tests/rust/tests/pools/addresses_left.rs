//! Memory by address whose resource ends first. It stays, so this test has a process of its own: the ledger of others
//! must be empty.

use cuda_mem::memory::{Accessibility, DeviceMemory, PinnedMemory, ResourceHandle};
use cuda_mem::pool::{Addresses, Pool, PoolOptions};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;
use testkit::Setup;
use testkit::suite::Outcome;

#[test]
fn memory_with_users_stays_when_its_resource_ends() -> Outcome {
    let setup = Setup::from_environment()?;
    let pinned = PinnedMemory::new(&setup.context);
    let pool = Pool::new(&pinned, &PoolOptions::default())?;
    let live = [
        (Addresses::of_pool(&pool.to_any())?, 8),
        (Addresses::of_pool(&pool.to_any())?, 1 << 16),
        (Addresses::new(&pinned.share())?, 8),
    ];
    // SAFETY: the null stream lives.
    let malloc = |(memory, alignment): &(Addresses, usize)| unsafe {
        memory.malloc(100, *alignment, Accessibility::BOTH, null_mut())
    };
    let addresses = live.iter().map(malloc).collect::<Result<Vec<_>, _>>()?;
    assert_eq!(pool.statistics().blocks.current, 2);
    let shared = pinned.share();
    drop((live, pool, pinned));
    assert!(Arc::strong_count(&shared) >= 3, "the pool and the resource have ended");
    for address in addresses {
        let bytes = with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the block was not freed, so the memory is there.
        unsafe {
            bytes.write_bytes(7, 100);
            assert_eq!(bytes.add(99).read(), 7);
        }
    }
    Ok(())
}

#[test]
fn a_resource_whose_memory_was_freed_ends() -> Outcome {
    let setup = Setup::from_environment()?;
    let source = DeviceMemory::new(&setup.context);
    let shared = source.share();
    let count = Arc::strong_count(&shared);
    let memory = Addresses::new(&shared)?;
    // SAFETY: the null stream lives, and nothing uses the memory.
    unsafe { memory.free(memory.malloc(100, 1, Accessibility::DEVICE, null_mut())?, 100, null_mut()) }?;
    drop(memory);
    assert_eq!(Arc::strong_count(&shared), count, "the resource was kept");
    Ok(())
}
