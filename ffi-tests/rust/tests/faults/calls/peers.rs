//! A run with access between devices.

use super::Outcome;
use cuda_mem::buffer::{CopyBatch, PeerRoute};
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, VirtualMemory, VirtualOptions};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Driver, Stream, Topology};
use testkit::{pattern, same};

/// Access to plain memory, a pool and virtual memory: given by copies and on request, used, taken back. A copy arrives
/// whatever fails before it.
pub fn peers(driver: &Driver) -> Outcome {
    let topology = Topology::of(driver)?;
    assert_eq!(topology.ring(), Some(vec![0, 1]));
    let (near, far) = (driver.device(0)?.primary_context()?, driver.device(1)?.primary_context()?);
    let (stream, far_stream) = (Stream::new(&near)?, Stream::new(&far)?);
    let bytes = pattern(500, 3);
    let virtual_memory = VirtualMemory::new(&far, &VirtualOptions::default())?;
    let pool = Pool::new(&virtual_memory, &PoolOptions::default())?;
    let sources = [DeviceMemory::new(&far).share(), pool.share()];
    for source in &sources {
        let memory = Buffer::from_slice(source, &bytes, &far_stream)?;
        let mut copy = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&near), bytes.len(), &stream)?;
        copy.copy_from_buffer(0, &memory, ..)?;
        same("the copy", &copy.to_vec()?, &bytes)?;
        source.allow_access(near.device())?;
        assert_eq!(memory.route_to(&copy), PeerRoute::Direct);
        let mut batch = CopyBatch::new(&stream);
        batch.copy(&mut copy, 0, &memory, 100..300)?;
        batch.submit()?;
        same("the batch", &copy.to_vec()?[..200], &bytes[100..300])?;
        source.deny_access(near.device())?;
    }
    drop(sources);
    pool.release_unused()?;
    let driver_pool = DevicePool::new(&far, &DriverPoolOptions::default())?;
    driver_pool.allow_access(near.device())?;
    Ok(driver_pool.deny_access(near.device())?)
}
