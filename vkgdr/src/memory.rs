//! One allocation: Vulkan's memory with its CPU mapping and its CUDA mapping.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use cuda_sys::CUdeviceptr;

use crate::cuda::{Cuda, CudaMapping};
use crate::device::Device;
use crate::error::Error;
use crate::{cache, fence, select, trace};

/// The alignment of the host address that programs may rely on, and the minimum that Vulkan guarantees.
const HOST_ALIGNMENT: usize = 64;

/// An allocation that CPU and CUDA both address.
pub(crate) struct Memory {
    // Declared first, because CUDA must release the memory before Vulkan frees it.
    cuda: CudaMapping,
    vulkan: VulkanMemory,
    size: u64,
    coherent: bool,
    /// For imported memory: its descriptor, which an export duplicates.
    origin: Option<OwnedFd>,
}

/// The direction of a synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// CPU writes become visible to the device.
    Flush,
    /// Device writes become visible to the CPU.
    Invalidate,
}

impl Memory {
    /// Allocates `size` bytes.
    pub(crate) fn allocate(device: &Arc<Device>, cuda: &Cuda, size: u64, coherent: bool) -> Result<Self, Error> {
        let vulkan = VulkanMemory::allocate(device, size, None)?;
        let fd = trace::step("vkGetMemoryFdKHR", || vulkan.export())?;
        let cuda = trace::step("CUDA import", || CudaMapping::import(cuda, fd, vulkan.allocated, size))?;
        Ok(Self { cuda, vulkan, size, coherent, origin: None })
    }

    /// Imports `size` bytes that this process or another exported as `fd`.
    pub(crate) fn import(
        device: &Arc<Device>,
        cuda: &Cuda,
        fd: BorrowedFd<'_>,
        size: u64,
        coherent: bool,
    ) -> Result<Self, Error> {
        let vulkan = VulkanMemory::allocate(device, size, Some(fd))?;
        let cuda = CudaMapping::import(cuda, copy(fd)?, vulkan.allocated, size)?;
        Ok(Self { cuda, vulkan, size, coherent, origin: None })
    }

    /// Keeps the descriptor of an import.
    pub(crate) fn keep(&mut self, origin: OwnedFd) {
        self.origin = Some(origin);
    }

    /// Returns a new descriptor of the memory.
    pub(crate) fn export(&self) -> Result<OwnedFd, Error> {
        match &self.origin {
            None => self.vulkan.export(),
            Some(origin) => origin
                .try_clone()
                .map_err(|source| Error::System { what: "duplicating the file descriptor failed", source }),
        }
    }

    /// Makes a range visible to the other side.
    pub(crate) fn synchronise(&self, direction: Direction, offset: u64, size: u64) -> Result<(), Error> {
        let device = &self.vulkan.device;
        let atoms = select::atoms(offset, size, self.size, self.vulkan.allocated, device.atom).ok_or_else(|| {
            Error::InvalidValue(format!("offset {offset}, size {size}: the memory has {} bytes", self.size))
        })?;
        // Mapped device memory is usually write-combining, and no driver call is certain to empty the CPU's buffers.
        if direction == Direction::Flush {
            fence::stores();
        }
        if !self.coherent && !atoms.is_empty() {
            let ranges = [vk::MappedMemoryRange::default()
                .memory(self.vulkan.memory)
                .offset(atoms.start)
                .size(atoms.end - atoms.start)];
            // SAFETY: the whole allocation is mapped. Offset and size are multiples of the atom and lie inside the
            // allocation.
            let result = unsafe {
                match direction {
                    Direction::Flush => device.raw().flush_mapped_memory_ranges(&ranges),
                    Direction::Invalidate => device.raw().invalidate_mapped_memory_ranges(&ranges),
                }
            };
            result.map_err(|code| {
                let call = match direction {
                    Direction::Flush => "vkFlushMappedMemoryRanges",
                    Direction::Invalidate => "vkInvalidateMappedMemoryRanges",
                };
                lost(device, code);
                Error::vulkan(format!("{call} of {size} bytes at {offset} failed"), code)
            })?;
        }
        if direction == Direction::Invalidate {
            fence::loads();
        }
        Ok(())
    }

