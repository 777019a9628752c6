//! Virtual memory that several processes share.

use super::physical::{PhysicalLocation, PhysicalMemory};
use super::{VirtualMemory, VirtualMemoryResource};
use crate::descriptor::{DescriptorError, ExportKind, MAX_FILE_DESCRIPTORS};
use crate::ipc::{VirtualDescriptor, VirtualExport};
use crate::resource::{Block, Kind, ResourceHandle};
use crate::{Error, Result, SharedBuffer, Stream};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;
use std::os::fd::OwnedFd;

impl<K: Kind> VirtualMemory<K> {
    /// Exports a buffer or a slice of one to other processes. The memory must belong to this resource, and must be made
    /// [shareable](super::VirtualOptions::shareable) or imported. Waits for the buffer's work so far.
    ///
    /// The export has one file for each chunk of physical memory that the buffer occupies. The files and each import
    /// keep the memory alive, independently of this process. A receiver may use these chunks completely, including
    /// memory beside a slice.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
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
    /// files. The driver refuses.
    #[doc(alias = "cuMemExportToShareableHandle")]
    pub fn export<T: NoUninit + AnyBitPattern>(&self, buffer: &SharedBuffer<T, K>) -> Result<VirtualExport> {
        const CALL: &str = "VirtualMemory::export";
        let refusal =
            |value: String, rule| Error::InvalidArgument { call: CALL, argument: "buffer", value: value.into(), rule };
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
    /// elements. The stream captures, or belongs to another device. The driver refuses.
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
        let mappings = self.mappings();
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
