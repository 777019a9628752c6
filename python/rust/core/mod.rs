//! The classes of `cuda_mem.core`, which has the names of cuda.core.

pub mod layout;
pub mod layout_error;
