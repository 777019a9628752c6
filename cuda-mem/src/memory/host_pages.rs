//! Host memory of huge pages, whose pages exist before it is page-locked.
//!
//! cuMemHostAlloc makes and locks the pages of 16 GiB in 7.3 s, on one thread. Sixteen threads make them in 0.4 s, as huge
//! pages, and cuMemHostRegister then locks them in 0.4 s (an H200, docs/measurements/2026-11-30-h200-sleep-and-blocks.md).

use super::HostOwner;
use super::pinned::PAGE;
use super::resource::host::{check_room, no_room};
use crate::error::callback::call_through;
use crate::{Error, Result};
use core::ops::{ControlFlow, Range};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::io;
use std::thread;

/// The size of a huge page, in bytes: that of x86-64, and of ARM with pages of 4 KiB.
const HUGE_PAGE: usize = 2 << 20;
/// How many bytes a thread touches between two claims. It takes some 6 ms.
const PIECE: usize = 16 << 20;
/// More threads make the pages no faster.
const MOST_THREADS: usize = 16;
/// Nodes from this number on are left to the system.
const MOST_NODES: u32 = u64::BITS - 1;

/// What hears of the progress: how many bytes are done, of how many. It may cancel the work.
pub(super) type Progress<'hearer> = &'hearer dyn Fn(usize, usize) -> ControlFlow<()>;

/// A mapping of anonymous memory, all of whose pages exist. Its drop gives them back.
#[derive(Debug)]
pub(super) struct HostPages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and any thread may use or unmap it.
unsafe impl Send for HostPages {}
// SAFETY: a shared reference reaches the bytes by `make` alone, whose callers have different ranges.
unsafe impl Sync for HostPages {}

// SAFETY: the mapping stays where it is until the drop, and nothing else uses it. The drop reads no byte.
unsafe impl HostOwner for HostPages {
    type Element = u8;

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn length(&self) -> usize {
        self.length
    }
}

impl HostPages {
    /// Maps `size` bytes, rounded up to whole pages, and touches them by several threads: near `node` if the system allows
    /// it, as huge pages if it has some. A forked process does not have the memory.
    ///
    /// # Errors
    ///
    /// There is not so much memory; `progress` canceled. No page is left then.
    pub fn new(call: &'static str, size: usize, node: Option<i32>, progress: Progress<'_>) -> Result<Self> {
        let length = size.checked_next_multiple_of(PAGE).filter(|length| *length <= isize::MAX as usize - HUGE_PAGE);
        let Some(length) = length else {
            return Err(no_room(call, size, "no process can address so much memory".into()));
        };
        check_room(call, size)?;
        let pages = Self::map(length).map_err(|error| no_room(call, size, refused("mmap", &error)))?;
        pages.advise(node);
        pages.touch(size, call, progress)?;
        Ok(pages)
    }

    /// Maps memory that begins at a huge page.
    fn map(length: usize) -> io::Result<Self> {
        let room = length + HUGE_PAGE;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address of the system's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), room, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        let before = start.addr().wrapping_neg() % HUGE_PAGE;
        // SAFETY: both parts lie in the new mapping, beside the bytes that stay.
        unsafe {
            unmap(start, before);
            unmap(start.add(before + length), room - before - length);
            Ok(Self { start: NonNull::new_unchecked(start.add(before)), length })
        }
    }

    /// Says where the pages should lie and how large they should be. A system that refuses has slower pages, not wrong ones:
    /// containers often forbid mbind, and some systems have no huge pages.
    fn advise(&self, node: Option<i32>) {
        let start = self.start.as_ptr().cast();
        // SAFETY: the mapping is ours. Advice changes no byte.
        unsafe {
            libc::madvise(start, self.length, libc::MADV_HUGEPAGE);
            // The child of a fork would share the pages, and the parent's next store would move the parent's page away from
            // under the device.
            libc::madvise(start, self.length, libc::MADV_DONTFORK);
        }
        if let Some(node) = node.and_then(|node| u32::try_from(node).ok()).filter(|node| *node < MOST_NODES) {
            let nodes = 1u64 << node;
            // SAFETY: as above. The call reads one bit less than `count` of `nodes`.
            unsafe {
                let count = u64::from(MOST_NODES) + 1;
                libc::syscall(libc::SYS_mbind, start, self.length, libc::MPOL_PREFERRED, &raw const nodes, count, 0);
            }
        }
    }

    /// Makes all pages exist. The caller's thread takes part, and tells of the progress.
    fn touch(&self, size: usize, call: &'static str, progress: Progress<'_>) -> Result<()> {
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (stopped, failed) = (AtomicBool::new(false), AtomicI32::new(0));
        let touch_next = || {
            let range = (!stopped.load(Ordering::Relaxed))
                .then(|| piece(next.fetch_add(1, Ordering::Relaxed), self.length))
                .flatten()?;
            if let Err(error) = self.make(range.clone()) {
                failed.store(error.raw_os_error().unwrap_or(libc::ENOMEM), Ordering::Relaxed);
                stopped.store(true, Ordering::Relaxed);
            }
            Some(done.fetch_add(range.len(), Ordering::Relaxed) + range.len())
        };
        thread::scope(|scope| -> Result<()> {
            // Also if `progress` panics.
            let _stop = StopAtDrop(&stopped);
            for number in 1..threads(self.length) {
                let builder = thread::Builder::new().name(format!("cuda-mem-pages-{number}"));
                // With fewer threads it takes longer.
                if builder.spawn_scoped(scope, || while touch_next().is_some() {}).is_err() {
                    break;
                }
            }
            while let Some(done) = touch_next() {
                // The second half is the registration.
                report(call, progress, done.min(size) / 2, size)?;
            }
            Ok(())
        })?;
        match failed.into_inner() {
            0 => Ok(()),
            code => Err(no_room(call, size, refused("madvise", &io::Error::from_raw_os_error(code)))),
        }
    }

