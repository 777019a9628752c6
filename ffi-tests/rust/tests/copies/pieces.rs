//! Batches of many pieces: by the kernel, by the driver, and by both. On the software GPU the tests count launches.

mod drivers;
mod orders;

use cuda_mem::buffer::{BatchOptions, BatchWay, CopyBatch, Piece};
use cuda_mem::graph::{CaptureMode, GraphOptions};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, SharedResource, kind};
use cuda_mem::{Buffer, Context, Error, Stream};
use testkit::sources::available;
use testkit::suite::Outcome;
use testkit::{Setup, alone, pattern, same};

const DRIVER: [&str; 3] = ["cuMemcpyAsync", "cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"];

/// How many kernels some work launched, and how many copies it left to the driver. Batches that older forms refuse count too.
fn calls(work: impl FnOnce() -> Result<(), Error>) -> Result<(u64, u64), Error> {
    softgpu::count_calls(true);
    let done = work();
    let by_driver = DRIVER.iter().map(|name| softgpu::calls_of(name)).sum();
    let counts = (softgpu::calls_of("cuLaunchKernel"), by_driver);
    softgpu::count_calls(false);
    done.map(|()| counts)
}

/// Compares the calls of some work on the software GPU. With a number of launches, and whether the driver copies anything.
fn makes(setup: &Setup, expected: (u64, bool), what: &str, work: impl FnOnce() -> Result<(), Error>) -> Outcome {
    let (launches, by_driver) = calls(work)?;
    if setup.is_software() {
        assert_eq!((launches, by_driver > 0), expected, "{what}: {by_driver} calls of the driver");
    }
    Ok(())
}

fn by(way: BatchWay) -> BatchOptions {
    let mut options = BatchOptions::default();
    options.way = way;
    options
}

fn submit<K: kind::Kind, L: kind::Kind>(
    to: &mut Buffer<u8, K>,
    from: &Buffer<u8, L>,
    pieces: &[Piece],
    way: BatchWay,
    stream: &Stream,
) -> Result<(), Error> {
    let mut batch = CopyBatch::with_options(stream, by(way));
    batch.copy_pieces(to, from, pieces)?;
    batch.submit()
}

/// What pieces make of zeros.
fn expected(size: usize, source: &[u8], pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    for Piece { to, from, length } in pieces {
        bytes[*to..to + length].copy_from_slice(&source[*from..from + length]);
    }
    bytes
}

/// Pieces of one size with gaps between them, in the opposite order in the source.
fn spread(count: usize, length: usize) -> Vec<Piece> {
    let step = length + 3;
    (0..count).map(|n| Piece { to: n * step + 1, from: (count - 1 - n) * step + 2, length }).collect()
}

/// Runs a test with the kernels loaded.
fn loaded(test: impl FnOnce(&Setup, &Context, &Stream) -> Outcome) -> Outcome {
    alone(|setup| {
        setup.context.load_kernels()?;
        test(setup, &setup.context, &Stream::new(&setup.context)?)
    })
}

#[test]
fn pieces_of_any_size_and_alignment_are_copied_exactly() -> Outcome {
    const SLOT: usize = 256;
    loaded(|setup, context, stream| {
        // Each size at four of the 256 pairs of alignments, and each pair at least twice.
        let pieces: Vec<Piece> = (0..131 * 4)
            .map(|n| {
                let pair = n * 67 % 256;
                Piece { to: n * SLOT + 16 + pair / 16, from: n * SLOT + 32 + pair % 16, length: n % 131 }
            })
            .collect();
        let size = (pieces.len() + 1) * SLOT;
        let source = pattern(size, 7);
        let (device, pinned) = (DeviceMemory::new(context), PinnedMemory::new(context));
        let (here, there) =
            (Buffer::from_slice(&device, &source, stream)?, Buffer::from_slice(&pinned, &source, stream)?);
        for launch in [1, 9, 160, pieces.len()] {
            let mut targets = [0; 3].map(|_| Buffer::<u8, kind::Device>::zeroed(&device, size, stream));
            let [within, to_device, _] = &mut targets;
            let (within, to_device) = (within.as_mut().expect("memory"), to_device.as_mut().expect("memory"));
            let mut to_host = Buffer::<u8, _>::zeroed(&pinned, size, stream)?;
            for pieces in pieces.chunks(launch).take(20) {
                let launches = u64::from(pieces.iter().any(|piece| piece.length > 0));
                makes(setup, (3 * launches, false), "pieces", || {
                    submit(within, &here, pieces, BatchWay::Kernel, stream)?;
                    submit(to_device, &there, pieces, BatchWay::Kernel, stream)?;
                    submit(&mut to_host, &here, pieces, BatchWay::Kernel, stream)
                })?;
            }
            let copied: Vec<Piece> = pieces.chunks(launch).take(20).flatten().copied().collect();
            let expected = expected(size, &source, &copied);
            same("within the device", &within.to_vec()?, &expected)?;
            same("to the device", &to_device.to_vec()?, &expected)?;
            same("to the host", &to_host.to_vec()?, &expected)?;
        }
        Ok(())
    })
}

