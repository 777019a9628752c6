//! Peers in processes of their own, which are killed or stopped.

use crate::hosts::options;
use crate::owner::{Owner, memory};
use cuda_mem_remote::{Key, Remote};
use std::time::Duration;
use testkit::alone_with_late_ends;
use testkit::suite::Outcome;

fn die(signal: i32, within: Duration) -> Outcome {
    alone_with_late_ends(|setup| {
        let key = Key::generate()?;
        let remote = Remote::new(&setup.context, &key, &options())?;
        let owner = Owner::start(&key)?;
        owner.ends(&remote, setup, within, || owner.signal(signal))?;
        // Another connection is made.
        Owner::start(&key)?.serves(&remote, &memory(setup)?)
    })
}

#[test]
fn a_killed_peer_is_gone_within_a_second() -> Outcome {
    die(libc::SIGKILL, Duration::from_secs(1))
}

#[test]
fn a_stopped_peer_is_gone_within_seven_seconds() -> Outcome {
    die(libc::SIGSTOP, Duration::from_secs(7))
}
