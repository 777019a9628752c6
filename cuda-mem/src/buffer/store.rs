//! CPU stores and loads, without the driver: a store reaches a GPU's memory in 0.1 us, a driver copy takes 5 us.

use super::allocation::Allocation;
use super::holder::Hold;
use super::{Access, Buffer, CpuReady, SharedBuffer, bytes_of_mut};
use crate::cpu::borrowed::{check_shared_read, check_shared_write};
use crate::cpu::host_copy::{self, Stores};
use crate::error::range::span_elements;
use crate::memory::resource::Coherence;
use crate::memory::resource::{BlockKind, Kind, SharedResource, kind::Any};
use crate::{Error, Result};
use bytemuck::{AnyBitPattern, NoUninit};
use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ops::RangeBounds;

impl<T, K: Kind> Buffer<T, K> {
    /// Writes the elements from `offset` on with CPU stores, after the buffer's device work. Device work queued after
    /// this call sees them.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`; the CPU cannot address the memory; earlier device work failed; the flush of
    /// non-coherent memory failed.
    #[inline]
    pub fn store(&mut self, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        const CALL: &str = "Buffer::store";
        let range = self.span(CALL, offset, source.len())?;
        self.check_host(CALL)?;
        let ready = self.settle()?;
        // SAFETY: the range lies within the buffer, which is borrowed exclusively.
        unsafe { self.hold.allocation().store(ready, self.byte(range.start), bytemuck::cast_slice(source)) }
    }

    /// Reads the elements from `offset` on with CPU loads, after the buffer's device work. Loads from a GPU are slow:
    /// 1 us per round trip of 64 bytes.
    ///
    /// # Errors
    ///
    /// The range exceeds the buffer; the CPU cannot address the memory; earlier device work failed; the invalidate of
    /// non-coherent memory failed.
    #[inline]
    pub fn load(&self, offset: usize, destination: &mut [T]) -> Result<()>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "Buffer::load";
        let range = self.span(CALL, offset, destination.len())?;
        self.check_host(CALL)?;
        let ready = self.settle()?;
        let (to, size) = bytes_of_mut(destination);
        // SAFETY: the range lies within the buffer. No guard writes it, because a guard borrows the buffer exclusively.
        unsafe { self.hold.allocation().load(ready, self.byte(range.start), to, size) }
    }

    /// Makes several stores that are fenced once, when `stores` returns, even with an error. Device work queued after
    /// that sees them.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, MappedMemory, Stream};
    /// # let stream = Stream::new(&context)?;
    /// let mut memory = Buffer::<u32, _>::zeroed(&MappedMemory::new(&context)?, 1024, &stream)?;
    /// memory.store_scope(|scope| {
    ///     for row in 0..8 {
    ///         scope.store(row * 128, &[row as u32; 16])?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// The scope stays on its thread: otherwise another thread could get the memory before the stores are fenced.
    ///
    /// ```compile_fail,E0277
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, MappedMemory, Stream};
    /// # let stream = Stream::new(&context)?;
    /// let mut memory = Buffer::<u8, _>::zeroed(&MappedMemory::new(&context)?, 1024, &stream)?;
    /// memory.store_scope(|scope| {
    ///     std::thread::scope(|threads| threads.spawn(|| scope.store(0, &[1u8])).join().unwrap())
    /// })?;
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `stores`; the CPU cannot address the memory; earlier device work failed.
    #[inline]
    pub fn store_scope<R>(&mut self, stores: impl FnOnce(&mut StoreScope<'_, T>) -> Result<R>) -> Result<R> {
        self.check_host("Buffer::store_scope").and_then(|()| self.check_writable("Buffer::store_scope"))?;
        let ready = self.settle()?;
        let mut scope = StoreScope {
            start: self.byte(0),
            length: self.length,
            is_coherent: self.is_coherent(),
            allocation: self.hold.allocation(),
            ready,
            stores: Stores::begin(),
            elements: PhantomData,
        };
        stores(&mut scope)
    }

    /// Flushes what the program wrote through [`host_pointer`](Self::host_pointer). On non-coherent memory this moves
    /// whole atoms as the CPU sees them: flush only what the CPU wrote, because other atoms would overwrite device writes
    /// that the CPU has not fetched. So it first waits for the buffer's device work. Stores and guards flush by themselves.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; device work failed; the flush failed.
    #[doc(alias = "vkgdr_memory_flush")]
    pub fn flush(&mut self, range: impl RangeBounds<usize>) -> Result<()> {
        // Otherwise the atoms would overwrite what the former owner's queued work reads.
        if !self.is_coherent() {
            self.settle()?;
        }
        self.flush_range("Buffer::flush", range)
    }

    /// Fetches the device's writes of a range, after the buffer's device work, for reads through
    /// [`host_pointer`](Self::host_pointer). Unflushed CPU writes in the same atoms are flushed first. Loads and guards
    /// invalidate by themselves.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; device work failed; the invalidate failed.
    #[doc(alias = "vkgdr_memory_invalidate")]
    pub fn invalidate(&mut self, range: impl RangeBounds<usize>) -> Result<()> {
        self.settle()?;
        self.invalidate_range("Buffer::invalidate", range)
    }
}

