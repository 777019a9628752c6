//! Handles
//!
//! A handle is a 64-bit number that names an object of the library. The library checks each handle. A handle that is
//! null, names another kind of object, names a destroyed object, or was never made gives CUDAMEM_ERROR_INVALID_HANDLE,
//! and the call changes nothing. The null handle has zeros in all fields. Destroying it is allowed and does nothing.
//!
//! If a thread destroys an object while another thread uses it, the object ends with that use. The destroying call does
//! not wait.

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

/// A buffer: memory from any source.
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

/// A stream of Arrow arrays of one type.
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

/// A flag: a word that CPU, streams and kernels write and wait for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_flag {
    /// 0 for the null handle.
    pub id: u64,
}

/// A counter: a word that only grows.
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

/// A pending read of a copy engine.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_pending_read {
    /// 0 for the null handle.
    pub id: u64,
}

/// A graph: recorded work of a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_graph {
    /// 0 for the null handle.
    pub id: u64,
}

/// An executable graph.
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

/// An export, which one process sends to another.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_export {
    /// 0 for the null handle.
    pub id: u64,
}

/// A channel: a connection to another process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct cudamem_channel {
    /// 0 for the null handle.
    pub id: u64,
}

/// A listener, which accepts connections from other processes.
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
