//! Exports and imports within this process. Forged exports must be refused.

use crate::descriptors::{at, flipped};
use crate::soak::{Done, Hands, Trouble};
use cuda_mem::ipc::{Channel, Export, PoolExport};
use cuda_mem::memory::{DeviceMemory, DevicePool, VirtualMemory, VirtualOptions};
use cuda_mem::{Buffer, Event};

/// Does one export with its imports.
pub fn step(hands: &mut Hands<'_>) -> Done {
    let (stream, other) = (hands.stream()?, hands.stream()?);
    let bytes = hands.bytes(1000);
    match hands.below(4) {
        0 => {
            hands.doing("a pool's export");
            let Some(pool) = &hands.world.shareable else { return Ok(()) };
            let memory = Buffer::from_slice(pool, &bytes, &stream)?.into_shared();
            let (file, mut of_pool) = pool.export()?.into_parts();
            let of_memory = memory.slice(10..900)?.export()?;
            let claimed = hands.chance(2);
            if claimed {
                // Whatever process the descriptor names, the file is this process's own.
                of_pool = flip(&of_pool)?;
            }
            hands.doing("a pool's import");
            let pool = DevicePool::import(&hands.world.context, PoolExport::from_parts(file, of_pool))?;
            if claimed {
                let forged = pool.import_buffer::<u8>(&flip(&of_memory)?, &stream);
                hands.ensure(forged.is_err(), || "memory with a forged process came back".to_owned())?;
            }
            let one = pool.import_buffer::<u8>(&of_memory, &stream)?;
            let two = pool.import_buffer::<u8>(&of_memory, &other)?;
            if hands.chance(2) {
                hands.doing("an import's export");
                let again = pool.import_buffer::<u8>(&one.export()?, &other)?;
                hands.same("an import of an import", &again.to_vec()?, &bytes[10..900])?;
            }
            drop(pool);
            hands.same("one import", &one.to_vec()?, &bytes[10..900])?;
            drop(one);
            hands.same("another import", &two.to_vec()?, &bytes[10..900])?;
            // The exporter must end last, as its documentation requires.
            drop(two);
            other.synchronize()?;
            stream.synchronize()?;
        }
        1 => {
            hands.doing("virtual memory's export");
            let mut options = VirtualOptions::default();
            options.shareable = true;
            let virtual_memory = VirtualMemory::new(&hands.world.context, &options)?;
            let memory = Buffer::from_slice(&virtual_memory, &bytes, &stream)?.into_shared();
            let export = virtual_memory.export(&memory.slice(10..)?)?;
            let import = virtual_memory.import::<u8>(export, &stream)?;
            drop(memory);
            hands.same("virtual memory's import", &import.to_vec()?, &bytes[10..])?;
            // Memory that the exporter released may be allocated again, but not the import's memory.
            let next = Buffer::filled(&virtual_memory, 1000, 0u8, &stream)?;
            let again = virtual_memory.import::<u8>(virtual_memory.export(&import)?, &other)?;
            drop(import);
            hands.same("an import of an import of virtual memory", &again.to_vec()?, &bytes[10..])?;
            hands.same("new virtual memory beside an import", &next.to_vec()?, &[0; 1000])?;
        }
        2 => {
            hands.doing("plain memory's export");
            let plain = DeviceMemory::new(&hands.world.context);
            let memory = Buffer::from_slice(&plain, &bytes, &stream)?.into_shared();
            let import = plain.import_buffer::<u8>(&memory.export()?, &other)?;
            let again = plain.import_buffer::<u8>(&import.export()?, &stream)?;
            drop(memory);
            hands.same("plain memory's import", &import.to_vec()?, &bytes)?;
            drop(import);
            hands.same("an import of an import of plain memory", &again.to_vec()?, &bytes)?;
        }
        _ => {
            hands.doing("a channel");
            let (mut here, mut there) = Channel::pair()?;
            let event = Event::shareable(&hands.world.context)?;
            event.record(&stream)?;
            if let Some(mapped) = hands.world.mapped.first() {
                here.send(&mapped.export(&crate::mapped(mapped, 1000)?.into_shared())?)?;
                let Export::Mapped(export) = there.receive()? else { return Err("no mapped memory came".into()) };
                let memory = mapped.import::<u8>(export, &stream)?;
                hands.ensure(memory.len() == 1000, || "mapped memory of another size came".to_owned())?;
            }
            here.send_bytes(&bytes)?;
            hands.same("bytes of a channel", &there.receive_bytes()?, &bytes)?;
            event.synchronize()?;
        }
    }
    Ok(())
}

/// Changes a descriptor as if another process had made it.
fn flip(descriptor: &cuda_mem::ipc::Descriptor) -> Done<cuda_mem::ipc::Descriptor> {
    flipped(descriptor, at::NONCE).map_err(|error| Trouble::Wrong(error.to_string()))
}
