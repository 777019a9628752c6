//! The C library on either side: it exports to a cuda-mem process, and imports cuda-mem's exports.

use super::files::flat;
use super::{Other, Outcome, PATIENCE, inverted, pattern, same, setup};
use cuda_mem::Feature;
use cuda_mem::ipc::{Descriptor, MAX_MESSAGE};
use cudamem::resource::{
    CUDAMEM_DRIVER_POOL_ON_NUMA_NODE, CUDAMEM_DRIVER_POOL_SHAREABLE, CUDAMEM_MEMORY_DEVICE, CUDAMEM_MEMORY_PINNED,
};
use cudamem::sharing::*;
use cudamem::status::{
    CUDAMEM_ERROR_CHANNEL, CUDAMEM_ERROR_CLOSED, CUDAMEM_ERROR_DESCRIPTOR, CUDAMEM_ERROR_MISSING_SYMBOL,
    CUDAMEM_ERROR_UNSUPPORTED,
};
use cudamem::virtual_memory::{CUDAMEM_LOCATION_DEVICE, CUDAMEM_PHYSICAL_SHAREABLE};
use std::os::fd::{AsFd, AsRawFd};
use testkit::c_objects::{Buffer, Channel, Context, Export, Failure, Resource, Stream};
use testkit::descriptors::{self, at};
use testkit::joined;

/// Runs a role with the C library.
pub fn play(role: &str) -> Outcome {
    let channel = Channel::open(std::io::stdin().as_fd().as_raw_fd(), PATIENCE.as_secs_f64())?;
    let context = Context::open()?;
    match role {
        "mirror" => mirror(&context, &channel),
        "twice" => twice(&context, &channel),
        "threads" => threads(&context, &channel),
        "forged" => forged(&context, &channel),
        "files" => files(&context, &channel),
        other => Err(format!("{other} is not a role of the C library").into()),
    }
}

/// Receives memory, and the pool before it if one comes. Returns the resource that imports the memory, whether it is a
/// pool, and the export.
fn receive(context: &Context, channel: &Channel) -> Result<(Resource, bool, Export), Failure> {
    let mut source = (context.device_memory()?, false);
    loop {
        let export = channel.receive()?;
        if export.info()?.kind != CUDAMEM_EXPORT_POOL {
            return Ok((source.0, source.1, export));
        }
        source = (context.import_pool(&export)?, true);
    }
}

fn contents(buffer: &Buffer) -> Result<Vec<u8>, Failure> {
    let mut seen = vec![0; buffer.size()?];
    buffer.read(0, &mut seen)?;
    Ok(seen)
}

fn twice(context: &Context, channel: &Channel) -> Outcome {
    let (stream, other_stream) = (context.stream()?, context.stream()?);
    let (source, _, export) = receive(context, channel)?;
    let (one, two) = (source.import_buffer(&export, &stream)?, source.import_buffer(&export, &other_stream)?);
    assert_eq!(one.device_pointer()?, two.device_pointer()?);
    drop(one);
    stream.synchronize()?;
    same("after the first end", &contents(&two)?, &pattern(5000, 8))?;
    drop(two);
    other_stream.synchronize()?;
    same("imported anew", &contents(&source.import_buffer(&export, &stream)?)?, &pattern(5000, 8))?;
    stream.synchronize()?;
    channel.send_bytes(b"done")?;
    Ok(())
}

fn threads(context: &Context, channel: &Channel) -> Outcome {
    let (source, _, export) = receive(context, channel)?;
    let work = || -> Result<(), Failure> {
        let stream = context.stream()?;
        for _ in 0..50 {
            let memory = source.import_buffer(&export, &stream)?;
            assert_eq!(contents(&memory)?, pattern(5000, 8));
        }
        stream.synchronize()
    };
    std::thread::scope(|scope| {
        let threads = (0..4).map(|_| scope.spawn(work));
        joined(threads).map(drop)
    })?;
    channel.send_bytes(b"done")?;
    Ok(())
}

