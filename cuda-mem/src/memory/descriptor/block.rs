//! How the source of a block describes it to other processes.

use super::{Descriptor, ExportKind, Key};

/// A block as its source describes it to other processes: the result of [`MemoryResource::export`].
///
/// Only the sources of this crate create one. A resource that passes on another resource's blocks may pass on its
/// exports.
///
/// [`MemoryResource::export`]: crate::memory::MemoryResource::export
#[derive(Clone, Copy, Debug)]
pub struct BlockExport {
    /// The descriptor's part is the whole block.
    descriptor: Descriptor,
    /// Signs descriptors of the block's parts; `None` where this kind of memory is not signed.
    key: Option<Key>,
    imported: bool,
}

impl BlockExport {
    /// A block that this process allocated. The part of `descriptor` is the block.
    pub(crate) fn own(descriptor: Descriptor, key: Option<Key>) -> Self {
        Self { descriptor, key, imported: false }
    }

    /// An imported block: the whole allocation that the descriptor names.
    pub(crate) fn imported(descriptor: Descriptor, key: Option<Key>) -> Self {
        Self { descriptor: Descriptor { offset: 0, length: descriptor.size, ..descriptor }, key, imported: true }
    }

    pub(crate) fn is_imported(&self) -> bool {
        self.imported
    }

    pub(crate) fn kind(&self) -> ExportKind {
        self.descriptor.kind
    }

    /// The unsigned description of the block.
    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The same description with the allocation's number in this process.
    pub(crate) fn numbered(mut self, number: u64) -> Self {
        self.descriptor.allocation = number;
        self
    }

    /// Describes and signs a part, whose range in bytes lies within the block.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Descriptor {
        let offset = self.descriptor.offset + offset as u64;
        let mut part = Descriptor { offset, length: length as u64, ..self.descriptor };
        if let Some(key) = &self.key {
            key.sign(&mut part);
        }
        part
    }
}
