//! Errors of element types.

use super::{DataType, TypeCode};

/// Why a description is not a valid element type.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataTypeError {
    /// DLPack defines no such code.
    #[error("type code {code} is unknown: DLPack's codes end at 17, and a newer release of DLPack may define it")]
    UnknownCode {
        /// The code.
        code: u8,
    },
    /// The code has no type with this number of bits.
    #[error("no type \"{}\" has {bits} bits{}", .code.name(), if *.bits == 0 { ": the type was not set" } else { "" })]
    Bits {
        /// The code.
        code: TypeCode,
        /// The bits of a lane.
        bits: u8,
    },
    /// The number of lanes is 0.
    #[error("a type \"{}\" has 0 lanes, but it needs at least 1", .code.name())]
    NoLanes {
        /// The code.
        code: TypeCode,
    },
    /// The size of an opaque type is out of range.
    #[error("an opaque type has {bytes} bytes, but it must have 1 to 65535")]
    OpaqueSize {
        /// The size in bytes.
        bytes: usize,
    },
    /// The array interfaces of numpy and CUDA have no such type.
    #[error("numpy's array interface has no type for {data_type}: export it through DLPack, or as opaque bytes")]
    NoTypestr {
        /// The type.
        data_type: DataType,
    },
    /// The text is not a typestr, or names a kind that DLPack does not have.
    #[error("\"{text}\" is not a typestr of numbers, booleans or opaque bytes, such as \"<f4\"")]
    Typestr {
        /// The text.
        text: Box<str>,
    },
    /// The type does not have this machine's byte order.
    #[error("\"{text}\" has the byte order of other machines: convert the data to this machine's first")]
    ByteOrder {
        /// The text.
        text: Box<str>,
    },
    /// The text is not the name of a type.
    #[error("\"{text}\" is not the name of a type, such as \"float32\", \"bfloat16\" or \"float32x4\"")]
    Name {
        /// The text.
        text: Box<str>,
    },
}

/// `main` prints an error by `Debug`, so `Debug` is the message too.
impl core::fmt::Debug for DataTypeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}
