//! A piece of memory, and what is true of it.

use super::Accessibility;
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
}

/// Whether queued work may still use a block that its source hands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FormerWork {
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
/// What is true of the memory travels with the block, so a copy of a block is as good as the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address for devices and for the driver's copies; 0 if the block is empty.
    pub device_pointer: CUdeviceptr,
    /// The address for the CPU; null if the CPU cannot address the memory.
    pub host_pointer: *mut u8,
    /// The size in bytes, at least the requested size.
    pub size: usize,
    /// Who addresses it, and how.
    pub kind: BlockKind,
    /// Whether queued work of a former owner may use it.
    pub former_work: FormerWork,
}

// SAFETY: a block only stores addresses; its holder is responsible for accesses.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// The empty block.
    pub const EMPTY: Self = Self {
        device_pointer: 0,
        host_pointer: ptr::null_mut(),
        size: 0,
        kind: BlockKind::Nothing,
        former_work: FormerWork::Over,
    };

    /// Device memory that the CPU cannot address. Work of a former owner may be queued.
    pub fn device(device_pointer: CUdeviceptr, size: usize) -> Self {
        let (host_pointer, kind) = (ptr::null_mut(), BlockKind::Device);
        Self { device_pointer, host_pointer, size, kind, former_work: FormerWork::default() }
    }

    /// Host memory with one address for the CPU and the device. Work of a former owner may be queued.
    pub fn unified(pointer: *mut u8, size: usize) -> Self {
        Self::host(pointer.addr() as CUdeviceptr, pointer, size)
    }

    /// Host memory. Work of a former owner may be queued.
    pub fn host(device_pointer: CUdeviceptr, host_pointer: *mut u8, size: usize) -> Self {
        Self { device_pointer, host_pointer, size, kind: BlockKind::Host, former_work: FormerWork::default() }
    }

    /// The block's device addresses.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.device_pointer..self.device_pointer + self.size as u64
    }

    /// The block as memory of another kind.
    #[must_use]
    pub fn of_kind(self, kind: BlockKind) -> Self {
        Self { kind, ..self }
    }

    /// The block as memory of a source that promises no more than `accessibility`.
    pub(crate) fn within(self, accessibility: Accessibility) -> Self {
        match self.kind {
            BlockKind::Nothing | BlockKind::Device => self,
            _ if !accessibility.host => self.of_kind(BlockKind::Device),
            _ if accessibility.managed => self.of_kind(BlockKind::Managed),
            _ => self,
        }
    }

    /// The block as memory that no work uses yet.
    #[must_use]
    pub fn fresh(self) -> Self {
        Self { former_work: FormerWork::Over, ..self }
    }
}
