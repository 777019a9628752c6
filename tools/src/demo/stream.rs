//! Streams the file through mapped memory, chunk by chunk, in both directions.

use crate::bytes;
use crate::mapped_memory::MappedBuffer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// CPU loads from a GPU's memory are slow (1 GB/s), so the demo loads only this much of each chunk there.
pub(super) const SAMPLE: usize = 1 << 20;
/// A progress bar appears if the work takes longer than this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the stream stopped.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is a folder; the demo streams a file", path.display())]
    Folder { path: PathBuf },
    #[error(
        "WRONG DATA at byte {offset} of {}: {writer} wrote {wrote:#04x}, {reader} read {read:#04x}", path.display()
    )]
    Mismatch { path: PathBuf, offset: u64, writer: &'static str, wrote: u8, reader: &'static str, read: u8 },
    #[error(transparent)]
    Memory(#[from] cuda_mem::Error),
}

/// An open file.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    file: File,
    /// Known for regular files only.
    length: Option<u64>,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, StreamError> {
        let fail = |source| StreamError::Open { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(fail)?;
        let data = file.metadata().map_err(fail)?;
        if data.is_dir() {
            return Err(StreamError::Folder { path: path.to_path_buf() });
        }
        // Files in /proc report a length of 0 but hold more.
        let length = (data.is_file() && data.len() > 0).then_some(data.len());
        Ok(Self { path: path.to_path_buf(), file, length })
    }

    /// The mapping is no larger than the file.
    pub(super) fn mapping_size(&self, chunk: usize) -> usize {
        self.length.and_then(|length| usize::try_from(length).ok()).map_or(chunk, |length| chunk.min(length)).max(1)
    }

    /// Reads until the buffer is full or the file ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, StreamError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(StreamError::Read { path: self.path.clone(), source }),
            }
        }
        Ok(filled)
    }
}

/// The bytes that passed, all of them verified. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FileReport {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) chunk_bytes: usize,
    pub(super) chunks: u64,
    pub(super) seconds: f64,
    pub(super) stored_by_cpu: u64,
    pub(super) loaded_by_cpu: u64,
}

/// The operations that move bytes into memory and out of it. [`MappedBuffer`] implements them, and tests replace them.
pub(super) trait Ways {
    fn size(&self) -> usize;
    fn cpu_store(&mut self, bytes: &[u8]) -> cuda_mem::Result<()>;
    fn cpu_load(&self, offset: usize, bytes: &mut [u8]) -> cuda_mem::Result<()>;
    fn driver_write(&mut self, bytes: &[u8]) -> cuda_mem::Result<()>;
    fn driver_read(&self, bytes: &mut [u8]) -> cuda_mem::Result<()>;
}

impl Ways for MappedBuffer {
    fn size(&self) -> usize {
        self.len()
    }

    fn cpu_store(&mut self, bytes: &[u8]) -> cuda_mem::Result<()> {
        self.store(0, bytes)
    }

    fn cpu_load(&self, offset: usize, bytes: &mut [u8]) -> cuda_mem::Result<()> {
        self.load(offset, bytes)
    }

    fn driver_write(&mut self, bytes: &[u8]) -> cuda_mem::Result<()> {
        self.copy_from_slice(0, bytes)
    }

    fn driver_read(&self, bytes: &mut [u8]) -> cuda_mem::Result<()> {
        self.copy_to_slice(0, bytes)
    }
}

