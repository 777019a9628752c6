//! The settings of a [`Remote`](crate::Remote).

use core::time::Duration;

/// How long things may take, and how much page-locked memory they take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// How long each operation may take: a connection with its proof of the key, a fetch, a write, and the wait for room on
    /// the other side or in the staging. 10 s at first.
    pub deadline: Duration,
    /// After how long without a message a peer counts as gone, at least 2 s. Each peer sends one each second. 5 s at first.
    pub silence: Duration,
    /// The page-locked memory of each connection through which bytes go out, and as much again through which they come in, in
    /// bytes: whole slots of [`SLOT`](Self::SLOT), at least two. 32 slots, 8 MB, at first.
    pub staging: usize,
    /// What carries the bytes. Sockets at first. Both sides need the same.
    pub engine: Engine,
}

/// What carries the bytes between two hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// TCP sockets of the system. Nothing has to be installed.
    #[default]
    Sockets,
    /// UCX, for the networks of clusters, on one interface of this host (`eth0`, `mlx5_0:1`). `libucp.so.0` is loaded at run time:
    /// CUDA_MEM_LIBUCP, the system's, or that of `pip install libucx-cu13`.
    ///
    /// **Whoever reaches the port owns the process.** Over TCP, UCX writes and reads any address of this process that a peer
    /// names, before anybody has proved a key. So all that reaches the interface must be trusted. What this crate sends is sealed
    /// over UCX too.
    ///
    /// UCX rewrites the begin of the system's `mmap` and its like in this process, unless `UCX_MEM_EVENTS=n` is in the
    /// environment at the start. Its module for CUDA is switched off, so it makes no driver call. Peers need the same release.
    UcxTrustedNetwork {
        /// The interface.
        interface: String,
    },
}

impl RemoteOptions {
    /// The size of a slot of the staging in bytes. Larger transfers go in pieces of this size.
    pub const SLOT: usize = crate::staging::SLOT;
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            silence: Duration::from_secs(5),
            staging: 32 * Self::SLOT,
            engine: Engine::default(),
        }
    }
}
