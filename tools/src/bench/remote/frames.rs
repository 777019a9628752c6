//! Frames of this project.

use super::program::{Begin, Told};
use super::side::{Memory, Outcome, Way, tell};
use core::time::Duration;
use cuda_mem::Context;
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::PinnedMemory;
use cuda_mem::signal::Signals;
use cuda_mem_remote::{Engine, IncomingFrames, Key, OutgoingFrames, Peer, Remote, RemoteOptions};

/// A side of frames.
#[derive(Debug)]
pub(super) struct Frames {
    context: Context,
    peer: Peer,
    /// For messages of one size.
    lane: Option<Lane>,
}

#[derive(Debug)]
struct Lane {
    memory: Memory,
    ring: FrameRing,
    incoming: IncomingFrames,
    outgoing: OutgoingFrames,
}

impl Frames {
    pub(super) fn connect(context: &Context, engine: Engine, begin: &Begin) -> Outcome<Self> {
        let mut options = RemoteOptions::default();
        options.engine = engine;
        // The other ways have their turns meanwhile.
        options.deadline = Duration::from_secs(60);
        let remote = Remote::new(context, &Key::from_hex(&begin.key)?, &options)?;
        let peer = match &begin.peer {
            Some(address) => remote.connect(address.as_str())?,
            None => {
                let listener = remote.listen("127.0.0.1:0")?;
                tell(&Told::Waits(listener.address().to_string()));
                listener.accept()?
            }
        };
        Ok(Self { context: context.clone(), peer, lane: None })
    }

    fn lane(&mut self) -> Outcome<&mut Lane> {
        self.lane.as_mut().ok_or_else(|| "no size was prepared".into())
    }
}

impl Lane {
    /// Queues the copy of the next frame.
    fn receive(&mut self) -> Outcome<()> {
        let frame = self.incoming.next(&self.ring)?;
        self.memory.arrived.copy_from_frame(0, &frame, ..)?;
        Ok(self.incoming.fill(frame)?)
    }
}

impl Way for Frames {
    fn transport(&self) -> String {
        self.peer.transport().to_string()
    }

    fn prepare(&mut self, bytes: usize) -> Outcome<()> {
        let name = format!("messages of {bytes}");
        let ring = FrameRing::new(&PinnedMemory::new(&self.context), &Signals::new(&self.context)?, 2, bytes)?;
        self.lane = Some(Lane {
            memory: Memory::new(&self.context, bytes)?,
            incoming: self.peer.receive_frames(&name, &ring)?,
            outgoing: self.peer.frames(&name, bytes)?,
            ring,
        });
        Ok(())
    }

    fn fill(&mut self, value: u8) -> Outcome<()> {
        self.lane()?.memory.fill(value)
    }

    fn ask(&mut self) -> Outcome<()> {
        let lane = self.lane()?;
        lane.outgoing.send(&lane.memory.sent, ..)?;
        lane.receive()?;
        Ok(lane.memory.arrived.synchronize()?)
    }

    fn answer(&mut self) -> Outcome<()> {
        let lane = self.lane()?;
        lane.receive()?;
        // Queued behind the arrival: nobody waits here for the message.
        lane.outgoing.send(&lane.memory.arrived, ..)?;
        Ok(())
    }

    fn arrived(&self) -> Outcome<Vec<u8>> {
        self.lane.as_ref().map_or(Ok(Vec::new()), |lane| Ok(lane.memory.arrived.to_vec()?))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        drop(self.lane);
        Ok(self.peer.close()?)
    }
}
