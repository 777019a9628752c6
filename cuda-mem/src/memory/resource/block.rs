//! A piece of memory, and what is true of it.

use super::Accessibility;
use core::fmt;
use core::ops::Range;
use core::ptr;
use cuda_sys::CUdeviceptr;

/// Who addresses a block, and how. The rules of CPU accesses and of copies depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockKind {
    /// There is no memory.
    Nothing,
    /// Device memory that the CPU cannot address.
    Device,
    /// Host memory.
    Host,
    /// Managed memory: the driver moves it between device and host.
    Managed,
    /// Device memory that the CPU addresses coherently.
    Mapped,
    /// Device memory that the CPU addresses, but only through flushes and invalidates.
    NonCoherent,
    /// Host memory that nobody may write, because it was registered so.
    ReadOnly,
}

impl BlockKind {
    /// The kind of a number that `as u64` gave.
    #[inline]
    pub(crate) const fn from_number(number: u64) -> Self {
        match number {
            0 => BlockKind::Nothing,
            1 => BlockKind::Device,
            2 => BlockKind::Host,
            3 => BlockKind::Managed,
            4 => BlockKind::Mapped,
            5 => BlockKind::NonCoherent,
            _ => BlockKind::ReadOnly,
        }
    }
}

/// Whether queued work may still use a block that its source hands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PendingUse {
    /// No work uses it: it is new, or all work of its former owners is done.
    Over,
    /// Work of a former owner may be queued before the stream of the allocation. The CPU must wait for it.
    #[default]
    InStreamOrder,
    /// The block exists while its graph runs ([`GraphMemory`](crate::GraphMemory)), so recorded work initialises it.
    InGraph,
}

/// A piece of memory from a resource. Plain data without a drop: the holder must free it.
///
/// What is true of the memory travels with the block, so a copy of a block is as good as the original. The size shares a
/// word with it: a fourth word would cost a pool's allocation more than half of its time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The address for devices, without provenance. Both addresses have one type, so that the compiler stores them as one
    /// vector: programs load them as one, and a load waits for two narrow stores until both have reached the cache.
    device: *mut u8,
    host: *mut u8,
    /// The size, and above it the kind and the former work.
    packed: u64,
}

/// Bits of a size.
const SIZE: u64 = (1 << 56) - 1;
const KIND: u32 = 56;
const FORMER_WORK: u32 = 60;

