//! Errors of the descriptions of arrays.

use strided_layout::DataTypeError;

/// Why a description of an array is invalid.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The number of dimensions is negative or too large.
    #[error("the array has {dimensions} dimensions, but it must have 0 to 64")]
    TooManyDimensions {
        /// The number of dimensions.
        dimensions: i64,
    },
    /// The number of strides differs.
    #[error("the array has {strides} strides for {dimensions} dimensions, but it must have one for each")]
    StrideCount {
        /// The number of strides.
        strides: usize,
        /// The number of dimensions.
        dimensions: usize,
    },
    /// An extent is negative.
    #[error("dimension {dimension} has {extent} elements, but an extent must not be negative")]
    NegativeExtent {
        /// The dimension, from 0.
        dimension: usize,
        /// Its extent.
        extent: i64,
    },
    /// A product of extents, or of an extent and its stride, overflows.
    #[error("the extents and strides of the array exceed 64 bits")]
    TooLarge,
    /// An array with elements has no address.
    #[error("the array has {elements} elements at address 0, where only an array without elements may lie")]
    NullData {
        /// The number of elements.
        elements: usize,
    },
    /// An array with dimensions has no extents.
    #[error("the array has {dimensions} dimensions, but its shape is a null pointer")]
    NullShape {
        /// The number of dimensions.
        dimensions: i32,
    },
    /// The array begins below address 1 or ends after the last.
    #[error("an array at {address:#x} with elements {low} to {high} leaves the address space")]
    OutsideOfAddressSpace {
        /// The address of the element with index 0.
        address: u64,
        /// The lowest element, counted from there.
        low: i64,
        /// The highest element.
        high: i64,
    },
    /// A stride in bytes ends within an element.
    #[error(
        "dimension {dimension} has a stride of {stride} bytes, but it must be a multiple of an element's {size} bytes"
    )]
    StrideNotMultiple {
        /// The dimension, from 0.
        dimension: usize,
        /// Its stride in bytes.
        stride: i64,
        /// The size of an element in bytes.
        size: usize,
    },
    /// The protocol forbids this stream.
    #[error("stream {stream} is not allowed: {rule}")]
    Stream {
        /// Its number.
        stream: i64,
        /// The numbers that the protocol allows.
        rule: &'static str,
    },
    /// The element type is invalid.
    #[error(transparent)]
    DataType(#[from] DataTypeError),
}
