//! Exports of mapped memory to another process.

use crate::descriptor::{Descriptor, DescriptorError, ExportKind, PoolId, ProcessId, Tag, duplicate};
use crate::{Error, Result, Uuid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

    pub(super) fn check(&self) -> Result<()> {
        let call = "MappedDescriptor::check";
        if self.size == 0 {
            let rule = "an allocation has at least one byte";
            return Err(Error::InvalidArgument { call, argument: "size", value: "0".into(), rule });
        }
        crate::range::span(call, self.offset, self.length, self.size).map(|_| ())
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
/// [`MappedResource::import`](super::MappedResource::import).
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # use cuda_mem::{Buffer, MappedResource, Stream};
/// # let stream = Stream::new(&context)?;
/// let resource = MappedResource::new(&context)?;
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
