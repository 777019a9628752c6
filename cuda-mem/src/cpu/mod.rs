//! What the CPU alone does: copies that bypass its caches, fences, and the bytes that it has borrowed.

pub(crate) mod borrowed;
pub(crate) mod host_copy;
