//! A device opened for mapped memory.

use super::allocation::{self, MappedAllocation};
use crate::driver::{cuda_symbol, take_text};
use crate::error::drop_errors::DropErrors;
use crate::error::forked;
use crate::memory::resource::BlockTable;
use crate::{Context, Driver, Error, Result};
use core::ffi::c_void;
use core::fmt;
use core::ptr;
use cuda_sys::Provider;
use std::sync::Arc;
use vkgdr_sys::{VKGDR_OPEN_FORCE_NON_COHERENT_BIT, VKGDR_OPEN_REQUIRE_COHERENT_BIT, Vkgdr, vkgdr_memory_t, vkgdr_t};

/// The requested coherence of mapped memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoherencePolicy {
    /// Coherent if the device offers it.
    #[default]
    Preferred,
    /// Coherent; otherwise opening fails.
    Required,
    /// Treated as non-coherent even if it is coherent. Use it to find missing flushes.
    ForcedNonCoherent,
}

/// A device opened for mapped memory: the source of [`Buffer`](crate::Buffer)s of kind
/// [`Mapped`](crate::memory::kind::Mapped). Cheap to clone; buffers keep the device open. An allocation takes 100 us, and
/// its free 70 us: allocate once, and divide with [`Buffer::split_at`](crate::Buffer::split_at), or put a
/// [`Pool`](crate::pool::Pool) over the resource.
///
/// ```
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// use cuda_mem::{Buffer, MappedMemory, Stream};
/// let context = driver.device(0)?.primary_context()?;
/// let stream = Stream::new(&context)?;
/// let mut memory = Buffer::<u8, _>::zeroed(&MappedMemory::new(&context)?, 4096, &stream)?;
/// memory.store(0, b"by CPU stores")?;
///
/// // The same bytes, as the device sees them.
/// let mut seen = [0u8; 13];
/// memory.copy_to_slice(0, &mut seen)?;
/// assert_eq!(&seen, b"by CPU stores");
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct MappedMemory {
    inner: Arc<DeviceAndContext>,
    /// Allocations of buffers, by CPU address. Outside `inner`, which allocations hold: inside they would keep themselves alive.
    blocks: Arc<BlockTable<Arc<MappedAllocation>>>,
}

struct DeviceAndContext {
    // Fields drop in this order: the context outlives the handle.
    open: Arc<OpenDevice>,
    context: Context,
}

/// An open device. It holds no context: memory with a deferred free must not keep the context alive.
pub(crate) struct OpenDevice {
    driver: Driver,
    raw: vkgdr_t,
    drop_errors: Arc<DropErrors>,
}

// SAFETY: any thread may use the vkgdr interface.
unsafe impl Send for OpenDevice {}
// SAFETY: as above.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    pub fn vkgdr(&self) -> Result<&Vkgdr> {
        self.driver.vkgdr()
    }
}

