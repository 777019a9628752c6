//! Exports of mapped memory to another process.

use crate::memory::descriptor::{Descriptor, DescriptorError, ExportKind, PoolId, ProcessId, Tag, duplicate, length};
use crate::memory::mapped::MappedMemory;
use crate::memory::mapped::failure;
use crate::memory::resource::ResourceHandle;
use crate::memory::resource::kind::Mapped;
use crate::{Error, Result, SharedBuffer, Stream, Uuid};
use bytemuck::{AnyBitPattern, NoUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What the receiving process needs besides the file descriptor. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedDescriptor {
    /// The device that holds the memory.
    pub device: Uuid,
    /// The size of the whole allocation.
    pub size: usize,
    /// The offset of the exported part.
    pub offset: usize,
    /// The length of the exported part.
    pub length: usize,
}

impl MappedDescriptor {
    /// The size of the encoded descriptor, in bytes.
    pub const SIZE: usize = Descriptor::SIZE;

    /// Encodes the descriptor to send it, as a [`Descriptor`].
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        Descriptor::from(*self).to_bytes()
    }

    /// Decodes the bytes of [`to_bytes`](Self::to_bytes).
    ///
    /// # Errors
    ///
    /// The bytes are no descriptor; they describe another kind of export; the part does not lie within the allocation.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let descriptor = Descriptor::from_bytes(bytes)?;
        let (found, expected) = (descriptor.kind, ExportKind::Mapped);
        if found != expected {
            return Err(DescriptorError::WrongKind { call: "MappedDescriptor::from_bytes", found, expected }.into());
        }
        Ok((&descriptor).into())
    }

    fn check(&self) -> Result<()> {
        let call = "MappedDescriptor::check";
        if self.size == 0 {
            let rule = "an allocation has at least one byte";
            return Err(Error::invalid(call, "size", "0", rule));
        }
        crate::error::range::span(call, self.offset, self.length, self.size).map(|_| ())
    }
}

impl From<MappedDescriptor> for Descriptor {
    fn from(mapped: MappedDescriptor) -> Self {
        Self {
            kind: ExportKind::Mapped,
            files: 1,
            device: mapped.device,
            pool: PoolId::NONE,
            // Each process maps the file itself: the exporter does not matter.
            process: ProcessId { number: std::process::id(), nonce: 0 },
            allocation: 0,
            size: mapped.size as u64,
            offset: mapped.offset as u64,
            length: mapped.length as u64,
            payload: [0; 64],
            tag: Tag::NONE,
        }
    }
}

impl From<&Descriptor> for MappedDescriptor {
    fn from(descriptor: &Descriptor) -> Self {
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        Self {
            device: descriptor.device,
            size: number(descriptor.size),
            offset: number(descriptor.offset),
            length: number(descriptor.length),
        }
    }
}

/// A file descriptor with its [`MappedDescriptor`]. Send it through a [`Channel`](crate::ipc::Channel), or let a child
/// inherit the file descriptor and send the `MappedDescriptor` separately. The receiver calls
/// [`MappedMemory::import`](crate::MappedMemory::import).
///
/// ```
/// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
/// # use cuda_mem::{Buffer, MappedMemory, Stream};
/// # let stream = Stream::new(&context)?;
/// let resource = MappedMemory::new(&context)?;
/// let memory = Buffer::<u8, _>::zeroed(&resource, 4096, &stream)?.into_shared();
/// let export = resource.export(&memory.slice(1024..2048)?)?;
///
/// // This example imports it in the same process.
/// let twin = resource.import::<u8>(export, &stream)?;
/// twin.store(0, b"seen by both")?;
/// let mut seen = [0u8; 12];
/// memory.load(1024, &mut seen)?;
/// assert_eq!(&seen, b"seen by both");
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Debug)]
pub struct MappedExport {
    fd: OwnedFd,
    descriptor: MappedDescriptor,
}

impl MappedExport {
    /// Combines what another process sent. The import checks both parts.
    pub fn from_parts(fd: OwnedFd, descriptor: MappedDescriptor) -> Self {
        Self { fd, descriptor }
    }

    /// Returns both parts.
    pub fn into_parts(self) -> (OwnedFd, MappedDescriptor) {
        (self.fd, self.descriptor)
    }

    /// The descriptor of the file.
    pub fn descriptor(&self) -> &MappedDescriptor {
        &self.descriptor
    }

    /// A copy with its own file descriptor.
    ///
    /// # Errors
    ///
    /// The operating system refuses: too many files are open.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { fd: duplicate(&self.fd)?, descriptor: self.descriptor })
    }
}

