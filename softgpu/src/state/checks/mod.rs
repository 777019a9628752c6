//! What softgpu checks beyond the driver: the order of work on the same bytes, and the CPU's accesses.

pub(crate) mod access_fault;
pub(crate) mod races;
