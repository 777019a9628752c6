//! The thread that receives. It never waits for the network's other direction.

use super::arrival::{Arrival, Progress};
use super::frames::Given;
use super::lander::{Landing, Of};
use super::link::{Link, Request};
use super::server::Job;
use super::state::Tell;
use crate::Error;
use crate::engine::{LOOK, Opening};
use crate::error::Cause;
use crate::wire::{Message, Refusal, Rights, TicketError};
use core::sync::atomic::Ordering;
use crossbeam_channel::Sender;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// How many writes of a peer may be under way.
const MAX_WRITES: usize = 256;
/// How many answers may wait until the peer reads them.
const MAX_BACKLOG: usize = 4096;

struct Reader<'a> {
    link: &'a Arc<Link>,
    jobs: Sender<Job>,
    lander: Sender<Landing>,
    /// The frames of which a part has come, by lane: the frame, its size, and how many bytes have come.
    frames: HashMap<u64, (Option<Given>, u64, u64)>,
    /// How many frames of each lane were begun.
    begun: HashMap<u64, u64>,
    /// What this side has fetched, by request.
    fetched: HashMap<u64, Arrival>,
    /// What the peer writes, by its request.
    written: HashMap<u64, Arrival>,
}

pub(super) fn run(link: &Arc<Link>, mut receiver: Opening, jobs: Sender<Job>, lander: Sender<Landing>) {
    let mut reader = Reader {
        link,
        jobs,
        lander,
        frames: HashMap::new(),
        begun: HashMap::new(),
        fetched: HashMap::new(),
        written: HashMap::new(),
    };
    let (mut heard, mut looked, mut closed) = (Instant::now(), Instant::now(), None);
    let cause = loop {
        let received = receiver.receive().and_then(|message| match message {
            None => Ok(false),
            // What comes after the program's close is not wanted.
            Some(Message::Bye) => Err(Cause::Closed),
            Some(_) if closed.is_some() => Ok(true),
            Some(message) => match reader.take(message) {
                // The program has closed the connection meanwhile.
                Err(_) if link.gone().is_some() => Ok(true),
                taken => taken.map(|()| true),
            },
        });
        match received {
            Ok(true) => heard = Instant::now(),
            // What has come while this thread was busy is heard first.
            Ok(false) if heard.elapsed() >= link.remote.options.silence => {
                break Cause::Silent { after: link.remote.options.silence };
            }
            Ok(false) => {}
            Err(cause) => break cause,
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            reader.expire(looked);
            if let (None, Some(cause)) = (closed, link.gone()) {
                closed = Some(looked);
                reader.give_up(cause);
            }
            let is_late = closed.is_some_and(|closed| looked - closed >= link.remote.options.silence);
            if is_late || link.is_late(looked) {
                break Cause::ClosedHere;
            }
        }
    };
    link.end(cause);
    reader.give_up(link.gone().unwrap_or(cause));
}

