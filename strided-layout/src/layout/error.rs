//! Errors of layouts.

/// Why a layout, or an operation on a layout, is impossible.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The layout would have too many dimensions.
    #[error("{operation}: {dimensions} dimensions, but a layout has at most {}", super::MAX_DIMENSIONS)]
    TooManyDimensions {
        /// The operation.
        operation: &'static str,
        /// The number of dimensions.
        dimensions: usize,
    },

    /// The length of a list does not fit the number of dimensions.
    #[error("{operation}: {argument} has {length} entries, but {expected} are needed")]
    Length {
        /// The operation.
        operation: &'static str,
        /// The list.
        argument: &'static str,
        /// Its length.
        length: usize,
        /// The length needed.
        expected: usize,
    },

    /// An extent is impossible.
    #[error("{operation}: the extent of axis {axis} is {extent}, but {rule}")]
    Extent {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
        /// Its extent.
        extent: i64,
        /// The rule that it breaks.
        rule: &'static str,
    },

    /// The operation does not allow a stride.
    #[error("{operation}: the stride of axis {axis} is {stride}, but {rule}")]
    Stride {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
        /// Its stride.
        stride: i64,
        /// The rule that it breaks.
        rule: &'static str,
    },

    /// A number is not a multiple of another.
    #[error("{operation}: {what} is {value}, but must be a multiple of {divisor}")]
    Indivisible {
        /// The operation.
        operation: &'static str,
        /// The number's meaning.
        what: Quantity,
        /// Its value.
        value: i64,
        /// The required divisor.
        divisor: i64,
    },

    /// An axis is out of range.
    #[error("{operation}: axis {axis} is out of range for {dimensions} dimensions")]
    Axis {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: i64,
        /// The number of dimensions.
        dimensions: usize,
    },

    /// An axis appears twice.
    #[error("{operation}: axis {axis} appears twice, but must appear once")]
    RepeatedAxis {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
    },

    /// There are more indices than dimensions.
    #[error("{operation}: {indices} indices, but the layout has {dimensions} dimensions")]
    TooManyIndices {
        /// The operation.
        operation: &'static str,
        /// The number of indices.
        indices: usize,
        /// The number of dimensions.
        dimensions: usize,
    },

    /// An index lies outside its axis.
    #[error("{operation}: index {index} is out of range for axis {axis} of extent {extent}")]
    Index {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
        /// The index.
        index: i64,
        /// The axis's extent.
        extent: i64,
    },

    /// A step of a slice is 0.
    #[error("{operation}: the step of axis {axis} is 0, but must not be 0")]
    ZeroStep {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
    },

    /// Two shapes differ in their number of elements.
    #[error("{operation}: the new shape has {to} elements, but the layout has {from}")]
    Volume {
        /// The operation.
        operation: &'static str,
        /// The elements of the layout.
        from: i64,
        /// The elements of the new shape.
        to: i64,
    },

    /// The extent for a -1 cannot be computed, because another extent is 0.
    #[error("{operation}: the extent -1 of axis {axis} is ambiguous, because another extent is 0")]
    Ambiguous {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
    },

    /// A second extent is -1.
    #[error("{operation}: the extent of axis {axis} is -1, but only one extent may be -1")]
    TwoUnknown {
        /// The operation.
        operation: &'static str,
        /// The second axis.
        axis: usize,
    },

    /// No strides produce the new shape, so the elements must be copied first.
    #[error(
        "{operation}: no strides produce the new shape from axis {axis} on; copy the elements to a dense layout first"
    )]
    IncompatibleStrides {
        /// The operation.
        operation: &'static str,
        /// The first axis of the new shape that fails.
        axis: usize,
    },

    /// A shape cannot be broadcast to another.
    #[error("{operation}: axis {axis} of extent {from} cannot be broadcast to extent {to}: only extent 1 can repeat")]
    Broadcast {
        /// The operation.
        operation: &'static str,
        /// The axis of the new shape.
        axis: usize,
        /// The old extent.
        from: i64,
        /// The new extent.
        to: i64,
    },

    /// An item size is impossible.
    #[error("{operation}: the item size is {size}, but {rule}")]
    ItemSize {
        /// The operation.
        operation: &'static str,
        /// The item size, in bytes.
        size: usize,
        /// The rule that it breaks.
        rule: &'static str,
    },

    /// Elements lie before offset 0, so memory of no size is enough.
    #[error("{operation}: the layout reaches to element {offset}; memory that begins at element 0 cannot hold it")]
    BeforeBegin {
        /// The operation.
        operation: &'static str,
        /// The lowest offset, in elements.
        offset: i64,
    },

    /// A number does not fit into 64 bits.
    #[error("{operation}: {what} does not fit into 64 bits")]
    Overflow {
        /// The operation.
        operation: &'static str,
        /// The number.
        what: &'static str,
    },
}

/// The quantity that an error reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quantity {
    /// The number of elements.
    Volume,
    /// The extent of an axis.
    Extent(usize),
    /// The stride of an axis.
    Stride(usize),
    /// The offset of the first element.
    Offset,
    /// The address of the memory.
    Address,
}

impl core::fmt::Display for Quantity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Quantity::Volume => f.write_str("the number of elements"),
            Quantity::Extent(axis) => write!(f, "the extent of axis {axis}"),
            Quantity::Stride(axis) => write!(f, "the stride of axis {axis}"),
            Quantity::Offset => f.write_str("the offset"),
            Quantity::Address => f.write_str("the address"),
        }
    }
}

/// `main` prints an error by `Debug`, so `Debug` is the message too.
impl core::fmt::Debug for LayoutError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}
