//! TCP sockets of the standard library. Each message comes behind its length in two bytes.

use super::handshake::Failed;
use super::{Closer, Fill, LOOK, MAX_SEALED, Pipe, Receiver, Sender};
use crate::error::Cause;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

/// Connects to an address.
pub(crate) fn connect(address: SocketAddr, until: Instant) -> Result<Pipe, Failed> {
    let limit = until.saturating_duration_since(Instant::now());
    if limit.is_zero() {
        return Err(Failed::Silent);
    }
    pipe(TcpStream::connect_timeout(&address, limit).map_err(Failed::Io)?)
}

/// A pipe of a connected socket.
pub(crate) fn pipe(stream: TcpStream) -> Result<Pipe, Failed> {
    let made = || -> io::Result<Pipe> {
        // A message is written at once, and whole.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        Ok(Pipe {
            address: stream.peer_addr()?,
            sender: Box::new(Outgoing { stream: stream.try_clone()?, bytes: Vec::new(), size: 0 }),
            receiver: Box::new(Incoming::new(stream.try_clone()?)),
            closer: Box::new(Socket(stream)),
            engine: "TCP sockets".to_owned(),
        })
    };
    made().map_err(Failed::Io)
}

/// The most bytes that a message takes on its way.
const FRAMED: usize = 2 + MAX_SEALED;

/// The messages that go to a socket: up to two in one call of the system.
struct Outgoing {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// What of `bytes` is to be written.
    size: usize,
}

impl Sender for Outgoing {
    fn send(&mut self, more: bool, fill: &mut Fill<'_>) -> Result<(), Cause> {
        self.bytes.resize(2 * FRAMED, 0);
        let (length, message) = self.bytes[self.size..][..FRAMED].split_at_mut(2);
        let size = fill(message)?;
        length.copy_from_slice(&u16::try_from(size).map_err(|_| Cause::Protection)?.to_be_bytes());
        self.size += 2 + size;
        if more && self.bytes.len() - self.size >= FRAMED {
            return Ok(());
        }
        let size = core::mem::take(&mut self.size);
        self.stream.write_all(&self.bytes[..size]).map_err(|error| Cause::of(&error))
    }
}

/// The messages that come from a socket.
struct Incoming {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// What of `bytes` has come, and is not yet used.
    begin: usize,
    end: usize,
}

impl Incoming {
    fn new(stream: TcpStream) -> Self {
        Self { stream, bytes: vec![0; 4 * FRAMED], begin: 0, end: 0 }
    }

    fn size_of_first(&self) -> Option<usize> {
        let length = self.bytes[self.begin..self.end].first_chunk()?;
        Some(usize::from(u16::from_be_bytes(*length)))
    }
}

impl Receiver for Incoming {
    fn receive(&mut self, most: usize) -> Result<Option<&[u8]>, Cause> {
        let since = Instant::now();
        loop {
            if let Some(size) = self.size_of_first() {
                if size > most {
                    return Err(Cause::Protocol("a message is too long"));
                }
                let begin = self.begin + 2;
                if self.end - begin >= size {
                    self.begin = begin + size;
                    return Ok(Some(&self.bytes[begin..begin + size]));
                }
            }
            // Room for one more message.
            if self.bytes.len() - self.begin < FRAMED {
                self.bytes.copy_within(self.begin..self.end, 0);
                (self.begin, self.end) = (0, self.end - self.begin);
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
            // One byte at a time would keep the caller from its clocks.
            if since.elapsed() >= LOOK && self.size_of_first().is_none_or(|size| self.end - self.begin < 2 + size) {
                return Ok(None);
            }
        }
    }
}

#[derive(Debug)]
struct Socket(TcpStream);

impl Closer for Socket {
    fn finish(&self) {
        // An error says that it is closed already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
