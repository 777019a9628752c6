//! Semaphores of other APIs. Here their opaque file descriptors are eventfds, which any process can make.

use crate::call::{Result, ensure};
use crate::state::Global;
use crate::state::backing::open_descriptor;
use crate::state::contexts::Context;
use crate::state::handle::next_sequence;
use cuda_sys::CUresult;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Semaphore {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    counter: OwnedFd,
}

impl Semaphore {
    pub(crate) fn check(fd: RawFd) -> Result {
        let unknown = CUresult::CUDA_ERROR_UNKNOWN;
        open_descriptor(fd).map_err(|_| unknown)?;
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| unknown)?;
        if link.to_string_lossy() == "anon_inode:[eventfd]" { Ok(()) } else { Err(unknown) }
    }

    /// Imports a descriptor. The driver owns it only if this succeeds.
    pub(crate) fn import(global: &Global, context: &Arc<Context>, fd: RawFd) -> Result<u64> {
        Self::check(fd)?;
        // SAFETY: the descriptor is open. Non-blocking, so a wait cannot hang in a read after another wait took the
        // signal.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            ensure(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) != -1)?;
        }
        // SAFETY: the descriptor is a semaphore, so the import succeeds, and the driver owns it from here on.
        let counter = unsafe { OwnedFd::from_raw_fd(fd) };
        let sequence = next_sequence();
        let semaphore = Self { sequence, context: context.clone(), counter };
        Ok(global.semaphores.insert(sequence, semaphore).0)
    }

    pub(crate) fn find(global: &Global, handle: u64) -> Result<Arc<Self>> {
        global.semaphores.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the call reads the eight bytes of `one`.
        unsafe { libc::write(self.counter.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Waits for a signal and takes it. Gives up when the context ends.
    pub(crate) fn wait(&self) {
        let mut count = [0_u8; 8];
        while self.context.is_alive() {
            let mut ready = libc::pollfd { fd: self.counter.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: poll gets one structure of ours, and read gets eight bytes of ours.
            let taken = unsafe {
                libc::poll(&mut ready, 1, 10) == 1
                    && libc::read(self.counter.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) == 8
            };
            if taken {
                return;
            }
        }
    }
}
