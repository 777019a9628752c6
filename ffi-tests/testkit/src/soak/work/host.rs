//! Host memory: registered, page-locked as slices, managed.

use crate::soak::{Done, Hands};
use cuda_mem::memory::{Location, ManagedMemory, PinnedMemory, RegisterOptions, RegisteredMemory};
use cuda_mem::{Buffer, HostBuffer, Refused};

/// A vector that the device works on.
pub fn registered(hands: &mut Hands<'_>) -> Done {
    let (stream, size) = (hands.stream()?, hands.size(1 << 16));
    let (mut model, byte) = (hands.bytes(size), hands.number() as u8);
    hands.doing("registered memory");
    let registered = RegisteredMemory::new(&hands.world.context, model.clone(), RegisterOptions::default())
        .map_err(|refused: Box<Refused<_>>| refused.error)?;
    let mut buffer = registered.buffer(&stream)?;
    let range = hands.range(size);
    buffer.fill(range.clone(), byte)?;
    model[range].fill(byte);
    hands.same("registered memory, through the driver", &buffer.to_vec()?, &model)?;
    if hands.chance(2) {
        buffer.close()?;
        let owner = registered.into_owner().map_err(|refused: Box<Refused<_>>| refused.error)?;
        hands.same("registered memory, from its owner", &owner, &model)?;
    } else {
        // The buffer is the last owner of the memory.
        drop(registered);
        drop(buffer);
    }
    Ok(())
}

/// Page-locked memory as a slice and as a buffer.
pub fn buffers(hands: &mut Hands<'_>) -> Done {
    let (stream, size) = (hands.stream()?, hands.size(1 << 16));
    let mut model = hands.bytes(size);
    hands.doing("page-locked memory");
    let mut host = HostBuffer::from_slice(&PinnedMemory::new(&hands.world.context), &model)?;
    let range = hands.range(size);
    let bytes = hands.bytes(range.len());
    host[range.clone()].copy_from_slice(&bytes);
    model[range].copy_from_slice(&bytes);
    let clone = host.try_clone()?;
    let mut held = hands.take()?;
    if held.model.len() >= size {
        let buffer = host.into_buffer(&stream).map_err(|refused: Box<Refused<_>>| refused.error)?;
        held.buffer.copy_from_buffer(0, &buffer, ..)?;
        held.model[..size].copy_from_slice(&model);
        held.did("copied from the host's memory", 0..size);
        drop(buffer);
        held.check(hands)?;
    }
    hands.keep(held);
    hands.same("a clone of page-locked memory", &clone, &model)
}

/// Memory that the driver migrates.
pub fn managed(hands: &mut Hands<'_>) -> Done {
    let (stream, size) = (hands.stream()?, hands.size(1 << 16));
    let mut model = hands.bytes(size);
    hands.doing("managed memory");
    let memory = ManagedMemory::new(&hands.world.context)?;
    let mut buffer = Buffer::from_slice(&memory, &model, &stream)?;
    let device = Location::from(hands.world.context.device().clone());
    for _ in 0..hands.below(6) {
        let range = hands.range(size);
        match hands.below(6) {
            0 => buffer.prefetch(if hands.chance(2) { Location::Host } else { device.clone() })?,
            1 => buffer.set_read_mostly(hands.chance(2))?,
            2 => buffer.set_preferred_location(if hands.chance(2) { Some(&device) } else { None })?,
            3 => {
                let byte = hands.number() as u8;
                buffer.fill(range.clone(), byte)?;
                model[range].fill(byte);
            }
            4 => {
                let byte = hands.number() as u8;
                buffer.write(range.clone())?.fill(byte);
                model[range].fill(byte);
            }
            _ => {
                buffer.discard()?;
                buffer.copy_from_slice(0, &model)?;
            }
        }
    }
    hands.same("managed memory", &buffer.to_vec()?, &model)
}
