//! What carries messages between two hosts. Peers use an engine by these traits alone.

pub(crate) mod handshake;
pub(crate) mod sockets;

use crate::error::Cause;
use crate::wire::Message;
use core::fmt::Debug;
use std::net::SocketAddr;

/// A connection, in three parts for three threads.
pub(crate) struct Connection {
    /// The other host.
    pub address: SocketAddr,
    pub sender: Box<dyn Sender>,
    pub receiver: Box<dyn Receiver>,
    pub closer: Box<dyn Closer>,
    /// The name of the engine and of the protection, for the program.
    pub engine: &'static str,
}

/// Sends messages in order.
pub(crate) trait Sender: Send {
    /// Sends a message. Waits while the connection is full.
    fn send(&mut self, message: &Message<'_>) -> Result<(), Cause>;
}

/// Receives messages in order. None comes twice, changed or in part.
pub(crate) trait Receiver: Send {
    /// The next message, which the next call overwrites. `None`: nothing came for [`LOOK`].
    fn receive(&mut self) -> Result<Option<Message<'_>>, Cause>;
}

/// Ends a connection from any thread.
pub(crate) trait Closer: Send + Sync + Debug {
    /// Nothing more is sent. The other side gets what was.
    fn finish(&self);
    /// Both other parts return an error soon.
    fn close(&self);
}

/// How long a receiver waits for a byte before its caller looks at its clocks.
pub(crate) const LOOK: core::time::Duration = core::time::Duration::from_millis(100);
