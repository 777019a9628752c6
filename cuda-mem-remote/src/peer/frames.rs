//! Frames that go to a peer, and frames that the network fills.

use super::Handle;
use super::link::{Outgoing, Room, Way};
use super::pieces::send;
use super::reader::tell;
use super::state::Taken;
use crate::memory::why;
use crate::wire::MAX_NAME;
use crate::{Error, Result};
use core::ops::{Bound, RangeBounds};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use cuda_mem::Buffer;
use cuda_mem::buffer::Access;
use cuda_mem::frames::{Frame, FrameError, FrameRing};
use cuda_mem::memory::Kind;
use cuda_mem::signal::WaitPolicy;
use std::sync::Arc;
use std::time::Instant;

/// How long a call waits for news before it looks at the connection.
const LOOK: Duration = Duration::from_millis(10);

/// A sequence of frames that go to a peer, which [`Peer::frames`](crate::Peer::frames) begins.
#[derive(Debug)]
pub struct OutgoingFrames {
    peer: Arc<Handle>,
    lane: u64,
    size: usize,
    room: Arc<Room>,
    /// Told when the room changes.
    changed: Receiver<()>,
    sent: u64,
}

impl OutgoingFrames {
    pub(super) fn new(peer: Arc<Handle>, name: &str, size: usize) -> Result<Self> {
        const CALL: &str = "Peer::frames";
        let link = &peer.link;
        link.check(CALL)?;
        check_name(CALL, name)?;
        if size == 0 {
            return Err(Error::Size { call: CALL, what: "a frame", value: 0, limit: 1, rule: "the least" });
        }
        let (news, changed) = bounded(1);
        let room =
            Room { frames: AtomicU64::new(0), other_size: AtomicU64::new(0), has_failed: AtomicBool::new(false), news };
        let (room, lane) = (Arc::new(room), link.number());
        let mut state = link.state();
        if !state.sent_names.insert(name.into()) {
            let why = "was used on this connection before: choose another";
            return Err(Error::Name { call: CALL, name: name.to_owned(), why });
        }
        state.rooms.insert(lane, room.clone());
        drop(state);
        link.send(Outgoing::Announce { lane, size: size as u64, name: name.into() });
        Ok(Self { peer, lane, size, room, changed, sent: 0 })
    }

    /// Sends a range of a buffer as the next frame, after the work of the buffer's stream so far. Returns the number of the frame,
    /// from 0. Later work of the stream may overwrite the range: it comes after the copy to the staging, which this call queues.
    ///
    /// The call waits for no stream, unless the buffer is memory of the host: there it waits for the stream's work, as copies by
    /// the CPU do. It waits, up to [`RemoteOptions::deadline`](crate::RemoteOptions), while the other side has no memory for
    /// another frame, and while the staging is full.
    ///
    /// # Errors
    ///
    /// The range does not lie within the buffer, or has another size than a frame; the peer receives frames of another size
    /// ([`Error::Size`]); the deadline passed ([`Error::TimedOut`]); the peer is gone; the work that makes an earlier frame has
    /// failed ([`Error::Failed`]).
    pub fn send<K: Kind, A: Access>(
        &mut self,
        source: &Buffer<u8, K, A>,
        range: impl RangeBounds<usize>,
    ) -> Result<u64> {
        const CALL: &str = "OutgoingFrames::send";
        let link = self.peer.link.clone();
        link.check(CALL)?;
        let (start, end) = within(CALL, &range, source.len())?;
        if end - start != self.size {
            let (value, limit) = ((end - start) as u64, self.size as u64);
            return Err(Error::Size { call: CALL, what: "the range", value, limit, rule: "those of a frame" });
        }
        self.wait_for_room(CALL)?;
        let number = self.sent;
        self.sent += 1;
        send(&link, Way::Frames { lane: self.lane }, number, (start as u64, self.size as u64), |start, slot| {
            source.download(start, slot).map_err(why)
        })?;
        Ok(number)
    }

    fn wait_for_room(&mut self, call: &'static str) -> Result<()> {
        let link = &self.peer.link;
        let after = link.remote.options.deadline;
        let until = Instant::now() + after;
        loop {
            let other_size = self.room.other_size.load(Ordering::Acquire);
            if other_size > 0 {
                let rule = "those of the other side's frames";
                return Err(Error::Size { call, what: "a frame", value: self.size as u64, limit: other_size, rule });
            }
            if self.room.has_failed.swap(false, Ordering::AcqRel) {
                let why = "an earlier frame was not sent, because the work that makes it has failed";
                return Err(Error::Failed { call, why });
            }
            if self.sent < self.room.frames.load(Ordering::Acquire) {
                return Ok(());
            }
            match self.changed.recv_deadline(until.min(Instant::now() + LOOK)) {
                Ok(()) => {}
                Err(_) if Instant::now() < until => link.check(call)?,
                Err(_) => {
                    let why = "the other side has no memory for another frame: does it receive them?";
                    return Err(Error::TimedOut { call, after, why });
                }
            }
        }
    }
}

impl Drop for OutgoingFrames {
    fn drop(&mut self) {
        if self.peer.link.remote.is_forked() {
            return;
        }
        self.peer.link.state().rooms.remove(&self.lane);
    }
}

/// A sequence of frames that come from a peer, which [`Peer::receive_frames`](crate::Peer::receive_frames) begins.
#[derive(Debug)]
pub struct IncomingFrames {
    peer: Arc<Handle>,
    name: Box<str>,
    size: usize,
    /// Told when the network is done with a frame.
    tell_filled: Sender<()>,
    filled: Receiver<()>,
}

