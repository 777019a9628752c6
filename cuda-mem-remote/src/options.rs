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
    /// bytes: whole slots of [`SLOT`](Self::SLOT), at least two. 8 slots at first.
    pub staging: usize,
}

impl RemoteOptions {
    /// The size of a slot of the staging in bytes. Larger transfers go in pieces of this size.
    pub const SLOT: usize = crate::staging::SLOT;
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), silence: Duration::from_secs(5), staging: 8 * Self::SLOT }
    }
}
