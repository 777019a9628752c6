//! Why a view, or a copy between views, cannot be.

use super::LayoutError;
use crate::DataType;

/// Why a view, or a copy between views, cannot be.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The layout cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),

    /// Elements lie outside of the memory.
    #[error("{call}: elements lie at bytes {first} to {end}, outside of memory of {size} bytes")]
    OutOfMemory {
        /// The call.
        call: &'static str,
        /// The first byte of the lowest element.
        first: i128,
        /// The byte after the highest element.
        end: i128,
        /// How long the memory is, in bytes.
        size: usize,
    },

    /// The layout's elements have another size than the type's.
    #[error("{call}: elements of {data_type} have {expected} bytes, but the layout's have {found}; repack the layout")]
    ItemSize {
        /// The call.
        call: &'static str,
        /// The type.
        data_type: DataType,
        /// Its size, in bytes.
        expected: usize,
        /// The layout's size, in bytes.
        found: usize,
    },

    /// The views have elements of two types. Copies convert nothing.
    #[error("{call}: the source has elements of {from}, the destination of {to}; a copy converts nothing")]
    DataType {
        /// The call.
        call: &'static str,
        /// What was found, or the source's.
        from: DataType,
        /// What is needed, or the destination's.
        to: DataType,
    },

    /// The views have two shapes.
    #[error(
        "{call}: the source has the shape {from:?}, the destination {to:?}; broadcast or reshape one of them first"
    )]
    Shape {
        /// The call.
        call: &'static str,
        /// The source's.
        from: Box<[i64]>,
        /// The destination's.
        to: Box<[i64]>,
    },

    /// The view may only be read.
    #[error("{call}: the view is read-only")]
    ReadOnly {
        /// The call.
        call: &'static str,
    },

    /// Elements of the destination share memory, so that it is not said what it would hold.
    #[error("{call}: elements of the destination share memory (strides {strides:?} of shape {shape:?})")]
    Repeated {
        /// The call.
        call: &'static str,
        /// The shape.
        shape: Box<[i64]>,
        /// The strides, in elements.
        strides: Box<[i64]>,
    },

    /// Source and destination share memory.
    #[error("{call}: source and destination overlap at bytes {first:#x} to {end:#x}; copy to memory of its own first")]
    Overlap {
        /// The call.
        call: &'static str,
        /// The first address that both reach.
        first: u64,
        /// The address after the last.
        end: u64,
    },

    /// Elements of less than a byte that begin or end within one.
    #[error(
        "{call}: elements of {data_type} share bytes here with others; views of them are copied where their runs begin \
         and end at whole bytes"
    )]
    SharedBytes {
        /// The call.
        call: &'static str,
        /// The type.
        data_type: DataType,
    },

    /// The CPU does not address the memory.
    #[error("{call}: the CPU does not address the memory; copy it to memory that it does")]
    NotOnHost {
        /// The call.
        call: &'static str,
    },

    /// Elements do not lie where values of the type may.
    #[error("{call}: the elements at {address:#x} are not aligned to {alignment} bytes")]
    Misaligned {
        /// The call.
        call: &'static str,
        /// An element's address.
        address: usize,
        /// The alignment.
        alignment: usize,
    },
}
