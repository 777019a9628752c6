//! Memory that both sides have: a side copies into the other's memory, waits, and says so by a byte over a socket.

use super::plain::socket;
use super::program::Begin;
use super::side::{Memory, Outcome, Way};
use cuda_mem::ipc::Descriptor;
use cuda_mem::memory::DeviceMemory;
use cuda_mem::memory::kind::Device;
use cuda_mem::{Buffer, Context, SharedBuffer, Stream};
use std::io::{Read, Write};
use std::net::TcpStream;

#[derive(Debug)]
pub(super) struct Ipc {
    context: Context,
    socket: TcpStream,
    /// For messages of one size.
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    sent: Buffer<u8, Device>,
    /// What the other side writes, and this side's view of what it has for this one.
    arrived: SharedBuffer<u8, Device>,
    theirs: SharedBuffer<u8, Device>,
}

impl Ipc {
    pub(super) fn connect(context: &Context, begin: &Begin) -> Outcome<Self> {
        Ok(Self { context: context.clone(), socket: socket(begin)?, parts: None })
    }

    fn parts(&mut self) -> Outcome<(&mut Parts, &mut TcpStream)> {
        Ok((self.parts.as_mut().ok_or("no size was prepared")?, &mut self.socket))
    }

    /// Waits until both sides are here.
    fn meet(&mut self) -> Outcome<()> {
        self.socket.write_all(&[0])?;
        Ok(self.socket.read_exact(&mut [0])?)
    }
}

impl Way for Ipc {
    fn transport(&self) -> String {
        "memory of both sides by ipc, a byte over a TCP socket for each message".to_owned()
    }

    fn prepare(&mut self, bytes: usize) -> Outcome<()> {
        // Nobody uses the other's memory any more: a side keeps its own until the other has given up its view.
        if let Some(Parts { theirs, arrived, .. }) = self.parts.take() {
            drop(theirs);
            self.meet()?;
            drop(arrived);
        }
        let Memory { sent, arrived } = Memory::new(&self.context, bytes)?;
        let arrived = arrived.into_shared();
        self.socket.write_all(&arrived.export()?.to_bytes())?;
        let mut descriptor = [0; Descriptor::SIZE];
        self.socket.read_exact(&mut descriptor)?;
        let descriptor = Descriptor::from_bytes(&descriptor)?;
        let stream = Stream::new(&self.context)?;
        let theirs = DeviceMemory::new(&self.context).import_buffer(&descriptor, &stream)?;
        self.parts = Some(Parts { sent, arrived, theirs });
        Ok(())
    }

    fn fill(&mut self, value: u8) -> Outcome<()> {
        let sent = &mut self.parts()?.0.sent;
        sent.fill(.., value)?;
        Ok(sent.synchronize()?)
    }

    fn ask(&mut self) -> Outcome<()> {
        let (Parts { sent, theirs, .. }, socket) = self.parts()?;
        theirs.copy_from_buffer(0, sent, ..)?;
        theirs.synchronize()?;
        socket.write_all(&[0])?;
        Ok(socket.read_exact(&mut [0])?)
    }

    fn answer(&mut self) -> Outcome<()> {
        let (Parts { arrived, theirs, .. }, socket) = self.parts()?;
        socket.read_exact(&mut [0])?;
        theirs.copy_from_buffer(0, arrived, ..)?;
        theirs.synchronize()?;
        Ok(socket.write_all(&[0])?)
    }

    fn arrived(&self) -> Outcome<Vec<u8>> {
        self.parts.as_ref().map_or(Ok(Vec::new()), |parts| Ok(parts.arrived.to_vec()?))
    }

    fn close(mut self: Box<Self>) -> Outcome<()> {
        if let Some(Parts { theirs, arrived, .. }) = self.parts.take() {
            drop(theirs);
            self.meet()?;
            drop(arrived);
        }
        Ok(())
    }
}
