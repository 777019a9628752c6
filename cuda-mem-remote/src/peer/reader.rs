//! The thread that receives. It never waits for the network's other direction.

use super::arrival::{Arrival, Progress};
use super::frames::Given;
use super::link::{Link, Room};
use super::server::Job;
use super::state::Tell;
use crate::Error;
use crate::engine::{LOOK, Receiver};
use crate::error::Cause;
use crate::staging::Landing;
use crate::wire::{Message, Refusal, Rights, TicketError};
use crossbeam_channel::Sender;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// How many writes of a peer may be under way.
const MAX_WRITES: usize = 256;

struct Reader<'a> {
    link: &'a Arc<Link>,
    jobs: &'a Sender<Job>,
    landing: Landing,
    /// The frames of which a part has come, by lane: the frame, its size, and how many bytes have come.
    frames: HashMap<u64, (Option<Given>, u64, u64)>,
    /// How many frames of each lane were begun.
    begun: HashMap<u64, u64>,
    /// What this side has fetched, by request.
    fetched: HashMap<u64, Arrival>,
    /// What the peer writes, by its request.
    written: HashMap<u64, Arrival>,
}

pub(super) fn run(link: &Arc<Link>, mut receiver: Box<dyn Receiver>, jobs: &Sender<Job>) {
    let mut reader = Reader {
        link,
        jobs,
        landing: Landing::default(),
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
            Some(message) => reader.take(message).map(|()| true),
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
            reader.landing.sweep();
            closed = closed.or_else(|| link.gone().map(|_| looked));
            if closed.is_some_and(|closed| looked - closed >= link.remote.options.silence) {
                break Cause::ClosedHere;
            }
        }
    };
    link.end(cause);
}

