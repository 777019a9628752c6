//! The thread that makes all calls of UCX: it progresses the endpoints, and waits where nothing happens.

use super::calls::{Context, Endpoint, Listener};
use super::pipe::{Ends, WINDOW};
use core::time::Duration;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

/// How often a connection or a listener is progressed before the others have their turn.
const TURNS: usize = 16;

pub(super) enum Command {
    Connect {
        address: SocketAddr,
        answer: Sender<crate::Result<Ends>>,
    },
    Listen {
        address: SocketAddr,
        arrived: Sender<(SocketAddr, Ends)>,
        answer: Sender<crate::Result<(u64, SocketAddr)>>,
    },
    StopListening(u64),
    Send {
        number: u64,
        message: Vec<u8>,
    },
    Close(u64),
    /// A queue has room again.
    Look,
    End,
}

struct Connection<'a> {
    endpoint: Endpoint<'a>,
    permits: Sender<()>,
    in_use: Weak<()>,
}

struct Listening<'a> {
    listener: Listener<'a>,
    arrived: Sender<(SocketAddr, Ends)>,
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
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.endpoint.send(message);
                }
            }
            Command::Close(number) => drop(self.connections.remove(&number)),
            Command::Look | Command::End => {}
        }
    }

    fn add(&mut self, endpoint: Endpoint<'a>, messages: Receiver<Vec<u8>>) -> Ends {
        self.next += 1;
        let (permits, given) = bounded(WINDOW);
        for _ in 0..WINDOW {
            // There is room for all.
            let _ = permits.send(());
        }
        let in_use = Arc::new(());
        self.connections.insert(self.next, Connection { endpoint, permits, in_use: Arc::downgrade(&in_use) });
        Ends { number: self.next, messages, permits: given, in_use }
    }

    /// Lets UCX work. Whether something happened.
    fn progress(&mut self) -> bool {
        let mut happened = false;
        for connection in self.connections.values_mut() {
            for _ in 0..TURNS {
                let goes_on = connection.endpoint.has_room() && !connection.endpoint.is_broken();
                if !goes_on || !connection.endpoint.worker().progress() {
                    break;
                }
                happened = true;
            }
            for _ in 0..connection.endpoint.take_sent() {
                happened = true;
                // The queue has room for all permits.
                let _ = connection.permits.try_send(());
            }
        }
        // The ends of its queues tell the connection's threads.
        self.connections
            .retain(|_, connection| !connection.endpoint.is_broken() && connection.in_use.strong_count() > 0);
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
                accepted.extend(made.ok().map(|made| (made, listening.arrived.clone())));
            }
        }
        for ((endpoint, messages, address), arrived) in accepted {
            let ends = self.add(endpoint, messages);
            // With too many that wait, the ends are dropped, and so is the connection.
            let _ = arrived.try_send((address, ends));
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