/// Streams the file through the memory. The CPU loads at most `most` bytes of each chunk.
///
/// Before the CPU stores a chunk, the driver writes the complement of each of its bytes. So every byte that the driver
/// reads afterwards must come from those stores.
pub(super) fn run(
    mut source: Source,
    memory: &mut impl Ways,
    chunk: usize,
    most: usize,
) -> Result<FileReport, StreamError> {
    let start = Instant::now();
    let mapping = memory.size();
    let (mut data, mut other) = (vec![0u8; mapping], vec![0u8; mapping]);
    let mut report = FileReport {
        path: source.path.clone(),
        bytes: 0,
        chunk_bytes: chunk,
        chunks: 0,
        seconds: 0.0,
        stored_by_cpu: 0,
        loaded_by_cpu: 0,
    };
    let mut progress = Progress::new(source.length);
    loop {
        let count = source.fill(&mut data)?;
        if count == 0 {
            break;
        }
        let (data, other) = (&data[..count], &mut other[..count]);
        let mismatch = |at: usize, writer, wrote, reader, read| StreamError::Mismatch {
            path: source.path.clone(),
            offset: report.bytes + at as u64,
            writer,
            wrote,
            reader,
            read,
        };

        // To the device by the driver's copy, and back by CPU loads.
        for (complement, byte) in other.iter_mut().zip(data) {
            *complement = !byte;
        }
        memory.driver_write(other)?;
        let mut loaded = 0;
        for range in sample(count, most, report.chunks) {
            let part = &mut other[range.clone()];
            memory.cpu_load(range.start, part)?;
            loaded += part.len();
            if let Some(at) = differs(part.iter().copied(), data[range.clone()].iter().map(|byte| !byte)) {
                return Err(mismatch(range.start + at, "the driver", !data[range.start + at], "the CPU", part[at]));
            }
        }

        // To the device by CPU stores, and back by the driver's copy.
        memory.cpu_store(data)?;
        memory.driver_read(other)?;
        if let Some(at) = differs(data.iter().copied(), other.iter().copied()) {
            return Err(mismatch(at, "the CPU", data[at], "the driver", other[at]));
        }

        report.bytes += count as u64;
        report.chunks += 1;
        report.stored_by_cpu += count as u64;
        report.loaded_by_cpu += loaded as u64;
        progress.show(report.bytes);
    }
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Where two sequences of bytes first differ.
fn differs(one: impl Iterator<Item = u8>, other: impl Iterator<Item = u8>) -> Option<usize> {
    one.zip(other).position(|(one, other)| one != other)
}

/// The ranges of a chunk that the CPU loads: all of a small chunk; the beginning, the end, and a middle piece of a
/// larger chunk. The middle piece moves from chunk to chunk.
fn sample(count: usize, most: usize, turn: u64) -> Vec<Range<usize>> {
    if count <= most {
        return std::iter::once(0..count).collect();
    }
    let edge = most / 4;
    let middle = most - 2 * edge;
    let room = count - 2 * edge - middle;
    // The step shares no small factor with powers of two.
    let wander = usize::try_from(turn.wrapping_mul(777_777_773) % (room as u64 + 1)).unwrap_or(0);
    let from = edge + wander;
    vec![0..edge, from..from + middle, count - edge..count]
}

/// A bar that appears after a while, and only on a terminal.
struct Progress {
    bar: ProgressBar,
    start: Instant,
    shown: bool,
}

impl Progress {
    fn new(length: Option<u64>) -> Self {
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        let form = match length {
            Some(_) => "{bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left",
            None => "{spinner} {binary_bytes}",
        };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        Self { bar, start: Instant::now(), shown: false }
    }

    fn show(&mut self, position: u64) {
        self.bar.set_position(position);
        if !self.shown && self.start.elapsed() > PATIENCE {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The report's line on one direction.
pub(super) fn share(part: u64, whole: u64) -> String {
    match (part, whole) {
        (_, 0) => "nothing to verify".to_owned(),
        (part, whole) if part == whole => format!("{} bytes, every one verified", bytes::thousands(part)),
        (part, whole) => format!(
            "{} bytes ({:.1}% of them: CPU loads are slow here), every one verified",
            bytes::thousands(part),
            part as f64 * 100.0 / whole as f64
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::{Driver, MappedMemory};
    use std::io::Write;

    /// Host memory with one fault.
    struct Faulty {
        bytes: Vec<u8>,
        /// The operation that loses the byte at offset 5.
        lost_by: &'static str,
    }

    impl Faulty {
        fn enter(&mut self, way: &str, bytes: &[u8]) {
            let kept = self.bytes[5];
            self.bytes[..bytes.len()].copy_from_slice(bytes);
            if way == self.lost_by {
                self.bytes[5] = kept;
            }
        }
    }

    impl Ways for Faulty {
        fn size(&self) -> usize {
            self.bytes.len()
        }

        fn cpu_store(&mut self, bytes: &[u8]) -> cuda_mem::Result<()> {
            self.enter("CPU", bytes);
            Ok(())
        }

        fn cpu_load(&self, offset: usize, bytes: &mut [u8]) -> cuda_mem::Result<()> {
            bytes.copy_from_slice(&self.bytes[offset..offset + bytes.len()]);
            Ok(())
        }

        fn driver_write(&mut self, bytes: &[u8]) -> cuda_mem::Result<()> {
            self.enter("driver", bytes);
            Ok(())
        }

        fn driver_read(&self, bytes: &mut [u8]) -> cuda_mem::Result<()> {
            bytes.copy_from_slice(&self.bytes[..bytes.len()]);
            Ok(())
        }
    }

    #[test]
    fn demo_detects_one_byte_lost_by_cpu_or_driver() {
        // Fresh memory holds the same bytes as the file, so that a lost byte could look right.
        let path = file("lost", &[0; 48]);
        for (lost_by, writer, wrote) in [("CPU", "the CPU", 0u8), ("driver", "the driver", 0xFF)] {
            let mut memory = Faulty { bytes: vec![0; 16], lost_by };
            match run(Source::open(&path).unwrap(), &mut memory, 16, usize::MAX) {
                Err(StreamError::Mismatch { offset: 5, writer: who, wrote: what, read, .. }) => {
                    assert_eq!((who, what, read), (writer, wrote, !wrote));
                }
                other => panic!("{other:?}"),
            }
        }
        let mut memory = Faulty { bytes: vec![0; 16], lost_by: "" };
        assert_eq!(run(Source::open(&path).unwrap(), &mut memory, 16, usize::MAX).unwrap().chunks, 3);
        std::fs::remove_file(path).unwrap();
    }

    fn memory(size: usize) -> MappedBuffer {
        let context = Driver::software().unwrap().device(0).unwrap().primary_context().unwrap();
        crate::mapped_memory::mapped_memory(&MappedMemory::new(&context).unwrap(), size).unwrap()
    }

    fn file(name: &str, content: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("cuda-mem-stream-{}-{name}", std::process::id()));
        File::create(&path).unwrap().write_all(content).unwrap();
        path
    }

    #[test]
    fn sample_covers_both_chunk_boundaries_with_the_requested_size() {
        assert_eq!(sample(10, 10, 3), std::slice::from_ref(&(0..10)));
        for (count, most) in [(11, 10), (4097, 64), (16 << 20, 1 << 20), (5, 4), (2, 1)] {
            let mut before = Vec::new();
            for turn in [0, 1, 2, 1000, u64::MAX] {
                let ranges = sample(count, most, turn);
                assert_eq!(ranges.iter().map(ExactSizeIterator::len).sum::<usize>(), most, "{count} {most} {turn}");
                assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
                assert_eq!(ranges.last().unwrap().end, count);
                before.push(ranges[1].clone());
            }
            before.dedup();
            assert!(count < 1000 || before.len() > 3, "the middle piece moves");
        }
    }

    #[test]
    fn a_file_larger_than_the_mapping_passes_in_chunks() {
        let content: Vec<u8> = (0..10_001u32).map(|index| (index * 7 / 3) as u8).collect();
        let path = file("larger", &content);
        let source = Source::open(&path).unwrap();
        assert_eq!((source.mapping_size(4097), source.mapping_size(1 << 30)), (4097, 10_001));
        let report = run(source, &mut memory(4097), 4097, usize::MAX).unwrap();
        assert_eq!(
            (report.bytes, report.chunks, report.stored_by_cpu, report.loaded_by_cpu),
            (10_001, 3, 10_001, 10_001)
        );
        let report = run(Source::open(&path).unwrap(), &mut memory(4097), 4097, 100).unwrap();
        assert_eq!((report.stored_by_cpu, report.loaded_by_cpu), (10_001, 300));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn an_empty_file_has_nothing_to_verify_and_a_folder_is_refused() {
        let path = file("empty", b"");
        let report = run(Source::open(&path).unwrap(), &mut memory(1), 1, 1).unwrap();
        assert_eq!((report.bytes, report.chunks), (0, 0));
        std::fs::remove_file(path).unwrap();
        assert!(matches!(Source::open(&std::env::temp_dir()), Err(StreamError::Folder { .. })));
    }

    #[test]
    fn a_share_says_how_much_was_verified() {
        assert_eq!(share(0, 0), "nothing to verify");
        assert_eq!(share(1000, 1000), "1,000 bytes, every one verified");
        assert!(share(10, 1000).starts_with("10 bytes (1.0% of them"));
    }
}
