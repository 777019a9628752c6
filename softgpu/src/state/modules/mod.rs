//! Device code as metadata: what PTX and cubins declare, and modules and libraries of them. softgpu runs no instruction
//! of it: see [`kernels`](super::kernels).

mod arguments;
mod attributes;
mod cubin;
mod declared;
mod image;
mod initial;
mod library;
mod link;
mod log;
mod module;
mod ptx;
mod reader;
mod tokens;
mod variables;

pub(crate) use arguments::Arguments;
pub(crate) use attributes::{Shape, best_block, blocks_at_once, clusters_at_once, shared_left};
pub(crate) use image::{Image, MOST_OF_PARAMETERS, Parameter, Refused, Signature, bytes_at, read};
pub(crate) use library::{Kernel, Library};
pub(crate) use link::Link;
pub(crate) use log::Log;
pub(crate) use module::{Function, Module, is_lazy};
