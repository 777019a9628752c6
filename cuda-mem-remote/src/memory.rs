//! Memory of any kind, as the threads of a connection see it.

use crate::staging::Slot;
use core::fmt::Debug;
use cuda_mem::SharedBuffer;
use cuda_mem::buffer::{Refused, Transfer};
use cuda_mem::memory::Kind;

/// Memory that a thread of a connection copies from or to, in the order of its home stream. For memory of the host, the CPU
/// waits for the stream's earlier work.
pub(crate) trait Memory: Debug + Send + Sync {
    /// The size in bytes.
    fn size(&self) -> u64;
    /// Begins a copy of the bytes from `start` on, which fills a slot.
    fn stage(&self, start: usize, slot: Slot) -> cuda_mem::Result<Transfer<Slot>>;
    /// Begins a copy of the bytes of a slot to `start`.
    fn land(&self, start: usize, slot: Slot) -> cuda_mem::Result<Transfer<Slot>>;
}

impl<K: Kind> Memory for SharedBuffer<u8, K> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn stage(&self, start: usize, slot: Slot) -> cuda_mem::Result<Transfer<Slot>> {
        self.download(start, slot).map_err(why)
    }

    fn land(&self, start: usize, slot: Slot) -> cuda_mem::Result<Transfer<Slot>> {
        self.clone().upload(start, slot).map_err(why)
    }
}

/// The error of a refused copy, whose slot goes back.
pub(crate) fn why(refused: Box<Refused<Slot>>) -> cuda_mem::Error {
    refused.error
}
