//! Why a layout cannot be.

/// Why a layout, or an operation on one, cannot be.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// More dimensions than a layout has.
    #[error("{operation}: {dimensions} dimensions, but a layout has {} at most", super::MAX_DIMENSIONS)]
    TooManyDimensions {
        /// The operation.
        operation: &'static str,
        /// How many there would be.
        dimensions: usize,
    },

    /// A list has not as many entries as there are dimensions.
    #[error("{operation}: {argument} has {length} entries, but {expected} are needed")]
    Length {
        /// The operation.
        operation: &'static str,
        /// The list.
        argument: &'static str,
        /// How long it is.
        length: usize,
        /// How long it has to be.
        expected: usize,
    },

    /// An extent that cannot be.
    #[error("{operation}: the extent of axis {axis} is {extent}, but {rule}")]
    Extent {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
        /// Its extent.
        extent: i64,
        /// What it has to be.
        rule: &'static str,
    },

    /// A stride that cannot be.
    #[error("{operation}: the stride of axis {axis} is {stride}, but {rule}")]
    Stride {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
        /// Its stride.
        stride: i64,
        /// What it has to be.
        rule: &'static str,
    },

    /// Something is not a multiple of what it must be.
    #[error("{operation}: {what} is {value}, but must be a multiple of {divisor}")]
    Indivisible {
        /// The operation.
        operation: &'static str,
        /// What is no multiple.
        what: Quantity,
        /// Its value.
        value: i64,
        /// What it must be a multiple of.
        divisor: i64,
    },

    /// There is no such axis.
    #[error("{operation}: axis {axis} is out of range for {dimensions} dimensions")]
    Axis {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: i64,
        /// How many dimensions there are.
        dimensions: usize,
    },

    /// An axis was named twice.
    #[error("{operation}: axis {axis} appears twice, but each axis is named once")]
    RepeatedAxis {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
    },

    /// More indices than dimensions.
    #[error("{operation}: {indices} indices, but the layout has {dimensions} dimensions")]
    TooManyIndices {
        /// The operation.
        operation: &'static str,
        /// How many indices were given.
        indices: usize,
        /// How many dimensions there are.
        dimensions: usize,
    },

    /// An index lies outside of its axis.
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
    #[error("{operation}: the step of axis {axis} is 0, but a slice goes somewhere")]
    ZeroStep {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
    },

    /// Two shapes have not as many elements.
    #[error("{operation}: the new shape has {to} elements, but the layout has {from}")]
    Volume {
        /// The operation.
        operation: &'static str,
        /// The elements of the layout.
        from: i64,
        /// The elements of the new shape.
        to: i64,
    },

    /// The extent of -1 cannot be found.
    #[error(
        "{operation}: the extent -1 of axis {axis} is ambiguous: one extent may be -1, and the others must not be 0"
    )]
    Ambiguous {
        /// The operation.
        operation: &'static str,
        /// The axis.
        axis: usize,
    },

    /// No strides give the new shape: the elements have to be copied first.
    #[error(
        "{operation}: no strides give the new shape from axis {axis} on; copy the elements to a dense layout first"
    )]
    IncompatibleStrides {
        /// The operation.
        operation: &'static str,
        /// Where in the new shape it fails.
        axis: usize,
    },

    /// A shape cannot be broadcast to another.
    #[error("{operation}: axis {axis} of extent {from} cannot be broadcast to extent {to}: it must be 1, or equal")]
    Broadcast {
        /// The operation.
        operation: &'static str,
        /// The axis of the new shape.
        axis: usize,
        /// The extent.
        from: i64,
        /// The new extent.
        to: i64,
    },

    /// An item size that cannot be.
    #[error("{operation}: the item size is {size}, but {rule}")]
    ItemSize {
        /// The operation.
        operation: &'static str,
        /// The item size, in bytes.
        size: usize,
        /// What it has to be.
        rule: &'static str,
    },

    /// Elements lie before the beginning, so that no size of memory is enough.
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

/// What an error speaks of.
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
