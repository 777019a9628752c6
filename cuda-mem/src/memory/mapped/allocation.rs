//! One allocation of the vkgdr library.

use super::Coherence;
use super::atoms::{DirtyAtoms, round_outward};
use super::resource::{MappedMemory, OpenDevice, failure};
use crate::Stream;
use crate::cpu::host_copy;
use crate::driver::context::Liveness;
use crate::error::{Error, Result};
use crate::lifetime::waiting::{self, Target};
use crate::locks::{Mutex, MutexGuard};
use crate::memory::resource::BlockOwner;
use core::mem;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::ptr::NonNull;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vkgdr_sys::vkgdr_memory_t;

/// Owns the memory. Buffers check that every range they pass lies within the allocation.
pub(crate) struct MappedAllocation {
    resource: MappedMemory,
    /// `None` after the free.
    memory: Option<LibraryMemory>,
    raw: vkgdr_memory_t,
    host: NonNull<u8>,
    device: CUdeviceptr,
    size: usize,
    coherence: Coherence,
    /// Set if another process, or another value of this one, may map the memory too: it was exported, or imported.
    is_mapped_elsewhere: AtomicBool,
    /// For non-coherent memory: atoms with unflushed writes.
    dirty: Option<DirtyAtoms>,
    /// For non-coherent memory: locked while atoms move, so that one thread's invalidate does not race with another's
    /// loads.
    moving: Mutex<()>,
}

// SAFETY: any thread may use the vkgdr interface. Buffers make CPU accesses, which are exclusive, or race-free by
// `host_copy`.
unsafe impl Send for MappedAllocation {}
// SAFETY: as above.
unsafe impl Sync for MappedAllocation {}

impl MappedAllocation {
    /// Takes ownership of memory that the library allocated.
    ///
    /// # Safety
    ///
    /// `raw` is memory of the resource's library, and nobody else frees it.
    pub unsafe fn adopt(resource: MappedMemory, raw: vkgdr_memory_t) -> Result<Self> {
        let vkgdr = resource.vkgdr()?;
        let memory = LibraryMemory { open: resource.open().clone(), raw, is_over: AtomicBool::new(false) };
        // SAFETY: this function's contract.
        let (host, device, size, coherent, atom) = unsafe {
            (
                vkgdr.vkgdr_memory_get_host_ptr(raw)?,
                vkgdr.vkgdr_memory_get_device_ptr(raw)?,
                vkgdr.vkgdr_memory_get_size(raw)?,
                vkgdr.vkgdr_memory_is_coherent(raw)?,
                vkgdr.vkgdr_memory_non_coherent_atom_size(raw)?,
            )
        };
        let atom = NonZeroUsize::new(atom).filter(|atom| atom.is_power_of_two());
        let (Some(host), Some(atom)) = (NonNull::new(host.cast::<u8>()), atom) else {
            let (context, target) = (resource.context(), Target::context(resource.context()));
            let free = move |_: &_| waiting::during(&"vkgdr_memory_free", target, || memory.free());
            context.free_by_waiting(FREEING, size, None, free)?;
            return Err(Error::Vkgdr {
                call: "vkgdr_memory_alloc",
                message: "the library returned memory without a CPU address or a valid atom size".into(),
            });
        };
        let coherence = if coherent { Coherence::Coherent } else { Coherence::NonCoherent { atom } };
        let dirty = (!coherent).then(|| DirtyAtoms::new(atom.get(), size));
        let is_mapped_elsewhere = AtomicBool::new(false);
        let (memory, moving) = (Some(memory), Mutex::new(()));
        Ok(Self { resource, memory, raw, host, device, size, coherence, is_mapped_elsewhere, dirty, moving })
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn coherence(&self) -> Coherence {
        self.coherence
    }

    #[inline]
    pub fn host(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.size);
        // SAFETY: see the type's documentation: callers check `offset`.
        unsafe { self.host.as_ptr().add(offset) }
    }

    pub fn device(&self, offset: usize) -> CUdeviceptr {
        self.device + offset as CUdeviceptr
    }

    /// Stores bytes, and flushes their atoms.
    ///
    /// An atom that is partly written must keep what the device wrote in its other bytes. So it is invalidated first,
    /// unless it holds CPU writes already.
    ///
    /// # Safety
    ///
    /// The range lies within the allocation. No Rust reference to it is alive.
    pub unsafe fn store(&self, offset: usize, source: &[u8]) -> Result<()> {
        let range = offset..offset + source.len();
        let _moving = self.moving();
        self.fetch_edges(&range)?;
        self.mark_dirty(range.clone());
        // SAFETY: this function's contract.
        unsafe { host_copy::store(source.as_ptr(), self.host(offset), source.len()) };
        match &self.dirty {
            Some(dirty) => self.flush_runs(dirty, round_outward(range, self.coherence.atom(), self.size)),
            None => Ok(()),
        }
    }