/// A frame that the network has.
#[derive(Debug)]
pub(super) struct Given {
    pub frame: Frame,
    /// Ends after the frame.
    pub filled: Filled,
}

/// Tells that the network is done with a frame, when it is dropped.
#[derive(Debug)]
pub(super) struct Filled(Sender<()>);

impl Drop for Filled {
    fn drop(&mut self) {
        // Nobody receives any more.
        let _ = self.0.send(());
    }
}

impl IncomingFrames {
    pub(super) fn new(peer: Arc<Handle>, name: &str, size: usize) -> Result<Self> {
        const CALL: &str = "Peer::receive_frames";
        let link = &peer.link;
        link.check(CALL)?;
        check_name(CALL, name)?;
        let told = link.state().lanes.receive(name.as_bytes(), size as u64);
        let told = told.map_err(|taken| {
            let why = match taken {
                Taken::Now => "is received already",
                Taken::Before => "was received on this connection before: choose another",
            };
            Error::Name { call: CALL, name: name.to_owned(), why }
        })?;
        tell(link, told);
        let (tell_filled, filled) = unbounded();
        Ok(Self { peer, name: name.into(), size, tell_filled, filled })
    }

    /// Takes the next frame of a ring to fill, as [`FrameRing::next`] does: it waits for the work on the frame's memory. Waits too
    /// while the network has all frames of the ring.
    ///
    /// # Errors
    ///
    /// Those of [`FrameRing::next`]; no frame came within [`RemoteOptions::deadline`](crate::RemoteOptions)
    /// ([`Error::TimedOut`]); the peer is gone.
    pub fn next(&self, ring: &FrameRing) -> Result<Frame> {
        const CALL: &str = "IncomingFrames::next";
        let link = &self.peer.link;
        let after = link.remote.options.deadline;
        let until = Instant::now() + after;
        let why = "no frame of the ring became free: the network has them, or work on them is not done";
        loop {
            link.check(CALL)?;
            // News of frames that were filled before the question are old.
            self.filled.try_iter().for_each(drop);
            let left = until.saturating_duration_since(Instant::now());
            match ring.next_with(&WaitPolicy::within(left)) {
                Err(cuda_mem::Error::Frame(FrameError::AllOpen { .. })) => {}
                Err(cuda_mem::Error::Frame(FrameError::TimedOut { .. })) => {
                    return Err(Error::TimedOut { call: CALL, after, why });
                }
                other => return Ok(other?),
            }
            // The program may publish a frame of the ring itself.
            if self.filled.recv_deadline(until.min(Instant::now() + LOOK)) == Err(RecvTimeoutError::Timeout)
                && Instant::now() >= until
            {
                return Err(Error::TimedOut { call: CALL, after, why });
            }
        }
    }

    /// Gives a frame to the network, which fills it with the peer's next frame, and then publishes it. First queue the work that
    /// uses the frame, as for frames that the CPU fills: it starts when the last byte is here. Waits for nothing.
    ///
    /// If the peer is gone, or the work that makes its frame has failed, the frame is dropped: the streams that wait for it get
    /// [`FrameError::Abandoned`]. A peer that forwards a buffer whose own frame was abandoned
    /// looks at its stream before, because the copy of the buffer's bytes succeeds.
    ///
    /// # Errors
    ///
    /// The frame has another size than those of the ring of [`Peer::receive_frames`](crate::Peer::receive_frames), or the peer's;
    /// the peer is gone. The frame is dropped.
    pub fn fill(&self, frame: Frame) -> Result<()> {
        const CALL: &str = "IncomingFrames::fill";
        let link = &self.peer.link;
        link.check(CALL)?;
        let sizes = |value: usize, limit: u64, rule| Error::Size {
            call: CALL,
            what: "the frame",
            value: value as u64,
            limit,
            rule,
        };
        if frame.size() != self.size {
            return Err(sizes(frame.size(), self.size as u64, "those of the ring"));
        }
        let mut state = link.state();
        if let Some(cause) = state.gone {
            drop(state);
            return Err(link.peer_gone(cause));
        }
        let given = Given { frame, filled: Filled(self.tell_filled.clone()) };
        let told = state.lanes.give(self.name.as_bytes(), given);
        drop(state);
        match told {
            Ok(told) => tell(link, told),
            Err((given, theirs)) => return Err(sizes(given.frame.size(), theirs, "those of the peer's frames")),
        }
        Ok(())
    }
}

impl Drop for IncomingFrames {
    fn drop(&mut self) {
        if self.peer.link.remote.is_forked() {
            return;
        }
        let frames = self.peer.link.state().lanes.stop(self.name.as_bytes());
        // Without the lock: their streams are released.
        drop(frames);
    }
}

fn check_name(call: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::Name { call, name: name.chars().take(40).collect(), why: "must have 1 to 255 bytes" });
    }
    Ok(())
}

/// The begin and the end of a range, checked against a buffer's size.
pub(super) fn within(call: &'static str, range: &impl RangeBounds<usize>, size: usize) -> Result<(usize, usize)> {
    let (start, end) = bounds(range, size);
    if start > end || end > size {
        let (value, limit) = (end as u64, size as u64);
        return Err(Error::Size { call, what: "the range", value, limit, rule: "those of the buffer" });
    }
    Ok((start, end))
}

/// The begin and the end of a range.
pub(super) fn bounds(range: &impl RangeBounds<usize>, length: usize) -> (usize, usize) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => length,
    };
    (start, end)
}
