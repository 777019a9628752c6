//! UCX, the transport library of clusters: active messages of host memory. One thread makes all its calls.
//!
//! UCX's module for CUDA is off, so UCX makes no driver call and looks at no pointer.

mod calls;
mod pipe;
mod progress;

use super::Pipe;
use super::handshake::Failed;
use calls::Library;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use progress::{Arrived, Command};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// UCX on one interface. A drop ends its thread.
#[derive(Debug)]
pub(crate) struct Ucx {
    thread: Arc<Wakeable>,
    /// The release and the interface.
    name: String,
}

/// The queue of the thread.
#[derive(Debug)]
struct Wakeable {
    commands: Sender<Command>,
    event: OwnedFd,
    process: u32,
}

impl Wakeable {
    fn send(&self, command: Command) {
        // In a forked process the queue may be in any state, and the thread is the parent's.
        if std::process::id() != self.process {
            return;
        }
        // The thread ends after all that send to it.
        let _ = self.commands.send(command);
        // A full counter wakes it too.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

/// Peers that connect to an address.
#[derive(Debug)]
pub(crate) struct Listening {
    pub address: SocketAddr,
    number: u64,
    thread: Arc<Wakeable>,
}

impl Ucx {
    /// Loads UCX and starts its thread, with messages on this interface alone.
    pub fn new(interface: &str) -> crate::Result<Self> {
        let library = Library::load()?;
        let name = format!("UCX {} on {interface}", library.release());
        let system = |why: rustix::io::Errno| crate::Error::System {
            call: "eventfd",
            address: interface.to_owned(),
            why: why.into(),
        };
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(system)?;
        let woken = event.try_clone().map_err(|why| crate::Error::System {
            call: "dup",
            address: interface.to_owned(),
            why,
        })?;
        let (commands, queue) = unbounded();
        let (started, start) = bounded(1);
        let named = interface.to_owned();
        // The thread makes the context too: it makes all calls.
        let work = move || match library.context(&named) {
            Ok(context) => {
                let _ = started.send(Ok(()));
                progress::run(&context, &queue, &woken);
            }
            Err(error) => drop(started.send(Err(error))),
        };
        let refused =
            |why| crate::Error::System { call: "the start of UCX's thread", address: interface.to_owned(), why };
        std::thread::Builder::new().name("cuda-mem ucx".to_owned()).spawn(work).map_err(refused)?;
        start
            .recv()
            .unwrap_or(Err(crate::Error::Ucx { call: "ucp_init_version", status: "it panicked".to_owned() }))?;
        Ok(Self { thread: Arc::new(Wakeable { commands, event, process: std::process::id() }), name })
    }

    pub fn connect(&self, address: SocketAddr, until: Instant) -> Result<Pipe, Failed> {
        let (answer, made) = bounded(1);
        self.thread.send(Command::Connect { address, answer });
        let ends =
            made.recv_deadline(until).map_err(|_| Failed::Silent)?.map_err(|error| Failed::Engine(Box::new(error)))?;
        Ok(self.pipe(address, ends))
    }

    /// Listens at an address. The queue ends with the listener.
    pub fn listen(&self, address: SocketAddr) -> crate::Result<(Listening, Receiver<Arrived>)> {
        let (answer, made) = bounded(1);
        let (arrived, peers) = bounded(64);
        self.thread.send(Command::Listen { address, arrived, answer });
        let ended = || crate::Error::Ucx { call: "ucp_listener_create", status: "its thread has ended".to_owned() };
        let (number, address) = made.recv().map_err(|_| ended())??;
        Ok((Listening { address, number, thread: self.thread.clone() }, peers))
    }

    pub fn pipe(&self, address: SocketAddr, ends: pipe::Ends) -> Pipe {
        ends.pipe(address, self.name.clone(), &self.thread)
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        self.thread.send(Command::End);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.thread.send(Command::StopListening(self.number));
    }
}
