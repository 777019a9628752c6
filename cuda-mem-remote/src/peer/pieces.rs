//! Bytes that go out: frames, what the peer has fetched, and what this side writes.

use super::link::{Link, Outgoing, Piece, Way};
use crate::staging::{SLOT, Slot};
use crate::{Error, Result};
use cuda_mem::buffer::Transfer;
use std::time::Instant;

/// Begins copies of memory to the staging, and gives them to the writer. After an error the other side is told, behind the pieces
/// before it.
pub(super) fn send(
    link: &Link,
    way: Way,
    number: u64,
    (start, size): (u64, u64),
    mut copy: impl FnMut(usize, Slot) -> cuda_mem::Result<Transfer<Slot>>,
) -> Result<()> {
    let call = match way {
        Way::Frames { .. } => "OutgoingFrames::send",
        Way::Fetched { .. } => "RemoteMemory::fetch",
        Way::Written { .. } => "RemoteMemory::write",
    };
    let after = link.remote.options.deadline;
    let until = Instant::now() + after;
    let mut offset = 0;
    while offset < size {
        link.check(call)?;
        if let Way::Written { request } = way
            && !link.is_open(request)
        {
            // The owner has refused: the operation has the error.
            return Ok(());
        }
        let piece = (size - offset).min(SLOT as u64);
        let late = |why| Error::TimedOut { call, after, why };
        let staged = link.outgoing.fill(piece as usize, until, late, |slot| copy((start + offset) as usize, slot));
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
