//! A device opened for mapped memory.

use super::allocation::Allocation;
use super::{MappedExport, MappedMemory, SharedMemory};
use crate::descriptor::{DescriptorError, length};
use crate::driver::{cuda_symbol, take_text};
use crate::drop_errors::DropErrors;
use crate::{Context, Driver, Error, Result};
use core::ffi::c_void;
use core::fmt;
use core::ptr;
use cuda_sys::Provider;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, RwLock};
use vkgdr_sys::{VKGDR_OPEN_FORCE_NON_COHERENT_BIT, VKGDR_OPEN_REQUIRE_COHERENT_BIT, Vkgdr, vkgdr_memory_t, vkgdr_t};

/// The requested coherence of mapped memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoherenceWish {
    /// Coherent if the device offers it.
    #[default]
    Preferred,
    /// Coherent; otherwise opening fails.
    Required,
    /// Treated as non-coherent even if it is coherent. Use it to find missing flushes.
    ForcedNonCoherent,
}

/// A device opened for mapped memory. Cheap to clone; memory keeps the device open.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// use cuda_mem::MappedResource;
/// let context = driver.device(0)?.primary_context()?;
/// let resource = MappedResource::new(&context)?;
/// let mut memory = resource.allocate(4096)?;
/// memory.copy_from_slice(0, b"by CPU stores")?;
///
/// // The same bytes, as the device sees them.
/// let mut seen = [0u8; 13];
/// memory.device_read(0, &mut seen)?;
/// assert_eq!(&seen, b"by CPU stores");
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct MappedResource {
    inner: Arc<DeviceAndContext>,
    /// Allocations of buffers. Outside `inner`, which allocations hold: inside they would keep themselves alive.
    blocks: Arc<Blocks>,
}

/// Allocations of buffers, by CPU address.
pub(super) type Blocks = RwLock<BTreeMap<usize, Arc<Allocation>>>;

struct DeviceAndContext {
    // Fields drop in this order: the context outlives the handle.
    open: Arc<OpenDevice>,
    context: Context,
}

/// An open device. It holds no context: memory with a deferred free must not keep the context alive.
pub(super) struct OpenDevice {
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

impl MappedResource {
    /// Opens the context's device, and prefers coherent memory. A process's first open takes 100 ms or more; later ones
    /// are fast.
    ///
    /// # Errors
    ///
    /// There is no vkgdr library, no Vulkan, or no Vulkan device with the CUDA device's identity; the message names the
    /// cause.
    #[doc(alias = "vkgdr_open")]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_coherence(context, CoherenceWish::Preferred)
    }

    /// Opens the context's device.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// use cuda_mem::MappedResource;
    /// use cuda_mem::mapped::{Coherence, CoherenceWish};
    /// // For a program that needs flags without flushes, and otherwise no mapped memory.
    /// let memory = MappedResource::with_coherence(&context, CoherenceWish::Required)?.allocate(4096)?;
    /// assert_eq!(memory.coherence(), Coherence::Coherent);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); or coherence is required and not available.
    #[doc(alias = "vkgdr_open")]
    pub fn with_coherence(context: &Context, wish: CoherenceWish) -> Result<Self> {
        let flags = match wish {
            CoherenceWish::Preferred => 0,
            CoherenceWish::Required => VKGDR_OPEN_REQUIRE_COHERENT_BIT,
            CoherenceWish::ForcedNonCoherent => VKGDR_OPEN_FORCE_NON_COHERENT_BIT,
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

    /// Allocates `size` bytes with a driver call (100 us on a GPU, and 70 us for the free): allocate once, and divide
    /// with [`MappedMemory::split_at`].
    ///
    /// # Errors
    ///
    /// `size` is 0; [`Error::OutOfMemory`] if there is no room.
    #[doc(alias = "vkgdr_memory_alloc")]
    pub fn allocate(&self, size: usize) -> Result<MappedMemory> {
        if size == 0 {
            return Err(zero_size("MappedResource::allocate"));
        }
        Ok(MappedMemory::whole(self.make(size)?))
    }

    /// Allocates from the library. The size is not 0.
    pub(super) fn make(&self, size: usize) -> Result<Arc<Allocation>> {
        let vkgdr = self.vkgdr()?;
        self.context().free_deferred();
        let _current = self.context().bind()?;
        // SAFETY: the handle is alive.
        let raw = unsafe { vkgdr.vkgdr_memory_alloc(self.raw(), size, 0) }?;
        if raw.is_null() {
            return Err(self.out_of_memory(failure(vkgdr, "vkgdr_memory_alloc"), size));
        }
        self.adopt(raw)
    }

    /// Maps memory that another process exported, for the CPU and CUDA. The result is [`SharedMemory`], because the
    /// other process may write at any time.
    ///
    /// # Errors
    ///
    /// The export belongs to another device; the descriptor is not valid; the memory is shorter than the descriptor
    /// claims ([`DescriptorError::TooLarge`]); the vkgdr library is upstream's, which cannot import.
    pub fn import(&self, export: MappedExport) -> Result<SharedMemory> {
        let (fd, descriptor) = export.into_parts();
        let uuid = self.context().device().uuid()?;
        if descriptor.device != uuid {
            return Err(Error::InvalidArgument {
                call: "MappedResource::import",
                argument: "the export's device",
                value: descriptor.device.to_string().into(),
                rule: "only the device that holds the memory can import it; open that device",
            });
        }
        descriptor.check()?;
        // Do not trust the size. The system knows that of a memory file; for others the library asks the driver.
        if let Some(extent) = length(&fd).filter(|extent| descriptor.size as u64 > *extent) {
            let (call, size) = ("MappedResource::import", descriptor.size as u64);
            return Err(DescriptorError::TooLarge { call, size, extent }.into());
        }
        let vkgdr = self.vkgdr()?;
        let _current = self.context().bind()?;
        // SAFETY: the handle is alive; the file descriptor is open and ours until the library takes it.
        let raw = unsafe { vkgdr.vkgdr_memory_import_fd(self.raw(), fd.as_raw_fd(), descriptor.size, 0) }?;
        if raw.is_null() {
            return Err(failure(vkgdr, "vkgdr_memory_import_fd"));
        }
        // The library owns the file descriptor now.
        core::mem::forget(fd);
        let memory = MappedMemory::whole(self.adopt(raw)?).into_shared();
        memory.slice(descriptor.offset..descriptor.offset + descriptor.length)
    }

    /// Takes ownership of memory from the library.
    fn adopt(&self, raw: vkgdr_memory_t) -> Result<Arc<Allocation>> {
        // SAFETY: this resource's library has just made `raw`, which nobody else owns.
        unsafe { Allocation::adopt(self.clone(), raw) }.map(Arc::new)
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

    pub(super) fn vkgdr(&self) -> Result<&Vkgdr> {
        self.inner.open.vkgdr()
    }

    pub(super) fn open(&self) -> &Arc<OpenDevice> {
        &self.inner.open
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The same open device without blocks, for allocations that become blocks themselves.
    pub(super) fn without_blocks(&self) -> Self {
        Self { inner: self.inner.clone(), blocks: Arc::default() }
    }

    /// The library's handle, valid while this value or a clone is alive.
    pub fn raw(&self) -> vkgdr_t {
        self.inner.open.raw
    }
}

impl fmt::Debug for MappedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedResource").field("context", self.context()).finish_non_exhaustive()
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
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
pub(super) fn failure(vkgdr: &Vkgdr, call: &'static str) -> Error {
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

fn zero_size(call: &'static str) -> Error {
    Error::InvalidArgument { call, argument: "size", value: "0".into(), rule: "an allocation has at least one byte" }
}
