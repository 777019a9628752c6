//! What carries bytes between two hosts. An engine makes pipes; on each of them, both sides prove that they have the key, and
//! every message is sealed.

pub(crate) mod handshake;
mod sealed;
pub(crate) mod sockets;
pub(crate) mod ucx;

pub(crate) use sealed::{Opening, Sealing, connection};

use crate::error::Cause;
use core::fmt::Debug;
use core::time::Duration;
use std::net::SocketAddr;

/// A way for messages of up to [`MAX_SEALED`] bytes to another host and back, in three parts for three threads.
pub(crate) struct Pipe {
    /// The other host.
    pub address: SocketAddr,
    pub sender: Box<dyn Sender>,
    pub receiver: Box<dyn Receiver>,
    pub closer: Box<dyn Closer>,
    /// The name of the engine, for the program.
    pub engine: String,
}

/// A pipe whose messages are sealed.
pub(crate) struct Connection {
    pub address: SocketAddr,
    pub sender: Sealing,
    pub receiver: Opening,
    pub closer: Box<dyn Closer>,
    pub engine: String,
}

/// Sends messages in order.
pub(crate) trait Sender: Send {
    /// Sends the message that `fill` puts into the engine's memory: it returns the message's size. Waits while the way is full.
    /// If more messages follow at once, the engine may send this one with the next.
    fn send(&mut self, more: bool, fill: &mut Fill<'_>) -> Result<(), Cause>;

    /// Sends a message.
    fn send_bytes(&mut self, message: &[u8]) -> Result<(), Cause> {
        self.send(false, &mut |memory| {
            memory[..message.len()].copy_from_slice(message);
            Ok(message.len())
        })
    }
}

/// Writes a message into memory for [`MAX_SEALED`] bytes.
pub(crate) type Fill<'a> = dyn FnMut(&mut [u8]) -> Result<usize, Cause> + 'a;

/// Receives messages in order.
pub(crate) trait Receiver: Send {
    /// The next message, of at most so many bytes. `None`: none came for [`LOOK`].
    fn receive(&mut self, most: usize) -> Result<Option<&[u8]>, Cause>;
}

/// Ends a connection from any thread.
pub(crate) trait Closer: Send + Sync + Debug {
    /// Nothing more is sent. The other side gets what was.
    fn finish(&self);
    /// Both other parts return an error soon.
    fn close(&self);
}

/// How long a receiver waits for a message before its caller looks at its clocks.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// The most bytes of a message of Noise, with the tag that proves it.
pub(crate) const MAX_SEALED: usize = 65_535;
