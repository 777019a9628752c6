//! Copies to and from the host, and between buffers.

use super::holder::Hold;
use super::{Access, Buffer, CopyBatch, bytes_of_mut, route};
use crate::cpu::borrowed::Borrowed;
use crate::error::call;
use crate::error::range::{resolve_elements, span_elements};
use crate::lifetime::waiting::{self, Target};
use crate::memory::resource::{BlockKind, Kind, PointerInfo};
use crate::stream::host_copies::{CopySide, waits_within};
use crate::{Error, Result};
use bytemuck::{AnyBitPattern, NoUninit};
use core::mem::MaybeUninit;
use core::ops::{Range, RangeBounds};
use cuda_sys::CUdeviceptr;

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Copies a slice to the elements from `offset` on. Returns when the copy is done.
    ///
    /// # Errors
    ///
    /// The slice does not fit at `offset`; earlier work on the home stream failed.
    #[doc(alias = "cuMemcpyHtoD")]
    pub fn copy_from_slice(&mut self, offset: usize, source: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        let range = self.span("Buffer::copy_from_slice", offset, source.len())?;
        self.check_writable("Buffer::copy_from_slice")?;
        if range.is_empty() {
            return Ok(());
        }
        self.prepare_bytes(&self.bytes_of_allocation(range.clone()))?;
        let home = self.stream();
        let (to, from) = (self.address(range.start), source.as_ptr().expose_provenance() as CUdeviceptr);
        let _lent = Borrowed::lent(source.as_ptr(), size_of_val(source));
        let copy = || {
            let (cuda, _current) = (home.context().driver().raw(), home.context().bind()?);
            // Not cuMemcpyHtoDAsync: it refuses a buffer of plain host memory.
            // SAFETY: both ranges lie within their memory, and the source is borrowed until the copy is complete.
            unsafe { call!(cuda.cuMemcpyAsync(to, from, size_of_val(source), home.raw())) }
        };
        home.run_copy(&"Buffer::copy_from_slice", (self.copy_side(), CopySide::Pageable), size_of_val(source), copy)
    }

    /// Copies the elements from `offset` on to a slice. Returns when the copy is done.
    ///
    /// # Errors
    ///
    /// The range exceeds the buffer; earlier work on the home stream failed.
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn copy_to_slice(&self, offset: usize, destination: &mut [T]) -> Result<()>
    where
        T: AnyBitPattern,
    {
        let range = self.span("Buffer::copy_to_slice", offset, destination.len())?;
        let (to, size) = bytes_of_mut(destination);
        // SAFETY: the destination is borrowed until the copy is done, and any bytes are values of `T`.
        unsafe { self.copy_to_pointer(range.start, to, size) }
    }

    /// Copies all elements to a vector.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice).
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: AnyBitPattern,
    {
        let mut elements: Vec<T> = Vec::with_capacity(self.len());
        let room: *mut MaybeUninit<T> = elements.spare_capacity_mut().as_mut_ptr();
        // SAFETY: the vector has capacity for all elements.
        unsafe { self.copy_to_pointer(0, room.cast(), self.size()) }?;
        // SAFETY: the copy has written all elements, and any bytes are values of `T`.
        unsafe { elements.set_len(self.len()) };
        Ok(elements)
    }

    /// The bytes as hexadecimal digits.
    ///
    /// # Errors
    ///
    /// As [`copy_to_slice`](Self::copy_to_slice).
    pub fn hex(&self) -> Result<String>
    where
        T: NoUninit + AnyBitPattern,
    {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let elements = self.to_vec()?;
        let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)] as char, DIGITS[usize::from(byte & 15)] as char];
        Ok(bytemuck::cast_slice::<T, u8>(&elements).iter().flat_map(digits).collect())
    }

    /// Copies `size` bytes from the element at `start` on, and waits.
    ///
    /// # Safety
    ///
    /// The elements lie within the buffer, and `to` is valid for writes of `size` bytes.
    unsafe fn copy_to_pointer(&self, start: usize, to: *mut u8, size: usize) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        self.before_work()?;
        let home = self.stream();
        let _lent = Borrowed::lent_to_write(to, size);
        let to = to.expose_provenance() as CUdeviceptr;
        let copy = || {
            let (cuda, _current) = (home.context().driver().raw(), home.context().bind()?);
            // SAFETY: this function's contract; `run_copy` waits for the copy.
            unsafe { call!(cuda.cuMemcpyAsync(to, self.address(start), size, home.raw())) }
        };
        // From any memory, a copy to pageable memory waits.
        home.run_copy(&"Buffer::copy_to_slice", (CopySide::Pageable, CopySide::Device), size, copy)
    }

    /// Copies a range of another buffer to the elements from `offset` on, on this buffer's home stream: after the source's
    /// work so far, and before its later work.
    ///
    /// If this library alone uses the source, the copy waits only for what wrote the range. The source's home stream goes on;
    /// only work that writes the range, and the free, wait for the copy. Once the program has the source's address
    /// ([`device_pointer`](Self::device_pointer), an export), or shares the buffer, the two streams wait for each other.
    ///
    /// Between devices, the first copy gives this buffer's device access to the source's memory if it can. Without access
    /// the copy goes through the host, at a fraction of the speed. [`route_to`](Self::route_to) tells which of the two holds.
    ///
    /// # Errors
    ///
    /// A range does not lie within its buffer; the two ranges overlap.
    #[doc(alias("cuMemcpyDtoD", "cuMemcpyPeer"))]
    pub fn copy_from_buffer<L: Kind, B: Access>(
        &mut self,
        offset: usize,
        source: &Buffer<T, L, B>,
        range: impl RangeBounds<usize>,
    ) -> Result<()> {
        const CALL: &str = "Buffer::copy_from_buffer";
        let from_range = source.resolve(CALL, range)?;
        let targets = self.span(CALL, offset, from_range.len())?;
        self.check_writable(CALL)?;
        if targets.is_empty() {
            return Ok(());
        }
        let size = from_range.len() * size_of::<T>();
        let (to, from) = (self.address(targets.start), source.address(from_range.start));
        check_apart(CALL, to, from, size)?;
        let home = self.stream().context();
        let route = route(home, Some(&*self), Some(source));
        // Without access, a copy between devices goes through the host.
        let is_near = route.ensure_access(home);
        let on_devices = self.device_ordinal().is_some() && source.device_ordinal().is_some();
        let mut is_queued = false;
        if is_near || on_devices {
            let sides = (self.copy_side(), source.copy_side());
            let ranges = (self.bytes_of_allocation(targets), source.bytes_of_allocation(from_range.clone()));
            self.ordered_after(source, ranges, |home| {
                home.drain_before_copy(&CALL, sides, size)?;
                let held = route.hold(home.context());
                is_queued = on_devices || held.is_reached;
                if !is_queued {
                    return Ok(());
                }
                let (cuda, _ready) = home.ready()?;
                if route.between_devices().is_some() {
                    let (to_context, from_context) = (self.context().raw(), source.context().raw());
                    // SAFETY: both ranges lie within their memory, which is freed after the copy in stream order.
                    unsafe { call!(cuda.cuMemcpyPeerAsync(to, to_context, from, from_context, size, home.raw())) }
                } else {
                    // SAFETY: as above.
                    unsafe { call!(cuda.cuMemcpyAsync(to, from, size, home.raw())) }
                }
            })?;
        }
        if is_queued {
            return Ok(());
        }
        // The driver cannot copy by this device.
        let mut batch = CopyBatch::new(source.stream());
        batch.copy(self, offset, source, from_range)?;
        batch.submit()
    }

    /// Copies a range within the buffer to the elements from `offset` on, in stream order.
    ///
    /// # Errors
    ///
    /// A range does not lie within the buffer; the two ranges overlap.
    pub fn copy_within(&mut self, range: impl RangeBounds<usize>, offset: usize) -> Result<()> {
        const CALL: &str = "Buffer::copy_within";
        let from = self.resolve(CALL, range)?;
        let to = self.span(CALL, offset, from.len())?;
        self.check_writable(CALL)?;
        if to.is_empty() {
            return Ok(());
        }
        let size = from.len() * size_of::<T>();
        let (to, from) = (self.address(to.start), self.address(from.start));
        check_apart(CALL, to, from, size)?;
        self.in_order(|home| {
            home.drain_before_copy(&CALL, (self.copy_side(), self.copy_side()), size)?;
            let (cuda, _ready) = home.ready()?;
            // SAFETY: both ranges lie within the memory, which is freed after the copy in stream order.
            unsafe { call!(cuda.cuMemcpyAsync(to, from, size, home.raw())) }
        })
    }

    /// A copy of the buffer, with the same resource and home stream.
    ///
    /// # Errors
    ///
    /// The memory belongs to another library, so there is no resource to allocate from; there is no room.
    pub fn try_clone(&self) -> Result<Buffer<T, K>> {
        let Some(resource) = self.resource() else {
            let rule = "memory of another library has none: allocate a buffer and copy to it";
            return Err(Error::invalid("Buffer::try_clone", "the buffer's resource", "none", rule));
        };
        let copy = Buffer::<MaybeUninit<T>, K>::allocate(resource, self.len(), self.stream())?;
        // SAFETY: the copy writes every element, and the source's are values of `T`.
        unsafe { copy.initialised_by("Buffer::try_clone", |copy| copy.copy_from_buffer(0, self, ..)) }
    }

    /// Runs `work` on this buffer's home stream. It writes some bytes of this buffer's allocation, and reads some of the
    /// source's: after the work so far that writes them, before later work that does.
    pub(crate) fn ordered_after<L: Kind, B: Access>(
        &self,
        source: &Buffer<T, L, B>,
        (writes, reads): (Range<usize>, Range<usize>),
        work: impl FnOnce(&crate::Stream) -> Result<()>,
    ) -> Result<()> {
        let (home, other) = (self.stream(), source.stream());
        source.before_work()?;
        if home == other {
            let begun = self.in_order(work);
            source.note_read_in_order();
            return begun;
        }
        if let Some(order) = source.begin_read(home, &reads)? {
            let begun = self.prepare_bytes(&writes).and_then(|()| self.queue(work));
            // Also after an error, because queued work reads the source.
            return begun.and(self.note_copy(writes, source, order, reads));
        }
        home.order_work_after(other)?;
        let begun = self.in_order(work);
        // Also after an error, because queued work reads the source.
        let ordered = other.order_work_after_or_wait(home);
        source.mark_busy();
        begun.and(ordered)
    }

    /// Runs `work` on the home stream.
    pub(crate) fn in_order(&self, work: impl FnOnce(&crate::Stream) -> Result<()>) -> Result<()> {
        self.prepare()?;
        let begun = self.queue(work);
        self.mark_busy();
        begun
    }

    fn queue(&self, work: impl FnOnce(&crate::Stream) -> Result<()>) -> Result<()> {
        // The driver itself waits in some copies: between host memory, and from and to pageable memory.
        waiting::during(&"queuing work on a buffer", Target::stream(self.stream()), || work(self.stream()))
    }

    pub(crate) fn copy_side(&self) -> CopySide {
        match self.hold.allocation().block.kind() {
            BlockKind::Host | BlockKind::ReadOnly if self.accessibility().device => CopySide::PageLocked,
            BlockKind::Host | BlockKind::ReadOnly => CopySide::Pageable,
            _ => CopySide::Device,
        }
    }

    /// Waits for earlier work on the home stream if the driver would wait within a copy from or to host memory of the program,
    /// which may be page-locked. Asks the driver only if there is something to wait for.
    pub(super) fn drain_before_transfer(
        &self,
        call: &'static &'static str,
        is_upload: bool,
        host: CUdeviceptr,
        size: usize,
    ) -> Result<()> {
        let (home, memory) = (self.stream(), self.copy_side());
        let sides = |host| if is_upload { (memory, host) } else { (host, memory) };
        let (to, from) = sides(CopySide::Pageable);
        if !waits_within(to, from, size) || home.is_certainly_idle(&home.running(call)?) {
            return Ok(());
        }
        let is_known = PointerInfo::of_range(home.context(), host, size)?.accessibility.device;
        home.drain_before_copy(call, sides(if is_known { CopySide::PageLocked } else { CopySide::Pageable }), size)
    }

    /// The device address of an element.
    pub(crate) fn address(&self, element: usize) -> CUdeviceptr {
        self.first_byte() + (element * size_of::<T>()) as CUdeviceptr
    }

    #[inline]
    pub(crate) fn span(&self, call: &'static str, offset: usize, count: usize) -> Result<Range<usize>> {
        span_elements(call, offset, count, self.length, size_of::<T>())
    }

    #[inline]
    pub(crate) fn resolve(&self, call: &'static str, range: impl RangeBounds<usize>) -> Result<Range<usize>> {
        resolve_elements(call, range, self.length, size_of::<T>())
    }

    pub(super) fn check_same_length(&self, call: &'static str, length: usize) -> Result<()> {
        if length == self.len() {
            return Ok(());
        }
        let rule = "it must equal this buffer's length";
        Err(Error::invalid(call, "the other's length", format_args!("{length} elements"), rule))
    }
}

/// Checks that a copy's two ranges share no byte; otherwise the driver does not define the result.
pub(super) fn check_apart(call: &'static str, to: CUdeviceptr, from: CUdeviceptr, size: usize) -> Result<()> {
    if to.abs_diff(from) >= size as u64 {
        return Ok(());
    }
    let rule = "they must not overlap";
    Err(Error::invalid(call, "the two ranges", format_args!("{size} bytes, {} apart", to.abs_diff(from)), rule))
}
