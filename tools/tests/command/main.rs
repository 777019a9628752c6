//! The command.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod copies;
mod general;
mod peers;
mod pinned;
mod pools;
mod remote;
mod signal;
