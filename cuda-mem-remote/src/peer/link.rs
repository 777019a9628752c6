//! What the threads of a connection share, and its end.

use super::frames::Given;
use super::operation::Answer;
use super::state::Lanes;
use super::writer::Writer;
use super::{lander, reader, server};
use crate::engine::{Closer, Connection};
use crate::error::Cause;
use crate::memory::Memory;
use crate::remote::Inner;
use crate::staging::{Slot, Staging};
use crate::wire::{Message, Rights, Ticket};
use crate::{Error, Result};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use cuda_mem::buffer::Transfer;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// What a copy waits for may have come.
    Look,
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
    /// `None`: the bytes could not be copied, and whoever sends them knows.
    pub staged: Option<Transfer<Slot>>,
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
    /// The lander has been told to answer.
    pub ends: bool,
    pub answer: Answer,
}

/// What is known of the other side's room for the frames that this side sends.
#[derive(Debug)]
pub(super) struct Room {
    /// For how many frames there was memory so far.
    pub frames: AtomicU64,
    /// Its frames have another size; 0: no.
    pub other_size: AtomicU64,
    /// The work that makes a frame has failed.
    pub has_failed: AtomicBool,
    /// Tells that one of them has changed.
    pub news: Sender<()>,
}

impl Room {
    pub fn tell(&self) {
        // One that is not read yet is enough.
        let _ = self.news.try_send(());
    }
}

#[derive(Default)]
pub(super) struct State {
    pub gone: Option<Cause>,
    pub requests: HashMap<u64, Request>,
    pub lanes: Lanes<Given>,
    /// The names of the frames that this side has sent.
    pub sent_names: HashSet<Box<str>>,
    pub rooms: HashMap<u64, Arc<Room>>,
}

/// A connection.
pub(crate) struct Link {
    pub remote: Arc<Inner>,
    pub address: SocketAddr,
    pub engine: String,
    /// What goes out, and what comes in.
    pub outgoing: Staging,
    pub incoming: Staging,
    closer: Box<dyn Closer>,
    writer: Sender<Outgoing>,
    /// Whether the writer waits for copies, and is not told to look at them yet.
    waits_for_copies: AtomicBool,
    /// When a close must have ended.
    closes: OnceLock<Instant>,
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
        let (lander, landings) = unbounded();
        let link = Arc::new(Self {
            remote: remote.clone(),
            address: connection.address,
            engine: connection.engine,
            outgoing: Staging::new(&remote.context, remote.slots())?,
            incoming: Staging::new(&remote.context, remote.slots())?,
            closer: connection.closer,
            writer,
            waits_for_copies: AtomicBool::new(false),
            closes: OnceLock::new(),
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
            let refused = |why| Error::System {
                call: "the start of a thread for the connection",
                address: connection.address.to_string(),
                why,
            };
            std::thread::Builder::new().name(name).spawn(run).map(drop).map_err(refused)
        };
        let (sender, receiver) = (connection.sender, connection.receiver);
        let started = spawn("writer", Box::new(move |link| Writer::new(link.clone(), sender, outgoing).run()))
            .and_then(|()| spawn("server", Box::new(move |link| server::run(link, &asked))))
            .and_then(|()| spawn("lander", Box::new(move |link| lander::run(link, &landings))))
            .and_then(|()| spawn("reader", Box::new(move |link| reader::run(link, receiver, jobs, lander))));
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

    /// Says whether the writer waits for copies.
    pub fn wait_for_copies(&self, waits: bool) {
        self.waits_for_copies.store(waits, Ordering::Release);
    }

    /// Bytes have come that the work before a copy may wait for. The writer looks at its copies soon.
    pub fn look(&self) {
        if self.waits_for_copies.swap(false, Ordering::AcqRel) {
            self.send(Outgoing::Look);
        }
    }

    /// How many messages the writer has not sent.
    pub fn backlog(&self) -> usize {
        self.writer.len()
    }

    /// Sends what is queued, then closes: at the latest when the deadline has passed.
    pub fn close(&self) {
        self.closes.get_or_init(|| Instant::now() + self.remote.options.deadline);
        self.send(Outgoing::Close);
    }

    /// Has the deadline of a close passed?
    pub fn is_late(&self, now: Instant) -> bool {
        self.closes.get().is_some_and(|closes| now >= *closes)
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

    /// The program closes the connection.
    pub fn begin_close(&self) {
        self.give_up(Cause::ClosedHere);
    }

    /// All is sent. The reader goes on until the peer has read that, because the system would throw away what is on its way if
    /// bytes came for a closed socket.
    pub fn half_close(&self) {
        self.closer.finish();
    }

    /// All that waits for the peer gets an error, and streams that wait for its frames are released.
    fn give_up(&self, cause: Cause) {
        let mut state = self.state();
        if state.gone.is_some() {
            return;
        }
        state.gone = Some(cause);
        // The lander answers fetches, after the copies that it makes.
        let requests: Vec<_> = state.requests.extract_if(|_, request| request.destination.is_none()).collect();
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
            room.has_failed.store(true, Ordering::Release);
            room.tell();
        }
    }

    /// Is a request without an answer yet?
    pub fn is_open(&self, request: u64) -> bool {
        self.state().requests.contains_key(&request)
    }

    /// Answers a request, once.
    pub fn answer(&self, request: u64, outcome: impl FnOnce(&Request) -> Result<()>) {
        let asked = self.state().requests.remove(&request);
        if let Some(asked) = asked {
            let outcome = outcome(&asked);
            asked.answer.give(outcome);
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
        let left: Vec<_> = self.0.state().requests.drain().collect();
        left.into_iter().for_each(|(_, request)| request.answer.give(Err(self.0.peer_gone(Cause::Panicked))));
    }
}
