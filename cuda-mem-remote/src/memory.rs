//! Memory of any kind, as the threads of a connection see it.

use core::fmt::Debug;
use cuda_mem::buffer::Access;
use cuda_mem::memory::{Kind, kind::Pinned};
use cuda_mem::{Buffer, Event, SharedBuffer};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory that a thread of a connection copies from or to, in the order of its home stream, and without waiting.
pub(crate) trait Memory: Debug + Send + Sync {
    /// The size in bytes.
    fn size(&self) -> u64;
    /// Queues a copy of `size` bytes from `start` on to the begin of a slot.
    fn stage(&self, start: usize, size: usize, slot: &mut Buffer<u8, Pinned>) -> cuda_mem::Result<()>;
    /// Queues a copy of the first `size` bytes of a slot to `start`. The event is over when the copy is.
    fn land(&self, start: usize, slot: &Buffer<u8, Pinned>, size: usize) -> cuda_mem::Result<Event>;
}

/// A shared buffer.
#[derive(Debug)]
struct InTurn<K: Kind> {
    buffer: SharedBuffer<u8, K>,
    /// One copy at a time is queued, so that each comes before or after each other.
    turn: Mutex<()>,
}

/// A shared buffer whose copies several threads queue.
pub(crate) fn in_turn<K: Kind>(buffer: &SharedBuffer<u8, K>) -> Arc<dyn Memory> {
    Arc::new(InTurn { buffer: buffer.clone(), turn: Mutex::default() })
}

impl<K: Kind> Memory for InTurn<K> {
    fn size(&self) -> u64 {
        self.buffer.len() as u64
    }

    fn stage(&self, start: usize, size: usize, slot: &mut Buffer<u8, Pinned>) -> cuda_mem::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        stage(&self.buffer, start, size, slot)
    }

    fn land(&self, start: usize, slot: &Buffer<u8, Pinned>, size: usize) -> cuda_mem::Result<Event> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut to = self.buffer.clone();
        to.copy_from_buffer(start, slot, ..size)?;
        to.stream().record()
    }
}

/// [`Memory::stage`] for exclusive memory too.
pub(crate) fn stage<K: Kind, A: Access>(
    from: &Buffer<u8, K, A>,
    start: usize,
    size: usize,
    slot: &mut Buffer<u8, Pinned>,
) -> cuda_mem::Result<()> {
    slot.copy_from_buffer(0, from, start..start + size)
}