impl AsFd for MappedExport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl MappedMemory {
    /// Exports a part of a buffer of this resource to another process, which maps it for its CPU and for CUDA. Each
    /// process keeps the memory alive independently.
    ///
    /// # Errors
    ///
    /// The buffer is not a part of a whole allocation of this resource: blocks of a pool cannot be exported. An exclusive
    /// part exists ([`split_at`](crate::Buffer::split_at) makes such parts), and the exported file would expose it. The
    /// vkgdr library is upstream's, which cannot export; or it refuses.
    #[doc(alias = "vkgdr_memory_export_fd")]
    pub fn export<T: NoUninit + AnyBitPattern>(&self, buffer: &SharedBuffer<T, Mapped>) -> Result<MappedExport> {
        const CALL: &str = "MappedMemory::export";
        let export = buffer.export_block(CALL)?;
        let found =
            (export.kind() == ExportKind::Mapped).then(|| self.find(buffer.host_pointer().cast(), buffer.size()));
        let Some((allocation, range)) = found.transpose()? else {
            return Err(Error::invalid(CALL, "buffer", "of other memory", "it must be mapped memory of this resource"));
        };
        buffer.synchronize()?;
        let file = allocation.export_fd()?;
        buffer.expose();
        let (offset, length) = (range.start, range.len());
        let device = self.context().device().uuid()?;
        Ok(MappedExport::from_parts(file, MappedDescriptor { device, size: allocation.size(), offset, length }))
    }

    /// Maps memory that another process exported, for the CPU and CUDA. `stream` becomes its home stream. The result is
    /// shared, because the other process may write at any time.
    ///
    /// # Errors
    ///
    /// The export belongs to another device; the descriptor is not valid; the memory is shorter than the descriptor
    /// claims ([`DescriptorError::TooLarge`]); the part does not consist of whole, aligned elements; the vkgdr library is
    /// upstream's, which cannot import.
    #[doc(alias = "vkgdr_memory_import_fd")]
    pub fn import<T: NoUninit + AnyBitPattern>(
        &self,
        export: MappedExport,
        stream: &Stream,
    ) -> Result<SharedBuffer<T, Mapped>> {
        const CALL: &str = "MappedMemory::import";
        let (file, descriptor) = export.into_parts();
        let uuid = self.context().device().uuid()?;
        if descriptor.device != uuid {
            let rule = "only the device that holds the memory can import it; open that device";
            return Err(Error::invalid(CALL, "the export's device", descriptor.device, rule));
        }
        descriptor.check()?;
        let resource = self.share();
        SharedBuffer::<T, Mapped>::check_import(CALL, &resource, descriptor.length, stream)?;
        // Do not trust the size. The system knows that of a memory file; for others the library asks the driver.
        if let Some(extent) = length(&file).filter(|extent| descriptor.size as u64 > *extent) {
            return Err(DescriptorError::TooLarge { call: CALL, size: descriptor.size as u64, extent }.into());
        }
        let vkgdr = self.vkgdr()?;
        let _current = self.context().bind()?;
        // SAFETY: the handle is alive; the file descriptor is open and ours until the library takes it.
        let raw = unsafe { vkgdr.vkgdr_memory_import_fd(self.raw(), file.as_raw_fd(), descriptor.size, 0) }?;
        if raw.is_null() {
            return Err(failure(vkgdr, "vkgdr_memory_import_fd"));
        }
        // The library owns the file descriptor now.
        core::mem::forget(file);
        let allocation = self.without_blocks().adopt(raw)?;
        allocation.note_mapped_elsewhere();
        let block = self.insert(allocation);
        SharedBuffer::from_import(CALL, resource, block, descriptor.offset, descriptor.length, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTOR: MappedDescriptor =
        MappedDescriptor { device: Uuid([7; 16]), size: 4096, offset: 1024, length: 512 };

    #[test]
    fn a_descriptor_survives_the_way() {
        assert_eq!(MappedDescriptor::from_bytes(&DESCRIPTOR.to_bytes()), Ok(DESCRIPTOR));
    }

    #[test]
    fn another_descriptor_is_an_error() {
        let other = Descriptor { kind: ExportKind::DeviceMemory, files: 0, ..DESCRIPTOR.into() };
        let wrong = MappedDescriptor::from_bytes(&other.to_bytes());
        assert!(matches!(wrong, Err(Error::Descriptor(DescriptorError::WrongKind { .. }))), "{wrong:?}");
        let empty = MappedDescriptor { size: 0, offset: 0, length: 0, ..DESCRIPTOR };
        assert!(MappedDescriptor::from_bytes(&empty.to_bytes()).is_err());
        let outside = MappedDescriptor { offset: 4000, ..DESCRIPTOR };
        assert!(MappedDescriptor::from_bytes(&outside.to_bytes()).is_err());
    }
}