#[test]
fn each_piece_of_several_launches_is_copied() -> Outcome {
    loaded(|setup, context, stream| {
        let (device, pinned) = (DeviceMemory::new(context), PinnedMemory::new(context));
        for (count, launches) in [(1, 1), (168, 1), (169, 1), (1360, 1), (1361, 2), (5000, 4)] {
            let pieces = spread(count, 29);
            let size = count * 32 + 2;
            let source = pattern(size, count as u8);
            let from = Buffer::from_slice(&pinned, &source, stream)?;
            let (mut middle, mut to) =
                (Buffer::<u8, _>::zeroed(&device, size, stream)?, Buffer::<u8, _>::zeroed(&pinned, size, stream)?);
            let back: Vec<Piece> = pieces.iter().map(|piece| Piece { from: piece.to, ..*piece }).collect();
            makes(setup, (2 * launches, false), &format!("{count} pieces"), || {
                submit(&mut middle, &from, &pieces, BatchWay::Kernel, stream)?;
                submit(&mut to, &middle, &back, BatchWay::Kernel, stream)
            })?;
            same(&format!("{count} pieces"), &to.to_vec()?, &expected(size, &source, &pieces))?;
        }
        Ok(())
    })
}

#[test]
fn large_pieces_go_whole_by_either_way() -> Outcome {
    loaded(|setup, context, stream| {
        let device = DeviceMemory::new(context);
        for length in [4095, 4096, 65_537, (1 << 20) + 3, 5 << 20] {
            let pieces = spread(3, length);
            let size = 3 * (length + 3) + 2;
            let source = Buffer::from_slice(&device, &pattern(size, 5), stream)?;
            for (way, calls) in [(BatchWay::Kernel, (1, false)), (BatchWay::CopyEngines, (0, true))] {
                let mut to = Buffer::<u8, _>::zeroed(&device, size, stream)?;
                makes(setup, calls, "large pieces", || submit(&mut to, &source, &pieces, way, stream))?;
                same(&format!("{length} bytes, {way:?}"), &to.to_vec()?, &expected(size, &pattern(size, 5), &pieces))?;
            }
        }
        Ok(())
    })
}

#[test]
fn the_number_and_sizes_of_pieces_choose_the_way() -> Outcome {
    loaded(|setup, context, stream| {
        let (device, pinned) = (DeviceMemory::new(context), PinnedMemory::new(context));
        let mut mixed = spread(20, 1000);
        mixed.insert(7, Piece { to: 100_000, from: 200_000, length: 300 << 10 });
        for (pieces, within, to_device, to_host) in [
            (spread(3, 4096), (0, true), (0, true), (0, true)),
            (spread(4, 4096), (1, false), (0, true), (0, true)),
            (spread(8, 4096), (1, false), (1, false), (0, true)),
            (spread(8, 40_000), (1, false), (0, true), (0, true)),
            (spread(16, 40_000), (1, false), (1, false), (1, false)),
            (spread(16, 70_000), (1, false), (0, true), (0, true)),
            (mixed, (1, true), (1, true), (1, true)),
        ] {
            let size = 1200 << 10;
            let source = pattern(size, 2);
            let here = Buffer::from_slice(&device, &source, stream)?;
            let there = Buffer::from_slice(&pinned, &source, stream)?;
            let expected = expected(size, &source, &pieces);
            let what = format!("{} pieces, the first {:?}", pieces.len(), pieces[0]);
            let mut to = Buffer::<u8, _>::zeroed(&device, size, stream)?;
            makes(setup, within, &what, || submit(&mut to, &here, &pieces, BatchWay::Fastest, stream))?;
            same(&what, &to.to_vec()?, &expected)?;
            let mut to = Buffer::<u8, _>::zeroed(&device, size, stream)?;
            makes(setup, to_device, &what, || submit(&mut to, &there, &pieces, BatchWay::Fastest, stream))?;
            same(&what, &to.to_vec()?, &expected)?;
            let mut to = Buffer::<u8, _>::zeroed(&pinned, size, stream)?;
            makes(setup, to_host, &what, || submit(&mut to, &here, &pieces, BatchWay::Fastest, stream))?;
            same(&what, &to.to_vec()?, &expected)?;
        }
        Ok(())
    })
}

