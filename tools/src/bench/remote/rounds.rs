//! Both sides of a message and its answer, as threads of one process, connected over the loopback.

use super::super::clock::nanoseconds;
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, PinnedMemory, kind::Device};
use cuda_mem::signal::Signals;
use cuda_mem::{Buffer, Context, HostBuffer, Stream};
use cuda_mem_remote::{Engine, IncomingFrames, Key, OutgoingFrames, Peer, Remote, RemoteOptions};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// Errors go from one thread to the other.
pub(super) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A way of device memory to another program and back.
pub(super) trait Way {
    /// The times of some messages with their answers. Each message has other bytes, which the answer must have.
    fn rounds(&mut self, count: usize, turn: u8) -> Outcome<Vec<u64>>;
}

/// Asks, and checks the last answer.
fn ask(
    buffer: &mut Buffer<u8, Device>,
    count: usize,
    turn: u8,
    mut round: impl FnMut(&mut Buffer<u8, Device>) -> Outcome<()>,
) -> Outcome<Vec<u64>> {
    buffer.fill(.., turn + 1)?;
    buffer.synchronize()?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        round(buffer)?;
        times.push(nanoseconds(begin));
    }
    let wrong = buffer.to_vec()?.iter().any(|byte| *byte != turn + 1);
    if wrong { Err("the answer has other bytes than the message".into()) } else { Ok(times) }
}

/// Frames of this project.
pub(super) struct Ours {
    sides: [Side; 2],
    peers: [Peer; 2],
}

struct Side {
    buffer: Buffer<u8, Device>,
    ring: FrameRing,
    incoming: IncomingFrames,
    outgoing: OutgoingFrames,
}

impl Side {
    fn new(context: &Context, peer: &Peer, bytes: usize) -> Outcome<Self> {
        let stream = Stream::new(context)?;
        let ring = FrameRing::new(&PinnedMemory::new(context), &Signals::new(context)?, 2, bytes)?;
        let buffer = Buffer::zeroed(&DeviceMemory::new(context), bytes, &stream)?;
        Ok(Self {
            buffer,
            incoming: peer.receive_frames("round", &ring)?,
            outgoing: peer.frames("round", bytes)?,
            ring,
        })
    }
}

/// Queues the copy of the next frame to a buffer.
fn receive(buffer: &mut Buffer<u8, Device>, incoming: &IncomingFrames, ring: &FrameRing) -> Outcome<()> {
    let frame = incoming.next(ring)?;
    buffer.copy_from_frame(0, &frame, ..)?;
    Ok(incoming.fill(frame)?)
}

impl Ours {
    pub fn new(context: &Context, engine: Engine, bytes: usize) -> Outcome<Self> {
        let mut options = RemoteOptions::default();
        options.engine = engine;
        let remote = Remote::new(context, &Key::generate()?, &options)?;
        let listener = remote.listen("127.0.0.1:0")?;
        let peers = [remote.connect(listener.address())?, listener.accept()?];
        let sides = [Side::new(context, &peers[0], bytes)?, Side::new(context, &peers[1], bytes)?];
        Ok(Self { sides, peers })
    }

    pub fn transport(&self) -> String {
        self.peers[0].transport().to_string()
    }

    pub fn close(self) -> Outcome<()> {
        drop(self.sides);
        Ok(self.peers.into_iter().try_for_each(Peer::close)?)
    }
}

impl Way for Ours {
    fn rounds(&mut self, count: usize, turn: u8) -> Outcome<Vec<u64>> {
        let [asking, answering] = &mut self.sides;
        thread::scope(|scope| {
            let answers = scope.spawn(move || {
                (0..count).try_for_each(|_| -> Outcome<()> {
                    receive(&mut answering.buffer, &answering.incoming, &answering.ring)?;
                    // Queued behind the arrival: nobody waits here for the message.
                    answering.outgoing.send(&answering.buffer, ..)?;
                    Ok(())
                })
            });
            let Side { buffer, ring, incoming, outgoing } = asking;
            let times = ask(buffer, count, turn, |buffer| {
                outgoing.send(buffer, ..)?;
                receive(buffer, incoming, ring)?;
                Ok(buffer.stream().synchronize()?)
            });
            answers.join().map_err(|_| "the answering thread panicked")??;
            times
        })
    }
}

/// A loop over a socket: copy, wait, write; read, copy, wait.
pub(super) struct Plain {
    sides: [(Buffer<u8, Device>, HostBuffer<u8>, TcpStream); 2],
}

impl Plain {
    pub fn new(context: &Context, bytes: usize) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let side = |socket: TcpStream| -> Outcome<_> {
            socket.set_nodelay(true)?;
            let buffer = Buffer::zeroed(&DeviceMemory::new(context), bytes, &Stream::new(context)?)?;
            Ok((buffer, HostBuffer::zeroed(&PinnedMemory::new(context), bytes)?, socket))
        };
        Ok(Self { sides: [side(near)?, side(listener.accept()?.0)?] })
    }
}

impl Way for Plain {
    fn rounds(&mut self, count: usize, turn: u8) -> Outcome<Vec<u64>> {
        let [(asked, pinned, socket), (answered, their_pinned, their_socket)] = &mut self.sides;
        thread::scope(|scope| {
            let answers = scope.spawn(move || {
                (0..count).try_for_each(|_| -> Outcome<()> {
                    their_socket.read_exact(their_pinned)?;
                    answered.copy_from_slice(0, their_pinned)?;
                    answered.copy_to_slice(0, their_pinned)?;
                    Ok(their_socket.write_all(their_pinned)?)
                })
            });
            let times = ask(asked, count, turn, |asked| {
                asked.copy_to_slice(0, pinned)?;
                socket.write_all(pinned)?;
                socket.read_exact(pinned)?;
                Ok(asked.copy_from_slice(0, pinned)?)
            });
            answers.join().map_err(|_| "the answering thread panicked")??;
            times
        })
    }
}
