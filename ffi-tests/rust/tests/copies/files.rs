//! Files read into the memory of devices: every skew, size and kind of memory; files that cannot be read; faults at every call.

mod faults;
mod refusals;

use cuda_mem::copy::{CopyEngine, StagingOptions};
use cuda_mem::memory::Kind;
use cuda_mem::memory::{DeviceMemory, ResourceHandle};
use cuda_mem::pool::{Pool, PoolOptions};
use cuda_mem::{Buffer, Context, Result, Stream};
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{File, OpenOptions, read, remove_file};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use testkit::sources::over_every_source;
use testkit::suite::Outcome;
use testkit::{alone, pattern, same};

const BLOCK: usize = 4096;

/// A file in a folder, which has no name any more.
fn file_in(folder: &Path, bytes: &[u8]) -> std::io::Result<File> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = folder.join(format!("cuda-mem-test-files-{}-{number}", std::process::id()));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    remove_file(&path)?;
    file.write_all(bytes)?;
    Ok(file)
}

fn file(bytes: &[u8]) -> std::io::Result<File> {
    file_in(&std::env::temp_dir(), bytes)
}

/// A file in memory that has no folder.
fn memory_file(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("cuda-mem-test", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// An engine with three helper threads, and two lanes of three slots.
fn engine(context: &Context, slot_size: usize) -> Result<CopyEngine> {
    engine_with(context, (slot_size, 3, 2), 3)
}

/// An engine with staging of this slot size, number of slots and number of lanes.
fn engine_with(context: &Context, staging: (usize, usize, usize), helpers: usize) -> Result<CopyEngine> {
    let mut options = StagingOptions::default();
    (options.slot_size, options.slots, options.lanes) = staging;
    CopyEngine::builder(context).staging(options).helper_threads(helpers).build()
}

fn read_into<R: ResourceHandle>(
    engine: &CopyEngine,
    file: impl AsFd,
    offset: usize,
    size: usize,
    memory: &R,
    stream: &Stream,
) -> Result<Buffer<u8, R::Kind>>
where
    R::Kind: Kind,
{
    Ok(engine.read_file(file, offset as u64, Buffer::uninit(memory, size, stream)?)?)
}

#[test]
fn every_skew_of_a_file_arrives_whole() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let bytes = pattern(5 * BLOCK, 3);
        let (file, engine) = (file(&bytes)?, engine(&setup.context, BLOCK)?);
        for offset in (0..64).chain((64..BLOCK).step_by(61)).chain([BLOCK - 1, BLOCK, BLOCK + 1]) {
            for size in [1, BLOCK - offset % BLOCK, 3 * BLOCK - 1] {
                let buffer = read_into(&engine, &file, offset, size, &memory, &stream)?;
                same(&format!("{size} from {offset}"), &buffer.to_vec()?, &bytes[offset..offset + size])?;
            }
        }
        Ok(())
    })
}

#[test]
fn sizes_around_pieces_and_parts_arrive_whole() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let bytes = pattern(5 << 20, 9);
        let file = file(&bytes)?;
        // Slots of no block, of less than one, of blocks and a rest, of several parts.
        for slot in [1000, BLOCK, BLOCK + 7, 1 << 20] {
            let engine = engine(&setup.context, slot)?;
            for offset in [0, 1, BLOCK - 1, 3 * BLOCK] {
                for edge in [slot, 3 * slot, 256 << 10, 1 << 20, 4 << 20] {
                    for size in [edge - 1, edge, edge + 1] {
                        // Slots so small take a thousand copies for a megabyte.
                        if size / slot < 300 {
                            let buffer = read_into(&engine, &file, offset, size, &memory, &stream)?;
                            let what = format!("{size} from {offset} by {slot}");
                            same(&what, &buffer.to_vec()?, &bytes[offset..offset + size])?;
                        }
                    }
                }
            }
            engine.trim();
            assert_eq!(engine.reserved_staging(), 0, "all lanes came back");
        }
        Ok(())
    })
}

#[test]
fn pieces_arrive_whole_by_any_number_of_threads_and_slots() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let bytes = pattern(20 << 20, 7);
        let file = file(&bytes)?;
        // Slots of one part, and of two.
        for (slot_size, size) in [(2 * BLOCK, 5 << 20), (512 << 10, (20 << 20) - 9)] {
            for (slots, helpers) in [(1, 0), (1, 3), (2, 1), (3, 0), (3, 7), (8, 0), (8, 1), (8, 7), (16, 7)] {
                let engine = engine_with(&setup.context, (slot_size, slots, 1), helpers)?;
                let buffer = read_into(&engine, &file, 9, size, &memory, &stream)?;
                let what = format!("{slots} slots of {slot_size}, {helpers} helpers");
                same(&what, &buffer.to_vec()?, &bytes[9..9 + size])?;
            }
        }
        Ok(())
    })
}

