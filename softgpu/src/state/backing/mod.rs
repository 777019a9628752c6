//! What memory is made of: mapped address ranges, memory files, and how much of a device's memory is taken.

mod files;
pub(crate) mod freed;
mod mapping;
mod store;

pub(crate) use files::{file_name, file_number, file_size, is_memory_file, memory_file, named_file, open_descriptor};
pub(crate) use mapping::{Mapping, PAGE, rounded};
pub(crate) use store::{Charge, Store};
