//! Small writes gathered in host memory. The memory has two halves: one fills while the other is copied.

use super::ByteBufferMut;
use crate::Result;
use crate::buffer::{Transfer, TransferDestination, TransferSource};
use core::fmt;
use core::mem;
use std::sync::Arc;

/// Host memory in which writes may be gathered: a `Vec<u8>`, or memory from which the driver copies faster. Its source
/// returns the bytes that were written through its destination.
pub trait StagingMemory: TransferSource<u8> + TransferDestination<u8> + Sync {}

impl<H: TransferSource<u8> + TransferDestination<u8> + Sync> StagingMemory for H {}

/// The two halves. Bytes that `write` has accepted stay here until their copy is known to be done, so that a call after
/// an error can send them again.
pub(super) struct IoStaging<H> {
    /// The half that receives writes; nothing else holds it.
    filling: Arc<H>,
    filled: usize,
    other: OtherHalf<H>,
}

/// The state of the other half.
#[allow(clippy::large_enum_variant, reason = "a reader or writer has one, and its size depends on the features")]
enum OtherHalf<H> {
    Idle(Arc<H>),
    /// Its copy is in progress, or must be retried.
    Sent(SentHalf<H>),
    /// A placeholder while the halves are swapped.
    Exchanged,
}

struct SentHalf<H> {
    half: Arc<H>,
    /// The destination offset in the buffer.
    offset: usize,
    length: usize,
    /// `None` after the transfer has failed.
    transfer: Option<Transfer<FilledHalf<H>>>,
}

/// The first bytes of a half, as the source of a copy.
struct FilledHalf<H> {
    half: Arc<H>,
    length: usize,
}

// SAFETY: the half returns the same memory wherever its `Arc` moves, by its own contract. Nothing changes it while this
// value holds an `Arc`: writes go through `Arc::get_mut` only.
unsafe impl<H: StagingMemory> TransferSource<u8> for FilledHalf<H> {
    fn source(&self) -> &[u8] {
        &self.half.source()[..self.length]
    }
}

impl<H: StagingMemory> IoStaging<H> {
    pub fn new([first, second]: [H; 2]) -> Self {
        Self { filling: Arc::new(first), filled: 0, other: OtherHalf::Idle(Arc::new(second)) }
    }

    /// The size of the half that receives writes.
    pub fn capacity(&self) -> usize {
        self.filling.source().len()
    }

    /// The bytes in that half that were not sent yet.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Stages as much of `bytes` as fits, and sends the half when it is full. `position` is where `bytes` go in the
    /// buffer, directly after the staged bytes. After an error, none of `bytes` are taken.
    pub fn take(&mut self, buffer: &mut impl ByteBufferMut, position: usize, bytes: &[u8]) -> Result<usize> {
        let count = bytes.len().min(self.capacity() - self.filled);
        let Some(half) = Arc::get_mut(&mut self.filling) else {
            unreachable!("no copy holds the half that receives writes");
        };
        half.destination()[self.filled..][..count].copy_from_slice(&bytes[..count]);
        if self.filled + count == self.capacity() {
            self.send(buffer, position - self.filled, self.capacity())?;
        } else {
            self.filled += count;
        }
        Ok(count)
    }

    /// Sends the staged bytes, which end at `position`, and waits until all copies are done.
    pub fn flush(&mut self, buffer: &mut impl ByteBufferMut, position: usize) -> Result<()> {
        if self.filled != 0 {
            self.send(buffer, position - self.filled, self.filled)?;
        }
        self.settle(buffer)
    }

    /// Begins the copy of the filled half, and swaps the halves. After an error the half is unchanged.
    fn send(&mut self, buffer: &mut impl ByteBufferMut, offset: usize, length: usize) -> Result<()> {
        self.settle(buffer)?;
        let half = self.filling.clone();
        let transfer = Some(buffer.buffer_mut().upload(offset, FilledHalf { half: half.clone(), length })?);
        let sent = OtherHalf::Sent(SentHalf { half, offset, length, transfer });
        if let OtherHalf::Idle(idle) = mem::replace(&mut self.other, sent) {
            self.filling = idle;
        }
        self.filled = 0;
        Ok(())
    }

    /// Waits until the copy of the sent half is done. If the copy failed before, sends the half again.
    fn settle(&mut self, buffer: &mut impl ByteBufferMut) -> Result<()> {
        if let OtherHalf::Sent(SentHalf { half, offset, length, transfer }) = &mut self.other {
            let transfer = match transfer.take() {
                Some(transfer) => transfer,
                None => buffer.buffer_mut().upload(*offset, FilledHalf { half: half.clone(), length: *length })?,
            };
            transfer.wait()?;
        }
        self.other = match mem::replace(&mut self.other, OtherHalf::Exchanged) {
            OtherHalf::Sent(sent) => OtherHalf::Idle(sent.half),
            idle => idle,
        };
        Ok(())
    }
}

impl<H> fmt::Debug for IoStaging<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sent = match &self.other {
            OtherHalf::Sent(sent) => sent.length,
            _ => 0,
        };
        f.debug_struct("Staging").field("filled", &self.filled).field("sent", &sent).finish_non_exhaustive()
    }
}
