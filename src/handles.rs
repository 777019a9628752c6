//! Handles
//!
//! Objects of the library are named by handles: 64 bits that the library checks. A handle that is null, that stands for
//! another kind of object, whose object was destroyed, or that was never made is CUDAMEM_ERROR_INVALID_HANDLE, and nothing is
//! touched. A handle whose fields are all zero is the null handle; to destroy it is allowed, and does nothing.
//!
//! An object that is destroyed while another thread uses it ends with that use; the destroying call waits for nobody.

/// A text of the library.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_text {
    /// 0 for the null handle.
    pub id: u64,
}

/// A CUDA context.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_context {
    /// 0 for the null handle.
    pub id: u64,
}

/// A stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_stream {
    /// 0 for the null handle.
    pub id: u64,
}

/// An event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_event {
    /// 0 for the null handle.
    pub id: u64,
}

/// A source of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_resource {
    /// 0 for the null handle.
    pub id: u64,
}

/// Memory of any source.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_buffer {
    /// 0 for the null handle.
    pub id: u64,
}

/// Mapped memory, or a part of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_mapped {
    /// 0 for the null handle.
    pub id: u64,
}

/// A copy engine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_engine {
    /// 0 for the null handle.
    pub id: u64,
}

/// A view: an array of any layout in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_view {
    /// 0 for the null handle.
    pub id: u64,
}

/// The type of an Arrow array.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_arrow_schema {
    /// 0 for the null handle.
    pub id: u64,
}

/// An Arrow array.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_arrow_array {
    /// 0 for the null handle.
    pub id: u64,
}

/// Arrow arrays of one type, one after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_arrow_stream {
    /// 0 for the null handle.
    pub id: u64,
}
