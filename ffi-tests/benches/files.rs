//! How fast a file reaches device memory: from the page cache, and from the disk, beside a loop of plain direct reads of the
//! disk by one thread, as `dd iflag=direct bs=16M` makes, and beside plain reads and a copy.
//!
//! `cargo bench -p benches --bench files` runs it over the driver that the environment names: 6.4e9 bytes, three times, in
//! the folder for temporary files. Another folder and other numbers come as `-- FOLDER BYTES TIMES`. `--brief` is a short run
//! that only shows that it works.
//!
//! Each read is compared with the file. What a virtual machine's host caches is no disk: the loop shows what the disk gives.

use cuda_mem::copy::CopyEngine;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, kind};
use cuda_mem::{Buffer, HostBuffer, Stream};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Instant;
use testkit::Setup;
use testkit::timing::middle;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The bytes that the loops read at once.
const STEP: usize = 16 << 20;
/// Where the read begins, beyond the header of a file.
const OFFSET: usize = 12_345;

struct Work {
    setup: Setup,
    stream: Stream,
    engine: CopyEngine,
    path: PathBuf,
    file: File,
    /// The size of a read.
    size: usize,
    /// The contents of each `STEP` bytes of the file, to which its number is added.
    expected: Buffer<u8, kind::Device>,
    host: HostBuffer<u8>,
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Seconds of some runs, and what they are.
struct Row(&'static str, Vec<f64>);

impl Row {
    fn print(mut self, size: usize) {
        let most = self.1.iter().copied().fold(0.0, f64::max);
        let rate = |seconds: f64| size as f64 / seconds / 1e9;
        println!("{:<44} {:>8.2} {:>8.2}", self.0, rate(middle(&mut self.1)), rate(most));
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let brief = arguments.iter().any(|argument| argument == "--brief");
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<f64>().ok());
    let folder =
        arguments.iter().find(|argument| argument.contains('/')).map_or_else(std::env::temp_dir, PathBuf::from);
    let setup = Setup::from_environment()?;
    println!("{}", setup.describe());
    let usual = if setup.is_software() { 256e6 } else { 6.4e9 };
    let size = if brief { 40e6 } else { numbers.next().unwrap_or(usual) } as usize;
    let times = if brief { 2 } else { numbers.next().unwrap_or(3.0) as usize };
    Work::new(setup, folder, size)?.run(times.max(1))
}

impl Work {
    fn new(setup: Setup, folder: PathBuf, size: usize) -> Result<Self> {
        let (stream, engine) = (Stream::new(&setup.context)?, CopyEngine::new(&setup.context)?);
        let mut state = 1_u64;
        let random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let mut bytes: Vec<u8> = std::iter::repeat_with(random).take(STEP).collect();
        let path = folder.join(format!("cuda-mem-bench-files-{}", std::process::id()));
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        // Each step of the file begins with its number.
        for step in 0..(OFFSET + size).div_ceil(STEP) {
            bytes[..8].copy_from_slice(&step.to_le_bytes());
            file.write_all(&bytes)?;
        }
        let begin = Instant::now();
        file.sync_all()?;
        println!("{size} bytes in {}, written to the disk in {:.1} s", path.display(), begin.elapsed().as_secs_f64());
        let expected = Buffer::from_slice(&DeviceMemory::new(&setup.context), &bytes, &stream)?;
        let host = HostBuffer::zeroed(&PinnedMemory::new(&setup.context), STEP)?;
        Ok(Self { setup, stream, engine, path, file, size, expected, host })
    }

    /// Removes the file from the page cache.
    fn forget(&self) -> Result<()> {
        // SAFETY: the descriptor is open.
        match unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
            0 => Ok(()),
            code => Err(std::io::Error::from_raw_os_error(code).into()),
        }
    }

    fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
        let begin = Instant::now();
        work()?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Reads the file, and compares it.
    fn read(&self) -> Result<f64> {
        let memory = DeviceMemory::new(&self.setup.context);
        let buffer = Buffer::uninit(&memory, self.size, &self.stream)?;
        self.stream.synchronize()?;
        let begin = Instant::now();
        let buffer = self.engine.read_file(&self.file, OFFSET as u64, buffer)?;
        let seconds = begin.elapsed().as_secs_f64();
        self.compare(buffer)?;
        Ok(seconds)
    }

    fn compare(&self, buffer: Buffer<u8, kind::Device>) -> Result<()> {
        let buffer = buffer.into_shared();
        let mut expected: Buffer<u8, _> = Buffer::zeroed(&DeviceMemory::new(&self.setup.context), STEP, &self.stream)?;
        expected.copy_from_buffer(0, &self.expected, ..)?;
        let expected = expected.into_shared();
        let mut at = 0;
        while at < self.size {
            let (step, within) = ((OFFSET + at) / STEP, (OFFSET + at) % STEP);
            let mut length = (STEP - within).min(self.size - at);
            if within < 8 {
                // The number of the step.
                length = length.min(8 - within);
                let number = &step.to_le_bytes()[within..within + length];
                if buffer.slice(at..at + length)?.to_vec()? != number {
                    return Err(format!("the number of step {step} is wrong").into());
                }
            } else if !buffer.slice(at..at + length)?.equals(&expected.slice(within..within + length)?)? {
                return Err(format!("bytes {at} to {at}+{length} are wrong").into());
            }
            at += length;
        }
        Ok(())
    }

    /// Reads the file by one thread, in steps, and leaves the bytes in host memory.
    fn by_one_thread(&mut self, flags: i32) -> Result<f64> {
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.path)?;
        let (size, host) = (self.size, &mut self.host);
        Self::seconds(|| {
            // The file has whole steps.
            (0..size.div_ceil(STEP)).try_for_each(|step| file.read_exact_at(host, (step * STEP) as u64))?;
            Ok(())
        })
    }

