//! Events shared by several processes: two counters on a shared page.

use super::ipc::{Purpose, Ticket};
use crate::call::Result;
use crate::state::backing::{Mapping, PAGE};
use cuda_sys::CUresult;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

const NAME: &str = "softgpu-event";

#[derive(Debug)]
pub(crate) struct SharedEvent {
    page: Mapping,
    file: OwnedFd,
    imported: bool,
}

/// The number of a recording. A wait only concerns recordings that were made before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recording(u32);

impl SharedEvent {
    /// Makes the page of a new event.
    pub(crate) fn make() -> Result<Self> {
        let file =
            crate::state::backing::named_file(NAME, PAGE as u64).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        Self::map(file, false)
    }

    fn map(file: OwnedFd, imported: bool) -> Result<Self> {
        let page = Mapping::shared(file.as_fd(), 0, PAGE).map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
        Ok(Self { page, file, imported })
    }

    pub(crate) fn open(bytes: &[u8; 64]) -> Result<Self> {
        let ticket = Ticket::read(bytes, Purpose::Event).map_err(|_| CUresult::CUDA_ERROR_MAP_FAILED)?;
        Self::map(ticket.open(NAME)?, true)
    }

    /// The handle with which other processes open the event. Only its maker gives it.
    pub(crate) fn ticket(&self) -> Result<[u8; 64]> {
        if self.imported {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        Ok(Ticket::of_file(Purpose::Event, self.file.as_fd(), PAGE as u64)?.write())
    }

    fn word(&self, n: usize) -> &AtomicU32 {
        // SAFETY: the page is mapped while `self` lives, and every process uses these words atomically.
        unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(self.page.base() + 4 * n)) }
    }

    /// How often it was recorded.
    fn recorded(&self) -> &AtomicU32 {
        self.word(0)
    }

    /// The number of the last recording that passed.
    fn passed_last(&self) -> &AtomicU32 {
        self.word(1)
    }

    /// The process that recorded it last.
    fn recorder(&self) -> &AtomicU32 {
        self.word(2)
    }

    pub(crate) fn record(&self) -> Recording {
        self.recorder().store(std::process::id(), Ordering::Relaxed);
        Recording(self.recorded().fetch_add(1, Ordering::AcqRel).wrapping_add(1))
    }

    /// Marks a recording as passed.
    pub(crate) fn pass(&self, recording: Recording) {
        self.passed_last().fetch_max(recording.0, Ordering::AcqRel);
        // SAFETY: the word is on a shared page. Waking nobody is harmless.
        unsafe { libc::syscall(libc::SYS_futex, self.passed_last().as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// The last recording, if it has not passed.
    pub(crate) fn pending(&self) -> Option<Recording> {
        let last = self.recorded().load(Ordering::Acquire);
        (self.passed_last().load(Ordering::Acquire) < last).then_some(Recording(last))
    }

    /// Waits for a recording. Gives up when `goes_on` returns false, or when the process that recorded last is gone.
    pub(crate) fn wait(&self, recording: Recording, goes_on: impl Fn() -> bool) {
        loop {
            let seen = self.passed_last().load(Ordering::Acquire);
            if seen >= recording.0 || !goes_on() || !self.recorder_lives() {
                return;
            }
            let patience = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            // SAFETY: the word is on a shared page, and the time is ours.
            unsafe {
                libc::syscall(libc::SYS_futex, self.passed_last().as_ptr(), libc::FUTEX_WAIT, seen, &raw const patience)
            };
        }
    }

    fn recorder_lives(&self) -> bool {
        let process = self.recorder().load(Ordering::Relaxed) as libc::pid_t;
        // SAFETY: signal 0 is not sent; the call only checks for the process.
        let answer = unsafe { libc::kill(process, 0) };
        answer == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    }
}
