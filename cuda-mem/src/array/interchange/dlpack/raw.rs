//! DLPack's structures, with the layout of its header (release 1.3).

use core::ffi::{c_char, c_int, c_void};

/// The release whose layout a tensor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Changes with the layout.
    pub major: u32,
    /// Changes with additions to enumerations.
    pub minor: u32,
}

/// The release that this library implements.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 3 };

/// Nobody may write the tensor.
pub const FLAG_READ_ONLY: u64 = 1 << 0;
/// The tensor is a copy that only the consumer has.
pub const FLAG_IS_COPIED: u64 = 1 << 1;
/// Each element of less than a byte has its own bytes.
pub const FLAG_IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

/// The numbers of device types (`DLDeviceType`), with their names in errors. This library handles the first three and
/// managed memory.
pub const DEVICE_TYPES: [(i32, &str); 16] = [
    (1, "CPU"),
    (2, "CUDA"),
    (3, "CUDAHost"),
    (4, "OpenCL"),
    (7, "Vulkan"),
    (8, "Metal"),
    (9, "VPI"),
    (10, "ROCM"),
    (11, "ROCMHost"),
    (12, "ExtDev"),
    (13, "CUDAManaged"),
    (14, "OneAPI"),
    (15, "WebGPU"),
    (16, "Hexagon"),
    (17, "MAIA"),
    (18, "Trn"),
];

/// A device: its type and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// One of [`DEVICE_TYPES`] in a valid tensor.
    pub device_type: i32,
    /// 0 for memory of the host and managed memory.
    pub device_id: i32,
}

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// The meaning of the bits.
    pub code: u8,
    /// The bits of a lane.
    pub bits: u8,
    /// The number of lanes.
    pub lanes: u16,
}

/// A tensor without an owner.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// The address of the memory.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The type of an element.
    pub dtype: DLDataType,
    /// The extents; may be null if there are none.
    pub shape: *mut i64,
    /// In elements. Null from producers before release 1.2: then the tensor is dense.
    pub strides: *mut i64,
    /// The place of the element with index 0, in bytes from `data`.
    pub byte_offset: u64,
}

/// Frees a tensor of the layout before release 1.0.
pub type LegacyDeleter = unsafe extern "C" fn(*mut DLManagedTensor);

/// A tensor with its owner, in the layout before release 1.0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The owner's private data.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this structure; null if nothing needs it.
    pub deleter: Option<LegacyDeleter>,
}

/// Frees a tensor.
pub type Deleter = unsafe extern "C" fn(*mut DLManagedTensorVersioned);

/// A tensor with its owner. The fields up to `flags` have the same place in every release.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The release.
    pub version: DLPackVersion,
    /// The owner's private data.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and this structure; null if nothing needs it.
    pub deleter: Option<Deleter>,
    /// [`FLAG_READ_ONLY`] and the others.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Reports an error to an allocator's caller: its context, a kind (the name of a Python exception), a message.
pub type SetError = unsafe extern "C" fn(error_ctx: *mut c_void, kind: *const c_char, message: *const c_char);

/// Makes a tensor with a prototype's type, shape and device. Returns 0, or -1 after a call of `SetError`.
pub type ManagedTensorAllocator = unsafe extern "C" fn(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int;

/// Gives the stream on which a library works now. Returns 0 or -1.
pub type CurrentWorkStream =
    unsafe extern "C" fn(device_type: i32, device_id: i32, out_current_stream: *mut *mut c_void) -> c_int;

/// The part of the exchange API that is the same in every release.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLPackExchangeAPIHeader {
    /// The release of the following fields.
    pub version: DLPackVersion,
    /// The same functions in an older layout, or null.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// The exchange API: functions that a library offers to others without Python calls. Three use Python objects; a
/// library without such objects leaves them null and offers only the other two.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLPackExchangeAPI {
    /// The layout.
    pub header: DLPackExchangeAPIHeader,
    /// Makes a tensor.
    pub managed_tensor_allocator: Option<ManagedTensorAllocator>,
    /// Exports the tensor of a Python object.
    pub managed_tensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int>,
    /// Makes a Python object from a tensor and takes the tensor.
    pub managed_tensor_to_py_object_no_sync:
        Option<unsafe extern "C" fn(tensor: *mut DLManagedTensorVersioned, out: *mut *mut c_void) -> c_int>,
    /// Describes the tensor of a Python object.
    pub dltensor_from_py_object_no_sync: Option<unsafe extern "C" fn(object: *mut c_void, out: *mut DLTensor) -> c_int>,
    /// Returns the current stream.
    pub current_work_stream: Option<CurrentWorkStream>,
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn sizes_and_offsets_are_those_of_the_header() {
        assert_eq!((size_of::<DLTensor>(), offset_of!(DLTensor, device), offset_of!(DLTensor, ndim)), (48, 8, 16));
        assert_eq!((offset_of!(DLTensor, dtype), offset_of!(DLTensor, shape)), (20, 24));
        assert_eq!((offset_of!(DLTensor, strides), offset_of!(DLTensor, byte_offset)), (32, 40));
        assert_eq!((size_of::<DLManagedTensor>(), offset_of!(DLManagedTensor, deleter)), (64, 56));
        assert_eq!((size_of::<DLManagedTensorVersioned>(), offset_of!(DLManagedTensorVersioned, dl_tensor)), (80, 32));
        assert_eq!(offset_of!(DLManagedTensorVersioned, flags), 24);
        assert_eq!((size_of::<DLPackExchangeAPI>(), offset_of!(DLPackExchangeAPI, current_work_stream)), (56, 48));
    }
}
