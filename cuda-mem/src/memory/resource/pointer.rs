//! What the driver knows about an address.

use super::{Accessibility, Block, BlockKind};
use crate::error::call;
use crate::{Context, Result};
use core::ffi::{c_uint, c_void};
use core::ptr;
use cuda_sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute as Attribute, CUresult};

/// What the driver knows about an address.
///
/// ```
/// let driver = cuda_mem::Driver::software()?; // softgpu; a GPU: Driver::load()
/// # let context = driver.device(0)?.primary_context()?;
/// use cuda_mem::memory::{Accessibility, PointerInfo};
/// let word = 7u32; // on the stack: the driver does not know it
/// let info = PointerInfo::of(&context, &raw const word as u64)?;
/// assert_eq!((info.accessibility, info.device), (Accessibility::HOST, None));
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointerInfo {
    /// Who may address the memory. An unknown address counts as accessible to the CPU alone; it may belong to nobody.
    pub accessibility: Accessibility,
    /// The ordinal of the device in whose context the memory was allocated.
    pub device: Option<i32>,
    /// The address for devices; 0 if they cannot address the memory.
    pub device_pointer: CUdeviceptr,
    /// The address for the CPU; null if the CPU cannot address the memory.
    pub host_pointer: *mut u8,
}

// SAFETY: this only stores addresses; its holder is responsible for accesses.
unsafe impl Send for PointerInfo {}
// SAFETY: as above.
unsafe impl Sync for PointerInfo {}

impl PointerInfo {
    /// Asks the driver about an address of the CPU or of a device.
    ///
    /// # Errors
    ///
    /// As [every call of the driver](crate::Error#every-call-of-the-driver).
    #[doc(alias("cuPointerGetAttributes", "cuPointerGetAttribute"))]
    pub fn of(context: &Context, pointer: CUdeviceptr) -> Result<Self> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let (mut kind, mut managed, mut ordinal): (c_uint, c_uint, i32) = (0, 0, -1);
        let (mut device_pointer, mut host_pointer): (CUdeviceptr, *mut c_void) = (0, ptr::null_mut());
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
            Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
        ];
        let mut places: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut managed).cast(),
            (&raw mut ordinal).cast(),
            (&raw mut device_pointer).cast(),
            (&raw mut host_pointer).cast(),
        ];
        let count = attributes.len() as c_uint;
        // SAFETY: each place is as wide as its attribute, and both arrays hold `count` elements. The driver looks the
        // address up and does not dereference it.
        unsafe { call!(cuda.cuPointerGetAttributes(count, attributes.as_mut_ptr(), places.as_mut_ptr(), pointer)) }?;
        let accessibility = match CUmemorytype(kind) {
            _ if managed != 0 => Accessibility::MANAGED,
            CUmemorytype::CU_MEMORYTYPE_DEVICE => Accessibility::DEVICE,
            CUmemorytype::CU_MEMORYTYPE_HOST => Accessibility::BOTH,
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => Accessibility::MANAGED,
            _ => Accessibility::HOST,
        };
        if accessibility == Accessibility::HOST {
            host_pointer = ptr::with_exposed_provenance_mut(pointer as usize);
        }
        if accessibility.device && device_pointer == 0 {
            // For pools of host memory the driver reports no device address: devices use the CPU's address.
            device_pointer = pointer;
        }
        Ok(Self {
            accessibility,
            device: (accessibility.device && ordinal >= 0).then_some(ordinal),
            device_pointer,
            host_pointer: host_pointer.cast(),
        })
    }

    /// Asks about `size` bytes from an address on. Host memory counts as accessible to devices only if one registration
    /// or allocation contains all of it: the driver registers whole pages, so a byte may be known only because it shares
    /// a page with other memory, until that memory is unregistered.
    pub(crate) fn of_range(context: &Context, pointer: CUdeviceptr, size: usize) -> Result<Self> {
        let info = Self::of(context, pointer)?;
        if info.accessibility != Accessibility::BOTH || is_within_one(context, pointer, size)? {
            return Ok(info);
        }
        Ok(Self::host_only(pointer))
    }

    /// Whether the memory that this tells about, of an address `at`, contains `size` bytes, more than 0, from `start` on.
    /// Virtual memory may be mapped piece by piece, and the driver reports each piece, so beyond the piece of the address
    /// this looks at the first and the last byte only.
    pub(crate) fn contains(&self, context: &Context, at: CUdeviceptr, start: CUdeviceptr, size: usize) -> Result<bool> {
        let extent = Extent::at(context, at)?;
        let Some(last) = start.checked_add(size as u64 - 1) else { return Ok(false) };
        if contains(extent.start, extent.length, start, size) {
            return Ok(true);
        }
        if self.accessibility.managed || extent.plain != 0 {
            return Ok(false);
        }
        let reaches =
            |pointer| Ok::<bool, crate::Error>(Self::of(context, pointer)?.accessibility == self.accessibility);
        Ok(reaches(start)? && reaches(last)?)
    }

    /// The memory as a block. `pointer` is the address that was asked about.
    pub(crate) fn block(&self, pointer: CUdeviceptr, size: usize) -> Block {
        let Accessibility { device, host, managed, .. } = self.accessibility;
        // Where devices cannot address memory, the driver's copies take the CPU address.
        let device_pointer = if device { self.device_pointer } else { pointer };
        let block = Block::host(device_pointer, self.host_pointer, size);
        match (managed, host && !self.host_pointer.is_null()) {
            (true, _) => block.of_kind(BlockKind::Managed),
            (false, true) => block,
            (false, false) => block.of_kind(BlockKind::Device),
        }
    }

    /// Memory that only the CPU uses, whatever the driver knows about it.
    pub(crate) fn host_only(pointer: CUdeviceptr) -> Self {
        Self {
            accessibility: Accessibility::HOST,
            device: None,
            device_pointer: 0,
            host_pointer: ptr::with_exposed_provenance_mut(pointer as usize),
        }
    }
}

