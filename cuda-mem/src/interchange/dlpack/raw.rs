//! DLPack's structures, as its header lays them out (release 1.3).

use core::ffi::{c_char, c_int, c_void};

/// The release that a tensor is laid out by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Another one is another layout.
    pub major: u32,
    /// A newer one adds numbers to enumerations.
    pub minor: u32,
}

/// The release that this library speaks.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 3 };

/// Nobody may write the tensor.
pub const FLAG_READ_ONLY: u64 = 1 << 0;
/// The tensor is a copy that the consumer alone has.
pub const FLAG_IS_COPIED: u64 = 1 << 1;
/// Elements of less than a byte have bytes of their own.
pub const FLAG_IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

/// Numbers of kinds of devices (`DLDeviceType`), with the names that errors use. Those that this library serves are the
/// first three and managed memory.
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

/// A device: its kind and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// One of [`DEVICE_TYPES`], if the other side is right.
    pub device_type: i32,
    /// 0 for memory of the host and managed memory.
    pub device_id: i32,
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// What the bits mean.
    pub code: u8,
    /// The bits of a lane.
    pub bits: u8,
    /// How many lanes an element has.
    pub lanes: u16,
}

/// A tensor that says nothing of its ownership.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// How many dimensions.
    pub ndim: i32,
    /// The type of an element.
    pub dtype: DLDataType,
    /// The extents; may be null where there are none.
    pub shape: *mut i64,
    /// In elements. Null from producers before release 1.2: the tensor is dense.
    pub strides: *mut i64,
    /// Where in the memory the element of index 0 lies, in bytes.
    pub byte_offset: u64,
}

/// Ends a tensor of the layout before release 1.0.
pub type LegacyDeleter = unsafe extern "C" fn(*mut DLManagedTensor);

/// A tensor with its owner, as before release 1.0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The owner's own.
    pub manager_ctx: *mut c_void,
    /// Ends the tensor and frees this structure; null where there is nothing to do.
    pub deleter: Option<LegacyDeleter>,
}

/// Ends a tensor.
pub type Deleter = unsafe extern "C" fn(*mut DLManagedTensorVersioned);

/// A tensor with its owner. The fields up to `flags` are where they are in every release.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The layout.
    pub version: DLPackVersion,
    /// The owner's own.
    pub manager_ctx: *mut c_void,
    /// Ends the tensor and frees this structure; null where there is nothing to do.
    pub deleter: Option<Deleter>,
    /// [`FLAG_READ_ONLY`] and the others.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Tells an allocator's caller of an error: its context, a kind (a name of Python's exceptions), and a message.
pub type SetError = unsafe extern "C" fn(error_ctx: *mut c_void, kind: *const c_char, message: *const c_char);

/// Makes a tensor like a prototype, of which type, shape and device count. 0, or -1 after a call of `SetError`.
pub type ManagedTensorAllocator = unsafe extern "C" fn(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<SetError>,
) -> c_int;

/// Gives the stream that a library works on at present. 0 or -1.
pub type CurrentWorkStream =
    unsafe extern "C" fn(device_type: i32, device_id: i32, out_current_stream: *mut *mut c_void) -> c_int;

/// What is where it is in every release of the exchange API.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLPackExchangeAPIHeader {
    /// The layout of what follows.
    pub version: DLPackVersion,
    /// The same functions of an older layout, or null.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// The exchange API: what a library offers to others without Python's calls. Three of the functions take or make objects
/// of Python; a library without such objects has none of them, so it offers the other two by themselves.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLPackExchangeAPI {
    /// The layout.
    pub header: DLPackExchangeAPIHeader,
    /// Makes a tensor.
    pub managed_tensor_allocator: Option<ManagedTensorAllocator>,
    /// Gives a Python object's tensor.
    pub managed_tensor_from_py_object_no_sync:
        Option<unsafe extern "C" fn(object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int>,
    /// Makes a Python object of a tensor, which it takes.
    pub managed_tensor_to_py_object_no_sync:
        Option<unsafe extern "C" fn(tensor: *mut DLManagedTensorVersioned, out: *mut *mut c_void) -> c_int>,
    /// Lends a Python object's tensor.
    pub dltensor_from_py_object_no_sync: Option<unsafe extern "C" fn(object: *mut c_void, out: *mut DLTensor) -> c_int>,
    /// Gives the stream worked on.
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
