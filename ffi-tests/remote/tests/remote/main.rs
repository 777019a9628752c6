//! Memory on other hosts: programs of one and of several processes, connected over the loopback.

#![allow(missing_docs, clippy::disallowed_methods)]

mod deaths;
mod doors;
mod failing_calls;
mod frames;
mod hosts;
mod memory;
mod networks;
mod orders;
mod owner;
mod relay;
mod releases;
mod strangers;
