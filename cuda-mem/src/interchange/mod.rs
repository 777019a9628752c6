//! Memory that goes to other libraries and comes from them, without a copy.
//!
//! A [`Tensor`] is what libraries say of an array: its numbers, checked. The protocols carry it: [`dlpack`].

pub mod dlpack;
mod order;
mod tensor;

pub use order::StreamName;
pub use tensor::{MAX_DIMENSIONS, Tensor, TensorDevice, TensorError, TensorParts};
