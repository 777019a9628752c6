//! Mapped memory: stores, guards, device work, words, parts, aliases.

use crate::mapped;
use crate::soak::{Done, Hands};
use cuda_mem::memory::kind::Mapped;
use cuda_mem::{Buffer, MappedMemory};

/// The life of one allocation.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let choice = hands.below(hands.world.mapped.len());
    let (resource, size) = (&hands.world.mapped[choice], hands.size(1 << 16));
    hands.doing("mapped memory");
    let stream = hands.stream()?;
    let mut memory = mapped(resource, size)?;
    memory.set_stream(&stream)?;
    let mut model = hands.bytes(size);
    memory.store(0, &model)?;
    for _ in 0..hands.below(10) {
        let range = hands.range(size);
        match hands.below(7) {
            0 => {
                hands.doing("a device's fill");
                let byte = hands.number() as u8;
                memory.fill(range.clone(), byte)?;
                model[range].fill(byte);
            }
            1 => {
                hands.doing("a read guard");
                hands.same("a read guard", &memory.read(range.clone())?, &model[range])?;
            }
            2 => {
                hands.doing("a write guard");
                let bytes = hands.bytes(range.len());
                let mut guard = memory.write(range.clone())?;
                guard.copy_from_slice(&bytes);
                if hands.chance(2) {
                    guard.finish()?;
                } else {
                    // The guard's drop cannot return an error; the drop error hook gets it.
                    drop(guard);
                    memory.flush(range.clone())?;
                }
                model[range].copy_from_slice(&bytes);
            }
            3 => {
                hands.doing("a device's write");
                let bytes = hands.bytes(range.len());
                memory.copy_from_slice(range.start, &bytes)?;
                model[range].copy_from_slice(&bytes);
            }
            4 => {
                hands.doing("a device's read");
                let mut seen = vec![0; range.len()];
                memory.copy_to_slice(range.start, &mut seen)?;
                hands.same("what the device sees", &seen, &model[range])?;
            }
            5 => {
                hands.doing("stores in a scope");
                let bytes = hands.bytes(range.len());
                let (head, tail) = bytes.split_at(bytes.len() / 2);
                memory.store_scope(|scope| {
                    scope.store(range.start + head.len(), tail)?;
                    scope.store(range.start, head)
                })?;
                model[range].copy_from_slice(&bytes);
            }
            _ => {
                hands.doing("an invalidate");
                memory.invalidate(range)?;
            }
        }
    }
    let mut seen = vec![0; size];
    memory.load(0, &mut seen)?;
    hands.same("mapped memory", &seen, &model)?;
    if hands.chance(2) {
        return Ok(());
    }
    shared(hands, resource, memory, &model)
}

/// The second half of the allocation's life: divided, shared, exported to this process.
fn shared(hands: &mut Hands<'_>, resource: &MappedMemory, memory: Buffer<u8, Mapped>, model: &[u8]) -> Done {
    hands.doing("shared mapped memory");
    let unit = memory.coherence().atom().max(64);
    let middle = hands.below(model.len() / unit + 1) * unit;
    let (left, right) = memory.split_at(middle.min(model.len() / unit * unit))?;
    let border = left.len();
    drop(left);
    let memory = right.into_shared();
    let model = &model[border..];
    if model.len() >= 16 {
        let word = hands.number();
        let cell = memory.cell::<u64>(8)?;
        cell.store(word)?;
        hands.ensure(cell.load()? == word, || "a word of shared memory".to_owned())?;
        memory.store(8, &model[8..16])?;
    }
    let twin = resource.import::<u8>(resource.export(&memory)?, memory.stream())?;
    drop(memory);
    let mut seen = vec![0; model.len()];
    twin.load(0, &mut seen)?;
    hands.same("the twin of mapped memory", &seen, model)
}
