//! No operation leaves a file descriptor open, whether it succeeds or not.

use super::roles::Importer;
use super::{Other, Outcome, PATIENCE, at, flipped, forged, setup, shareable};
use cuda_mem::ipc::{Channel, Export, Exported, PoolExport};
use cuda_mem::memory::{DeviceMemory, DevicePool, VirtualMemory, VirtualOptions};
use cuda_mem::{Buffer, Event, Feature, MappedMemory};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

#[test]
fn a_hundred_rounds_leave_no_file_open() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    // Use a second process, in which no other test opens files. It imports a pool of this process.
    let (pool, stream, mut other) =
        (shareable(&setup)?, cuda_mem::Stream::new(&setup.context)?, Other::start("files")?);
    let memory = Buffer::filled(&pool, 100, 1u8, &stream)?.into_shared();
    for _ in 0..2 * ROUNDS {
        other.channel.send(&pool.export()?)?;
        other.channel.send(&memory.export()?)?;
    }
    assert_eq!(other.channel.receive_bytes()?, b"done");
    other.finish()
}

const ROUNDS: usize = 100;

fn open_files() -> Result<usize, std::io::Error> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// Counts open files, after a few rounds that may open files which then stay open.
pub fn flat(what: &str, mut round: impl FnMut() -> Outcome) -> Outcome {
    for _ in 0..ROUNDS / 2 {
        round()?;
    }
    let before = open_files()?;
    for _ in 0..ROUNDS {
        round()?;
    }
    match open_files()? {
        after if after <= before => Ok(()),
        after => Err(format!("{what}: {before} files were open, and now {after}").into()),
    }
}

pub fn play(importer: &mut Importer) -> Outcome {
    let (context, stream) = (importer.setup.context.clone(), importer.stream.clone());
    let (pool, memory) = (shareable(&importer.setup)?, DeviceMemory::new(&context));
    let pooled = Buffer::filled(&pool, 100, 1u8, &stream)?.into_shared();
    let plain = Buffer::filled(&memory, 100, 2u8, &stream)?.into_shared();
    let (mut here, mut there) = Channel::pair()?;

    let mut rounds = 0;
    let mut import = |importer: &mut Importer| -> Outcome {
        let Export::Pool(export) = importer.channel.receive()? else { return Err("no pool".into()) };
        let pool = DevicePool::import(&context, export)?;
        let Export::PoolMemory(descriptor) = importer.channel.receive()? else { return Err("no memory".into()) };
        let memory = pool.import_buffer::<u8>(&descriptor, &stream)?;
        rounds += 1;
        memory.slice(1..)?.export()?;
        drop(pool.export()?);
        Ok(())
    };
    flat("a pool of another process", || import(importer))?;
    // Send the rest.
    while rounds < 2 * ROUNDS {
        rounds += 1;
        importer.channel.receive()?;
        importer.channel.receive()?;
    }

    flat("pools and their memory", || {
        here.send(&pool.export()?)?;
        let Export::Pool(export) = there.receive()? else { return Err("no pool".into()) };
        let import = DevicePool::import(&context, export)?;
        here.send(&pooled.export()?)?;
        let Export::PoolMemory(descriptor) = there.receive()? else { return Err("no memory".into()) };
        drop(import.import_buffer::<u8>(&descriptor, &stream)?);
        Ok(())
    })?;
    flat("plain memory and events", || {
        drop(memory.import_buffer::<u8>(&plain.export()?, &stream)?);
        Event::shareable(&context)?.export()?;
        Ok(())
    })?;
    let mut options = VirtualOptions::default();
    options.shareable = true;
    let virtual_memory = VirtualMemory::new(&context, &options)?;
    let chunk = Buffer::filled(&virtual_memory, 100, 3u8, &stream)?.into_shared();
    flat("virtual memory", || {
        here.send(&virtual_memory.export(&chunk)?)?;
        let Export::VirtualMemory(export) = there.receive()? else { return Err("no virtual memory".into()) };
        drop(virtual_memory.import::<u8>(export, &stream)?);
        Ok(())
    })?;
    let resource = MappedMemory::new(&context)?;
    let mapped = testkit::mapped(&resource, 4096)?.into_shared();
    if resource.export(&mapped).is_ok() {
        flat("mapped memory", || {
            here.send(&resource.export(&mapped)?)?;
            let Export::Mapped(export) = there.receive()? else { return Err("no mapped memory".into()) };
            drop(resource.import::<u8>(export, &stream)?);
            Ok(())
        })?;
    }
    flat("refused imports", || {
        let (file, descriptor) = pool.export()?.into_parts();
        let refused = DevicePool::import(&context, PoolExport::from_parts(file, flipped(&descriptor, at::DEVICE)?));
        assert!(refused.is_err());
        let foreign = std::fs::File::open("/dev/null")?.into();
        let descriptor = flipped(pool.export()?.descriptor(), at::NONCE)?;
        let refused = DevicePool::import(&context, PoolExport::from_parts(foreign, descriptor));
        assert!(refused.is_err());
        Ok(())
    })?;
    let files = [pool.export()?, pool.export()?];
    flat("files that belong to nothing", || {
        // A pool comes with exactly one file, and memory with none.
        let (one, other) = UnixStream::pair()?;
        let mut there = Channel::from_stream(other)?;
        there.set_timeout(Some(PATIENCE));
        // The numbers of the kinds, and the numbers of files that they need.
        for kind in [[1, 0, 1, 0], [2, 0, 0, 0]] {
            let descriptor = forged(files[0].descriptor(), at::KIND, &kind)?;
            let fds: Vec<BorrowedFd<'_>> = files.iter().flat_map(Exported::file_descriptors).collect();
            super::channel::send_raw(&one, &super::channel::frame(&descriptor.to_bytes()), &fds)?;
            assert!(there.receive().is_err());
        }
        // A message that ends in the middle, with a file.
        let bytes = super::channel::frame(&files[0].descriptor().to_bytes());
        super::channel::send_raw(&one, &bytes[..20], &files[0].file_descriptors())?;
        drop(one);
        assert!(there.receive().is_err());
        Ok(())
    })?;
    importer.channel.send_bytes(b"done")?;
    Ok(())
}
