//! The built-in kernels: what they are named, what they do, and which bytes they touch.

mod kernel;
mod ring;
mod strided;
mod touched;

pub(crate) use kernel::{Function, Launch, Module, threads};
