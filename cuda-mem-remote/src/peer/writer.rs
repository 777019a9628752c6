//! The thread that sends.

use super::HEARTBEAT;
use super::link::{Link, Outgoing, Piece, Way};
use crate::Error;
use crate::engine::Sealing;
use crate::error::Cause;
use crate::staging::Slot;
use crate::wire::{MAX_BYTES, Message, Refusal, Rights};
use core::time::Duration;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

pub(super) struct Writer {
    link: Arc<Link>,
    sender: Sealing,
    queue: Receiver<Outgoing>,
    /// What is not sent yet, in order.
    pieces: Vec<Piece>,
    /// When a piece has come, or bytes that its copy may wait for.
    news: Instant,
    /// Transfers whose rest is not sent, because a piece has failed.
    failed: HashSet<Way>,
    closes: bool,
    /// What the peer has fetched and a close keeps from it. It ends with the thread, because the drop of a copy waits for it.
    lost: Vec<Piece>,
}

/// Whether the thread goes on.
enum Next {
    Continue,
    End,
}

/// How long the thread waits before it looks at its copies again, if so long ago something has come that they may wait for: a
/// piece, or bytes from the peer. Small copies take less than a wait. A wake-up by the driver would be a callback for each piece,
/// and would come after the work that the program has queued behind it.
fn nap(quiet: Duration) -> Duration {
    let least = Duration::from_micros(20);
    if quiet < least { Duration::ZERO } else { (quiet / 4).clamp(least, Duration::from_millis(2)) }
}

impl Writer {
    pub fn new(link: Arc<Link>, sender: Sealing, queue: Receiver<Outgoing>) -> Self {
        let (pieces, lost) = (Vec::new(), Vec::new());
        Self { link, sender, queue, pieces, news: Instant::now(), failed: HashSet::new(), closes: false, lost }
    }

    pub fn run(mut self) {
        if let Err(cause) = self.work() {
            self.link.end(cause);
        }
    }

    fn work(&mut self) -> Result<(), Cause> {
        let mut beat = Instant::now() + HEARTBEAT;
        loop {
            let waits = !self.pieces.is_empty();
            self.link.wait_for_copies(waits);
            let look = waits.then(|| Instant::now() + nap(self.news.elapsed()));
            match self.queue.recv_deadline(look.map_or(beat, |look| beat.min(look))) {
                Ok(outgoing) => {
                    if let Next::End = self.take(outgoing)? {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            while let Some((piece, copied)) = self.next_piece() {
                self.send_piece(piece, copied)?;
                beat = Instant::now() + HEARTBEAT;
                // Short messages do not wait behind all pieces.
                while let Ok(outgoing) = self.queue.try_recv() {
                    if let Next::End = self.take(outgoing)? {
                        return Ok(());
                    }
                }
            }
            if self.closes && self.pieces.is_empty() {
                // First the cause: the peer answers at once.
                self.link.begin_close();
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
            // What the peer has asked for is lost in a close.
            Outgoing::Piece(piece) if self.closes && matches!(piece.way, Way::Fetched { .. }) => self.lost.push(*piece),
            Outgoing::Piece(piece) => {
                self.pieces.push(*piece);
                self.news = Instant::now();
            }
            Outgoing::Look => self.news = Instant::now(),
            Outgoing::Close => {
                self.closes = true;
                let is_fetched = |piece: &mut Piece| matches!(piece.way, Way::Fetched { .. });
                self.lost.extend(self.pieces.extract_if(.., is_fetched));
            }
            Outgoing::End => return Ok(Next::End),
        }
        Ok(Next::Continue)
    }

    /// The first piece that may go out, and whether its copy has succeeded. A piece waits behind the earlier ones of its way.
    fn next_piece(&mut self) -> Option<(Piece, cuda_mem::Result<()>)> {
        let mut held = HashSet::new();
        for place in 0..self.pieces.len() {
            let piece = &self.pieces[place];
            if held.contains(&piece.way) {
                continue;
            }
            let copied = match piece.staged.as_ref().map_or(Ok(true), |staged| staged.is_done()) {
                Ok(false) => {
                    held.insert(piece.way);
                    continue;
                }
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            return Some((self.pieces.remove(place), copied));
        }
        None
    }

    fn send_piece(&mut self, piece: Piece, copied: cuda_mem::Result<()>) -> Result<(), Cause> {
        let Piece { way, number, offset, staged, is_last, .. } = piece;
        // The copy is over, so this does not wait.
        let slot = copied.and_then(|()| staged.map(|staged| staged.wait()).transpose());
        if !self.failed.contains(&way) {
            match slot {
                Ok(Some(slot)) => self.send_bytes(way, number, offset, slot)?,
                failed => self.fail(way, number, failed.err())?,
            }
        }
        if is_last {
            self.failed.remove(&way);
        }
        Ok(())
    }

    fn send_bytes(&mut self, way: Way, number: u64, offset: u64, mut slot: Slot) -> Result<(), Cause> {
        let (size, mut head) = (slot.bytes().len(), Vec::new());
        for start in (0..size).step_by(MAX_BYTES) {
            let offset = offset + start as u64;
            // The bytes follow where they are.
            let message = match way {
                Way::Frames { lane } => Message::Frame { lane, number, offset, bytes: &[] },
                Way::Fetched { request } => Message::Fetched { request, offset, bytes: &[] },
                Way::Written { request } => Message::Written { request, offset, bytes: &[] },
            };
            head.clear();
            message.encode(&mut head);
            self.sender.send_encoded(slot.behind(&head, start), start + MAX_BYTES < size)?;
        }
        Ok(())
    }

    /// Tells the other side that the rest does not come. An error is one that the program does not know yet.
    fn fail(&mut self, way: Way, number: u64, error: Option<cuda_mem::Error>) -> Result<(), Cause> {
        self.failed.insert(way);
        match (way, error) {
            (Way::Frames { lane }, Some(_)) => self.link.frame_failed(lane),
            (Way::Written { request }, Some(error)) => self.link.answer(request, |_| Err(Error::Cuda(error))),
            _ => {}
        }
        self.sender.send(&match way {
            Way::Frames { lane } => Message::FrameFailed { lane, number },
            Way::Fetched { request } => Message::Refuse { request, why: Refusal::Failed },
            Way::Written { request } => Message::WriteFailed { request },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_takes_long_is_looked_at_rarely_and_never_late() {
        assert_eq!(nap(Duration::from_micros(19)), Duration::ZERO);
        for micros in [20, 100, 1000, 5000, 1_000_000] {
            let (quiet, nap) = (Duration::from_micros(micros), nap(Duration::from_micros(micros)));
            assert!(nap >= Duration::from_micros(20) && nap <= Duration::from_millis(2), "{quiet:?}: {nap:?}");
            assert!(nap <= Duration::from_micros(20) || nap <= quiet / 4, "{quiet:?}: {nap:?}");
        }
    }
}
