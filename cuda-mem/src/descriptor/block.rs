//! What a source says of one of its blocks to other processes.

use super::{Descriptor, ExportKind, Key};

/// A block as its source describes it to other processes: what [`MemoryResource::export`] gives.
///
/// Only the sources of this crate make one. A resource whose blocks are those of another resource, unchanged, may pass
/// the other's on.
///
/// [`MemoryResource::export`]: crate::memory::MemoryResource::export
#[derive(Clone, Copy, Debug)]
pub struct BlockExport {
    /// Its part is the block.
    descriptor: Descriptor,
    /// Signs what is said of the memory, where that is signed.
    key: Option<Key>,
    imported: bool,
}

impl BlockExport {
    /// A block of this process's own; the descriptor's part is the block.
    pub(crate) fn own(descriptor: Descriptor, key: Option<Key>) -> Self {
        Self { descriptor, key, imported: false }
    }

    /// A block that was imported, which is the whole allocation that the descriptor names.
    pub(crate) fn imported(descriptor: Descriptor, key: Option<Key>) -> Self {
        Self { descriptor: Descriptor { offset: 0, length: descriptor.size, ..descriptor }, key, imported: true }
    }

    /// Whether another process made the memory.
    pub(crate) fn is_imported(&self) -> bool {
        self.imported
    }

    pub(crate) fn kind(&self) -> ExportKind {
        self.descriptor.kind
    }

    /// What is said of the block.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The same, with the number by which this process knows the allocation.
    pub(crate) fn numbered(mut self, number: u64) -> Self {
        self.descriptor.allocation = number;
        self
    }

    /// Describes a part that lies within the block, in bytes.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Descriptor {
        let offset = self.descriptor.offset + offset as u64;
        let mut part = Descriptor { offset, length: length as u64, ..self.descriptor };
        if let Some(key) = &self.key {
            key.sign(&mut part);
        }
        part
    }
}
