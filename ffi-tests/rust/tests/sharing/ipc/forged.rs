//! Forged descriptors: each must be refused with a named error, and no foreign memory may be reached.

use super::roles::Importer;
use super::{Other, Outcome, Source, at, flipped, forged, part, pattern, same, setup, shareable, signed, sources};
use cuda_mem::ipc::{Descriptor, DescriptorError as Wrong, Export, PoolExport};
use cuda_mem::memory::DevicePool;
use cuda_mem::{Error, Event, Feature, Stream};
use std::fs::File;
use std::os::fd::OwnedFd;

#[test]
fn a_forged_descriptor_is_refused_and_reaches_nothing() -> Outcome {
    super::played_over_memory("forged")?;
    super::played_over_memory("c_forged")
}

fn wrong(error: Option<Error>) -> Wrong {
    match error {
        Some(Error::Descriptor(wrong)) => wrong,
        other => panic!("{other:?}"),
    }
}

/// The importer tries everything that a malicious sender could send.
pub fn play(importer: &mut Importer) -> Outcome {
    let good = importer.receive()?;
    let stream = importer.stream.clone();
    let refused = |forged: Result<Descriptor, Wrong>| match forged {
        Ok(forged) => wrong(importer.import(&forged, &stream).err()),
        Err(wrong) => wrong,
    };
    let number = |at: usize, value: u64| forged(&good, at, &value.to_le_bytes());

    assert!(matches!(refused(flipped(&good, at::DEVICE)), Wrong::WrongDevice { .. }));
    assert!(matches!(refused(forged(&good, at::KIND, &[4, 0, 1, 0])), Wrong::WrongKind { .. }));
    assert!(matches!(refused(forged(&good, at::FILES, &[1])), Wrong::FileDescriptors { .. }));
    assert!(matches!(refused(number(at::OFFSET, good.size())), Wrong::Range { .. }));
    assert!(matches!(refused(number(at::LENGTH, good.size() + 1)), Wrong::Range { .. }));
    assert!(matches!(refused(number(at::OFFSET, u64::MAX)), Wrong::Range { .. }));
    assert!(matches!(refused(number(at::SIZE, u64::MAX)), Wrong::Size { .. }));
    let pooled = importer.pool.is_some();
    for size in [1 << 30, isize::MAX as u64] {
        match refused(number(at::SIZE, size)) {
            Wrong::Forged { .. } if pooled => {}
            // The driver knows the size of the allocation. It may round up, but not this far.
            Wrong::TooLarge { .. } if !pooled => {}
            other => panic!("{other:?}"),
        }
    }
    // A process that has a pool may name another part of the pool's shared memory.
    let mut other = part(&good, 10, 90)?;
    if let Some(pool) = &importer.pool {
        assert!(matches!(refused(Ok(other)), Wrong::Forged { .. }));
        other = signed(&other, pool.export()?.descriptor());
    }
    same("a part", &importer.import(&other, &stream)?.to_vec()?, &pattern(5000, 8)[10..100])?;

    if pooled {
        assert!(matches!(refused(flipped(&good, at::POOL)), Wrong::WrongPool { .. }));
        // Real drivers crash on some of these, so none may reach the driver.
        for at in at::PAYLOAD..at::TAG + 16 {
            assert!(matches!(refused(flipped(&good, at)), Wrong::Forged { .. }), "byte {at}");
        }
        assert!(matches!(refused(forged(&good, at::PAYLOAD, &[0; 64])), Wrong::Forged { .. }));
        assert!(matches!(refused(number(at::SIZE, 100)), Wrong::Range { .. } | Wrong::Forged { .. }));
        let shorter = forged(&part(&good, 0, 10)?, at::SIZE, &100_u64.to_le_bytes());
        assert!(matches!(refused(shorter), Wrong::Forged { .. }));
    } else {
        let zeros = importer.import(&forged(&good, at::PAYLOAD, &[0; 64])?, &stream);
        assert!(zeros.is_err_and(|error| error.driver_code().is_some()), "the driver did not refuse zeros");
        for byte in 0..64 {
            // A real driver may not check every byte. What it then imports is its own responsibility.
            match importer.import(&flipped(&good, at::PAYLOAD + byte)?, &stream) {
                Ok(_) if !importer.setup.is_software() => println!("byte {byte} of a handle may be another"),
                Ok(memory) => same("a changed handle", &memory.to_vec()?, &pattern(5000, 8))?,
                Err(Error::Driver(_) | Error::Descriptor(_)) => {}
                Err(other) => return Err(format!("byte {byte}: {other}").into()),
            }
        }
    }
    // This process has exported nothing, so it must refuse a descriptor that claims to be its own.
    let mine = Event::shareable(&importer.setup.context)?.export()?.to_bytes();
    let mine = forged(&good, at::PROCESS, &mine[at::PROCESS..at::NONCE + 8]);
    match refused(mine) {
        Wrong::Forged { .. } if pooled => {}
        Wrong::Freed { .. } if !pooled => {}
        other => panic!("{other:?}"),
    }
    same("the good one", &importer.import(&good, &stream)?.to_vec()?, &pattern(5000, 8))?;
    importer.channel.send_bytes(b"done")?;
    Ok(())
}

