//! Forges every field of every kind of descriptor, and every pair of fields, and also recomputes the tag, as every
//! process that has the pool can. When the descriptors return to the exporter or reach an importer, they must reach
//! only the named memory.

use super::roles::Importer;
use super::{Other, Outcome, at, checked, flipped, part, same, shareable, signed};
use cuda_mem::ipc::{Descriptor, DescriptorError as Wrong, Export, ExportKind, Exported, PoolExport};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DevicePool, DriverPoolOptions, PinnedPool, ResourceHandle, SharedResource, VirtualMemory,
    VirtualOptions,
};
use cuda_mem::{Buffer, Error, Event, MappedMemory, SharedBuffer, Stream};
use std::error::Error as StdError;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use testkit::Setup;

/// The forged parts of a descriptor's bytes: offset and length of each.
const FIELDS: [(usize, usize); 15] = [
    (at::KIND, 2),
    (at::FILES, 4),
    (at::DEVICE, 16),
    (at::POOL, 16),
    (at::PROCESS, 4),
    (at::NONCE, 8),
    (at::NUMBER, 8),
    (at::SIZE, 8),
    (at::OFFSET, 8),
    (at::LENGTH, 8),
    (at::PAYLOAD, 64),
    (at::PAYLOAD, 16),
    (at::PAYLOAD + 16, 16),
    (at::PAYLOAD + 32, 8),
    (at::TAG, 16),
];
const SIZE: usize = 4096;
/// The exported part of the shared memory.
const PART: core::ops::Range<usize> = 1000..2000;
const MINE: u8 = 7;
const THEIRS: u8 = 9;

/// The objects with which a process imports, and memory that no other process may write.
struct World {
    stream: Stream,
    setup: Setup,
    devices: Vec<DevicePool>,
    pinned: Vec<PinnedPool>,
    plain: DeviceMemory,
    virtual_memory: Vec<VirtualMemory<Any>>,
    mapped: Option<MappedMemory>,
    /// Exclusive buffers.
    exclusive: Vec<Buffer<u8, Any>>,
    /// Buffers of which a part is exported, from sources that can export parts.
    shared: Vec<SharedBuffer<u8, Any>>,
    /// Buffers that are exported whole.
    whole: Vec<SharedBuffer<u8, Any>>,
    whole_mapped: Option<testkit::SharedMapped>,
    event: Event,
    /// Whether this process is the exporter, which imports its own memory.
    is_exporter: bool,
}

fn supported<T>(what: &str, made: Result<T, Error>) -> Result<Option<T>, Error> {
    match made {
        Err(error @ (Error::Unsupported { .. } | Error::Vkgdr { .. } | Error::Load(_))) => {
            println!("skipped: {what}: {error}");
            Ok(None)
        }
        made => made.map(Some),
    }
}

impl World {
    fn new(setup: &Setup, is_exporter: bool) -> Result<Self, Error> {
        let (context, stream) = (&setup.context, Stream::new(&setup.context)?);
        let (mut shareable, mut options) = (DriverPoolOptions::default(), VirtualOptions::default());
        (shareable.shareable, options.shareable) = (true, true);
        let devices = supported("pools", DevicePool::new(context, &shareable))?.into_iter().collect();
        let pinned = supported("pools of the host", PinnedPool::on_numa_node(context, 0, &shareable))?;
        let virtual_memory = [
            supported("virtual memory", VirtualMemory::new(context, &options).map(VirtualMemory::into_any))?,
            supported("that of the host", VirtualMemory::host_numa(context, 0, &options).map(VirtualMemory::into_any))?,
        ];
        let mut world = Self {
            setup: setup.clone(),
            devices,
            pinned: pinned.into_iter().collect(),
            plain: DeviceMemory::new(context),
            virtual_memory: virtual_memory.into_iter().flatten().collect(),
            mapped: supported("mapped memory", MappedMemory::new(context))?,
            exclusive: Vec::new(),
            shared: Vec::new(),
            whole: Vec::new(),
            whole_mapped: None,
            event: Event::shareable(context)?,
            is_exporter,
            stream,
        };
        let mut sources: Vec<SharedResource> = vec![world.plain.share()];
        sources.extend(world.devices.iter().map(ResourceHandle::share));
        sources.extend(world.pinned.iter().map(ResourceHandle::share));
        let fill = |source: &SharedResource| Buffer::<u8, Any>::filled(source, SIZE, MINE, &world.stream);
        let virtual_sources: Vec<_> = world.virtual_memory.iter().map(ResourceHandle::share).collect();
        let mapped_sources: Vec<_> = world.mapped.iter().map(ResourceHandle::share).collect();
        // Allocate exclusive memory before and after the shared memory.
        let all = || sources.iter().chain(&virtual_sources).chain(&mapped_sources);
        let before = all().map(fill).collect::<Result<Vec<_>, _>>()?;
        let shared = sources.iter().map(|source| Ok(fill(source)?.into_shared())).collect::<Result<_, Error>>()?;
        let whole =
            virtual_sources.iter().map(|source| Ok(fill(source)?.into_shared())).collect::<Result<_, Error>>()?;
        let after = all().map(fill).collect::<Result<Vec<_>, _>>()?;
        let whole_mapped = world.mapped.as_ref().map(|mapped| testkit::mapped(mapped, SIZE)).transpose()?;
        world.exclusive = before.into_iter().chain(after).collect();
        (world.shared, world.whole) = (shared, whole);
        world.whole_mapped = whole_mapped.map(testkit::MappedBuffer::into_shared);
        Ok(world)
    }

