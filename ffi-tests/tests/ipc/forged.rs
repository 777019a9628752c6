//! Descriptors that lie: each is refused by name, and nothing foreign is reached.

use super::roles::Importer;
use super::{Other, Outcome, Source, pattern, same, setup, shareable, sources};
use cuda_mem::ipc::{Descriptor, DescriptorError as Wrong, Export, ExportKind, PoolExport};
use cuda_mem::memory::DevicePool;
use cuda_mem::{Error, Event, Feature, Stream};
use std::fs::File;
use std::os::fd::OwnedFd;

#[test]
fn a_forged_descriptor_is_refused_and_reaches_nothing() -> Outcome {
    sources(|_, source, stream| {
        let mut other = Other::start("forged")?;
        let bytes = pattern(5000, 8);
        let memory = source.shared(&bytes, stream)?;
        source.introduce(&mut other)?;
        other.channel.send(&memory.export()?)?;
        assert_eq!(other.channel.receive_bytes()?, b"done");
        other.finish()?;
        same("the memory", &memory.to_vec()?, &bytes)?;
        Ok(())
    })
}

fn wrong(error: Option<Error>) -> Wrong {
    match error {
        Some(Error::Descriptor(wrong)) => wrong,
        other => panic!("{other:?}"),
    }
}

/// The importer tries what a liar could send.
pub fn play(importer: &mut Importer) -> Outcome {
    let good = importer.receive()?;
    let stream = importer.stream.clone();
    let refused = |forged: Descriptor| wrong(importer.import(&forged, &stream).err());

    let mut device = good;
    device.device.0[0] ^= 1;
    assert!(matches!(refused(device), Wrong::WrongDevice { .. }));
    assert!(matches!(refused(Descriptor { kind: ExportKind::Mapped, ..good }), Wrong::WrongKind { .. }));
    assert!(matches!(refused(Descriptor { offset: good.size, ..good }), Wrong::Range { .. }));
    assert!(matches!(refused(Descriptor { length: good.size + 1, ..good }), Wrong::Range { .. }));
    assert!(matches!(refused(Descriptor { offset: u64::MAX, ..good }), Wrong::Range { .. }));
    assert!(matches!(refused(Descriptor { size: u64::MAX, ..good }), Wrong::Size { .. }));
    // The driver knows how long the allocation is. It may round up, but not so far.
    for size in [1 << 30, isize::MAX as u64] {
        assert!(matches!(refused(Descriptor { size, length: size, ..good }), Wrong::TooLarge { .. }));
    }
    if importer.pool.is_some() {
        let mut pool = good;
        pool.pool.0[0] ^= 1;
        assert!(matches!(refused(pool), Wrong::WrongPool { .. }));
    }
    // Less than there is may be said.
    let part = Descriptor { size: 100, offset: 10, length: 90, ..good };
    same("a part", &importer.import(&part, &stream)?.to_vec()?, &pattern(5000, 8)[10..100])?;

    let zeros = importer.import(&Descriptor { payload: [0; 64], ..good }, &stream);
    assert!(zeros.is_err_and(|error| error.driver_code().is_some()), "the driver did not refuse zeros");
    for byte in 0..64 {
        let mut forged = good;
        forged.payload[byte] ^= 0x10;
        // A real driver may not look at every byte; what it then gives is its own to say.
        match importer.import(&forged, &stream) {
            Ok(_) if !importer.setup.is_software() => println!("byte {byte} of a handle may be another"),
            Ok(memory) => same("a changed handle", &memory.to_vec()?, &pattern(5000, 8))?,
            Err(Error::Driver(_) | Error::Descriptor(_)) => {}
            Err(other) => return Err(format!("byte {byte}: {other}").into()),
        }
    }
    // This process has exported nothing: what claims to be its own is no more.
    let mine = shareable(&importer.setup)?.export()?.descriptor().process;
    assert!(matches!(refused(Descriptor { process: mine, ..good }), Wrong::Freed { .. }));

    same("the good one", &importer.import(&good, &stream)?.to_vec()?, &pattern(5000, 8))?;
    importer.channel.send_bytes(b"done")?;
    Ok(())
}

