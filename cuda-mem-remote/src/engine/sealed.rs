//! Messages that nobody on the way can read, change, repeat or leave out: each is one message of the Noise protocol.

use super::handshake::{self, Failed};
use super::{Connection, MAX_SEALED, Pipe, Receiver, Sender};
use crate::Key;
use crate::error::Cause;
use crate::wire::{MAX_MESSAGE, Message};
use snow::StatelessTransportState;
use std::sync::Arc;
use std::time::Instant;

const TAG: usize = 16;
const _: () = assert!(MAX_MESSAGE + TAG <= MAX_SEALED);

/// Makes a connection of a pipe: both sides prove that they have the key.
pub(crate) fn connection(mut pipe: Pipe, key: &Key, initiator: bool, until: Instant) -> Result<Connection, Failed> {
    let noise = Arc::new(handshake::run(&mut pipe, key, initiator, until)?);
    let Pipe { address, sender, receiver, closer, engine } = pipe;
    let sender = Sealing { pipe: sender, noise: noise.clone(), number: 0, plain: Vec::new() };
    let receiver = Opening { pipe: receiver, noise, number: 0, plain: vec![0; MAX_SEALED] };
    let engine = format!("{engine}, sealed by {}", handshake::PATTERN);
    let mut connection = Connection { address, sender, receiver, closer, engine };
    // Whoever replays the first message of another's handshake cannot make this one.
    connection.sender.send(&Message::Heartbeat).map_err(Failed::Broken)?;
    while connection.receiver.receive().map_err(Failed::Broken)?.is_none() {
        if Instant::now() >= until {
            return Err(Failed::Silent);
        }
    }
    Ok(connection)
}

pub(crate) struct Sealing {
    pipe: Box<dyn Sender>,
    noise: Arc<StatelessTransportState>,
    /// The number of the next message. The other side expects it.
    number: u64,
    plain: Vec<u8>,
}

impl Sealing {
    /// Sends a message. Waits while the way is full.
    pub fn send(&mut self, message: &Message<'_>) -> Result<(), Cause> {
        let mut plain = core::mem::take(&mut self.plain);
        plain.clear();
        message.encode(&mut plain);
        let sent = self.send_encoded(&plain, false);
        self.plain = plain;
        sent
    }

    /// Sends an encoded message. If more follow at once, it may go with the next.
    pub fn send_encoded(&mut self, plain: &[u8], more: bool) -> Result<(), Cause> {
        let (noise, number) = (&self.noise, self.number);
        self.number += 1;
        let seal = |sealed: &mut [u8]| noise.write_message(number, plain, sealed).map_err(|_| Cause::Protection);
        self.pipe.send(more, &mut { seal })
    }
}

pub(crate) struct Opening {
    pipe: Box<dyn Receiver>,
    noise: Arc<StatelessTransportState>,
    number: u64,
    plain: Vec<u8>,
}

impl Opening {
    /// The next message, which the next call overwrites. `None`: nothing came for [`LOOK`](super::LOOK).
    pub fn receive(&mut self) -> Result<Option<Message<'_>>, Cause> {
        let Some(sealed) = self.pipe.receive(MAX_SEALED)? else { return Ok(None) };
        let size = self.noise.read_message(self.number, sealed, &mut self.plain).map_err(|_| Cause::Protection)?;
        self.number += 1;
        Message::decode(&self.plain[..size]).map(Some).map_err(|_| Cause::Protocol("a message has no known form"))
    }
}
