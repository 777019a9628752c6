//! Memory that CPU and device both address: one set of pages if it is coherent, two if it is not.

use super::Handle;
use super::error::Error;
use crate::api::memory::free;
use crate::state::Global;
use crate::state::backing::Mapping;
use crate::state::backing::{file_size, is_memory_file, memory_file};
use crate::state::contexts::{Context, current};
use crate::state::handle::next_sequence;
use crate::state::memory::Mirror;
use crate::state::memory::{Allocation, Origin, Storage};
use crate::sync::lock;
use cuda_sys::CUresult;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct MappedMemory {
    pub(crate) sequence: u64,
    pub(crate) size: usize,
    vkgdr: Arc<Handle>,
    /// The device's pages. Other processes import this file.
    file: OwnedFd,
    device: Arc<Allocation>,
    /// The CPU's side: another mapping of the device's pages, or pages of its own.
    host: Arc<Mirror>,
    moving: Mutex<()>,
}

/// The direction in which atoms move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the CPU's side to the device's.
    Flush,
    /// From the device's side to the CPU's.
    Invalidate,
}

/// The context for new memory: the current one, which must belong to the handle's device.
fn context(global: &Global, vkgdr: &Handle) -> Result<Arc<Context>, Error> {
    let context = current(global).map_err(Error::cuda("mapped memory needs a current context"))?;
    if let Some(code) = context.failure() {
        return Err(Error::Cuda { what: "the current context has failed".to_owned(), code });
    }
    if context.device != vkgdr.device {
        let what = format!("the current context is on device {}, the handle on {}", context.device, vkgdr.device);
        return Err(Error::Cuda { what, code: CUresult::CUDA_ERROR_INVALID_CONTEXT });
    }
    Ok(context)
}

fn check(size: usize, flags: u32) -> Result<(), Error> {
    if flags != 0 {
        return Err(Error::InvalidValue(format!("the flags are {flags:#x}, but must be 0")));
    }
    if size == 0 { Err(Error::InvalidValue("the size is 0, but must be at least 1".to_owned())) } else { Ok(()) }
}

impl MappedMemory {
    pub(crate) fn allocate(global: &Global, vkgdr: Arc<Handle>, size: usize, flags: u32) -> Result<u64, Error> {
        check(size, flags)?;
        let context = context(global, &vkgdr)?;
        let store = &global.devices[vkgdr.device].store;
        let full = || Error::OutOfDeviceMemory(format!("the size is {size} bytes, but only {} are free", store.free()));
        let charge = store.take(size).map_err(|_| full())?;
        let file = memory_file(size as u64).map_err(|_| full())?;
        let mapping = Mapping::shared(file.as_fd(), 0, size);
        let storage = mapping.and_then(|mapping| Storage::device(mapping, size, global.settings.strict));
        let block = Allocation::new(&context, Origin::Mapped, size, storage.map_err(|_| full())?, Some(charge));
        Self::make(global, vkgdr, size, file, block)
    }