/// The importer tries everything that a malicious sender could send.
fn forged(context: &Context, channel: &Channel) -> Outcome {
    let stream = context.stream()?;
    let (source, pooled, export) = receive(context, channel)?;
    let good = Descriptor::from_bytes(&export.bytes()?)?;
    let number = |at: usize, value: u64| descriptors::forged(&good, at, &value.to_le_bytes());
    let mut lies = vec![
        descriptors::flipped(&good, at::DEVICE),
        descriptors::forged(&good, at::KIND, &[4, 0, 1, 0]),
        descriptors::forged(&good, at::FILES, &[1]),
        number(at::OFFSET, good.size()),
        number(at::LENGTH, good.size() + 1),
        number(at::SIZE, 1 << 30),
        number(at::SIZE, u64::MAX),
    ];
    if pooled {
        // Real drivers crash on some of these, so none may reach the driver.
        lies.extend((at::PAYLOAD..at::TAG + 16).chain([at::POOL]).map(|at| descriptors::flipped(&good, at)));
    }
    for (index, lie) in lies.into_iter().enumerate() {
        // cuda-mem has already refused bytes that are not a descriptor.
        let Ok(lie) = lie else { continue };
        let refused = match Export::create(&lie.to_bytes(), &[]) {
            // The descriptor needs files, which are missing.
            Err(failure) if failure.status == CUDAMEM_ERROR_CHANNEL => continue,
            made => made.and_then(|lie| source.import_buffer(&lie, &stream)),
        };
        let status = refused.err().map(|failure| failure.status);
        assert_eq!(status, Some(CUDAMEM_ERROR_DESCRIPTOR), "lie {index}");
    }
    let mut part = descriptors::part(&good, 10, 90)?;
    if pooled {
        let pool = Descriptor::from_bytes(&source.export()?.bytes()?)?;
        part = descriptors::signed(&part, &pool);
    }
    let part = Export::create(&part.to_bytes(), &[])?;
    same("a part", &contents(&source.import_buffer(&part, &stream)?)?, &pattern(5000, 8)[10..100])?;
    channel.send_bytes(b"done")?;
    Ok(())
}

/// Runs in its own process, in which no other test opens files.
fn files(context: &Context, channel: &Channel) -> Outcome {
    let (stream, (here, there)) = (context.stream()?, Channel::pair()?);
    let pool = context.driver_pool(CUDAMEM_MEMORY_DEVICE, CUDAMEM_DRIVER_POOL_SHAREABLE)?;
    let (mapped_source, virtual_memory) =
        (context.mapped_memory(0)?, context.virtual_memory(CUDAMEM_LOCATION_DEVICE, CUDAMEM_PHYSICAL_SHAREABLE)?);
    let (pooled, mapped) = (pool.allocate(100, &stream)?, mapped_source.allocate(100, &stream)?);
    let chunk = virtual_memory.allocate(100, &stream)?;
    let null = std::fs::File::open("/dev/null")?;
    flat("exports and channels of the C library", || {
        here.send(&pool.export()?)?;
        here.send(&pooled.export()?)?;
        here.send(&chunk.export_of(&virtual_memory)?)?;
        let again = context.import_pool(&there.receive()?)?;
        again.import_buffer(&there.receive()?, &stream)?;
        virtual_memory.import_buffer(&there.receive()?, &stream)?;
        if let Ok(export) = mapped.export_of(&mapped_source) {
            here.send(&export)?;
            mapped_source.import_buffer(&there.receive()?, &stream)?;
        }
        // Builds an export from parts. It is refused with one file too many, with another's file, and as another kind.
        let export = pool.export()?;
        let (bytes, files) = (export.bytes()?, export.files()?);
        context.import_pool(&Export::create(&bytes, &files)?)?;
        assert!(Export::create(&bytes, &[files[0], files[0]]).is_err());
        assert!(Export::create(&bytes[..100], &files).is_err());
        assert!(mapped_source.import_buffer(&Export::create(&bytes, &[null.as_raw_fd()])?, &stream).is_err());
        assert!(Channel::open(null.as_raw_fd(), 1.0).is_err());
        here.send_bytes(b"bytes")?;
        assert!(there.receive().is_err());
        let (one, other) = Channel::pair()?;
        one.send(&export)?;
        drop((one, other));
        Ok(())
    })?;
    channel.send_bytes(b"done")?;
    Ok(())
}

