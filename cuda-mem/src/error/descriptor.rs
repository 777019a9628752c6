//! Errors of descriptors of shared memory, and the kinds and pools that they name.

use super::Uuid;
use core::fmt;
use core::ops::RangeInclusive;

/// The most file descriptors in one message.
pub const MAX_FILE_DESCRIPTORS: usize = 64;

/// What a descriptor describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportKind {
    /// A pool of the driver, with one file descriptor.
    Pool,
    /// Memory of such a pool.
    PoolMemory,
    /// Memory of cuMemAlloc.
    DeviceMemory,
    /// Mapped memory, with one file descriptor.
    Mapped,
    /// An event.
    Event,
    /// Virtual memory, with one file descriptor for each chunk of physical memory.
    VirtualMemory,
}

impl ExportKind {
    /// How many file descriptors an export of this kind may have.
    pub fn file_descriptors(self) -> RangeInclusive<usize> {
        match self {
            Self::Pool | Self::Mapped => 1..=1,
            Self::PoolMemory | Self::DeviceMemory | Self::Event => 0..=0,
            Self::VirtualMemory => 0..=MAX_FILE_DESCRIPTORS,
        }
    }
}

impl fmt::Display for ExportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pool => "a pool",
            Self::PoolMemory => "memory of a pool",
            Self::DeviceMemory => "memory of cuMemAlloc",
            Self::Mapped => "mapped memory",
            Self::Event => "an event",
            Self::VirtualMemory => "virtual memory",
        })
    }
}

/// Identifies a shareable pool, in every process that has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub [u8; 16]);