#[test]
fn memory_that_the_kernel_does_not_reach_is_the_drivers() -> Outcome {
    loaded(|setup, context, stream| {
        let device = DeviceMemory::new(context).share();
        let pieces = spread(30, 100);
        let size = 30 * 103 + 2;
        let source = pattern(size, 4);
        let expected = expected(size, &source, &pieces);
        for (name, memory) in available(context)? {
            let memory = memory.share();
            let who = memory.accessibility();
            let reaches = who.device && !who.managed;
            for [to, from] in [[&memory, &device], [&device, &memory]] {
                let from = Buffer::<u8, _>::from_slice(from, &source, stream)?;
                let mut to = Buffer::<u8, _>::zeroed(to, size, stream)?;
                let calls = (u64::from(reaches), !reaches);
                makes(setup, calls, name, || submit(&mut to, &from, &pieces, BatchWay::Kernel, stream))?;
                same(name, &to.to_vec()?, &expected)?;
            }
        }
        Ok(())
    })
}

#[test]
fn one_batch_goes_by_the_kernel_and_by_the_driver() -> Outcome {
    loaded(|setup, context, stream| {
        let device: SharedResource = DeviceMemory::new(context).share();
        let other = Stream::new(context)?;
        let pieces = spread(10, 50);
        let size = 10 * 53 + 2;
        let bytes = pattern(size, 6);
        let mut pairs = Vec::new();
        for (name, memory) in available(context)? {
            let from = Buffer::<u8, _>::from_slice(&memory.share(), &bytes, stream)?;
            pairs.push((name, from, Buffer::<u8, _>::zeroed(&device, size, &other)?));
        }
        makes(setup, (1, true), "all sources", || {
            let mut batch = CopyBatch::with_options(stream, by(BatchWay::Kernel));
            for (_, from, to) in &mut pairs {
                batch.copy_pieces(to, from, &pieces)?;
            }
            batch.submit()
        })?;
        for (name, _, to) in &pairs {
            same(name, &to.to_vec()?, &expected(size, &bytes, &pieces))?;
        }
        Ok(())
    })
}

#[test]
fn pieces_go_to_shared_memory_by_several_clones() -> Outcome {
    loaded(|setup, context, stream| {
        let device = DeviceMemory::new(context);
        let source = Buffer::from_slice(&device, &pattern(2000, 8), stream)?.into_shared();
        let target = Buffer::<u8, _>::zeroed(&device, 2000, stream)?.into_shared();
        let (mut one, mut two) = (target.clone(), target.slice(1000..)?);
        makes(setup, (1, false), "clones", || {
            let mut batch = CopyBatch::new(stream);
            batch.copy_pieces(&mut one, &source, &spread(9, 97))?;
            batch.copy_pieces(&mut two, &source, &spread(7, 97))?;
            batch.submit()
        })?;
        let moved = spread(7, 97).into_iter().map(|piece| Piece { to: piece.to + 1000, ..piece });
        let all: Vec<Piece> = spread(9, 97).into_iter().chain(moved).collect();
        Ok(same("the clones", &target.to_vec()?, &expected(2000, &pattern(2000, 8), &all))?)
    })
}

#[test]
fn a_captured_batch_copies_anew_at_each_launch() -> Outcome {
    loaded(|setup, context, stream| {
        let (device, pinned) = (DeviceMemory::new(context), PinnedMemory::new(context));
        let pieces = spread(2000, 13);
        let size = 2000 * 16 + 2;
        let mut from = Buffer::<u8, _>::zeroed(&pinned, size, stream)?;
        let mut to = Buffer::<u8, _>::zeroed(&device, size, stream)?;
        stream.synchronize()?;
        let mut graph = None;
        makes(setup, (2, false), "the capture", || {
            let record = |stream: &Stream| submit(&mut to, &from, &pieces, BatchWay::Fastest, stream);
            graph = Some(stream.capture(CaptureMode::ThreadLocal, record)?.instantiate(GraphOptions::default())?);
            Ok(())
        })?;
        let graph = graph.expect("a graph");
        for round in 1..3 {
            from.write(..)?.copy_from_slice(&pattern(size, round));
            // SAFETY: both buffers outlive the graph.
            unsafe { graph.launch(stream) }?;
            stream.synchronize()?;
            same("the graph", &to.to_vec()?, &expected(size, &pattern(size, round), &pieces))?;
        }
        Ok(())
    })
}

#[test]
fn options_that_contradict_each_other_are_refused() -> Outcome {
    loaded(|_, context, stream| {
        let device = DeviceMemory::new(context);
        let source = Buffer::<u8, _>::zeroed(&device, 10, stream)?;
        let mut target = Buffer::<u8, _>::zeroed(&device, 10, stream)?;
        let mut options = by(BatchWay::Kernel);
        options.overlap_with_compute = true;
        let mut batch = CopyBatch::with_options(stream, options);
        let error = batch.copy(&mut target, 0, &source, ..).unwrap_err();
        assert!(error.to_string().contains("overlap_with_compute") && batch.is_empty(), "{error}");
        Ok(())
    })
}
