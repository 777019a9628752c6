//! A connection to another host.
//!
//! Four threads serve it. The writer sends, the reader receives, the lander copies what has come to the program's memory, and the
//! server answers what the peer fetches. The reader waits neither for the network nor for a stream: so two peers that send to
//! each other at full speed cannot stop each other, and a frame for which a stream waits is always filled.

mod arrival;
mod frames;
mod lander;
mod link;
mod operation;
mod pieces;
mod reader;
mod remote_memory;
mod server;
mod state;
mod writer;

pub use frames::{IncomingFrames, OutgoingFrames};
pub use operation::Operation;
pub use remote_memory::RemoteMemory;

use crate::engine::Connection;
use crate::remote::Inner;
use crate::{Cause, Error, Result, Ticket};
use core::fmt;
use core::time::Duration;
use cuda_mem::frames::FrameRing;
use link::Link;
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection to a program on another host, or on this one. Clones are the same connection.
///
/// When the last clone ends, and the last value made from it, the connection closes after what is queued was sent; that drop
/// waits for nothing. [`close`](Self::close) waits.
#[derive(Clone)]
pub struct Peer {
    handle: Arc<Handle>,
}

/// Closes the connection at its end.
pub(crate) struct Handle {
    link: Arc<Link>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The threads are the parent's.
        if self.link.remote.is_forked() {
            return;
        }
        self.link.close();
    }
}

impl Peer {
    pub(crate) fn new(remote: &Arc<Inner>, connection: Connection) -> Result<Self> {
        let link = Link::start(remote, connection)?;
        Ok(Self { handle: Arc::new(Handle { link }) })
    }

    /// The address of the other side.
    pub fn address(&self) -> SocketAddr {
        self.handle.link.address
    }

    /// What carries the bytes: the engine, its protection, and the way for each kind of memory.
    pub fn transport(&self) -> Transport {
        let link = &self.handle.link;
        Transport {
            engine: link.engine.clone(),
            address: link.address,
            staging: link.remote.slots() * crate::staging::SLOT,
        }
    }

    /// Begins a sequence of frames of a name, each of `size` bytes. The other side receives them by
    /// [`receive_frames`](Self::receive_frames); which of the two comes first makes no difference.
    ///
    /// # Errors
    ///
    /// This connection has sent frames of that name; the name is empty or longer than 255 bytes; `size` is 0; the peer is gone.
    pub fn frames(&self, name: &str, size: usize) -> Result<OutgoingFrames> {
        OutgoingFrames::new(self.handle.clone(), name, size)
    }

    /// Begins to receive frames of a name, each of the size of this ring's frames.
    ///
    /// # Errors
    ///
    /// This connection has received frames of that name; the name is empty or longer than 255 bytes; the peer is gone.
    pub fn receive_frames(&self, name: &str, ring: &FrameRing) -> Result<IncomingFrames> {
        IncomingFrames::new(self.handle.clone(), name, ring.frame_size())
    }

    /// The memory of a ticket of that peer. Nothing is asked for: the first fetch or write tells whether the ticket serves.
    ///
    /// # Errors
    ///
    /// The peer is gone.
    pub fn open(&self, ticket: &Ticket) -> Result<RemoteMemory> {
        self.handle.link.check("Peer::open")?;
        Ok(RemoteMemory::new(self.handle.clone(), *ticket))
    }

    /// Is the connection alive? It ends when either side closes it, or the other is not heard of for
    /// [`RemoteOptions::silence`](crate::RemoteOptions::silence).
    ///
    /// # Errors
    ///
    /// [`Error::PeerGone`] says what has ended it.
    pub fn check(&self) -> Result<()> {
        self.handle.link.check("Peer::check")
    }

    /// Waits until the connection ends, and says what has ended it. For a program that only serves.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn wait_for_end(&self) -> Result<Cause> {
        self.handle.link.remote.check("Peer::wait_for_end")?;
        Ok(self.handle.link.wait_for_end())
    }

    /// Sends what is queued, closes the connection, and waits until its threads have ended: all its memory is free then, except
    /// that of copies on streams that are held up. What the peer has asked for and not received is lost.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]: the deadline passed first. The rest ends later.
    pub fn close(self) -> Result<()> {
        const CALL: &str = "Peer::close";
        let (link, deadline) = (self.handle.link.clone(), self.handle.link.remote.options.deadline);
        link.remote.check(CALL)?;
        link.close();
        let why = "a stream or the network holds up what was sent";
        if link.wait_for_threads(deadline) { Ok(()) } else { Err(Error::TimedOut { call: CALL, after: deadline, why }) }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gone = self.link.gone();
        f.debug_struct("Peer").field("address", &self.link.address).field("gone", &gone).finish_non_exhaustive()
    }
}

/// What carries the bytes of a connection. Its text names all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transport {
    /// The engine and its protection.
    pub engine: String,
    /// The other side.
    pub address: SocketAddr,
    /// The page-locked memory in each direction, in bytes. All memory goes through it, except frames that arrive: their bytes
    /// are stored directly into the frame's memory.
    pub staging: usize,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, address, staging } = self;
        let slots = staging / crate::staging::SLOT;
        write!(
            f,
            "{engine}, to {address}; memory of every kind through {slots} page-locked slots of {} KiB in each direction, received \
             frames without",
            crate::staging::SLOT >> 10
        )
    }
}

/// When the threads of a connection send a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(1);
