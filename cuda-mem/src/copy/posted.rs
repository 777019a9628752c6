//! Writes that have begun.

use crate::host_copy;
use core::fmt;
use core::marker::PhantomData;

/// CPU stores that have left the program, and nothing more is known of: [`CopyEngine::post`](super::CopyEngine::post). When
/// this ends, by its drop too, they are fenced; several writes need only the fence of the last. It stays on its thread: a
/// fence is about the stores of the thread that makes it.
///
/// ```
/// # use cuda_mem::{MappedResource, copy::CopyEngine};
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let engine = CopyEngine::new(&context)?;
/// # let mut memory = MappedResource::new(&context)?.allocate(4096)?;
/// engine.post(&mut memory, 0, b"the data")?.visible(); // before what follows
/// engine.post(&mut memory, 64, &[1u32])?.complete(); // and the flag is there
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[must_use = "dropping it fences the writes; say what is wanted: `visible` or `complete`"]
pub struct Posted<'memory> {
    /// The last byte that was stored, where the CPU has stored.
    last: Option<*const u8>,
    memory: PhantomData<&'memory mut ()>,
}

impl Posted<'_> {
    /// # Safety
    ///
    /// `last` is valid for reads while the borrow lasts.
    pub(super) unsafe fn new(last: Option<*mut u8>) -> Self {
        Self { last: last.map(<*mut u8>::cast_const), memory: PhantomData }
    }

    /// Fences: device work given to the driver from now on sees the bytes, and whoever sees what this thread stores from
    /// now on sees them before.
    pub fn visible(self) {}

    /// Fences, and waits until the bytes are in the device's memory, by reading one of them back.
    pub fn complete(self) {
        if let Some(last) = self.last {
            host_copy::store_fence();
            // SAFETY: `new`'s contract.
            core::hint::black_box(unsafe { last.read_volatile() });
        }
    }
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        if self.last.is_some() {
            host_copy::store_fence();
        }
    }
}

impl fmt::Debug for Posted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posted").field("by_stores", &self.last.is_some()).finish()
    }
}