impl Reader<'_> {
    fn take(&mut self, message: Message<'_>) -> Result<(), Cause> {
        match message {
            Message::Heartbeat | Message::Bye => {}
            Message::Announce { lane, size, name } => {
                let told = self.link.state().lanes.announce(lane, name, size)?;
                tell(self.link, told);
            }
            Message::Credit { lane, frames } => self.room(lane, Room::Frames(frames)),
            Message::WrongSize { lane, size } => self.room(lane, Room::OtherSize(size)),
            Message::Frame { lane, number, offset, bytes } => self.frame(lane, number, offset, bytes)?,
            Message::FrameFailed { lane, number } => self.frame_failed(lane, number)?,
            Message::Fetch { request, start, size, ticket } => self.fetch(request, ticket, start, size),
            Message::Fetched { request, offset, bytes } => self.arrive(request, offset, bytes)?,
            Message::Write { request, start, size, ticket } => self.write(request, ticket, start, size)?,
            Message::Written { request, offset, bytes } => self.write_piece(request, offset, bytes)?,
            Message::WriteFailed { request } => drop(self.written.remove(&request)),
            Message::Done { request } => self.answer(request, |_| Ok(())),
            Message::Refuse { request, why } => {
                self.fetched.remove(&request);
                let address = self.link.address;
                self.answer(request, |request| {
                    let (start, wanted) = request.range;
                    let call = request.call;
                    Err(match why {
                        Refusal::Forged => TicketError::Forged.into(),
                        Refusal::Revoked => TicketError::Revoked.into(),
                        Refusal::Rights => TicketError::Rights { call }.into(),
                        Refusal::OutOfRange => {
                            TicketError::OutOfRange { start, wanted, size: request.ticket_size }.into()
                        }
                        Refusal::Busy => {
                            Error::Owner { call, address, why: "has 256 requests of this program open: wait for some" }
                        }
                        Refusal::Failed => {
                            Error::Owner { call, address, why: "could not copy the bytes: see its errors" }
                        }
                    })
                });
            }
        }
        Ok(())
    }

    fn room(&self, lane: u64, room: Room) {
        if let Some(sender) = self.link.state().rooms.get(&lane) {
            // Nobody sends any more.
            let _ = sender.send(room);
        }
    }

    fn frame(&mut self, lane: u64, number: u64, offset: u64, bytes: &[u8]) -> Result<(), Cause> {
        if offset == 0 {
            self.begin_frame(lane, number)?;
        }
        let (frame, size, received) = self.frames.get_mut(&lane).ok_or(Cause::Protocol("a frame without its begin"))?;
        let end = offset + bytes.len() as u64;
        if offset != *received || end > *size || self.begun.get(&lane) != Some(&(number + 1)) {
            return Err(Cause::Protocol("it sends a frame out of order"));
        }
        *received = end;
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
        if self.begun.get(&lane) != Some(&(number + 1)) {
            return Err(Cause::Protocol("it sends frames out of order"));
        }
        self.frames.remove(&lane);
        Ok(())
    }

    /// The peer fetches.
    fn fetch(&self, request: u64, ticket: &[u8], start: u64, size: u64) {
        let found = self.link.remote.shelf.find(ticket, Rights::Read, start, size);
        let job = found.map(|(memory, range)| Job { request, memory, range });
        if let Err(why) = job.and_then(|job| self.jobs.try_send(job).map_err(|_| Refusal::Busy)) {
            self.link.tell(Message::Refuse { request, why });
        }
    }

    /// A piece of what this side has fetched.
    fn arrive(&mut self, request: u64, offset: u64, bytes: &[u8]) -> Result<(), Cause> {
        if !self.fetched.contains_key(&request) {
            let state = self.link.state();
            // A fetch that has ended, by its deadline, may still arrive.
            let Some(asked) = state.requests.get(&request) else { return Ok(()) };
            let Some((memory, start, size)) = asked.destination.clone() else {
                return Err(Cause::Protocol("it answers a write by bytes"));
            };
            self.fetched.insert(request, Arrival::new(memory, start, size, asked.until));
        }
        let Some(arrival) = self.fetched.get_mut(&request) else { return Ok(()) };
        let outcome = match arrival.take((&self.link.remote.incoming, &mut self.landing), offset, bytes)? {
            Progress::More => return Ok(()),
            Progress::Whole => Ok(()),
            Progress::Failed(error) => Err(Some(error)),
            Progress::TimedOut => Err(None),
        };
        self.fetched.remove(&request);
        self.answer(request, |asked| {
            let after = self.link.remote.options.deadline;
            let why = "no slot of the staging became free: is a stream held up?";
            outcome.map_err(|error| error.map_or(Error::TimedOut { call: asked.call, after, why }, Error::Cuda))
        });
        Ok(())
    }

    /// The peer begins to write.
    fn write(&mut self, request: u64, ticket: &[u8], start: u64, size: u64) -> Result<(), Cause> {
        if self.written.contains_key(&request) {
            return Err(Cause::Protocol("it begins a write twice"));
        }
        let found = self.link.remote.shelf.find(ticket, Rights::Write, start, size);
        let found =
            found.and_then(|found| if self.written.len() < MAX_WRITES { Ok(found) } else { Err(Refusal::Busy) });
        match found {
            Ok((memory, range)) => {
                let until = Instant::now() + self.link.remote.options.deadline;
                self.written.insert(request, Arrival::new(memory, range.start, size, until));
            }
            Err(why) => self.link.tell(Message::Refuse { request, why }),
        }
        Ok(())
    }

    fn write_piece(&mut self, request: u64, offset: u64, bytes: &[u8]) -> Result<(), Cause> {
        // The rest of a refused write comes too.
        let Some(arrival) = self.written.get_mut(&request) else { return Ok(()) };
        let message = match arrival.take((&self.link.remote.incoming, &mut self.landing), offset, bytes)? {
            Progress::More => return Ok(()),
            Progress::Whole => Message::Done { request },
            Progress::Failed(_) | Progress::TimedOut => Message::Refuse { request, why: Refusal::Failed },
        };
        self.written.remove(&request);
        self.link.tell(message);
        Ok(())
    }

    fn answer(&self, request: u64, outcome: impl FnOnce(&super::link::Request) -> crate::Result<()>) {
        let asked = self.link.state().requests.remove(&request);
        if let Some(asked) = asked {
            let outcome = outcome(&asked);
            asked.answer.give(outcome);
        }
    }

    /// Ends what has taken too long.
    fn expire(&mut self, now: Instant) {
        let mut state = self.link.state();
        let late: Vec<_> = state.requests.extract_if(|_, request| request.until <= now).collect();
        drop(state);
        for (number, request) in late {
            self.fetched.remove(&number);
            let (call, after) = (request.call, self.link.remote.options.deadline);
            let why = "the peer is there, but has not answered";
            request.answer.give(Err(Error::TimedOut { call, after, why }));
        }
        // A peer that breaks off a write says so, or ends. This is for one that does not.
        self.written.retain(|_, arrival| arrival.until + self.link.remote.options.deadline > now);
    }
}

pub(super) fn tell(link: &Link, told: Tell) {
    match told {
        Tell::Nothing => {}
        Tell::Credit { lane, frames } => link.tell(Message::Credit { lane, frames }),
        Tell::WrongSize { lane, size } => link.tell(Message::WrongSize { lane, size }),
    }
}
