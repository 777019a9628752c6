//! Arrow's C structures, with the layout of its specification.

use core::ffi::{c_char, c_int, c_void};

/// The values may be missing (`ARROW_FLAG_NULLABLE`).
pub const FLAG_NULLABLE: i64 = 2;

/// The type of an array: its format, its name, its children.
#[derive(Debug)]
#[repr(C)]
pub struct ArrowSchema {
    /// The type, in the specification's letters.
    pub format: *const c_char,
    /// The field's name, or null.
    pub name: *const c_char,
    /// Pairs of texts, or null.
    pub metadata: *const c_char,
    /// [`FLAG_NULLABLE`] and others.
    pub flags: i64,
    /// The number of children.
    pub n_children: i64,
    /// The children.
    pub children: *mut *mut ArrowSchema,
    /// The type of the dictionary's values, or null.
    pub dictionary: *mut ArrowSchema,
    /// Releases the structure; null after the release.
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    /// The producer's private data.
    pub private_data: *mut c_void,
}

/// The values of an array.
#[derive(Debug)]
#[repr(C)]
pub struct ArrowArray {
    /// The number of values.
    pub length: i64,
    /// The number of missing values; -1 if it is unknown.
    pub null_count: i64,
    /// The number of values before the first.
    pub offset: i64,
    /// The number of buffers.
    pub n_buffers: i64,
    /// The number of children.
    pub n_children: i64,
    /// The addresses of the buffers, on the array's device.
    pub buffers: *mut *const c_void,
    /// The children.
    pub children: *mut *mut ArrowArray,
    /// The dictionary's values, or null.
    pub dictionary: *mut ArrowArray,
    /// Releases the structure; null after the release.
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    /// The producer's private data.
    pub private_data: *mut c_void,
}

/// The values of an array on a device.
#[derive(Debug)]
#[repr(C)]
pub struct ArrowDeviceArray {
    /// The array.
    pub array: ArrowArray,
    /// The device's number; -1 for devices without one.
    pub device_id: i64,
    /// The type of device, by DLPack's numbers.
    pub device_type: i32,
    /// A pointer to a variable that holds an event. Users of the memory must wait for the event first. Null if no wait
    /// is needed.
    pub sync_event: *mut c_void,
    /// Zeros.
    pub reserved: [i64; 3],
}

/// A sequence of arrays of one type, on one type of device.
#[derive(Debug)]
#[repr(C)]
pub struct ArrowDeviceArrayStream {
    /// The type of device of all arrays.
    pub device_type: i32,
    /// Returns the type of the arrays. Returns 0 or an error number (errno).
    pub get_schema: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowSchema) -> c_int>,
    /// Returns the next array; after the last one, a released array.
    pub get_next: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream, *mut ArrowDeviceArray) -> c_int>,
    /// The message of the last error; null if there is none. Valid until the next call.
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream) -> *const c_char>,
    /// Releases the structure; null after the release.
    pub release: Option<unsafe extern "C" fn(*mut ArrowDeviceArrayStream)>,
    /// The producer's private data.
    pub private_data: *mut c_void,
}

impl ArrowSchema {
    /// A released structure.
    pub const RELEASED: Self = Self {
        format: core::ptr::null(),
        name: core::ptr::null(),
        metadata: core::ptr::null(),
        flags: 0,
        n_children: 0,
        children: core::ptr::null_mut(),
        dictionary: core::ptr::null_mut(),
        release: None,
        private_data: core::ptr::null_mut(),
    };
}

impl ArrowArray {
    /// A released structure.
    pub const RELEASED: Self = Self {
        length: 0,
        null_count: 0,
        offset: 0,
        n_buffers: 0,
        n_children: 0,
        buffers: core::ptr::null_mut(),
        children: core::ptr::null_mut(),
        dictionary: core::ptr::null_mut(),
        release: None,
        private_data: core::ptr::null_mut(),
    };
}

impl ArrowDeviceArray {
    /// A released structure.
    pub const RELEASED: Self = Self {
        array: ArrowArray::RELEASED,
        device_id: -1,
        device_type: 1,
        sync_event: core::ptr::null_mut(),
        reserved: [0; 3],
    };
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn sizes_and_offsets_are_those_of_the_specification() {
        assert_eq!((size_of::<ArrowSchema>(), offset_of!(ArrowSchema, release)), (72, 56));
        assert_eq!((size_of::<ArrowArray>(), offset_of!(ArrowArray, buffers)), (80, 40));
        assert_eq!((offset_of!(ArrowArray, dictionary), offset_of!(ArrowArray, release)), (56, 64));
        assert_eq!((size_of::<ArrowDeviceArray>(), offset_of!(ArrowDeviceArray, device_id)), (128, 80));
        assert_eq!(offset_of!(ArrowDeviceArray, device_type), 88);
        assert_eq!((offset_of!(ArrowDeviceArray, sync_event), offset_of!(ArrowDeviceArray, reserved)), (96, 104));
        assert_eq!((size_of::<ArrowDeviceArrayStream>(), offset_of!(ArrowDeviceArrayStream, get_schema)), (48, 8));
    }
}
