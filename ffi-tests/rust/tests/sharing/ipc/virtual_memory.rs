//! Virtual memory shared between processes.

use super::{MIRRORS, Other, Outcome, inverted, nothing_dropped, pattern, same, setup};
use cuda_mem::buffer::GrowableBuffer;
use cuda_mem::ipc::{Channel, ChannelError, DescriptorError as Wrong, Export, VirtualDescriptor, VirtualExport};
use cuda_mem::memory::kind::Device;
use cuda_mem::memory::{DeviceMemory, Growth, VirtualMemory, VirtualOptions};
use cuda_mem::{Buffer, Error, Feature, SharedBuffer, Stream, Support};
use std::fs::File;
use testkit::Setup;

struct Shareable {
    setup: Setup,
    memory: VirtualMemory,
    stream: Stream,
    unit: usize,
}

fn virtual_memory() -> Result<Option<Shareable>, Box<dyn std::error::Error>> {
    let Some(setup) = setup(Feature::SharedPhysicalMemory)? else { return Ok(None) };
    let mut options = VirtualOptions::default();
    options.shareable = true;
    let (memory, stream) = (VirtualMemory::new(&setup.context, &options)?, Stream::new(&setup.context)?);
    let unit = memory.granularity();
    Ok(Some(Shareable { setup, memory, stream, unit }))
}

impl Shareable {
    fn shared(&self, bytes: &[u8]) -> Result<SharedBuffer<u8, Device>, Error> {
        Ok(Buffer::from_slice(&self.memory, bytes, &self.stream)?.into_shared())
    }

    /// A buffer that has grown to this many chunks.
    fn grown(&self, chunks: usize) -> Result<SharedBuffer<u8, Device>, Error> {
        let mut buffer = GrowableBuffer::<u8>::with_capacity(&self.memory, chunks * self.unit, &self.stream)?;
        for count in 1..=chunks {
            assert_eq!(buffer.grow_to(count * self.unit)?, Growth::InPlace);
        }
        assert_eq!(self.memory.physical_memory(&buffer).len(), chunks);
        Ok(buffer.into_buffer().into_shared())
    }
}

#[test]
fn another_process_sees_virtual_memory_and_writes_back() -> Outcome {
    let Some(shareable) = virtual_memory()? else { return Ok(()) };
    for role in MIRRORS {
        let mut other = Other::start(role)?;
        for size in [1, 1000, shareable.unit + 5] {
            let bytes = pattern(size, 3);
            let memory = shareable.shared(&bytes)?;
            other.mirror(&shareable.memory.export(&memory)?, &bytes)?;
            same("what it wrote", &memory.to_vec()?, &inverted(&bytes))?;
            assert!(memory.try_into_exclusive().is_err(), "another process may still have it");
        }
        let bytes = pattern(10_000, 4);
        let memory = shareable.shared(&bytes)?;
        other.mirror(&shareable.memory.export(&memory.slice(1000..5003)?)?, &bytes[1000..5003])?;
        other.mirror(&shareable.memory.export(&memory.slice(5003..5003)?)?, &[])?;
        let mut expected = bytes.clone();
        expected[1000..5003].copy_from_slice(&inverted(&bytes[1000..5003]));
        same("the whole", &memory.to_vec()?, &expected)?;
        other.channel.send_bytes(b"end")?;
        other.finish()?;
    }
    nothing_dropped(&shareable.setup)
}

#[test]
fn memory_of_several_chunks_comes_as_one_range() -> Outcome {
    let Some(shareable) = virtual_memory()? else { return Ok(()) };
    let (unit, mut other) = (shareable.unit, Other::start("mirror")?);
    let mut memory = shareable.grown(3)?;
    let bytes = pattern(3 * unit, 9);
    memory.copy_from_slice(0, &bytes)?;
    let export = shareable.memory.export(&memory)?;
    assert_eq!(export.descriptor().chunks(), [unit as u64; 3]);
    other.mirror(&export, &bytes)?;
    same("what it wrote", &memory.to_vec()?, &inverted(&bytes))?;
    // The export of a slice contains only the chunks in which the slice lies.
    let slice = memory.slice(unit + 100..2 * unit + 200)?;
    let export = shareable.memory.export(&slice)?;
    assert_eq!((export.descriptor().chunks().len(), export.descriptor().descriptor().offset()), (2, 100));
    other.mirror(&export, &inverted(&bytes[unit + 100..2 * unit + 200]))?;
    other.channel.send_bytes(b"end")?;
    other.finish()
}

