//! The thread that makes all calls of UCX: it progresses the endpoints, and waits where nothing happens.

use super::calls::{Context, Endpoint, Listener};
use super::pipe::{Ends, Message, WINDOW};
use crate::error::Cause;
use core::time::Duration;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

/// How often a connection or a listener is progressed before the others have their turn.
const TURNS: usize = 16;

/// A peer that has connected, or why it could not.
pub(crate) type Arrived = crate::Result<(SocketAddr, Ends)>;

pub(super) enum Command {
    Connect {
        address: SocketAddr,
        answer: Sender<crate::Result<Ends>>,
    },
    Listen {
        address: SocketAddr,
        arrived: Sender<Arrived>,
        answer: Sender<crate::Result<(u64, SocketAddr)>>,
    },
    StopListening(u64),
    Send {
        number: u64,
        message: Message,
    },
    Close(u64),
    /// A queue has room again.
    Look,
    End,
}

struct Connection<'a> {
    endpoint: Endpoint<'a>,
    free: Sender<Vec<u8>>,
    ended: Weak<OnceLock<Cause>>,
}

impl Connection<'_> {
    /// Whether it goes on. If not, its threads learn why.
    fn goes_on(&self) -> bool {
        let Some(ended) = self.ended.upgrade() else { return false };
        self.endpoint.broken().is_none_or(|cause| {
            let _ = ended.set(cause);
            false
        })
    }
}

struct Listening<'a> {
    listener: Listener<'a>,
    arrived: Sender<Arrived>,
}

struct Thread<'a> {
    context: &'a Context,
    next: u64,
    connections: HashMap<u64, Connection<'a>>,
    listeners: HashMap<u64, Listening<'a>>,
}

pub(super) fn run(context: &Context, queue: &Receiver<Command>, event: &OwnedFd) {
    let mut thread = Thread { context, next: 1, connections: HashMap::new(), listeners: HashMap::new() };
    loop {
        for command in queue.try_iter() {
            if let Command::End = command {
                return;
            }
            thread.take(command);
        }
        if !thread.progress() {
            thread.wait(event);
        }
    }
}

impl<'a> Thread<'a> {
    fn take(&mut self, command: Command) {
        match command {
            Command::Connect { address, answer } => {
                let made = Endpoint::connect(self.context, address);
                let ends = made.map(|(endpoint, messages)| self.add(endpoint, messages));
                // Whoever asked may have given up: then its ends are dropped.
                let _ = answer.send(ends);
            }
            Command::Listen { address, arrived, answer } => {
                let made = Listener::new(self.context, address).map(|(listener, address)| {
                    self.next += 1;
                    self.listeners.insert(self.next, Listening { listener, arrived });
                    (self.next, address)
                });
                let _ = answer.send(made);
            }
            Command::StopListening(number) => drop(self.listeners.remove(&number)),
            Command::Send { number, message } => {
                // Behind one that could not be sent, a message would be taken for a changed one.
                let connection = self.connections.get_mut(&number).filter(|it| it.endpoint.broken().is_none());
                if let Some(connection) = connection {
                    connection.endpoint.send(message);
                }
            }
            Command::Close(number) => drop(self.connections.remove(&number)),
            Command::Look | Command::End => {}
        }
    }

    fn add(&mut self, endpoint: Endpoint<'a>, messages: Receiver<Vec<u8>>) -> Ends {
        self.next += 1;
        let (back, free) = bounded(WINDOW);
        for _ in 0..WINDOW {
            // There is room for all.
            let _ = back.send(Vec::new());
        }
        let ended = Arc::default();
        self.connections.insert(self.next, Connection { endpoint, free: back, ended: Arc::downgrade(&ended) });
        Ends { number: self.next, messages, free, ended }
    }

    /// Lets UCX work. Whether something happened.
    fn progress(&mut self) -> bool {
        let mut happened = false;
        for connection in self.connections.values_mut() {
            for _ in 0..TURNS {
                let goes_on = connection.endpoint.has_room() && connection.endpoint.broken().is_none();
                if !goes_on || !connection.endpoint.worker().progress() {
                    break;
                }
                happened = true;
            }
            for memory in connection.endpoint.take_sent() {
                happened = true;
                // The queue has room for all.
                let _ = connection.free.try_send(memory);
            }
        }
        // The ends of its queues tell the connection's threads.
        self.connections.retain(|_, connection| connection.goes_on());
        let mut accepted = Vec::new();
        for listening in self.listeners.values() {
            for _ in 0..TURNS {
                if !listening.listener.worker().progress() {
                    break;
                }
                happened = true;
            }
            // One at a time: a worker takes milliseconds to make.
            if let Some(request) = listening.listener.take_request() {
                happened = true;
                let made = Endpoint::accept(self.context, &listening.listener, request);
                accepted.push((made, listening.arrived.clone()));
            }
        }
        for (made, arrived) in accepted {
            let made = made.map(|(endpoint, messages, address)| (address, self.add(endpoint, messages)));
            // With too many that wait, the ends are dropped, and so is the connection.
            let _ = arrived.try_send(made);
        }
        happened
    }

    /// Waits until something may have happened.
    fn wait(&self, event: &OwnedFd) {
        let mut look = Duration::from_secs(1);
        let mut fds = vec![PollFd::new(event, PollFlags::IN)];
        let endpoints = self.connections.values().map(|connection| &connection.endpoint);
        let (open, held_up): (Vec<_>, Vec<_>) = endpoints.partition(|endpoint| endpoint.has_room());
        if !held_up.is_empty() {
            // Their readers wake this thread.
            look = Duration::from_millis(20);
        }
        let listeners = self.listeners.values().map(|listening| listening.listener.worker());
        for worker in open.into_iter().map(Endpoint::worker).chain(listeners) {
            if !worker.arm() {
                return;
            }
            fds.push(PollFd::from_borrowed_fd(worker.event(), PollFlags::IN));
        }
        let limit = Timespec { tv_sec: look.as_secs() as i64, tv_nsec: i64::from(look.subsec_nanos()) };
        // A signal ends the wait early, which does no harm.
        let _ = poll(&mut fds, Some(&limit));
        // An empty counter is no error.
        let _ = rustix::io::read(event.as_fd(), &mut [0; 8]);
    }
}
