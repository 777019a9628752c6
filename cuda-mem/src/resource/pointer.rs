//! What the driver knows about an address.

use super::Accessibility;
use crate::error::call;
use crate::{Context, Result};
use core::ffi::{c_uint, c_void};
use core::ptr;
use cuda_sys::{CUdeviceptr, CUmemorytype, CUpointer_attribute as Attribute};

/// What the driver knows about an address.
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
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
    /// The driver refuses.
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
}
