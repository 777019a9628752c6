//! Pools and memory by the driver's own handles: a file, and 64 bytes.

use super::roles::Importer;
use super::{Other, Outcome, inverted, nothing_dropped, pattern, same, setup, shareable};
use cuda_mem::ipc::{DescriptorError as Wrong, Export, PoolExport};
use cuda_mem::memory::{DevicePool, DriverPoolOptions, PinnedPool};
use cuda_mem::{Buffer, Error, Event, EventOptions, Feature, Stream, Support};

const SIZE: usize = 5000;

#[test]
fn another_process_works_on_memory_by_the_drivers_handles() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let (pool, stream, mut other) = (shareable(&setup)?, Stream::new(&setup.context)?, Other::start("bare")?);
    let bytes = pattern(SIZE, 8);
    let memory = Buffer::from_slice(&pool, &bytes, &stream)?;
    stream.synchronize()?;
    // The channel sends the file. What is beside it is not used.
    other.channel.send(&PoolExport::from_parts(pool.export_file()?, *pool.export()?.descriptor()))?;
    other.channel.send_bytes(&pool.export_address(memory.device_pointer())?)?;
    assert_eq!(other.channel.receive_bytes()?, b"done");
    other.finish()?;
    same("the memory", &memory.to_vec()?, &inverted(&bytes))?;
    drop(memory);
    nothing_dropped(&setup)
}

/// The importer. Repeated imports must share one pool and one mapping.
pub fn play(importer: &mut Importer) -> Outcome {
    let (context, stream) = (importer.setup.context.clone(), importer.stream.clone());
    let Export::Pool(export) = importer.channel.receive()? else { return Err("no pool".into()) };
    let (file, descriptor) = export.into_parts();
    let pool = DevicePool::import_file(&context, file.try_clone()?)?;
    assert!(pool.is_imported());
    assert_eq!(DevicePool::import_file(&context, file.try_clone()?)?, pool);
    let known = DevicePool::import(&context, PoolExport::from_parts(file.try_clone()?, descriptor)).err();
    assert!(matches!(known, Some(Error::Descriptor(Wrong::Conflict { .. }))), "{known:?}");
    let of_host = PinnedPool::import_file(&context, file).err();
    assert!(matches!(of_host, Some(Error::Descriptor(Wrong::WrongPlace { .. }))), "{of_host:?}");

    let handle: [u8; 64] = importer.channel.receive_bytes()?.try_into().map_err(|_| "not 64 bytes")?;
    // SAFETY: the bytes are the exporter's, which keeps the memory until it receives "done".
    let import = |size| unsafe { pool.import_address(&handle, size, &stream) };
    let (one, mut two) = (import(SIZE)?, import(SIZE)?);
    assert_eq!(one.device_pointer(), two.device_pointer());
    let larger = import(1 << 30).err();
    assert!(matches!(larger, Some(Error::Descriptor(Wrong::TooLarge { .. }))), "{larger:?}");
    drop(one);
    let seen = two.to_vec()?;
    same("what the exporter wrote", &seen, &pattern(SIZE, 8))?;
    two.copy_from_slice(0, &inverted(&seen))?;
    stream.synchronize()?;
    drop((two, pool));
    stream.synchronize()?;
    importer.channel.send_bytes(b"done")?;
    Ok(())
}

#[test]
fn the_maker_of_a_pool_gets_it_again_by_its_file() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let (pool, stream) = (shareable(&setup)?, Stream::new(&setup.context)?);
    let again = DevicePool::import_file(&setup.context, pool.export_file()?)?;
    assert_eq!((&again, again.is_imported()), (&pool, false));
    let memory = Buffer::from_slice(&pool, &[1u8, 2], &stream)?;
    let handle = pool.export_address(memory.device_pointer())?;
    // SAFETY: the bytes are the pool's own.
    let refused = unsafe { pool.import_address(&handle, 2, &stream) }.err();
    assert!(matches!(refused, Some(Error::Descriptor(Wrong::OwnProcess { .. }))), "{refused:?}");
    let private = DevicePool::new(&setup.context, &DriverPoolOptions::default())?;
    assert!(matches!(private.export_file(), Err(Error::InvalidArgument { .. })));
    Ok(())
}

#[test]
fn events_have_the_options_that_they_are_made_with() -> Outcome {
    let Some(setup) = setup(Feature::Ipc)? else { return Ok(()) };
    let mut options = EventOptions::default();
    (options.shareable, options.blocking_sync) = (true, true);
    let event = Event::with_options(&setup.context, options)?;
    event.record(&Stream::new(&setup.context)?)?;
    event.synchronize()?;
    event.export()?;
    options.timing = true;
    let refused = Event::with_options(&setup.context, options).err();
    assert!(matches!(refused, Some(Error::InvalidArgument { .. })), "{refused:?}");
    options.shareable = false;
    let (stream, first) = (Stream::new(&setup.context)?, Event::with_options(&setup.context, options)?);
    first.record(&stream)?;
    let second = Event::with_options(&setup.context, options)?;
    second.record(&stream)?;
    second.synchronize()?;
    first.elapsed(&second)?;
    assert_eq!(setup.context.device().supports(Feature::Ipc)?, Support::Yes);
    Ok(())
}
