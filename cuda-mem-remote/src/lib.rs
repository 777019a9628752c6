//! Memory of GPUs on other hosts: frames that the network fills, and memory that peers fetch and write.
//!
//! Two programs connect, on two hosts or on one. Both have the same [`Key`]. Then
//!
//! - [frames](Peer::frames) go from one's buffers into the other's [`FrameRing`](cuda_mem::frames::FrameRing): work that is queued
//!   on a frame starts when its last byte is here;
//! - peers [fetch](RemoteMemory::fetch) and [write](RemoteMemory::write) memory that its owner [offers](Remote::offer), by the
//!   ticket of the offer.
//!
//! ```
//! use cuda_mem::memory::{DeviceMemory, PinnedMemory};
//! use cuda_mem::{Buffer, Driver, Stream, frames::FrameRing, signal::Signals};
//! use cuda_mem_remote::{Key, Remote, RemoteOptions, Rights};
//!
//! let context = Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! let (key, options) = (Key::generate()?, RemoteOptions::default());
//! let (here, there) = (Remote::new(&context, &key, &options)?, Remote::new(&context, &key, &options)?);
//! let listener = there.listen("127.0.0.1:0")?; // one interface
//! let (peer, other) = (here.connect(listener.address())?, listener.accept()?);
//!
//! // Frames: first the work on a frame is queued, then the network fills it.
//! let (memory, stream) = (DeviceMemory::new(&context), Stream::new(&context)?);
//! let ring = FrameRing::new(&PinnedMemory::new(&context), &Signals::new(&context)?, 4, 1000)?;
//! let mut arrived = Buffer::<u8, _>::zeroed(&memory, 1000, &stream)?;
//! let incoming = other.receive_frames("band-3", &ring)?;
//! let frame = ring.next()?;
//! arrived.copy_from_frame(0, &frame, ..)?;
//! incoming.fill(frame)?;
//! let sample = Buffer::<u8, _>::from_slice(&memory, &[7; 1000], &Stream::new(&context)?)?;
//! peer.frames("band-3", 1000)?.send(&sample, ..)?;
//! assert_eq!(arrived.to_vec()?, [7; 1000]);
//!
//! // Memory: its owner offers it, and a peer with the ticket fetches a part.
//! let block = arrived.into_shared();
//! let offer = there.offer(&block, Rights::Read);
//! let cache = Buffer::<u8, _>::zeroed(&memory, 100, &Stream::new(&context)?)?.into_shared();
//! peer.open(&offer.ticket())?.fetch(200..300, &cache, 0)?.wait()?;
//! assert_eq!(cache.to_vec()?, [7; 100]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order
//!
//! A send or a write copies after the work of its buffer's stream so far, and later work of that stream comes after the copy. A
//! fetch has queued its copies when it ends, so later work of the destination's stream comes after them. No call waits for work
//! of the device, except [`IncomingFrames::next`], and sends and writes from memory of the host, whose copies the CPU makes.
//!
//! # What is protected
//!
//! The connection is TCP, or UCX where all that reach it are [trusted](Engine::UcxTrustedNetwork), sealed by the Noise protocol (`Noise_NNpsk0_25519_AESGCM_SHA256`, of the crate `snow`): who lacks the key
//! can neither connect, nor read, change, repeat or leave out a byte of what peers send. Who has the key may connect, send
//! frames under names that this program receives, and reach what it has a ticket for. A ticket names no address: the owner
//! looks the memory up, and checks each range.
//!
//! # Deaths
//!
//! A peer whose process ends is known to be gone at once; one that is stopped, or whose packets vanish, after
//! [`RemoteOptions::silence`]. Whatever waits for it then returns [`Error::PeerGone`], and streams that wait for its frames
//! get [`FrameError::Abandoned`](cuda_mem::frames::FrameError::Abandoned). A frame that has arrived in part is never published. All
//! memory can be used again. Connect again to go on.
//!
//! A forked process has none of the threads: [`Error::Forked`].

mod engine;
mod error;
mod key;
mod listener;
mod memory;
mod options;
mod peer;
mod remote;
mod shelf;
mod staging;
mod wire;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    //! The function that the fuzz target runs.

    pub use crate::wire::fuzzing::read;
}

pub use error::{Cause, Error, Result};
pub use key::Key;
pub use listener::Listener;
pub use options::{Engine, RemoteOptions};
pub use peer::{IncomingFrames, Operation, OutgoingFrames, Peer, RemoteMemory, Transport};
pub use remote::Remote;
pub use shelf::Offer;
pub use wire::{Rights, Ticket, TicketError};
