//! Errors of views and of copies between them.

use strided_layout::{DataType, LayoutError};

/// Why a view is impossible, or why a copy between views was refused.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The layout is impossible.
    #[error(transparent)]
    Layout(#[from] LayoutError),

    /// Elements lie outside the memory.
    #[error("{call}: elements lie at bytes {first} to {end}, outside of memory of {size} bytes")]
    OutOfBounds {
        /// The call.
        call: &'static str,
        /// The first byte of the lowest element.
        first: i128,
        /// The byte after the highest element.
        end: i128,
        /// The size of the memory, in bytes.
        size: usize,
    },

    /// The layout's item size differs from the type's.
    #[error("{call}: elements of {data_type} have {expected} bytes, but the layout's have {found}; repack the layout")]
    ItemSize {
        /// The call.
        call: &'static str,
        /// The type.
        data_type: DataType,
        /// Its size, in bytes.
        expected: usize,
        /// The layout's item size, in bytes.
        found: usize,
    },

    /// The type given to the call is not that of the view's elements.
    #[error("{call}: the type given is {given}, but the view has elements of {expected}; an access converts nothing")]
    ElementType {
        /// The call.
        call: &'static str,
        /// The type of the view's elements.
        expected: DataType,
        /// The type that the caller gave.
        given: DataType,
    },

    /// The element types of the two views of a copy differ.
    #[error("{call}: the source has elements of {from}, the destination of {to}; a copy converts nothing")]
    DataType {
        /// The call.
        call: &'static str,
        /// The source's type.
        from: DataType,
        /// The destination's type.
        to: DataType,
    },

    /// The views differ in shape.
    #[error(
        "{call}: the source has the shape {from:?}, the destination {to:?}; transpose, permute, broadcast or reshape one of \
         them, so that the elements correspond"
    )]
    Shape {
        /// The call.
        call: &'static str,
        /// The source's shape.
        from: Box<[i64]>,
        /// The destination's shape.
        to: Box<[i64]>,
    },

    /// The view is read-only, and the call writes it.
    #[error("{call}: the view is read-only; write to a writable view of a buffer, and copy from this one")]
    ReadOnly {
        /// The call.
        call: &'static str,
    },

    /// Elements of the destination share memory, so the result of a write would be undefined. Or their strides are so
    /// contrived that only a long search would tell.
    #[error(
        "{call}: elements of the destination share memory, or cannot be told apart without a long search (strides \
         {strides:?} of shape {shape:?}); write to memory of its own"
    )]
    Repeated {
        /// The call.
        call: &'static str,
        /// The shape.
        shape: Box<[i64]>,
        /// The strides, in elements.
        strides: Box<[i64]>,
    },

    /// Source and destination share memory. Or their strides are so contrived that only a long search would tell.
    #[error(
        "{call}: source and destination overlap between bytes {first:#x} and {end:#x}, or cannot be told apart without a \
         long search; copy to separate memory first"
    )]
    Overlap {
        /// The call.
        call: &'static str,
        /// The first shared address.
        first: u64,
        /// The address after the last shared one.
        end: u64,
    },

    /// A run of elements smaller than a byte begins or ends within a byte.
    #[error(
        "{call}: a run of {data_type} elements begins or ends within a byte; only runs of whole bytes can be copied"
    )]
    SharedBytes {
        /// The call.
        call: &'static str,
        /// The type.
        data_type: DataType,
    },

    /// The CPU cannot address the memory.
    #[error("{call}: the CPU cannot address the memory; copy it to host memory first")]
    NotOnHost {
        /// The call.
        call: &'static str,
    },

    /// The elements are not aligned for their type.
    #[error("{call}: the elements at {address:#x} are not aligned to {alignment} bytes")]
    Misaligned {
        /// The call.
        call: &'static str,
        /// The address of an element.
        address: usize,
        /// The required alignment, in bytes.
        alignment: usize,
    },
}
