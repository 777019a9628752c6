//! What the threads of a connection know together, as pure data. `F` is a frame, `D` the destination of a request.

use crate::error::Cause;
use std::collections::{HashMap, HashSet, VecDeque};

/// How many sequences of frames a peer may announce.
pub(super) const MAX_LANES: usize = 1024;

/// The frames of a name that this side receives.
#[derive(Debug)]
pub(super) struct Incoming<F> {
    size: u64,
    /// The peer's number for them, once it has announced them.
    lane: Option<u64>,
    /// The frames that are to be filled, in order.
    frames: VecDeque<F>,
    /// How many were given so far.
    given: u64,
    /// The peer announced another size.
    other_size: Option<u64>,
}

/// The sequences of frames that come in.
#[derive(Debug)]
pub(super) struct Lanes<F> {
    names: HashMap<Box<[u8]>, Incoming<F>>,
    /// The name and size of each announced lane.
    announced: HashMap<u64, (Box<[u8]>, u64)>,
    /// Names that were received before: their frames may still be on the way.
    over: HashSet<Box<[u8]>>,
}

/// What the peer must learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    Nothing,
    Credit { lane: u64, frames: u64 },
    WrongSize { lane: u64, size: u64 },
}

/// This side cannot receive frames of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Now,
    Before,
}

impl<F> Default for Lanes<F> {
    fn default() -> Self {
        Self { names: HashMap::new(), announced: HashMap::new(), over: HashSet::new() }
    }
}

impl<F> Lanes<F> {
    /// This side receives frames of a name.
    pub fn receive(&mut self, name: &[u8], size: u64) -> Result<Tell, Taken> {
        if self.over.contains(name) {
            return Err(Taken::Before);
        }
        if self.names.contains_key(name) {
            return Err(Taken::Now);
        }
        let lane =
            self.announced.iter().find(|(_, (known, _))| **known == *name).map(|(&lane, &(_, size))| (lane, size));
        let incoming = Incoming { size, lane: None, frames: VecDeque::new(), given: 0, other_size: None };
        let incoming = self.names.entry(name.into()).or_insert(incoming);
        Ok(lane.map_or(Tell::Nothing, |(lane, theirs)| incoming.meet(lane, theirs)))
    }

    /// The peer sends frames of a name.
    pub fn announce(&mut self, lane: u64, name: &[u8], size: u64) -> Result<Tell, Cause> {
        if self.announced.len() >= MAX_LANES {
            return Err(Cause::Protocol("it announces more than 1,024 sequences of frames"));
        }
        if self.announced.values().any(|(known, _)| **known == *name) {
            return Err(Cause::Protocol("it announces a sequence of frames twice"));
        }
        if self.announced.insert(lane, (name.into(), size)).is_some() {
            return Err(Cause::Protocol("it uses a number for two sequences of frames"));
        }
        Ok(self.names.get_mut(name).map_or(Tell::Nothing, |incoming| incoming.meet(lane, size)))
    }

    /// A frame of a name is to be filled. `Err`: the peer's frames have another size.
    pub fn give(&mut self, name: &[u8], frame: F) -> Result<Tell, (F, u64)> {
        let Some(incoming) = self.names.get_mut(name) else { return Ok(Tell::Nothing) };
        if let Some(theirs) = incoming.other_size {
            return Err((frame, theirs));
        }
        incoming.frames.push_back(frame);
        incoming.given += 1;
        Ok(incoming.credit())
    }

    /// The next frame to fill, and its size. No frame: this side receives them no more.
    pub fn take(&mut self, lane: u64) -> Result<(Option<F>, u64), Cause> {
        let (name, size) =
            self.announced.get(&lane).ok_or(Cause::Protocol("a frame of a sequence that was not announced"))?;
        let Some(incoming) = self.names.get_mut(name) else {
            let received = self.over.contains(name);
            return if received { Ok((None, *size)) } else { Err(Cause::Protocol("a frame that nobody receives")) };
        };
        let frame = incoming.frames.pop_front().ok_or(Cause::Protocol("a frame for which there is no room"))?;
        Ok((Some(frame), *size))
    }