/// Others may read and write a shared buffer at the same time: kernels, threads, processes. To Rust, a store or load is
/// a relaxed atomic access to each byte. The program must decide who accesses which bytes and when, with flags such as
/// [`SharedCell`](crate::buffer::SharedCell).
///
/// The first of these calls waits for the work from before the memory became shared
/// ([`into_shared`](Buffer::into_shared)). They wait for no later work, because a running kernel may wait for them. After
/// later device work on the buffer, call [`synchronize`](Buffer::synchronize) first.
impl<T, K: Kind> SharedBuffer<T, K> {
    /// Writes the elements from `offset` on with CPU stores, and flushes. Not atomic: others may see only a part.
    ///
    /// # Errors
    ///
    /// Work from before the memory became shared failed, or its stream captures since then. The slice does not fit at `offset`; the CPU cannot address the memory, or it is managed; the flush of non-coherent memory failed.
    #[inline]
    pub fn store(&self, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        const CALL: &str = "SharedBuffer::store";
        let range = self.span(CALL, offset, source.len())?;
        let ready = self.check_beside_device(CALL)?;
        // SAFETY: the range lies within the buffer, and shared memory has no slices.
        unsafe { self.hold.allocation().store(ready, self.byte(range.start), bytemuck::cast_slice(source)) }
    }