#[test]
fn an_import_in_the_same_process_is_an_alias() -> Outcome {
    let Some(Shareable { setup, memory, stream, .. }) = virtual_memory()? else { return Ok(()) };
    let (mut here, mut there) = Channel::pair()?;
    let bytes = pattern(1000, 1);
    let mut original = Buffer::from_slice(&memory, &bytes, &stream)?.into_shared();
    here.send(&memory.export(&original.slice(100..)?)?)?;
    let Export::VirtualMemory(export) = there.receive()? else { return Err("no virtual memory".into()) };
    let mut alias = memory.import::<u8>(export, &stream)?;
    assert_ne!(alias.device_pointer(), original.device_pointer() + 100);
    assert!(!alias.shares_with(&original));
    same("the alias", &alias.to_vec()?, &bytes[100..])?;
    alias.fill(..10, 7)?;
    original.fill(110..120, 8)?;
    assert_eq!(original.slice(99..121)?.to_vec()?, alias_of(&bytes));
    assert_eq!(alias.slice(..20)?.to_vec()?, [[7; 10], [8; 10]].concat());
    // An import can be exported again, even after the original is gone.
    drop(original);
    let again = memory.export(&alias.slice(5..15)?)?;
    drop(alias);
    assert_eq!(memory.import::<u8>(again, &stream)?.to_vec()?, [[7; 5], [8; 5]].concat());
    nothing_dropped(&setup)
}

fn alias_of(bytes: &[u8]) -> Vec<u8> {
    [&bytes[99..100], &[7; 10], &[8; 10], &bytes[120..121]].concat()
}

#[test]
fn memory_lives_as_long_as_anybody_has_it() -> Outcome {
    let Some(shareable) = virtual_memory()? else { return Ok(()) };
    let bytes = pattern(shareable.unit, 5);
    let memory = shareable.shared(&bytes)?;
    let export = shareable.memory.export(&memory)?;
    drop(memory);
    shareable.stream.synchronize()?;
    // Now only the files keep the memory alive.
    let mut other = Other::start("mirror")?;
    other.mirror(&export, &bytes)?;
    let import = shareable.memory.import::<u8>(export, &shareable.stream)?;
    same("after the exporter has closed it", &import.to_vec()?, &inverted(&bytes))?;
    other.kill()?;
    same("after an importer was killed", &import.to_vec()?, &inverted(&bytes))?;
    drop(import);
    nothing_dropped(&shareable.setup)
}

#[test]
fn the_bytes_of_a_descriptor_and_its_files_are_enough() -> Outcome {
    let Some(Shareable { memory, stream, unit, .. }) = virtual_memory()? else { return Ok(()) };
    let buffer = Buffer::filled(&memory, unit, 0x1234_5678_u32, &stream)?.into_shared();
    let export = memory.export(&buffer.slice(3..8)?)?;
    let clone = export.try_clone()?;
    let (files, descriptor) = export.into_parts();
    assert_eq!((files.len(), descriptor.numa_node()), (1, None));
    let descriptor = VirtualDescriptor::from_bytes(&descriptor.to_bytes())?;
    let import = memory.import::<u32>(VirtualExport::from_parts(files, descriptor), &stream)?;
    assert_eq!(import.to_vec()?, [0x1234_5678; 5]);
    assert_eq!(memory.import::<u32>(clone, &stream)?.to_vec()?, [0x1234_5678; 5]);
    Ok(())
}

#[test]
fn what_is_no_shared_virtual_memory_says_so() -> Outcome {
    let Some(Shareable { setup, memory, stream, unit }) = virtual_memory()? else { return Ok(()) };
    let private = VirtualMemory::new(&setup.context, &VirtualOptions::default())?;
    let buffer = Buffer::filled(&private, 10, 1u8, &stream)?.into_shared();
    let text = private.export(&buffer).err().ok_or("it was exported")?.to_string();
    assert!(text.contains("VirtualOptions::shareable"), "{text}");
    assert!(buffer.try_into_exclusive().is_ok(), "an error leaves the memory as it was");
    let plain = Buffer::filled(&DeviceMemory::new(&setup.context), 10, 1u8, &stream)?.into_shared();
    let text = memory.export(&plain).err().ok_or("it was exported")?.to_string();
    assert!(text.contains("memory of this resource"), "{text}");
    let buffer = Buffer::filled(&memory, 10, 1u8, &stream)?.into_shared();
    let text = buffer.export().err().ok_or("it was exported without files")?.to_string();
    assert!(text.contains("VirtualMemory::export"), "{text}");

    let wrong = |export: VirtualExport| match memory.import::<u8>(export, &stream) {
        Err(Error::Descriptor(wrong)) => wrong,
        other => panic!("{other:?}"),
    };
    // One file too few, and a file of another kind.
    let (files, descriptor) = memory.export(&buffer)?.into_parts();
    assert!(matches!(wrong(VirtualExport::from_parts(Vec::new(), descriptor.clone())), Wrong::FileDescriptors { .. }));
    let foreign = vec![File::open("/dev/null")?.into()];
    let refused = memory.import::<u8>(VirtualExport::from_parts(foreign, descriptor), &stream).err();
    assert!(refused.is_some_and(|error| error.driver_code().is_some()));
    // The size of another chunk: the driver maps a file completely or not at all.
    let (_, longer) = memory.export(&Buffer::filled(&memory, unit + 1, 1u8, &stream)?.into_shared())?.into_parts();
    let refused = memory.import::<u8>(VirtualExport::from_parts(files, longer), &stream).err();
    assert!(refused.is_some_and(|error| error.driver_code().is_some()));
    // The part does not contain whole elements.
    let odd = memory.export(&buffer.slice(1..5)?)?;
    assert!(matches!(memory.import::<u32>(odd, &stream), Err(Error::Misaligned { what: "address", .. })));
    let odd = memory.export(&buffer.slice(..5)?)?;
    assert!(matches!(memory.import::<u32>(odd, &stream), Err(Error::Misaligned { what: "size", .. })));
    // Memory of a device is not memory of the host.
    if setup.context.device().supports(Feature::HostNumaVirtualMemory)? != Support::No {
        let host = VirtualMemory::host_numa(&setup.context, 0, &VirtualOptions::default())?;
        let refused = host.import::<u8>(memory.export(&buffer)?, &stream).err();
        assert!(matches!(refused, Some(Error::Descriptor(Wrong::WrongPlace { .. }))), "{refused:?}");
    }
    drop(buffer);
    nothing_dropped(&setup)
}