#[test]
fn no_bytes_are_read_into_an_empty_buffer() -> Outcome {
    alone(|setup| {
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let (file, engine) = (file(&pattern(10, 1))?, engine(&setup.context, BLOCK)?);
        for offset in [0, 3, 10] {
            assert!(read_into(&engine, &file, offset, 0, &memory, &stream)?.is_empty());
        }
        assert_eq!(engine.reserved_staging(), 0);
        Ok(())
    })
}

#[test]
fn files_of_any_file_system_arrive_in_every_memory() -> Outcome {
    alone(|setup| {
        let bytes = pattern(3 << 20, 5);
        let mut files = vec![("a disk", file(&bytes)?), ("a memory file", memory_file(&bytes)?)];
        match file_in(Path::new("/dev/shm"), &bytes) {
            Ok(file) => files.push(("tmpfs", file)),
            Err(error) => println!("skipped: tmpfs: /dev/shm is missing: {error}"),
        }
        let engine = engine(&setup.context, 64 << 10)?;
        let stream = Stream::new(&setup.context)?;
        over_every_source(setup, [], |_, memory| {
            for (what, file) in &files {
                for (offset, size) in [(0, 3 << 20), (4097, 1 << 20), (5, 100_000), (7, 1)] {
                    let buffer = read_into(&engine, file, offset, size, memory, &stream)?;
                    same(what, &buffer.to_vec()?, &bytes[offset..offset + size])?;
                }
            }
            Ok(())
        })
    })
}

#[test]
fn a_read_comes_after_the_work_of_its_stream() -> Outcome {
    alone(|setup| {
        let stream = Stream::new(&setup.context)?;
        let pool = Pool::new(&DeviceMemory::new(&setup.context), &PoolOptions::default())?;
        let bytes = pattern(2 << 20, 7);
        let (file, engine) = (file(&bytes)?, engine(&setup.context, 64 << 10)?);
        for size in [100_000, 2 << 20] {
            // A former owner's work is still queued when the memory is allocated again.
            let mut former = Buffer::<u8, _>::zeroed(&pool, size, &stream)?;
            let address = former.device_pointer();
            testkit::delay(&stream)?;
            former.fill(.., 1)?;
            drop(former);
            let empty = Buffer::uninit(&pool, size, &stream)?;
            assert_eq!(empty.device_pointer(), address);
            same("after a fill", &engine.read_file(&file, 0, empty)?.to_vec()?, &bytes[..size])?;
        }
        Ok(())
    })
}

#[test]
fn many_threads_read_many_files_at_once() -> Outcome {
    alone(|setup| {
        let files: Vec<(Vec<u8>, File)> = (0..4)
            .map(|number| {
                let bytes = pattern(2 << 20, number);
                file(&bytes).map(|file| (bytes, file))
            })
            .collect::<Result<_, _>>()?;
        let engine = engine(&setup.context, 64 << 10)?;
        let work = |thread: usize| -> Outcome {
            let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
            for round in 0..8 {
                let (bytes, file) = &files[(thread + round) % files.len()];
                let (offset, size) = (thread * 1001 + round, (round + 1) * 120_001);
                let buffer = read_into(&engine, file, offset, size, &memory, &stream)?;
                same(&format!("thread {thread}"), &buffer.to_vec()?, &bytes[offset..offset + size])?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads = (0..8).map(|thread| {
                let work = &work;
                scope.spawn(move || work(thread).map_err(|error| error.to_string()))
            });
            testkit::joined(threads).map(drop)
        })?;
        engine.trim();
        assert_eq!(engine.reserved_staging(), 0, "all lanes came back");
        Ok(())
    })
}

#[test]
fn any_range_of_a_file_is_what_the_system_reads() -> Outcome {
    alone(|setup| {
        let path = std::env::current_exe()?;
        let (bytes, file) = (read(&path)?, File::open(&path)?);
        let (memory, stream) = (DeviceMemory::new(&setup.context), Stream::new(&setup.context)?);
        let engines = [1, 16, 300].map(|blocks| engine(&setup.context, blocks * BLOCK));
        let engines: Vec<CopyEngine> = engines.into_iter().collect::<Result<_>>()?;
        let ranges = (0..bytes.len(), 0_usize..3 << 20, 0..engines.len());
        TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() })
            .run(&ranges, |(offset, size, engine)| {
                let size = size.min(bytes.len() - offset);
                let fail = |error: String| proptest::test_runner::TestCaseError::fail(error);
                let buffer = read_into(&engines[engine], &file, offset, size, &memory, &stream);
                let seen = buffer.and_then(|buffer| buffer.to_vec()).map_err(|error| fail(error.to_string()))?;
                same("a range", &seen, &bytes[offset..offset + size]).map_err(fail)
            })
            .map_err(|error| error.to_string().into())
    })
}