    /// Everything that this process exports.
    fn exports(&self) -> Result<Vec<Export>, Error> {
        let mut all = Vec::new();
        for pool in &self.devices {
            all.push(Export::Pool(pool.export()?));
        }
        for pool in &self.pinned {
            all.push(Export::Pool(pool.export()?));
        }
        for memory in &self.shared {
            let descriptor = memory.slice(PART)?.export()?;
            all.push(Export::from_parts(&descriptor.to_bytes(), Vec::new())?);
        }
        for (memory, buffer) in self.virtual_memory.iter().zip(&self.whole) {
            all.push(Export::VirtualMemory(memory.export(&buffer.slice(PART)?)?));
        }
        if let (Some(resource), Some(memory)) = (&self.mapped, &self.whole_mapped) {
            match resource.export(&memory.slice(PART)?) {
                Err(Error::MissingSymbol(missing)) => println!("skipped: {missing}"),
                export => all.push(Export::Mapped(export?)),
            }
        }
        all.push(Export::from_parts(&self.event.export()?.to_bytes(), Vec::new())?);
        Ok(all)
    }

    /// Imports in all possible ways, and writes the memory that it reaches. Returns how often it reached memory.
    fn attempt(&self, export: &Export) -> Result<usize, Box<dyn StdError>> {
        let (context, mut reached) = (&self.setup.context, 0);
        let mut write = |memory: Result<SharedBuffer<u8, Any>, Error>| -> Outcome {
            let Ok(mut memory) = memory else { return Ok(()) };
            reached += 1;
            memory.fill(.., THEIRS)?;
            memory.synchronize()?;
            drop(memory);
            self.stream.synchronize()?;
            Ok(())
        };
        let descriptor = export.descriptor();
        match export.try_clone()? {
            Export::Pool(export) => {
                let again = export.try_clone()?;
                let imported = DevicePool::import(context, export).map(|pool| pool.is_imported());
                let pinned = PinnedPool::import(context, again).map(|pool| pool.is_imported());
                for is_imported in [imported, pinned].into_iter().flatten() {
                    reached += 1;
                    assert_ne!(is_imported, self.is_exporter, "a second way to memory of its own: {descriptor:?}");
                }
            }
            Export::PoolMemory(memory) => {
                for pool in &self.devices {
                    write(pool.import_buffer::<u8>(&memory, &self.stream).map(SharedBuffer::into_any))?;
                }
                for pool in &self.pinned {
                    write(pool.import_buffer::<u8>(&memory, &self.stream).map(SharedBuffer::into_any))?;
                }
            }
            Export::DeviceMemory(memory) => {
                write(self.plain.import_buffer::<u8>(&memory, &self.stream).map(SharedBuffer::into_any))?;
            }
            Export::VirtualMemory(export) => {
                for memory in &self.virtual_memory {
                    write(memory.import::<u8>(export.try_clone()?, &self.stream))?;
                }
            }
            Export::Mapped(export) => {
                if let Some(memory) =
                    self.mapped.as_ref().and_then(|mapped| mapped.import::<u8>(export, &self.stream).ok())
                {
                    reached += 1;
                    memory.store(0, &vec![THEIRS; memory.len()])?;
                }
            }
            Export::Event(event) => reached += usize::from(Event::import(context, &event).is_ok()),
            other => return Err(format!("{other:?}").into()),
        }
        Ok(reached)
    }

    /// Checks that only the exported memory was written.
    fn check(&self) -> Outcome {
        for buffer in &self.exclusive {
            same("exclusive memory", &buffer.to_vec()?, &[MINE; SIZE])?;
        }
        for memory in &self.shared {
            same("before the exported part", &memory.slice(..PART.start)?.to_vec()?, &[MINE; PART.start])?;
            same("behind it", &memory.slice(PART.end..)?.to_vec()?, &[MINE; SIZE - PART.end])?;
        }
        Ok(())
    }
}

