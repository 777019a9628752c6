//! A pipe over an endpoint of UCX: two queues between a connection's threads and UCX's.

use super::Wakeable;
use super::progress::Command;
use crate::engine::{Closer, Fill, LOOK, MAX_SEALED, Pipe, Receiver, Sender};
use crate::error::Cause;
use crossbeam_channel::RecvTimeoutError;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// How many messages of a connection UCX has at a time.
pub(super) const WINDOW: usize = 32;

/// With how many messages that wait for a connection's reader UCX takes no more from that peer.
pub(super) const ENOUGH: usize = 128;

/// The program's ends of the queues of an endpoint. The endpoint ends when all of them are dropped.
#[derive(Debug)]
pub(crate) struct Ends {
    pub number: u64,
    pub messages: crossbeam_channel::Receiver<Vec<u8>>,
    /// Memory for each message that UCX may take. The queue ends with the endpoint.
    pub free: crossbeam_channel::Receiver<Vec<u8>>,
    /// What has ended the endpoint, unless this side has. While it lives, the program has the pipe.
    pub ended: Arc<OnceLock<Cause>>,
}

impl Ends {
    pub(super) fn pipe(self, address: SocketAddr, engine: String, thread: &Arc<Wakeable>) -> Pipe {
        let Self { number, messages, free, ended } = self;
        Pipe {
            address,
            sender: Box::new(Outgoing { number, free, ended: ended.clone(), thread: thread.clone() }),
            receiver: Box::new(Incoming { messages, last: Vec::new(), number, ended, thread: thread.clone() }),
            closer: Box::new(End { number, thread: thread.clone() }),
            engine,
        }
    }
}

/// A message that goes out: the first bytes of memory that comes back.
pub(super) struct Message {
    pub memory: Vec<u8>,
    pub size: usize,
}

struct Outgoing {
    number: u64,
    free: crossbeam_channel::Receiver<Vec<u8>>,
    ended: Arc<OnceLock<Cause>>,
    thread: Arc<Wakeable>,
}

/// Why the queues of an endpoint have ended.
fn cause(ended: &OnceLock<Cause>) -> Cause {
    ended.get().copied().unwrap_or(Cause::Closed)
}

impl Sender for Outgoing {
    fn send(&mut self, _: bool, fill: &mut Fill<'_>) -> Result<(), Cause> {
        let mut memory = self.free.recv().map_err(|_| cause(&self.ended))?;
        memory.resize(MAX_SEALED, 0);
        let size = fill(&mut memory)?;
        self.thread.send(Command::Send { number: self.number, message: Message { memory, size } });
        Ok(())
    }
}

struct Incoming {
    messages: crossbeam_channel::Receiver<Vec<u8>>,
    last: Vec<u8>,
    number: u64,
    ended: Arc<OnceLock<Cause>>,
    thread: Arc<Wakeable>,
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
            Err(RecvTimeoutError::Disconnected) => Err(cause(&self.ended)),
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
