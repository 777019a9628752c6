//! The machine's devices, and which of them the program sees.

mod device;
mod visible;

pub(crate) use device::{Device, attribute, bus, identity, name};
pub(crate) use visible::{uuid_text, visible};