#[test]
fn a_hundred_rounds_with_the_c_library_leave_no_file_open() -> Outcome {
    let Some(_setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let mut other = Other::start("c_files")?;
    assert_eq!(other.channel.receive_bytes()?, b"done");
    other.finish()
}

fn mirror(context: &Context, channel: &Channel) -> Outcome {
    let (stream, device) = (context.stream()?, context.device_memory()?);
    let (mut pool, mut virtual_memory) = (None, None);
    loop {
        let export = match channel.receive() {
            // The bytes are not a descriptor.
            Err(failure) if failure.status == CUDAMEM_ERROR_DESCRIPTOR => return Ok(()),
            other => other?,
        };
        let seen = match export.info()?.kind {
            CUDAMEM_EXPORT_POOL => {
                pool = Some(context.import_pool(&export)?);
                continue;
            }
            CUDAMEM_EXPORT_MAPPED => {
                let memory = context.mapped_memory(0)?.import_buffer(&export, &stream)?;
                let mut seen = vec![0; memory.size()?];
                memory.load(0, &mut seen)?;
                memory.store(0, &inverted(&seen))?;
                seen
            }
            kind => {
                let source = match kind {
                    CUDAMEM_EXPORT_POOL_MEMORY => pool.as_ref(),
                    CUDAMEM_EXPORT_VIRTUAL_MEMORY => {
                        Some(&*virtual_memory.insert(context.virtual_memory(CUDAMEM_LOCATION_DEVICE, 0)?))
                    }
                    _ => Some(&device),
                };
                let memory = source.ok_or("the pool comes first")?.import_buffer(&export, &stream)?;
                let mut seen = vec![0; memory.size()?];
                memory.read(0, &mut seen)?;
                memory.write(0, &inverted(&seen))?;
                memory.synchronize()?;
                seen
            }
        };
        channel.send_bytes(&(seen.len() as u64).to_le_bytes())?;
        seen.chunks(MAX_MESSAGE).try_for_each(|piece| channel.send_bytes(piece))?;
        channel.send_bytes(b"inverted")?;
    }
}

/// The C library's end of the channel to another process.
fn channel_to(other: &Other) -> Result<Channel, Failure> {
    Channel::open(other.channel.as_fd().as_raw_fd(), PATIENCE.as_secs_f64())
}

/// Sends a resource's memory, and a part of it, to a process that mirrors it.
fn share(resource: &Resource, is_virtual: bool, stream: &Stream, other: &mut Other, channel: &Channel) -> Outcome {
    let mut bytes = pattern(10_000, 4);
    let memory = resource.allocate(bytes.len(), stream)?;
    memory.write(0, &bytes)?;
    let part = memory.slice(1000, 4003)?;
    let export = if is_virtual { part.export_of(resource) } else { part.export() };
    channel.send(&export?)?;
    other.mirrored(&bytes[1000..5003])?;
    let part = inverted(&bytes[1000..5003]);
    bytes[1000..5003].copy_from_slice(&part);
    let mut seen = vec![0; bytes.len()];
    memory.read(0, &mut seen)?;
    same("the whole", &seen, &bytes)?;
    Ok(())
}

#[test]
fn cuda_mem_imports_what_the_c_library_exports() -> Outcome {
    let Some(_setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let context = Context::open()?;
    let (stream, mut other) = (context.stream()?, Other::start("mirror")?);
    let channel = channel_to(&other)?;
    share(&context.device_memory()?, false, &stream, &mut other, &channel)?;
    let pool = context.driver_pool(CUDAMEM_MEMORY_DEVICE, CUDAMEM_DRIVER_POOL_SHAREABLE)?;
    channel.send(&pool.export()?)?;
    share(&pool, false, &stream, &mut other, &channel)?;

    match context.virtual_memory(CUDAMEM_LOCATION_DEVICE, CUDAMEM_PHYSICAL_SHAREABLE) {
        Err(failure) if failure.status == CUDAMEM_ERROR_UNSUPPORTED => println!("skipped: {failure}"),
        memory => share(&memory?, true, &stream, &mut other, &channel)?,
    }

    let bytes = pattern(8192, 5);
    let resource = context.mapped_memory(0)?;
    let mapped = resource.allocate(bytes.len(), &stream)?;
    mapped.store(0, &bytes)?;
    match mapped.slice(100, 1000)?.export_of(&resource) {
        Err(failure) if failure.status == CUDAMEM_ERROR_MISSING_SYMBOL => println!("skipped: {failure}"),
        export => {
            channel.send(&export?)?;
            other.mirrored(&bytes[100..1100])?;
            let mut seen = vec![0; bytes.len()];
            mapped.load(0, &mut seen)?;
            same("beside the part", &seen[..100], &bytes[..100])?;
            same("what it wrote", &seen[100..1100], &inverted(&bytes[100..1100]))?;
        }
    }
    other.channel.send_bytes(b"end")?;
    other.finish()
}

/// A pool of host memory is imported as such, here in the process that made it.
#[test]
fn a_pool_on_a_numa_node_is_shared() -> Outcome {
    let Some(_setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let context = Context::open()?;
    let flags = CUDAMEM_DRIVER_POOL_SHAREABLE | CUDAMEM_DRIVER_POOL_ON_NUMA_NODE;
    let pool = match context.driver_pool(CUDAMEM_MEMORY_PINNED, flags) {
        Err(failure) => {
            println!("skipped: {failure}");
            return Ok(());
        }
        Ok(pool) => pool,
    };
    let export = pool.export()?;
    assert_eq!((export.info()?.kind, export.info()?.numa_node), (CUDAMEM_EXPORT_POOL, 0));
    let again = context.import_pool(&export)?;
    assert_eq!(again.access()?, pool.access()?);
    let stream = context.stream()?;
    let memory = pool.allocate(100, &stream)?;
    let twin = again.import_buffer(&memory.export()?, &stream)?;
    assert_eq!(twin.host_pointer()?, memory.host_pointer()?);
    Ok(())
}

#[test]
fn a_process_that_is_killed_closes_the_c_library_s_channel() -> Outcome {
    let Some(_setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let context = Context::open()?;
    for killed in [false, true] {
        let mut other = Other::start("exporter")?;
        let (channel, stream) = (channel_to(&other)?, context.stream()?);
        let pool = context.import_pool(&channel.receive()?)?;
        let memory = pool.import_buffer(&channel.receive()?, &stream)?;
        let mut seen = vec![0; memory.size()?];
        memory.read(0, &mut seen)?;
        same("before", &seen, &pattern(4000, 1))?;
        if killed {
            other.kill()?;
            let closed = channel.receive().err().map(|failure| failure.status);
            assert_eq!(closed, Some(CUDAMEM_ERROR_CLOSED));
            // Nothing freed it.
            memory.read(0, &mut seen)?;
            same("after", &seen, &pattern(4000, 1))?;
        } else {
            channel.send_bytes(b"end")?;
            other.finish()?;
            // Its contents are undefined now, but it is still mapped.
            memory.read(0, &mut seen)?;
        }
    }
    Ok(())
}
