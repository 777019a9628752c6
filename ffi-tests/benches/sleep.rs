//! How fast a pool sleeps and wakes, beside plain copies of the same bytes over the link.
//!
//! `cargo bench -p benches --bench sleep` runs it over the driver that the environment names: 32 GiB, 50 times. Other numbers
//! come as `-- GIB CYCLES`. `--brief` is a short run that only shows that it works.
//!
//! While the pool sleeps, other memory takes its place and is filled, so that contents which nobody restored would be seen.

use cuda_mem::memory::{DeviceMemory, PinnedMemory, ResourceHandle, kind};
use cuda_mem::pool::{Pool, PoolOptions, SleepOptions};
use cuda_mem::{Buffer, SharedBuffer, Stream};
use std::time::Instant;
use testkit::Setup;
use testkit::timing::middle;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// By how much the contents of two neighbouring blocks are shifted.
const SHIFT: usize = 4096;

struct Work {
    setup: Setup,
    stream: Stream,
    /// The number of blocks, and the bytes of each.
    blocks: usize,
    size: usize,
    /// The contents of all blocks: those of block n begin at byte n * SHIFT.
    contents: SharedBuffer<u8, kind::Device>,
    host: Pool<kind::Pinned>,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let brief = arguments.iter().any(|argument| argument == "--brief");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<usize>().ok());
    let all = if brief { 64 << 20 } else { numbers.next().unwrap_or(32) << 30 };
    let cycles = if brief { 2 } else { numbers.next().unwrap_or(50) };
    let size = (all / 128).max(1 << 20);
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    Work::new(setup, all / size, size)?.run(cycles)
}

/// Rates of the cycles, in GB/s.
#[derive(Default)]
struct Rates(Vec<f64>);

impl Rates {
    fn add(&mut self, bytes: usize, begin: Instant) {
        self.0.push(bytes as f64 / begin.elapsed().as_secs_f64() / 1e9);
    }

    fn row(mut self, what: &str) {
        let median = middle(&mut self.0);
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{what:<34} {median:>8.2} {least:>8.2}");
    }
}

impl Work {
    fn new(setup: Setup, blocks: usize, size: usize) -> Result<Self> {
        let stream = Stream::new(&setup.context)?;
        let mut state = 1u64;
        let random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = std::iter::repeat_with(random).take(size + blocks * SHIFT).collect();
        let contents = Buffer::from_slice(&DeviceMemory::new(&setup.context), &bytes, &stream)?.into_shared();
        let mut options = PoolOptions::default();
        let begin = Instant::now();
        options.initial = blocks * size + (64 << 20);
        let host = Pool::new(&PinnedMemory::new(&setup.context), &options)?;
        println!("{} MiB of page-locked memory in {:.2} s", options.initial >> 20, begin.elapsed().as_secs_f64());
        Ok(Self { setup, stream, blocks, size, contents, host })
    }

    fn contents_of(&self, block: usize) -> Result<SharedBuffer<u8, kind::Device>> {
        Ok(self.contents.slice(block * SHIFT..block * SHIFT + self.size)?)
    }

    fn run(&self, cycles: usize) -> Result<()> {
        let device = DeviceMemory::new(&self.setup.context);
        let pool = Pool::new(&device, &PoolOptions::default())?;
        let mut blocks = Vec::new();
        for number in 0..self.blocks {
            let mut block: Buffer<u8, _> = Buffer::zeroed(&pool, self.size, &self.stream)?;
            block.copy_from_buffer(0, &self.contents_of(number)?, ..)?;
            blocks.push(block);
        }
        let [mut to_host, mut to_device, mut sleeps, mut wakes] = [const { Rates(Vec::new()) }; 4];
        let mut options = SleepOptions::default();
        options.host = Some(self.host.share());
        let mut saved = 0;
        for cycle in 0..cycles {
            // Now and then, because the machine changes.
            if cycle % 10 == 0 {
                let mut copies = Vec::new();
                for _ in &blocks {
                    copies.push(Buffer::<u8, _>::zeroed(&self.host, self.size, &self.stream)?);
                }
                self.stream.synchronize()?;
                let begin = Instant::now();
                copies.iter_mut().zip(&blocks).try_for_each(|(copy, block)| copy.copy_from_buffer(0, block, ..))?;
                self.stream.synchronize()?;
                to_host.add(self.blocks * self.size, begin);
                let begin = Instant::now();
                blocks.iter_mut().zip(&copies).try_for_each(|(block, copy)| block.copy_from_buffer(0, copy, ..))?;
                self.stream.synchronize()?;
                to_device.add(self.blocks * self.size, begin);
            }
            let begin = Instant::now();
            let slept = pool.sleep(&options)?;
            sleeps.add(slept.saved, begin);
            saved = slept.saved;
            let mut other: Buffer<u8, _> = Buffer::zeroed(&device, slept.released, &self.stream)?;
            other.fill(.., 171)?;
            self.stream.synchronize()?;
            drop(other);
            let begin = Instant::now();
            pool.wake()?;
            wakes.add(slept.saved, begin);
            for (number, block) in blocks.iter().enumerate() {
                if !block.equals(&self.contents_of(number)?)? {
                    return Err(
                        format!("cycle {cycle}: block {number} has other contents than before the sleep").into()
                    );
                }
            }
        }
        println!("{cycles} cycles of {} MiB in {} blocks, without a wrong byte\n", saved >> 20, self.blocks);
        println!("{:<34} {:>8} {:>8}", "GB/s", "median", "least");
        to_host.row("plain copies to the host");
        sleeps.row("sleep");
        to_device.row("plain copies to the device");
        wakes.row("wake");
        Ok(())
    }
}
