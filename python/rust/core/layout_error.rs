//! Errors of layouts as exceptions, with the words of cuda.core where programs may look for them.

use cuda_mem::view::{LayoutError, MAX_DIMENSIONS, Quantity};
use pyo3::PyErr;
use pyo3::exceptions::{PyOverflowError, PyValueError};

/// The exception of an error. Numbers that overflow raise OverflowError, all others ValueError.
pub fn raised(error: LayoutError) -> PyErr {
    match error {
        LayoutError::Overflow { .. } => PyOverflowError::new_err(text(&error)),
        _ => PyValueError::new_err(text(&error)),
    }
}

/// The text of an error, in the words of cuda.core where it has the same refusal, else in the library's.
fn text(error: &LayoutError) -> String {
    match *error {
        LayoutError::TooManyDimensions { dimensions, .. } => {
            format!("Unsupported number of dimensions: {dimensions}, but a layout has at most {MAX_DIMENSIONS}")
        }
        LayoutError::Length { argument: "the list of axes", length, expected, .. } => {
            format!(
                "The list of axes has {length} entries, but it must have the same length as the number of dimensions, {expected}"
            )
        }
        LayoutError::Length { argument: "the new shape", length, expected, .. } => {
            format!("The new shape has {length} extents, but their number must be greater than or equal to {expected}")
        }
        LayoutError::RepeatedAxis { axis, .. } => {
            format!("axis {axis} appears multiple times, but it must appear once")
        }
        LayoutError::Axis { axis, dimensions, .. } => {
            format!("Invalid axis: axis {axis} out of range for {dimensions} dimensions")
        }
        LayoutError::ZeroStep { axis, .. } => format!("slice step cannot be zero, but that of axis {axis} is"),
        LayoutError::TooManyIndices { indices, dimensions, .. } => {
            format!("The number of slices, {indices}, is greater than the number of dimensions, {dimensions}")
        }
        LayoutError::Index { axis, index, extent, .. } => {
            format!("Index {index} out of range for axis {axis} with extent {extent}")
        }
        LayoutError::Volume { from, to, .. } => {
            format!("The original volume {from} and the new volume {to} must be equal.")
        }
        LayoutError::Extent { axis, extent, rule, .. } if extent < 0 => {
            format!("Extents must be non-negative: the extent of axis {axis} is {extent}, but {rule}")
        }
        LayoutError::Extent { axis, .. } => format!("The extent must be non-zero at axis {axis} to repack along it"),
        LayoutError::TwoUnknown { axis, .. } => {
            format!("There can be at most one -1 extent in a shape, but that of axis {axis} is the second")
        }
        LayoutError::Ambiguous { axis, .. } => {
            format!("The -1 extent is ambiguous when the specified sub-volume is 0, as it is beside axis {axis}")
        }
        LayoutError::Indivisible { what: Quantity::Volume, value, divisor, .. } => {
            format!("The original volume {value} must be divisible by the specified sub-volume {divisor}")
        }
        LayoutError::Indivisible { operation: "StridedLayout::with_byte_strides", what, value, divisor } => {
            format!("strides must be divisible by itemsize: {what} is {value} bytes, but the itemsize is {divisor}")
        }
        LayoutError::Indivisible { what: Quantity::Offset, value, divisor, .. } => {
            format!("The slice offset ({value}) must be divisible by {divisor}")
        }
        LayoutError::Indivisible { what: Quantity::Address, value, divisor, .. } => {
            format!("The data pointer ({value:#x}) must be aligned to the packed itemsize ({divisor})")
        }
        LayoutError::Indivisible { what: Quantity::Extent(axis), value, divisor, .. } => {
            format!("The extent ({value}) of axis {axis} must be divisible by {divisor}")
        }
        LayoutError::Indivisible { what: Quantity::Stride(axis), value, divisor, .. } => {
            format!("The stride ({value}) of axis {axis} must be divisible by {divisor}")
        }
        LayoutError::Stride { axis, stride, .. } => {
            format!("The axis {axis} stride must be 1 to repack along it, but it is {stride}")
        }
        LayoutError::IncompatibleStrides { axis, .. } => format!(
            "Layout strides are incompatible with the new shape, from its axis {axis} on: copy the elements to a dense \
             layout first"
        ),
        LayoutError::Broadcast { axis, from, to, .. } => format!(
            "Shapes cannot be broadcast together: axis {axis} of extent {from} cannot become {to}, because only extent 1 repeats"
        ),
        LayoutError::BeforeBegin { offset, .. } => format!(
            "Allocation size for a layout that maps elements to negative memory offsets is ambiguous: the lowest offset is {offset}"
        ),
        ref other => other.to_string(),
    }
}
