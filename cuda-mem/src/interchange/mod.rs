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
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::interchange::{Consumer, ExportOptions};
//! use cuda_mem::{Buffer, Stream, memory::DeviceMemory};
//! let buffer = Buffer::from_slice(&DeviceMemory::new(&context), &[1.0f32, 2.0, 3.0, 4.0], &stream)?.into_shared();
//! let square = buffer.tensor().with_layout(0, &[2, 2], None)?;
//!
//! // To a library that works on a stream of its own, which waits for ours.
//! let theirs = Stream::new(&context)?;
//! let exported = square.to_dlpack(&ExportOptions { consumer: Consumer::Stream(&theirs), ..Default::default() })?;
//! assert_eq!(exported.check()?.tensor().shape(), [2, 2]);
//!
//! // To one that asks for an array interface.
//! assert!(square.cuda_array_interface()?.to_json().contains("\"typestr\":\"<f4\""));
//! # Ok::<(), cuda_mem::Error>(())
//! ```

pub mod array_interface;
pub mod arrow;
mod buffer;
pub mod dlpack;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
mod held;
mod order;
mod shared;
mod tensor;
mod view;

use shared::{adopt, device_of};

pub use order::StreamName;
pub use shared::{Consumer, Copying, ExportOptions, Release, SharedTensor};
pub use tensor::{MAX_DIMENSIONS, Tensor, TensorDevice, TensorError, TensorParts};
