//! Arrow's [C device data interface](https://arrow.apache.org/docs/format/CDeviceDataInterface.html): libraries hand
//! arrays and streams of arrays, whose buffers are on a device, to each other without copies.
//!
//! | to | use |
//! |---|---|
//! | export an array | [`ArrayNode::export`], [`Schema::export`] |
//! | import an array | [`DeviceArray::from_raw`], [`check`](DeviceArray::check), [`wait`](ImportedArray::wait), [`buffer`](ImportedArray::buffer); [`Schema::import`] |
//! | export or import a stream of arrays | [`DeviceArrayStream`] |
//!
//! With the feature `arrow`, batches of the `arrow` crates travel to a device and back (`DeviceBatch`), also as
//! messages (`serialize_record_batch`, `read_record_batch`).
//!
//! The structures lie in memory of the CPU; only the buffers lie on the device. `sync_event` points to a variable that
//! holds an event. An exported array has such an event, and an import is used after it. `release` has no stream
//! parameter, so it must come after the consumer's work. If both sides are this library, an event orders it
//! ([`DeviceArray::release_after`]); otherwise the consumer waits.
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::interchange::arrow::{ArrayNode, DeviceArray};
//! use cuda_mem::{Buffer, memory::DeviceMemory};
//! // An array of 32-bit numbers. No value is missing, so the array has no validity buffer.
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
mod owned;
mod raw;
mod schema;
mod stream;
#[cfg(test)]
mod tests;

use array::count;

pub use crate::error::ArrowError;
pub use array::ArrayNode;
#[cfg(feature = "arrow")]
pub use columnar::{DeviceBatch, IpcMessage, read_message, read_record_batch, serialize_record_batch};
pub use owned::{DeviceArray, ImportedArray, ImportedNode};
pub use raw::*;
pub use schema::Schema;
pub use stream::DeviceArrayStream;
