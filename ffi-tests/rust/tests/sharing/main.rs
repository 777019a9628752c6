//! Memory of other processes and other devices.

mod forks;
mod ipc;
mod peers;
mod processes;
mod two_gpus;
