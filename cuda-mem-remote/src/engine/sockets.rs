//! TCP sockets of the standard library. Each message is one message of the Noise protocol, behind its length in two bytes.

use super::handshake::{self, Failed};
use super::{Closer, Connection, LOOK, Receiver, Sender};
use crate::Key;
use crate::error::Cause;
use crate::wire::{MAX_MESSAGE, Message};
use snow::StatelessTransportState;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

/// The most bytes of a message of Noise, with the tag that proves it.
pub(super) const MAX_SEALED: usize = 65_535;
const TAG: usize = 16;
const _: () = assert!(MAX_MESSAGE + TAG <= MAX_SEALED);

/// Makes a connection of a connected socket: both sides prove that they have the key.
pub(crate) fn connection(stream: TcpStream, key: &Key, initiator: bool, until: Instant) -> Result<Connection, Failed> {
    let address = stream.peer_addr().map_err(Failed::Io)?;
    // A message is written at once, and whole.
    stream.set_nodelay(true).map_err(Failed::Io)?;
    let noise = Arc::new(handshake::run(&stream, key, initiator, until)?);
    stream.set_read_timeout(Some(LOOK)).map_err(Failed::Io)?;
    let clone = || stream.try_clone().map_err(Failed::Io);
    let mut connection = Connection {
        address,
        sender: Box::new(Sealing {
            stream: clone()?,
            noise: noise.clone(),
            number: 0,
            plain: Vec::new(),
            sealed: vec![0; 2 + MAX_SEALED],
        }),
        receiver: Box::new(Opening { noise, number: 0, sealed: Incoming::new(clone()?), plain: vec![0; MAX_SEALED] }),
        closer: Box::new(Socket(stream)),
        engine: "TCP sockets, sealed by Noise_NNpsk0_25519_AESGCM_SHA256",
    };
    // Whoever replays the first message of another's handshake cannot make this one.
    connection.sender.send(&Message::Heartbeat).map_err(Failed::Broken)?;
    while connection.receiver.receive().map_err(Failed::Broken)?.is_none() {
        if Instant::now() >= until {
            return Err(Failed::Silent);
        }
    }
    Ok(connection)
}

struct Sealing {
    stream: TcpStream,
    noise: Arc<StatelessTransportState>,
    /// The number of the next message. The other side expects it.
    number: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Sender for Sealing {
    fn send(&mut self, message: &Message<'_>) -> Result<(), Cause> {
        self.plain.clear();
        let bytes = message.encode(&mut self.plain);
        self.plain.extend_from_slice(bytes);
        let size =
            self.noise.write_message(self.number, &self.plain, &mut self.sealed[2..]).map_err(|_| Cause::Protection)?;
        self.number += 1;
        let length = u16::try_from(size).map_err(|_| Cause::Protection)?;
        self.sealed[..2].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&self.sealed[..2 + size]).map_err(|error| Cause::of(&error))
    }
}

struct Opening {
    noise: Arc<StatelessTransportState>,
    number: u64,
    sealed: Incoming,
    plain: Vec<u8>,
}

impl Receiver for Opening {
    fn receive(&mut self) -> Result<Option<Message<'_>>, Cause> {
        let Some(sealed) = self.sealed.next()? else { return Ok(None) };
        let size = self.noise.read_message(self.number, sealed, &mut self.plain).map_err(|_| Cause::Protection)?;
        self.number += 1;
        Message::decode(&self.plain[..size]).map(Some).map_err(|_| Cause::Protocol("a message has no known form"))
    }
}

/// The sealed messages that come from a socket.
struct Incoming {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// What of `bytes` has come, and is not yet used.
    begin: usize,
    end: usize,
}

impl Incoming {
    fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: vec![0; 4 * (2 + MAX_SEALED)], begin: 0, end: 0 }
    }

    /// The next message, once all of it is here.
    fn next(&mut self) -> Result<Option<&[u8]>, Cause> {
        let begin = Instant::now();
        loop {
            if let Some(size) = self.size_of_first() {
                let begin = self.begin + 2;
                self.begin = begin + size;
                return Ok(Some(&self.bytes[begin..begin + size]));
            }
            // Room for one more message.
            if self.bytes.len() - self.begin < 2 + MAX_SEALED {
                self.bytes.copy_within(self.begin..self.end, 0);
                (self.begin, self.end) = (0, self.end - self.begin);
            }
            // One byte at a time would keep the caller from its clocks.
            if begin.elapsed() >= LOOK {
                return Ok(None);
            }
            match self.stream.read(&mut self.bytes[self.end..]) {
                Ok(0) => return Err(Cause::Closed),
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(None);
                }
                Err(error) => return Err(Cause::of(&error)),
            }
        }
    }

    fn size_of_first(&self) -> Option<usize> {
        let (length, behind) = self.bytes[self.begin..self.end].split_first_chunk()?;
        let size = usize::from(u16::from_be_bytes(*length));
        (behind.len() >= size).then_some(size)
    }
}

#[derive(Debug)]
struct Socket(TcpStream);

impl Closer for Socket {
    fn finish(&self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }

    fn close(&self) {
        // An error says that it is closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Connects to an address.
pub(crate) fn connect(address: SocketAddr, key: &Key, until: Instant) -> Result<Connection, Failed> {
    let limit = until.saturating_duration_since(Instant::now());
    if limit.is_zero() {
        return Err(Failed::Silent);
    }
    let stream = TcpStream::connect_timeout(&address, limit).map_err(Failed::Io)?;
    connection(stream, key, true, until)
}