#[test]
fn what_comes_back_changed_is_not_taken_for_ones_own() -> Outcome {
    sources(|_, source, stream| {
        let gone = source.shared(&[1; 1000], stream)?.export()?;
        let import = |descriptor: &Descriptor| match source {
            Source::Pool(pool) => pool.import_buffer::<u8>(descriptor, stream),
            Source::Plain(memory) => memory.import_buffer::<u8>(descriptor, stream),
        };
        assert!(matches!(wrong(import(&gone).err()), Wrong::Freed { .. }));
        let (one, two) = (source.shared(&[1; 1000], stream)?, source.shared(&[2; 1000], stream)?);
        let (own, other) = (one.export()?, two.export()?);
        assert_eq!(import(&own)?.to_vec()?, [1; 1000]);
        // The number of one allocation with the handle of another.
        let number = at::NUMBER..at::SIZE;
        let mixed = forged(&own, number.start, &other.to_bytes()[number])?;
        assert!(matches!(wrong(import(&mixed).err()), Wrong::Forged { .. }));
        Ok(())
    })
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
        // A process that has a pool reaches all of its memory, including new blocks in place of freed ones.
        if setup.is_software() && matches!(source, Source::Plain(_)) {
            assert!(!seen.contains(&0x77), "an old descriptor reached new memory");
        }
        println!("a descriptor of freed memory gave {} bytes", seen.len());
        assert_eq!(secret.to_vec()?, [0x77; 5000]);
        Ok(())
    })
}

/// Imports memory, releases it, and imports memory that no longer exists.
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
    // The other pool's name does not help, because that pool has another key.
    let renamed = forged(&memory, at::POOL, &second.id().ok_or("no name")?.0)?;
    assert!(matches!(wrong(second.import_buffer::<u8>(&renamed, &stream).err()), Wrong::Forged { .. }));
    // The same file under another name would destroy the pool under the first name.
    let (file, descriptor) = again.into_parts();
    let renamed = PoolExport::from_parts(file, flipped(&descriptor, at::POOL)?);
    let refused = wrong(DevicePool::import(&setup.context, renamed).err());
    assert!(matches!(refused, Wrong::Conflict { .. }));
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
    // As if another process had sent it.
    let own = flipped(pool.export()?.descriptor(), at::NONCE)?;
    let descriptor = flipped(&own, at::POOL)?;
    let import = |descriptor| {
        let file = OwnedFd::from(File::open("/dev/null")?);
        Ok::<_, std::io::Error>(DevicePool::import(&setup.context, PoolExport::from_parts(file, descriptor)).err())
    };
    let error = import(descriptor)?.ok_or("a file was imported")?;
    assert!(error.driver_code().is_some(), "{error}");
    assert!(matches!(wrong(import(own)?), Wrong::Conflict { .. }), "the name of a pool of this process");
    assert!(matches!(wrong(import(flipped(&descriptor, at::DEVICE + 5)?)?), Wrong::WrongDevice { .. }));
    Ok(())
}

#[test]
fn forged_handles_of_plain_memory_and_events_are_refused() -> Outcome {
    let Some(setup) = setup(Feature::Ipc)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    let source = Source::Plain(cuda_mem::memory::DeviceMemory::new(&setup.context));
    let invented = |descriptor: Descriptor| forged(&flipped(&descriptor, at::NONCE)?, at::PAYLOAD, &[0; 64]);
    let memory = invented(source.shared(&[1; 100], &stream)?.export()?)?;
    let event = invented(Event::shareable(&setup.context)?.export()?)?;
    let Source::Plain(plain) = source else { return Err("no plain memory".into()) };
    let refused = plain.import_buffer::<u8>(&memory, &stream).err().ok_or("it was imported")?;
    assert!(refused.driver_code().is_some(), "{refused}");
    let refused = Event::import(&setup.context, &event).err().ok_or("it was imported")?;
    assert!(refused.driver_code().is_some(), "{refused}");
    Ok(())
}
