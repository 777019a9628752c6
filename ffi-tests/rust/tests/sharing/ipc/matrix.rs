//! Every source, behind every resource, with every exporter: either the export is a whole allocation of its source, or
//! it is refused with a named error. Then memory is allocated again, and the importer must not reach it.

use super::{MIRRORS, Other, Outcome, inverted, nothing_dropped, part, pattern, same, setup, signed};
use cuda_mem::adaptor::{Aligned, GuardOptions, Guarded, Statistics};
use cuda_mem::ipc::{Export, Exported, VirtualDescriptor, VirtualExport};
use cuda_mem::memory::kind::Any;
use cuda_mem::memory::{
    DeviceMemory, DriverPool, DriverPoolOptions, PinnedPool, ResourceHandle, SharedResource, VirtualMemory,
    VirtualOptions,
};
use cuda_mem::pool::{Pool, PoolOptions, RingOptions, RingPool};
use cuda_mem::{Buffer, Error, Feature, HostBuffer, SharedBuffer, Stream};
use std::error::Error as StdError;
use testkit::Setup;
use testkit::sources::{Memory, available};

/// The exporter of a source's buffers.
#[derive(Clone)]
enum Exporter {
    /// Nothing can export them.
    Nothing,
    /// `SharedBuffer::export`, for memory of a pool or of cuMemAlloc.
    Pool(DriverPool<Any>),
    Plain(DeviceMemory),
    /// `VirtualMemory::export`.
    Virtual(VirtualMemory<Any>),
}

struct Source {
    name: &'static str,
    resource: SharedResource,
    exporter: Exporter,
}

/// All sources that the machine has.
fn sources(setup: &Setup) -> Result<Vec<Source>, Error> {
    let source = |(name, memory): (_, Memory)| {
        let exporter = match &memory {
            Memory::Device(memory) => Exporter::Plain(memory.clone()),
            Memory::DriverPool(pool) if memory.is_shareable() => Exporter::Pool(pool.clone()),
            Memory::Virtual(virtual_memory) if memory.is_shareable() => Exporter::Virtual(virtual_memory.clone()),
            _ => Exporter::Nothing,
        };
        Source { name, resource: memory.share(), exporter }
    };
    Ok(available(&setup.context)?.into_iter().map(source).collect())
}

/// A resource over a source: its name, whether its blocks are whole allocations of the source, and the resource.
type Before = (&'static str, bool, SharedResource);

fn behind(source: &SharedResource) -> Result<Vec<Before>, Error> {
    let mut all: Vec<Before> = vec![
        ("itself", true, source.clone()),
        ("Statistics", true, Statistics::new(source).share()),
        ("Aligned by the source", true, Aligned::new(source, 1)?.share()),
        ("Pool", false, Pool::new(source, &PoolOptions::default())?.share()),
        ("RingPool", false, RingPool::new(source, 64 * SIZE, &RingOptions::default())?.share()),
        (ALIGNED, false, Aligned::new(source, 8 << 20)?.share()),
    ];
    // Device work writes the guard zones, and not every source's memory supports that.
    if let Ok(guarded) = Guarded::new(source, &GuardOptions::default()) {
        all.push(("Guarded", false, guarded.share()));
    }
    Ok(all)
}

const SIZE: usize = 8192;
/// Cuts blocks out of larger allocations, except for virtual memory, which has this alignment anyway.
const ALIGNED: &str = "Aligned";

/// Which part of its block a buffer is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Whole,
    /// A slice of shared memory.
    Slice,
    /// A half, beside another shared half.
    BesideShared,
    /// A half, beside an exclusive half.
    BesideExclusive,
}

impl Shape {
    const ALL: [Self; 4] = [Self::Whole, Self::Slice, Self::BesideShared, Self::BesideExclusive];

