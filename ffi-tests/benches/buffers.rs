//! The cost of buffers through the safe interface, compared with the same calls through the raw table.
//!
//! `cargo bench -p benches --bench buffers` runs it over the driver that the environment names. `--brief` is a short
//! run that only shows that it works. The Python peers are in `benches/peers/`.

use cuda_mem::cuda_sys::{self, CUresult};
use cuda_mem::ipc::{Channel, Export};
use cuda_mem::memory::{DeviceMemory, DevicePool, DriverPoolOptions, PinnedMemory, PinnedPool, ResourceHandle};
use cuda_mem::{Buffer, Context, Driver, Error, Stream};
use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::ptr::null_mut;
use std::time::Instant;
use testkit::Setup;
use testkit::timing::middle;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The variable that makes this program the importing process.
const IMPORTER: &str = "CUDA_MEM_BENCH_IMPORTER";

fn main() -> Result<()> {
    let brief = std::env::args().any(|argument| argument == "--brief");
    if std::env::var_os(IMPORTER).is_some() {
        return imports();
    }
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let bench = Bench {
        driver: setup.driver,
        stream: Stream::new(&setup.context)?,
        context: setup.context,
        rounds: if brief { 3 } else { 301 },
        batch: if brief { 10 } else { 1000 },
    };
    // Programs usually make the context current on the working thread, so do that here.
    let _current = bench.context.bind()?;
    bench.pairs()?;
    bench.plain()?;
    bench.copies()?;
    bench.large_reuse()?;
    bench.shares()?;
    Ok(())
}

struct Bench {
    driver: Driver,
    context: Context,
    stream: Stream,
    rounds: usize,
    batch: u32,
}

fn ok(code: std::result::Result<CUresult, cuda_sys::MissingSymbol>) {
    assert_eq!(code, Ok(CUresult::CUDA_SUCCESS));
}

/// The median times of several ways to do the same, in nanoseconds. The ways take turns, so that clock changes affect
/// all of them alike.
fn medians<const N: usize>(rounds: usize, batch: u32, mut ways: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut times = [const { Vec::new() }; N];
    for round in 0..rounds + 1 {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (0..batch).for_each(|_| way());
            let time = start.elapsed().as_secs_f64() * 1e9 / f64::from(batch);
            // The first round is a warm-up.
            if round > 0 {
                times.push(time);
            }
        }
    }
    times.map(|mut times| middle(&mut times))
}

