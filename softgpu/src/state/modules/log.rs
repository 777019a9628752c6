//! Where the program wants the texts of refused images.

use crate::call::{Result, ensure, offer, tell};
use cuda_sys::CUjit_option;
use std::ffi::{c_uint, c_void};
use std::ptr;

/// Where the program wants texts of a load. Without a place, a text of an error is printed once.
#[derive(Debug)]
pub(crate) struct Log {
    /// The buffer for errors, its size, and the place for the number of bytes that were written.
    error: Option<(*mut u8, usize)>,
    written: [*mut *mut c_void; 2],
}

// SAFETY: the program keeps the places for as long as it passes them, or for as long as the link that got them lives.
unsafe impl Send for Log {}
// SAFETY: as above. Calls of one link on several threads at once write where the program told them to.
unsafe impl Sync for Log {}

impl Log {
    pub(crate) fn none() -> Self {
        Self { error: None, written: [ptr::null_mut(); 2] }
    }

    /// The places that options name.
    ///
    /// # Safety
    ///
    /// The arrays are null or have `count` elements, with the values that the options need.
    pub(crate) unsafe fn of(options: *const CUjit_option, values: *mut *mut c_void, count: c_uint) -> Result<Self> {
        ensure(count == 0 || !options.is_null() && !values.is_null())?;
        let (mut log, mut buffer, mut size) = (Self::none(), ptr::null_mut::<u8>(), 0);
        for place in 0..count as usize {
            // SAFETY: by this function's contract.
            let (option, value) = unsafe { (options.add(place).read(), values.add(place)) };
            match option {
                // SAFETY: as above.
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER => buffer = unsafe { value.read() }.cast(),
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    // SAFETY: as above. The value is a number in the place of an address.
                    size = unsafe { value.read() }.addr() & u32::MAX as usize;
                    log.written[0] = value;
                }
                CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => log.written[1] = value,
                _ => {}
            }
        }
        log.error = (!buffer.is_null() && size > 0).then_some((buffer, size));
        Ok(log)
    }

    /// Writes the text of an error, or an empty one.
    ///
    /// # Safety
    ///
    /// The places are writable.
    pub(crate) unsafe fn write(&self, text: &str) {
        let mut length = 0;
        if let Some((buffer, size)) = self.error {
            length = text.len().min(size - 1);
            // SAFETY: by this function's contract.
            unsafe {
                buffer.copy_from(text.as_ptr(), length);
                buffer.add(length).write(0);
            }
        } else if !text.is_empty() {
            tell(text);
        }
        for (place, number) in self.written.iter().zip([length, 0]) {
            // SAFETY: by this function's contract.
            unsafe { offer(*place, ptr::without_provenance_mut(number)) };
        }
    }
}
