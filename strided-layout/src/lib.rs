//! Shapes of arrays in memory.
//!
//! A [`StridedLayout`] holds the positions of an array's elements: shape, strides, element size, offset. [`plan()`] turns
//! a copy between two layouts into at most three steps, for the processors that can address the two sides. A
//! [`DataType`] is the type of an element, with the names of DLPack and numpy.
//!
//! The crate uses no memory, no streams and no driver: layouts are numbers, and a plan names places without addresses.
//! Its dependencies cannot call a driver either.
//!
//! ```
//! use strided_layout::{How, Order, Reached, Side, StridedLayout, Strides, plan};
//!
//! let matrix = StridedLayout::dense(&[300, 200], 4, Order::C)?;
//! let band = StridedLayout::dense(&[300, 250], 4, Order::C)?.sliced(&[(..).into(), (..200).into()])?;
//! let side = |layout: &StridedLayout, reached, on_host| Side {
//!     strides: Strides { offset: layout.byte_offset(), strides: layout.byte_strides().into() },
//!     reached,
//!     on_host,
//! };
//! // Rows of a wider matrix on the device, into a dense matrix on the host: one copy of rows.
//! let (to, from) = (side(&matrix, Reached::Host, true), side(&band, Reached::Device(0), false));
//! let steps = plan(matrix.shape(), matrix.item_size(), &to, &from, true);
//! assert_eq!(steps.iter().map(|step| step.how).collect::<Vec<_>>(), [How::Rows]);
//! # Ok::<(), strided_layout::LayoutError>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
mod copy_tests;
mod data_type;
mod layout;
mod packed;
mod pattern;
mod plan;
mod sums;

pub use data_type::{DataType, DataTypeError, TypeCode};
pub use layout::{Extent, Index, LayoutError, MAX_DIMENSIONS, Numbers, Order, Quantity, StridedLayout};
pub use packed::in_bytes;
pub use pattern::{Axis, Pattern, Planes, Reach, Strides};
pub use plan::{How, Place, Reached, Side, Step, plan, size_of_temporary};