    pub(crate) fn host(&self) -> *mut u8 {
        self.vulkan.host.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    pub(crate) fn device_pointer(&self) -> CUdeviceptr {
        self.cuda.pointer
    }

    pub(crate) fn size(&self) -> usize {
        // The size was a `usize` in the call that made this object.
        usize::try_from(self.size).unwrap_or(usize::MAX)
    }

    pub(crate) fn coherent(&self) -> bool {
        self.coherent
    }

    /// The unit of flush and invalidate, or 1 if the memory needs neither.
    pub(crate) fn atom(&self) -> usize {
        if self.coherent { 1 } else { usize::try_from(self.vulkan.device.atom).unwrap_or(usize::MAX) }
    }
}

/// Vulkan's allocation with its CPU mapping. The drop undoes the steps that succeeded.
struct VulkanMemory {
    device: Arc<Device>,
    memory: vk::DeviceMemory,
    host: Option<NonNull<u8>>,
    /// Bytes allocated: the requested size rounded up to whole atoms, so that no rounded range leaves the allocation.
    allocated: u64,
}

impl VulkanMemory {
    /// Allocates memory, or imports the memory behind `import`, and maps all of it.
    fn allocate(device: &Arc<Device>, size: u64, import: Option<BorrowedFd<'_>>) -> Result<Self, Error> {
        let choice = device.memory;
        let allocated = select::round_up(size, device.atom)
            .filter(|allocated| *allocated <= choice.heap_size)
            .ok_or_else(|| {
                Error::vulkan(
                    format!(
                        "{size} bytes requested, but the CPU-mappable memory of {} (heap {}) has {} bytes",
                        device.name, choice.heap, choice.heap_size
                    ),
                    vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
                )
            })?;
        let opaque = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        // One import at a time: `close_refused` relies on it.
        let _turn = import.map(|_| IMPORTS.lock().unwrap_or_else(PoisonError::into_inner));
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(opaque);
        let mut source = vk::ImportMemoryFdInfoKHR::default().handle_type(opaque);
        let info = vk::MemoryAllocateInfo::default().allocation_size(allocated).memory_type_index(choice.index);
        let info = match import {
            None => info.push_next(&mut export),
            Some(fd) => {
                // Vulkan owns the copy once the call succeeds.
                source.fd = copy_apart(fd)?.into_raw_fd();
                info.push_next(&mut source)
            }
        };
        let memory = trace::step("vkAllocateMemory", || {
            // SAFETY: `info` and what it points to live across the call. The size is not 0 and fits the heap. A
            // descriptor to import is open.
            unsafe { device.raw().allocate_memory(&info, None) }
        })
        .map_err(|code| {
            lost(device, code);
            if let Some(fd) = import {
                close_refused(source.fd, fd);
            }
            let what = match import {
                None => format!("allocating {size} bytes on {} failed: vkAllocateMemory", device.name),
                Some(_) => format!(
                    "importing {size} bytes into {} failed: is the descriptor one that vkgdr exported, of this \
                     device and size?",
                    device.name
                ),
            };
            Error::vulkan(what, code)
        })?;
        let mut this = Self { device: Arc::clone(device), memory, host: None, allocated };
        this.map(size)?;
        Ok(this)
    }

    fn map(&mut self, size: u64) -> Result<(), Error> {
        let address = trace::step("vkMapMemory", || {
            // SAFETY: the memory is of a host-visible type and not mapped yet, and no other thread uses it yet.
            unsafe { self.device.raw().map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }
        })
        .map_err(|code| {
            lost(&self.device, code);
            Error::vulkan(format!("mapping {size} bytes of {} for the CPU failed: vkMapMemory", self.device.name), code)
        })?;
        self.host = NonNull::new(address.cast());
        if self.host.is_none() || !address.addr().is_multiple_of(HOST_ALIGNMENT) {
            return Err(Error::vulkan(
                format!(
                    "the Vulkan driver mapped memory at {address:p}, which is not aligned to {HOST_ALIGNMENT} bytes"
                ),
                vk::Result::ERROR_MEMORY_MAP_FAILED,
            ));
        }
        Ok(())
    }

    /// Returns a new opaque descriptor of the allocation, with close-on-exec set.
    fn export(&self) -> Result<OwnedFd, Error> {
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(self.memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: the memory was allocated as exportable in this form.
        let fd = unsafe { self.device.fd().get_memory_fd(&info) }.map_err(|code| {
            lost(&self.device, code);
            Error::vulkan("exporting the memory failed: vkGetMemoryFdKHR", code)
        })?;
        // SAFETY: Vulkan transfers the new descriptor to the caller.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: the descriptor is open; the call touches no memory.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            return Err(Error::System {
                what: "marking the exported descriptor close-on-exec failed",
                source: std::io::Error::last_os_error(),
            });
        }
        Ok(fd)
    }
}

