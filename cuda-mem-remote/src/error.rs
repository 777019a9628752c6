//! The errors of this crate.

use crate::TicketError;
use core::time::Duration;
use cuda_mem::cuda_sys::load::LoadError;
use std::io;
use std::net::SocketAddr;

/// An error of memory on another host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver, or an argument of a copy.
    #[error(transparent)]
    Cuda(#[from] cuda_mem::Error),
    /// The system refused a call.
    #[error("{call} of {address} failed: {why}")]
    System {
        /// The call.
        call: &'static str,
        /// The address.
        address: String,
        /// What the system says.
        #[source]
        why: io::Error,
    },
    /// The engine's library cannot be loaded.
    #[error(transparent)]
    NoEngine(#[from] LoadError),
    /// UCX refuses a call.
    #[error("UCX: {call}: {status}")]
    Ucx {
        /// The call.
        call: &'static str,
        /// What it says.
        status: String,
    },
    /// Nobody answers at the address.
    #[error(
        "{address} does not answer within {after:?}: see that the other program listens there, and that no firewall is between"
    )]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The time limit.
        after: Duration,
    },
    /// The connection ended before anything came from the other program.
    #[error(
        "{address} refuses a connection over {engine}: {cause}: see that the other program listens there over the same engine, \
         and that its UCX is the same release"
    )]
    Refused {
        /// The address.
        address: SocketAddr,
        /// The engine of this side. Of UCX, with its release.
        engine: String,
        /// What ended it.
        cause: Cause,
    },
    /// The program at the address is no peer, or another release.
    #[error("{address} {}: this release speaks protocol {ours}", match theirs {
        Some(theirs) => format!("speaks protocol {theirs}"),
        None => "is no cuda-mem-remote".to_owned(),
    })]
    Release {
        /// The address.
        address: SocketAddr,
        /// Its protocol, if it is a peer.
        theirs: Option<u16>,
        /// This release's protocol.
        ours: u16,
    },
    /// The peer has another key.
    #[error("{address} has another key: give all peers the same")]
    WrongKey {
        /// The address.
        address: SocketAddr,
    },
    /// The connection has ended. Connect again.
    #[error("the peer {address} is gone: {cause}")]
    PeerGone {
        /// Its address.
        address: SocketAddr,
        /// What ended it.
        cause: Cause,
    },
    /// The peer is there, but this did not happen in time.
    #[error("{call} waited for {after:?}: {why}")]
    TimedOut {
        /// The call.
        call: &'static str,
        /// The time limit, which is [`RemoteOptions::deadline`](crate::RemoteOptions::deadline).
        after: Duration,
        /// What did not happen.
        why: &'static str,
    },
    /// A ticket does not serve.
    #[error(transparent)]
    Ticket(#[from] TicketError),
    /// The owner of the memory could not do it.
    #[error("{call}: the owner {address} {why}")]
    Owner {
        /// The call.
        call: &'static str,
        /// The owner.
        address: SocketAddr,
        /// What it says.
        why: &'static str,
    },
    /// Work of this program has failed.
    #[error("{call}: {why}")]
    Failed {
        /// The call.
        call: &'static str,
        /// Which work.
        why: &'static str,
    },
    /// An option is out of bounds.
    #[error("Remote::new: RemoteOptions::{option} is {value:?}, and must be {bounds}")]
    Options {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: Duration,
        /// What it may be.
        bounds: &'static str,
    },
    /// Sizes differ.
    #[error("{call}: {what} has {value} bytes, and {limit} are {rule}")]
    Size {
        /// The call.
        call: &'static str,
        /// What has a size.
        what: &'static str,
        /// The size in bytes.
        value: u64,
        /// What is needed or allowed.
        limit: u64,
        /// Which of them.
        rule: &'static str,
    },
    /// Frames of this name are used already, or the name is too long.
    #[error("{call}: the name {name:?} {why}")]
    Name {
        /// The call.
        call: &'static str,
        /// The name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// These are not 64 hexadecimal digits.
    #[error(
        "Key::from_hex: {digits} characters are no key, which has 64 hexadecimal digits: make one with Key::generate"
    )]
    Key {
        /// How many characters.
        digits: usize,
    },
    /// The system has no random numbers.
    #[error("the system gives no random numbers for keys")]
    Random,
    /// This process was forked from that which connected.
    #[error("{call}: this process was forked from the one that made the connection: connect here")]
    Forked {
        /// The call.
        call: &'static str,
    },
}

/// The result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The peer closed the connection, or its process has ended.
    #[error("it closed the connection")]
    Closed,
    /// This program closed the connection.
    #[error("this program closed the connection")]
    ClosedHere,
    /// Not a byte came for this time, although a peer sends one each second.
    #[error("nothing came from it for {after:?}")]
    Silent {
        /// How long.
        after: Duration,
    },
    /// The system reports an error of the connection.
    #[error("the system says {kind}")]
    System {
        /// Which.
        kind: io::ErrorKind,
    },
    /// UCX reports an error of the connection.
    #[error("UCX says {status}")]
    Ucx {
        /// Which: `UCS_ERR_...`.
        status: &'static str,
    },
    /// A message was changed, left out or repeated on its way.
    #[error("a message was changed, left out or repeated on its way")]
    Protection,
    /// The peer breaks the rules of the protocol.
    #[error("it breaks the protocol: {0}")]
    Protocol(&'static str),
    /// A thread that serves the connection has panicked.
    #[error("a thread of this program that serves it has panicked")]
    Panicked,
}

impl Cause {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionAborted => Self::Closed,
            kind => Self::System { kind },
        }
    }
}
