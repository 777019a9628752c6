//! Copies between two devices: of the thread's memory to every source of the other device, and back.

use crate::soak::{Done, Hands};
use cuda_mem::buffer::{CopyBatch, PeerRoute};
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Stream};

/// A round trip by way of the other device.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let Some(far) = &hands.world.far else { return Ok(()) };
    hands.doing("a round trip between devices");
    let far_stream = Stream::new(far)?;
    let source: SharedResource = match hands.below(5) {
        0 => DeviceMemory::new(far).share(),
        1 => DevicePool::new(far, &DriverPoolOptions::default())?.share(),
        2 => DevicePool::current(far)?.share(),
        3 => VirtualMemory::new(far, &VirtualOptions::default())?.share(),
        _ => Pool::new(&DeviceMemory::new(far), &PoolOptions::default())?.share(),
    };
    if hands.below(3) == 0 {
        source.allow_access(hands.world.context.device())?;
    }
    let held = hands.take()?;
    // Host memory of the driver's pools and of virtual memory is open to the devices that its maker named.
    if held.buffer.device_ordinal().is_none() {
        hands.keep(held);
        return Ok(());
    }
    let range = hands.range(held.model.len());
    let mut there = Buffer::<u8, _>::zeroed(&source, range.len(), &far_stream)?;
    there.copy_from_buffer(0, &held.buffer, range.clone())?;
    let route = there.route_to(&held.buffer);
    hands
        .ensure(matches!(route, PeerRoute::Direct | PeerRoute::ThroughHost), || format!("a copy back by {route:?}"))?;
    let seen = match hands.below(2) {
        0 => there.to_vec()?,
        _ => {
            let mut back =
                Buffer::<u8, _>::zeroed(&DeviceMemory::new(&hands.world.context), range.len(), &hands.stream()?)?;
            let stream = back.stream().clone();
            let mut batch = CopyBatch::new(&stream);
            batch.copy(&mut back, 0, &there, ..)?;
            batch.submit()?;
            back.to_vec()?
        }
    };
    hands.same("a copy by way of another device", &seen, &held.model[range])?;
    held.check(hands)?;
    hands.keep(held);
    Ok(())
}
