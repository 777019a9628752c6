//! The thread that sends.

use super::HEARTBEAT;
use super::link::{Link, Outgoing, Piece, Way};
use crate::engine::Sender;
use crate::error::Cause;
use crate::wire::{MAX_BYTES, Message, Refusal, Rights};
use core::task::{Poll, Waker};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::HashSet;
use std::sync::Arc;
use std::task::Wake;
use std::time::Instant;

pub(super) struct Writer {
    link: Arc<Link>,
    sender: Box<dyn Sender>,
    queue: Receiver<Outgoing>,
    /// What is not sent yet, in order.
    pieces: Vec<Piece>,
    /// Transfers whose rest is not sent, because a piece has failed.
    failed: HashSet<Way>,
    waker: Waker,
    closes: Option<Instant>,
}

/// Wakes the writer.
struct Awake(crossbeam_channel::Sender<Outgoing>);

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        // A thread of the driver runs this, where only queueing is allowed.
        let _ = self.0.send(Outgoing::Wake);
    }
}

/// Whether the thread goes on.
enum Next {
    Continue,
    End,
}

impl Writer {
    pub fn new(link: Arc<Link>, sender: Box<dyn Sender>, queue: Receiver<Outgoing>) -> Self {
        let waker = Waker::from(Arc::new(Awake(link.sender())));
        Self { link, sender, queue, pieces: Vec::new(), failed: HashSet::new(), waker, closes: None }
    }

    pub fn run(mut self) {
        if let Err(cause) = self.work() {
            self.link.end(cause);
        }
    }

    fn work(&mut self) -> Result<(), Cause> {
        let mut beat = Instant::now() + HEARTBEAT;
        loop {
            match self.queue.recv_deadline(self.closes.map_or(beat, |closes| closes.min(beat))) {
                Ok(outgoing) => {
                    if let Next::End = self.take(outgoing)? {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            while let Some(piece) = self.next_piece() {
                self.send_piece(piece)?;
                beat = Instant::now() + HEARTBEAT;
                // Short messages do not wait behind all pieces.
                while let Ok(outgoing) = self.queue.try_recv() {
                    if let Next::End = self.take(outgoing)? {
                        return Ok(());
                    }
                }
            }
            if self.closes.is_some_and(|closes| self.pieces.is_empty() || Instant::now() >= closes) {
                self.sender.send(&Message::Bye)?;
                self.link.half_close();
                return Ok(());
            }
            if Instant::now() >= beat {
                self.sender.send(&Message::Heartbeat)?;
                beat = Instant::now() + HEARTBEAT;
            }
        }
    }

    fn take(&mut self, outgoing: Outgoing) -> Result<Next, Cause> {
        match outgoing {
            Outgoing::Tell(message) => self.sender.send(&message)?,
            Outgoing::Announce { lane, size, name } => {
                self.sender.send(&Message::Announce { lane, size, name: name.as_bytes() })?;
            }
            Outgoing::Ask { request, rights, start, size, ticket } => {
                let ticket = ticket.as_bytes();
                self.sender.send(&match rights {
                    Rights::Read => Message::Fetch { request, start, size, ticket },
                    _ => Message::Write { request, start, size, ticket },
                })?;
            }
            Outgoing::Piece(piece) => self.pieces.push(*piece),
            Outgoing::Wake => {}
            Outgoing::Close => self.closes = Some(Instant::now() + self.link.remote.options.deadline),
            Outgoing::End => return Ok(Next::End),
        }
        Ok(Next::Continue)
    }

    /// The first piece that may go out, if any. A piece waits behind the earlier ones of its way.
    fn next_piece(&mut self) -> Option<Ready> {
        let mut held = HashSet::new();
        for place in 0..self.pieces.len() {
            let piece = &mut self.pieces[place];
            if held.contains(&piece.way) {
                continue;
            }
            let is_there = match &mut piece.staged {
                None => false,
                Some(staged) => match staged.poll(&self.waker) {
                    Poll::Pending => {
                        held.insert(piece.way);
                        continue;
                    }
                    Poll::Ready(copied) => copied.is_ok(),
                },
            };
            return Some(Ready { piece: self.pieces.remove(place), is_there });
        }
        None
    }

    fn send_piece(&mut self, mut ready: Ready) -> Result<(), Cause> {
        let Piece { way, number, offset, is_last, .. } = ready.piece;
        let goes_on = !self.failed.contains(&way);
        match ready.piece.staged.as_mut().filter(|_| ready.is_there).map(crate::staging::Staged::bytes) {
            Some(Ok(bytes)) if goes_on => {
                for (index, bytes) in bytes.chunks(MAX_BYTES).enumerate() {
                    let offset = offset + (index * MAX_BYTES) as u64;
                    self.sender.send(&match way {
                        Way::Frames { lane } => Message::Frame { lane, number, offset, bytes },
                        Way::Fetched { request } => Message::Fetched { request, offset, bytes },
                        Way::Written { request } => Message::Written { request, offset, bytes },
                    })?;
                }
            }
            _ if goes_on => {
                self.failed.insert(way);
                self.sender.send(&match way {
                    Way::Frames { lane } => Message::FrameFailed { lane, number },
                    Way::Fetched { request } => Message::Refuse { request, why: Refusal::Failed },
                    Way::Written { request } => Message::WriteFailed { request },
                })?;
                if let Way::Frames { lane } = way {
                    self.link.frame_failed(lane);
                }
            }
            _ => {}
        }
        if is_last {
            self.failed.remove(&way);
        }
        Ok(())
    }
}

/// A piece whose copy has ended: `is_there` unless it failed.
struct Ready {
    piece: Piece,
    is_there: bool,
}
