//! Exports that come back to their own process, and memory that cannot be exported.

use super::{Outcome, PATIENCE, Source, part, same, setup, shareable, signed, sources};
use cuda_mem::ipc::{Channel, Descriptor, DescriptorError, Export};
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions};
use cuda_mem::{Buffer, Error, Event, Feature, MappedMemory, Stream};
use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Setup, pattern};

/// How long to drop pools beside imports.
const IMPORTS: Duration = Duration::from_secs(2);

#[test]
fn what_a_process_exported_comes_back_as_the_same_allocation() -> Outcome {
    sources(|setup, source, stream| {
        let (mut here, mut there) = Channel::pair()?;
        let (bytes, other_stream) = (pattern(1000, 1), Stream::new(&setup.context)?);
        let memory = source.shared(&bytes, stream)?;
        here.send(&memory.slice(100..200)?.export()?)?;
        let (mut back, descriptor) = match (source, there.receive()?) {
            (Source::Pool(pool), Export::PoolMemory(descriptor)) => {
                let same_pool = DevicePool::import(&setup.context, pool.export()?)?;
                assert_eq!(&same_pool, pool);
                assert!(!same_pool.is_imported());
                (same_pool.import_buffer::<u8>(&descriptor, &other_stream)?, descriptor)
            }
            (Source::Plain(memory), Export::DeviceMemory(descriptor)) => {
                (memory.import_buffer::<u8>(&descriptor, &other_stream)?, descriptor)
            }
            (_, other) => return Err(format!("{other:?} came").into()),
        };
        assert!(back.shares_with(&memory));
        assert_eq!(back.to_vec()?, &bytes[100..200]);
        back.fill(.., 7)?;
        back.synchronize()?;
        assert_eq!(memory.slice(99..101)?.to_vec()?, [bytes[99], 7]);
        drop(back);
        assert!(memory.try_into_exclusive().is_err(), "another process may still have it");
        // The exporter has freed it.
        let gone = match source {
            Source::Pool(pool) => pool.import_buffer::<u8>(&descriptor, stream).err(),
            Source::Plain(memory) => memory.import_buffer::<u8>(&descriptor, stream).err(),
        };
        assert!(matches!(gone, Some(Error::Descriptor(DescriptorError::Freed { .. }))), "{gone:?}");
        Ok(())
    })
}

#[test]
fn an_export_waits_for_the_work_on_the_memory() -> Outcome {
    sources(|_, source, stream| {
        let mut memory = source.shared(&[1; 100], stream)?;
        let (open, gate) = std::sync::mpsc::channel::<()>();
        stream.launch_host_function(move || gate.recv_timeout(PATIENCE).unwrap_or_default())?;
        memory.fill(.., 2)?;
        assert!(!stream.is_done()?);
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            open.send(())
        });
        memory.export()?;
        assert!(stream.is_done()?, "another process would see memory that is not written yet");
        opener.join().map_err(|_| "the opener panicked")??;
        Ok(())
    })
}

#[test]
fn a_pool_is_found_while_it_lives() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let (one, two) = (shareable(&setup)?, shareable(&setup)?);
    let (first, second) = (one.id().ok_or("no name")?, two.id().ok_or("no name")?);
    assert_ne!(first, second);
    assert_eq!(DevicePool::find(&setup.context, first).as_ref(), Some(&one));
    assert_eq!(DevicePool::find(&setup.context, second).as_ref(), Some(&two));
    drop(one);
    assert!(DevicePool::find(&setup.context, first).is_none());
    Ok(())
}

#[test]
fn a_dropped_pool_is_not_found_while_others_are_imported() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    // An import compares its file with those of all these.
    let kept = (0..20).map(|_| shareable(&setup)).collect::<Result<Vec<_>, _>>()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let import = || -> Result<(), Error> {
            while !over.load(Ordering::Relaxed) {
                let last = &kept[kept.len() - 1];
                assert_eq!(&DevicePool::import(&setup.context, last.export()?)?, last);
            }
            Ok(())
        };
        let importing = [(); 3].map(|()| threads.spawn(import));
        let dropping = || -> Outcome {
            let begin = Instant::now();
            while begin.elapsed() < IMPORTS {
                let pool = shareable(&setup)?;
                let id = pool.id().ok_or("no name")?;
                // The importing threads look at it meanwhile.
                drop(pool.export()?);
                drop(pool);
                // No panic: the importing threads must learn of the end.
                if DevicePool::find(&setup.context, id).is_some() {
                    return Err("an import kept a pool alive".into());
                }
            }
            Ok(())
        };
        let dropped = dropping();
        over.store(true, Ordering::Relaxed);
        for thread in importing {
            thread.join().map_err(|_| "an importing thread panicked")??;
        }
        dropped
    })
}

#[test]
fn what_is_not_made_for_sharing_says_so() -> Outcome {
    let Some(setup) = setup(Feature::DevicePools)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    let pool = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
    assert_eq!(pool.id(), None);
    let memory = Buffer::filled(&pool, 10, 1u8, &stream)?.into_shared();
    for error in [pool.export().err(), memory.export().err()] {
        let text = error.ok_or("it was exported")?.to_string();
        assert!(text.contains("DriverPoolOptions::shareable"), "{text}");
    }
    // An error leaves the memory unchanged.
    assert!(memory.try_into_exclusive().is_ok());
    let plain = Buffer::filled(&DeviceMemory::new(&setup.context), 10, 1u8, &stream)?.into_shared();
    let wrong = pool.import_buffer::<u8>(&plain.export()?, &stream).err();
    assert!(matches!(wrong, Some(Error::Descriptor(DescriptorError::WrongKind { .. }))), "{wrong:?}");
    Ok(())
}

