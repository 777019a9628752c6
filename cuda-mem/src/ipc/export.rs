//! Exports: what one process sends to another.

use super::virtual_memory::{VirtualDescriptor, VirtualExport};
use crate::error::ChannelError;
use crate::ipc::MappedExport;
use crate::memory::descriptor::{Descriptor, DescriptorError, ExportKind, duplicate};
use crate::{Error, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An export of a pool: a descriptor and a file descriptor, for
/// [`DevicePool::import`](crate::memory::DevicePool::import), or, where it [has a NUMA node](Self::numa_node), for
/// [`PinnedPool::import`](crate::memory::PinnedPool::import).
///
/// It contains the pool's key: anybody with the export or its bytes can sign descriptors of the pool's memory.
#[derive(Debug)]
pub struct PoolExport {
    file: OwnedFd,
    descriptor: Descriptor,
}

impl PoolExport {
    /// Combines what another process sent. The import checks it.
    pub fn from_parts(file: OwnedFd, descriptor: Descriptor) -> Self {
        Self { file, descriptor }
    }

    /// Returns the parts.
    pub fn into_parts(self) -> (OwnedFd, Descriptor) {
        (self.file, self.descriptor)
    }

    /// The descriptor that belongs to the file.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The host's NUMA node of the memory; `None` for device memory.
    pub fn numa_node(&self) -> Option<i32> {
        self.descriptor.numa_node()
    }

    /// Duplicates the export and its file descriptor.
    ///
    /// # Errors
    ///
    /// The system refuses: too many files are open.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { file: duplicate(&self.file)?, descriptor: self.descriptor })
    }
}

impl AsFd for PoolExport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A received export. Its variant decides which import takes it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Export {
    /// For [`DevicePool::import`](crate::memory::DevicePool::import) or
    /// [`PinnedPool::import`](crate::memory::PinnedPool::import).
    Pool(PoolExport),
    /// For [`DriverPool::import_buffer`](crate::memory::DriverPool::import_buffer).
    PoolMemory(Descriptor),
    /// For [`DeviceMemory::import_buffer`](crate::memory::DeviceMemory::import_buffer).
    DeviceMemory(Descriptor),
    /// For [`MappedMemory::import`](crate::MappedMemory::import).
    Mapped(MappedExport),
    /// For [`Event::import`](crate::Event::import).
    Event(Descriptor),
    /// For [`VirtualMemory::import`](crate::memory::VirtualMemory::import).
    VirtualMemory(VirtualExport),
}

