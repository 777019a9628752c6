//! Bytes that come from the peer for memory of this side.

use super::lander::{Landing, Of};
use crate::error::Cause;
use crate::memory::Memory;
use crate::staging::{Slot, Staging};
use core::time::Duration;
use crossbeam_channel::Sender;
use std::sync::Arc;
use std::time::Instant;

/// A transfer that comes in order, in pieces. Its bytes are gathered in slots.
#[derive(Debug)]
pub(super) struct Arrival {
    of: Of,
    memory: Arc<dyn Memory>,
    /// Where its first byte goes.
    start: u64,
    size: u64,
    received: u64,
    slot: Option<Slot>,
    pub until: Instant,
}

/// What became of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    More,
    Whole,
    /// No slot became free.
    NoSlot,
}

/// How long the reader waits for a slot. Copies take less, unless a stream is held up; and other messages wait behind.
const PATIENCE: Duration = Duration::from_millis(500);

impl Arrival {
    pub fn new(of: Of, memory: Arc<dyn Memory>, start: u64, size: u64, until: Instant) -> Self {
        Self { of, memory, start, size, received: 0, slot: None, until }
    }

    /// Takes the bytes at an offset of the transfer, and gives full slots to the lander.
    pub fn take(
        &mut self,
        staging: &Staging,
        lander: &Sender<Landing>,
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
            let taken = self.slot.take().or_else(|| staging.take(Instant::now() + PATIENCE));
            let Some(mut slot) = taken else { return Ok(Progress::NoSlot) };
            let later = slot.push(bytes);
            self.received += (bytes.len() - later.len()) as u64;
            bytes = later;
            if !slot.is_full() && self.received < self.size {
                self.slot = Some(slot);
                continue;
            }
            let to = (self.start + self.received - slot.bytes().len() as u64) as usize;
            // The thread ends after this one.
            let _ = lander.send(Landing::Slot { of: self.of, memory: self.memory.clone(), to, slot });
        }
        Ok(if self.received == self.size { Progress::Whole } else { Progress::More })
    }
}
