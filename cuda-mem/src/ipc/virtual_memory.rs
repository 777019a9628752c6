//! Virtual memory that several processes share.

use super::export::Exported;
use crate::memory::descriptor::{
    Descriptor, DescriptorError, ExportKind, MAX_FILE_DESCRIPTORS, array, checksum, duplicate,
};
use crate::memory::resource::{Block, Kind, ResourceHandle};
use crate::memory::virtual_memory::VirtualMemoryResource;
use crate::memory::{PhysicalLocation, PhysicalMemory, VirtualMemory};
use crate::{Error, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;
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
    fn new(mut head: Descriptor, chunks: Vec<u64>, node: Option<i32>) -> Self {
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

impl<K: Kind> VirtualMemory<K> {
    /// Exports a buffer or a slice of one to other processes. The memory must belong to this resource, and must be made
    /// [shareable](crate::memory::VirtualOptions::shareable) or imported. Waits for the buffer's work so far.
    ///
    /// The export has one file for each chunk of physical memory that the buffer occupies. The files and each import
    /// keep the memory alive, independently of this process. A receiver may use these chunks completely, including
    /// memory beside a slice.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::memory::{VirtualMemory, VirtualOptions};
    /// use cuda_mem::{Buffer, Stream};
    /// let stream = Stream::new(&context)?;
    /// let mut options = VirtualOptions::default();
    /// options.shareable = true;
    /// let memory = VirtualMemory::new(&context, &options)?;
    /// let buffer = Buffer::from_slice(&memory, &[1u32, 2, 3, 4], &stream)?.into_shared();
    /// let export = memory.export(&buffer.slice(1..3)?)?; // to be sent by a channel
    /// drop(buffer);
    /// // Here the same process imports it.
    /// assert_eq!(memory.import::<u32>(export, &stream)?.to_vec()?, [2, 3]);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The buffer is not allocated directly from this resource: a block of a pool over it shares its chunks with other
    /// blocks. The memory is not shareable, or occupies more than [`MAX_FILE_DESCRIPTORS`] chunks. An exclusive part of
    /// its memory, made by [`split_at`](crate::Buffer::split_at), is left. Its work failed. There are too many open
    /// files.
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export<T: NoUninit + AnyBitPattern>(&self, buffer: &SharedBuffer<T, K>) -> Result<VirtualExport> {
        const CALL: &str = "VirtualMemory::export";
        let refusal = |value: String, rule| Error::invalid(CALL, "buffer", value, rule);
        let export = buffer.export_block(CALL)?;
        let chunks = (export.kind() == ExportKind::VirtualMemory)
            .then(|| self.inner.chunks(buffer.device_pointer(), buffer.size()))
            .flatten();
        let Some((chunks, offset)) = chunks else {
            return Err(refusal("other memory".into(), "it must be memory of this resource"));
        };
        if chunks.len() > MAX_FILE_DESCRIPTORS {
            let value = format!("in {} chunks of physical memory", chunks.len());
            return Err(refusal(value, "at most 64 are allowed: copy it into a new buffer, which has one"));
        }
        buffer.synchronize()?;
        let files = chunks.iter().map(PhysicalMemory::to_file).collect::<Result<_>>()?;
        buffer.expose();
        let mut descriptor = *export.descriptor();
        (descriptor.offset, descriptor.length) = (offset as u64, buffer.size() as u64);
        let node = match self.inner.physical.location {
            PhysicalLocation::HostNuma(node) => Some(node),
            PhysicalLocation::Device | PhysicalLocation::Host => None,
        };
        let sizes = chunks.iter().map(|chunk| chunk.size() as u64).collect();
        Ok(VirtualExport::from_parts(files, VirtualDescriptor::new(descriptor, sizes, node)))
    }

    /// Imports the part of a buffer that a process [exported](Self::export), as elements of type `T`. The chunks are
    /// mapped side by side at new addresses, for the devices of this resource. The other process may write the memory
    /// at any time, so the result is a [`SharedBuffer`]; `stream` becomes its home stream.
    ///
    /// The physical memory lives as long as any process holds it. Each import has its own addresses, also within one
    /// process.
    ///
    /// # Errors
    ///
    /// The memory belongs to another device, or lies in another place than this resource's memory
    /// ([`DescriptorError::WrongPlace`]). Files are missing or of another kind. The part does not hold whole, aligned
    /// elements. The stream captures, or belongs to another device.
    #[doc(alias("cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"))]
    pub fn import<T: NoUninit + AnyBitPattern>(
        &self,
        export: VirtualExport,
        stream: &Stream,
    ) -> Result<SharedBuffer<T, K>> {
        const CALL: &str = "VirtualMemory::import";
        let (files, descriptor) = export.into_parts();
        let head = *descriptor.descriptor();
        head.expect(CALL, ExportKind::VirtualMemory, &self.inner.context)?;
        if files.len() != descriptor.chunks().len() {
            let (kind, count) = (head.kind, files.len() as u32);
            return Err(DescriptorError::FileDescriptors { kind, count }.into());
        }
        let (resource, length) = (self.share(), head.length as usize);
        SharedBuffer::<T, K>::check_import(CALL, &resource, length, stream)?;
        stream.check_not_capturing(CALL)?;
        let block = if files.is_empty() {
            Block::EMPTY
        } else {
            let chunks = self.inner.import(CALL, files, descriptor.chunks())?;
            self.inner.join(CALL, &chunks, head.size as usize)?
        };
        SharedBuffer::from_import(CALL, resource, block, head.offset as usize, length, stream)
    }
}

impl VirtualMemoryResource {
    /// The chunks in which a range of mapped memory lies, and its offset in the first one. `None` if this resource does
    /// not map the range.
    fn chunks(&self, address: CUdeviceptr, size: usize) -> Option<(Vec<PhysicalMemory>, usize)> {
        if size == 0 {
            return Some((Vec::new(), 0));
        }
        let mappings = self.mappings.read();
        let (base, mapping) = mappings.range(..=address).next_back()?;
        let start = (address - base) as usize;
        let end = start.checked_add(size).filter(|end| *end <= mapping.mapped())?;
        let (mut chunks, mut offset, mut at) = (Vec::new(), 0, 0);
        for chunk in mapping.chunks() {
            let next = at + chunk.size();
            if at < end && next > start {
                if chunks.is_empty() {
                    offset = start - at;
                }
                chunks.push(chunk.clone());
            }
            at = next;
        }
        Some((chunks, offset))
    }

    /// Imports chunks, which must lie where this resource's memory does.
    fn import(&self, call: &'static str, files: Vec<OwnedFd>, sizes: &[u64]) -> Result<Vec<PhysicalMemory>> {
        let open = |(file, size): (OwnedFd, &u64)| {
            let chunk = PhysicalMemory::import(&self.context, file, *size as usize)?;
            let (found, expected) = (chunk.options().location, self.physical.location);
            if found != expected {
                let (found, expected) = (found.name(), expected.name());
                return Err(DescriptorError::WrongPlace { call, found, expected }.into());
            }
            Ok(chunk)
        };
        files.into_iter().zip(sizes).map(open).collect()
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
