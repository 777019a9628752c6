//! The thread that copies what has come to the program's memory. For memory of the host such a copy waits for a stream, which may
//! wait for a frame: so the reader must not make it.

use super::link::Link;
use crate::Error;
use crate::memory::Memory;
use crate::staging::Slot;
use crate::wire::{Message, Refusal};
use core::time::Duration;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use cuda_mem::buffer::Transfer;
use std::collections::HashSet;
use std::sync::Arc;

/// What the reader gives, in order.
pub(super) enum Landing {
    /// A slot is full, or has the last bytes.
    Slot { of: Of, memory: Arc<dyn Memory>, to: usize, slot: Slot },
    /// All of a transfer has come, or none will.
    End { of: Of, outcome: Result<(), Error> },
}

/// What a transfer is: a fetch of this side, or a write of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Fetch(u64),
    Write(u64),
}

/// How long the thread waits between two looks at copies that are not done: they give their slots back.
const NAPS: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(5));

pub(super) fn run(link: &Link, queue: &Receiver<Landing>) {
    let mut flying: Vec<Transfer<Slot>> = Vec::new();
    let mut failed = HashSet::new();
    let mut nap = NAPS.0;
    loop {
        // A failed copy is an error of its stream, which the program meets there.
        flying.retain(|copy| matches!(copy.is_done(), Ok(false)));
        let next = if flying.is_empty() {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            queue.recv_timeout(nap)
        };
        match next {
            Ok(Landing::Slot { of, memory, to, slot }) => {
                nap = NAPS.0;
                match memory.land(to, slot) {
                    Ok(copy) => {
                        flying.push(copy);
                        link.look();
                    }
                    Err(error) => {
                        if failed.insert(of) {
                            end(link, of, Err(error.into()));
                        }
                    }
                }
            }
            Ok(Landing::End { of, outcome }) => {
                if !failed.remove(&of) {
                    end(link, of, outcome);
                }
            }
            Err(RecvTimeoutError::Timeout) => nap = (nap * 2).min(NAPS.1),
            // The drop of a copy waits for it.
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Tells whoever waits for a transfer.
fn end(link: &Link, of: Of, outcome: Result<(), Error>) {
    match of {
        Of::Fetch(request) => link.answer(request, |_| outcome),
        Of::Write(request) => link.tell(match outcome {
            Ok(()) => Message::Done { request },
            Err(_) => Message::Refuse { request, why: Refusal::Failed },
        }),
    }
}
