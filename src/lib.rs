//! The C library of cuda-mem. Its documentation for users is include/cudamem.h, which is made of these modules.
//!
//! It knows handles, status codes, the layout of options, and where panics stop; what it does is cuda-mem's. Functions and
//! types have their C names, and their documentation here is what C programmers read. It decides nothing that `cuda-mem` could
//! decide. A Rust program uses `cuda-mem`; as a Rust library this one is for the tests alone.

#![allow(non_camel_case_types, reason = "types of the interface have their C names")]
#![allow(clippy::missing_safety_doc, reason = "the header says once what holds of all pointers")]

mod call;
mod callbacks;
mod handle;
mod made;
mod memory;
mod message;

pub mod adaptor;
pub mod array_interface;
pub mod arrow;
pub mod arrow_schema;
pub mod arrow_stream;
pub mod buffer;
pub mod channel;
pub mod context;
pub mod counter;
pub mod data_type;
pub mod device;
pub mod dlpack;
pub mod engine;
pub mod engine_profile;
pub mod engine_work;
pub mod event;
pub mod frames;
pub mod graph;
pub mod guard;
pub mod handles;
pub mod host_memory;
pub mod library;
pub mod mapped;
pub mod pool;
pub mod resource;
pub mod ring;
pub mod sharing;
pub mod signal;
pub mod small_pools;
pub mod status;
pub mod stream;
pub mod text;
pub mod version;
pub mod view;
pub mod view_copy;
pub mod view_parts;
pub mod virtual_memory;
pub mod waiting;
