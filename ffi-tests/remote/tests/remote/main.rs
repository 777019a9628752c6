//! Memory on other hosts: programs of one and of several processes, connected over the loopback.

#![allow(missing_docs, clippy::disallowed_methods)]

mod deaths;
mod doors;
mod frames;
mod hosts;
mod memory;
mod orders;
mod relay;
mod strangers;
