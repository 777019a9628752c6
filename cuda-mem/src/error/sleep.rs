//! Errors of pools that sleep.

use core::fmt;

/// Why a call met a pool that sleeps, or a pool cannot sleep or wake now.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SleepError {
    /// The call needs memory that has no contents until its pool wakes.
    #[error("{call}: {} asleep: wake the pool first (Pool::wake)", Sleeper(*address))]
    Asleep {
        /// The function.
        call: &'static str,
        /// The memory that the call would use. None if the call is one of the pool.
        address: Option<u64>,
    },

    /// The pool is asleep already.
    #[error("{call}: the pool is asleep already: it must wake before it can sleep again")]
    AlreadyAsleep {
        /// The function.
        call: &'static str,
    },

    /// The pool is awake, so there is nothing to restore.
    #[error("{call}: the pool is awake: only a pool that sleeps can wake")]
    Awake {
        /// The function.
        call: &'static str,
    },

    /// Another thread puts the pool to sleep or wakes it.
    #[error("{call}: another thread puts the pool to sleep or wakes it: wait until that call has returned")]
    UnderWay {
        /// The function.
        call: &'static str,
    },

    /// Queued work that may use the memory waits for the CPU, so its end cannot be awaited. The pool stays awake.
    #[error("{call}: queued work that may use the memory has not ended: {waits}; end it, then repeat the call")]
    Busy {
        /// The function.
        call: &'static str,
        /// What the work waits for.
        waits: Box<str>,
    },
}

struct Sleeper(Option<u64>);

impl fmt::Display for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => write!(f, "the memory at {address:#x} is"),
            None => f.write_str("the pool is"),
        }
    }
}
