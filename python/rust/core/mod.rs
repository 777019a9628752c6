//! What `cuda_mem.core` is made from, which has the names of cuda.core. Its classes of Python derive from these.

pub mod body;
pub mod buffer;
pub mod calls;
pub mod current;
pub mod dtype;
pub mod event;
pub mod export;
pub mod foreign;
pub mod ipc;
pub mod layout;
pub mod layout_error;
pub mod managed;
pub mod module;
pub mod pool;
pub mod resource;
pub mod stream;
pub mod transfer;
mod vector_call;
pub mod view;
mod view_buffer;
mod view_copy;
mod view_exchange;
mod view_export;
mod view_import;
