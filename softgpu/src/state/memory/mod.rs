//! Memory of every origin, by its address.

mod allocation;
mod graph_memory;
mod map;
mod mirror;
mod notes;
mod spans;
pub(crate) mod virtual_memory;

pub(crate) use allocation::{Allocation, Origin, Storage};
pub(crate) use graph_memory::{GraphBlock, GraphMemory};
pub(crate) use map::{Memory, Range, RangeOfLaunch, Use};
pub(crate) use mirror::Mirror;
pub(crate) use notes::{Notes, Place, same};
