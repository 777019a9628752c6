//! One allocation of the vkgdr library, shared by the values that divide it.

use super::atoms::{Coherence, DirtyAtoms, round_outward};
use super::resource::{MappedResource, Open, failure};
use crate::Stream;
use crate::context::Liveness;
use crate::error::{Error, Result, call};
use crate::host_copy::{self, Stores};
use crate::waiting::{self, Target};
use core::ffi::c_int;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use cuda_sys::CUdeviceptr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vkgdr_sys::vkgdr_memory_t;

/// Owns the memory. Every range that its methods take lies within the allocation: `MappedMemory` and `SharedMemory`
/// check that.
pub(super) struct Allocation {
    resource: MappedResource,
    /// There until it is freed.
    memory: Option<Memory>,
    raw: vkgdr_memory_t,
    host: NonNull<u8>,
    device: CUdeviceptr,
    size: usize,
    coherence: Coherence,
    /// For non-coherent memory: what was written and not flushed.
    dirty: Option<DirtyAtoms>,
    /// For non-coherent memory: held while atoms move, so that one thread's invalidate does not race another's loads.
    moving: Mutex<()>,
    /// How many bytes are in exclusive hands, those of `MappedMemory`.
    exclusive: AtomicUsize,
}

// SAFETY: the vkgdr interface may be used from every thread; the CPU's accesses are exclusive (`MappedMemory`), or those
// of `host_copy`, which race nobody (`SharedMemory`).
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Takes over memory that the library made.
    ///
    /// # Safety
    ///
    /// `raw` is memory of the resource's library, and nobody else frees it.
    pub unsafe fn adopt(resource: MappedResource, raw: vkgdr_memory_t) -> Result<Self> {
        let vkgdr = resource.vkgdr()?;
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
            // SAFETY: ours, and not used after this.
            unsafe { vkgdr.vkgdr_memory_free(raw) }?;
            return Err(Error::Vkgdr {
                call: "vkgdr_memory_alloc",
                message: "the library gave memory without a CPU address or an atom size".into(),
            });
        };
        let coherence = if coherent { Coherence::Coherent } else { Coherence::NonCoherent { atom } };
        let dirty = (!coherent).then(|| DirtyAtoms::new(atom.get(), size));
        let memory = Memory { open: resource.open().clone(), raw };
        Ok(Self {
            resource,
            memory: Some(memory),
            raw,
            host,
            device,
            size,
            coherence,
            dirty,
            moving: Mutex::new(()),
            exclusive: AtomicUsize::new(0),
        })
    }

    pub fn resource(&self) -> &MappedResource {
        &self.resource
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
        // SAFETY: `offset` lies within the allocation, as the type's text says.
        unsafe { self.host.as_ptr().add(offset) }
    }

    pub fn device(&self, offset: usize) -> CUdeviceptr {
        self.device + offset as CUdeviceptr
    }

    /// Stores bytes, and posts them.
    #[inline]
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<()> {
        let mut stores = Stores::begin();
        self.store(&mut stores, offset, source)?;
        self.post(stores, offset..offset + source.len())
    }

    /// Ends some stores, which lie in a range, and posts them.
    #[inline]
    pub fn post(&self, stores: Stores, range: Range<usize>) -> Result<()> {
        drop(stores);
        match &self.dirty {
            None => Ok(()),
            Some(dirty) => self.post_non_coherent(dirty, range),
        }
    }

    #[cold]
    fn post_non_coherent(&self, dirty: &DirtyAtoms, range: Range<usize>) -> Result<()> {
        let _moving = self.moving();
        self.flush_runs(dirty, round_outward(range, self.coherence.atom(), self.size))
    }

    /// Stores bytes, and remembers the atoms as written. To post them is the caller's.
    ///
    /// Bytes of the first and last atom that are not written keep what the device wrote: those atoms are fetched
    /// before, unless they hold CPU writes already.
    #[inline]
    pub fn store(&self, stores: &mut Stores, offset: usize, source: &[u8]) -> Result<()> {
        if self.dirty.is_some() {
            return self.store_non_coherent(stores, offset, source);
        }
        // SAFETY: the range lies within the allocation, and a slice of the caller's does not overlap it.
        unsafe { stores.store(source.as_ptr(), self.host(offset), source.len()) };
        Ok(())
    }

    #[cold]
    fn store_non_coherent(&self, stores: &mut Stores, offset: usize, source: &[u8]) -> Result<()> {
        let range = offset..offset + source.len();
        let _moving = self.moving();
        self.fetch_edges(&range)?;
        self.mark_dirty(range);
        // SAFETY: as in `store`.
        unsafe { stores.store(source.as_ptr(), self.host(offset), source.len()) };
        Ok(())
    }

    /// Loads bytes, after invalidating them.
    #[inline]
    pub fn load(&self, offset: usize, destination: &mut [u8]) -> Result<()> {
        let _moving = match &self.dirty {
            None => None,
            Some(_) => {
                let moving = self.moving();
                self.invalidate_locked(offset..offset + destination.len())?;
                Some(moving)
            }
        };
        // SAFETY: the range lies within the allocation, and a slice of the caller's does not overlap it.
        unsafe { host_copy::load(self.host(offset), destination.as_mut_ptr(), destination.len()) };
        Ok(())
    }

    /// Posts the CPU's writes of a range, those through slices and pointers too.
    #[inline]
    pub fn flush(&self, range: Range<usize>) -> Result<()> {
        if self.dirty.is_none() {
            host_copy::store_fence();
            return Ok(());
        }
        let _moving = self.moving();
        self.flush_locked(range)
    }

    /// Posts the CPU's writes of a range that were not flushed, before the device writes there: later they would undo it.
    /// Atoms without such writes stay with the device, whose earlier writes the CPU may not have fetched.
    pub fn flush_written(&self, range: Range<usize>) -> Result<()> {
        let Some(dirty) = &self.dirty else {
            host_copy::store_fence();
            return Ok(());
        };
        let _moving = self.moving();
        self.flush_runs(dirty, round_outward(range, self.coherence.atom(), self.size))
    }

    /// Fetches the device's writes of a range. CPU writes in the same atoms are flushed first.
    pub fn invalidate(&self, range: Range<usize>) -> Result<()> {
        if self.dirty.is_none() {
            return Ok(());
        }
        let _moving = self.moving();
        self.invalidate_locked(range)
    }

    /// Marks what the caller is about to write, or has written, through a pointer.
    pub fn mark_dirty(&self, range: Range<usize>) {
        if let Some(dirty) = &self.dirty {
            dirty.mark(range);
        }
    }

    /// Fetches the atoms at a range's edges that the range covers in part.
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

    /// Posts the marked atoms of a range of whole atoms.
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
        // SAFETY: the memory lives, and the range lies within it, in whole atoms.
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
        // SAFETY: the memory lives, and the range lies within it, in whole atoms.
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
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some bytes come into exclusive hands.
    pub fn begin_exclusive(&self, bytes: usize) {
        self.exclusive.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Some bytes leave exclusive hands.
    pub fn end_exclusive(&self, bytes: usize) {
        self.exclusive.fetch_sub(bytes, Ordering::Release);
    }

    /// How many bytes are in exclusive hands.
    pub fn exclusive(&self) -> usize {
        self.exclusive.load(Ordering::Acquire)
    }

    /// A new file descriptor by which another process imports the memory.
    pub fn export_fd(&self) -> Result<OwnedFd> {
        let vkgdr = self.resource.vkgdr()?;
        let mut fd: c_int = -1;
        // SAFETY: the memory lives and `fd` is writable.
        if unsafe { vkgdr.vkgdr_memory_export_fd(self.raw, &mut fd) }? != 0 || fd < 0 {
            return Err(failure(vkgdr, "vkgdr_memory_export_fd"));
        }
        // SAFETY: the library made it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Copies from the device's view to the host by the driver.
    pub fn device_read(&self, offset: usize, destination: &mut [u8]) -> Result<()> {
        let context = self.resource.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let (to, from) = (destination.as_mut_ptr().cast(), self.device(offset));
        // SAFETY: both ranges lie within their memory; the call returns when the copy is done.
        let copy = || unsafe { call!(cuda.cuMemcpyDtoH_v2(to, from, destination.len())) };
        waiting::during(&"MappedMemory::device_read", Target::context(context), copy)
    }

    /// Copies from the host to the device's view by the driver.
    pub fn device_write(&self, offset: usize, source: &[u8]) -> Result<()> {
        let context = self.resource.context();
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let (to, from) = (self.device(offset), source.as_ptr().cast());
        waiting::during(&"MappedMemory::device_write", Target::context(context), || {
            // SAFETY: both ranges lie within their memory. For pageable memory the call may return while the last of the
            // copy is under way from the driver's own staging; later reads by the device are ordered after it, and the
            // CPU's reads of the mapping are not: so wait.
            unsafe { call!(cuda.cuMemcpyHtoD_v2(to, from, source.len())) }?;
            // SAFETY: the context is current.
            unsafe { call!(cuda.cuStreamSynchronize(core::ptr::null_mut())) }
        })
    }
}

/// Memory of the library. It holds no context, so that its free may be put off. A drop frees nothing: where a wait failed,
/// work may go on with it.
struct Memory {
    open: Arc<Open>,
    raw: vkgdr_memory_t,
}

// SAFETY: the vkgdr interface may be used from every thread.
unsafe impl Send for Memory {}

impl Memory {
    fn free(&self) -> Result<()> {
        // SAFETY: ours, and nobody reaches it any more; it is freed once.
        Ok(unsafe { self.open.vkgdr()?.vkgdr_memory_free(self.raw) }?)
    }
}

const FREEING: &str = "freeing mapped memory";

impl Allocation {
    /// Frees the memory after the work given to a stream so far, if there is any: the library waits for the device. The drop
    /// after this does nothing.
    pub fn end(&mut self, home: Option<&Stream>) -> Result<()> {
        let Some(memory) = self.memory.take() else { return Ok(()) };
        let context = self.resource.context();
        match context.liveness() {
            Liveness::Alive => context.free_by_waiting(FREEING, home, move |_| memory.free()),
            // A context that is gone has nothing to free, but the CPU's mapping is still to be ended.
            Liveness::Gone => memory.free(),
            Liveness::DriverGone => Ok(()),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Err(error) = self.end(None) {
            self.resource.context().drop_errors().push(FREEING, error);
        }
    }
}
