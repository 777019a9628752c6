//! Copies of rows: two-dimensional parts of buffers.

use super::batch::not_open;
use super::{Access, Buffer, FarMemory};
use crate::cpu::borrowed::Borrowed;
use crate::error::call;
use crate::memory::resource::Kind;
use crate::stream::host_copies::CopySide;
use crate::{Error, Result};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::{CUDA_MEMCPY2D, CUdeviceptr, CUmemorytype};

/// The layout of rows of elements: the first begins at `offset`, and each begins `pitch` after the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The offset of the first row, in elements.
    pub offset: usize,
    /// The distance between the starts of two rows, in elements; at least the width.
    pub pitch: usize,
}

impl Rows {
    /// Rows without gaps.
    pub fn dense(width: usize) -> Self {
        Self { offset: 0, pitch: width }
    }

    /// Checks that rows lie within `length` elements and do not overlap.
    fn check(self, call: &'static str, width: usize, height: usize, length: usize, unit: usize) -> Result<()> {
        if width == 0 || height == 0 {
            return crate::error::range::span_elements(call, self.offset, 0, length, unit).map(|_| ());
        }
        if self.pitch < width {
            let rule = "rows must not overlap: the pitch must be at least the width";
            return Err(Error::invalid(call, "pitch", format_args!("{} elements", self.pitch), rule));
        }
        let extent = self.pitch.checked_mul(height - 1).and_then(|rows| rows.checked_add(width)).unwrap_or(usize::MAX);
        crate::error::range::span_elements(call, self.offset, extent, length, unit).map(|_| ())
    }
}

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Copies `height` rows of `width` elements from a slice. Returns when the copy is done.
    ///
    /// # Errors
    ///
    /// The rows do not lie within the buffer or the slice, or overlap.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
    /// # let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
    /// use cuda_mem::buffer::Rows;
    /// let mut image = Buffer::<u8, _>::zeroed(&memory, 12, &stream)?; // 3 rows of 4
    /// image.copy_rows_from_slice(Rows { offset: 5, pitch: 4 }, &[1, 2, 3, 4], Rows::dense(2), 2, 2)?;
    /// assert_eq!(image.to_vec()?, [0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    #[doc(alias = "cuMemcpy2D")]
    pub fn copy_rows_from_slice(
        &mut self,
        to: Rows,
        source: &[T],
        from: Rows,
        width: usize,
        height: usize,
    ) -> Result<()>
    where
        T: NoUninit,
    {
        const CALL: &str = "Buffer::copy_rows_from_slice";
        to.check(CALL, width, height, self.len(), size_of::<T>())?;
        from.check(CALL, width, height, source.len(), size_of::<T>())?;
        self.check_writable(CALL)?;
        let side = side(source.as_ptr().expose_provenance() as CUdeviceptr, from, size_of::<T>());
        let _lent = Borrowed::lent(source.as_ptr(), size_of_val(source));
        // SAFETY: all rows lie within their memory, and the slice is borrowed until the copy is done.
        let copy = || unsafe { self.copy_rows(self.side(to), side, width, height, None) };
        self.stream().run_copy(&CALL, (self.copy_side(), CopySide::Pageable), size_of_val(source), copy)
    }

    /// Copies `height` rows of `width` elements to a slice. Returns when the copy is done.
    ///
    /// # Errors
    ///
    /// As [`copy_rows_from_slice`](Self::copy_rows_from_slice).
    #[doc(alias = "cuMemcpy2D")]
    pub fn copy_rows_to_slice(
        &self,
        from: Rows,
        destination: &mut [T],
        to: Rows,
        width: usize,
        height: usize,
    ) -> Result<()>
    where
        T: AnyBitPattern,
    {
        const CALL: &str = "Buffer::copy_rows_to_slice";
        from.check(CALL, width, height, self.len(), size_of::<T>())?;
        to.check(CALL, width, height, destination.len(), size_of::<T>())?;
        let side = side(destination.as_mut_ptr().expose_provenance() as CUdeviceptr, to, size_of::<T>());
        let _lent = Borrowed::lent_to_write(destination.as_ptr(), size_of_val(destination));
        // SAFETY: as in `copy_rows_from_slice`.
        let copy = || unsafe { self.copy_rows(side, self.side(from), width, height, None) };
        self.stream().run_copy(&CALL, (CopySide::Pageable, self.copy_side()), size_of_val(destination), copy)
    }

    /// Copies `height` rows of `width` elements from another buffer, in stream order as
    /// [`copy_from_buffer`](Self::copy_from_buffer).
    ///
    /// # Errors
    ///
    /// The rows do not lie within the buffers, or overlap; the buffers share memory; the devices have no peer access.
    #[doc(alias = "cuMemcpy2DAsync")]
    pub fn copy_rows_from_buffer<L: Kind, B: Access>(
        &mut self,
        to: Rows,
        source: &Buffer<T, L, B>,
        from: Rows,
        width: usize,
        height: usize,
    ) -> Result<()> {
        const CALL: &str = "Buffer::copy_rows_from_buffer";
        to.check(CALL, width, height, self.len(), size_of::<T>())?;
        from.check(CALL, width, height, source.len(), size_of::<T>())?;
        self.check_writable(CALL)?;
        if core::ptr::eq(self.hold.allocation(), source.hold.allocation()) {
            let rule = "rows can only be copied between two allocations";
            return Err(Error::invalid(CALL, "source", "a part of the same memory", rule));
        }
        let home = self.stream().context();
        let far = source.far_from(home);
        // Gives access at the first need.
        let is_near = far.as_ref().is_none_or(|far| far.is_reached_by(home));
        if !is_near && (self.device_ordinal().is_none() || source.device_ordinal().is_none()) {
            return Err(not_open(CALL, self.stream()));
        }
        let sides = (self.copy_side(), source.copy_side());
        self.ordered_after(source, |home| {
            home.drain_before_copy(&CALL, sides, width * height * size_of::<T>())?;
            // SAFETY: all rows lie within their memory, which is freed after the copy in stream order.
            unsafe { self.copy_rows(self.side(to), source.side(from), width, height, far.as_ref()) }
        })
    }

    fn side(&self, rows: Rows) -> RowSide {
        side(self.device_pointer(), rows, size_of::<T>())
    }

    /// Queues a copy of rows on the home stream. `far` is the source if that is another device's.
    ///
    /// # Safety
    ///
    /// The rows of both sides stay valid until the copy is done.
    unsafe fn copy_rows(
        &self,
        to: RowSide,
        from: RowSide,
        width: usize,
        height: usize,
        far: Option<&FarMemory<'_>>,
    ) -> Result<()> {
        if width == 0 || height == 0 {
            return Ok(());
        }
        // Unified: the driver finds the type of memory by the address.
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcDevice: from.start,
            srcPitch: from.pitch,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            dstDevice: to.start,
            dstPitch: to.pitch,
            WidthInBytes: width * size_of::<T>(),
            Height: height,
            ..Default::default()
        };
        self.in_order(|home| {
            // If access has gone meanwhile, the driver refuses the copy, or makes it through the host.
            let _held = far.map(|far| far.hold(home.context()));
            let (cuda, _ready) = home.ready()?;
            // SAFETY: this function's contract.
            unsafe { call!(cuda.cuMemcpy2DAsync_v2(&copy, home.raw())) }
        })
    }
}

/// One side of a copy: an address and a pitch in bytes.
struct RowSide {
    start: CUdeviceptr,
    pitch: usize,
}

fn side(base: CUdeviceptr, rows: Rows, unit: usize) -> RowSide {
    // `check` has verified the products that matter; with one row it ignores the pitch.
    RowSide { start: base + (rows.offset * unit) as CUdeviceptr, pitch: rows.pitch.saturating_mul(unit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_within_memory_or_are_refused() {
        let check = |offset, pitch, width, height| Rows { offset, pitch }.check("t", width, height, 12, 2);
        assert!(check(0, 4, 4, 3).is_ok() && check(5, 4, 3, 2).is_ok() && check(12, 0, 0, 5).is_ok());
        assert!(check(12, 9, 4, 0).is_ok(), "no rows, at the end");
        assert!(check(13, 9, 4, 0).is_err(), "no rows, past the end");
        assert!(check(0, 3, 4, 1).is_err(), "the pitch is less than the width");
        assert!(check(1, 4, 4, 3).is_err() && check(0, 4, 4, 4).is_err(), "past the end");
        assert!(check(0, usize::MAX / 2, 1, 4).is_err() && check(usize::MAX, 4, 1, 1).is_err(), "overflow");
    }
}
