//! Pools of host memory, in two processes.

use super::roles::Importer;
use super::{Other, Outcome, at, flipped, forged, inverted, nothing_dropped, pattern, same, setup, shareable};
use cuda_mem::ipc::{DescriptorError as Wrong, Export, PoolExport};
use cuda_mem::memory::{DevicePool, DriverPoolOptions, PinnedPool, PoolAccess};
use cuda_mem::{Buffer, Error, Feature, Stream, Support};
use testkit::Setup;

type Pinned = (Setup, PinnedPool, Stream);

/// A pool that can be shared, if there are such pools.
fn pinned() -> Result<Option<Pinned>, Box<dyn std::error::Error>> {
    let Some(setup) = setup(Feature::HostNumaPools)? else { return Ok(None) };
    if setup.context.device().supports(Feature::SharedPools)? == Support::No {
        println!("skipped: the device shares no pools; run it on one that does");
        return Ok(None);
    }
    let mut options = DriverPoolOptions::default();
    options.shareable = true;
    let pool = PinnedPool::on_numa_node(&setup.context, 0, &options)?;
    let stream = Stream::new(&setup.context)?;
    Ok(Some((setup, pool, stream)))
}

#[test]
fn another_process_works_on_host_memory_of_a_pool() -> Outcome {
    let Some((setup, pool, stream)) = pinned()? else { return Ok(()) };
    let mut other = Other::start("pinned")?;
    let export = pool.export()?;
    assert_eq!(export.numa_node(), Some(0));
    other.channel.send(&export)?;
    let bytes = pattern(5000, 8);
    let memory = Buffer::from_slice(&pool, &bytes, &stream)?.into_shared();
    other.channel.send(&memory.slice(100..)?.export()?)?;
    assert_eq!(other.channel.receive_bytes()?, b"done");
    other.finish()?;
    let mut expected = bytes.clone();
    expected[100..].copy_from_slice(&inverted(&bytes[100..]));
    expected[100..200].fill(0x5a);
    same("the memory", &memory.to_vec()?, &expected)?;
    drop(memory);
    nothing_dropped(&setup)
}

/// The importer. Its device and its copies must reach the memory, and repeated imports must use one mapping.
pub fn play(importer: &mut Importer) -> Outcome {
    let (context, stream) = (importer.setup.context.clone(), importer.stream.clone());
    let Export::Pool(export) = importer.channel.receive()? else { return Err("no pool".into()) };
    let again = export.try_clone()?;
    let pool = PinnedPool::import(&context, export)?;
    assert!(pool.is_imported());
    assert_eq!(PinnedPool::import(&context, again)?, pool);
    assert_eq!(pool.access(context.device())?, PoolAccess::ReadWrite);
    let refused = Buffer::<u8, _>::zeroed(&pool, 100, &stream).err();
    assert!(matches!(refused, Some(Error::ImportedPool { .. })), "{refused:?}");

    let Export::PoolMemory(descriptor) = importer.channel.receive()? else { return Err("no memory".into()) };
    // The driver returns ALREADY_MAPPED if such memory is imported twice.
    let (one, mut two) = (pool.import_buffer::<u8>(&descriptor, &stream)?, pool.import_buffer(&descriptor, &stream)?);
    assert_eq!(one.device_pointer(), two.device_pointer());
    same("what is there", &one.to_vec()?, &pattern(5000, 8)[100..])?;
    drop(one);
    stream.synchronize()?;
    two.copy_from_slice(0, &inverted(&two.to_vec()?))?;
    // The device writes, which needs access.
    two.fill(..100, 0x5a)?;
    two.synchronize()?;
    // Every changed byte of the handle must be refused.
    for at in at::PAYLOAD..at::TAG + 16 {
        let wrong = pool.import_buffer::<u8>(&flipped(&descriptor, at)?, &stream).err();
        assert!(matches!(wrong, Some(Error::Descriptor(Wrong::Forged { .. }))), "byte {at}: {wrong:?}");
    }
    // The export can be passed on.
    assert_eq!(pool.export()?.numa_node(), Some(0));
    importer.channel.send_bytes(b"done")?;
    Ok(())
}

#[test]
fn a_pool_is_imported_only_as_what_it_is() -> Outcome {
    let Some((setup, pinned, _stream)) = pinned()? else { return Ok(()) };
    let (context, device) = (&setup.context, shareable(&setup)?);
    assert_eq!(device.export()?.numa_node(), None);
    let place = |error: Option<Error>| matches!(error, Some(Error::Descriptor(Wrong::WrongPlace { .. })));
    assert!(place(DevicePool::import(context, pinned.export()?).err()));
    assert!(place(PinnedPool::import(context, device.export()?).err()));
    // The driver detects a false location. Otherwise the CPU would fault on a device's memory.
    let lie = |export: PoolExport, host: u8| -> Result<PoolExport, Wrong> {
        let (file, descriptor) = export.into_parts();
        let descriptor = forged(&flipped(&descriptor, at::NONCE)?, at::PAYLOAD + 32, &[host])?;
        Ok(PoolExport::from_parts(file, descriptor))
    };
    assert!(place(PinnedPool::import(context, lie(device.export()?, 1)?).err()));
    assert!(place(DevicePool::import(context, lie(pinned.export()?, 0)?).err()));
    nothing_dropped(&setup)
}
