//! Memory exchange with other libraries: without copies, with ordered work, and without dangling pointers.
//!
//! A [`Tensor`] is the checked description of an array. A [`SharedTensor`] is an array with its memory; it converts
//! from and to a [`StridedView`](crate::array::view::StridedView). Three protocols carry arrays: [`dlpack`],
//! [`array_interface`], and [`arrow`], which has its own structures.
//!
//! **Order.** An event orders the consumer's stream after the work on exported memory, and our stream after the
//! producer's work on imported memory. The CPU waits only if it is the consumer. After a consumer has released memory,
//! the next use or the free comes after the work that its stream has at that time ([`Release`]).
//!
//! **Lifetime.** Memory stays allocated while other libraries hold it. A drop of the buffer defers the free until the
//! last consumer has released the memory, and [`SharedBuffer::close`](crate::SharedBuffer::close) is refused until
//! then.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::interchange::{Consumer, ExportOptions};
//! use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
//! let buffer = Buffer::from_slice(&DeviceMemory::new(&context), &[1.0f32, 2.0, 3.0, 4.0], &stream)?.into_shared();
//! let square = buffer.tensor().with_layout(0, &[2, 2], None)?;
//!
//! // To a library that works on its own stream; that stream waits for ours.
//! let theirs = Stream::new(&context)?;
//! let exported = square.to_dlpack(&ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() })?;
//! assert_eq!(exported.check()?.tensor().shape(), [2, 2]);
//!
//! // To a library that asks for an array interface.
//! assert!(square.cuda_array_interface()?.to_json().contains("\"typestr\":\"<f4\""));
//! # Ok::<(), cuda_mem::Error>(())
//! ```

pub mod array_interface;
pub mod arrow;
mod buffer;
#[cfg(feature = "cudarc")]
pub mod cudarc;
pub mod dlpack;
mod exported_memory;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
mod order;
mod shared;
mod tensor;
mod view;

use shared::{adopt, device_of};

pub use crate::error::TensorError;
pub use order::StreamName;
pub use shared::{Consumer, Copying, ExportOptions, Release, SharedTensor};
pub use tensor::{MAX_DIMENSIONS, Tensor, TensorDevice, TensorParts};