    /// Imports memory that this or another process exported. Takes the descriptor only if this succeeds.
    pub(crate) fn import(
        global: &Global,
        vkgdr: Arc<Handle>,
        fd: RawFd,
        size: usize,
        flags: u32,
    ) -> Result<u64, Error> {
        check(size, flags)?;
        let context = context(global, &vkgdr)?;
        // SAFETY: fcntl takes any number.
        if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            return Err(Error::NotMemory(format!("file descriptor {fd} is not open")));
        }
        // SAFETY: the descriptor is open, and the caller keeps it open during the call.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        if !is_memory_file(borrowed) {
            return Err(Error::NotMemory(format!("file descriptor {fd} is not memory of softgpu")));
        }
        let room = file_size(borrowed).map_err(Error::system("reading the size of the memory"))?;
        if size as u64 > room {
            return Err(Error::InvalidValue(format!("the size is {size} bytes, but the memory has {room}")));
        }
        let mapping = Mapping::shared(borrowed, 0, size);
        let storage = mapping.and_then(|mapping| Storage::device(mapping, size, global.settings.strict));
        let storage = storage.map_err(Error::system("mapping the memory"))?;
        let file = borrowed.try_clone_to_owned().map_err(Error::system("keeping the file descriptor"))?;
        let block = Allocation::new(&context, Origin::Mapped, size, storage, None).with_contents();
        let made = Self::make(global, vkgdr, size, file, block)?;
        // SAFETY: the import succeeded, so the descriptor is ours, as the interface says. The memory keeps the copy.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(made)
    }

    fn make(global: &Global, vkgdr: Arc<Handle>, size: usize, file: OwnedFd, block: Allocation) -> Result<u64, Error> {
        let host = if vkgdr.coherent { Mapping::shared(file.as_fd(), 0, size) } else { Mapping::anonymous(size) };
        let host = host.and_then(|host| Mirror::new(host, size, vkgdr.coherent));
        let host = Arc::new(host.map_err(Error::system("mapping the memory for the CPU"))?);
        let device = global.memory.insert(if vkgdr.coherent { block } else { block.mirrored(&host) });
        let memory = Self { sequence: next_sequence(), size, vkgdr, file, device, host, moving: Mutex::new(()) };
        Ok(global.mapped.insert(memory.sequence, memory).0)
    }

    /// Frees the device's side, unless its context's end did. The CPU's side lives as long as its last user.
    pub(crate) fn release(&self, global: &Global) {
        if global.memory.at(self.device.base).is_some_and(|block| Arc::ptr_eq(&block, &self.device)) {
            // The allocation exists, so this only fails if another thread frees it at the same moment.
            let _ = free(global, "vkgdr_memory_free", self.device.base);
        }
    }

    pub(crate) fn device(&self) -> usize {
        self.vkgdr.device
    }

    pub(crate) fn is_coherent(&self) -> bool {
        self.vkgdr.coherent
    }

    /// The unit of flush and invalidate in bytes; 1 for coherent memory.
    pub(crate) fn atom(&self) -> usize {
        if self.vkgdr.coherent { 1 } else { self.vkgdr.atom }
    }

    pub(crate) fn device_address(&self) -> u64 {
        self.device.base
    }

    pub(crate) fn host_address(&self) -> usize {
        self.host.host.base()
    }

    /// The address on the device's side for an address on the CPU's side, and the number of the allocation.
    pub(crate) fn place_of(&self, address: usize) -> Option<(usize, Option<u64>)> {
        let offset = address.checked_sub(self.host_address())?;
        (offset < self.size).then(|| (self.device.access + offset, Some(self.device.sequence)))
    }

    /// A new descriptor of the memory, which is closed on exec.
    pub(crate) fn export(&self) -> Result<OwnedFd, Error> {
        self.file.try_clone().map_err(Error::system("copying the file descriptor"))
    }

    /// Moves the atoms that overlap a range.
    pub(crate) fn synchronize(&self, direction: Direction, offset: usize, size: usize) -> Result<(), Error> {
        let Some((start, length)) = whole_atoms(offset, size, self.size, self.atom()) else {
            return Err(Error::InvalidValue(format!(
                "{size} bytes at offset {offset} are not inside the memory of {} bytes",
                self.size
            )));
        };
        fence(Ordering::SeqCst);
        if !self.is_coherent() && length > 0 {
            let host = ptr::with_exposed_provenance_mut::<u8>(self.host_address() + start);
            let device = ptr::with_exposed_provenance_mut::<u8>(self.device.access + start);
            let _moving = lock(&self.moving);
            // SAFETY: start and length lie inside the memory, and `self` holds both sides, which are separate mappings.
            // The interface's ordering rules forbid other accesses to these bytes meanwhile.
            unsafe {
                match direction {
                    Direction::Flush => ptr::copy_nonoverlapping(host, device, length),
                    Direction::Invalidate => ptr::copy_nonoverlapping(device, host, length),
                }
            }
            fence(Ordering::SeqCst);
            self.host.remember(start, length);
        }
        Ok(())
    }
}

/// A range widened to whole atoms and clamped to the end; `None` if it is not inside the memory.
fn whole_atoms(offset: usize, size: usize, whole: usize, atom: usize) -> Option<(usize, usize)> {
    let end = offset.checked_add(size).filter(|end| *end <= whole)?;
    if size == 0 {
        return Some((offset, 0));
    }
    let start = offset / atom * atom;
    let end = end.checked_next_multiple_of(atom).map_or(whole, |end| end.min(whole));
    Some((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::whole_atoms;

    #[test]
    fn ranges_are_widened_to_atoms_and_clamped_at_the_end() {
        for (offset, size, atom, want) in [
            (0, 1, 64, Some((0, 64))),
            (63, 2, 64, Some((0, 128))),
            (64, 64, 64, Some((64, 64))),
            (65, 0, 64, Some((65, 0))),
            (999, 1, 64, Some((960, 40))),
            (999, 1, 256, Some((768, 232))),
            (0, 1000, 1, Some((0, 1000))),
            (1000, 0, 64, Some((1000, 0))),
            (1000, 1, 64, None),
            (1, usize::MAX, 64, None),
            (usize::MAX, 1, 64, None),
        ] {
            assert_eq!(whole_atoms(offset, size, 1000, atom), want, "{size} at {offset}, atom {atom}");
        }
        assert_eq!(whole_atoms(usize::MAX - 1, 1, usize::MAX, 64), Some((usize::MAX - 63, 63)));
    }
}