    /// The buffer, and the remaining part, which the caller must keep.
    fn of(self, buffer: Buffer<u8, Any>) -> Result<(SharedBuffer<u8, Any>, Beside), Error> {
        Ok(match self {
            Shape::Whole => (buffer.into_shared(), Beside::Nothing),
            Shape::Slice => {
                let whole = buffer.into_shared();
                (whole.slice(1000..3000)?, Beside::Shared(whole))
            }
            Shape::BesideShared => {
                let (left, right) = buffer.split_at(SIZE / 2)?;
                (left.into_shared(), Beside::Shared(right.into_shared()))
            }
            Shape::BesideExclusive => {
                let (left, right) = buffer.split_at(SIZE / 2)?;
                (left.into_shared(), Beside::Exclusive(right))
            }
        })
    }
}

#[expect(dead_code, reason = "held, and never looked at")]
enum Beside {
    Nothing,
    Shared(SharedBuffer<u8, Any>),
    Exclusive(Buffer<u8, Any>),
}

/// Whether an error names the problem and says what to do.
fn is_named(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. } | Error::InvalidArgument { .. })
}

/// The widest export that the exporter permits: the part is forged to be the whole allocation.
fn widest(exporter: &Exporter, buffer: &SharedBuffer<u8, Any>) -> Result<Export, Box<dyn StdError>> {
    let pooled = |pool| -> Result<Export, Box<dyn StdError>> {
        let descriptor = buffer.export()?;
        let all = signed(&part(&descriptor, 0, descriptor.size())?, pool);
        Ok(Export::PoolMemory(all))
    };
    match exporter {
        Exporter::Nothing => Err("nothing exports it".into()),
        Exporter::Pool(pool) => pooled(pool.export()?.descriptor()),
        Exporter::Plain(_) => {
            let descriptor = buffer.export()?;
            Ok(Export::DeviceMemory(part(&descriptor, 0, descriptor.size())?))
        }
        Exporter::Virtual(memory) => {
            let (files, descriptor) = memory.export(buffer)?.into_parts();
            let head = descriptor.descriptor();
            let mut bytes = part(head, 0, head.size())?.to_bytes().to_vec();
            bytes.extend_from_slice(&descriptor.to_bytes()[bytes.len()..]);
            let descriptor = VirtualDescriptor::from_bytes(&bytes)?;
            Ok(Export::VirtualMemory(VirtualExport::from_parts(files, descriptor)))
        }
    }
}

fn matrix(test: impl Fn(&Setup, &Source, &Before, Shape, &Stream) -> Outcome) -> Outcome {
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let stream = Stream::new(&setup.context)?;
    for source in sources(&setup)? {
        for before in behind(&source.resource)? {
            for shape in Shape::ALL {
                test(&setup, &source, &before, shape, &stream)
                    .map_err(|error| format!("{} behind {}, {shape:?}: {error}", source.name, before.0))?;
            }
        }
    }
    nothing_dropped(&setup)
}

#[test]
fn only_whole_allocations_without_exclusive_parts_are_exported() -> Outcome {
    matrix(|setup, source, (name, is_whole, resource), shape, stream| {
        let other = VirtualMemory::new(&setup.context, &VirtualOptions::default()).map(VirtualMemory::into_any);
        let buffer = Buffer::<u8, Any>::filled(resource, SIZE, 7, stream)?;
        let (buffer, beside) = shape.of(buffer)?;
        let aligned = *name == ALIGNED && matches!(source.exporter, Exporter::Virtual(_));
        let possible = (*is_whole || aligned) && shape != Shape::BesideExclusive;
        let plainly = !matches!(source.exporter, Exporter::Nothing | Exporter::Virtual(_));
        let mut answers = vec![("SharedBuffer::export", possible && plainly, buffer.export().map(drop))];
        if let Exporter::Virtual(memory) = &source.exporter {
            answers.push(("VirtualMemory::export", possible, memory.export(&buffer).map(drop)));
        }
        if let Ok(other) = &other {
            answers.push(("VirtualMemory::export of another", false, other.export(&buffer).map(drop)));
        }
        let mut exported = false;
        for (exporter, expected, answer) in answers {
            match answer {
                Ok(()) if expected => exported = true,
                Err(error) if !expected && is_named(&error) => {}
                other => return Err(format!("{exporter} gave {other:?}").into()),
            }
        }
        // A refusal leaves the memory unchanged. Exported memory stays shared.
        if shape == Shape::Whole {
            assert_eq!(buffer.try_into_exclusive().is_err(), exported);
        }
        drop(beside);
        Ok(())
    })
}

