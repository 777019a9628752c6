//! Copies between two devices: of the thread's memory to every source of the other device, and back. Memory of the first
//! device that a process uses with the second one.

use crate::soak::child::{self, Other};
use crate::soak::{Done, Hands};
use cuda_mem::buffer::{CopyBatch, PeerRoute};
use cuda_mem::ipc::Channel;
use cuda_mem::memory::kind::Kind;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, ResourceHandle, SharedResource, VirtualMemory, VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Feature, SharedBuffer, Stream, Support};

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
    let range = hands.range(held.model.len());
    let mut there = Buffer::<u8, _>::zeroed(&source, range.len(), &far_stream)?;
    there.copy_from_buffer(0, &held.buffer, range.clone())?;
    let (route, in_host) = (there.route_to(&held.buffer), held.buffer.device_ordinal().is_none());
    let possible = match route {
        PeerRoute::Direct | PeerRoute::ThroughHost => !in_host,
        PeerRoute::HostMemory => in_host,
        _ => false,
    };
    hands.ensure(possible, || format!("a copy back by {route:?}"))?;
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

/// Exports memory of a source to another process, which uses it with the second device.
pub fn exported(hands: &mut Hands<'_>) -> Done {
    let world = hands.world;
    if world.far.is_none() {
        return Ok(());
    }
    hands.doing("memory for another process's second device");
    let (stream, bytes) = (hands.stream()?, hands.bytes(5000));
    let has = |feature| world.context.device().supports(feature).map(|support| support != Support::No);
    match hands.below(3) {
        0 if has(Feature::Ipc)? => {
            let memory = Buffer::from_slice(&DeviceMemory::new(&world.context), &bytes, &stream)?.into_shared();
            memory.synchronize()?;
            let export = memory.export()?;
            inverted(hands, &bytes, &memory, |channel| channel.send(&export))
        }
        1 if has(Feature::SharedPhysicalMemory)? => {
            let mut options = VirtualOptions::default();
            options.shareable = true;
            let source = VirtualMemory::new(&world.context, &options)?;
            let memory = Buffer::from_slice(&source, &bytes, &stream)?.into_shared();
            let export = source.export(&memory)?;
            inverted(hands, &bytes, &memory, |channel| channel.send(&export))
        }
        _ => {
            let Some(pool) = &world.shareable else { return Ok(()) };
            let memory = Buffer::from_slice(pool, &bytes, &stream)?.into_shared();
            memory.synchronize()?;
            let (of_pool, of_memory) = (pool.export()?, memory.export()?);
            inverted(hands, &bytes, &memory, |channel| channel.send(&of_pool).and_then(|()| channel.send(&of_memory)))
        }
    }
}

/// The other process gets the memory, must see the bytes, and inverts them.
fn inverted<K: Kind>(
    hands: &mut Hands<'_>,
    bytes: &[u8],
    memory: &SharedBuffer<u8, K>,
    send: impl FnOnce(&mut Channel) -> cuda_mem::Result<()>,
) -> Done {
    let mut other = Other::start(child::OTHER_DEVICE)?;
    send(&mut other.channel)?;
    hands.doing("the wait for another process's second device");
    let seen = other.channel.receive_bytes()?;
    hands.same("what the second device of another process saw", &seen, bytes)?;
    let inverse: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
    hands.same("what the second device of another process wrote", &memory.to_vec()?, &inverse)?;
    other.finish(false)
}