#[test]
fn an_event_is_not_imported_where_it_was_made() -> Outcome {
    let Some(setup) = setup(Feature::Ipc)? else { return Ok(()) };
    let event = Event::shareable(&setup.context)?;
    let own = Event::import(&setup.context, &event.export()?).err();
    assert!(matches!(own, Some(Error::Descriptor(DescriptorError::OwnProcess { .. }))), "{own:?}");
    Ok(())
}

#[test]
fn elements_keep_their_size_and_alignment() -> Outcome {
    sources(|_, source, stream| {
        let memory = source.shared(&pattern(100, 2), stream)?;
        let import = |descriptor| match source {
            Source::Pool(pool) => pool.import_buffer::<u32>(&descriptor, stream).map(|words| words.len()),
            Source::Plain(memory) => memory.import_buffer::<u32>(&descriptor, stream).map(|words| words.len()),
        };
        assert_eq!(import(memory.slice(4..12)?.export()?), Ok(2));
        assert!(matches!(import(memory.slice(4..11)?.export()?), Err(Error::Misaligned { what: "size", .. })));
        assert!(matches!(import(memory.slice(5..13)?.export()?), Err(Error::Misaligned { what: "address", .. })));
        Ok(())
    })
}

#[test]
fn only_parts_that_were_exported_come_back() -> Outcome {
    sources(|_, source, stream| {
        let whole = source.shared(&pattern(8192, 3), stream)?;
        let (first, last) = (whole.slice(..2000)?.export()?, whole.slice(3000..4096)?.export()?);
        // Every process that has the pool can sign.
        let named = |offset, length| -> Result<Descriptor, Box<dyn StdError>> {
            let other = part(&first, first.offset() + offset, length)?;
            Ok(match source {
                Source::Pool(pool) => signed(&other, pool.export()?.descriptor()),
                Source::Plain(_) => other,
            })
        };
        let import = |descriptor: &Descriptor| match source {
            Source::Pool(pool) => pool.import_buffer::<u8>(descriptor, stream),
            Source::Plain(memory) => memory.import_buffer::<u8>(descriptor, stream),
        };
        for (begin, length) in [(4096, 4096), (4095, 2), (0, 8192), (2000, 1), (1000, 2500)] {
            let refused = import(&named(begin, length)?).err();
            let expected = DescriptorError::NotExported { call: call(source), offset: first.offset() + begin, length };
            assert_eq!(refused, Some(Error::Descriptor(expected)));
        }
        // Each exported part, a part of one and an empty part can be imported; the bytes in between only after their
        // export.
        same("the last part", &import(&last)?.to_vec()?, &pattern(8192, 3)[3000..4096])?;
        for (begin, length) in [(0, 2000), (3000, 1096), (3500, 10), (8192, 0)] {
            let part = import(&named(begin, length)?)?;
            same("a part", &part.to_vec()?, &pattern(8192, 3)[begin as usize..(begin + length) as usize])?;
        }
        whole.slice(1990..3010)?.export()?;
        assert_eq!(import(&named(0, 4096)?)?.to_vec()?, &pattern(8192, 3)[..4096]);
        assert!(import(&named(0, 4097)?).is_err());
        whole.slice(4096..)?.export()?;
        assert_eq!(import(&named(0, 8192)?)?.to_vec()?, pattern(8192, 3));
        Ok(())
    })
}

fn call(source: &Source) -> &'static str {
    match source {
        Source::Pool(_) => "DriverPool::import_buffer",
        Source::Plain(_) => "DeviceMemory::import_buffer",
    }
}

#[test]
fn mapped_memory_is_not_exported_beside_exclusive_parts() -> Outcome {
    let setup = Setup::from_environment()?;
    let resource = MappedMemory::new(&setup.context)?;
    let (left, right) = testkit::mapped(&resource, 8192)?.split_at(4096)?;
    let left = left.into_shared();
    let text = resource.export(&left.slice(100..200)?).err().ok_or("it was exported")?.to_string();
    assert!(text.contains("bytes 100 to 100+100") && text.contains("4096 bytes are in exclusive parts"), "{text}");
    // A part of the rest is still exclusive.
    let (middle, right) = right.split_at(1024)?;
    drop(middle);
    let text = resource.export(&left).err().ok_or("it was exported")?.to_string();
    assert!(text.contains("3072 bytes are in exclusive parts"), "{text}");
    let right = right.into_shared();
    let export = match resource.export(&left) {
        Err(Error::MissingSymbol(missing)) => {
            println!("skipped: {missing}");
            return Ok(());
        }
        other => other?,
    };
    let twin = resource.import::<u8>(export, left.stream())?;
    right.store(0, b"shared by now")?;
    twin.store(0, b"seen")?;
    let mut seen = [0; 4];
    left.load(0, &mut seen)?;
    assert_eq!(&seen, b"seen");
    drop((twin, right));
    assert!(left.try_into_exclusive().is_err(), "another process may still have it");
    // A part that has become exclusive again prevents the export.
    let memory = testkit::mapped(&resource, 4096)?.into_shared();
    let (left, right) = memory.try_into_exclusive()?.split_at(1024)?;
    assert!(resource.export(&left.into_shared()).is_err());
    drop(right);
    Ok(())
}
