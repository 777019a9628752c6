//! Buffers that grow and shrink, and virtual memory mapped at two addresses.

use crate::soak::{Done, Hands};
use cuda_mem::Buffer;
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{VirtualMemory, VirtualOptions};

/// The life of one growable buffer. A failed step leaves it unchanged.
pub fn step(hands: &mut Hands<'_>) -> Done {
    if hands.chance(3) {
        return used_while_empty(hands);
    }
    let stream = hands.stream()?;
    hands.doing("virtual memory");
    let memory = VirtualMemory::new(&hands.world.context, &VirtualOptions::default())?;
    let unit = memory.granularity();
    let mut buffer = GrowableBuffer::<u8>::with_capacity(&memory, unit, &stream)?;
    let mut model = Vec::new();
    for _ in 0..1 + hands.below(5) {
        let length = hands.below(3 * unit.min(1 << 17)) + hands.below(2) * unit;
        hands.doing("growth");
        let done = if length < model.len() { buffer.shrink_to(length) } else { buffer.grow_to(length).map(drop) };
        match done {
            Ok(()) => model.resize(length, 0),
            Err(error) => {
                hands.ensure(buffer.len() == model.len(), || format!("changed by a step that failed: {error}"))?;
                hands.doing("what a step that failed left");
                hands.same("after a step that failed", &buffer.to_vec()?, &model)?;
                return Err(error.into());
            }
        }
        let range = hands.range(model.len());
        let bytes = hands.bytes(range.len().min(4096));
        buffer.copy_from_slice(range.start, &bytes)?;
        model[range.start..range.start + bytes.len()].copy_from_slice(&bytes);
    }
    hands.doing("a buffer that has grown");
    hands.same("a buffer that has grown", &buffer.to_vec()?, &model)?;
    if hands.chance(2) {
        hands.doing("an alias");
        let buffer = Buffer::filled(&memory, 100, 7u8, &stream)?;
        // SAFETY: both buffers are used in the order of one stream.
        let alias = unsafe { memory.map(&memory.physical_memory(&buffer), &stream) }?;
        drop(buffer);
        hands.same("an alias", &alias.to_vec()?[..100], &[7; 100])?;
    }
    Ok(())
}

/// A buffer that is used before it has bytes. Device memory stays closed to the CPU after that.
fn used_while_empty(hands: &mut Hands<'_>) -> Done {
    hands.doing("a growable buffer without bytes");
    let (stream, context) = (hands.stream()?, &hands.world.context);
    let memory = VirtualMemory::new(context, &VirtualOptions::default())?.into_any();
    let mut buffer = GrowableBuffer::<u8, Any>::with_capacity(&memory, 1, &stream)?;
    match hands.below(4) {
        0 => drop(buffer.coherence()),
        1 => hands.world.engine.write(&mut buffer, 0, &[])?,
        2 => drop(buffer.store(0, &[])),
        _ => buffer.fill(.., 1)?,
    }
    let bytes = hands.bytes(1000);
    let _ = buffer.grow_to(bytes.len())?;
    hands.doing("a buffer that was used without bytes");
    hands.world.engine.write(&mut buffer, 0, &bytes)?;
    hands.ensure(buffer.store(0, &[1]).is_err(), || "the CPU stored to device memory".into())?;
    hands.ensure(buffer.load(0, &mut [0]).is_err(), || "the CPU loaded from device memory".into())?;
    hands.same("a buffer that was used without bytes", &buffer.to_vec()?, &bytes)
}
