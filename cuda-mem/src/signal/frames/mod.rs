//! Frames that the CPU fills while the device work on them is already queued.
//!
//! A radio telescope, a capture card or a feed handler delivers data all the time. To start the consumer's work as soon
//! as possible after the last byte, queue that work first. The work waits on its stream while the CPU fills the frame.
//! One store to a word then starts it.
//!
//! ```
//! use cuda_mem::frames::FrameRing;
//! use cuda_mem::signal::Signals;
//! use cuda_mem::{Buffer, Driver, Stream, memory::{DeviceMemory, PinnedMemory}};
//!
//! let context = Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! let signals = Signals::new(&context)?;
//! let ring = FrameRing::new(&PinnedMemory::new(&context), &signals, 4, 1500)?;
//! let consumer = Stream::new(&context)?;
//! let mut arrived = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 1500, &consumer)?;
//!
//! for number in 1..=10u8 {
//!     let mut frame = ring.next()?; // no device work reads this memory any more
//!     arrived.copy_from_frame(0, &frame, ..)?; // queued now, runs when the frame is published
//!     frame.write(.., |bytes| bytes.fill(number))?; // does not wait for the queued copy
//!     frame.publish()?;
//!     assert_eq!(arrived.to_vec()?[0], number);
//! }
//! assert_eq!(ring.statistics().published, 10);
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! # Why not a buffer and a flag
//!
//! [`Buffer::write`](crate::Buffer::write) waits for the buffer's device work. If that work waits for a flag that the
//! program sets after the write, neither continues. A [`Frame`] is taken *before* such work is queued:
//! [`FrameRing::next`] waits for the work on the memory's *former* frame, and nothing that the program does with the
//! frame waits for the device.
//!
//! # What may still wait for ever
//!
//! - `next` waits for the consumers of the oldest frame. If these are queued behind another frame, on the same stream,
//!   that the calling thread has yet to publish, `next` never returns. Publish frames in the order in which their work
//!   was queued, or take them with [`FrameRing::try_next`] or a time limit.
//! - Calls that wait for the consumer's stream wait for the frame too:
//!   [`Stream::synchronize`](crate::Stream::synchronize), a read of the destination, the drop of memory that the stream
//!   uses. Publish or drop the frame first.
//!
//! # Ends
//!
//! A frame that is dropped before it is published releases the streams that wait for it. The next wait for each such
//! stream returns [`FrameError::Abandoned`], because its work has read unfinished bytes. Dropping a ring does the same
//! for its open frames, on other threads or forgotten; these frames cannot be used any more. A frame's memory is freed
//! when the work that reads it is done.
//!
//! # Several threads
//!
//! A [`Frame`] may be moved to another thread, and filled and published there. Several frames may be open at a time,
//! and threads may share a ring.

mod copy;
mod frame;
mod phase;
mod reads;
mod ring;
mod turns;
mod written;

pub use crate::error::FrameError;
pub use frame::Frame;
pub use ring::FrameRing;
pub use turns::FrameRingStatistics;
