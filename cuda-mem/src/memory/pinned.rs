//! Page-locked host memory.

use super::host_pages::{HostPages, report};
use super::host_pool;
use super::in_order::free_in_order;
use super::pool::free_after_end;
use super::registered::{RegisterOptions, RegisteredMemory};
use crate::cpu::host_copy::store_fence;
use crate::driver::context::HostPool;
use crate::error::call;
use crate::lifetime::waiting::{Target, watched};
use crate::locks::Mutex;
use crate::memory::resource::{
    Accessibility, Block, MemoryResource, ResourceHandle, SharedResource, check_request,
    host::{no_room, out_of_host_memory},
    kind,
};
use crate::{Context, Error, Feature, Result, Stream, Support};
use core::fmt;
use core::ops::ControlFlow;
use core::ptr;
use cuda_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED, CUdeviceptr, CUresult,
};
use std::collections::HashMap;
use std::sync::Arc;

/// From this size on, in bytes, the library makes the pages and the driver locks them. Below it, the driver's pool takes
/// little time and frees in stream order.
const LARGE: usize = 256 << 20;

/// The alignment of page-locked memory in bytes: a page.
pub(crate) const PAGE: usize = 4096;

const CALL: &str = "PinnedMemory::allocate";
const FREEING: &str = "freeing page-locked memory";

/// Options of page-locked memory.
///
/// ```
/// use cuda_mem::memory::PinnedOptions;
/// let mut options = PinnedOptions::default();
/// options.write_combined = true;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias("CU_MEMHOSTALLOC_PORTABLE", "CU_MEMHOSTALLOC_DEVICEMAP", "CU_MEMHOSTALLOC_WRITECOMBINED"))]
pub struct PinnedOptions {
    /// All contexts of the process treat it as page-locked. On by default.
    pub portable: bool,
    /// Kernels may address it. On by default; always on with unified addresses, which all 64-bit Linux systems have.
    pub mapped: bool,
    /// The CPU's writes bypass its caches: devices read them faster over PCIe, but reads by the CPU are very slow.
    pub write_combined: bool,
}

impl Default for PinnedOptions {
    fn default() -> Self {
        Self { portable: true, mapped: true, write_combined: false }
    }
}

impl PinnedOptions {
    /// The options of a registration that gives the same. There is none for write-combined memory.
    fn registered(self) -> Option<RegisterOptions> {
        let mut options = RegisterOptions::default();
        (options.portable, options.mapped) = (self.portable, self.mapped);
        (!self.write_combined).then_some(options)
    }

    /// Whether memory of a driver's pool of host memory fulfils the options.
    fn is_usual(self) -> bool {
        self == Self::default()
    }

    fn flags(self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(self.portable, CU_MEMHOSTALLOC_PORTABLE)
            | flag(self.mapped, CU_MEMHOSTALLOC_DEVICEMAP)
            | flag(self.write_combined, CU_MEMHOSTALLOC_WRITECOMBINED)
    }
}

/// Page-locked memory that the CPU may use at once, whatever the home stream waits for. Programs that allocate often want
/// a [`PinnedPool`](super::PinnedPool). Cheap to clone.
///
/// | size, options | where the memory comes from | a free |
/// |---|---|---|
/// | below 256 MiB | one pool of the driver for each context; it keeps 64 MiB of unused memory | is queued on the home stream |
/// | from 256 MiB on | huge pages, made by several threads on the device's NUMA node, and registered | waits for the home stream and the device |
/// | write-combined; below 256 MiB not portable; drivers before CUDA 12.6 | cuMemHostAlloc | waits for the home stream and the device |
///
/// Registering takes a fifth of the time of cuMemHostAlloc: 1.1 s for 16 GiB on an H200. The driver locks the memory of one
/// buffer in one call, half of that time, during which other threads wait in most calls of the driver. So a server that must
/// not pause for 50 ms allocates several buffers of at most 1 GiB. [`on_progress`](Self::on_progress) tells how far
/// an allocation is. A system without room for the memory, or a container whose limit it exceeds, is an error before anything is
/// allocated. A forked process does not have the memory.
///
/// The driver takes the address of memory of its pool in kernels, cuMemset, cuMemcpy and cuMemcpyAsync, but not where a copy
/// expects device memory: cuMemcpyDtoD, the source of cuMemcpyDtoH, the destination of cuMemcpyHtoD. It also knows no
/// flags of it (cuMemHostGetFlags). The other memory has neither limit.
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// use cuda_mem::{Buffer, Stream, memory::PinnedMemory};
/// let stream = Stream::new(&context)?;
/// let mut buffer = Buffer::filled(&PinnedMemory::new(&context), 100, 1.5f32, &stream)?; // by the device
/// assert_eq!(buffer.read(..)?[99], 1.5); // by the CPU
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias("cuMemHostAlloc", "cuMemAllocHost"))]
pub struct PinnedMemory {
    inner: Arc<PinnedMemoryResource>,
}

