//! Memory that goes to other libraries and comes from them, without a copy, in order, and never dangling.
//!
//! A [`Tensor`] is what libraries say of an array: its numbers, checked. A [`SharedTensor`] is an array with its memory;
//! a [`StridedView`](crate::view::StridedView) becomes one, and one a view.
//! The protocols carry it: [`dlpack`], [`array_interface`], and [`arrow`]
//! with structures of its own.
//!
//! **Order.** What goes out is ordered before the consumer's stream by an event, and what comes in is ordered after the
//! producer's; the CPU waits only where the CPU is the consumer. When a consumer lets go, the memory is used again, or
//! freed, after the work that its stream has by then ([`Release`]).
//!
//! **Life.** Memory that others have is not freed under them. Whoever drops the buffer defers the free until the last
//! consumer has let go; [`SharedBuffer::close`](crate::SharedBuffer::close) is refused until then.

pub mod array_interface;
pub mod arrow;
mod buffer;
pub mod dlpack;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
mod order;
mod shared;
mod tensor;
mod view;

use shared::{adopt, device_of};

pub use order::StreamName;
pub use shared::{Consumer, Copying, ExportOptions, Release, SharedTensor};
pub use tensor::{MAX_DIMENSIONS, Tensor, TensorDevice, TensorError, TensorParts};
