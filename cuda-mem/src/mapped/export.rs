//! Mapped memory on its way to another process.

use crate::{Error, Result, Uuid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the receiving process needs to know beside the file descriptor. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedDescriptor {
    /// The device that holds the memory.
    pub device: Uuid,
    /// The size of the whole allocation.
    pub size: usize,
    /// Where the exported part begins.
    pub offset: usize,
    /// How long it is.
    pub length: usize,
}

const MAGIC: [u8; 8] = *b"cmMapped";
const VERSION: u32 = 1;

impl MappedDescriptor {
    /// The size of its form in bytes.
    pub const SIZE: usize = 52;

    /// A form to send: a magic word, a version, the device, then the three numbers, little-endian.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.device.0);
        for (place, number) in bytes[28..].chunks_exact_mut(8).zip([self.size, self.offset, self.length]) {
            place.copy_from_slice(&(number as u64).to_le_bytes());
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) made.
    ///
    /// # Errors
    ///
    /// The bytes are fewer or more, have another magic word or version, or a part that does not lie within the whole.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let wrong = |argument, value: String, rule| Error::InvalidArgument {
            call: "MappedDescriptor::from_bytes",
            argument,
            value: value.into(),
            rule,
        };
        let Ok(bytes) = <&[u8; Self::SIZE]>::try_from(bytes) else {
            return Err(wrong("the length", bytes.len().to_string(), "a descriptor has 52 bytes"));
        };
        if bytes[..8] != MAGIC {
            return Err(wrong("the magic word", format!("{:02x?}", &bytes[..8]), "it is cmMapped"));
        }
        let version = u32::from_le_bytes(array(&bytes[8..]));
        if version != VERSION {
            return Err(wrong("the version", version.to_string(), "this release reads version 1"));
        }
        let number = |index: usize| {
            let value = u64::from_le_bytes(array(&bytes[28 + 8 * index..]));
            usize::try_from(value).unwrap_or(usize::MAX)
        };
        let descriptor =
            Self { device: Uuid(array(&bytes[12..])), size: number(0), offset: number(1), length: number(2) };
        descriptor.check()?;
        Ok(descriptor)
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

/// The first bytes of a slice that is known to be long enough.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    core::array::from_fn(|index| bytes[index])
}

/// A file descriptor and what belongs to it. Send the file descriptor over a Unix socket (SCM_RIGHTS) or let a child
/// inherit it, and send the [`MappedDescriptor`] beside it; then
/// [`MappedResource::import`](super::MappedResource::import).
///
/// ```
/// # let driver = cuda_mem::Driver::software()?;
/// # let context = driver.device(0)?.primary_context()?;
/// # let resource = cuda_mem::MappedResource::new(&context)?;
/// let memory = resource.allocate(4096)?.into_shared();
/// let export = memory.slice(1024..2048)?.export()?;
///
/// // Here the same process imports it.
/// let twin = resource.import(export)?;
/// twin.copy_from_slice(0, b"seen by both")?;
/// let mut seen = [0u8; 12];
/// memory.copy_to_slice(1024, &mut seen)?;
/// assert_eq!(&seen, b"seen by both");
/// # Ok::<(), cuda_mem::Error>(())
/// ```
#[derive(Debug)]
pub struct MappedExport {
    fd: OwnedFd,
    descriptor: MappedDescriptor,
}

impl MappedExport {
    /// Puts together what another process sent. Nothing is trusted: the import checks it.
    pub fn from_parts(fd: OwnedFd, descriptor: MappedDescriptor) -> Self {
        Self { fd, descriptor }
    }

    /// Takes it apart.
    pub fn into_parts(self) -> (OwnedFd, MappedDescriptor) {
        (self.fd, self.descriptor)
    }

    /// What belongs to the file descriptor.
    pub fn descriptor(&self) -> &MappedDescriptor {
        &self.descriptor
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
    fn a_forged_descriptor_is_an_error() {
        let good = DESCRIPTOR.to_bytes();
        for length in 0..good.len() {
            assert!(MappedDescriptor::from_bytes(&good[..length]).is_err());
        }
        for (position, byte) in [(0, b'x'), (8, 2), (35, 0xff), (43, 0xff), (51, 0xff)] {
            let mut forged = good;
            forged[position] = byte;
            let result = MappedDescriptor::from_bytes(&forged);
            assert!(result.is_err() || position == 35, "{position}: {result:?}");
        }
        let empty = MappedDescriptor { size: 0, offset: 0, length: 0, ..DESCRIPTOR };
        assert!(MappedDescriptor::from_bytes(&empty.to_bytes()).is_err());
    }
}
