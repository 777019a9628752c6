//! Exports of virtual memory.

use super::export::Exported;
use crate::Result;
use crate::descriptor::{Descriptor, DescriptorError, ExportKind, array, checksum, duplicate};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The data that an import of virtual memory needs besides the files: a [`Descriptor`] and the size of each chunk of
/// physical memory, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualDescriptor {
    head: Descriptor,
    chunks: Vec<u64>,
}

impl VirtualDescriptor {
    /// The caller has set a part in `head` that lies within the chunks. `node` is the chunks' NUMA node on the host.
    pub(crate) fn new(mut head: Descriptor, chunks: Vec<u64>, node: Option<i32>) -> Self {
        head.files = chunks.len() as u32;
        head.size = chunks.iter().sum();
        head.set_numa_node(node);
        let sum = checksum(&bytes_of(&chunks));
        head.payload[..8].copy_from_slice(&sum.to_le_bytes());
        Self { head, chunks }
    }

    /// The fields common to all descriptors. The part's offset counts from the start of the first chunk.
    pub fn descriptor(&self) -> &Descriptor {
        &self.head
    }

    /// The sizes of the chunks of physical memory, in address order.
    pub fn chunks(&self) -> &[u64] {
        &self.chunks
    }

    /// The host's NUMA node of the memory; `None` for device memory.
    pub fn numa_node(&self) -> Option<i32> {
        self.head.numa_node()
    }

    /// The form to send: that of the [`Descriptor`], followed by the chunk sizes, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.head.to_bytes()[..], &bytes_of(&self.chunks)].concat()
    }

    /// Reads the result of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// The bytes are no descriptor of virtual memory; the chunks' sizes do not add up, or were changed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let (head, rest) = bytes.split_at_checked(Descriptor::SIZE).unwrap_or((bytes, &[]));
        let head = Descriptor::from_bytes(head)?;
        let (found, expected) = (head.kind, ExportKind::VirtualMemory);
        if found != expected {
            return Err(DescriptorError::WrongKind { call: "VirtualDescriptor::from_bytes", found, expected });
        }
        let chunks: Vec<u64> = rest.chunks_exact(8).map(|bytes| u64::from_le_bytes(array(bytes, 0))).collect();
        let size = chunks.iter().try_fold(0u64, |size, chunk| size.checked_add(*chunk));
        let whole = rest.len() == 8 * head.file_descriptors()
            && size == Some(head.size)
            && !chunks.contains(&0)
            && u64::from_le_bytes(array(&head.payload, 0)) == checksum(rest);
        if whole {
            Ok(Self { head, chunks })
        } else {
            Err(DescriptorError::Chunks { count: chunks.len(), size: head.size })
        }
    }
}

fn bytes_of(chunks: &[u64]) -> Vec<u8> {
    chunks.iter().flat_map(|chunk| chunk.to_le_bytes()).collect()
}

/// An export of virtual memory, for [`VirtualMemory::import`](crate::memory::VirtualMemory::import): a descriptor, and
/// a file for each chunk of physical memory, which keeps the chunk alive.
#[derive(Debug)]
pub struct VirtualExport {
    files: Vec<OwnedFd>,
    descriptor: VirtualDescriptor,
}

impl VirtualExport {
    /// Combines what another process sent. The import checks it.
    pub fn from_parts(files: Vec<OwnedFd>, descriptor: VirtualDescriptor) -> Self {
        Self { files, descriptor }
    }

    /// Returns the parts.
    pub fn into_parts(self) -> (Vec<OwnedFd>, VirtualDescriptor) {
        (self.files, self.descriptor)
    }

    /// The descriptor that belongs to the files.
    pub fn descriptor(&self) -> &VirtualDescriptor {
        &self.descriptor
    }

    /// Duplicates the export and its file descriptors.
    ///
    /// # Errors
    ///
    /// The system refuses: too many files are open.
    pub fn try_clone(&self) -> Result<Self> {
        let files = self.files.iter().map(duplicate).collect::<Result<_>>()?;
        Ok(Self { files, descriptor: self.descriptor.clone() })
    }
}

impl Exported for VirtualExport {
    fn descriptor(&self) -> Descriptor {
        self.descriptor.head
    }

    fn message(&self) -> Vec<u8> {
        self.descriptor.to_bytes()
    }

    fn file_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.files.iter().map(AsFd::as_fd).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Driver;

    #[test]
    #[cfg_attr(miri, ignore = "needs the software GPU")]
    fn what_is_changed_on_the_way_is_refused() -> Result<()> {
        let context = Driver::software()?.device(0)?.primary_context()?;
        let mut head = Descriptor::new(ExportKind::VirtualMemory, &context)?;
        (head.offset, head.length) = (1000, 24);
        let good = VirtualDescriptor::new(head, vec![2 << 20, 6 << 20, 2 << 20], Some(1));
        assert_eq!((good.descriptor().size(), good.numa_node(), good.chunks().len()), (10 << 20, Some(1), 3));
        let bytes = good.to_bytes();
        assert_eq!(VirtualDescriptor::from_bytes(&bytes), Ok(good));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(VirtualDescriptor::from_bytes(&changed).is_err(), "byte {at}");
            assert!(VirtualDescriptor::from_bytes(&bytes[..at]).is_err(), "{at} bytes");
        }
        // Two chunks swapped.
        let mut swapped = bytes.clone();
        swapped[184..200].rotate_left(8);
        let wrong = DescriptorError::Chunks { count: 3, size: 10 << 20 };
        assert_eq!(VirtualDescriptor::from_bytes(&swapped), Err(wrong));
        assert_eq!(
            VirtualDescriptor::from_bytes(&[&bytes[..], &[0; 8]].concat()),
            Err(DescriptorError::Chunks { count: 4, size: 10 << 20 })
        );
        let pool = Descriptor::new(ExportKind::Pool, &context)?.to_bytes();
        assert!(matches!(VirtualDescriptor::from_bytes(&pool), Err(DescriptorError::WrongKind { .. })));
        Ok(())
    }
}
