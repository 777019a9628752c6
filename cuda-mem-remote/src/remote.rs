//! A program's side of its connections.

use crate::engine::handshake::{Failed, PROTOCOL};
use crate::engine::sockets;
use crate::memory::in_turn;
use crate::shelf::Shelf;
use crate::staging::Staging;
use crate::{Error, Key, Listener, Offer, Peer, RemoteOptions, Result, Rights};
use cuda_mem::memory::Kind;
use cuda_mem::{Context, SharedBuffer};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

/// A program's side of its connections: the staging, the key, and the memory that it offers. Clones are the same.
#[derive(Clone, Debug)]
pub struct Remote {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub options: RemoteOptions,
    pub key: Key,
    pub shelf: Arc<Shelf>,
    /// What goes out, and what comes in.
    pub outgoing: Staging,
    pub incoming: Staging,
    process: u32,
}

impl Inner {
    /// Is this the process that made the value? Its threads are not in a forked one.
    pub fn check(&self, call: &'static str) -> Result<()> {
        if std::process::id() == self.process { Ok(()) } else { Err(Error::Forked { call }) }
    }
}

impl Remote {
    /// Takes the staging. Its page-locked memory and streams belong to this context; the memory that peers send and receive may
    /// belong to others.
    ///
    /// # Errors
    ///
    /// No page-locked memory or no stream is left; the system has no random numbers.
    pub fn new(context: &Context, key: &Key, options: &RemoteOptions) -> Result<Self> {
        let inner = Inner {
            options: options.clone(),
            key: key.clone(),
            shelf: Arc::new(Shelf::new()?),
            outgoing: Staging::new(context, options.staging)?,
            incoming: Staging::new(context, options.staging)?,
            process: std::process::id(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Listens for peers at an address, on its interface alone. Port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: the address is not one of this host, or is in use.
    pub fn listen(&self, address: impl ToSocketAddrs) -> Result<Listener> {
        self.inner.check("Remote::listen")?;
        Listener::new(&self.inner, &resolve("Remote::listen", address)?)
    }

    /// Connects to a [`Listener`], within [`RemoteOptions::deadline`].
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Release`], [`Error::WrongKey`]; [`Error::System`]: nobody listens there.
    pub fn connect(&self, address: impl ToSocketAddrs) -> Result<Peer> {
        const CALL: &str = "Remote::connect";
        self.inner.check(CALL)?;
        let (until, mut last) = (Instant::now() + self.inner.options.deadline, None);
        for address in resolve(CALL, address)? {
            match sockets::connect(address, &self.inner.key, until) {
                Ok(connection) => return Peer::new(&self.inner, connection),
                Err(failed) => last = Some(failed.error(CALL, address, &self.inner)),
            }
        }
        Err(last.unwrap_or_else(|| nowhere(CALL)))
    }

    /// Lets peers with the ticket reach memory, until the offer is dropped. Copies are ordered on the buffer's home stream. For a
    /// part, offer a [slice](SharedBuffer::slice).
    pub fn offer<K: Kind>(&self, memory: &SharedBuffer<u8, K>, rights: Rights) -> Offer {
        self.inner.shelf.offer(in_turn(memory), rights)
    }
}

impl Failed {
    pub(crate) fn error(self, call: &'static str, address: SocketAddr, remote: &Inner) -> Error {
        match self {
            Self::Io(why) if why.kind() == io::ErrorKind::TimedOut => {
                Error::Unreachable { address, after: remote.options.deadline }
            }
            Self::Io(why) => Error::System { call, address: address.to_string(), why },
            Self::Silent => Error::Unreachable { address, after: remote.options.deadline },
            Self::Release(theirs) => Error::Release { address, theirs, ours: PROTOCOL },
            Self::Key => Error::WrongKey { address },
            Self::Broken(cause) => Error::PeerGone { address, cause },
        }
    }
}

fn resolve(call: &'static str, address: impl ToSocketAddrs) -> Result<Vec<SocketAddr>> {
    let found = address.to_socket_addrs().map_err(|why| Error::System { call, address: "the name".to_owned(), why })?;
    Ok(found.collect())
}

fn nowhere(call: &'static str) -> Error {
    let why = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    Error::System { call, address: "the name".to_owned(), why }
}
