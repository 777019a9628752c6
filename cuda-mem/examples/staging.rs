//! Threads read a file and bring it to the device through a bounded pool of page-locked slots.
//!
//! `cargo run --release --package cuda-mem --features cudarc --example staging -- [ARGUMENTS]` needs a libcuda: a GPU's, or
//! softgpu's in the loader's path (`LD_LIBRARY_PATH`). Without arguments it brings a file of 33 MB to the device and compares
//! every byte. `--measure` compares with programs of cudarc, for copies from ordinary memory:
//!
//! | argument | default | |
//! |---|---|---|
//! | `--threads N` | 4 | threads, each with a stream |
//! | `--piece KIB` | 1024 | the size of a copy |
//! | `--slots N` | 16 | pieces of page-locked memory in all |
//! | `--total MIB` | 4096 | bytes that each row copies, over all threads |

use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::pool::{RingOptions, RingPool, WhenFull};
use cuda_mem::{Allocate, Context, HostBuffer, Stream, buffer::Transfer};
use cudarc::driver::{CudaContext, PinnedHostSlice};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A bounded pool for many threads: the oldest slot is taken first, and a thread waits while there is none.
struct Slots<S> {
    give: Sender<S>,
    take: Mutex<Receiver<S>>,
}

impl<S: Send + 'static> Slots<S> {
    fn new(count: usize, slot: impl Fn() -> Outcome<S>) -> Outcome<Self> {
        let (give, take) = channel();
        for _ in 0..count {
            give.send(slot()?).map_err(|_| "the receiver lives")?;
        }
        Ok(Self { give, take: Mutex::new(take) })
    }

    fn take(&self) -> Outcome<S> {
        Ok(self.take.lock().unwrap_or_else(PoisonError::into_inner).recv()?)
    }

    fn give(&self, slot: S) -> Outcome<()> {
        self.give.send(slot).map_err(|_| "the receiver lives".into())
    }
}

/// Page-locked memory: free, or owned by its last copy.
enum Staged {
    Free(HostBuffer<u8>),
    Copying(Transfer<HostBuffer<u8>>),
}

impl Staged {
    fn new(context: &Context, size: usize) -> Outcome<Self> {
        Ok(Self::Free(HostBuffer::zeroed(&PinnedMemory::new(context), size)?))
    }

