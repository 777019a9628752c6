//! Blocks of a cache at random places, such as those of keys and values: by `CopyBatch`, and by the same copies through the
//! raw table. Then 64 KiB beside large copies of other streams.
//!
//! `cargo bench -p benches --bench blocks` runs it over the driver that the environment names. `--brief`, and the software
//! GPU, take small memories, which only shows that it works. All bytes are compared.

use cuda_mem::buffer::{BatchOptions, BatchWay, CopyBatch, Piece};
use cuda_mem::cuda_sys::{CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUresult, MissingSymbol};
use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, SharedResource};
use cuda_mem::{Buffer, Context, Stream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use testkit::Setup;
use testkit::timing::{Numbers, median};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const WORD: usize = size_of::<u32>();
const ROUNDS: usize = 7;

/// What a run copies.
struct Sizes {
    /// Of each memory, in bytes.
    memory: usize,
    counts: [usize; 2],
    /// Of a large copy, in bytes.
    large: usize,
    samples: usize,
}

fn main() -> Result<()> {
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let is_brief = setup.is_software() || std::env::args().any(|argument| argument == "--brief");
    let sizes = if is_brief {
        Sizes { memory: 16 << 20, counts: [8, 200], large: 1 << 20, samples: 5 }
    } else {
        Sizes { memory: 1 << 30, counts: [256, 4096], large: 256 << 20, samples: 500 }
    };
    let context = &setup.context;
    context.load_kernels()?;
    let (device, pinned) = (DeviceMemory::new(context).share(), PinnedMemory::new(context).share());
    println!("{:<44} {:>9} {:>9} {:>9} {:>9}   GB/s, median of {ROUNDS}", "", "fastest", "kernel", "batch", "loop");
    for (what, to, from) in [
        ("to the device", &device, &pinned),
        ("to the host", &pinned, &device),
        ("within the device", &device, &device),
    ] {
        blocks(context, what, (to, from), &sizes)?;
    }
    for (what, to, from) in [("to the device", &device, &pinned), ("to the host", &pinned, &device)] {
        beside(context, what, (to, from), &sizes)?;
    }
    Ok(())
}

fn by(way: BatchWay) -> BatchOptions {
    let mut options = BatchOptions::default();
    options.way = way;
    options
}

fn ok(code: std::result::Result<CUresult, MissingSymbol>) -> Result<()> {
    match code? {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(format!("the driver answers {}", code.0).into()),
    }
}

/// `count` different places of blocks of `words`, in random order.
fn places(count: usize, words: usize, memory: usize, numbers: &mut Numbers) -> Vec<usize> {
    let mut all: Vec<usize> = (0..memory / WORD / words).map(|place| place * words).collect();
    for n in 0..count {
        let other = n + numbers.below(all.len() - n);
        all.swap(n, other);
    }
    all.truncate(count);
    all
}

fn blocks(context: &Context, what: &str, (to, from): (&SharedResource, &SharedResource), sizes: &Sizes) -> Result<()> {
    let stream = Stream::new(context)?;
    let words = sizes.memory / WORD;
    // Each word is its own place, so a block from a wrong place shows.
    let source: Vec<u32> = (0..words as u32).collect();
    let from = Buffer::<u32, _>::from_slice(from, &source, &stream)?;
    let mut to = Buffer::<u32, _>::zeroed(to, words, &stream)?;
    let mut numbers = Numbers(1);
    for count in sizes.counts {
        for kib in [4, 16, 32, 64] {
            let length = (kib << 10) / WORD;
            let (targets, origins) =
                (places(count, length, sizes.memory, &mut numbers), places(count, length, sizes.memory, &mut numbers));
            let pieces: Vec<Piece> =
                targets.into_iter().zip(origins).map(|(to, from)| Piece { to, from, length }).collect();
            let bytes = (count * length * WORD) as f64;
            let mut rates = Vec::new();
            for way in 0..4 {
                let mut raw = Raw::new(&to, &from, &pieces);
                let mut copy = |to: &mut Buffer<u32>| -> Result<()> {
                    match way {
                        0 | 1 => {
                            let options = by(if way == 0 { BatchWay::Fastest } else { BatchWay::Kernel });
                            let mut batch = CopyBatch::with_options(&stream, options);
                            batch.copy_pieces(to, &from, &pieces)?;
                            batch.submit()?;
                        }
                        2 => raw.batch(&stream)?,
                        _ => raw.each(&stream)?,
                    }
                    Ok(stream.synchronize()?)
                };
                to.fill(.., u32::MAX)?;
                stream.synchronize()?;
                if way == 2 && copy(&mut to).is_err() {
                    // Before CUDA 12.8 there is no such call.
                    rates.push("-".to_owned());
                    continue;
                }
                copy(&mut to)?;
                check(&to, &pieces)?;
                let time = median(ROUNDS, 1, || copy(&mut to))?;
                rates.push(format!("{:.1}", bytes / time));
            }
            let name = format!("{count} blocks of {kib} KiB {what}");
            println!("{name:<44} {:>9} {:>9} {:>9} {:>9}", rates[0], rates[1], rates[2], rates[3]);
        }
    }
    Ok(())
}

/// Compares each block with its source.
fn check(to: &Buffer<u32>, pieces: &[Piece]) -> Result<()> {
    let mut seen = vec![0; pieces[0].length];
    for piece in pieces {
        to.copy_to_slice(piece.to, &mut seen)?;
        if !seen.iter().zip(piece.from as u32..).all(|(word, expected)| *word == expected) {
            return Err(format!("wrong bytes in {piece:?}").into());
        }
    }
    Ok(())
}

/// The same copies through the raw table.
struct Raw {
    to: Vec<u64>,
    from: Vec<u64>,
    sizes: Vec<usize>,
}

impl Raw {
    fn new(to: &Buffer<u32>, from: &Buffer<u32>, pieces: &[Piece]) -> Self {
        let (to, from) = (to.device_pointer(), from.device_pointer());
        Self {
            to: pieces.iter().map(|piece| to + (piece.to * WORD) as u64).collect(),
            from: pieces.iter().map(|piece| from + (piece.from * WORD) as u64).collect(),
            sizes: pieces.iter().map(|piece| piece.length * WORD).collect(),
        }
    }

    fn batch(&mut self, stream: &Stream) -> Result<()> {
        let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
        let order = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        let mut attributes = CUmemcpyAttributes { srcAccessOrder: order, ..Default::default() };
        let (count, attributes, mut first, mut failed) = (self.sizes.len(), &raw mut attributes, 0, 0);
        let (to, from, sizes) = (self.to.as_mut_ptr(), self.from.as_mut_ptr(), self.sizes.as_mut_ptr());
        // SAFETY: the arrays have `count` elements, the places lie within the two buffers, and the caller waits.
        let newer =
            unsafe { cuda.cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, &mut first, 1, stream.raw()) };
        if matches!(newer, Ok(CUresult::CUDA_SUCCESS)) {
            return Ok(());
        }
        // SAFETY: as above.
        ok(unsafe {
            cuda.cuMemcpyBatchAsync(to, from, sizes, count, attributes, &mut first, 1, &mut failed, stream.raw())
        })
    }

    fn each(&self, stream: &Stream) -> Result<()> {
        let (cuda, _current) = (stream.context().driver().raw(), stream.context().bind()?);
        // SAFETY: as above.
        let copy = |n: usize| ok(unsafe { cuda.cuMemcpyAsync(self.to[n], self.from[n], self.sizes[n], stream.raw()) });
        (0..self.sizes.len()).try_for_each(copy)
    }
}

