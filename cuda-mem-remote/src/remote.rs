//! A program's side of its connections.

use crate::engine::handshake::{Failed, PROTOCOL};
use crate::engine::ucx::Ucx;
use crate::engine::{self, sockets};
use crate::memory::Memory;
use crate::shelf::Shelf;
use crate::staging::SLOT;
use crate::{Engine, Error, Key, Listener, Offer, Peer, RemoteOptions, Result, Rights};
use core::time::Duration;
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
    /// UCX, if it is the engine.
    pub ucx: Option<Ucx>,
    /// The staging belongs to it.
    pub context: Context,
    process: u32,
}

impl Inner {
    /// How many slots a connection has in each direction.
    pub fn slots(&self) -> usize {
        self.options.staging.div_ceil(SLOT).max(2)
    }

    /// Is this a process that was forked from the one that made the value? Its locks may be taken for ever.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Is this the process that made the value? Its threads are not in a forked one.
    pub fn check(&self, call: &'static str) -> Result<()> {
        if self.is_forked() { Err(Error::Forked { call }) } else { Ok(()) }
    }
}

impl Remote {
    /// Makes a side without connections. Their page-locked memory belongs to this context; the memory that peers send and receive
    /// may belong to others.
    ///
    /// # Errors
    ///
    /// A time of the options is out of bounds; the system has no random numbers; the engine's library cannot be loaded
    /// ([`Error::NoEngine`]) or refuses ([`Error::Ucx`]).
    pub fn new(context: &Context, key: &Key, options: &RemoteOptions) -> Result<Self> {
        let (day, silence) = (Duration::from_secs(24 * 3600), options.silence);
        if options.deadline > day {
            return Err(Error::Options { option: "deadline", value: options.deadline, bounds: "a day at most" });
        }
        // A peer sends a sign of life each second.
        if silence < Duration::from_secs(2) || silence > day {
            return Err(Error::Options { option: "silence", value: silence, bounds: "2 s to a day" });
        }
        let inner = Inner {
            options: options.clone(),
            key: key.clone(),
            shelf: Arc::new(Shelf::new()?),
            ucx: match &options.engine {
                Engine::Sockets => None,
                Engine::UcxTrustedNetwork { interface } => Some(Ucx::new(interface)?),
            },
            context: context.clone(),
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
    /// [`Error::Unreachable`], [`Error::Release`], [`Error::WrongKey`]. Nobody listens there: [`Error::System`], or over UCX
    /// [`Error::Refused`].
    pub fn connect(&self, address: impl ToSocketAddrs) -> Result<Peer> {
        const CALL: &str = "Remote::connect";
        self.inner.check(CALL)?;
        let (until, mut last) = (Instant::now() + self.inner.options.deadline, None);
        let addresses = resolve(CALL, address)?;
        for (tried, address) in addresses.iter().copied().enumerate() {
            // Each address gets its part of the time that is left.
            let left = until.saturating_duration_since(Instant::now());
            let until = Instant::now() + left / (addresses.len() - tried) as u32;
            let pipe = match &self.inner.ucx {
                None => sockets::connect(address, until),
                Some(ucx) => ucx.connect(address, until),
            };
            match pipe.and_then(|pipe| engine::connection(pipe, &self.inner.key, true, until)) {
                Ok(connection) => return Peer::new(&self.inner, connection),
                Err(failed) => last = Some(failed.error(CALL, address, &self.inner)),
            }
        }
        Err(last.unwrap_or_else(|| nowhere(CALL)))
    }

    /// Lets peers with the ticket reach memory, until the offer is dropped. Copies are ordered on the buffer's home stream. For a
    /// part, offer a [slice](SharedBuffer::slice).
    pub fn offer<K: Kind>(&self, memory: &SharedBuffer<u8, K>, rights: Rights) -> Offer {
        let memory: Arc<dyn Memory> = Arc::new(memory.clone());
        self.inner.shelf.offer(memory, rights)
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
            Self::Refused { engine, cause } => Error::Refused { address, engine, cause },
            Self::Broken(cause) => Error::PeerGone { address, cause },
            Self::Engine(error) => *error,
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