/// The allocation, registration or mapping that contains an address.
#[derive(Default)]
struct Extent {
    start: CUdeviceptr,
    length: usize,
    /// Not 0 for memory of cuMemAlloc, which alone serves the older calls between processes.
    plain: u64,
}

impl Extent {
    /// Zeros if the driver does not know the address.
    fn at(context: &Context, pointer: CUdeviceptr) -> Result<Self> {
        let (cuda, _current) = (context.driver().raw(), context.bind()?);
        let mut extent = Self::default();
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        ];
        let mut places: [*mut c_void; 3] =
            [(&raw mut extent.start).cast(), (&raw mut extent.length).cast(), (&raw mut extent.plain).cast()];
        // SAFETY: each place is at least as wide as its attribute, and both arrays hold three elements. The driver looks
        // the address up and does not dereference it.
        unsafe { call!(cuda.cuPointerGetAttributes(3, attributes.as_mut_ptr(), places.as_mut_ptr(), pointer)) }?;
        Ok(extent)
    }
}

/// Whether one registration or allocation of host memory contains `size` bytes from an address on.
fn is_within_one(context: &Context, pointer: CUdeviceptr, size: usize) -> Result<bool> {
    let Extent { start, length, .. } = Extent::at(context, pointer)?;
    Ok(contains(start, length, pointer, size) || is_of_pool(context, pointer)?)
}

/// Whether a pool of the driver holds an address. For host pools the driver reports a start that is no address (580.159:
/// 0 for a pool's first block). Nobody can register such memory, so all of it is known to the driver.
fn is_of_pool(context: &Context, pointer: CUdeviceptr) -> Result<bool> {
    let (cuda, _current) = (context.driver().raw(), context.bind()?);
    let mut pool: *mut c_void = ptr::null_mut();
    let attribute = Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    // SAFETY: the place is as wide as the attribute.
    let asked = unsafe { call!(cuda.cuPointerGetAttribute((&raw mut pool).cast(), attribute, pointer)) };
    match asked {
        Ok(()) => Ok(!pool.is_null()),
        // Drivers before pools do not know the attribute.
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a range contains another.
fn contains(start: CUdeviceptr, length: usize, pointer: CUdeviceptr, size: usize) -> bool {
    let (end, wanted) = (start.saturating_add(length as u64), pointer.checked_add(size as u64));
    start <= pointer && wanted.is_some_and(|wanted| wanted <= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Driver;
    use crate::memory::{DriverPoolOptions, PinnedPool, RegisterOptions, RegisteredMemory};

    #[test]
    fn only_what_lies_within_one_range_is_in_it() {
        assert!(contains(100, 50, 100, 50) && contains(100, 50, 149, 1) && contains(100, 50, 150, 0));
        assert!(!contains(100, 50, 99, 2) && !contains(100, 50, 149, 2) && !contains(100, 50, u64::MAX, 2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn every_block_of_a_host_pool_is_accessible_to_devices() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let stream = crate::Stream::new(&context)?;
        let pool = PinnedPool::new(&context, &DriverPoolOptions::default())?;
        let mut live = Vec::new();
        for _ in 0..3 {
            let buffer = crate::Buffer::<u8, _>::zeroed(&pool, 1000, &stream)?;
            let info = PointerInfo::of_range(&context, buffer.device_pointer() + 10, 990)?;
            assert_eq!(info.accessibility, Accessibility::BOTH);
            live.push(buffer);
        }
        Ok(())
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn memory_that_is_registered_in_part_is_the_cpus_alone() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let bytes = vec![0u8; 3 << 12];
        let start = bytes.as_ptr().expose_provenance() as u64;
        let registered =
            RegisteredMemory::new(&context, bytes, RegisterOptions::default()).map_err(crate::Error::from)?;
        let of =
            |offset, size| Ok::<_, crate::Error>(PointerInfo::of_range(&context, start + offset, size)?.accessibility);
        assert_eq!(of(0, 3 << 12)?, Accessibility::BOTH);
        assert_eq!(of(1 << 12, 1 << 12)?, Accessibility::BOTH);
        assert_eq!(of(1 << 12, (2 << 12) + 1)?, Accessibility::HOST);
        drop(registered);
        Ok(())
    }
}