#[test]
fn a_replayed_descriptor_reaches_no_other_memory() -> Outcome {
    sources(|setup, source, stream| {
        let mut other = Other::start("replayed")?;
        let memory = source.shared(&pattern(5000, 8), stream)?;
        source.introduce(&mut other)?;
        other.channel.send(&memory.export()?)?;
        assert_eq!(other.channel.receive_bytes()?, b"let go");
        drop(memory);
        stream.synchronize()?;
        let secret = source.shared(&vec![0x77; 5000], stream)?;
        other.channel.send_bytes(b"freed")?;
        let seen = other.channel.receive_bytes()?;
        other.finish()?;
        if setup.is_software() {
            assert!(!seen.contains(&0x77), "an old descriptor reached new memory");
        }
        println!("a descriptor of freed memory gave {} bytes", seen.len());
        assert_eq!(secret.to_vec()?, [0x77; 5000]);
        Ok(())
    })
}

/// Imports, lets go, and imports what is no more.
pub fn replayed(importer: &mut Importer) -> Outcome {
    let descriptor = importer.receive()?;
    let memory = importer.import(&descriptor, &importer.stream)?;
    same("at first", &memory.to_vec()?, &pattern(5000, 8))?;
    drop(memory);
    importer.stream.synchronize()?;
    importer.channel.send_bytes(b"let go")?;
    assert_eq!(importer.channel.receive_bytes()?, b"freed");
    let seen = importer.import(&descriptor, &importer.stream).and_then(|memory| memory.to_vec()).unwrap_or_default();
    importer.channel.send_bytes(&seen)?;
    Ok(())
}

#[test]
fn memory_of_one_pool_is_not_imported_into_another() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    let mut other = Other::start("exporter")?;
    let mut third = Other::start("exporter")?;
    let Export::Pool(first) = other.channel.receive()? else { return Err("no pool".into()) };
    let Export::Pool(second) = third.channel.receive()? else { return Err("no pool".into()) };
    let Export::PoolMemory(memory) = other.channel.receive()? else { return Err("no memory".into()) };
    let again = first.try_clone()?;
    let (first, second) = (DevicePool::import(&setup.context, first)?, DevicePool::import(&setup.context, second)?);
    let refused = wrong(second.import_buffer::<u8>(&memory, &stream).err());
    assert!(matches!(refused, Wrong::WrongPool { .. }));
    // With the name of the other pool it is the driver that refuses.
    let renamed = Descriptor { pool: second.id().ok_or("no name")?, ..memory };
    let refused = second.import_buffer::<u8>(&renamed, &stream);
    assert!(refused.is_err_and(|error| error.driver_code().is_some()));
    // The same file under another name would destroy the pool under the first.
    let (file, mut descriptor) = again.into_parts();
    descriptor.pool.0[3] ^= 1;
    let refused = wrong(DevicePool::import(&setup.context, PoolExport::from_parts(file, descriptor)).err());
    assert!(matches!(refused, Wrong::Forged { .. }));
    assert_eq!(first.import_buffer::<u8>(&memory, &stream)?.to_vec()?, pattern(4000, 1));
    for mut process in [other, third] {
        process.channel.send_bytes(b"end")?;
        process.finish()?;
    }
    Ok(())
}

#[test]
fn a_file_that_is_no_pool_is_refused() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let pool = shareable(&setup)?;
    let mut descriptor = *pool.export()?.descriptor();
    // As if another process had sent it.
    descriptor.process.nonce ^= 1;
    let import = |descriptor| {
        let file = OwnedFd::from(File::open("/dev/null")?);
        Ok::<_, std::io::Error>(DevicePool::import(&setup.context, PoolExport::from_parts(file, descriptor)).err())
    };
    let error = import(descriptor)?.ok_or("a file was imported")?;
    assert!(error.driver_code().is_some(), "{error}");
    descriptor.device.0[5] ^= 1;
    assert!(matches!(wrong(import(descriptor)?), Wrong::WrongDevice { .. }));
    Ok(())
}

#[test]
fn forged_handles_of_plain_memory_and_events_are_refused() -> Outcome {
    let Some(setup) = setup(Feature::Ipc)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    let source = Source::Plain(cuda_mem::memory::DeviceMemory::new(&setup.context));
    let mut memory = source.shared(&[1; 100], &stream)?.export()?;
    let mut event = Event::exportable(&setup.context)?.export()?;
    for descriptor in [&mut memory, &mut event] {
        descriptor.process.nonce ^= 1;
        descriptor.payload = [0; 64];
    }
    let Source::Plain(plain) = source else { return Err("no plain memory".into()) };
    let refused = plain.import_buffer::<u8>(&memory, &stream).err().ok_or("it was imported")?;
    assert!(refused.driver_code().is_some(), "{refused}");
    let refused = Event::import(&setup.context, &event).err().ok_or("it was imported")?;
    assert!(refused.driver_code().is_some(), "{refused}");
    Ok(())
}
