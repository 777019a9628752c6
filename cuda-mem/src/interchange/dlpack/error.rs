//! What is wrong with tensors of others.

use crate::interchange::TensorError;

/// Why a tensor of DLPack's was refused. Its deleter has been called where the tensor was taken over.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DlpackError {
    /// A null pointer in place of a tensor.
    #[error("the tensor is a null pointer")]
    Null,
    /// Another layout.
    #[error("the tensor is of DLPack {major}.{minor}, and only 1.x is known: ask its producer for an older release")]
    Version {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    },
    /// Flags that a newer release has, whose meaning is not known.
    #[error("the tensor has flags {flags:#x}, of which only 0x7 are known: ask its producer for DLPack 1.3 or older")]
    Flags {
        /// All of them.
        flags: u64,
    },
    /// A kind of device that is not on DLPack's list.
    #[error("device type {device_type} is not on the list of DLPack 1.3")]
    UnknownDevice {
        /// The number.
        device_type: i32,
    },
    /// A device that is not CUDA's.
    #[error("the tensor lies on {name} {device_id}: ask its producer for a copy on the CPU or on a CUDA device")]
    OtherDevice {
        /// The kind of device.
        name: &'static str,
        /// Its number.
        device_id: i32,
    },
    /// A device of a negative number.
    #[error("the tensor lies on {name} {device_id}: a device's number is not negative")]
    DeviceNumber {
        /// The kind of device.
        name: &'static str,
        /// Its number.
        device_id: i32,
    },
    /// A read-only tensor in the old layout, which cannot say so.
    #[error(
        "the tensor is read-only, which the layout before DLPack 1.0 cannot say: ask for the versioned one, or a copy"
    )]
    LegacyReadOnly,
    /// Padded elements in the old layout, which cannot say so.
    #[error(
        "elements of less than a byte are padded, which the layout before DLPack 1.0 cannot say: ask for the versioned one"
    )]
    LegacyPadded,
    /// A size that a u64 of bytes cannot say from the given base.
    #[error("byte_offset {byte_offset} of data at {data:#x} leaves the address space")]
    ByteOffset {
        /// The base.
        data: u64,
        /// The offset.
        byte_offset: u64,
    },
    /// The numbers of the array.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
