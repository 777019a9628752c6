//! A device, open for mapped memory.

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

/// Which coherence mapped memory shall have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoherenceWish {
    /// Coherent where the device offers it.
    #[default]
    Preferred,
    /// Coherent, or opening fails.
    Required,
    /// Treated as non-coherent even where it is coherent: to find missing flushes.
    ForcedNonCoherent,
}

/// A device, open for mapped memory. Cheap to clone; memory keeps it open.
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
    inner: Arc<Inner>,
    /// What buffers hold. Beside the inner part, not in it: an allocation holds that, and must not hold itself.
    blocks: Arc<Blocks>,
}

/// The allocations that buffers hold, by the CPU's address.
pub(super) type Blocks = RwLock<BTreeMap<usize, Arc<Allocation>>>;

struct Inner {
    // The context outlives the handle: fields are dropped in this order.
    open: Arc<Open>,
    context: Context,
}

/// An open device. It holds no context, which memory whose free is put off must not keep.
pub(super) struct Open {
    driver: Driver,
    raw: vkgdr_t,
    drop_errors: Arc<DropErrors>,
}

// SAFETY: the vkgdr interface may be used from every thread.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

impl Open {
    pub fn vkgdr(&self) -> Result<&Vkgdr> {
        self.driver.vkgdr()
    }
}

impl MappedResource {
    /// Opens the context's device; coherent memory is preferred. The first open of a process takes a hundred
    /// milliseconds or more, later ones little.
    ///
    /// # Errors
    ///
    /// There is no vkgdr library, no Vulkan, or no Vulkan device with the CUDA device's identity; the text says which.
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
    /// // For a program that wants flags without flushes, or none at all.
    /// let memory = MappedResource::with_coherence(&context, CoherenceWish::Required)?.allocate(4096)?;
    /// assert_eq!(memory.coherence(), Coherence::Coherent);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); or coherence is required and not offered.
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
            // SAFETY: `cuda_symbol` takes what `user` is; it lives through the call.
            unsafe { vkgdr.vkgdr_open_with_cuda(device, flags, Some(cuda_symbol), user) }?
        } else {
            // SAFETY: any device and flags may be asked for.
            unsafe { vkgdr.vkgdr_open(device, flags) }?
        };
        if raw.is_null() {
            return Err(failure(vkgdr, "vkgdr_open"));
        }
        let open = Open { driver: context.driver().clone(), raw, drop_errors: context.drop_errors().clone() };
        let inner = Inner { open: Arc::new(open), context: context.clone() };
        Ok(Self { inner: Arc::new(inner), blocks: Arc::default() })
    }

    /// Allocates `size` bytes. A driver call each time (100 us on a GPU, and 70 for the free): allocate once, and divide with
    /// [`MappedMemory::split_at`].
    ///
    /// # Errors
    ///
    /// `size` is 0, or there is no room: [`Error::OutOfMemory`].
    #[doc(alias = "vkgdr_memory_alloc")]
    pub fn allocate(&self, size: usize) -> Result<MappedMemory> {
        if size == 0 {
            return Err(zero_size("MappedResource::allocate"));
        }
        Ok(MappedMemory::whole(self.make(size)?))
    }

    /// An allocation of the library; the size is not 0.
    pub(super) fn make(&self, size: usize) -> Result<Arc<Allocation>> {
        let vkgdr = self.vkgdr()?;
        self.context().free_deferred();
        let _current = self.context().bind()?;
        // SAFETY: the handle lives.
        let raw = unsafe { vkgdr.vkgdr_memory_alloc(self.raw(), size, 0) }?;
        if raw.is_null() {
            return Err(self.out_of_memory(failure(vkgdr, "vkgdr_memory_alloc"), size));
        }
        self.adopt(raw)
    }

    /// Maps memory that another process exported, for the CPU and for CUDA. The other process may write it at any
    /// time, so it comes as [`SharedMemory`].
    ///
    /// # Errors
    ///
    /// The export is another device's, the descriptor is not what it says, the memory is shorter than the descriptor says
    /// ([`DescriptorError::TooLarge`]), or the vkgdr library is upstream's, which cannot import.
    pub fn import(&self, export: MappedExport) -> Result<SharedMemory> {
        let (fd, descriptor) = export.into_parts();
        let uuid = self.context().device().uuid()?;
        if descriptor.device != uuid {
            return Err(Error::InvalidArgument {
                call: "MappedResource::import",
                argument: "the export's device",
                value: descriptor.device.to_string().into(),
                rule: "memory is imported on the device that holds it",
            });
        }
        descriptor.check()?;
        // The size is a stranger's word. Of a memory file the system knows better; of others, the library asks the driver.
        if let Some(extent) = length(&fd).filter(|extent| descriptor.size as u64 > *extent) {
            let (call, size) = ("MappedResource::import", descriptor.size as u64);
            return Err(DescriptorError::TooLarge { call, size, extent }.into());
        }
        let vkgdr = self.vkgdr()?;
        let _current = self.context().bind()?;
        // SAFETY: the handle lives; the descriptor is open, and ours until the library takes it.
        let raw = unsafe { vkgdr.vkgdr_memory_import_fd(self.raw(), fd.as_raw_fd(), descriptor.size, 0) }?;
        if raw.is_null() {
            return Err(failure(vkgdr, "vkgdr_memory_import_fd"));
        }
        // The library has it now.
        core::mem::forget(fd);
        let memory = MappedMemory::whole(self.adopt(raw)?).into_shared();
        memory.slice(descriptor.offset..descriptor.offset + descriptor.length)
    }

    /// Takes over what the library allocated.
    fn adopt(&self, raw: vkgdr_memory_t) -> Result<Arc<Allocation>> {
        // SAFETY: `raw` was just made by this resource's library, and nobody else has it.
        unsafe { Allocation::adopt(self.clone(), raw) }.map(Arc::new)
    }

    /// Gives "no room" its own error, with what the device has free.
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

    /// The context in which the memory is used.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Which vkgdr library serves.
    ///
    /// # Errors
    ///
    /// Never, once the resource is open.
    pub fn provider(&self) -> Result<&Provider> {
        Ok(self.vkgdr()?.provider())
    }

    pub(super) fn vkgdr(&self) -> Result<&Vkgdr> {
        self.inner.open.vkgdr()
    }

    pub(super) fn open(&self) -> &Arc<Open> {
        &self.inner.open
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// The same open device, with no blocks: for allocations that become blocks themselves.
    pub(super) fn without_blocks(&self) -> Self {
        Self { inner: self.inner.clone(), blocks: Arc::default() }
    }

    /// The library's handle. It lives as long as this value and its clones.
    pub fn raw(&self) -> vkgdr_t {
        self.inner.open.raw
    }
}