    /// Invalidates a range, then loads its bytes.
    ///
    /// # Safety
    ///
    /// The range lies within the allocation, and `to` is valid for writes.
    pub unsafe fn load(&self, range: Range<usize>, to: *mut u8) -> Result<()> {
        let _moving = self.moving();
        self.invalidate_locked(range.clone())?;
        // SAFETY: this function's contract.
        unsafe { host_copy::load(self.host(range.start), to, range.len()) };
        Ok(())
    }

    /// Flushes a range, including CPU writes through slices and pointers.
    #[inline]
    pub fn flush(&self, range: Range<usize>) -> Result<()> {
        if self.dirty.is_none() {
            host_copy::store_fence();
            return Ok(());
        }
        let _moving = self.moving();
        self.flush_locked(range)
    }

    /// Fetches the device's writes of a range. Unflushed CPU writes in the same atoms are flushed first.
    pub fn invalidate(&self, range: Range<usize>) -> Result<()> {
        if self.dirty.is_none() {
            return Ok(());
        }
        let _moving = self.moving();
        self.invalidate_locked(range)
    }

    /// Marks a range that the caller writes or has written through a pointer.
    pub fn mark_dirty(&self, range: Range<usize>) {
        if let Some(dirty) = &self.dirty {
            dirty.mark(range);
        }
    }

    /// Invalidates the atoms at a range's edges that the range covers only in part.
    fn fetch_edges(&self, range: &Range<usize>) -> Result<()> {
        let Some(dirty) = &self.dirty else { return Ok(()) };
        let atom = self.coherence.atom();
        if range.is_empty() {
            return Ok(());
        }
        let last = range.end - 1;
        let edges = [
            (!range.start.is_multiple_of(atom)).then_some(range.start),
            (!range.end.is_multiple_of(atom) && range.end < self.size).then_some(last),
        ];
        for edge in edges.into_iter().flatten().filter(|byte| !dirty.is_dirty(*byte)) {
            self.raw_invalidate(round_outward(edge..edge + 1, atom, self.size))?;
        }
        Ok(())
    }

    fn flush_locked(&self, range: Range<usize>) -> Result<()> {
        let range = round_outward(range, self.coherence.atom(), self.size);
        if range.is_empty() {
            return Ok(());
        }
        self.raw_flush(range.clone())?;
        if let Some(dirty) = &self.dirty {
            dirty.clear(range);
        }
        Ok(())
    }

    fn invalidate_locked(&self, range: Range<usize>) -> Result<()> {
        let Some(dirty) = &self.dirty else { return Ok(()) };
        let range = round_outward(range, self.coherence.atom(), self.size);
        if range.is_empty() {
            return Ok(());
        }
        self.flush_runs(dirty, range.clone())?;
        self.raw_invalidate(range)
    }

    /// Flushes the marked atoms in a range of whole atoms.
    fn flush_runs(&self, dirty: &DirtyAtoms, range: Range<usize>) -> Result<()> {
        for run in dirty.runs(range) {
            let run = run.start..run.end.min(self.size);
            self.raw_flush(run.clone())?;
            dirty.clear(run);
        }
        Ok(())
    }

    fn raw_flush(&self, range: Range<usize>) -> Result<()> {
        let vkgdr = self.resource.vkgdr()?;
        // SAFETY: the memory is alive, and the range lies within it, in whole atoms.
        unsafe {
            if vkgdr.functions().vkgdr_memory_flush_checked.is_none() {
                return Ok(vkgdr.vkgdr_memory_flush(self.raw, range.start, range.len())?);
            }
            match vkgdr.vkgdr_memory_flush_checked(self.raw, range.start, range.len())? {
                0 => Ok(()),
                _ => Err(failure(vkgdr, "vkgdr_memory_flush_checked")),
            }
        }
    }

