//! A loop over a socket: copy, wait, write; read, copy, wait. Without protection.

use super::program::{Begin, Told};
use super::side::{Memory, Outcome, Way, tell};
use cuda_mem::memory::PinnedMemory;
use cuda_mem::{Context, HostBuffer};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

#[derive(Debug)]
pub(super) struct Plain {
    context: Context,
    socket: TcpStream,
    /// For messages of one size.
    memory: Option<(Memory, HostBuffer<u8>)>,
}

/// A socket between both sides.
pub(super) fn socket(begin: &Begin) -> Outcome<TcpStream> {
    let socket = match &begin.peer {
        Some(address) => TcpStream::connect(address)?,
        None => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            tell(&Told::Waits(listener.local_addr()?.to_string()));
            listener.accept()?.0
        }
    };
    socket.set_nodelay(true)?;
    Ok(socket)
}

impl Plain {
    pub(super) fn connect(context: &Context, begin: &Begin) -> Outcome<Self> {
        Ok(Self { context: context.clone(), socket: socket(begin)?, memory: None })
    }

    fn parts(&mut self) -> Outcome<(&mut Memory, &mut HostBuffer<u8>, &mut TcpStream)> {
        let (memory, pinned) = self.memory.as_mut().ok_or("no size was prepared")?;
        Ok((memory, pinned, &mut self.socket))
    }
}

impl Way for Plain {
    fn transport(&self) -> String {
        "a plain loop over a TCP socket".to_owned()
    }

    fn prepare(&mut self, bytes: usize) -> Outcome<()> {
        let pinned = HostBuffer::zeroed(&PinnedMemory::new(&self.context), bytes)?;
        self.memory = Some((Memory::new(&self.context, bytes)?, pinned));
        Ok(())
    }

    fn fill(&mut self, value: u8) -> Outcome<()> {
        self.parts()?.0.fill(value)
    }

    fn ask(&mut self) -> Outcome<()> {
        let (memory, pinned, socket) = self.parts()?;
        memory.sent.copy_to_slice(0, pinned)?;
        socket.write_all(pinned)?;
        socket.read_exact(pinned)?;
        Ok(memory.arrived.copy_from_slice(0, pinned)?)
    }

    fn answer(&mut self) -> Outcome<()> {
        let (memory, pinned, socket) = self.parts()?;
        socket.read_exact(pinned)?;
        memory.arrived.copy_from_slice(0, pinned)?;
        memory.arrived.copy_to_slice(0, pinned)?;
        Ok(socket.write_all(pinned)?)
    }

    fn arrived(&self) -> Outcome<Vec<u8>> {
        self.memory.as_ref().map_or(Ok(Vec::new()), |(memory, _)| Ok(memory.arrived.to_vec()?))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}