struct PinnedMemoryResource {
    context: Context,
    options: PinnedOptions,
    progress: Option<Box<Hearer>>,
    /// The large blocks, by their device addresses.
    large: Mutex<HashMap<CUdeviceptr, RegisteredMemory<HostPages>>>,
}

type Hearer = dyn Fn(usize, usize) -> ControlFlow<()> + Send + Sync;

impl PinnedMemory {
    /// Page-locked memory that all contexts may use, allocated in this one.
    pub fn new(context: &Context) -> Self {
        Self::with_options(context, PinnedOptions::default())
    }

    /// Page-locked memory with options.
    pub fn with_options(context: &Context, options: PinnedOptions) -> Self {
        Self::made(context, options, None)
    }

    /// As [`with_options`](Self::with_options), and calls `progress` during each allocation from 256 MiB on, with the bytes that
    /// are done and the bytes of the allocation. The allocating thread calls it, several times for each GiB. The first half of
    /// the bytes is done when the pages exist, the second when they are locked. `Break` cancels the allocation
    /// ([`Error::Canceled`]), and so does a panic, which goes on to the caller.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::{HostBuffer, memory::{PinnedMemory, PinnedOptions}};
    /// let bar = |done, total| {
    ///     eprint!("\r{} of {} MiB", done >> 20, total >> 20);
    ///     std::ops::ControlFlow::Continue(())
    /// };
    /// let source = PinnedMemory::on_progress(&context, PinnedOptions::default(), bar);
    /// let buffer = HostBuffer::<f32>::uninit(&source, 64 << 20)?; // 256 MiB
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    pub fn on_progress(
        context: &Context,
        options: PinnedOptions,
        progress: impl Fn(usize, usize) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        Self::made(context, options, Some(Box::new(progress)))
    }

    fn made(context: &Context, options: PinnedOptions, progress: Option<Box<Hearer>>) -> Self {
        let (context, large) = (context.clone(), Mutex::default());
        Self { inner: Arc::new(PinnedMemoryResource { context, options, progress, large }) }
    }
}

impl PinnedMemoryResource {
    /// The pool of all blocks, if they come from one.
    fn pool(&self) -> Option<&HostPool> {
        self.context.state().memory.host_pool().filter(|_| self.options.is_usual())
    }

    /// Makes pages and registers them. `None` if this memory comes from the driver.
    fn lock_pages(&self, size: usize, stream: &Stream) -> Result<Option<Block>> {
        let Some(options) = self.options.registered().filter(|_| size >= LARGE) else { return Ok(None) };
        let device = self.context.device();
        if device.supports(Feature::HostRegister)? != Support::Yes {
            return Ok(None);
        }
        self.context.make_room(&CALL, size)?;
        let progress =
            |done, total| self.progress.as_ref().map_or(ControlFlow::Continue(()), |hearer| hearer(done, total));
        let pages = HostPages::new(CALL, size, device.numa_node()?, &progress)?;
        let memory = match RegisteredMemory::new(&self.context, pages, options) {
            Ok(memory) => memory,
            Err(refused) if refused.error.is_out_of_memory() => {
                return Err(out_of_room(&refused.error, size));
            }
            // The driver registers no such memory here. It may have some of its own.
            Err(refused) if host_pool::is_refusal(&refused.error) => return Ok(None),
            Err(refused) => return Err(refused.error),
        };
        report(CALL, &progress, size, size)?;
        let block = memory.lend_all(stream)?.with_size(size).fresh();
        self.large.lock().insert(block.device_pointer(), memory);
        Ok(Some(block))
    }

    fn take_large(&self, block: &Block) -> Option<RegisteredMemory<HostPages>> {
        if block.size() < LARGE { None } else { self.large.lock().remove(&block.device_pointer()) }
    }
}

/// The error for pages that the driver does not lock.
fn out_of_room(error: &Error, size: usize) -> Error {
    let advice = "the limit of locked memory may be too low: `ulimit -l`, RLIMIT_MEMLOCK, or LimitMEMLOCK of a service";
    no_room(CALL, size, format!("{error}; {advice}"))
}

// SAFETY: cuMemHostAlloc or a pool of host memory allocates the memory, which has a device address.
unsafe impl ResourceHandle for PinnedMemory {
    type Kind = kind::Pinned;

    fn share(&self) -> SharedResource {
        self.inner.clone()
    }
}

