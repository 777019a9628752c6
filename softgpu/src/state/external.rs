//! Memory of other APIs.

use super::Global;
use super::context::Context;
use super::handle::next_sequence;
use super::mapping::Mapping;
use super::memory::{Allocation, Origin, Storage};
use super::sync::lock;
use crate::call::{Result, ensure};
use crate::vulkan;
use cuda_sys::CUresult;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

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

#[derive(Debug)]
pub(crate) struct ExternalMemory {
    pub(crate) sequence: u64,
    pub(crate) context: Arc<Context>,
    pub(crate) size: u64,
    fd: OwnedFd,
    vulkan: bool,
    /// The import that proved the descriptor valid. The first mapping uses it.
    first: Mutex<Option<vulkan::Imported>>,
}

impl ExternalMemory {
    /// Imports an opaque file descriptor. The driver owns it only if this succeeds.
    pub(crate) fn import(global: &Global, context: &Arc<Context>, fd: RawFd, size: u64) -> Result<u64> {
        ensure(size > 0)?;
        let unknown = CUresult::CUDA_ERROR_UNKNOWN;
        let borrowed = open_descriptor(fd).map_err(|_| unknown)?;
        let first = if is_memory_file(borrowed) {
            ensure(file_size(borrowed).is_ok_and(|room| size <= room))?;
            None
        } else {
            let vulkan = global.vulkan().ok_or(unknown)?;
            Some(vulkan.import(context.device, borrowed, size)?)
        };
        // SAFETY: the import succeeded, so the driver owns the descriptor from here on, as the interface says.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let vulkan = first.is_some();
        let sequence = next_sequence();
        let memory = Self { sequence, context: context.clone(), size, fd, vulkan, first: Mutex::new(first) };
        Ok(global.externals.insert(sequence, memory).0)
    }

    /// Maps `size` bytes at `offset`.
    pub(crate) fn map(&self, global: &Global, offset: u64, size: u64) -> Result<Arc<Allocation>> {
        ensure(size > 0 && offset.checked_add(size).is_some_and(|end| end <= self.size))?;
        let length = usize::try_from(size).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let storage = if self.vulkan {
            let imported = match lock(&self.first).take() {
                Some(imported) => imported,
                None => {
                    let vulkan = global.vulkan().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
                    vulkan.import(self.context.device, self.fd.as_fd(), self.size)?
                }
            };
            Storage::Vulkan(imported.at(offset))
        } else {
            let mapping = Mapping::shared(self.fd.as_fd(), offset, length);
            let hidden = |mapping| Storage::device(mapping, length, global.settings.strict);
            mapping.and_then(hidden).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?
        };
        let block = Allocation::new(&self.context, Origin::Mapped, length, storage, None);
        Ok(global.memory.insert(block.with_contents()))
    }
}
