//! The C library of cuda-mem. Its headers, include/cudamem.h and include/cudamem/*.h, are generated from these modules.
//! They are also its documentation for users.
//!
//! This crate implements handles, status codes and option structs, and stops panics at the boundary to C. `cuda-mem`
//! does everything else and makes every decision that it can make. Functions and types have their C names. Their
//! documentation here is written for C programmers. Rust programs use `cuda-mem`; only the tests use this crate as a
//! Rust library.

#![allow(clippy::disallowed_types, reason = "a handle lets one call at a time pass, also calls that wait")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait as they like"))]
#![allow(non_camel_case_types, reason = "types of the interface have their C names")]
#![allow(clippy::missing_safety_doc, reason = "the header states the rules for all pointers once")]

mod call;
mod callbacks;
mod handle;
mod made;
mod message;
mod rust_names;

pub mod adaptor;
pub mod address;
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
pub mod objects;
pub mod pool;
pub mod pool_figures;
pub mod pool_sleep;
pub mod resource;
pub mod ring;
pub mod ring_pool;
pub mod sharing;
pub mod signal;
pub mod status;
pub mod stream;
pub mod text;
pub mod version;
pub mod view;
pub mod view_copy;
pub mod view_parts;
pub mod virtual_memory;
pub mod waiting;
pub mod word;
