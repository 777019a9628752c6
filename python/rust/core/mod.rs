//! The classes of `cuda_mem.core`, which has the names of cuda.core.

pub mod dtype;
pub mod layout;
pub mod layout_error;
mod vector_call;
pub mod view;
mod view_copy;
mod view_exchange;
mod view_import;