    fn raw_invalidate(&self, range: Range<usize>) -> Result<()> {
        let vkgdr = self.resource.vkgdr()?;
        // SAFETY: the memory is alive, and the range lies within it, in whole atoms.
        unsafe {
            if vkgdr.functions().vkgdr_memory_invalidate_checked.is_none() {
                return Ok(vkgdr.vkgdr_memory_invalidate(self.raw, range.start, range.len())?);
            }
            match vkgdr.vkgdr_memory_invalidate_checked(self.raw, range.start, range.len())? {
                0 => Ok(()),
                _ => Err(failure(vkgdr, "vkgdr_memory_invalidate_checked")),
            }
        }
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock()
    }

    /// From now on, somebody else may use the memory even after its end here.
    #[cfg(feature = "sharing")]
    pub fn note_mapped_elsewhere(&self) {
        self.is_mapped_elsewhere.store(true, Ordering::Relaxed);
    }

    /// A new file descriptor through which another process can import the memory.
    #[cfg(feature = "sharing")]
    pub fn export_fd(&self) -> Result<std::os::fd::OwnedFd> {
        let vkgdr = self.resource.vkgdr()?;
        let mut fd: core::ffi::c_int = -1;
        self.note_mapped_elsewhere();
        // SAFETY: the memory is alive, and `fd` is writable.
        if unsafe { vkgdr.vkgdr_memory_export_fd(self.raw, &mut fd) }? != 0 || fd < 0 {
            return Err(failure(vkgdr, "vkgdr_memory_export_fd"));
        }
        // SAFETY: the library made it for this call.
        Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
    }
}

/// Memory of the library. It holds no context, so its free may be deferred. Its drop frees nothing: after a failed
/// wait, work may still use the memory. The device then stays open.
struct LibraryMemory {
    open: Arc<OpenDevice>,
    raw: vkgdr_memory_t,
    /// It was freed, or has another owner.
    is_over: AtomicBool,
}

// SAFETY: any thread may use the vkgdr interface.
unsafe impl Send for LibraryMemory {}
// SAFETY: as above. Only one owner frees it.
unsafe impl Sync for LibraryMemory {}

impl LibraryMemory {
    fn free(&self) -> Result<()> {
        // SAFETY: owned here and unreachable for others; it is freed once.
        unsafe { self.open.vkgdr()?.vkgdr_memory_free(self.raw) }?;
        self.is_over.store(true, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for LibraryMemory {
    fn drop(&mut self) {
        if !*self.is_over.get_mut() {
            mem::forget(self.open.clone());
        }
    }
}

/// Memory whose free waits.
struct ReusableMemory {
    size: usize,
    memory: Arc<LibraryMemory>,
}

/// Takes back memory of the library whose free waits, if there is some of this size.
pub(crate) fn take_back(resource: &MappedMemory, size: usize) -> Option<vkgdr_memory_t> {
    // The library may have rounded the size of the former request.
    let rounded = |size: usize| size.next_multiple_of(64 << 10);
    let fits = |free: &ReusableMemory| {
        free.size >= size && rounded(free.size) == rounded(size) && Arc::ptr_eq(&free.memory.open, resource.open())
    };
    resource.context().take_back(fits).map(|free| {
        free.memory.is_over.store(true, Ordering::Relaxed);
        free.memory.raw
    })
}

const FREEING: &str = "freeing mapped memory";

impl MappedAllocation {
    /// Frees the memory after the work queued on a stream so far, if a stream is given: the library waits for the
    /// device. A later drop does nothing.
    pub fn end(&mut self, home: Option<&Stream>) -> Result<()> {
        let Some(memory) = self.memory.take() else { return Ok(()) };
        let context = self.resource.context();
        match context.liveness() {
            Liveness::Alive => {
                let (size, memory, target) = (self.size, Arc::new(memory), Target::context(context));
                let is_ours_alone = !*self.is_mapped_elsewhere.get_mut();
                let again = is_ours_alone.then(|| ReusableMemory { size, memory: memory.clone() });
                let free = move |_: &_| waiting::during(&"vkgdr_memory_free", target, || memory.free());
                context.free_or_reuse(FREEING, size, home, again, free)
            }
            // The end of a context has freed the device memory, but the CPU mapping must still be removed.
            Liveness::Gone => memory.free(),
            Liveness::DriverGone => Ok(()),
        }
    }
}

impl BlockOwner for Arc<MappedAllocation> {
    fn end_with_resource(self) {
        if let Some(mut allocation) = Arc::into_inner(self) {
            allocation.memory = None;
        }
    }
}

impl Drop for MappedAllocation {
    fn drop(&mut self) {
        if let Err(error) = self.end(None) {
            self.resource.context().drop_errors().push(FREEING, error);
        }
    }
}