impl Export {
    /// Combines what another process sent through the program's own transport: the [bytes](Exported::message) of one
    /// export and its files. The import checks it.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// use cuda_mem::ipc::{Export, Exported};
    /// use cuda_mem::{Buffer, MappedMemory, Stream};
    /// let stream = Stream::new(&context)?;
    /// let resource = MappedMemory::new(&context)?;
    /// let memory = Buffer::<u8, _>::zeroed(&resource, 4096, &stream)?.into_shared();
    /// let export = Export::from(resource.export(&memory)?);
    /// let files = export.file_descriptors().iter().map(|file| file.try_clone_to_owned()).collect::<Result<_, _>>();
    ///
    /// // From the files and bytes as they arrived.
    /// let again = Export::from_parts(&export.message(), files.expect("not too many files are open"))?;
    /// let Export::Mapped(again) = again else { panic!("mapped memory was sent") };
    /// resource.import::<u8>(again, &stream)?.store(0, b"hello")?;
    /// let mut seen = [0u8; 5];
    /// memory.load(0, &mut seen)?;
    /// assert_eq!(&seen, b"hello");
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Descriptor`]: the bytes are no descriptor; [`Error::Channel`]: the number of files is wrong.
    pub fn from_parts(bytes: &[u8], files: Vec<OwnedFd>) -> Result<Self> {
        Self::from_message("Export::from_parts", bytes, files)
    }

    /// Duplicates the export and its file descriptors.
    ///
    /// # Errors
    ///
    /// The system refuses: too many files are open.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(match self {
            Self::Pool(export) => Self::Pool(export.try_clone()?),
            Self::PoolMemory(descriptor) => Self::PoolMemory(*descriptor),
            Self::DeviceMemory(descriptor) => Self::DeviceMemory(*descriptor),
            Self::Mapped(export) => Self::Mapped(export.try_clone()?),
            Self::Event(descriptor) => Self::Event(*descriptor),
            Self::VirtualMemory(export) => Self::VirtualMemory(export.try_clone()?),
        })
    }

    pub(super) fn from_message(call: &'static str, bytes: &[u8], mut files: Vec<OwnedFd>) -> Result<Self> {
        let length = bytes.len();
        let descriptor = Descriptor::from_bytes(&bytes[..length.min(Descriptor::SIZE)])?;
        let (expected, received) = (descriptor.file_descriptors(), files.len());
        let wrong = Error::Channel(ChannelError::FileDescriptors { call, expected, received });
        if expected != received {
            return Err(wrong);
        }
        if descriptor.kind == ExportKind::VirtualMemory {
            let descriptor = VirtualDescriptor::from_bytes(bytes)?;
            return Ok(Self::VirtualMemory(VirtualExport::from_parts(files, descriptor)));
        }
        if length > Descriptor::SIZE {
            return Err(DescriptorError::Oversized { length, size: Descriptor::SIZE }.into());
        }
        match (descriptor.kind, files.pop()) {
            (ExportKind::Pool, Some(file)) => Ok(Self::Pool(PoolExport { file, descriptor })),
            (ExportKind::Mapped, Some(file)) => Ok(Self::Mapped(MappedExport::from_parts(file, (&descriptor).into()))),
            (ExportKind::PoolMemory, None) => Ok(Self::PoolMemory(descriptor)),
            (ExportKind::DeviceMemory, None) => Ok(Self::DeviceMemory(descriptor)),
            (ExportKind::Event, None) => Ok(Self::Event(descriptor)),
            _ => Err(wrong),
        }
    }

    /// The kind that it claims.
    pub fn kind(&self) -> ExportKind {
        match self {
            Self::Pool(_) => ExportKind::Pool,
            Self::PoolMemory(_) => ExportKind::PoolMemory,
            Self::DeviceMemory(_) => ExportKind::DeviceMemory,
            Self::Mapped(_) => ExportKind::Mapped,
            Self::Event(_) => ExportKind::Event,
            Self::VirtualMemory(_) => ExportKind::VirtualMemory,
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Descriptor {}
    impl Sealed for super::PoolExport {}
    impl Sealed for super::MappedExport {}
    impl Sealed for super::VirtualExport {}
    impl Sealed for super::Export {}
}

/// An export that a [`Channel`](super::Channel) can send.
pub trait Exported: sealed::Sealed {
    /// The descriptor for the other process.
    fn descriptor(&self) -> Descriptor;

    /// The bytes to send.
    fn message(&self) -> Vec<u8> {
        self.descriptor().to_bytes().to_vec()
    }

    /// The file descriptors to send.
    fn file_descriptors(&self) -> Vec<BorrowedFd<'_>>;
}

impl Exported for Descriptor {
    fn descriptor(&self) -> Descriptor {
        *self
    }

    fn file_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

impl Exported for PoolExport {
    fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    fn file_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.file.as_fd()]
    }
}

impl Exported for MappedExport {
    fn descriptor(&self) -> Descriptor {
        (*self.descriptor()).into()
    }

    fn file_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.as_fd()]
    }
}

macro_rules! into_export {
    ($($part:ty: $variant:ident;)*) => { $(
        impl From<$part> for Export {
            fn from(part: $part) -> Self {
                Self::$variant(part)
            }
        }
    )* };
}
into_export! {
    PoolExport: Pool;
    MappedExport: Mapped;
    VirtualExport: VirtualMemory;
}

impl Exported for Export {
    fn descriptor(&self) -> Descriptor {
        match self {
            Self::Pool(export) => export.descriptor,
            Self::PoolMemory(descriptor) | Self::DeviceMemory(descriptor) | Self::Event(descriptor) => *descriptor,
            Self::Mapped(export) => Exported::descriptor(export),
            Self::VirtualMemory(export) => Exported::descriptor(export),
        }
    }

    fn message(&self) -> Vec<u8> {
        match self {
            Self::VirtualMemory(export) => export.message(),
            _ => self.descriptor().to_bytes().to_vec(),
        }
    }

    fn file_descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Pool(export) => export.file_descriptors(),
            Self::Mapped(export) => export.file_descriptors(),
            Self::VirtualMemory(export) => export.file_descriptors(),
            Self::PoolMemory(_) | Self::DeviceMemory(_) | Self::Event(_) => Vec::new(),
        }
    }
}
