//! The files of exports. A process compares them to recognise its own memory when it receives it back.

use crate::{Error, Result};
use rustix::fs::{FileType, fcntl_get_seals, fstat};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Duplicates a file descriptor.
pub(crate) fn duplicate(file: &OwnedFd) -> Result<OwnedFd> {
    file.try_clone()
        .map_err(|error| Error::System { call: "fcntl", code: error.raw_os_error().unwrap_or(libc::EINVAL) })
}

/// Takes over a file descriptor that the driver has made. A child process must not inherit it by accident.
///
/// # Safety
///
/// The file descriptor is open, and nobody else owns it.
pub(crate) unsafe fn adopt(file: RawFd) -> Result<OwnedFd> {
    // SAFETY: this function's contract.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)
        .map_err(|error| Error::System { call: "fcntl", code: error.raw_os_error() })?;
    Ok(file)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sameness {
    Same,
    Different,
    /// The kernel does not reveal it.
    Unknown,
}

/// Compares two files. A duplicate shares its open file even after a transfer through a socket, which `kcmp` detects.
/// The inode identifies a memory file that was opened again. It identifies no other file: all files of a driver may
/// share one anonymous inode, and nobody can open them again.
pub(crate) fn compare(one: impl AsFd, other: impl AsFd) -> Sameness {
    judge(one.as_fd(), other.as_fd(), is_same_open_file(one.as_fd(), other.as_fd()))
}

fn judge(one: BorrowedFd<'_>, other: BorrowedFd<'_>, same_open_file: Option<bool>) -> Sameness {
    if same_open_file == Some(true) {
        return Sameness::Same;
    }
    match (memory_file(one), memory_file(other)) {
        (Some(one), Some(other)) if one == other => Sameness::Same,
        (None, None) if same_open_file.is_none() => Sameness::Unknown,
        _ => Sameness::Different,
    }
}

/// Whether two descriptors share an open file; `None` where the system refuses the question.
fn is_same_open_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Option<bool> {
    const KCMP_FILE: libc::c_int = 0;
    let process = std::process::id();
    // SAFETY: the system call takes numbers only and writes no memory.
    let answer =
        unsafe { libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, one.as_raw_fd(), other.as_raw_fd()) };
    // 1, 2 and 3 all mean "not the same".
    (answer >= 0).then_some(answer == 0)
}

/// Device and inode of a memory file; `None` for other files, which cannot be sealed.
fn memory_file(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let status = fstat(file).ok()?;
    let is_memory = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && fcntl_get_seals(file).is_ok();
    is_memory.then_some((status.st_dev, status.st_ino))
}

/// The length of a regular file in bytes; `None` for others, such as those of drivers.
pub(crate) fn length(file: impl AsFd) -> Option<u64> {
    let status = fstat(file).ok()?;
    let is_regular = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    is_regular.then(|| u64::try_from(status.st_size).unwrap_or(0))
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::fs::OpenOptions;
    use std::os::unix::net::UnixStream;

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    /// Like the files of drivers: without a name, and with an inode that all such files share.
    fn anonymous() -> std::io::Result<OwnedFd> {
        // SAFETY: the call takes numbers.
        match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) } {
            -1 => Err(std::io::Error::last_os_error()),
            // SAFETY: the descriptor is open, and nobody else owns it.
            file => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        }
    }

    fn without_kcmp(one: &OwnedFd, other: &OwnedFd) -> Sameness {
        judge(one.as_fd(), other.as_fd(), None)
    }

    #[test]
    fn files_that_share_an_inode_are_told_apart() -> Outcome {
        let (one, other) = (anonymous()?, anonymous()?);
        assert_eq!(fstat(&one)?.st_ino, fstat(&other)?.st_ino);
        if is_same_open_file(one.as_fd(), one.as_fd()).is_none() {
            println!("skipped: kcmp is not permitted here; let the container permit it");
        } else {
            assert_eq!(compare(&one, &other), Sameness::Different);
            assert_eq!(compare(&one, duplicate(&one)?), Sameness::Same);
        }
        // Without kcmp nothing is known, not even about a duplicate.
        assert_eq!(without_kcmp(&one, &other), Sameness::Unknown);
        assert_eq!(without_kcmp(&one, &duplicate(&one)?), Sameness::Unknown);
        Ok(())
    }

    #[test]
    fn a_memory_file_is_known_when_it_is_opened_anew() -> Outcome {
        let (one, other) = (memfd_create("one", MemfdFlags::CLOEXEC)?, memfd_create("one", MemfdFlags::CLOEXEC)?);
        let path = format!("/proc/self/fd/{}", one.as_raw_fd());
        let anew = OwnedFd::from(OpenOptions::new().read(true).write(true).open(path)?);
        for compare in [|one: &OwnedFd, other: &OwnedFd| compare(one, other), without_kcmp] {
            assert_eq!(compare(&one, &anew), Sameness::Same);
            assert_eq!(compare(&one, &duplicate(&one)?), Sameness::Same);
            assert_eq!(compare(&one, &other), Sameness::Different);
            assert_eq!(compare(&one, &anonymous()?), Sameness::Different);
        }
        Ok(())
    }

    #[test]
    fn only_files_with_a_length_have_one() -> Outcome {
        let memory = memfd_create("memory", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, 4097)?;
        assert_eq!(length(&memory), Some(4097));
        assert_eq!(length(anonymous()?), None);
        assert_eq!(length(UnixStream::pair()?.0), None);
        assert_eq!(length(OpenOptions::new().read(true).open("/dev/null")?), None);
        Ok(())
    }
}
