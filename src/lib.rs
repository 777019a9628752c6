//! The C library of cuda-mem. Its documentation for users is include/cudamem.h.
//!
//! It knows error codes and where panics stop; what it does is cuda-mem's.

mod error;
mod version;

use cuda_mem::Driver;

/// `cudamem_load` of the header.
///
/// # Safety
///
/// `release` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_load(release: *mut u32) -> error::Status {
    error::boundary(|| {
        if release.is_null() {
            return Err(error::null("cudamem_load", "release"));
        }
        let driver = Driver::load()?;
        let served = driver.provider().version.map_or(0, |version| version.number());
        // SAFETY: not null, and writable by the caller's contract.
        unsafe { release.write(served) };
        Ok(())
    })
}