/// The times of 64 KiB, beside large copies of another thread's two streams in the same direction.
fn beside(context: &Context, what: &str, (to, from): (&SharedResource, &SharedResource), sizes: &Sizes) -> Result<()> {
    const SMALL: usize = (64 << 10) / WORD;
    let stream = Stream::new(context)?;
    let source: Vec<u32> = (0..SMALL as u32).collect();
    let small = Buffer::<u32, _>::from_slice(from, &source, &stream)?;
    println!("64 KiB {what}, beside copies of {} MiB of two other streams:", sizes.large >> 20);
    for (name, way) in [("copy engine", BatchWay::CopyEngines), ("kernel", BatchWay::Kernel)] {
        let (is_over, is_begun) = (AtomicBool::new(false), AtomicBool::new(false));
        let large = || -> Result<()> {
            let streams = [Stream::new(context)?, Stream::new(context)?];
            let mut pairs = Vec::new();
            for stream in &streams {
                let from = Buffer::<u32, _>::zeroed(from, sizes.large / WORD, stream)?;
                pairs.push((Buffer::<u32, _>::zeroed(to, sizes.large / WORD, stream)?, from));
            }
            for (to, from) in &mut pairs {
                to.copy_from_buffer(0, from, ..)?;
            }
            is_begun.store(true, Ordering::Release);
            while !is_over.load(Ordering::Acquire) {
                // One copy waits while the other one runs.
                for (stream, (to, from)) in streams.iter().zip(&mut pairs) {
                    stream.synchronize()?;
                    to.copy_from_buffer(0, from, ..)?;
                }
            }
            Ok(())
        };
        let mut target = Buffer::<u32, _>::zeroed(to, SMALL, &stream)?;
        let mut times = thread::scope(|scope| -> Result<Vec<f64>> {
            let large = scope.spawn(|| large().map_err(|error| error.to_string()));
            while !is_begun.load(Ordering::Acquire) && !large.is_finished() {
                thread::yield_now();
            }
            let mut sample = || -> Result<f64> {
                let start = Instant::now();
                let mut batch = CopyBatch::with_options(&stream, by(way));
                batch.copy(&mut target, 0, &small, ..)?;
                batch.submit()?;
                stream.synchronize()?;
                Ok(start.elapsed().as_secs_f64() * 1e6)
            };
            // The first ones warm up.
            let times = (0..sizes.samples + 3).map(|_| sample()).collect::<Result<Vec<f64>>>();
            is_over.store(true, Ordering::Release);
            large.join().map_err(|_| "the thread of the large copies panicked")??;
            Ok(times?.split_off(3))
        })?;
        if target.to_vec()? != source {
            return Err(format!("wrong bytes {what}, by the {name}").into());
        }
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
        println!("  {name:<12} p50 {:>9.1}  p99 {:>9.1}  max {:>9.1} us", at(50), at(99), at(100));
    }
    Ok(())
}