impl fmt::Debug for MappedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedResource").field("context", self.context()).finish_non_exhaustive()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let result = self.vkgdr().and_then(|vkgdr| {
            // SAFETY: ours, and no memory is left: memory holds the resource.
            Ok(unsafe { vkgdr.vkgdr_close(self.raw) }?)
        });
        if let Err(error) = result {
            self.drop_errors.push("closing a mapped resource", error);
        }
    }
}

/// The library's words on its last failure in this thread.
#[cold]
pub(super) fn failure(vkgdr: &Vkgdr, call: &'static str) -> Error {
    // SAFETY: the function takes nothing and gives text that is ours to free.
    let text = unsafe { vkgdr.vkgdr_last_error() }.ok().and_then(|text| unsafe { take_text(text) });
    Error::Vkgdr { call, message: text.unwrap_or_else(|| "the library gave no reason".to_owned()).into() }
}

/// Whether the library's words say that there is no room.
fn is_out_of_memory(message: &str) -> bool {
    ["VK_ERROR_OUT_OF_DEVICE_MEMORY", "VK_ERROR_OUT_OF_HOST_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY"]
        .iter()
        .any(|code| message.contains(code))
}

fn zero_size(call: &'static str) -> Error {
    Error::InvalidArgument { call, argument: "size", value: "0".into(), rule: "an allocation has at least one byte" }
}