// SAFETY: the driver's blocks do not overlap, and are valid immediately for all streams.
unsafe impl MemoryResource for PinnedMemoryResource {
    fn allocate(&self, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        check_request(CALL, (size, alignment), PAGE, &self.context, stream)?;
        if let Some(block) = self.lock_pages(size, stream)? {
            return Ok(block);
        }
        let pool = if self.options.is_usual() { self.context.host_pool() } else { Ok(None) };
        let Some(pool) = pool.map_err(|error| out_of_host_memory(CALL, error, size))? else {
            return allocate_pinned(&CALL, &self.context, self.options, size);
        };
        let allocate = || host_pool::allocate(pool, &self.context, size, alignment);
        match self.context.with_room(None, allocate, |error| error) {
            // The pool has a limit of its own: an H200's refuses 32 GiB while the host has 125 GiB free.
            Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                allocate_pinned(&CALL, &self.context, self.options, size)
            }
            answer => answer,
        }
    }

    unsafe fn deallocate(&self, block: Block, stream: &Stream) -> Result<()> {
        if let Some(memory) = self.take_large(&block) {
            // SAFETY: the caller's contract.
            let freed = unsafe { memory.give_back(block, stream) };
            if freed.is_err() {
                self.large.lock().insert(block.device_pointer(), memory);
            }
            return freed;
        }
        // SAFETY: the caller's contract.
        let free = || unsafe { free_in_order(&self.context, FREEING, block, stream) };
        if let Some(freed) = self.pool().and_then(|pool| pool.free(block.device_pointer(), free)) {
            return freed;
        }
        // SAFETY: the caller's contract.
        unsafe { free_pinned(&self.context, block.host_pointer(), block.size(), Some(stream)) }
    }

    unsafe fn abandon(&self, block: Block) {
        if self.take_large(&block).is_some() {
            return;
        }
        if let Some(pool) = self.pool() {
            // It reports its own errors.
            let _ = pool.free(block.device_pointer(), || {
                // SAFETY: the caller's contract.
                unsafe { free_after_end(&self.context, block) };
                Ok(())
            });
        }
    }

    fn context(&self) -> &Context {
        &self.context
    }

    fn accessibility(&self) -> Accessibility {
        Accessibility { write_combined: self.options.write_combined, ..Accessibility::BOTH }
    }

    unsafe fn flush(&self, _start: *mut u8, _length: usize) -> Result<()> {
        if self.options.write_combined {
            store_fence();
        }
        Ok(())
    }
}

impl fmt::Debug for PinnedMemoryResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedMemory")
            .field("context", &self.context)
            .field("options", &self.options)
            .field("large", &self.large.lock().len())
            .finish_non_exhaustive()
    }
}

/// Allocates page-locked memory that has a device address.
pub(super) fn allocate_pinned(
    call: &'static &'static str,
    context: &Context,
    options: PinnedOptions,
    size: usize,
) -> Result<Block> {
    context.make_room(call, size)?;
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let mut host_pointer = ptr::null_mut();
    // SAFETY: `host_pointer` is writable and the context is current.
    unsafe { call!(cuda.cuMemHostAlloc(&mut host_pointer, size, options.flags())) }
        .map_err(|error| out_of_host_memory(call, error, size))?;
    let host_pointer: *mut u8 = host_pointer.cast();
    match device_pointer(context, host_pointer) {
        Ok(device_pointer) => Ok(Block::host(device_pointer, host_pointer, size).fresh()),
        Err(error) => {
            // SAFETY: we have just allocated the memory, and nobody else knows it. The caller gets the first error.
            let _ = unsafe { free_pinned(context, host_pointer, size, None) };
            Err(error)
        }
    }
}

/// Frees page-locked memory after the work queued on `home` so far, if there is a home stream.
///
/// # Safety
///
/// [`allocate_pinned`] allocated the memory, nothing uses it after that work, and it was not freed before.
pub(super) unsafe fn free_pinned(
    context: &Context,
    host_pointer: *mut u8,
    size: usize,
    home: Option<&Stream>,
) -> Result<()> {
    let (address, target) = (host_pointer.expose_provenance(), Target::context(context));
    let free = move |cuda: &cuda_sys::Driver| {
        let memory = ptr::with_exposed_provenance_mut(address);
        // SAFETY: this function's contract.
        unsafe { watched!(target, cuda.cuMemFreeHost(memory)) }
    };
    context.free_by_waiting(FREEING, size, home, free)
}

/// The device address of page-locked memory, in the current context.
pub(super) fn device_pointer(context: &Context, host_pointer: *mut u8) -> Result<CUdeviceptr> {
    let (cuda, mut pointer) = (context.driver().raw(), 0);
    // SAFETY: `pointer` is writable; the driver looks the address up.
    unsafe { call!(cuda.cuMemHostGetDevicePointer_v2(&mut pointer, host_pointer.cast(), 0)) }?;
    Ok(pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_drivers_flags() {
        assert_eq!(PinnedOptions::default().flags(), 3);
        assert_eq!(PinnedOptions { portable: false, mapped: false, write_combined: true }.flags(), 4);
    }
}
