//! A pipe over an endpoint of UCX: two queues between a connection's threads and UCX's.

use super::progress::Command;
use super::{BROKEN, Wakeable};
use crate::engine::{Closer, LOOK, Pipe, Receiver, Sender};
use crate::error::Cause;
use crossbeam_channel::RecvTimeoutError;
use std::net::SocketAddr;
use std::sync::Arc;

/// How many messages of a connection UCX has at a time.
pub(super) const WINDOW: usize = 32;

/// With how many messages that wait for a connection's reader UCX takes no more from that peer.
pub(super) const ENOUGH: usize = 128;

/// The program's ends of the queues of an endpoint. The endpoint ends when all of them are dropped.
#[derive(Debug)]
pub(crate) struct Ends {
    pub number: u64,
    pub messages: crossbeam_channel::Receiver<Vec<u8>>,
    /// One for each message that UCX may take. The queue ends with the endpoint.
    pub permits: crossbeam_channel::Receiver<()>,
    /// While it lives, the program has the pipe.
    pub in_use: Arc<()>,
}

impl Ends {
    pub(super) fn pipe(self, address: SocketAddr, engine: String, thread: &Arc<Wakeable>) -> Pipe {
        let Self { number, messages, permits, in_use } = self;
        Pipe {
            address,
            sender: Box::new(Outgoing { number, permits, thread: thread.clone() }),
            receiver: Box::new(Incoming {
                messages,
                last: Vec::new(),
                number,
                thread: thread.clone(),
                _in_use: in_use,
            }),
            closer: Box::new(End { number, thread: thread.clone() }),
            engine,
        }
    }
}

struct Outgoing {
    number: u64,
    permits: crossbeam_channel::Receiver<()>,
    thread: Arc<Wakeable>,
}

impl Sender for Outgoing {
    fn send(&mut self, message: &[u8]) -> Result<(), Cause> {
        self.permits.recv().map_err(|_| BROKEN)?;
        self.thread.send(Command::Send { number: self.number, message: message.to_vec() });
        Ok(())
    }
}

struct Incoming {
    messages: crossbeam_channel::Receiver<Vec<u8>>,
    last: Vec<u8>,
    number: u64,
    thread: Arc<Wakeable>,
    _in_use: Arc<()>,
}

impl Receiver for Incoming {
    fn receive(&mut self, most: usize) -> Result<Option<&[u8]>, Cause> {
        let is_held_up = self.messages.len() >= ENOUGH;
        match self.messages.recv_timeout(LOOK) {
            Ok(message) if message.len() > most => Err(Cause::Protocol("a message is too long")),
            Ok(message) => {
                self.last = message;
                if is_held_up {
                    // UCX's thread takes no more from this peer while its queue is long.
                    self.thread.send(Command::Look);
                }
                Ok(Some(&self.last))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(BROKEN),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.thread.send(Command::Close(self.number));
    }
}

#[derive(Debug)]
struct End {
    number: u64,
    thread: Arc<Wakeable>,
}

impl Closer for End {
    fn finish(&self) {
        // The last message says that it is the last, and the peer closes then.
    }

    fn close(&self) {
        self.thread.send(Command::Close(self.number));
    }
}