    /// Waits for the last copy. It is the oldest, so usually done.
    fn memory(self) -> Outcome<HostBuffer<u8>> {
        match self {
            Self::Free(memory) => Ok(memory),
            Self::Copying(copy) => Ok(copy.wait()?),
        }
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number = |name: &str, default: usize| -> Outcome<usize> {
        let place = arguments.iter().position(|argument| argument == name);
        Ok(place.map_or(Ok(default), |place| arguments.get(place + 1).map_or("", String::as_str).parse())?.max(1))
    };
    let context = CudaContext::new(0)?;
    println!("{}", context.name()?);
    if !arguments.iter().any(|argument| argument == "--measure") {
        return bring_a_file(&context);
    }
    let threads = number("--threads", 4)?;
    let piece = number("--piece", 1024)? << 10;
    let plan = Plan {
        context,
        threads,
        piece,
        slots: number("--slots", 16)?.max(threads),
        pieces: (number("--total", 4096)? << 20).div_ceil(piece * threads),
    };
    plan.measure()
}

/// Each thread reads a part of the file. Pieces are read while earlier pieces are copied.
fn bring_a_file(context: &Arc<CudaContext>) -> Outcome<()> {
    const PIECE: usize = 1 << 20;
    const THREADS: usize = 4;
    let path = env::temp_dir().join(format!("staging-{}", std::process::id()));
    let bytes: Vec<u8> =
        (0..(32 << 20) + 12345_u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    std::fs::write(&path, &bytes)?;
    let file = File::open(&path)?;
    std::fs::remove_file(&path)?;

    let ours = Context::from_cudarc(context)?;
    let slots = Slots::new(2 * THREADS, || Staged::new(&ours, PIECE))?;
    let share = bytes.len().div_ceil(THREADS);
    let bring = |part: &[u8], begin: usize| -> Outcome<()> {
        let stream = Stream::from_cudarc(&context.new_stream()?)?;
        let mut device = DeviceMemory::new(&ours).zeroed::<u8>(part.len(), &stream)?;
        let whole = part.len() / PIECE * PIECE;
        for at in (0..whole).step_by(PIECE) {
            let mut memory = slots.take()?.memory()?;
            file.read_exact_at(&mut memory, (begin + at) as u64)?;
            slots.give(Staged::Copying(device.upload(at, memory)?))?;
        }
        let mut memory = slots.take()?.memory()?;
        let rest = &mut memory[..part.len() - whole];
        file.read_exact_at(rest, (begin + whole) as u64)?;
        device.copy_from_slice(whole, rest)?;
        slots.give(Staged::Free(memory))?;
        if device.to_vec()? == part { Ok(()) } else { Err("the device has other bytes than the file".into()) }
    };
    thread::scope(|scope| {
        let bring = &bring;
        let threads: Vec<_> = bytes
            .chunks(share)
            .enumerate()
            .map(|(index, part)| scope.spawn(move || bring(part, index * share)))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })?;
    println!("{} bytes of a file are on the device", bytes.len());
    Ok(())
}

/// What is measured.
struct Plan {
    context: Arc<CudaContext>,
    threads: usize,
    piece: usize,
    slots: usize,
    /// Of each thread.
    pieces: usize,
}

impl Plan {
    fn measure(&self) -> Outcome<()> {
        let Self { threads, piece, slots, pieces, .. } = self;
        println!("{threads} threads, {pieces} pieces each of {} KiB, {slots} slots", piece >> 10);
        println!("{:36} {:>8} {:>16}", "", "GB/s", "µs for a piece");
        let rows: [(&str, &dyn Fn() -> Outcome<Duration>); 4] = [
            ("cuda-mem, slots", &|| self.slots()),
            ("cuda-mem, RingPool::upload", &|| self.ring()),
            ("cudarc, a free list of slots", &|| self.free_list()),
            ("cudarc, alloc_pinned for each piece", &|| self.allocating()),
        ];
        for (name, row) in rows {
            row()?; // the first run wakes the machine up
            let time = row()?.as_secs_f64();
            let count = (threads * pieces) as f64;
            println!("{name:36} {:8.2} {:16.1}", count * *piece as f64 / time / 1e9, time / count * 1e6);
        }
        Ok(())
    }

    /// Runs `work` on each thread with the bytes that it copies, and returns the time of all.
    fn run(&self, work: impl Fn(&[u8]) -> Outcome<()> + Sync) -> Outcome<Duration> {
        let sources: Vec<Vec<u8>> = (0..self.threads).map(|thread| vec![thread as u8 + 1; self.piece]).collect();
        let start = Instant::now();
        thread::scope(|scope| {
            let (work, mut threads) = (&work, Vec::new());
            for source in &sources {
                threads.push(scope.spawn(move || work(source)));
            }
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })?;
        Ok(start.elapsed())
    }

    fn slots(&self) -> Outcome<Duration> {
        let ours = Context::from_cudarc(&self.context)?;
        let slots = Slots::new(self.slots, || Staged::new(&ours, self.piece))?;
        self.run(|source| {
            let stream = Stream::from_cudarc(&self.context.new_stream()?)?;
            let mut device = DeviceMemory::new(&ours).zeroed::<u8>(source.len(), &stream)?;
            for _ in 0..self.pieces {
                let mut memory = slots.take()?.memory()?;
                memory.copy_from_slice(source);
                slots.give(Staged::Copying(device.upload(0, memory)?))?;
            }
            check(device.to_vec()? == source)
        })
    }

    fn ring(&self) -> Outcome<Duration> {
        let ours = Context::from_cudarc(&self.context)?;
        let mut options = RingOptions::default();
        options.when_full = WhenFull::WaitAtMost(Duration::from_secs(60));
        let ring = RingPool::new(&PinnedMemory::new(&ours), self.slots.max(2) * self.piece, &options)?;
        self.run(|source| {
            let stream = Stream::from_cudarc(&self.context.new_stream()?)?;
            let mut device = DeviceMemory::new(&ours).zeroed::<u8>(source.len(), &stream)?;
            for _ in 0..self.pieces {
                ring.upload(&mut device, 0, source)?;
            }
            check(device.to_vec()? == source)
        })
    }

    /// A pool as programs of cudarc write it: each slot has the event of its last copy, for which the next user waits.
    fn free_list(&self) -> Outcome<Duration> {
        let slots = Slots::new(self.slots, || {
            // SAFETY: each slot is written before it is read.
            Ok(unsafe { self.context.alloc_pinned::<u8>(self.piece) }?)
        })?;
        self.run(|source| {
            let stream = self.context.new_stream()?;
            let mut device = stream.alloc_zeros::<u8>(source.len())?;
            for _ in 0..self.pieces {
                let mut memory = slots.take()?;
                copy(&mut memory, source)?;
                stream.memcpy_htod(&memory, &mut device)?;
                slots.give(memory)?;
            }
            check(stream.clone_dtoh(&device)? == source)
        })
    }

    fn allocating(&self) -> Outcome<Duration> {
        self.run(|source| {
            let stream = self.context.new_stream()?;
            let mut device = stream.alloc_zeros::<u8>(source.len())?;
            for _ in 0..self.pieces {
                // SAFETY: it is written before it is read.
                let mut memory = unsafe { self.context.alloc_pinned::<u8>(source.len()) }?;
                copy(&mut memory, source)?;
                stream.memcpy_htod(&memory, &mut device)?;
            }
            check(stream.clone_dtoh(&device)? == source)
        })
    }
}

fn copy(memory: &mut PinnedHostSlice<u8>, source: &[u8]) -> Outcome<()> {
    memory.as_mut_slice()?.copy_from_slice(source); // waits for the slot's last copy
    Ok(())
}

fn check(same: bool) -> Outcome<()> {
    if same { Ok(()) } else { Err("the device has other bytes than were sent".into()) }
}