    /// This side receives no more frames of a name. Returns those that were to be filled.
    pub fn stop(&mut self, name: &[u8]) -> VecDeque<F> {
        let Some((name, incoming)) = self.names.remove_entry(name) else { return VecDeque::new() };
        self.over.insert(name);
        incoming.frames
    }

    /// The frames of all names, at the end of the connection. What the peer has sent meanwhile is forgotten.
    pub fn clear(&mut self) -> Vec<F> {
        let names = self.names.drain();
        names
            .flat_map(|(name, incoming)| {
                self.over.insert(name);
                incoming.frames
            })
            .collect()
    }
}

impl<F> Incoming<F> {
    /// Both sides have named the frames.
    fn meet(&mut self, lane: u64, theirs: u64) -> Tell {
        if theirs != self.size {
            self.other_size = Some(theirs);
            return Tell::WrongSize { lane, size: self.size };
        }
        self.lane = Some(lane);
        self.credit()
    }

    fn credit(&self) -> Tell {
        match self.lane {
            Some(lane) if self.given > 0 => Tell::Credit { lane, frames: self.given },
            _ => Tell::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_told_whichever_side_names_the_frames_first() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.receive(b"a", 10), Ok(Tell::Nothing));
        assert_eq!(lanes.give(b"a", 'x'), Ok(Tell::Nothing));
        assert_eq!(lanes.announce(1, b"a", 10), Ok(Tell::Credit { lane: 1, frames: 1 }));
        assert_eq!(lanes.give(b"a", 'y'), Ok(Tell::Credit { lane: 1, frames: 2 }));

        assert_eq!(lanes.announce(2, b"b", 20), Ok(Tell::Nothing));
        assert_eq!(lanes.receive(b"b", 20), Ok(Tell::Nothing));
        assert_eq!(lanes.give(b"b", 'z'), Ok(Tell::Credit { lane: 2, frames: 1 }));

        assert_eq!((lanes.take(1), lanes.take(2)), (Ok((Some('x'), 10)), Ok((Some('z'), 20))));
        assert_eq!(lanes.take(1), Ok((Some('y'), 10)));
        assert!(lanes.take(1).is_err(), "more frames than room");
    }

    #[test]
    fn both_sides_learn_of_another_size() {
        let mut lanes = Lanes::default();
        lanes.receive(b"a", 10).unwrap();
        assert_eq!(lanes.announce(1, b"a", 11), Ok(Tell::WrongSize { lane: 1, size: 10 }));
        assert_eq!(lanes.give(b"a", 'x'), Err(('x', 11)));
        lanes.announce(2, b"b", 11).unwrap();
        assert_eq!(lanes.receive(b"b", 10), Ok(Tell::WrongSize { lane: 2, size: 10 }));
    }

    #[test]
    fn frames_on_the_way_after_the_last_reception_are_no_error() {
        let mut lanes = Lanes::default();
        lanes.receive(b"a", 10).unwrap();
        lanes.announce(1, b"a", 10).unwrap();
        lanes.give(b"a", 'x').unwrap();
        assert_eq!(lanes.stop(b"a"), ['x']);
        assert_eq!(lanes.take(1), Ok((None, 10)));
        assert_eq!(lanes.receive(b"a", 10), Err(Taken::Before));
    }

    #[test]
    fn frames_on_the_way_at_the_end_of_the_connection_are_no_error() {
        let mut lanes = Lanes::default();
        lanes.receive(b"a", 10).unwrap();
        lanes.announce(1, b"a", 10).unwrap();
        lanes.give(b"a", 'x').unwrap();
        assert_eq!(lanes.clear(), ['x']);
        assert_eq!(lanes.take(1), Ok((None, 10)));
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_found_out() {
        let mut lanes = Lanes::<char>::default();
        assert!(lanes.take(1).is_err(), "not announced");
        lanes.announce(1, b"a", 10).unwrap();
        assert!(lanes.take(1).is_err(), "nobody receives it");
        assert!(lanes.announce(2, b"a", 10).is_err(), "twice");
        assert!(lanes.announce(1, b"b", 10).is_err(), "a number twice");
        for lane in 3..=MAX_LANES as u64 + 1 {
            lanes.announce(lane, format!("{lane}").as_bytes(), 1).unwrap();
        }
        assert!(lanes.announce(9999, b"last", 1).is_err(), "too many");
    }
}
