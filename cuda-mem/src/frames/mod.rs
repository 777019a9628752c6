//! Frames that the CPU fills while the device's work on them is already queued.
//!
//! A radio telescope, a capture card, a feed handler: data arrives all the time, and the shortest way from its last byte to
//! the start of the consumer's work is to queue that work first. The work waits on its stream, the CPU fills the frame,
//! and one store of a word lets it run.
//!
//! ```
//! use cuda_mem::frames::FrameRing;
//! use cuda_mem::signal::Signals;
//! use cuda_mem::{Buffer, Driver, Stream, memory::{DeviceMemory, PinnedMemory}};
//!
//! # let driver = Driver::software()?;
//! # let context = driver.device(0)?.primary_context()?;
//! let signals = Signals::new(&context)?;
//! let ring = FrameRing::new(&PinnedMemory::new(&context), &signals, 4, 1500)?;
//! let consumer = Stream::new(&context)?;
//! let mut arrived = Buffer::<u8, _>::zeroed(&DeviceMemory::new(&context), 1500, &consumer)?;
//!
//! for number in 1..=10u8 {
//!     let mut frame = ring.next()?; // the device has read this memory: it is the CPU's
//!     arrived.copy_from_frame(0, &frame, ..)?; // queued now, runs when the frame is published
//!     frame.write(.., |bytes| bytes.fill(number))?; // does not wait for the work that waits for it
//!     frame.publish()?;
//!     assert_eq!(arrived.to_vec()?[0], number);
//! }
//! assert_eq!(ring.statistics().published, 10);
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! # Why not a buffer and a flag
//!
//! [`Buffer::write`](crate::Buffer::write) waits for the device work of the buffer. Where that work waits for a flag that the
//! program raises after the write, neither ever goes on. A [`Frame`] is taken *before* such work is queued: what
//! [`FrameRing::next`] waits for is the work on the memory's *former* frame, and nothing that the program does with the
//! frame waits for the device.
//!
//! # What may still wait for ever
//!
//! - `next` waits for the consumers of the oldest frame. If they are behind another frame, on the same stream, that this
//!   thread has yet to publish, it waits for itself. Publish frames in the order in which their work was queued, or take
//!   them with [`FrameRing::try_next`] or with a time limit.
//! - Whatever waits for the consumer's stream waits for the frame too: [`Stream::synchronize`](crate::Stream::synchronize),
//!   a read of the destination, the drop of memory that the stream uses. Publish or drop the frame first.
//!
//! # Ends
//!
//! A frame that is dropped before it is published releases what waits for it. The next wait for each such stream gives
//! [`FrameError::Abandoned`], because the work has read bytes that nobody had finished. A ring that is dropped does the same
//! for frames that are open, on other threads or forgotten; an open frame is then of no use any more. The memory of a frame
//! is freed when the work that reads it is done.
//!
//! # Several threads
//!
//! A [`Frame`] is a value of its own: it may be moved to another thread, filled there, and published there. Several frames may
//! be open at a time, and a ring may be shared by threads.

mod copy;
mod error;
mod frame;
mod phase;
mod reads;
mod ring;
mod turns;
mod written;

pub use error::FrameError;
pub use frame::Frame;
pub use ring::FrameRing;
pub use turns::FrameRingStatistics;
