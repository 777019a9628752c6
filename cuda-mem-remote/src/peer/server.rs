//! The thread that answers what the peer fetches. It may wait for staging and for streams, which the reader must not do.

use super::link::{Link, Way};
use super::pieces::send;
use crate::memory::Memory;
use core::ops::Range;
use crossbeam_channel::Receiver;
use std::sync::Arc;

/// How many fetches of a peer may wait.
pub(super) const MAX_JOBS: usize = 256;

/// What a peer fetches.
pub(super) struct Job {
    pub request: u64,
    pub memory: Arc<dyn Memory>,
    pub range: Range<u64>,
}

pub(super) fn run(link: &Link, jobs: &Receiver<Job>) {
    // The reader has the other end of the queue.
    for Job { request, memory, range } in jobs {
        let size = range.end - range.start;
        // The piece that could not be made tells the peer.
        let _ = send(link, Way::Fetched { request }, 0, (range.start, size), |start, slot| memory.stage(start, slot));
        if link.gone().is_some() {
            return;
        }
    }
}
