//! Reads of files into device memory.

use super::engine::{CopyEngine, LARGE};
use super::file::{DIRECT_BLOCK, FileRange};
use super::job::{CpuCopy, Job};
use super::method::{CopyMethod, Direction};
use super::pieces::Pieces;
use super::staged::{self, HostBytes};
use crate::buffer::{Buffer, Place};
use crate::cpu::borrowed::Borrowed;
use crate::locks::Mutex;
use crate::memory::resource::{BlockKind, Kind};
use crate::{Refused, Result};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::{AsFd, BorrowedFd};

const CALL: &str = "CopyEngine::read_file";

/// The size in bytes that one thread reads at a time into memory that the CPU addresses.
const PART: usize = 1 << 20;

impl CopyEngine {
    /// Fills a buffer with the bytes of a file from byte `offset` on. Only a complete read gives a buffer of initialized
    /// bytes. When the call returns, the bytes are in the memory, and the file may change or end.
    ///
    /// The engine's threads read the file into page-locked staging, from which the device's copy engine takes the bytes
    /// in order of the buffer's home stream. What is in the page cache comes from there; the rest comes from the disk past
    /// the page cache, and does not fill it. Host memory is read into without staging.
    ///
    /// # Errors
    ///
    /// The error returns the buffer, which nothing uses any more:
    ///
    /// - [`Error::File`](crate::Error::File): the file is shorter, is not open for reading, is a directory, a pipe or a
    ///   socket, or cannot be read;
    /// - the memory belongs to another device; the home stream captures a graph; there is no room for staging.
    ///
    /// ```
    /// use cuda_mem::{Buffer, Stream, copy::CopyEngine, memory::DeviceMemory};
    /// use std::fs::File;
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// let (engine, stream) = (CopyEngine::new(&context)?, Stream::new(&context)?);
    /// # let path = std::env::temp_dir().join(format!("cuda-mem-doc-read-file-{}", std::process::id()));
    /// std::fs::write(&path, b"header, weights")?;
    /// let weights = Buffer::uninit(&DeviceMemory::new(&context), 7, &stream)?;
    /// let weights = engine.read_file(File::open(&path)?, 8, weights)?;
    /// assert_eq!(weights.to_vec()?, b"weights");
    /// let more = Buffer::uninit(&DeviceMemory::new(&context), 8, &stream)?;
    /// let refused = engine.read_file(File::open(&path)?, 8, more).unwrap_err();
    /// assert!(refused.to_string().ends_with("the file has 15 bytes; read a range that it has"));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "a name for it would hide that a refusal returns the buffer")]
    pub fn read_file<K: Kind>(
        &self,
        file: impl AsFd,
        offset: u64,
        into: Buffer<MaybeUninit<u8>, K>,
    ) -> Result<Buffer<u8, K>, Box<Refused<Buffer<MaybeUninit<u8>, K>>>> {
        match self.fill_from(file.as_fd(), offset, &into) {
            // SAFETY: each byte was written, and the copies are complete.
            Ok(()) => Ok(unsafe { into.assume_init() }),
            Err(error) => Err(Refused::new(into, error)),
        }
    }

    /// Fills a buffer that is exclusive. When it returns, nothing uses the buffer.
    fn fill_from<K: Kind>(&self, file: BorrowedFd<'_>, offset: u64, memory: &Buffer<MaybeUninit<u8>, K>) -> Result<()> {
        let place = memory.place(CALL, 0, memory.len())?;
        memory.check_writable(CALL)?;
        place.check(CALL, &self.inner.context)?;
        let by_cpu = matches!(place.memory, BlockKind::Host);
        let direct = !by_cpu && self.inner.staging.slot_size().is_multiple_of(DIRECT_BLOCK);
        let file = FileRange::open(CALL, file, offset, place.size, direct)?;
        if place.size == 0 {
            return Ok(());
        }
        if by_cpu {
            memory.settle()?;
            return self.read_to_host(&file, &place);
        }
        if place.memory == BlockKind::NonCoherent {
            memory.hand_over(&place)?;
        }
        let stream = place.home;
        stream.check_not_capturing(CALL)?;
        memory.mark_busy();
        if place.size >= LARGE {
            // The threads of all engines are few, and should not wait for other work of the stream.
            stream.synchronize()?;
        }
        let sides = CpuCopy { direction: Direction::ToDevice, mapped: place.host, host: null_mut(), size: place.size };
        let job = Job { sides, device: place.device, stream };
        let threads = u8::try_from(1 + self.inner.threads.helpers()).unwrap_or(u8::MAX);
        let (method, staging) = (CopyMethod::Staged { threads }, &self.inner.staging);
        let mut lane = staged::run(&job, HostBytes::File(&file), method, &self.inner.threads, staging)?;
        lane.settle()
    }

    /// Reads into memory that the CPU addresses and that no device work uses.
    fn read_to_host(&self, file: &FileRange<'_>, place: &Place<'_>) -> Result<()> {
        let _lent = Borrowed::lent_to_write(place.host, place.size);
        let (pieces, stopped) = (Pieces::new(place.size, PART, 0, 1), AtomicBool::new(false));
        let failed = Mutex::new(None);
        let host = HostPlace(place.host);
        let work = || {
            while !stopped.load(Ordering::Relaxed)
                && let Some(part) = pieces.claim()
            {
                // SAFETY: the part lies within the memory, which is exclusive and idle, and no other thread has it. The
                // range is not read directly.
                if let Err(error) = unsafe { file.read(host.at(part.start), part) } {
                    stopped.store(true, Ordering::Relaxed);
                    failed.lock().get_or_insert(error);
                }
            }
        };
        self.inner.threads.run((place.size - 1) / PART, &work);
        failed.into_inner().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Memory of which each thread writes other bytes.
struct HostPlace(*mut u8);

// SAFETY: threads use disjoint parts.
unsafe impl Sync for HostPlace {}

impl HostPlace {
    fn at(&self, byte: usize) -> *mut u8 {
        self.0.wrapping_add(byte)
    }
}
