//! Checks that no driver makes: races between streams, and accesses of the CPU to memory that it must not touch.

pub(crate) mod access_fault;
pub(crate) mod races;
