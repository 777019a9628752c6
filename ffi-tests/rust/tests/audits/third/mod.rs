//! Programs from the third audit of the safe interface, by topic.
//!
//! They use the driver that the environment names. Programs that hung run on a thread with a time limit.

mod c_library;
pub(crate) mod channels;
mod contexts;
mod frees;
mod gates;
mod older_drivers;
mod peers_and_pools;
mod permissions;
mod pools;
mod second_streams;
mod streams;
mod teardown_codes;

use testkit::hold;
