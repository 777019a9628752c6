//! What the CPU alone does: copies that bypass its caches, fences, the bytes that it has borrowed, and where its threads
//! are.

pub(crate) mod asymmetric_fence;
pub(crate) mod borrowed;
pub(crate) mod host_copy;
pub(crate) mod presence;
mod sync;
pub(crate) mod thread_slots;
pub mod uses;
