//! The command.

mod common;
mod copies;
mod general;
mod peers;
mod pools;
mod signal;
