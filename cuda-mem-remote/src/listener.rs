//! Waits for peers.

use crate::engine::handshake::Failed;
use crate::engine::ucx::{Listening, Ucx};
use crate::engine::{self, Pipe, sockets};
use crate::remote::Inner;
use crate::{Error, Peer, Result};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// How many connections may be in their handshake. A stranger who says nothing takes one of them for the deadline.
const MAX_HANDSHAKES: usize = 64;
/// How many peers may wait to be accepted.
const MAX_WAITING: usize = 64;

/// Waits for peers at an address: [`Remote::listen`](crate::Remote::listen). A drop stops that; peers stay.
#[derive(Debug)]
pub struct Listener {
    remote: Arc<Inner>,
    address: SocketAddr,
    arrived: Receiver<Result<Peer>>,
    _socket: Socket,
}

/// Who listens, until it is dropped.
#[derive(Debug)]
enum Socket {
    Tcp { _stop: Stop },
    Ucx { _listening: Listening },
}

/// Ends the thread that listens, which looks at it at each connection.
#[derive(Debug)]
struct Stop {
    remote: Arc<Inner>,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Listener {
    pub(crate) fn new(remote: &Arc<Inner>, addresses: &[SocketAddr]) -> Result<Self> {
        const CALL: &str = "Remote::listen";
        let named = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let refused = |why| Error::System { call: CALL, address: named.clone(), why };
        let (sender, arrived) = bounded(MAX_WAITING);
        let door = Door { remote: remote.clone(), open: Arc::default(), arrived: sender };
        let spawn = |work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name("cuda-mem listener".to_owned()).spawn(work).map(drop).map_err(refused)
        };
        let (address, socket) = match &remote.ucx {
            None => {
                let socket = TcpListener::bind(addresses).map_err(refused)?;
                let address = socket.local_addr().map_err(refused)?;
                let stop = Stop { remote: remote.clone(), address, is_over: Arc::default() };
                let is_over = stop.is_over.clone();
                spawn(Box::new(move || door.listen(&socket, &is_over)))?;
                (address, Socket::Tcp { _stop: stop })
            }
            Some(ucx) => {
                let first = addresses.first().ok_or_else(|| refused(std::io::ErrorKind::NotFound.into()))?;
                let (listening, peers) = ucx.listen(*first)?;
                let address = listening.address;
                spawn(Box::new(move || {
                    // The queue ends with the listener.
                    for peer in peers {
                        match peer {
                            Ok((address, ends)) => {
                                door.greet(address, move |ucx| Ok(ucx.ok_or(Failed::Silent)?.pipe(address, ends)));
                            }
                            // As in a failed handshake.
                            Err(error) => drop(door.arrived.try_send(Err(error))),
                        }
                    }
                }))?;
                (address, Socket::Ucx { _listening: listening })
            }
        };
        Ok(Self { remote: remote.clone(), address, arrived, _socket: socket })
    }

    /// The address, with its port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next peer, which has proved that it has the key. Waits for it, up to [`RemoteOptions::deadline`](crate::RemoteOptions).
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]: no peer came. A connection that failed: [`Error::WrongKey`], [`Error::Release`],
    /// [`Error::Unreachable`], [`Error::Refused`], [`Error::Ucx`]; call again.
    pub fn accept(&self) -> Result<Peer> {
        const CALL: &str = "Listener::accept";
        self.remote.check(CALL)?;
        let after = self.remote.options.deadline;
        match self.arrived.recv_timeout(after) {
            Ok(arrived) => arrived,
            Err(RecvTimeoutError::Timeout) => Err(Error::TimedOut { call: CALL, after, why: "no peer has connected" }),
            Err(RecvTimeoutError::Disconnected) => {
                let why = std::io::Error::other("the thread that listens has ended");
                Err(Error::System { call: CALL, address: self.address.to_string(), why })
            }
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // The thread is the parent's.
        if self.remote.is_forked() {
            return;
        }
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread that listens. If nobody can connect, nobody will.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(100));
    }
}

/// Lets peers in that have the key.
struct Door {
    remote: Arc<Inner>,
    /// The connections that are in their handshake.
    open: Arc<AtomicUsize>,
    arrived: Sender<Result<Peer>>,
}

impl Door {
    fn listen(&self, socket: &TcpListener, is_over: &AtomicBool) {
        for stream in socket.incoming() {
            if is_over.load(Ordering::Acquire) {
                return;
            }
            match stream.and_then(|stream| Ok((stream.peer_addr()?, stream))) {
                Ok((address, stream)) => self.greet(address, |_| sockets::pipe(stream)),
                // Too many files are open, or the stranger is gone already. Other connections end meanwhile.
                Err(_) => drop(crossbeam_channel::after(Duration::from_millis(10)).recv()),
            }
        }
    }

    /// Begins the handshake, on a thread of its own: strangers who say nothing must not hold up others.
    fn greet(&self, address: SocketAddr, pipe: impl FnOnce(Option<&Ucx>) -> Result<Pipe, Failed> + Send + 'static) {
        if self.open.fetch_add(1, Ordering::AcqRel) >= MAX_HANDSHAKES {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let (remote, arrived, counted) = (self.remote.clone(), self.arrived.clone(), Counted(self.open.clone()));
        let work = move || {
            let until = Instant::now() + remote.options.deadline;
            let made = pipe(remote.ucx.as_ref()).and_then(|pipe| engine::connection(pipe, &remote.key, false, until));
            let made = made.map_err(|failed| failed.error("Listener::accept", address, &remote));
            // The peer is served before the program accepts it: what it has a ticket for it may reach.
            let peer = made.and_then(|connection| Peer::new(&remote, connection));
            // If nobody accepts, the connection ends. Strangers do not wait.
            let _ = match peer {
                Ok(_) => arrived.send_deadline(peer, until).is_ok(),
                Err(_) => arrived.try_send(peer).is_ok(),
            };
            drop(counted);
        };
        // Without a thread the connection ends.
        let _ = std::thread::Builder::new().name("cuda-mem handshake".to_owned()).spawn(work);
    }
}

/// A handshake that is counted.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
