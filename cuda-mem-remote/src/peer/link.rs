//! What the threads of a connection share, and its end.

use super::frames::Given;
use super::operation::Answer;
use super::state::Lanes;
use super::writer::Writer;
use super::{reader, server};
use crate::engine::{Closer, Connection};
use crate::error::Cause;
use crate::memory::Memory;
use crate::remote::Inner;
use crate::staging::Staged;
use crate::wire::{Message, Rights, Ticket};
use crate::{Error, Result};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What the writer is told.
pub(crate) enum Outgoing {
    /// A message of numbers alone.
    Tell(Message<'static>),
    Announce {
        lane: u64,
        size: u64,
        name: Box<str>,
    },
    Ask {
        request: u64,
        rights: Rights,
        start: u64,
        size: u64,
        ticket: Box<Ticket>,
    },
    Piece(Box<Piece>),
    /// A piece that was not there may be there now.
    Wake,
    /// Send what is queued, then end.
    Close,
    /// End.
    End,
}

/// Bytes that go out once they are there. Pieces of one [`Way`] go out in order.
pub(crate) struct Piece {
    pub way: Way,
    /// The number of the frame, if it is one.
    pub number: u64,
    /// The offset in the frame or the transfer.
    pub offset: u64,
    /// `None`: the work that makes the bytes has failed.
    pub staged: Option<Staged>,
    pub is_last: bool,
}

/// What pieces belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Frames { lane: u64 },
    Fetched { request: u64 },
    Written { request: u64 },
}

/// A request of this side that the peer has not answered.
pub(super) struct Request {
    pub call: &'static str,
    /// Of a fetch: where the bytes go, and how many are fetched.
    pub destination: Option<(Arc<dyn Memory>, u64, u64)>,
    pub range: (u64, u64),
    pub ticket_size: u64,
    pub until: Instant,
    pub answer: Answer,
}

/// What the other side says of the frames that this side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There was memory for this many frames so far.
    Frames(u64),
    /// Its frames have another size.
    OtherSize(u64),
    /// The work that makes a frame has failed.
    Failed,
}

#[derive(Default)]
pub(super) struct State {
    pub gone: Option<Cause>,
    pub requests: HashMap<u64, Request>,
    pub lanes: Lanes<Given>,
    /// The names of the frames that this side has sent.
    pub sent_names: HashMap<Box<str>, u64>,
    pub rooms: HashMap<u64, Sender<Room>>,
}

/// A connection.
pub(crate) struct Link {
    pub remote: Arc<Inner>,
    pub address: SocketAddr,
    pub engine: &'static str,
    closer: Box<dyn Closer>,
    writer: Sender<Outgoing>,
    state: Mutex<State>,
    next: AtomicU64,
    /// Ends when all threads have.
    threads: Receiver<()>,
}

impl Link {
    pub fn start(remote: &Arc<Inner>, connection: Connection) -> Result<Arc<Self>> {
        let (writer, outgoing) = unbounded();
        let (thread, threads) = bounded(0);
        let (jobs, asked) = bounded(server::MAX_JOBS);
        let link = Arc::new(Self {
            remote: remote.clone(),
            address: connection.address,
            engine: connection.engine,
            closer: connection.closer,
            writer,
            state: Mutex::default(),
            next: AtomicU64::new(1),
            threads,
        });
        let spawn = |name: &str, work: Work| {
            let (link, thread) = (link.clone(), thread.clone());
            let run = move || {
                let guard = EndOnPanic(&link);
                work(&link);
                core::mem::forget(guard);
                drop(thread);
            };
            let name = format!("cuda-mem {name}");
            let refused = |why| Error::System { call: "spawn", address: connection.address.to_string(), why };
            std::thread::Builder::new().name(name).spawn(run).map(drop).map_err(refused)
        };
        let (sender, receiver) = (connection.sender, connection.receiver);
        let started = spawn("writer", Box::new(move |link| Writer::new(link.clone(), sender, outgoing).run()))
            .and_then(|()| spawn("server", Box::new(move |link| server::run(link, &asked))))
            .and_then(|()| spawn("reader", Box::new(move |link| reader::run(link, receiver, &jobs))));
        if let Err(error) = started {
            link.end(Cause::ClosedHere);
            return Err(error);
        }
        Ok(link)
    }

    pub fn send(&self, outgoing: Outgoing) {
        // The writer is gone: so is the connection.
        let _ = self.writer.send(outgoing);
    }

    pub fn tell(&self, message: Message<'static>) {
        self.send(Outgoing::Tell(message));
    }

    pub fn sender(&self) -> Sender<Outgoing> {
        self.writer.clone()
    }

    /// A number that this side has not used on this connection.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn gone(&self) -> Option<Cause> {
        self.state().gone
    }

    /// Is the connection alive, and this process the one that made it?
    pub fn check(&self, call: &'static str) -> Result<()> {
        self.remote.check(call)?;
        self.gone().map_or(Ok(()), |cause| Err(self.peer_gone(cause)))
    }

    pub fn peer_gone(&self, cause: Cause) -> Error {
        Error::PeerGone { address: self.address, cause }
    }

    /// Ends the connection: closes it, and tells all that waits for it. Only the first cause counts.
    pub fn end(&self, cause: Cause) {
        self.give_up(cause);
        self.closer.close();
        self.send(Outgoing::End);
    }

    /// The program has closed the connection, and all is sent. The reader goes on until the peer has read that, because the
    /// system would throw away what is on its way if bytes came for a closed socket.
    pub fn half_close(&self) {
        self.give_up(Cause::ClosedHere);
        self.closer.finish();
    }

    /// All that waits for the peer gets an error, and streams that wait for its frames are released.
    fn give_up(&self, cause: Cause) {
        let mut state = self.state();
        if state.gone.is_some() {
            return;
        }
        state.gone = Some(cause);
        let requests: Vec<_> = state.requests.drain().collect();
        let (frames, rooms) = (state.lanes.clear(), core::mem::take(&mut state.rooms));
        drop(state);
        // Wakers and the ends of frames call the driver and the program: without the lock.
        drop((frames, rooms));
        for (_, request) in requests {
            request.answer.give(Err(self.peer_gone(cause)));
        }
    }

    /// Tells the next send of these frames that the work that made one has failed.
    pub fn frame_failed(&self, lane: u64) {
        if let Some(room) = self.state().rooms.get(&lane) {
            // Nobody sends any more.
            let _ = room.send(Room::Failed);
        }
    }

    /// Waits until the connection has ended.
    pub fn wait_for_end(&self) -> Cause {
        // Nothing is sent: the threads end the channel.
        let _ = self.threads.recv();
        self.gone().unwrap_or(Cause::Panicked)
    }

    /// Waits until the threads have ended.
    pub fn wait_for_threads(&self, limit: Duration) -> bool {
        matches!(self.threads.recv_timeout(limit), Err(crossbeam_channel::RecvTimeoutError::Disconnected))
    }
}

/// What a thread does.
type Work = Box<dyn FnOnce(&Arc<Link>) + Send>;

/// A thread that panics ends the connection.
struct EndOnPanic<'a>(&'a Link);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        self.0.end(Cause::Panicked);
    }
}
