//! Arrays in memory: layouts, views, and copies between them.
//!
//! A [`StridedLayout`] says where the elements of an array lie. A [`StridedView`] is a layout over memory: of a buffer, of
//! a slice of the CPU's, or of another library.

mod copy;
mod error;
mod host;
mod layout;
mod memory;
#[cfg(feature = "ndarray")]
mod ndarray;
mod parts;
mod strided;

pub use copy::CopyOptions;
pub(crate) use copy::{Axis, Pattern};
pub use error::ViewError;
pub use host::{HostElements, HostElementsMut};
pub use layout::{Index, LayoutError, MAX_DIMENSIONS, Order, Quantity, StridedLayout};
pub use strided::StridedView;
