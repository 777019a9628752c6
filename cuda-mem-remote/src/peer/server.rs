//! The thread that answers what the peer fetches. It may wait for staging, which the reader must not do for the network's sake.

use super::link::{Link, Outgoing, Piece, Way};
use crate::memory::Memory;
use crate::staging::{SLOT, Staged};
use crate::wire::{Message, Refusal};
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
        let sent =
            send(link, Way::Fetched { request }, 0, (range.start, range.end - range.start), |start, size, slot| {
                memory.stage(start, size, slot)
            });
        if sent.is_err() && link.gone().is_none() {
            link.tell(Message::Refuse { request, why: Refusal::Failed });
        }
        if link.gone().is_some() {
            return;
        }
    }
}

/// Queues copies of memory to the staging, and gives them to the writer. On an error the other side is told after the pieces
/// before it.
pub(super) fn send(
    link: &Link,
    way: Way,
    number: u64,
    (start, size): (u64, u64),
    mut copy: impl FnMut(usize, usize, &mut cuda_mem::Buffer<u8, cuda_mem::memory::kind::Pinned>) -> cuda_mem::Result<()>,
) -> crate::Result<()> {
    let call = match way {
        Way::Frames { .. } => "OutgoingFrames::send",
        Way::Fetched { .. } => "RemoteMemory::fetch",
        Way::Written { .. } => "RemoteMemory::write",
    };
    let mut offset = 0;
    while offset < size {
        link.check(call)?;
        let piece = (size - offset).min(SLOT as u64);
        let (from, length) = ((start + offset) as usize, piece as usize);
        let limit = (call, link.remote.options.deadline);
        let staged = Staged::new(&link.remote.outgoing, length, limit, |slot| copy(from, length, slot));
        let (staged, error) = staged.map_or_else(|error| (None, Some(error)), |staged| (Some(staged), None));
        let is_last = error.is_some() || offset + piece == size;
        link.send(Outgoing::Piece(Box::new(Piece { way, number, offset, staged, is_last })));
        if let Some(error) = error {
            return Err(error);
        }
        offset += piece;
    }
    Ok(())
}