/// Measures imports, in another process.
fn imports() -> Result<()> {
    let setup = Setup::from_environment()?;
    let _current = setup.context.bind()?;
    let stream = Stream::new(&setup.context)?;
    let mut channel = Channel::from_stream(UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
    let mut micros = [const { Vec::new() }; 5];
    let mut time = |at: usize, start: Instant| micros[at].push(start.elapsed().as_secs_f64() * 1e6);
    let mut kept = Vec::new();
    let mut pool: Option<DevicePool> = None;
    let memory = DeviceMemory::new(&setup.context);
    let mut count = 0;
    loop {
        let start = Instant::now();
        let export = match channel.receive() {
            Ok(export) => export,
            Err(Error::Channel(_)) => break,
            Err(error) => return Err(error.into()),
        };
        time(0, start);
        count += 1;
        let start = Instant::now();
        match (export, &pool) {
            (Export::Pool(export), _) => {
                pool = Some(DevicePool::import(&setup.context, export)?);
                time(1, start);
            }
            (Export::PoolMemory(descriptor), Some(pool)) => {
                let one = pool.import_buffer::<u8>(&descriptor, &stream)?;
                time(2, start);
                let start = Instant::now();
                let two = pool.import_buffer::<u8>(&descriptor, &stream)?;
                time(3, start);
                kept.push((one, two));
            }
            (Export::DeviceMemory(descriptor), _) => {
                drop(memory.import_buffer::<u8>(&descriptor, &stream)?);
                time(4, start);
            }
            (other, _) => return Err(format!("{other:?} came").into()),
        }
    }
    drop(kept);
    let names = [
        "receive a descriptor",
        "import a pool",
        "import its memory",
        "import it again",
        "import and close plain memory",
    ];
    println!("\nin another process, us, medians ({count} exports)");
    for (name, times) in names.iter().zip(&mut micros) {
        println!("{name:>32} {:>10.2}", middle(times));
    }
    Ok(())
}

impl Bench {
    fn shares(&self) -> Result<()> {
        let (mut channel, theirs) = Channel::pair()?;
        let mut importer = Command::new(std::env::current_exe()?)
            .env(IMPORTER, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs.into_stream())))
            .spawn()?;
        let mut options = DriverPoolOptions::default();
        options.shareable = true;
        let pool = DevicePool::new(&self.context, &options)?;
        channel.send(&pool.export()?)?;
        let plain = DeviceMemory::new(&self.context);
        let mut kept = Vec::new();
        for _ in 0..self.rounds.min(101) {
            for memory in [
                Buffer::<u8, _>::zeroed(&pool, 1 << 16, &self.stream)?.into_shared(),
                Buffer::<u8, _>::zeroed(&plain, 1 << 16, &self.stream)?.into_shared(),
            ] {
                channel.send(&memory.export()?)?;
                kept.push(memory);
            }
        }
        drop(channel);
        // The exports must live until the importer has ended.
        let status = importer.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the importer: {status}").into()) }
    }

    fn pairs(&self) -> Result<()> {
        println!("\nallocate and free, ns, median of {} times {}", self.rounds, self.batch);
        println!("{:>28} {:>10} {:>10} {:>10} {:>10} {:>10}", "resource", "bytes", "raw", "close", "drop", "close/raw");
        let device = DevicePool::new(&self.context, &DriverPoolOptions::default())?;
        let pinned = PinnedPool::new(&self.context, &DriverPoolOptions::default());
        for size in [4096, 1 << 20] {
            let raw = || {
                let mut pointer = 0;
                // SAFETY: the pointer is writable, pool and stream are live, and the block is freed once.
                unsafe {
                    ok(self.driver.raw().cuMemAllocFromPoolAsync(&mut pointer, size, device.raw(), self.stream.raw()));
                    ok(self.driver.raw().cuMemFreeAsync(black_box(pointer), self.stream.raw()));
                }
            };
            self.pair("driver pool, device", &device, size, raw);
            if let Ok(pinned) = &pinned {
                let raw = || {
                    let mut pointer = 0;
                    // SAFETY: as above.
                    unsafe {
                        ok(self.driver.raw().cuMemAllocFromPoolAsync(
                            &mut pointer,
                            size,
                            pinned.raw(),
                            self.stream.raw(),
                        ));
                        ok(self.driver.raw().cuMemFreeAsync(black_box(pointer), self.stream.raw()));
                    }
                };
                self.pair("driver pool, pinned", pinned, size, raw);
            }
        }
        Ok(())
    }

    fn pair<R: ResourceHandle>(&self, name: &str, resource: &R, size: usize, mut raw: impl FnMut()) {
        let mut close = || {
            let buffer = Buffer::<u8, _>::uninit(resource, size, &self.stream).expect("there is room");
            black_box(buffer).close().expect("the free succeeds");
        };
        let mut dropped = || {
            drop(black_box(Buffer::<u8, _>::uninit(resource, size, &self.stream).expect("there is room")));
        };
        let [raw, close, dropped] = medians(self.rounds, self.batch, [&mut raw, &mut close, &mut dropped]);
        println!("{name:>28} {size:>10} {raw:>10.0} {close:>10.0} {dropped:>10.0} {:>10.3}", close / raw);
    }

    fn plain(&self) -> Result<()> {
        println!("\nplain memory: raw is cuMemAlloc and cuMemFree, cuMemHostAlloc and cuMemFreeHost; times as above");
        let (device, pinned) = (DeviceMemory::new(&self.context), PinnedMemory::new(&self.context));
        for (size, batch) in [(4096, self.batch / 20 + 1), (1 << 20, self.batch / 50 + 1), (64 << 20, 1)] {
            let bench = Bench { batch, rounds: self.rounds / 10 + 1, ..self.share() };
            let raw = || {
                let mut pointer = 0;
                // SAFETY: the pointer is writable, and the block is freed once.
                unsafe {
                    ok(self.driver.raw().cuMemAlloc_v2(&mut pointer, size));
                    ok(self.driver.raw().cuMemFree_v2(black_box(pointer)));
                }
            };
            bench.pair("plain device memory", &device, size, raw);
            let raw = || {
                let mut pointer = null_mut();
                // SAFETY: as above.
                unsafe {
                    ok(self.driver.raw().cuMemHostAlloc(&mut pointer, size, 3));
                    ok(self.driver.raw().cuMemFreeHost(black_box(pointer)));
                }
            };
            bench.pair("plain pinned memory", &pinned, size, raw);
        }
        self.transfers(&device, &pinned)
    }

    fn share(&self) -> Self {
        let (driver, context, stream) = (self.driver.clone(), self.context.clone(), self.stream.clone());
        Self { driver, context, stream, rounds: self.rounds, batch: self.batch }
    }

    /// Copies between plain device memory and page-locked memory, of PinnedMemory and of cuMemHostAlloc.
    fn transfers(&self, device: &DeviceMemory, pinned: &PinnedMemory) -> Result<()> {
        println!("\ncopies of pinned memory, and waiting for them, us; raw is memory of cuMemHostAlloc");
        println!(
            "{:>10} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}",
            "bytes", "raw H2D", "ours", "ratio", "raw D2H", "ours", "ratio"
        );
        let most = if self.rounds < 10 { 1 << 20 } else { 64 << 20 };
        let (on_device, ours) = (
            Buffer::<u8, _>::zeroed(device, most, &self.stream)?,
            Buffer::<u8, _>::zeroed(pinned, most, &self.stream)?,
        );
        let mut raw = null_mut();
        // SAFETY: the pointer is writable.
        unsafe { ok(self.driver.raw().cuMemHostAlloc(&mut raw, most, 3)) };
        // SAFETY: the memory has this size.
        unsafe { raw.cast::<u8>().write_bytes(0, most) };
        let (at, ours, raw) = (on_device.device_pointer(), ours.device_pointer(), raw.expose_provenance() as u64);
        for size in [4096, 1 << 20, most] {
            let copy = |to, from| {
                // SAFETY: both are valid for the size, and the copy is waited for.
                unsafe {
                    ok(self.driver.raw().cuMemcpyAsync(to, from, size, self.stream.raw()));
                    ok(self.driver.raw().cuStreamSynchronize(self.stream.raw()));
                }
            };
            let rounds = self.rounds / 3;
            let [up_raw, up] = medians(rounds, 5, [&mut || copy(at, raw), &mut || copy(at, ours)]);
            let [down_raw, down] = medians(rounds, 5, [&mut || copy(raw, at), &mut || copy(ours, at)]);
            println!(
                "{size:>10} {:>10.2} {:>10.2} {:>7.3} {:>10.2} {:>10.2} {:>7.3}",
                up_raw / 1e3,
                up / 1e3,
                up / up_raw,
                down_raw / 1e3,
                down / 1e3,
                down / down_raw
            );
        }
        let raw = std::ptr::with_exposed_provenance_mut(raw as usize);
        // SAFETY: allocated above, and its copies are done.
        unsafe { ok(self.driver.raw().cuMemFreeHost(raw)) };
        Ok(())
    }

    fn copies(&self) -> Result<()> {
        println!("\ncopies of pageable memory, and waiting for them, ns; raw is cuMemcpyAsync and cuStreamSynchronize");
        println!(
            "{:>10} {:>10} {:>10} {:>8} {:>10} {:>10} {:>8}",
            "bytes", "raw H2D", "safe", "more", "raw D2H", "safe", "more"
        );
        let pool = DeviceMemory::new(&self.context);
        let mut host = vec![7u8; 1 << 20];
        for size in [4, 64, 4096, 65536, 1 << 20] {
            let mut buffer = Buffer::<u8, _>::zeroed(&pool, 1 << 20, &self.stream)?;
            let batch = if size > 4096 { self.batch / 50 + 1 } else { self.batch / 5 + 1 };
            let (device, address) = (buffer.device_pointer(), host.as_mut_ptr() as u64);
            let raw = |to, from| {
                // SAFETY: both are valid for the size, and the copy is waited for.
                unsafe {
                    ok(self.driver.raw().cuMemcpyAsync(to, from, size, self.stream.raw()));
                    ok(self.driver.raw().cuStreamSynchronize(self.stream.raw()));
                }
            };
            let [raw_up, up] = medians(
                self.rounds / 3,
                batch,
                [&mut || raw(device, address), &mut || {
                    buffer.copy_from_slice(0, black_box(&host[..size])).expect("the copy succeeds");
                }],
            );
            let [raw_down, down] = medians(
                self.rounds / 3,
                batch,
                [&mut || raw(address, device), &mut || {
                    buffer.copy_to_slice(0, black_box(&mut host[..size])).expect("the copy succeeds");
                }],
            );
            println!(
                "{size:>10} {raw_up:>10.0} {up:>10.0} {:>8.0} {raw_down:>10.0} {down:>10.0} {:>8.0}",
                up - raw_up,
                down - raw_down
            );
        }
        Ok(())
    }

    fn large_reuse(&self) -> Result<()> {
        println!("\n1 GiB of a pinned pool again and again, each time waited for, us");
        let size = if self.rounds < 10 { 1 << 24 } else { 1 << 30 };
        for (name, threshold) in [("the pool keeps its memory", usize::MAX), ("release threshold 0", 0)] {
            let mut options = DriverPoolOptions::default();
            options.release_threshold = threshold;
            let pool = PinnedPool::new(&self.context, &options)?;
            let mut again = || {
                drop(Buffer::<u8, _>::uninit(&pool, size, &self.stream).expect("there is room"));
                self.stream.synchronize().expect("the stream goes on");
            };
            let start = Instant::now();
            again();
            let first = start.elapsed().as_secs_f64() * 1e6;
            let [time] = medians(5, 1, [&mut again]);
            println!(
                "{name:>28}: first {first:.1}, later {:.1}; reserved {} MiB",
                time / 1e3,
                pool.attributes()?.reserved >> 20
            );
        }
        Ok(())
    }
}
