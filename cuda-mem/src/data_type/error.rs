//! Why something is no type of elements.

use super::{DataType, TypeCode};

/// Why something is no type of elements.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DataTypeError {
    /// DLPack's list has no such code.
    #[error("type code {code} is none of DLPack's, which end at 17: a newer release of DLPack may have it")]
    UnknownCode {
        /// The code.
        code: u8,
    },
    /// The code has no type of so many bits.
    #[error("there is no type \"{}\" of {bits} bits", .code.name())]
    Bits {
        /// The code.
        code: TypeCode,
        /// The bits of a lane.
        bits: u8,
    },
    /// An element of no lanes has no bits.
    #[error("a type \"{}\" of 0 lanes: there is at least 1", .code.name())]
    NoLanes {
        /// The code.
        code: TypeCode,
    },
    /// Bytes without a meaning, too few or too many.
    #[error("an opaque type of {bytes} bytes: it may have 1 to 65535")]
    OpaqueSize {
        /// The size.
        bytes: usize,
    },
    /// The array interfaces of numpy and CUDA have no such type.
    #[error("numpy's array interface has no type for {data_type}: export it through DLPack, or as opaque bytes")]
    NoTypestr {
        /// The type.
        data_type: DataType,
    },
    /// Not a typestr, or one of a kind that is no type of DLPack's.
    #[error("\"{text}\" is no typestr of numbers, truth values or opaque bytes, such as \"<f4\"")]
    Typestr {
        /// What was given.
        text: Box<str>,
    },
    /// The other byte order.
    #[error("\"{text}\" is of the other byte order: convert it to this machine's first")]
    ByteOrder {
        /// What was given.
        text: Box<str>,
    },
    /// Not a name of a type.
    #[error("\"{text}\" is no name of a type, such as \"float32\", \"bfloat16\" or \"float32x4\"")]
    Name {
        /// What was given.
        text: Box<str>,
    },
}
