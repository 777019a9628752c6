//! Bytes that come from the peer for memory of this side.

use crate::error::Cause;
use crate::memory::Memory;
use crate::staging::{Landing, SLOT, Slot, Staging};
use std::sync::Arc;
use std::time::Instant;

/// A transfer that comes in order, in pieces. Its bytes are gathered in a slot, whose copy to the memory is queued when it is
/// full.
#[derive(Debug)]
pub(super) struct Arrival {
    memory: Arc<dyn Memory>,
    /// Where its first byte goes.
    start: u64,
    size: u64,
    received: u64,
    slot: Option<(Slot, usize)>,
    pub until: Instant,
}

/// What became of some bytes.
#[derive(Debug)]
pub(super) enum Progress {
    More,
    /// All copies are queued.
    Whole,
    /// A copy was refused.
    Failed(cuda_mem::Error),
    /// No slot became free in time.
    TimedOut,
}

impl Arrival {
    pub fn new(memory: Arc<dyn Memory>, start: u64, size: u64, until: Instant) -> Self {
        Self { memory, start, size, received: 0, slot: None, until }
    }

    /// Takes the bytes at an offset of the transfer.
    pub fn take(
        &mut self,
        (staging, landing): (&Staging, &mut Landing),
        offset: u64,
        mut bytes: &[u8],
    ) -> Result<Progress, Cause> {
        if offset != self.received {
            return Err(Cause::Protocol("it sends a transfer out of order"));
        }
        if bytes.len() as u64 > self.size - self.received {
            return Err(Cause::Protocol("it sends more bytes than were asked for"));
        }
        while !bytes.is_empty() {
            let (mut slot, filled) = match self.slot.take() {
                Some(slot) => slot,
                None => match landing.take(staging, self.until) {
                    Some(slot) => (slot, 0),
                    None => return Ok(Progress::TimedOut),
                },
            };
            let (now, later) = bytes.split_at(bytes.len().min(SLOT - filled));
            let end = filled + now.len();
            match slot.memory().write(filled..end).map(|mut to| to.copy_from_slice(now)) {
                Ok(()) => {}
                Err(error) => return Ok(Progress::Failed(error)),
            }
            self.received += now.len() as u64;
            bytes = later;
            if end < SLOT && self.received < self.size {
                self.slot = Some((slot, end));
                continue;
            }
            let to = (self.start + self.received - end as u64) as usize;
            match self.memory.land(to, slot.memory(), end) {
                Ok(event) => landing.fly(slot, event),
                Err(error) => return Ok(Progress::Failed(error)),
            }
        }
        Ok(if self.received == self.size { Progress::Whole } else { Progress::More })
    }
}