#[test]
fn host_memory_of_a_node_is_shared_too() -> Outcome {
    let Some(Shareable { setup, memory, stream, .. }) = virtual_memory()? else { return Ok(()) };
    if setup.context.device().supports(Feature::HostNumaVirtualMemory)? == Support::No {
        println!("skipped: the device maps no memory of the host's nodes; run it on one that does");
        return Ok(());
    }
    let mut options = VirtualOptions::default();
    options.shareable = true;
    let host = VirtualMemory::host_numa(&setup.context, 0, &options)?;
    let mut buffer = Buffer::<u8, _>::zeroed(&host, 100, &stream)?;
    buffer.write(..)?.copy_from_slice(&pattern(100, 2)); // with the CPU
    let export = host.export(&buffer.into_shared())?;
    assert_eq!(export.descriptor().numa_node(), Some(0));
    let refused = memory.import::<u8>(export.try_clone()?, &stream).err();
    assert!(matches!(refused, Some(Error::Descriptor(Wrong::WrongPlace { .. }))), "{refused:?}");
    same("the import", &host.import::<u8>(export, &stream)?.to_vec()?, &pattern(100, 2))?;
    Ok(())
}

#[test]
fn more_chunks_than_files_go_with_a_message_are_refused() -> Outcome {
    let Some(shareable) = virtual_memory()? else { return Ok(()) };
    let memory = shareable.grown(65)?;
    let text = shareable.memory.export(&memory).err().ok_or("it was exported")?.to_string();
    assert!(text.contains("65 chunks") && text.contains("copy it into a new buffer"), "{text}");
    // With one chunk less, the export can be sent and arrives completely.
    let part = memory.slice(..64 * shareable.unit)?;
    let export = shareable.memory.export(&part)?;
    let (mut here, mut there) = Channel::pair()?;
    here.send(&export)?;
    let Export::VirtualMemory(received) = there.receive()? else { return Err("no virtual memory".into()) };
    assert_eq!(received.descriptor(), export.descriptor());
    assert_eq!(shareable.memory.import::<u8>(received, &shareable.stream)?.len(), 64 * shareable.unit);
    // An export that a program builds from parts has the same limit.
    let (mut files, descriptor) = export.into_parts();
    files.push(File::open("/dev/null")?.into());
    let refused = here.send(&VirtualExport::from_parts(files, descriptor)).err();
    assert!(matches!(refused, Some(Error::Channel(ChannelError::TooManyFiles { count: 65, .. }))), "{refused:?}");
    Ok(())
}

#[test]
fn chunks_are_not_exported_beside_exclusive_parts() -> Outcome {
    let Some(Shareable { setup, memory, stream, .. }) = virtual_memory()? else { return Ok(()) };
    let (left, right) = Buffer::from_slice(&memory, &pattern(1000, 4), &stream)?.split_at(400)?;
    let (left, (middle, right)) = (left.into_shared(), right.split_at(100)?);
    drop(middle);
    let text = memory.export(&left.slice(10..30)?).err().ok_or("it was exported")?.to_string();
    assert!(text.contains("bytes 10 to 10+20") && text.contains("500 bytes are in exclusive parts"), "{text}");
    // Neither can the chunk alone be exported, because its file would be the same.
    let chunk = memory.physical_memory(&right).remove(0);
    let text = chunk.export().err().ok_or("it was exported")?.to_string();
    assert!(text.contains("VirtualMemory::export"), "{text}");
    drop((right.into_shared(), chunk));
    let export = memory.export(&left)?;
    same("the import", &memory.import::<u8>(export, &stream)?.to_vec()?, &pattern(1000, 4)[..400])?;
    drop(left);
    nothing_dropped(&setup)
}
