//! The software GPU, called through its table as any program calls it.
#![allow(
    clippy::unwrap_used,
    clippy::macro_metavars_in_unsafe,
    reason = "a test may panic; its calls into the table are all unsafe"
)]

mod access_changes;
mod answers;
mod borrows;
mod calls;
mod common;
mod foreign_captures;
mod graph_any;
mod graph_conditions;
mod graph_memory;
mod graph_nodes;
mod graphs;
mod kernel_code;
mod kernels;
mod links;
mod locks;
mod managed;
mod misuse;
mod modules;
mod owners;
mod peers;
mod per_thread;
mod processes;
mod races;
mod rig;
mod settings;
mod streams;
mod threads;
mod user_objects;
mod virtual_memory;
mod vkgdr;
mod vulkan;