    /// Reads the elements from `offset` on with CPU loads. Not atomic.
    ///
    /// # Errors
    ///
    /// The range exceeds the buffer; the CPU cannot address the memory, or it is managed; the
    /// invalidate of non-coherent memory failed.
    #[inline]
    pub fn load(&self, offset: usize, destination: &mut [T]) -> Result<()>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "SharedBuffer::load";
        let range = self.span(CALL, offset, destination.len())?;
        let ready = self.check_beside_device(CALL)?;
        let (to, size) = bytes_of_mut(destination);
        // SAFETY: as in `store`.
        unsafe { self.hold.allocation().load(ready, self.byte(range.start), to, size) }
    }

    /// Flushes what the program wrote through [`host_pointer`](Self::host_pointer). On non-coherent memory, the first such
    /// call waits as a [`store`](Self::store) does.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; work from before the memory became shared failed; the flush failed.
    pub fn flush(&self, range: impl RangeBounds<usize>) -> Result<()> {
        if !self.is_coherent() {
            self.hold.cpu_ready()?;
        }
        self.flush_range("SharedBuffer::flush", range)
    }

    /// Fetches the device's writes of a range, for reads through [`host_pointer`](Self::host_pointer). Unflushed CPU
    /// writes in the same atoms are flushed first.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; the invalidate failed.
    pub fn invalidate(&self, range: impl RangeBounds<usize>) -> Result<()> {
        self.invalidate_range("SharedBuffer::invalidate", range)
    }

    /// Checks that the CPU may access the memory while kernels use it, and waits for the work from before the memory
    /// became shared.
    #[inline(always)]
    pub(crate) fn check_beside_device(&self, call: &'static str) -> Result<CpuReady<'_>> {
        const { assert!(may_be_host::<K>(), "the CPU cannot address memory of this kind") };
        match self.hold.allocation().block.kind() {
            BlockKind::Host | BlockKind::Mapped | BlockKind::NonCoherent if self.hold.is_cpu_ready() => {
                Ok(CpuReady::after_wait())
            }
            kind => self.wait_beside_device(call, kind),
        }
    }

    #[cold]
    fn wait_beside_device(&self, call: &'static str, kind: BlockKind) -> Result<CpuReady<'_>> {
        match kind {
            BlockKind::Device => Err(unreachable_by_cpu(call)),
            BlockKind::Managed => Err(managed(call)),
            _ => self.hold.cpu_ready(),
        }
    }
}

/// Whether the CPU may address memory of a kind.
const fn may_be_host<K: Kind>() -> bool {
    match K::ACCESSIBILITY {
        Some(accessibility) => accessibility.host,
        None => true,
    }
}

#[cold]
fn managed(call: &'static str) -> Error {
    Error::invalid(
        call,
        "the memory",
        "managed",
        "devices without concurrent managed access forbid CPU accesses beside kernels: use pinned or mapped memory",
    )
}

#[cold]
fn unwritable(call: &'static str) -> Error {
    Error::invalid(call, "the memory", "registered as read-only", "nobody may write it: copy it, and write the copy")
}

#[cold]
fn unreachable_by_cpu(call: &'static str) -> Error {
    let rule = "the CPU addresses mapped, pinned and managed memory only: allocate from such memory, or copy with \
                `copy_from_slice` and `copy_to_slice`";
    Error::invalid(call, "the memory", "addressable by devices only", rule)
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Whether the CPU and the device see each other's writes without flushes, and otherwise the unit of flushes.
    pub fn coherence(&self) -> Coherence {
        let atom = |resource: &SharedResource| resource.atom(self.hold.allocation().block);
        match self.resource().filter(|_| !self.is_coherent()).map(atom).and_then(NonZeroUsize::new) {
            None => Coherence::Coherent,
            Some(atom) => Coherence::NonCoherent { atom },
        }
    }

    /// Whether nobody may write the memory: neither the CPU nor devices. It was registered so
    /// ([`RegisterOptions::read_only`](crate::memory::RegisterOptions::read_only)). Calls that would write it are refused,
    /// and its views and exports are read-only.
    pub fn is_read_only(&self) -> bool {
        self.hold.allocation().block.kind() == BlockKind::ReadOnly
    }

    /// Checks that the memory may be written.
    #[inline]
    pub(crate) fn check_writable(&self, call: &'static str) -> Result<()> {
        if self.is_read_only() { Err(unwritable(call)) } else { Ok(()) }
    }

    /// Checks that the CPU can address the memory. For kinds that it never can, the call does not compile.
    #[inline]
    pub(crate) fn check_host(&self, call: &'static str) -> Result<()> {
        const { assert!(may_be_host::<K>(), "the CPU cannot address memory of this kind") };
        if self.hold.allocation().block.kind() == BlockKind::Device { Err(unreachable_by_cpu(call)) } else { Ok(()) }
    }

    /// The CPU address of an element.
    #[inline]
    fn byte(&self, element: usize) -> *mut u8 {
        self.host_address().wrapping_add(element).cast()
    }

    fn flush_range(&self, call: &'static str, range: impl RangeBounds<usize>) -> Result<()> {
        let range = self.resolve(call, range)?;
        self.check_host(call)?;
        host_copy::store_fence();
        self.flush_bytes(self.byte(range.start), range.len() * size_of::<T>())
    }

    fn invalidate_range(&self, call: &'static str, range: impl RangeBounds<usize>) -> Result<()> {
        let range = self.resolve(call, range)?;
        self.check_host(call)?;
        match self.resource() {
            // SAFETY: the range belongs to the buffer, which is borrowed exclusively, or is shared and has no slices.
            Some(resource) if !range.is_empty() => unsafe {
                resource.invalidate(self.byte(range.start), range.len() * size_of::<T>())
            },
            _ => Ok(()),
        }
    }
}

impl Allocation {
    /// Whether the CPU may use the memory like the heap once the device work on it is done.
    #[inline]
    pub fn is_coherent(&self) -> bool {
        match self.block.kind() {
            BlockKind::Host | BlockKind::Mapped | BlockKind::Device | BlockKind::Nothing | BlockKind::ReadOnly => true,
            BlockKind::NonCoherent => false,
            BlockKind::Managed => self.is_coherent_now(),
        }
    }

    /// Whether a store needs no more than the CPU's instructions.
    #[inline]
    fn is_stored_plainly(&self) -> bool {
        match self.block.kind() {
            BlockKind::Host | BlockKind::Mapped | BlockKind::Device | BlockKind::Nothing => true,
            BlockKind::NonCoherent | BlockKind::ReadOnly => false,
            BlockKind::Managed => self.is_coherent_now(),
        }
    }

    /// Managed memory is not coherent on devices that give it to either the CPU or the device.
    #[cold]
    fn is_coherent_now(&self) -> bool {
        self.resource().is_none_or(|resource| resource.is_coherent(self.block))
    }

    /// Writes bytes with CPU stores, and flushes them.
    ///
    /// # Safety
    ///
    /// The bytes at `to` lie within the allocation, which the CPU can address. No Rust reference to them is alive.
    #[inline]
    pub unsafe fn store(&self, ready: CpuReady<'_>, to: *mut u8, source: &[u8]) -> Result<()> {
        check_shared_write(to, source.len());
        if self.is_stored_plainly() {
            // SAFETY: this function's contract.
            unsafe { host_copy::store(source.as_ptr(), to, source.len()) };
            return Ok(());
        }
        // SAFETY: this function's contract.
        unsafe { self.store_non_coherent(ready, to, source) }
    }

    #[cold]
    unsafe fn store_non_coherent(&self, _ready: CpuReady<'_>, to: *mut u8, source: &[u8]) -> Result<()> {
        match self.resource() {
            _ if self.block.kind() == BlockKind::ReadOnly => Err(unwritable("Buffer::store")),
            // SAFETY: the caller's contract.
            Some(resource) if !source.is_empty() => unsafe { resource.store(to, source) }.inspect_err(|_| {
                self.note_unposted();
            }),
            _ => Ok(()),
        }
    }

    /// Reads `size` bytes with CPU loads, after an invalidate of non-coherent memory.
    ///
    /// # Safety
    ///
    /// The bytes at `from` lie within the allocation, which the CPU can address. No Rust reference writes them. `to` is
    /// valid for writes.
    #[inline]
    pub unsafe fn load(&self, _ready: CpuReady<'_>, from: *const u8, to: *mut u8, size: usize) -> Result<()> {
        check_shared_read(from, size);
        match self.resource() {
            // SAFETY: this function's contract.
            Some(resource) if !self.is_coherent() => unsafe { resource.load(from.cast_mut(), to, size) },
            _ => {
                // SAFETY: this function's contract.
                unsafe { host_copy::load(from, to, size) };
                Ok(())
            }
        }
    }
}

/// All bytes, for words that others use at the same time.
impl SharedBuffer<u8, Any> {
    #[inline]
    pub(crate) fn store_shared(&self, bytes: &[u8]) -> Result<()> {
        debug_assert!(bytes.len() <= self.size());
        // SAFETY: the caller's bytes are as many as the buffer's, and shared memory has no slices.
        unsafe { self.hold.allocation().store(self.hold.cpu_ready()?, self.host_address(), bytes) }
    }

    #[inline]
    pub(crate) fn load_shared(&self, bytes: &mut [u8]) -> Result<()> {
        debug_assert!(bytes.len() <= self.size());
        // SAFETY: as in `store_shared`.
        unsafe {
            self.hold.allocation().load(self.hold.cpu_ready()?, self.host_address(), bytes.as_mut_ptr(), bytes.len())
        }
    }
}

/// Several stores to a buffer that are fenced together; see [`Buffer::store_scope`]. The scope stays on its thread,
/// because a fence orders only the stores of its own thread.
pub struct StoreScope<'buffer, T> {
    start: *mut u8,
    /// In elements.
    length: usize,
    is_coherent: bool,
    allocation: &'buffer Allocation,
    ready: CpuReady<'buffer>,
    stores: Stores,
    elements: PhantomData<fn(T)>,
}

impl<T> StoreScope<'_, T> {
    /// Writes the elements from `offset` on with CPU stores. The end of the scope fences them.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`; the flush of non-coherent memory failed.
    #[inline]
    pub fn store(&mut self, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        let range = span_elements("StoreScope::store", offset, source.len(), self.length, size_of::<T>())?;
        let (to, source) =
            (self.start.wrapping_add(range.start * size_of::<T>()), bytemuck::cast_slice::<T, u8>(source));
        check_shared_write(to, source.len());
        if self.is_coherent {
            // SAFETY: the range lies within the buffer, which the scope borrows exclusively.
            unsafe { self.stores.store(source.as_ptr(), to, source.len()) };
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.allocation.store_non_coherent(self.ready, to, source) }
    }
}

impl<T> fmt::Debug for StoreScope<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreScope").field("length", &self.length).finish_non_exhaustive()
    }
}
