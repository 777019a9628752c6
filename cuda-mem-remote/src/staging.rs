//! Page-locked slots through which bytes go out and come in. Each connection has its own, so that none takes another's.

use crate::wire::MAX_BYTES;
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender, unbounded};
use cuda_mem::buffer::{Transfer, TransferDestination, TransferSource};
use cuda_mem::memory::PinnedMemory;
use cuda_mem::{Context, HostBuffer};
use std::time::Instant;

/// The size of a slot: a whole number of messages. While the bytes of one slot are sealed, the next is copied.
pub(crate) const SLOT: usize = 4 * MAX_BYTES;

/// The room in front of a slot's bytes for the head of a message. It keeps the bytes aligned.
const ROOM: usize = 64;

#[derive(Debug)]
pub(crate) struct Staging {
    back: Sender<HostBuffer<u8>>,
    free: Receiver<HostBuffer<u8>>,
}

/// The first bytes of a slot that nobody else has. A drop gives it back.
#[derive(Debug)]
pub(crate) struct Slot {
    /// `None` only while the slot ends.
    memory: Option<HostBuffer<u8>>,
    size: usize,
    back: Sender<HostBuffer<u8>>,
}

impl Staging {
    pub fn new(context: &Context, slots: usize) -> Result<Self> {
        let (back, free) = unbounded();
        let memory = PinnedMemory::new(context);
        for _ in 0..slots {
            // The queue exists, because this function has its other end.
            let _ = back.send(HostBuffer::zeroed(&memory, ROOM + SLOT)?);
        }
        Ok(Self { back, free })
    }

    /// A free slot, empty. Waits until `until` for one.
    pub fn take(&self, until: Instant) -> Option<Slot> {
        let memory = self.free.recv_deadline(until).ok()?;
        Some(Slot { memory: Some(memory), size: 0, back: self.back.clone() })
    }

    /// Takes a slot, and begins the copy of `size` bytes to it.
    pub fn fill(
        &self,
        size: usize,
        until: Instant,
        late: impl FnOnce(&'static str) -> Error,
        copy: impl FnOnce(Slot) -> cuda_mem::Result<Transfer<Slot>>,
    ) -> Result<Transfer<Slot>> {
        let slot = self.take(until);
        let mut slot = slot.ok_or_else(|| {
            late("the staging had no free slot: is a stream held up, or RemoteOptions::staging small?")
        })?;
        slot.size = size;
        Ok(copy(slot)?)
    }
}

impl Slot {
    pub fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[ROOM..][..self.size])
    }

    /// Puts a head in front of the bytes from `start` on, and returns both. The bytes before them are gone.
    pub fn behind(&mut self, head: &[u8], start: usize) -> &[u8] {
        let Some(memory) = &mut self.memory else { return &[] };
        let (begin, end) = (ROOM + start - head.len(), ROOM + self.size.min(start + MAX_BYTES));
        memory[begin..][..head.len()].copy_from_slice(head);
        &memory[begin..end]
    }

    /// Adds as many of these bytes as there is room for. Returns the others.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(memory) = &mut self.memory else { return bytes };
        let (now, later) = bytes.split_at(bytes.len().min(SLOT - self.size));
        memory[ROOM + self.size..][..now.len()].copy_from_slice(now);
        self.size += now.len();
        later
    }

    pub fn is_full(&self) -> bool {
        self.size == SLOT
    }
}

// SAFETY: the bytes lie in memory of the `HostBuffer`, so a move of the slot does not move them. Only methods that borrow the
// slot touch them.
unsafe impl TransferSource<u8> for Slot {
    fn source(&self) -> &[u8] {
        self.bytes()
    }
}

// SAFETY: as above, and nothing else has access to them.
unsafe impl TransferDestination<u8> for Slot {
    fn destination(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory[ROOM..][..self.size])
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // Without a queue the memory ends here.
            let _ = self.back.send(memory);
        }
    }
}
