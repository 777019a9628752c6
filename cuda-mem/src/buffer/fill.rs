//! Fills.

use super::{Access, Buffer};
use crate::cpu::host_copy::Stores;
use crate::error::call;
use crate::memory::resource::Kind;
use crate::{Error, Result};
use bytemuck::NoUninit;
use core::ops::{Range, RangeBounds};
use cuda_sys::CUresult;

impl<T, K: Kind, A: Access> Buffer<T, K, A> {
    /// Fills a range with a value, by device work in stream order. Element sizes may be 1, 2, 4 and 8 bytes, and
    /// multiples of 4 up to 64.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer; the elements have another size; devices cannot address the memory.
    #[doc(alias("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cuMemsetD2D32Async"))]
    pub fn fill(&mut self, range: impl RangeBounds<usize>, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        const CALL: &str = "Buffer::fill";
        let range = self.resolve(CALL, range)?;
        self.fill_pattern(CALL, range, bytemuck::bytes_of(&value))
    }

    /// Fills elements with one byte.
    pub(super) fn fill_bytes(&mut self, range: Range<usize>, byte: u8) -> Result<()> {
        self.fill_pattern("Buffer::fill", range, &vec![byte; size_of::<T>()])
    }

    /// Fills elements with a pattern of the size of an element.
    pub(super) fn fill_pattern(&mut self, call: &'static str, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        self.check_writable(call)?;
        match self.fill_by_driver(call, range.clone(), pattern) {
            Err(error)
                if error.driver_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) && self.accessibility().host =>
            {
                self.fill_by_cpu(range, pattern)
            }
            other => other,
        }
    }

    fn fill_by_driver(&mut self, call: &'static str, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        if pattern.windows(2).all(|pair| pair[0] == pair[1]) {
            let (byte, size) = (pattern[0], range.len() * size_of::<T>());
            self.check_fillable(call)?;
            return self.set(range.start, size, |cuda, start, stream| {
                // SAFETY: the range lies within the memory, which is freed after the fill in stream order.
                unsafe { call!(cuda.cuMemsetD8Async(start, byte, size, stream)) }
            });
        }
        self.check_fillable(call)?;
        let count = range.len();
        match *pattern {
            [a, b] => self.set(range.start, count, |cuda, start, stream| {
                // SAFETY: as above; the address is aligned, because elements of 2 bytes are.
                unsafe { call!(cuda.cuMemsetD16Async(start, u16::from_ne_bytes([a, b]), count, stream)) }
            }),
            [a, b, c, d] => self.set(range.start, count, |cuda, start, stream| {
                // SAFETY: as above.
                unsafe { call!(cuda.cuMemsetD32Async(start, u32::from_ne_bytes([a, b, c, d]), count, stream)) }
            }),
            _ => self.fill_columns(call, range, pattern),
        }
    }

    /// Fills with a pattern of several words: each word fills one column of a matrix whose rows are the elements.
    fn fill_columns(&mut self, call: &'static str, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        const WORD: usize = size_of::<u32>();
        let pitch = pattern.len();
        if !pitch.is_multiple_of(WORD) || pitch > 64 || !self.first_byte().is_multiple_of(WORD as u64) {
            let value = format!("{pitch} bytes at {:#x}", self.first_byte());
            let rule = "it must be 1, 2, 4 or 8 bytes, or an aligned multiple of 4 up to 64";
            return Err(Error::invalid(call, "the element's size", value, rule));
        }
        let count = range.len();
        for (column, word) in pattern.chunks_exact(WORD).enumerate() {
            let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            self.set(range.start, count, |cuda, start, stream| {
                let start = start + (column * WORD) as u64;
                // SAFETY: `count` rows of one word, `pitch` bytes apart, lie within the range.
                unsafe { call!(cuda.cuMemsetD2D32Async(start, pitch, word, 1, count, stream)) }
            })?;
        }
        Ok(())
    }

    /// Fills with the CPU, after the work so far. The driver refuses a range of host memory that spans several pieces
    /// of physical memory (CUDA_ERROR_INVALID_VALUE on an H200, where copies of the same range work).
    fn fill_by_cpu(&self, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        self.synchronize()?;
        let start = self.host_address().wrapping_add(range.start);
        let mut stores = Stores::begin();
        for index in 0..range.len() {
            let element = start.wrapping_add(index).cast::<u8>();
            // SAFETY: the element lies within the memory, which the CPU can address. CPU slices borrow the buffer, so
            // none exist here.
            unsafe { stores.store(pattern.as_ptr(), element, size_of::<T>()) };
        }
        drop(stores);
        self.flush_bytes(start.cast(), range.len() * size_of::<T>())
    }

    fn set(
        &self,
        start: usize,
        count: usize,
        set: impl FnOnce(&cuda_sys::Driver, u64, cuda_sys::CUstream) -> Result<()>,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.in_order(|home| {
            let (cuda, _ready) = home.ready()?;
            set(cuda, self.address(start), home.raw())
        })
    }

    /// Refuses memory that devices cannot address: such a fill would break the context permanently.
    fn check_fillable(&self, call: &'static str) -> Result<()> {
        if self.is_empty() || self.accessibility().device {
            return Ok(());
        }
        let rule = "a device fills it, so it must address it: register the memory first";
        Err(Error::invalid(call, "the buffer's memory", self.accessibility(), rule))
    }
}