impl PoolId {
    /// No pool.
    pub const NONE: Self = Self([0; 16]);
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why bytes are not a descriptor, or why a call refuses a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// Too few bytes.
    #[error("the descriptor has {length} bytes instead of {size}: send all of them")]
    Truncated {
        /// The number of bytes.
        length: usize,
        /// The number of bytes of a descriptor.
        size: usize,
    },
    /// Too many bytes.
    #[error("the descriptor has {length} bytes instead of {size}: send each descriptor alone")]
    Oversized {
        /// The number of bytes.
        length: usize,
        /// The number of bytes of a descriptor.
        size: usize,
    },
    /// No magic word at the beginning.
    #[error("the bytes begin with {found:02x?} instead of {expected:02x?}: they are not a descriptor")]
    Magic {
        /// The bytes in its place.
        found: [u8; 8],
        /// The magic word.
        expected: [u8; 8],
    },
    /// A later release wrote the descriptor.
    #[error(
        "the descriptor has version {version}, but this release reads version {newest}: update the importing program"
    )]
    NewerVersion {
        /// The descriptor's version.
        version: u16,
        /// The newest version that this release reads.
        newest: u16,
    },
    /// The version does not exist.
    #[error("the descriptor has version {version}, which does not exist: its bytes were changed")]
    UnknownVersion {
        /// The descriptor's version.
        version: u16,
    },
    /// The checksum does not match the bytes.
    #[error(
        "the descriptor's checksum is {found:#018x}, but its bytes have {computed:#018x}: they were changed on the way"
    )]
    Checksum {
        /// The checksum in the descriptor.
        found: u64,
        /// The checksum of its bytes.
        computed: u64,
    },
    /// This release does not know the kind.
    #[error("the descriptor has kind {number}, but this release knows only kinds 1 to 6")]
    UnknownKind {
        /// The number of the kind.
        number: u16,
    },
    /// The kind has another number of file descriptors.
    #[error("the descriptor names {count} file descriptors, but {kind} has {:?}", kind.file_descriptors())]
    FileDescriptors {
        /// The descriptor's kind.
        kind: ExportKind,
        /// The number in the descriptor.
        count: u32,
    },
    /// The part lies outside of the allocation.
    #[error(
        "the descriptor's part, bytes {offset} to {offset}+{length}, lies outside of its allocation of {size} bytes"
    )]
    Range {
        /// Where the part begins, in bytes.
        offset: u64,
        /// The part's length in bytes.
        length: u64,
        /// The allocation's size in bytes.
        size: u64,
    },
    /// A size that is impossible for the kind.
    #[error("the descriptor gives {kind} a size of {size} bytes, which is impossible: it was changed")]
    Size {
        /// The descriptor's kind.
        kind: ExportKind,
        /// The size in the descriptor, in bytes.
        size: u64,
    },
    /// A reserved field is not 0.
    #[error("the descriptor has {found:#x} in a reserved field, which must be 0")]
    Reserved {
        /// The value of the field.
        found: u32,
    },
    /// The call imports another kind.
    #[error("{call}: the descriptor describes {found}, but this call imports {expected}")]
    WrongKind {
        /// The function.
        call: &'static str,
        /// The descriptor's kind.
        found: ExportKind,
        /// The kind that the call imports.
        expected: ExportKind,
    },
    /// The descriptor belongs to another device.
    #[error(
        "{call}: the descriptor belongs to {found}, but the call imports on {expected}: use the descriptor's device"
    )]
    WrongDevice {
        /// The function.
        call: &'static str,
        /// The descriptor's device.
        found: Uuid,
        /// The device of the call.
        expected: Uuid,
    },
    /// The descriptor belongs to another pool.
    #[error("{call}: the descriptor belongs to pool {found}, but this is pool {expected}: use the descriptor's pool")]
    WrongPool {
        /// The function.
        call: &'static str,
        /// The descriptor's pool.
        found: PoolId,
        /// The pool of the call.
        expected: PoolId,
    },
    /// The size is larger than the driver or the system reports.
    #[error(
        "{call}: the descriptor gives the allocation {size} bytes, but it has {extent}: the descriptor was changed"
    )]
    TooLarge {
        /// The function.
        call: &'static str,
        /// The size in the descriptor, in bytes.
        size: u64,
        /// The reported size in bytes.
        extent: u64,
    },
    /// This process exported the memory itself and has freed it since.
    #[error("{call}: this process exported the memory itself and has freed it since")]
    Freed {
        /// The function.
        call: &'static str,
    },
    /// The system does not reveal whether this process made the file's pool.
    #[error(
        "{call}: the system does not reveal whether this process made the file's pool, whose memory an import would \
         alias: permit kcmp (seccomp), or import in a process that makes no shareable pools"
    )]
    Unrecognised {
        /// The function.
        call: &'static str,
    },
    /// This process owns the memory and exported only other parts. The rest may belong to exclusive buffers.
    #[error(
        "{call}: this process owns the memory, and no export of it named all of bytes {offset} to {offset}+{length}: \
         export that part first"
    )]
    NotExported {
        /// The function.
        call: &'static str,
        /// Where the part begins, in bytes.
        offset: u64,
        /// The part's length in bytes.
        length: u64,
    },
    /// The pool's key did not sign the descriptor, or this process exported another one.
    #[error("{call}: the descriptor was changed, or a process without the pool made it: ask the exporter for another")]
    Forged {
        /// The function.
        call: &'static str,
    },
    /// This process knows the object under another name, or another object under this name.
    #[error("{call}: this process knows the memory or pool under another name: one of the descriptors was changed")]
    Conflict {
        /// The function.
        call: &'static str,
    },
    /// The resource imports memory of another place.
    #[error("{call}: the memory lies on {found}, but the call imports memory of {expected}")]
    WrongPlace {
        /// The function.
        call: &'static str,
        /// Where the memory lies.
        found: &'static str,
        /// Where it must lie.
        expected: &'static str,
    },
    /// The chunks' sizes do not add up, or were changed.
    #[error("the descriptor's {count} chunks do not match its {size} bytes: they were changed on the way")]
    Chunks {
        /// The number of chunks.
        count: usize,
        /// The sum of their sizes in the descriptor, in bytes.
        size: u64,
    },
    /// This process made the export; only others can import it.
    #[error("{call}: this process made the export ({kind}), and only others can import it: use the original here")]
    OwnProcess {
        /// The function.
        call: &'static str,
        /// The descriptor's kind.
        kind: ExportKind,
    },
}

cuda_sys::debug_as_display!(DescriptorError);