/// Values from the same fields of other descriptors, and values that no descriptor has.
fn values((begin, length): (usize, usize), good: &Descriptor, others: &[Descriptor]) -> Vec<Vec<u8>> {
    let own = good.to_bytes()[begin..begin + length].to_vec();
    let mut flipped = own.clone();
    flipped[0] ^= 1;
    let mut all = vec![flipped, vec![0; length]];
    if length == 8 {
        all.push((SIZE as u64).to_le_bytes().to_vec());
        all.push((1_u64 << 40).to_le_bytes().to_vec());
    }
    let others = others.iter().filter(|other| other.kind() == good.kind()).chain(others);
    all.extend(others.map(|other| other.to_bytes()[begin..begin + length].to_vec()).take(4));
    let mut distinct: Vec<Vec<u8>> = Vec::new();
    for value in all {
        if value != own && !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// Forges each field and each pair of fields of each export, and tries to import the result.
fn forge(world: &World, exports: &[Export]) -> Outcome {
    let descriptors: Vec<Descriptor> = exports.iter().map(Exported::descriptor).collect();
    let pools: Vec<&Descriptor> = descriptors.iter().filter(|one| one.kind() == ExportKind::Pool).collect();
    let (mut tried, mut reached) = (0, 0);
    for export in exports {
        let (good, message) = (export.descriptor(), export.message());
        // Drivers crash on changed handles of pools that are signed correctly. Only a process that has the pool can
        // sign them.
        let spared = |field: (usize, usize)| {
            good.kind() == ExportKind::PoolMemory
                && !world.setup.is_software()
                && (at::PAYLOAD..at::TAG).contains(&field.0)
        };
        let mut attempt = |bytes: [u8; Descriptor::SIZE], may_sign: bool| -> Outcome {
            let Ok(forged) = checked(bytes) else { return Ok(()) };
            let mut all = vec![forged];
            if may_sign && forged.kind() == ExportKind::PoolMemory {
                all.extend(pools.iter().map(|pool| signed(&forged, pool)));
            }
            for forged in all {
                let mut message = message.clone();
                message[..Descriptor::SIZE].copy_from_slice(&forged.to_bytes());
                message.truncate(if forged.kind() == ExportKind::VirtualMemory {
                    message.len()
                } else {
                    Descriptor::SIZE
                });
                let files = export.file_descriptors().into_iter().map(|file| file.try_clone_to_owned());
                let Ok(forged) = Export::from_parts(&message, files.collect::<Result<_, _>>()?) else { continue };
                tried += 1;
                match world.attempt(&forged) {
                    Ok(0) => {}
                    Ok(count) => {
                        reached += count;
                        world.check().map_err(|error| format!("{:?}: {error}", forged.descriptor()))?;
                    }
                    Err(error) => return Err(format!("{:?}: {error}", forged.descriptor()).into()),
                }
            }
            Ok(())
        };
        for (index, &one) in FIELDS.iter().enumerate() {
            for first in values(one, &good, &descriptors) {
                let mut bytes = good.to_bytes();
                bytes[one.0..one.0 + one.1].copy_from_slice(&first);
                attempt(bytes, !spared(one))?;
                for &two in &FIELDS[index + 1..] {
                    for second in values(two, &good, &descriptors) {
                        let mut bytes = bytes;
                        bytes[two.0..two.0 + two.1].copy_from_slice(&second);
                        attempt(bytes, !spared(one) && !spared(two))?;
                    }
                }
            }
        }
    }
    println!("{tried} forged descriptors were read; {reached} of their imports reached exported memory");
    assert!(tried > 1000 && reached > 100, "the forging reaches nothing: {tried}, {reached}");
    world.check()
}

#[test]
fn forged_field_pairs_give_the_exporter_only_exported_memory() -> Outcome {
    let setup = Setup::from_environment()?;
    let world = World::new(&setup, true)?;
    let exports = world.exports()?;
    forge(&world, &exports)
}

#[test]
fn no_pair_of_forged_fields_leads_an_importer_to_other_memory() -> Outcome {
    let setup = Setup::from_environment()?;
    let world = World::new(&setup, true)?;
    let mut other = Other::start("pairs")?;
    for export in world.exports()? {
        other.channel.send(&export)?;
    }
    other.channel.send_bytes(b"no descriptor")?;
    other.channel.set_timeout(Some(10 * super::PATIENCE));
    assert_eq!(other.channel.receive_bytes()?, b"done");
    other.finish()?;
    // A process with the pool's key can also reach shared memory that was not exported, because the driver has no finer
    // access rights. So this checks exclusive memory only.
    for buffer in &world.exclusive {
        same("exclusive memory of the exporter", &buffer.to_vec()?, &[MINE; SIZE])?;
    }
    Ok(())
}

/// The importer, which also has its own memory.
pub fn play(importer: &mut Importer) -> Outcome {
    let mut world = World::new(&importer.setup, false)?;
    let mut exports = Vec::new();
    while let Ok(export) = importer.channel.receive() {
        exports.push(export);
    }
    for export in &exports {
        if let Export::Pool(pool) = export {
            match pool.numa_node() {
                None => world.devices.push(DevicePool::import(&importer.setup.context, pool.try_clone()?)?),
                Some(_) => world.pinned.push(PinnedPool::import(&importer.setup.context, pool.try_clone()?)?),
            }
        }
    }
    forge(&world, &exports)?;
    drop(world);
    importer.stream.synchronize()?;
    importer.channel.send_bytes(b"done")?;
    Ok(())
}

/// A program from an audit: a peer sends a pool back as if it were another process's, together with its memory.
#[test]
fn pool_import_under_a_forged_origin_yields_the_original_pool() -> Outcome {
    let Some(setup) = super::setup(cuda_mem::Feature::SharedPools)? else { return Ok(()) };
    let (context, stream, pool) = (&setup.context, Stream::new(&setup.context)?, shareable(&setup)?);
    let victim = Buffer::filled(&pool, SIZE, MINE, &stream)?;
    let memory = Buffer::filled(&pool, SIZE, MINE, &stream)?.into_shared();
    let of_memory = memory.slice(PART)?.export()?;
    let (file, of_pool) = pool.export()?.into_parts();
    let mut files = vec![("the same file", file.try_clone()?)];
    // A memory file, as the software GPU uses, can be opened again. A driver's file cannot.
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    if setup.is_software() {
        files.push(("the file, opened anew", OwnedFd::from(OpenOptions::new().read(true).write(true).open(path)?)));
    }
    let wrong = |error: Option<Error>| match error {
        Some(Error::Descriptor(wrong)) => wrong,
        other => panic!("{other:?}"),
    };
    for (what, file) in files {
        let import = |descriptor: Descriptor| -> Result<_, Box<dyn StdError>> {
            Ok(DevicePool::import(context, PoolExport::from_parts(file.try_clone()?, descriptor)))
        };
        for at in [at::PROCESS, at::NONCE, at::PAYLOAD] {
            let again = import(flipped(&of_pool, at)?)??;
            assert!(again == pool && !again.is_imported(), "{what}, byte {at}");
            // The forged process number must not matter, and neither must a new signature.
            let other = part(&flipped(&of_memory, at::NONCE)?, 0, SIZE as u64)?;
            for lie in [other, signed(&other, &of_pool)] {
                let refused = wrong(again.import_buffer::<u8>(&lie, &stream).err());
                assert!(matches!(refused, Wrong::Forged { .. }), "{what}: {refused:?}");
            }
            let wider = signed(&part(&of_memory, 0, SIZE as u64)?, &of_pool);
            let refused = wrong(again.import_buffer::<u8>(&wider, &stream).err());
            assert!(matches!(refused, Wrong::NotExported { .. }), "{what}: {refused:?}");
        }
        let renamed = import(flipped(&flipped(&of_pool, at::POOL)?, at::NONCE)?)?;
        assert!(matches!(wrong(renamed.err()), Wrong::Conflict { .. }), "{what}, renamed");
    }
    assert_eq!(victim.to_vec()?, [MINE; SIZE]);
    Ok(())
}

/// The system reports the length of memory, if it knows it.
#[test]
fn mapped_memory_is_no_longer_than_its_file() -> Outcome {
    let setup = Setup::from_environment()?;
    let resource = MappedMemory::new(&setup.context)?;
    let memory = testkit::mapped(&resource, SIZE)?.into_shared();
    let export = match resource.export(&memory) {
        Err(Error::MissingSymbol(missing)) => {
            println!("skipped: {missing}");
            return Ok(());
        }
        export => export?,
    };
    // A driver may round up its allocations: SwiftShader a little, NVIDIA's to pages of the device, at most 2 MiB. A
    // file that is not a memory file has no length.
    let (file, descriptor) = export.try_clone()?.into_parts();
    let status = std::fs::File::from(file).metadata()?;
    let length = if status.is_file() { usize::try_from(status.len())? } else { 2 << 20 };
    assert!(length >= SIZE && descriptor.size == SIZE, "{length}, {descriptor:?}");
    for size in [length + 1, 2 * length, 1 << 30, 1 << 40] {
        let (file, mut longer) = export.try_clone()?.into_parts();
        (longer.size, longer.length) = (size, size);
        match resource.import::<u8>(cuda_mem::ipc::MappedExport::from_parts(file, longer), memory.stream()) {
            Err(Error::Descriptor(Wrong::TooLarge { .. })) => {}
            // If the system does not know the length, the driver must check it.
            Err(Error::Vkgdr { .. }) if !status.is_file() => {}
            other => return Err(format!("{size} bytes of {length}: {other:?}").into()),
        }
    }
    Ok(())
}
