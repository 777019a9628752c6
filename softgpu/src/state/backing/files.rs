//! Memory files, which several mappings and processes can share.

use crate::call::{Result, ensure};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The name by which softgpu recognises its own memory files.
const NAME: &str = "softgpu";

/// Makes a memory file that cuImportExternalMemory accepts.
pub(crate) fn memory_file(size: u64) -> std::io::Result<OwnedFd> {
    named_file(NAME, size)
}

/// Makes a memory file. The name says what kind it is.
pub(crate) fn named_file(name: &str, size: u64) -> std::io::Result<OwnedFd> {
    let name = std::ffi::CString::new(name).map_err(std::io::Error::other)?;
    // SAFETY: the name is a C string, and the returned descriptor is new and ours.
    let file = unsafe {
        match libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(std::io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    let file = File::from(file);
    file.set_len(size)?;
    Ok(file.into())
}

/// Whether a descriptor is a memory file of softgpu, made by this process or another.
pub(crate) fn is_memory_file(fd: BorrowedFd<'_>) -> bool {
    file_name(fd).is_some_and(|name| name == NAME)
}

/// The name of a memory file; `None` for other files.
pub(crate) fn file_name(fd: BorrowedFd<'_>) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    let link = link.to_str()?.strip_prefix("/memfd:")?;
    Some(link.strip_suffix(" (deleted)").unwrap_or(link).to_owned())
}

/// A descriptor from a caller. Fails unless it is open.
pub(crate) fn open_descriptor<'a>(fd: RawFd) -> Result<BorrowedFd<'a>> {
    // SAFETY: fcntl takes any number.
    ensure(fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1)?;
    // SAFETY: the descriptor is open, and callers keep it open during the call.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A file's inode.
pub(crate) fn file_number(fd: BorrowedFd<'_>) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(File::from(fd.try_clone_to_owned()?).metadata()?.ino())
}

pub(crate) fn file_size(fd: BorrowedFd<'_>) -> std::io::Result<u64> {
    Ok(File::from(fd.try_clone_to_owned()?).metadata()?.len())
}
