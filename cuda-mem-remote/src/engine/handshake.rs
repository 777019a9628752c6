//! The begin of a connection: releases are compared, and both sides prove that they have the key, by the Noise protocol.

use super::sockets::MAX_SEALED;
use crate::Key;
use crate::error::Cause;
use snow::{Builder, StatelessTransportState};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A key known to both and keys that each side makes anew: who learns the key later cannot read what was sent before.
const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// What each side sends first, with the release of the protocol.
const GREETING: &[u8; 14] = b"cuda-mem-remot";
pub(crate) const PROTOCOL: u16 = 1;
/// The most bytes of a message of the handshake.
const MAX_HANDSHAKE: usize = 256;

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Failed {
    Io(io::Error),
    /// Nothing came in time.
    Silent,
    /// The other side is no peer, or has another release.
    Release(Option<u16>),
    /// The other side has another key.
    Key,
    /// The connection ended after the handshake.
    Broken(Cause),
}

pub(super) fn run(
    stream: &TcpStream,
    key: &Key,
    initiator: bool,
    until: Instant,
) -> Result<StatelessTransportState, Failed> {
    let mut greeting = [0; 16];
    greeting[..14].copy_from_slice(GREETING);
    greeting[14..].copy_from_slice(&PROTOCOL.to_le_bytes());
    write(stream, &greeting, until)?;
    let mut theirs = [0; 16];
    // Whoever leaves before its greeting says nothing of a key.
    read(stream, &mut theirs, until).map_err(|failed| match failed {
        Failed::Key => Failed::Broken(Cause::Closed),
        other => other,
    })?;
    if theirs != greeting {
        let known = theirs[..14] == *GREETING;
        return Err(Failed::Release(known.then(|| u16::from_le_bytes([theirs[14], theirs[15]]))));
    }

    let refused = |_: snow::Error| Failed::Key;
    let pattern = PATTERN.parse().map_err(refused)?;
    let builder = Builder::new(pattern).prologue(&greeting).and_then(|it| it.psk(0, key.bytes())).map_err(refused)?;
    let mut noise = if initiator { builder.build_initiator() } else { builder.build_responder() }.map_err(refused)?;
    let mut buffer = [0; MAX_SEALED];
    while !noise.is_handshake_finished() {
        if noise.is_my_turn() {
            let size = noise.write_message(&[], &mut buffer).map_err(refused)?;
            write(stream, &u16::try_from(size).map_err(|_| Failed::Key)?.to_be_bytes(), until)?;
            write(stream, &buffer[..size], until)?;
        } else {
            let mut length = [0; 2];
            read(stream, &mut length, until)?;
            let mut message = [0; MAX_HANDSHAKE];
            let message = message.get_mut(..usize::from(u16::from_be_bytes(length))).ok_or(Failed::Key)?;
            read(stream, message, until)?;
            noise.read_message(message, &mut buffer).map_err(refused)?;
        }
    }
    noise.into_stateless_transport_mode().map_err(refused)
}

/// The time that is left. A socket takes no limit of zero.
fn left(until: Instant) -> Result<Duration, Failed> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Failed::Silent) } else { Ok(left) }
}

fn read(mut stream: &TcpStream, bytes: &mut [u8], until: Instant) -> Result<(), Failed> {
    let mut filled = 0;
    while filled < bytes.len() {
        stream.set_read_timeout(Some(left(until)?)).map_err(Failed::Io)?;
        match stream.read(&mut bytes[filled..]) {
            // A peer with another key closes the connection.
            Ok(0) => return Err(Failed::Key),
            Ok(more) => filled += more,
            Err(error) => retry(error)?,
        }
    }
    Ok(())
}

fn write(mut stream: &TcpStream, bytes: &[u8], until: Instant) -> Result<(), Failed> {
    let mut written = 0;
    while written < bytes.len() {
        stream.set_write_timeout(Some(left(until)?)).map_err(Failed::Io)?;
        match stream.write(&bytes[written..]) {
            Ok(more) => written += more,
            Err(error) => retry(error)?,
        }
    }
    stream.set_write_timeout(None).map_err(Failed::Io)
}

fn retry(error: io::Error) -> Result<(), Failed> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(Failed::Silent),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Err(Failed::Key),
        _ => Err(Failed::Io(error)),
    }
}
