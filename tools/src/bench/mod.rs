//! `cuda-mem bench`: what things cost on this machine.

pub(crate) mod copy;
pub(crate) mod pool;
pub(crate) mod signal;