    /// Reads the file by one thread, and copies each step to the device, as a plain program does.
    fn by_a_plain_program(&mut self) -> Result<f64> {
        let mut buffer: Buffer<u8, _> = Buffer::zeroed(&DeviceMemory::new(&self.setup.context), STEP, &self.stream)?;
        self.stream.synchronize()?;
        let (size, host, file) = (self.size, &mut self.host, &self.file);
        Self::seconds(|| {
            for step in 0..size.div_ceil(STEP) {
                file.read_exact_at(host, (step * STEP) as u64)?;
                buffer.copy_from_slice(0, host)?;
            }
            Ok(())
        })
    }

    /// The link: one copy from page-locked memory.
    fn link(&mut self) -> Result<f64> {
        let mut buffer: Buffer<u8, _> = Buffer::zeroed(&DeviceMemory::new(&self.setup.context), STEP, &self.stream)?;
        let source: Buffer<u8, _> = Buffer::zeroed(&PinnedMemory::new(&self.setup.context), STEP, &self.stream)?;
        self.stream.synchronize()?;
        let begin = Instant::now();
        for _ in 0..self.size.div_ceil(STEP) {
            buffer.copy_from_buffer(0, &source, ..)?;
        }
        self.stream.synchronize()?;
        Ok(begin.elapsed().as_secs_f64())
    }

    fn run(mut self, times: usize) -> Result<()> {
        let mut rows = [
            "the link: copies of page-locked memory",
            "page cache: read_file",
            "page cache: one thread, then copies",
            "page cache: one thread, to host memory only",
            "disk: read_file",
            "disk: one thread, O_DIRECT, to host memory only",
        ]
        .map(|name| Row(name, Vec::new()));
        for _ in 0..times {
            rows[0].1.push(self.link()?);
            // Into the page cache.
            self.by_one_thread(0)?;
            rows[1].1.push(self.read()?);
            rows[2].1.push(self.by_a_plain_program()?);
            rows[3].1.push(self.by_one_thread(0)?);
            self.forget()?;
            rows[4].1.push(self.read()?);
            self.forget()?;
            match self.by_one_thread(libc::O_DIRECT) {
                Ok(seconds) => rows[5].1.push(seconds),
                Err(error) => println!("skipped: direct reads of this folder's file system: {error}"),
            }
        }
        let threads = 1 + self.engine.helper_threads();
        println!("{times} reads of {:.2} GB by {threads} threads, without a wrong byte\n", self.size as f64 / 1e9);
        println!("{:<44} {:>8} {:>8}", "GB/s", "median", "least");
        for row in rows {
            if !row.1.is_empty() {
                row.print(self.size);
            }
        }
        Ok(())
    }
}