impl Reader<'_> {
    fn take(&mut self, message: Message<'_>) -> Result<(), Cause> {
        match message {
            Message::Heartbeat | Message::Bye => {}
            Message::Announce { lane, size, name } => {
                let told = self.link.state().lanes.announce(lane, name, size)?;
                tell(self.link, told);
            }
            Message::Credit { lane, frames } => {
                if let Some(room) = self.link.state().rooms.get(&lane) {
                    // Two threads of the other side may tell it in another order.
                    room.frames.fetch_max(frames, Ordering::AcqRel);
                    room.tell();
                }
            }
            Message::WrongSize { lane, size } => {
                if let Some(room) = self.link.state().rooms.get(&lane) {
                    room.other_size.store(size, Ordering::Release);
                    room.tell();
                }
            }
            Message::Frame { lane, number, offset, bytes } => self.frame(lane, number, offset, bytes)?,
            Message::FrameFailed { lane, number } => self.frame_failed(lane, number)?,
            Message::Fetch { request, start, size, ticket } => self.fetch(request, ticket, start, size)?,
            Message::Fetched { request, offset, bytes } => self.arrive(request, offset, bytes)?,
            Message::Write { request, start, size, ticket } => self.write(request, ticket, start, size)?,
            Message::Written { request, offset, bytes } => self.write_piece(request, offset, bytes)?,
            Message::WriteFailed { request } => {
                if self.written.remove(&request).is_some() {
                    self.forget(Of::Write(request));
                }
            }
            Message::Done { request } => {
                if self.link.state().requests.get(&request).is_some_and(|asked| asked.destination.is_some()) {
                    return Err(Cause::Protocol("it answers a fetch without bytes"));
                }
                self.link.answer(request, |_| Ok(()));
            }
            Message::Refuse { request, why } => self.refused(request, why),
        }
        Ok(())
    }

    /// The owner refuses a request of this side.
    fn refused(&mut self, request: u64, why: Refusal) {
        let address = self.link.address;
        self.end_request(request, |asked| {
            let ((start, wanted), call) = (asked.range, asked.call);
            match why {
                Refusal::Forged => TicketError::Forged.into(),
                Refusal::Revoked => TicketError::Revoked.into(),
                Refusal::Rights => TicketError::Rights { call }.into(),
                Refusal::OutOfRange => TicketError::OutOfRange { start, wanted, size: asked.ticket_size }.into(),
                Refusal::Busy => {
                    Error::Owner { call, address, why: "has 256 requests of this program open: wait for some" }
                }
                Refusal::Failed => {
                    Error::Owner { call, address, why: "could not copy the bytes, or not in time: see its errors" }
                }
            }
        });
    }

    /// Ends a request by an error. Of a fetch, no more bytes are taken, and the lander answers after those that were.
    fn end_request(&mut self, request: u64, error: impl FnOnce(&Request) -> Error) {
        self.fetched.remove(&request);
        let mut state = self.link.state();
        let Some(asked) = state.requests.get_mut(&request).filter(|asked| !asked.ends) else {
            drop(state);
            // The lander has answered, because a copy failed: it forgets that now.
            return self.forget(Of::Fetch(request));
        };
        asked.ends = true;
        let (error, is_fetch) = (error(asked), asked.destination.is_some());
        drop(state);
        match is_fetch {
            true => self.end_fetch(request, Err(error)),
            false => self.link.answer(request, |_| Err(error)),
        }
    }

    /// Ends a transfer that has an answer already, or whose peer is told that it has failed.
    fn forget(&self, of: Of) {
        let why = "the transfer has ended";
        // The lander ends after this thread.
        let _ = self.lander.send(Landing::End { of, outcome: Err(Error::Failed { call: "a transfer", why }) });
    }

    fn end_fetch(&mut self, request: u64, outcome: crate::Result<()>) {
        self.fetched.remove(&request);
        if let Some(asked) = self.link.state().requests.get_mut(&request) {
            asked.ends = true;
        }
        // The lander ends after this thread.
        let _ = self.lander.send(Landing::End { of: Of::Fetch(request), outcome });
    }

    /// The connection has ended: so have the fetches.
    fn give_up(&mut self, cause: Cause) {
        let open: Vec<u64> = self.link.state().requests.keys().copied().collect();
        for request in open {
            self.end_request(request, |_| self.link.peer_gone(cause));
        }
        self.written.clear();
        self.frames.clear();
    }

    fn frame(&mut self, lane: u64, number: u64, offset: u64, bytes: &[u8]) -> Result<(), Cause> {
        if offset == 0 {
            self.begin_frame(lane, number)?;
        }
        let (frame, size, received) = self.frames.get_mut(&lane).ok_or(Cause::Protocol("a frame without its begin"))?;
        let begun = self.begun.get(&lane).copied();
        if offset != *received || bytes.len() as u64 > *size - *received || begun != number.checked_add(1) {
            return Err(Cause::Protocol("it sends a frame out of order"));
        }
        *received += bytes.len() as u64;
        let end = *received;
        // A frame whose memory refuses the bytes is dropped: the streams that wait for it learn that it is abandoned.
        if frame.as_mut().is_some_and(|given| given.frame.store(offset as usize, bytes).is_err()) {
            *frame = None;
        }
        if end == *size
            && let Some((Some(Given { frame, filled }), ..)) = self.frames.remove(&lane)
        {
            // A refusal returns the frame, whose drop tells its streams.
            drop(frame.publish());
            drop(filled);
            self.link.look();
        }
        Ok(())
    }

    fn begin_frame(&mut self, lane: u64, number: u64) -> Result<(), Cause> {
        let begun = self.begun.entry(lane).or_default();
        if number != *begun || self.frames.contains_key(&lane) {
            return Err(Cause::Protocol("it sends frames out of order"));
        }
        *begun += 1;
        // Frames that this side does not receive any more are read and forgotten.
        let (frame, size) = self.link.state().lanes.take(lane)?;
        self.frames.insert(lane, (frame, size, 0));
        Ok(())
    }

    fn frame_failed(&mut self, lane: u64, number: u64) -> Result<(), Cause> {
        if !self.frames.contains_key(&lane) {
            self.begin_frame(lane, number)?;
        }
        if self.begun.get(&lane).copied() != number.checked_add(1) {
            return Err(Cause::Protocol("it sends frames out of order"));
        }
        self.frames.remove(&lane);
        Ok(())
    }

    /// The peer asks for something. It must read the answers.
    fn asked(&self) -> Result<(), Cause> {
        if self.link.backlog() > MAX_BACKLOG {
            Err(Cause::Protocol("it asks and does not read the answers"))
        } else {
            Ok(())
        }
    }

    /// The peer fetches.
    fn fetch(&self, request: u64, ticket: &[u8], start: u64, size: u64) -> Result<(), Cause> {
        self.asked()?;
        let found = self.link.remote.shelf.find(ticket, Rights::Read, start, size);
        let job = found.map(|(memory, range)| Job { request, memory, range });
        if let Err(why) = job.and_then(|job| self.jobs.try_send(job).map_err(|_| Refusal::Busy)) {
            self.link.tell(Message::Refuse { request, why });
        }
        Ok(())
    }

    /// A piece of what this side has fetched.
    fn arrive(&mut self, request: u64, offset: u64, bytes: &[u8]) -> Result<(), Cause> {
        if !self.fetched.contains_key(&request) {
            if offset > 0 {
                // The rest of a fetch that has ended, by its deadline.
                return Ok(());
            }
            let state = self.link.state();
            let Some(asked) = state.requests.get(&request).filter(|asked| !asked.ends) else { return Ok(()) };
            let Some((memory, start, size)) = asked.destination.clone() else {
                return Err(Cause::Protocol("it answers a write by bytes"));
            };
            self.fetched.insert(request, Arrival::new(Of::Fetch(request), memory, start, size, asked.until));
        }
        let Some(arrival) = self.fetched.get_mut(&request) else { return Ok(()) };
        match arrival.take(&self.link.incoming, &self.lander, offset, bytes)? {
            Progress::More => {}
            Progress::Whole => self.end_fetch(request, Ok(())),
            Progress::NoSlot => {
                let after = self.link.remote.options.deadline;
                let why = "no slot of the staging became free: is a stream held up?";
                self.end_request(request, |asked| Error::TimedOut { call: asked.call, after, why });
            }
        }
        Ok(())
    }

    /// The peer begins to write.
    fn write(&mut self, request: u64, ticket: &[u8], start: u64, size: u64) -> Result<(), Cause> {
        self.asked()?;
        if self.written.contains_key(&request) {
            return Err(Cause::Protocol("it begins a write twice"));
        }
        let found = self.link.remote.shelf.find(ticket, Rights::Write, start, size);
        let found =
            found.and_then(|found| if self.written.len() < MAX_WRITES { Ok(found) } else { Err(Refusal::Busy) });
        match found {
            Ok((memory, range)) => {
                let until = Instant::now() + self.link.remote.options.deadline;
                let arrival = Arrival::new(Of::Write(request), memory, range.start, size, until);
                self.written.insert(request, arrival);
            }
            Err(why) => self.link.tell(Message::Refuse { request, why }),
        }
        Ok(())
    }

    fn write_piece(&mut self, request: u64, offset: u64, bytes: &[u8]) -> Result<(), Cause> {
        // The rest of a refused write comes too.
        let Some(arrival) = self.written.get_mut(&request) else { return Ok(()) };
        match arrival.take(&self.link.incoming, &self.lander, offset, bytes)? {
            Progress::More => return Ok(()),
            Progress::Whole => {
                // The lander ends after this thread.
                let _ = self.lander.send(Landing::End { of: Of::Write(request), outcome: Ok(()) });
            }
            Progress::NoSlot => self.forget(Of::Write(request)),
        }
        self.written.remove(&request);
        Ok(())
    }

    /// Ends what has taken too long.
    fn expire(&mut self, now: Instant) {
        let state = self.link.state();
        let late: Vec<_> = state.requests.iter().filter(|(_, asked)| asked.until <= now).map(|(&it, _)| it).collect();
        drop(state);
        let after = self.link.remote.options.deadline;
        for request in late {
            let why = "the peer is there, but has not answered";
            self.end_request(request, |asked| Error::TimedOut { call: asked.call, after, why });
        }
        // A peer that breaks off a write says so, or ends. This is for one that does not.
        let late: Vec<_> = self.written.extract_if(|_, arrival| arrival.until + after <= now).collect();
        late.into_iter().for_each(|(request, _)| self.forget(Of::Write(request)));
    }
}

pub(super) fn tell(link: &Link, told: Tell) {
    match told {
        Tell::Nothing => {}
        Tell::Credit { lane, frames } => link.tell(Message::Credit { lane, frames }),
        Tell::WrongSize { lane, size } => link.tell(Message::WrongSize { lane, size }),
    }
}
