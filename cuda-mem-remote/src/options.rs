//! The settings of a [`Remote`](crate::Remote).

use core::time::Duration;

/// How long things may take, and how much page-locked memory they take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// How long each operation may take: a connection with its proof of the key, a fetch, a write, and the wait for room on
    /// the other side or in the staging. 10 s at first.
    pub deadline: Duration,
    /// After how long without a byte a peer counts as gone. Each peer sends one each second. 5 s at first.
    pub silence: Duration,
    /// The page-locked memory through which bytes go out, and as much again through which they come in, in bytes: at least
    /// two slots of [`SLOT`](Self::SLOT), and whole slots. All peers share it. 16 slots at first.
    pub staging: usize,
}

impl RemoteOptions {
    /// The size of a slot of the staging in bytes. Larger transfers go in pieces of this size.
    pub const SLOT: usize = crate::staging::SLOT;
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), silence: Duration::from_secs(5), staging: 16 * Self::SLOT }
    }
}