impl MappedMemory {
    /// Opens the context's device, and prefers coherent memory. A process's first open takes 100 ms or more; later ones
    /// are fast.
    ///
    /// # Errors
    ///
    /// There is no vkgdr library, no Vulkan, or no Vulkan device with the CUDA device's identity; the message names the
    /// cause.
    #[doc(alias = "vkgdr_open")]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_coherence(context, CoherencePolicy::Preferred)
    }

    /// Opens the context's device.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::mapped::{Coherence, CoherencePolicy};
    /// use cuda_mem::{Buffer, MappedMemory};
    /// // For a program that needs flags without flushes, and otherwise no mapped memory.
    /// let resource = MappedMemory::with_coherence(&context, CoherencePolicy::Required)?;
    /// assert_eq!(Buffer::<u8, _>::zeroed(&resource, 4096, &stream)?.coherence(), Coherence::Coherent);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); or coherence is required and not available.
    #[doc(alias = "vkgdr_open")]
    pub fn with_coherence(context: &Context, policy: CoherencePolicy) -> Result<Self> {
        let flags = match policy {
            CoherencePolicy::Preferred => 0,
            CoherencePolicy::Required => VKGDR_OPEN_REQUIRE_COHERENT_BIT,
            CoherencePolicy::ForcedNonCoherent => VKGDR_OPEN_FORCE_NON_COHERENT_BIT,
        };
        let vkgdr = context.driver().vkgdr()?;
        let _current = context.bind()?;
        let device = context.device().raw();
        let raw = if vkgdr.functions().vkgdr_open_with_cuda.is_some() {
            let user = ptr::from_ref(context.driver().raw()).cast_mut().cast::<c_void>();
            // SAFETY: `cuda_symbol` expects what `user` points to, which lives through the call.
            unsafe { vkgdr.vkgdr_open_with_cuda(device, flags, Some(cuda_symbol), user) }?
        } else {
            // SAFETY: the function accepts any device and flags.
            unsafe { vkgdr.vkgdr_open(device, flags) }?
        };
        if raw.is_null() {
            return Err(failure(vkgdr, "vkgdr_open"));
        }
        let open = OpenDevice { driver: context.driver().clone(), raw, drop_errors: context.drop_errors().clone() };
        let inner = DeviceAndContext { open: Arc::new(open), context: context.clone() };
        Ok(Self { inner: Arc::new(inner), blocks: Arc::default() })
    }

    /// Allocates from the library: 100 us on a GPU, and 70 us for the free. The size is not 0.
    #[doc(alias = "vkgdr_memory_alloc")]
    pub(crate) fn make(&self, size: usize) -> Result<Arc<MappedAllocation>> {
        if let Some(raw) = allocation::take_back(self, size) {
            return self.adopt(raw);
        }
        let vkgdr = self.vkgdr()?;
        self.context().make_room(&"MappedMemory::allocate", size)?;
        let _current = self.context().bind()?;
        // SAFETY: the handle is alive.
        let raw = unsafe { vkgdr.vkgdr_memory_alloc(self.raw(), size, 0) }?;
        if raw.is_null() {
            return Err(self.out_of_memory(failure(vkgdr, "vkgdr_memory_alloc"), size));
        }
        self.adopt(raw)
    }

    /// Takes ownership of memory from the library.
    pub(crate) fn adopt(&self, raw: vkgdr_memory_t) -> Result<Arc<MappedAllocation>> {
        // SAFETY: this resource's library has just made `raw`, which nobody else owns.
        unsafe { MappedAllocation::adopt(self.clone(), raw) }.map(Arc::new)
    }

    /// Maps the library's out-of-memory errors to [`Error::OutOfMemory`].
    fn out_of_memory(&self, error: Error, requested: usize) -> Error {
        match error {
            Error::Vkgdr { call, message } if is_out_of_memory(&message) => Error::OutOfMemory {
                call,
                requested,
                device: self.context().device().name().unwrap_or_default().into(),
                free: self.context().memory_info().ok().map(|info| info.free),
                message,
            },
            other => other,
        }
    }

    /// The context that uses the memory.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The vkgdr library in use.
    ///
    /// # Errors
    ///
    /// None once the resource is open.
    pub fn provider(&self) -> Result<&Provider> {
        Ok(self.vkgdr()?.provider())
    }

    pub(crate) fn vkgdr(&self) -> Result<&Vkgdr> {
        self.inner.open.vkgdr()
    }

    pub(crate) fn open(&self) -> &Arc<OpenDevice> {
        &self.inner.open
    }

    pub(crate) fn blocks(&self) -> &BlockTable<Arc<MappedAllocation>> {
        &self.blocks
    }

    /// The same open device without blocks, for allocations that become blocks themselves.
    pub(crate) fn without_blocks(&self) -> Self {
        Self { inner: self.inner.clone(), blocks: Arc::default() }
    }

    /// The library's handle, valid while this value or a clone is alive.
    pub fn raw(&self) -> vkgdr_t {
        self.inner.open.raw
    }
}

impl fmt::Debug for MappedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedMemory").field("context", self.context()).finish_non_exhaustive()
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if forked() {
            return;
        }
        let result = self.vkgdr().and_then(|vkgdr| {
            // SAFETY: owned here, and no memory is left: memory holds the resource.
            Ok(unsafe { vkgdr.vkgdr_close(self.raw) }?)
        });
        if let Err(error) = result {
            self.drop_errors.push("closing a mapped resource", error);
        }
    }
}

/// The library's message about its last failure on this thread.
#[cold]
pub(crate) fn failure(vkgdr: &Vkgdr, call: &'static str) -> Error {
    // SAFETY: the function takes nothing and returns text that the caller frees.
    let text = unsafe { vkgdr.vkgdr_last_error() }.ok().and_then(|text| unsafe { take_text(text) });
    Error::Vkgdr { call, message: text.unwrap_or_else(|| "the library gave no reason".to_owned()).into() }
}

/// Whether the library's message reports missing room.
fn is_out_of_memory(message: &str) -> bool {
    ["VK_ERROR_OUT_OF_DEVICE_MEMORY", "VK_ERROR_OUT_OF_HOST_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"]
        .iter()
        .any(|code| message.contains(code))
}