    /// Makes the pages of a range exist.
    fn make(&self, range: Range<usize>) -> io::Result<()> {
        // SAFETY: the range lies in the mapping.
        let start = unsafe { self.start.as_ptr().add(range.start) };
        loop {
            // SAFETY: the pages are ours. The call fails where a store would be a signal (SIGBUS).
            if unsafe { libc::madvise(start.cast(), range.len(), libc::MADV_POPULATE_WRITE) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                // Linux before 5.14 does not know the advice.
                Some(libc::EINVAL) => break,
                _ => return Err(error),
            }
        }
        for page in (0..range.len()).step_by(PAGE) {
            // SAFETY: the byte lies in the range, which only this thread uses.
            unsafe { start.add(page).write_volatile(0) };
        }
        Ok(())
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // A forked process does not have the mapping, and may have another one there.
        if !crate::error::forked() {
            // SAFETY: the mapping is ours, and its user has ended.
            unsafe { unmap(self.start.as_ptr(), self.length) };
        }
    }
}

/// Tells of the progress.
///
/// # Errors
///
/// The program cancels the call.
pub(super) fn report(call: &'static str, progress: Progress<'_>, done: usize, total: usize) -> Result<()> {
    match call_through(|| progress(done, total)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Canceled { call }),
    }
}

/// Sets a flag when it is dropped.
struct StopAtDrop<'flag>(&'flag AtomicBool);

impl Drop for StopAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// # Safety
///
/// The bytes are mapped, and nothing uses them.
unsafe fn unmap(start: *mut u8, length: usize) {
    if length != 0 {
        // SAFETY: this function's contract.
        let outcome = unsafe { libc::munmap(start.cast(), length) };
        // It fails only if the process has too many mappings, of which this is the middle of one. The pages stay then.
        debug_assert_eq!(outcome, 0, "munmap: {}", io::Error::last_os_error());
    }
}

/// The bytes of a piece, if there is one of this number.
fn piece(number: usize, length: usize) -> Option<Range<usize>> {
    let start = number.checked_mul(PIECE).filter(|start| *start < length)?;
    Some(start..(start + PIECE).min(length))
}

/// How many threads touch so many bytes, the caller's included.
fn threads(length: usize) -> usize {
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    length.div_ceil(PIECE).min(processors).clamp(1, MOST_THREADS)
}

fn refused(call: &str, error: &io::Error) -> String {
    format!(
        "{call} failed: {error}: free memory of the host, or raise the limit of this process (`ulimit -v`, vm.overcommit_memory, \
         the memory of its container)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn pieces_cover_the_memory_once() {
        for length in [1, PAGE, PIECE, PIECE + PAGE, 5 * PIECE - PAGE] {
            let pieces: Vec<_> = (0..).map_while(|number| piece(number, length)).collect();
            assert_eq!(pieces.iter().map(Range::len).sum::<usize>(), length);
            assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
        assert_eq!(piece(usize::MAX, usize::MAX), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know the advice")]
    fn pages_are_zero_whole_and_begin_at_a_huge_page() {
        let seen = Mutex::new(Vec::new());
        let hear = |done, total| {
            seen.lock().unwrap().push((done, total));
            ControlFlow::Continue(())
        };
        let size = 3 * PIECE + 100;
        let mut pages = HostPages::new("test", size, Some(0), &hear).unwrap();
        assert_eq!(pages.length, 3 * PIECE + PAGE);
        assert_eq!(pages.as_mut_ptr().addr() % HUGE_PAGE, 0);
        // SAFETY: the pages exist, and nobody else uses them.
        let bytes = unsafe { core::slice::from_raw_parts_mut(pages.as_mut_ptr(), pages.length()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        let seen = seen.into_inner().unwrap();
        assert!(seen.iter().all(|(done, total)| *done <= size / 2 && *total == size));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know the advice")]
    fn a_hearer_cancels_by_its_answer_or_by_a_panic() {
        let error = HostPages::new("test", 4 * PIECE, None, &|_, _| ControlFlow::Break(())).unwrap_err();
        assert_eq!(error, Error::Canceled { call: "test" });
        let panic = |_, _| panic!("planted");
        let outcome = std::panic::catch_unwind(|| HostPages::new("test", 4 * PIECE, None, &panic).map(drop));
        assert!(outcome.is_err());
    }

    #[test]
    fn sizes_beyond_the_address_space_are_refused() {
        for size in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let error = HostPages::new("test", size, None, &|_, _| ControlFlow::Continue(())).unwrap_err();
            assert!(error.is_out_of_memory(), "{error}");
        }
    }
}
