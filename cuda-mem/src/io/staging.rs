//! Small writes gathered in host memory: two halves, of which one is filled while the other is copied.

use super::ByteBufferMut;
use crate::Result;
use crate::buffer::{Transfer, TransferDestination, TransferSource};
use core::fmt;
use core::mem;
use std::sync::Arc;

/// Host memory that writes may be gathered in: a `Vec<u8>`, or memory that the driver copies faster from. What is written
/// through its destination is what its source gives.
pub trait StagingMemory: TransferSource<u8> + TransferDestination<u8> + Sync {}

impl<H: TransferSource<u8> + TransferDestination<u8> + Sync> StagingMemory for H {}

/// The two halves. Bytes that a write was told are taken stay here until their copy is known to be done, so that a call
/// that follows an error can send them again.
pub(super) struct Staging<H> {
    /// The half that writes go to; nothing else holds it.
    filling: Arc<H>,
    filled: usize,
    other: Other<H>,
}

/// Where the other half is.
enum Other<H> {
    Idle(Arc<H>),
    /// On its way, or to be sent again.
    Sent(Sent<H>),
    /// Only while the halves are exchanged.
    Exchanged,
}

struct Sent<H> {
    half: Arc<H>,
    /// Where the bytes go in the buffer.
    offset: usize,
    length: usize,
    /// None once the transfer has failed.
    transfer: Option<Transfer<Filled<H>>>,
}

/// The first bytes of a half, as the source of a copy.
struct Filled<H> {
    half: Arc<H>,
    length: usize,
}

// SAFETY: the half gives the same memory wherever the count of it is, by its own contract; and nothing changes it while
// this holds a count: a half is written through `Arc::get_mut` only.
unsafe impl<H: StagingMemory> TransferSource<u8> for Filled<H> {
    fn source(&self) -> &[u8] {
        &self.half.source()[..self.length]
    }
}

impl<H: StagingMemory> Staging<H> {
    pub fn new([first, second]: [H; 2]) -> Self {
        Self { filling: Arc::new(first), filled: 0, other: Other::Idle(Arc::new(second)) }
    }

    /// How many bytes the half that is filled holds at most.
    pub fn capacity(&self) -> usize {
        self.filling.source().len()
    }

    /// How many bytes it holds that were not sent.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Takes what of `bytes` has room, and sends the half when it is full. `position` is where `bytes` go in the buffer,
    /// right behind what is staged. After an error none of `bytes` are taken.
    pub fn take(&mut self, buffer: &mut impl ByteBufferMut, position: usize, bytes: &[u8]) -> Result<usize> {
        let count = bytes.len().min(self.capacity() - self.filled);
        let Some(half) = Arc::get_mut(&mut self.filling) else {
            unreachable!("no copy holds the half that is filled");
        };
        half.destination()[self.filled..][..count].copy_from_slice(&bytes[..count]);
        if self.filled + count == self.capacity() {
            self.send(buffer, position - self.filled, self.capacity())?;
        } else {
            self.filled += count;
        }
        Ok(count)
    }

    /// Sends what is staged, which ends at `position`, and waits until all copies are done.
    pub fn flush(&mut self, buffer: &mut impl ByteBufferMut, position: usize) -> Result<()> {
        if self.filled != 0 {
            self.send(buffer, position - self.filled, self.filled)?;
        }
        self.settle(buffer)
    }

    /// Begins the copy of the half that was filled, and exchanges the two. After an error the half is as it was.
    fn send(&mut self, buffer: &mut impl ByteBufferMut, offset: usize, length: usize) -> Result<()> {
        self.settle(buffer)?;
        let half = self.filling.clone();
        let transfer = Some(buffer.buffer_mut().upload(offset, Filled { half: half.clone(), length })?);
        let sent = Other::Sent(Sent { half, offset, length, transfer });
        if let Other::Idle(idle) = mem::replace(&mut self.other, sent) {
            self.filling = idle;
        }
        self.filled = 0;
        Ok(())
    }

    /// Waits until the half that was sent has arrived; where it failed before, sends it again.
    fn settle(&mut self, buffer: &mut impl ByteBufferMut) -> Result<()> {
        if let Other::Sent(Sent { half, offset, length, transfer }) = &mut self.other {
            let transfer = match transfer.take() {
                Some(transfer) => transfer,
                None => buffer.buffer_mut().upload(*offset, Filled { half: half.clone(), length: *length })?,
            };
            transfer.wait()?;
        }
        self.other = match mem::replace(&mut self.other, Other::Exchanged) {
            Other::Sent(sent) => Other::Idle(sent.half),
            idle => idle,
        };
        Ok(())
    }
}

impl<H> fmt::Debug for Staging<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent = match &self.other {
            Other::Sent(sent) => sent.length,
            _ => 0,
        };
        f.debug_struct("Staging").field("filled", &self.filled).field("sent", &sent).finish_non_exhaustive()
    }
}