/// A program from an audit: the export of a pool's block covered the pool's whole region, and later blocks were written
/// through it.
#[test]
fn an_export_reaches_no_memory_that_is_allocated_after_it() -> Outcome {
    matrix(|setup, source, (name, _, resource), shape, stream| {
        let keep = Buffer::<u8, Any>::filled(resource, SIZE, 7, stream)?;
        let (buffer, beside) = shape.of(Buffer::filled(resource, SIZE, 7, stream)?)?;
        let Ok(export) = widest(&source.exporter, &buffer) else { return Ok(()) };
        let import = |export: Export| -> Result<SharedBuffer<u8, Any>, Error> {
            match (&source.exporter, export) {
                (Exporter::Pool(pool), Export::PoolMemory(memory)) => pool.import_buffer::<u8>(&memory, stream),
                (Exporter::Plain(plain), Export::DeviceMemory(memory)) => {
                    Ok(plain.import_buffer::<u8>(&memory, stream)?.into_any())
                }
                (Exporter::Virtual(memory), Export::VirtualMemory(export)) => memory.import(export, stream),
                (_, other) => panic!("{other:?}"),
            }
        };
        let mut first = import(export.try_clone()?).ok();
        drop((buffer, beside));
        stream.synchronize()?;
        let anew =
            (0..3).map(|_| Buffer::<u8, Any>::filled(resource, SIZE, 7, stream)).collect::<Result<Vec<_>, _>>()?;
        let mut second = import(export).ok();
        for memory in [&mut first, &mut second].into_iter().flatten() {
            memory.fill(.., 9)?;
            memory.synchronize()?;
        }
        for buffer in anew.iter().chain([&keep]) {
            same(name, &buffer.to_vec()?, &[7; SIZE])?;
        }
        drop((first, second));
        stream.synchronize()?;
        nothing_dropped(setup)
    })
}

#[test]
fn importer_reaches_the_exported_memory_but_not_its_neighbours() -> Outcome {
    let Some(setup) = setup(Feature::SharedPools)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    for role in MIRRORS {
        let mut other = Other::start(role)?;
        for source in sources(&setup)? {
            let pool = match &source.exporter {
                // The other process imports only device memory.
                _ if source.resource.accessibility().host => continue,
                Exporter::Pool(pool) => Some(pool.export()?),
                Exporter::Plain(_) | Exporter::Virtual(_) => None,
                Exporter::Nothing => continue,
            };
            if let Some(pool) = pool {
                other.channel.send(&pool)?;
            }
            for (name, is_whole, resource) in behind(&source.resource)? {
                let neighbours = || Buffer::<u8, Any>::filled(&resource, SIZE, 7, &stream);
                let (left, memory) =
                    (neighbours()?, Buffer::<u8, Any>::from_slice(&resource, &pattern(SIZE, 1), &stream)?);
                let (right, memory) = (neighbours()?, memory.into_shared());
                let Ok(export) = widest(&source.exporter, &memory) else {
                    assert!(!is_whole, "{} behind {name}", source.name);
                    continue;
                };
                // The other process uses everything that the export reaches, whatever part it named. Then the test
                // checks memory that was allocated before and after the export.
                let anew = neighbours()?;
                let size = export.descriptor().size() as usize;
                let mut all = pattern(SIZE, 1);
                other.channel.send(&export)?;
                let length = other.channel.receive_bytes()?;
                assert_eq!(length, (size as u64).to_le_bytes());
                let mut seen = Vec::new();
                while seen.len() < size {
                    seen.extend(other.channel.receive_bytes()?);
                }
                same("what the other process saw", &seen[..SIZE], &all)?;
                assert_eq!(other.channel.receive_bytes()?, b"inverted");
                all = inverted(&all);
                same("what it wrote", &memory.to_vec()?, &all)?;
                for buffer in [&left, &right, &anew] {
                    same("a neighbour", &buffer.to_vec()?, &[7; SIZE])?;
                }
            }
        }
        other.channel.send_bytes(b"end")?;
        other.finish()?;
    }
    nothing_dropped(&setup)
}