impl Drop for VulkanMemory {
    fn drop(&mut self) {
        if self.host.is_some() {
            // SAFETY: the memory is mapped, and the caller that frees it no longer uses the address.
            unsafe { self.device.raw().unmap_memory(self.memory) };
        }
        // SAFETY: this object owns the memory, this is its only release, and CUDA's mapping is already gone.
        trace::step("vkFreeMemory", || unsafe {
            self.device.raw().free_memory(self.memory, None);
        });
    }
}

/// Removes a lost device from the cache, so that no later open uses it.
fn lost(device: &Arc<Device>, code: vk::Result) {
    if code == vk::Result::ERROR_DEVICE_LOST {
        cache::forget(device);
    }
}

/// Copies a descriptor, with close-on-exec set.
fn copy(fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    fd.try_clone_to_owned().map_err(|source| Error::System { what: "duplicating the file descriptor failed", source })
}

/// Held from the copy of a descriptor to the end of its import.
static IMPORTS: Mutex<()> = Mutex::new(());

/// The least number of a copy for Vulkan, if the process may open so many files.
const APART: libc::rlim_t = 1 << 14;

/// Copies a descriptor as [`copy`] does, to a number that other threads do not get while lower ones are free.
fn copy_apart(fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let least = (limit.rlim_cur / 2).min(APART) as libc::c_int;
    // SAFETY: the call takes numbers. A descriptor that is not open is an error.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) } {
        -1 => copy(fd),
        // SAFETY: the descriptor is new, and nobody else owns it.
        new => Ok(unsafe { OwnedFd::from_raw_fd(new) }),
    }
}

/// Closes the copy of a descriptor that Vulkan refused. By the specification the copy still belongs to the caller, but
/// some drivers have already closed it (SwiftShader; NVIDIA's, it seems: on an H200, files of other threads were closed
/// here). Then the number must not be another thread's new file. The copy's number is far above those that the system
/// gives to other threads, and only one import runs at a time. If a process has so many files open that this does not
/// help, the comparison of the files remains; the files of a driver are all one to it.
fn close_refused(copy: RawFd, original: BorrowedFd<'_>) {
    let identity = |fd: RawFd| {
        let mut data = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `data` is writable. A number that is not an open descriptor is an error.
        (unsafe { libc::fstat(fd, data.as_mut_ptr()) } == 0).then(|| {
            // SAFETY: fstat has filled it.
            let data = unsafe { data.assume_init() };
            (data.st_dev, data.st_ino)
        })
    };
    if identity(copy).is_some_and(|found| Some(found) == identity(original.as_raw_fd())) {
        // SAFETY: the number belongs to our copy.
        unsafe { libc::close(copy) };
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// Like the files of GPU drivers, all event files share an inode.
    fn event() -> OwnedFd {
        // SAFETY: the call takes numbers.
        let file = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        assert_ne!(file, -1);
        // SAFETY: the file is new, and nobody else owns it.
        unsafe { OwnedFd::from_raw_fd(file) }
    }

    struct End<'flag>(&'flag AtomicBool);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_refused_copy_is_closed_and_no_file_of_another_thread() {
        let (ended, file) = (AtomicBool::new(false), event());
        let open = |fd: RawFd| {
            // SAFETY: the call takes numbers.
            unsafe { libc::fcntl(fd, libc::F_GETFD) != -1 }
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        let own = event();
                        thread::yield_now();
                        assert!(open(own.as_raw_fd()), "somebody else has closed it");
                    }
                });
            }
            // Also after a failed assertion.
            let _end = End(&ended);
            for round in 0..20_000 {
                let copied = copy_apart(file.as_fd()).expect("a number is free").into_raw_fd();
                assert!(copied > 300, "{copied} is among the numbers of other threads");
                if round % 2 == 0 {
                    // SAFETY: the copy is ours. A driver has closed it.
                    unsafe { libc::close(copied) };
                }
                close_refused(copied, file.as_fd());
                assert!(!open(copied));
            }
        });
        assert!(open(file.as_raw_fd()));
    }
}
