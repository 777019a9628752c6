//! Arrow's [C device data interface](https://arrow.apache.org/docs/format/CDeviceDataInterface.html): arrays and streams of
//! arrays, whose buffers are on a device, handed from library to library without a copy.
//!
//! | to | |
//! |---|---|
//! | hand an array out | [`ArrayNode::export`], [`Schema::export`] |
//! | take one over | [`DeviceArray::from_raw`], [`check`](DeviceArray::check), [`wait`](ImportedArray::wait), [`buffer`](ImportedArray::buffer); [`Schema::import`] |
//! | do so with many | [`DeviceArrayStream`] |
//!
//! With the feature `arrow`, batches of the `arrow` crates go to a device and back (`DeviceBatch`), as messages too
//! (`serialize_record_batch`, `read_record_batch`).
//!
//! The structures are the CPU's; only the buffers are on the device. `sync_event` is a pointer to a variable that holds an
//! event: what is handed out has one, and what comes in is used after it. `release` knows no streams, so it comes after the
//! consumer's work: by an event where both sides are this library ([`DeviceArray::release_after`]), else by waiting.
//!
//! ```
//! # let driver = cuda_mem::Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::interchange::arrow::{ArrayNode, DeviceArray};
//! use cuda_mem::{Buffer, memory::DeviceMemory};
//! // An array of 32-bit numbers: nothing is missing, so there is no validity.
//! let values = Buffer::from_slice(&DeviceMemory::new(&context), &[1i32, 2, 3], &stream)?;
//! let values = values.cast::<u8>()?.into_any().into_shared();
//! let array = ArrayNode { length: 3, null_count: Some(0), buffers: vec![None, Some(values)], ..Default::default() };
//! let mut raw = array.export(&stream)?.into_raw(); // an `ArrowDeviceArray`, for the consumer
//!
//! // SAFETY: the structure was just made, and nobody else releases it.
//! let taken = unsafe { DeviceArray::from_raw(&mut raw) }?.check()?;
//! let address = taken.node().buffers[1];
//! // SAFETY: `wait` orders the work of the stream after the producer's, and three numbers have 12 bytes.
//! let numbers = unsafe {
//!     taken.wait(&stream)?;
//!     taken.buffer(address, 12, &stream)?
//! };
//! assert_eq!(numbers.to_vec()?[..4], 1i32.to_ne_bytes());
//! # Ok::<(), cuda_mem::Error>(())
//! ```

mod array;
#[cfg(feature = "arrow")]
mod columnar;
mod error;
mod owned;
mod raw;
mod schema;
mod stream;
#[cfg(test)]
mod tests;

use array::count;

pub use array::ArrayNode;
#[cfg(feature = "arrow")]
pub use columnar::{DeviceBatch, IpcMessage, read_message, read_record_batch, serialize_record_batch};
pub use error::ArrowError;
pub use owned::{DeviceArray, ImportedArray, ImportedNode};
pub use raw::*;
pub use schema::Schema;
pub use stream::DeviceArrayStream;
