//! What can be wrong with a descriptor.

use super::{Descriptor, ExportKind, MAGIC, PoolId, VERSION};
use crate::Uuid;

/// Why bytes are no descriptor, or one that a call does not take.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// There are too few bytes.
    #[error("a descriptor has {size} bytes, but there are {length}: it was cut off on the way", size = Descriptor::SIZE)]
    Truncated {
        /// How many there are.
        length: usize,
    },
    /// There are too many bytes.
    #[error("a descriptor has {size} bytes, but there are {length}: send each one alone", size = Descriptor::SIZE)]
    Oversized {
        /// How many there are.
        length: usize,
    },
    /// It does not begin as descriptors do.
    #[error("a descriptor begins with {MAGIC:02x?}, but this with {found:02x?}: these bytes are something else")]
    Magic {
        /// What is there in place of the magic word.
        found: [u8; 8],
    },
    /// A later release wrote it.
    #[error(
        "the descriptor is of version {version}, but this release reads version {VERSION}: update the importing program"
    )]
    NewerVersion {
        /// Its version.
        version: u16,
    },
    /// No release wrote such a version.
    #[error("the descriptor is of version {version}, which does not exist: its bytes were changed")]
    UnknownVersion {
        /// Its version.
        version: u16,
    },
    /// The checksum is of other bytes.
    #[error(
        "the descriptor's checksum is {found:#018x}, but its bytes give {computed:#018x}: they were changed on the way"
    )]
    Checksum {
        /// What it says.
        found: u64,
        /// What its bytes give.
        computed: u64,
    },
    /// It describes what this release does not know.
    #[error("the descriptor is of kind {number}, but this release knows kinds 1 to 6")]
    UnknownKind {
        /// Its kind.
        number: u16,
    },
    /// It names more or fewer file descriptors than its kind has.
    #[error("the descriptor names {count} file descriptors, but {kind} comes with {:?}", kind.file_descriptors())]
    FileDescriptors {
        /// What it describes.
        kind: ExportKind,
        /// How many it names.
        count: u32,
    },
    /// The part does not lie within the allocation.
    #[error(
        "the descriptor's part, bytes {offset} to {offset}+{length}, lies outside of its allocation of {size} bytes"
    )]
    Range {
        /// Where the part begins.
        offset: u64,
        /// How long it is.
        length: u64,
        /// How long the allocation is.
        size: u64,
    },
    /// The allocation cannot be so long.
    #[error("the descriptor says that {kind} has {size} bytes, which cannot be")]
    Size {
        /// What it describes.
        kind: ExportKind,
        /// How long it says the allocation is.
        size: u64,
    },
    /// Bytes that are kept for later are not 0.
    #[error("the descriptor has {found:#x} where this version has 0")]
    Reserved {
        /// What is there.
        found: u32,
    },
    /// It describes something else than what is imported.
    #[error("{call}: the descriptor describes {found}, but {expected} is imported here")]
    WrongKind {
        /// The function.
        call: &'static str,
        /// What it describes.
        found: ExportKind,
        /// What it has to.
        expected: ExportKind,
    },
    /// It is of another device.
    #[error(
        "{call}: the descriptor is of {found}, but the import is on {expected}: import on the device that holds it"
    )]
    WrongDevice {
        /// The function.
        call: &'static str,
        /// The descriptor's device.
        found: Uuid,
        /// The device of the import.
        expected: Uuid,
    },
    /// It is of another pool.
    #[error(
        "{call}: the descriptor is of pool {found}, but the import is into pool {expected}: import the pool that it is of"
    )]
    WrongPool {
        /// The function.
        call: &'static str,
        /// The descriptor's pool.
        found: PoolId,
        /// The pool of the import.
        expected: PoolId,
    },
    /// It says that the allocation is longer than the driver, or the system, says.
    #[error(
        "{call}: the descriptor says that the allocation has {size} bytes, but it has {extent}: the descriptor was changed"
    )]
    TooLarge {
        /// The function.
        call: &'static str,
        /// What the descriptor says.
        size: u64,
        /// What the driver or the system says.
        extent: u64,
    },
    /// This process exported it, and the memory is no more.
    #[error("{call}: this process exported the memory itself, and has freed it since")]
    Freed {
        /// The function.
        call: &'static str,
    },
    /// The system does not say whether a file is one that this process exported itself.
    #[error(
        "{call}: the system does not say whether the file is of a pool that this process made, and imported it would reach \
         that pool's memory a second time: permit kcmp (seccomp), or import in a process that makes no shareable pools"
    )]
    Unrecognised {
        /// The function.
        call: &'static str,
    },
    /// This process exported other parts of the memory, which is its own: the rest may be in exclusive hands.
    #[error(
        "{call}: this process owns the memory, and no export of it named all of bytes {offset} to {offset}+{length}: \
         export that part first"
    )]
    NotExported {
        /// The function.
        call: &'static str,
        /// Where the part begins.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// Its tag is not of the pool's key, or it is not what this process exported.
    #[error(
        "{call}: the descriptor was changed, or made by a process that was not given the pool: ask the exporter for another"
    )]
    Forged {
        /// The function.
        call: &'static str,
    },
    /// What it names is here already under another name, or its name is another's here.
    #[error("{call}: what the descriptor names is here already under another name: one of the descriptors was changed")]
    Conflict {
        /// The function.
        call: &'static str,
    },
    /// The memory lies elsewhere than what imports it gives.
    #[error("{call}: the memory lies on {found}, but this imports memory of {expected}")]
    WrongPlace {
        /// The function.
        call: &'static str,
        /// Where it lies.
        found: &'static str,
        /// Where it has to.
        expected: &'static str,
    },
    /// The sizes of the chunks of virtual memory do not add up, or were changed.
    #[error("the descriptor's {count} chunks are not those of its {size} bytes: they were changed on the way")]
    Chunks {
        /// How many there are.
        count: usize,
        /// How long the descriptor says that all are together.
        size: u64,
    },
    /// This process made it.
    #[error("{call}: {kind} is imported by another process than the one that made it: use the original here")]
    OwnProcess {
        /// The function.
        call: &'static str,
        /// What it describes.
        kind: ExportKind,
    },
}