#[test]
fn imported_virtual_memory_is_reexported_only_by_its_own_files() -> Outcome {
    let Some(setup) = setup(Feature::SharedPhysicalMemory)? else { return Ok(()) };
    let stream = Stream::new(&setup.context)?;
    let mut options = VirtualOptions::default();
    options.shareable = true;
    let memory = VirtualMemory::new(&setup.context, &options)?;
    let buffer = Buffer::from_slice(&memory, &pattern(SIZE, 1), &stream)?.into_shared();
    let import = memory.import::<u8>(memory.export(&buffer)?, &stream)?;
    let again = memory.import::<u8>(memory.export(&import.slice(100..200)?)?, &stream)?;
    same("passed on", &again.to_vec()?, &pattern(SIZE, 1)[100..200])?;
    assert!(import.export().is_err_and(|error| is_named(&error)), "virtual memory goes by its files");
    // The chunk belongs to the buffer, so it is not exported alone either.
    assert!(memory.physical_memory(&buffer)[0].export().is_err_and(|error| is_named(&error)));
    Ok(())
}

/// A process that has a pool reaches all of its memory at any time, including newly allocated blocks. So the pool's
/// memory gives no slices, because a slice requires that nothing else writes it.
#[test]
fn host_memory_of_a_shareable_pool_gives_no_slices() -> Outcome {
    let Some(setup) = setup(Feature::HostNumaPools)? else { return Ok(()) };
    let (stream, mut options) = (Stream::new(&setup.context)?, DriverPoolOptions::default());
    options.shareable = true;
    let pool = match PinnedPool::on_numa_node(&setup.context, 0, &options) {
        Err(error @ Error::Unsupported { .. }) => {
            println!("skipped: {error}");
            return Ok(());
        }
        pool => pool?,
    };
    assert!(pool.share().accessibility().processes);
    let refused = |error: Option<Error>| {
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("shareable pool") && text.contains("copy_to_slice"), "{text}");
    };
    let over = Pool::new(&pool, &PoolOptions::default())?;
    let counted = Statistics::new(&over);
    let ring = RingPool::new(&pool, 64 * SIZE, &RingOptions::default())?;
    let buffers = [
        Buffer::<u8, _>::filled(&pool, SIZE, 7, &stream)?,
        Buffer::<u8, _>::filled(&over, SIZE, 7, &stream)?,
        Buffer::<u8, _>::filled(&counted, SIZE, 7, &stream)?,
        Buffer::<u8, _>::filled(&ring, SIZE, 7, &stream)?,
        Buffer::<u8, Any>::filled(&pool.share(), SIZE, 7, &stream)?.try_into_kind()?,
        Buffer::<u8, _>::filled(&pool, SIZE, 7, &stream)?.into_shared().try_into_exclusive()?,
    ];
    for mut buffer in buffers {
        refused(buffer.read(..).err());
        refused(buffer.write(..).err());
        refused(buffer.view_mut(&[SIZE as i64])?.read::<u8>().err());
        buffer.copy_from_slice(10, &[1, 2, 3])?;
        assert_eq!(buffer.to_vec()?[9..14], [7, 1, 2, 3, 7]);
        let (mut left, right) = buffer.split_at(100)?;
        refused(left.read(..).err());
        refused(HostBuffer::from_buffer(right).err().map(|refused| refused.error));
    }
    refused(HostBuffer::<u8>::zeroed(&pool, SIZE).err());
    // A pool that is not shareable gives slices. So does virtual memory, because each of its buffers is exported
    // separately.
    let private = PinnedPool::on_numa_node(&setup.context, 0, &DriverPoolOptions::default())?;
    assert_eq!(Buffer::<u8, _>::filled(&private, 4, 7, &stream)?.read(..)?[..], [7; 4]);
    Ok(())
}