// SAFETY: a block only stores addresses; its holder is responsible for accesses.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// The empty block.
    pub const EMPTY: Self =
        Self { device: ptr::null_mut(), host: ptr::null_mut(), packed: pack(0, BlockKind::Nothing, PendingUse::Over) };

    /// Device memory that the CPU cannot address. Work of a former owner may be queued.
    pub fn device(device_pointer: CUdeviceptr, size: usize) -> Self {
        let packed = pack(size, BlockKind::Device, PendingUse::InStreamOrder);
        Self { device: ptr::without_provenance_mut(device_pointer as usize), host: ptr::null_mut(), packed }
    }

    /// Host memory with one address for the CPU and the device. Work of a former owner may be queued.
    pub fn unified(pointer: *mut u8, size: usize) -> Self {
        Self::host(pointer.addr() as CUdeviceptr, pointer, size)
    }

    /// Host memory. Work of a former owner may be queued.
    pub fn host(device_pointer: CUdeviceptr, host_pointer: *mut u8, size: usize) -> Self {
        let packed = pack(size, BlockKind::Host, PendingUse::InStreamOrder);
        Self { device: ptr::without_provenance_mut(device_pointer as usize), host: host_pointer, packed }
    }

    /// The address for devices and for the driver's copies; 0 if the block is empty.
    #[inline]
    pub fn device_pointer(&self) -> CUdeviceptr {
        self.device.addr() as CUdeviceptr
    }

    /// The address for the CPU; null if the CPU cannot address the memory.
    #[inline]
    pub const fn host_pointer(&self) -> *mut u8 {
        self.host
    }

    /// The size in bytes, at least the requested size.
    #[inline]
    pub const fn size(&self) -> usize {
        (self.packed & SIZE) as usize
    }

    /// Who addresses the memory, and how.
    #[inline]
    pub const fn kind(&self) -> BlockKind {
        BlockKind::from_number(self.packed >> KIND & 0xf)
    }

    /// Whether the CPU addresses the memory.
    #[inline]
    pub(crate) const fn is_on_cpu(&self) -> bool {
        !matches!(self.kind(), BlockKind::Nothing | BlockKind::Device)
    }

    /// Whether queued work of a former owner may use the memory.
    #[inline]
    pub const fn pending_use(&self) -> PendingUse {
        match self.packed >> FORMER_WORK {
            0 => PendingUse::Over,
            1 => PendingUse::InStreamOrder,
            _ => PendingUse::InGraph,
        }
    }

    /// The block's device addresses.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.device_pointer()..self.device_pointer() + self.size() as u64
    }

    /// The block with another size, below 2^56.
    #[inline]
    #[must_use]
    pub fn with_size(self, size: usize) -> Self {
        debug_assert!(size as u64 <= SIZE, "a block of {size} bytes");
        Self { packed: self.packed & !SIZE | size as u64 & SIZE, ..self }
    }

    /// `size` bytes of the block, from `offset` on.
    #[inline]
    #[must_use]
    pub fn part(self, offset: usize, size: usize) -> Self {
        let mut part = self.with_size(size);
        part.device = part.device.wrapping_add(offset);
        if !part.host.is_null() {
            part.host = part.host.wrapping_add(offset);
        }
        part
    }

    /// The block as memory of another kind.
    #[must_use]
    pub fn of_kind(self, kind: BlockKind) -> Self {
        Self { packed: pack(self.size(), kind, self.pending_use()), ..self }
    }

    /// The block with what is known of its former owners' work.
    #[inline]
    #[must_use]
    pub fn with_pending_use(self, pending_use: PendingUse) -> Self {
        Self { packed: self.packed & ((1 << FORMER_WORK) - 1) | (pending_use as u64) << FORMER_WORK, ..self }
    }

    /// The block as memory that no work uses yet.
    #[must_use]
    pub fn fresh(self) -> Self {
        self.with_pending_use(PendingUse::Over)
    }

    /// The block as memory of a source that promises no more than `accessibility`.
    pub(crate) fn within(self, accessibility: Accessibility) -> Self {
        match self.kind() {
            BlockKind::Nothing | BlockKind::Device => self,
            _ if !accessibility.host => self.of_kind(BlockKind::Device),
            _ if accessibility.managed => self.of_kind(BlockKind::Managed),
            _ => self,
        }
    }
}

const fn pack(size: usize, kind: BlockKind, pending_use: PendingUse) -> u64 {
    size as u64 & SIZE | (kind as u64) << KIND | (pending_use as u64) << FORMER_WORK
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("device_pointer", &self.device_pointer())
            .field("host_pointer", &self.host_pointer())
            .field("size", &self.size())
            .field("kind", &self.kind())
            .field("pending_use", &self.pending_use())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_true_of_a_block_is_kept_apart() {
        let kinds = [
            BlockKind::Nothing,
            BlockKind::Device,
            BlockKind::Host,
            BlockKind::Managed,
            BlockKind::Mapped,
            BlockKind::NonCoherent,
            BlockKind::ReadOnly,
        ];
        for kind in kinds {
            for pending_use in [PendingUse::Over, PendingUse::InStreamOrder, PendingUse::InGraph] {
                for size in [0, 1, SIZE as usize] {
                    let block = Block::device(7, 3).with_pending_use(pending_use).of_kind(kind).with_size(size);
                    assert_eq!((block.size(), block.kind(), block.pending_use()), (size, kind, pending_use));
                    assert_eq!(block.fresh().pending_use(), PendingUse::Over);
                    assert_eq!((block.fresh().size(), block.fresh().kind()), (size, kind));
                }
            }
        }
    }
}
