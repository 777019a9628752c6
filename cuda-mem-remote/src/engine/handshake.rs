//! The begin of a connection: releases are compared, and both sides prove that they have the key, by the Noise protocol.

use super::{MAX_SEALED, Pipe};
use crate::Key;
use crate::error::Cause;
use snow::{Builder, StatelessTransportState};
use std::io;
use std::time::Instant;

/// A key known to both and keys that each side makes anew: who learns the key later cannot read what was sent before.
pub(super) const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// What each side sends first, with the release of the protocol.
const GREETING: &[u8; 14] = b"cuda-mem-remot";
pub(crate) const PROTOCOL: u16 = 1;
/// The most bytes of a message of the handshake. Programs of other kinds begin by what looks longer.
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
    /// The connection ended before anything came.
    Refused {
        engine: String,
        cause: Cause,
    },
    /// The connection ended.
    Broken(Cause),
    /// The engine refuses.
    Engine(Box<crate::Error>),
}

pub(super) fn run(
    pipe: &mut Pipe,
    key: &Key,
    initiator: bool,
    until: Instant,
) -> Result<StatelessTransportState, Failed> {
    let mut greeting = [0; 16];
    greeting[..14].copy_from_slice(GREETING);
    greeting[14..].copy_from_slice(&PROTOCOL.to_le_bytes());
    let sent = pipe.sender.send_bytes(&greeting).map_err(Failed::Broken);
    let theirs = sent.and_then(|()| receive(pipe, until)).map_err(|failed| match failed {
        Failed::Broken(Cause::Protocol(_)) => Failed::Release(None),
        Failed::Broken(cause) => Failed::Refused { engine: pipe.engine.clone(), cause },
        other => other,
    })?;
    match theirs.strip_prefix(GREETING) {
        Some(&[low, high]) if u16::from_le_bytes([low, high]) == PROTOCOL => {}
        Some(&[low, high]) => return Err(Failed::Release(Some(u16::from_le_bytes([low, high])))),
        _ => return Err(Failed::Release(None)),
    }

    let refused = |_: snow::Error| Failed::Key;
    let pattern = PATTERN.parse().map_err(refused)?;
    let builder = Builder::new(pattern).prologue(&greeting).and_then(|it| it.psk(0, key.bytes())).map_err(refused)?;
    let mut noise = if initiator { builder.build_initiator() } else { builder.build_responder() }.map_err(refused)?;
    let mut buffer = vec![0; MAX_SEALED];
    while !noise.is_handshake_finished() {
        if noise.is_my_turn() {
            let size = noise.write_message(&[], &mut buffer).map_err(refused)?;
            pipe.sender.send_bytes(&buffer[..size]).map_err(Failed::Broken)?;
        } else {
            let message = receive(pipe, until).map_err(|failed| match failed {
                // A peer with another key closes the connection.
                Failed::Broken(Cause::Closed) => Failed::Key,
                other => other,
            })?;
            noise.read_message(&message, &mut buffer).map_err(refused)?;
        }
    }
    noise.into_stateless_transport_mode().map_err(refused)
}

fn receive(pipe: &mut Pipe, until: Instant) -> Result<Vec<u8>, Failed> {
    loop {
        match pipe.receiver.receive(MAX_HANDSHAKE).map_err(Failed::Broken)? {
            Some(message) => return Ok(message.to_vec()),
            None if Instant::now() >= until => return Err(Failed::Silent),
            None => {}
        }
    }
}
