//! A run with access between devices.

use super::Outcome;
use cuda_mem::buffer::{CopyBatch, PeerRoute};
use cuda_mem::copy::{HostLinks, HostLinksOptions, LinkRate};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, ResourceHandle, VirtualMemory, VirtualOptions,
};
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

/// Copies with the host over the links of two devices. After a failed copy both buffers serve at once, and the next copy
/// arrives.
pub fn host_links(driver: &Driver) -> Outcome {
    let (near, far) = (driver.device(0)?.primary_context()?, driver.device(1)?.primary_context()?);
    let mut options = HostLinksOptions::default();
    (options.staging, options.minimum) = (1024, 0);
    let rates = [0, 1].map(|device| [LinkRate::new(None, Some(device), 1), LinkRate::new(Some(device), None, 1)]);
    let mut links = HostLinks::with_rates(&near, &[far], rates.as_flattened(), options)?;
    let (stream, bytes) = (Stream::new(&near)?, pattern(3000, 3));
    let mut host = Buffer::from_slice(&PinnedMemory::new(&near), &bytes, &Stream::new(&near)?)?;
    let mut memory = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&near), bytes.len(), &stream)?;
    let failed = links.upload(&mut memory, 0, &host, ..).err();
    host.fill(.., 0)?;
    if let Some(error) = failed {
        memory.fill(.., 5)?;
        same("after an error", &memory.to_vec()?, &[5; 3000])?;
        return Err(error.into());
    }
    let failed = links.download(&mut host, 0, &memory, ..).err();
    memory.fill(.., 7)?;
    if let Some(error) = failed {
        links.upload(&mut memory, 0, &host, ..)?;
        let copied = memory.to_vec()?;
        same("the next copy", &copied, &host.to_vec()?)?;
        return Err(error.into());
    }
    Ok(same("the copy", &host.to_vec()?, &bytes)?)
}
