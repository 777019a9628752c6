//! What goes from one process to another.

use super::channel::ChannelError;
use super::virtual_memory::{VirtualDescriptor, VirtualExport};
use crate::descriptor::{Descriptor, DescriptorError, ExportKind, duplicate};
use crate::mapped::MappedExport;
use crate::{Error, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A pool on its way to another process: a descriptor and a file descriptor. There
/// [`DevicePool::import`](crate::memory::DevicePool::import) takes it, or, where it
/// [has a NUMA node](Self::numa_node), [`PinnedPool::import`](crate::memory::PinnedPool::import).
///
/// It brings the pool's key along: who has it, or its bytes, can make descriptors of the pool's memory.
#[derive(Debug)]
pub struct PoolExport {
    file: OwnedFd,
    descriptor: Descriptor,
}

impl PoolExport {
    /// Puts together what another process sent. Nothing is trusted: the import checks it.
    pub fn from_parts(file: OwnedFd, descriptor: Descriptor) -> Self {
        Self { file, descriptor }
    }

    /// Takes it apart.
    pub fn into_parts(self) -> (OwnedFd, Descriptor) {
        (self.file, self.descriptor)
    }

    /// What belongs to the file descriptor.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The NUMA node of the host that the pool's memory lies on; none for a pool of device memory.
    pub fn numa_node(&self) -> Option<i32> {
        self.descriptor.numa_node()
    }

    /// The same once more, with a file descriptor of its own.
    ///
    /// # Errors
    ///
    /// The system refuses: there are too many open files.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { file: duplicate(&self.file)?, descriptor: self.descriptor })
    }
}

impl AsFd for PoolExport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a channel received: what it is says which import takes it.
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
    /// For [`MappedResource::import`](crate::MappedResource::import).
    Mapped(MappedExport),
    /// For [`Event::import`](crate::Event::import).
    Event(Descriptor),
    /// For [`VirtualMemory::import`](crate::memory::VirtualMemory::import).
    VirtualMemory(VirtualExport),
}

impl Export {
    /// Puts together what another process sent by a way of the program's own: the [bytes](Exported::message) of one
    /// export, and the files that go with it. Nothing is trusted: the import checks it.
    ///
    /// ```
    /// # let driver = cuda_mem::Driver::software()?;
    /// # let context = driver.device(0)?.primary_context()?;
    /// use cuda_mem::MappedResource;
    /// use cuda_mem::ipc::{Export, Exported};
    /// let resource = MappedResource::new(&context)?;
    /// let memory = resource.allocate(4096)?.into_shared();
    /// let export = Export::from(memory.export()?);
    /// let files = export.file_descriptors().iter().map(|file| file.try_clone_to_owned()).collect::<Result<_, _>>();
    ///
    /// // With these files, and these bytes, as they came.
    /// let again = Export::from_parts(&export.message(), files.expect("not too many files are open"))?;
    /// let Export::Mapped(again) = again else { panic!("mapped memory was sent") };
    /// resource.import(again)?.copy_from_slice(0, b"hello")?;
    /// let mut seen = [0u8; 5];
    /// memory.copy_to_slice(0, &mut seen)?;
    /// assert_eq!(&seen, b"hello");
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Descriptor`]: the bytes are no descriptor; [`Error::Channel`]: other files belong to it.
    pub fn from_parts(bytes: &[u8], files: Vec<OwnedFd>) -> Result<Self> {
        Self::from_message("Export::from_parts", bytes, files)
    }

    /// The same once more, with file descriptors of its own.
    ///
    /// # Errors
    ///
    /// The system refuses: there are too many open files.
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

    /// Puts together what came.
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
            return Err(DescriptorError::Oversized { length }.into());
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

    /// What it says of itself.
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

/// What a [`Channel`](super::Channel) can send.
pub trait Exported: sealed::Sealed {
    /// What the other process needs to know.
    fn descriptor(&self) -> Descriptor;

    /// The bytes that tell it.
    fn message(&self) -> Vec<u8> {
        self.descriptor().to_bytes().to_vec()
    }

    /// The file descriptors that go with it.
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

/// What was received is sent on as it is.
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
