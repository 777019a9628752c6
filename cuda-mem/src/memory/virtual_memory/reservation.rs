//! Reserved addresses.

use super::end_detached;
use crate::error::call;
use crate::memory::resource::out_of_memory;
use crate::{Context, Result};
use core::fmt;
use cuda_sys::CUdeviceptr;

/// A range of addresses that belongs to us. Nothing lies there until physical memory is mapped. Freed once, exactly as
/// it was reserved.
pub(crate) struct Reservation {
    context: Context,
    base: CUdeviceptr,
    size: usize,
    is_leaked: bool,
}

impl Reservation {
    /// Reserves `size` bytes, a multiple of the granularity, at a multiple of `alignment` (0: the granularity), and at
    /// `hint` if the addresses are free (0: anywhere).
    pub fn new(
        name: &'static str,
        context: &Context,
        size: usize,
        alignment: usize,
        hint: CUdeviceptr,
    ) -> Result<Self> {
        let (cuda, mut base) = (context.driver().raw(), 0);
        // SAFETY: `base` is writable.
        unsafe { call!(cuda.cuMemAddressReserve(&mut base, size, alignment, hint, 0)) }
            .map_err(|error| out_of_memory(name, error, size, context))?;
        Ok(Self { context: context.clone(), base, size, is_leaked: false })
    }

    /// Never frees the addresses.
    pub fn leak(&mut self) {
        self.is_leaked = true;
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn base(&self) -> CUdeviceptr {
        self.base
    }

    pub fn size(&self) -> usize {
        self.size
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} + {} bytes", self.base, self.size)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_leaked {
            return;
        }
        end_detached(&self.context, "freeing reserved addresses", |cuda| {
            // SAFETY: the range is ours, complete, and freed once; nothing is mapped there any more.
            unsafe { call!(cuda.cuMemAddressFree(self.base, self.size)) }
        });
    }
}
