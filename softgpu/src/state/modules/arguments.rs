//! Arguments of launches.

use super::image::Parameter;
use crate::call::{Result, ensure};
use cuda_sys::CUresult;
use std::ffi::c_void;

/// The values of a kernel's parameters at a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    bytes: Vec<u8>,
    places: Vec<Parameter>,
}

impl Arguments {
    fn empty(places: &[Parameter]) -> Self {
        let length = places.iter().map(|place| place.offset + place.size).max().unwrap_or(0);
        Self { bytes: vec![0; length], places: places.to_vec() }
    }

    /// Copies the values from the addresses in a list.
    ///
    /// # Safety
    ///
    /// The list is null, or has an address for each parameter, which is null or that of its value.
    pub(crate) unsafe fn from_list(places: &[Parameter], list: *const *mut c_void) -> Result<Self> {
        let mut this = Self::empty(places);
        ensure(places.is_empty() || !list.is_null())?;
        for (n, place) in places.iter().enumerate() {
            // SAFETY: by this function's contract.
            let at = unsafe { list.add(n).read() };
            ensure(!at.is_null())?;
            // SAFETY: by this function's contract, and the bytes have this place.
            unsafe { at.cast::<u8>().copy_to(this.bytes[place.offset..].as_mut_ptr(), place.size) };
        }
        Ok(this)
    }

    /// Copies the values from a buffer that has all of them. Its size may be rounded up. A driver accepts a shorter one too:
    /// the kernel then runs with values that nobody gave.
    ///
    /// # Safety
    ///
    /// The buffer has that size.
    pub(crate) unsafe fn from_buffer(places: &[Parameter], buffer: *const u8, size: usize) -> Result<Self> {
        let mut this = Self::empty(places);
        ensure(size >= this.bytes.len())?;
        if size > this.bytes.len().next_multiple_of(16) {
            return Err(CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        ensure(!buffer.is_null() || size == 0)?;
        if !this.bytes.is_empty() {
            // SAFETY: by this function's contract, and not longer.
            unsafe { buffer.copy_to(this.bytes.as_mut_ptr(), this.bytes.len()) };
        }
        Ok(this)
    }

    /// The value of a parameter.
    pub(crate) fn value(&self, n: usize) -> Option<&[u8]> {
        let place = self.places.get(n)?;
        self.bytes.get(place.offset..place.offset + place.size)
    }

    /// The sizes of the values.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        self.places.iter().map(|place| place.size).collect()
    }

    /// The addresses of the values, which live as long as this value.
    pub(crate) fn list(&self) -> Vec<*mut c_void> {
        let at = |place: &Parameter| self.bytes[place.offset..].as_ptr().cast_mut().cast();
        self.places.iter().map(at).collect()
    }

    /// The values as words: one for a value of at most 8 bytes, several for a larger one.
    pub(crate) fn words(&self) -> Vec<u64> {
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let values = (0..self.places.len()).filter_map(|n| self.value(n));
        values.flat_map(|value| value.chunks(8).map(word)).collect()
    }
}
