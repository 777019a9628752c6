//! Errors of DLPack tensors.

use super::TensorError;

/// Why a DLPack tensor was refused. If the call had taken it over, its deleter has been called.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// A null pointer instead of a tensor.
    #[error("the tensor is a null pointer")]
    Null,
    /// Another major release.
    #[error("the tensor has DLPack {major}.{minor}, but this library knows only 1.x: ask its producer for 1.x")]
    Version {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// Flags of a newer release.
    #[error("the tensor has flags {flags:#x}, but only 0x7 are known: ask its producer for DLPack 1.3 or older")]
    Flags {
        /// All flags.
        flags: u64,
    },
    /// A device type that DLPack does not define.
    #[error("the tensor has device type {device_type}, which DLPack 1.3 does not define")]
    UnknownDevice {
        /// Its number.
        device_type: i32,
    },
    /// Neither a CUDA device nor the CPU.
    #[error("the tensor lies on {name} {device_id}: ask its producer for a copy on the CPU or on a CUDA device")]
    OtherDevice {
        /// The type of device.
        name: &'static str,
        /// Its number.
        device_id: i32,
    },
    /// A negative device number.
    #[error("the tensor lies on {name} {device_id}, but the number of a device must not be negative")]
    DeviceNumber {
        /// The type of device.
        name: &'static str,
        /// Its number.
        device_id: i32,
    },
    /// The old layout cannot express read-only tensors.
    #[error(
        "the tensor is read-only, which the layout before DLPack 1.0 cannot express: ask for the versioned layout or a \
         copy"
    )]
    LegacyReadOnly,
    /// The old layout cannot express padded elements.
    #[error(
        "elements of less than a byte are padded, which the layout before DLPack 1.0 cannot express: ask for the \
         versioned layout"
    )]
    LegacyPadded,
    /// Address plus byte offset overflows.
    #[error("byte_offset {byte_offset} of data at {data:#x} leaves the address space")]
    ByteOffset {
        /// The tensor's address.
        data: u64,
        /// The offset in bytes.
        byte_offset: u64,
    },
    /// The description of the array is invalid.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
