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

/// The memory of signals.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_signals {
    /// 0 for the null handle.
    pub id: u64,
}

/// A word that CPU, streams and kernels write and wait for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_flag {
    /// 0 for the null handle.
    pub id: u64,
}

/// A word that only grows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_counter {
    /// 0 for the null handle.
    pub id: u64,
}

/// The CPU's end of a ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_ring {
    /// 0 for the null handle.
    pub id: u64,
}

/// A read of a copy engine that is under way.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_pending_read {
    /// 0 for the null handle.
    pub id: u64,
}

/// Work of a stream that was recorded.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_graph {
    /// 0 for the null handle.
    pub id: u64,
}

/// A graph that is ready for launches.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_executable {
    /// 0 for the null handle.
    pub id: u64,
}

/// Physical memory: bytes without an address.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_physical {
    /// 0 for the null handle.
    pub id: u64,
}

/// What goes from one process to another.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_export {
    /// 0 for the null handle.
    pub id: u64,
}

/// A connection to another process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_channel {
    /// 0 for the null handle.
    pub id: u64,
}

/// Takes connections of other processes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_listener {
    /// 0 for the null handle.
    pub id: u64,
}

/// A ring of frames.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_frame_ring {
    /// 0 for the null handle.
    pub id: u64,
}

/// A frame that the CPU fills.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_frame {
    /// 0 for the null handle.
    pub id: u64,
}
