//! Which accesses of queued work to an allocation later work must wait for.
//!
//! The home stream writes an allocation, and copies on other streams read it. A read waits for the writes of its bytes,
//! and not for all work of the home stream. A write waits for the reads of its bytes. So copies that share no bytes run
//! side by side, although each stream has many of them.
//!
//! An access is known by an event behind it, which outlives its stream. Writes without an event of their own are the
//! *rest*: one event behind them all is recorded when a read first needs it.

use core::ops::Range;

/// The number of reads, and of writes, that an allocation remembers.
pub(super) const MOST: usize = 16;
/// The number of events that are kept for later accesses.
const SPARE: usize = 4;

/// The accesses of one allocation. `E` is an event, or what stands for one in tests.
#[derive(Debug)]
pub(super) struct Accesses<E> {
    /// Reads by other streams that the home stream does not wait for yet.
    reads: Vec<Read<E>>,
    /// Writes since the rest, in order of the home stream.
    writes: Vec<Write<E>>,
    /// What is known of all other writes. None if some of them have no event yet.
    rest: Option<Rest<E>>,
    /// How many reads were noted.
    noted: u64,
    /// Events of reads that were replaced.
    spare: Vec<E>,
    /// Events that the list has no use for: see [`take_unused`](Self::take_unused).
    unused: Vec<E>,
}

#[derive(Debug)]
struct Read<E> {
    bytes: Range<usize>,
    /// The number of the stream.
    stream: u64,
    /// How many reads were noted with it.
    number: u64,
    event: E,
}

#[derive(Debug)]
struct Write<E> {
    bytes: Range<usize>,
    event: E,
}

/// An event behind all writes up to a number. No event: they are over.
#[derive(Debug)]
struct Rest<E> {
    event: Option<E>,
    written: u64,
}

/// What a read must wait for.
#[derive(Debug, PartialEq)]
pub(super) enum ReadAfter<E> {
    /// These events.
    Events(Vec<E>),
    /// All work of the home stream so far: some writes have no event.
    AllWork,
}

impl<E> Default for Accesses<E> {
    fn default() -> Self {
        Self { reads: Vec::new(), writes: Vec::new(), rest: None, noted: 0, spare: Vec::new(), unused: Vec::new() }
    }
}

impl<E: Clone + PartialEq> Accesses<E> {
    /// What a read of these bytes must wait for, after `written` writes.
    pub fn before_read(&self, bytes: &Range<usize>, written: u64) -> ReadAfter<E> {
        match &self.rest {
            Some(rest) if rest.written == written => {
                // The last write of the home stream comes after the others.
                let write = self.writes.iter().rev().find(|write| overlap(&write.bytes, bytes));
                ReadAfter::Events(
                    write.map(|write| &write.event).or(rest.event.as_ref()).cloned().into_iter().collect(),
                )
            }
            _ => ReadAfter::AllWork,
        }
    }

    /// Notes that all work of the home stream up to a number of writes comes before an event, or is over.
    pub fn note_rest(&mut self, event: Option<E>, written: u64) {
        self.unused.extend(self.writes.drain(..).map(|write| write.event));
        let rest = self.rest.replace(Rest { event, written });
        self.unused.extend(rest.and_then(|rest| rest.event));
    }

    /// Notes that the writes before an event are over.
    pub fn pass_write(&mut self, passed: &E) {
        // Those before it are over too. Those of the rest come before all writes of the list.
        if let Some(last) = self.writes.iter().rposition(|write| write.event == *passed) {
            self.unused.extend(self.writes.drain(..=last).map(|write| write.event));
            self.forget_rest_event();
        } else if self.rest.as_ref().is_some_and(|rest| rest.event.as_ref() == Some(passed)) {
            self.forget_rest_event();
        }
    }

    fn forget_rest_event(&mut self) {
        self.unused.extend(self.rest.as_mut().and_then(|rest| rest.event.take()));
    }

    /// The reads by other streams that a write of these bytes must wait for.
    pub fn before_write(&self, bytes: &Range<usize>) -> Vec<E> {
        let read = self.reads.iter().filter(|read| overlap(&read.bytes, bytes));
        read.map(|read| read.event.clone()).collect()
    }

    /// Notes that the home stream waits for a read.
    pub fn pass_read(&mut self, event: &E) {
        self.unused.extend(self.reads.extract_if(.., |read| read.event == *event).map(|read| read.event));
    }

    /// How many reads were noted so far.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// Notes a read by another stream, with the event behind it, which was marked after `noted` reads were noted. Returns the
    /// event of the earliest read if there are too many: make the home stream wait for it, then [pass](Self::pass_read) it.
    #[must_use]
    pub fn note_read(&mut self, bytes: Range<usize>, stream: u64, event: E, noted: u64) -> Option<E> {
        // The event comes after those reads of the stream. Another thread may have marked a later one meanwhile.
        let is_replaced =
            |read: &mut Read<E>| read.stream == stream && read.number <= noted && covers(&bytes, &read.bytes);
        self.spare.extend(self.reads.extract_if(.., is_replaced).map(|read| read.event));
        self.unused.extend(self.spare.drain(SPARE.min(self.spare.len())..));
        self.noted += 1;
        self.reads.push(Read { bytes, stream, number: self.noted, event });
        (self.reads.len() > MOST).then(|| self.reads[0].event.clone())
    }

    /// Notes a write by the home stream, with the event behind it, which comes after the first `covered` writes. `before` is the
    /// number of writes before it.
    pub fn note_write(&mut self, bytes: Range<usize>, event: E, covered: u64, before: u64) {
        match &mut self.rest {
            Some(rest) if rest.written == before && self.writes.len() < MOST => {
                rest.written += 1;
                let is_replaced = |write: &mut Write<E>| covers(&bytes, &write.bytes);
                self.unused.extend(self.writes.extract_if(.., is_replaced).map(|write| write.event));
                self.writes.push(Write { bytes, event });
            }
            _ if covered == before => self.note_rest(Some(event), before + 1),
            // Another thread has queued a write meanwhile.
            _ => self.note_rest(Some(event), covered),
        }
    }

    /// The event of a read that was replaced, if `is_unused` says that nobody else has it.
    pub fn take_spare(&mut self, is_unused: impl Fn(&E) -> bool) -> Option<E> {
        let place = self.spare.iter().position(is_unused)?;
        Some(self.spare.swap_remove(place))
    }

    /// The events that the list has no use for. Drop them without the list's lock: with its last event, a context may end.
    #[must_use]
    pub fn take_unused(&mut self) -> Vec<E> {
        core::mem::take(&mut self.unused)
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

fn covers(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start <= other.start && other.end <= one.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// A stream's work so far: for each stream, how many of its pieces come before the next one.
    type Clock = [u32; STREAMS];
    /// The home stream, and two others.
    const STREAMS: usize = 3;
    const HALVES: [Range<usize>; 3] = [0..4, 4..8, 0..8];

    /// What a program does with a buffer of two halves.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Step {
        /// A copy to a part, from a buffer of another stream.
        Write(usize),
        /// Other work of the home stream on all of the buffer.
        Work,
        /// A copy from a part on another stream.
        Read(usize, usize),
        /// Work of the home stream on other memory.
        Elsewhere,
        /// All work so far gets done.
        Done,
    }

    const STEPS: [Step; 12] = [
        Step::Write(0),
        Step::Write(1),
        Step::Write(2),
        Step::Work,
        Step::Read(0, 1),
        Step::Read(1, 1),
        Step::Read(2, 1),
        Step::Read(0, 2),
        Step::Read(1, 2),
        Step::Read(2, 2),
        Step::Elsewhere,
        Step::Done,
    ];

    /// An event, as the work that comes before it.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Point(Clock);

    /// Runs programs as `memory_order` does, and knows which work comes before which.
    #[derive(Default)]
    struct Run {
        accesses: Accesses<Point>,
        worked: u64,
        streams: [Clock; STREAMS],
        done: Clock,
        /// Each write and read: its bytes, its stream, its number there, and what comes before it.
        writes: Vec<(Range<usize>, usize, u32, Clock)>,
        reads: Vec<(Range<usize>, usize, u32, Clock)>,
    }

    fn comes_before(number: u32, stream: usize, clock: &Clock) -> bool {
        number <= clock[stream]
    }

    impl Run {
        fn wait(&mut self, stream: usize, point: Point) {
            for (own, other) in self.streams[stream].iter_mut().zip(point.0) {
                *own = (*own).max(other);
            }
        }

        /// Queues a piece of work. Returns its number, and what comes before it.
        fn queue(&mut self, stream: usize) -> (u32, Clock) {
            let before = self.streams[stream];
            self.streams[stream][stream] += 1;
            (self.streams[stream][stream], before)
        }

        fn is_over(&self, point: &Point) -> bool {
            point.0.iter().zip(self.done).all(|(work, done)| *work <= done)
        }

        /// Work of the home stream that may write these bytes.
        fn write(&mut self, bytes: Range<usize>) {
            for point in self.accesses.before_write(&bytes) {
                self.wait(0, point);
                self.accesses.pass_read(&point);
            }
            let (number, before) = self.queue(0);
            self.writes.push((bytes, 0, number, before));
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Write(part) => {
                    self.write(HALVES[part].clone());
                    self.accesses.note_write(HALVES[part].clone(), Point(self.streams[0]), self.worked, self.worked);
                    self.worked += 1;
                }
                Step::Work => {
                    self.write(0..8);
                    self.worked += 1;
                }
                Step::Elsewhere => drop(self.queue(0)),
                Step::Done => {
                    let all = |stream: usize| self.streams.iter().map(|clock| clock[stream]).max().unwrap_or_default();
                    self.done = std::array::from_fn(all);
                    // What is queued from now on comes after what is done.
                    self.streams = [self.done; STREAMS];
                }
                Step::Read(part, stream) => {
                    let events = match self.accesses.before_read(&HALVES[part], self.worked) {
                        ReadAfter::Events(events) => events,
                        ReadAfter::AllWork => {
                            let all = Point(self.streams[0]);
                            let event = (!self.is_over(&all)).then_some(all);
                            self.accesses.note_rest(event, self.worked);
                            event.into_iter().collect()
                        }
                    };
                    for point in events {
                        match self.is_over(&point) {
                            true => self.accesses.pass_write(&point),
                            false => self.wait(stream, point),
                        }
                    }
                    let (number, before) = self.queue(stream);
                    self.reads.push((HALVES[part].clone(), stream, number, before));
                    let (point, noted) = (Point(self.streams[stream]), self.accesses.noted());
                    let surplus = self.accesses.note_read(HALVES[part].clone(), stream as u64, point, noted);
                    if let Some(point) = surplus {
                        self.wait(0, point);
                        self.accesses.pass_read(&point);
                    }
                }
            }
        }

        /// Checks that each read comes before or after each write of its bytes.
        fn check(&self) {
            for (read, reader, read_number, before_read) in &self.reads {
                for (written, writer, write_number, before_write) in &self.writes {
                    let is_ordered = comes_before(*write_number, *writer, before_read)
                        || comes_before(*read_number, *reader, before_write);
                    assert!(!overlap(read, written) || is_ordered, "a read of {read:?} and a write of {written:?}");
                }
            }
        }
    }

    fn each_program(length: u32, mut check: impl FnMut(&[Step])) {
        let count = STEPS.len();
        for number in 0..count.pow(length) {
            let steps: Vec<Step> = (0..length).map(|place| STEPS[number / count.pow(place) % count]).collect();
            check(&steps);
        }
    }

    #[test]
    fn reads_and_writes_of_the_same_bytes_are_ordered() {
        each_program(if cfg!(miri) { 2 } else { 5 }, |steps| {
            let mut run = Run::default();
            steps.iter().for_each(|step| run.step(*step));
            run.check();
        });
    }

    #[test]
    fn a_read_waits_for_no_write_of_other_bytes() {
        // Half 0 is written, and read once, so that its write has an event. Then half 1 is written, and half 0 read again.
        let mut run = Run::default();
        for step in [Step::Write(0), Step::Read(0, 1), Step::Write(1), Step::Elsewhere, Step::Read(0, 2)] {
            run.step(step);
        }
        let (_, _, _, before) = run.reads.last().expect("the last step is a read");
        assert_eq!(before[0], 1, "it waits for the write of half 0 alone");
        // A write waits for the reads of its half.
        run.step(Step::Read(1, 1));
        run.step(Step::Write(0));
        let (_, _, _, before) = run.writes.last().expect("the last step is a write");
        assert_eq!(before[1..], [1, 1], "the read of half 1 is not waited for");
    }

    #[test]
    fn many_reads_and_writes_are_remembered_up_to_a_limit() {
        let mut accesses = Accesses::default();
        for event in 0..1000 {
            let early = accesses.note_read(0..8, event, event, event);
            assert_eq!(early, event.checked_sub(MOST as u64));
            if let Some(early) = early {
                assert!(accesses.before_write(&(3..4)).contains(&early), "it stays until the home stream waits for it");
                accesses.pass_read(&early);
            }
        }
        assert_eq!(accesses.before_write(&(3..4)).len(), MOST);
        accesses.note_rest(None, 0);
        for written in 0..1000 {
            accesses.note_write(written as usize..written as usize + 1, written, written, written);
        }
        assert!(accesses.writes.len() <= MOST);
        assert_eq!(accesses.before_read(&(999..1000), 1000), ReadAfter::Events(vec![999]));
    }

    #[test]
    fn an_event_replaces_only_reads_from_before_its_mark() {
        let mut accesses = Accesses::default();
        // Two threads read on one stream. The first to mark is the last to note.
        assert_eq!(accesses.note_read(0..8, 1, "second", 0), None);
        assert_eq!(accesses.note_read(0..8, 1, "first", 0), None);
        assert_eq!(accesses.before_write(&(0..8)), ["second", "first"]);
        // A write is queued and counted between the mark and the count of another.
        accesses.note_write(0..4, "write", 0, 1);
        assert_eq!(accesses.before_read(&(4..8), 2), ReadAfter::AllWork);
    }

    #[test]
    fn an_event_is_used_again_when_nobody_has_it() {
        let mut accesses = Accesses::default();
        assert_eq!(accesses.note_read(0..8, 1, "first", 0), None);
        assert_eq!(accesses.note_read(2..8, 1, "part", 1), None);
        assert_eq!(accesses.take_spare(|_| true), None);
        assert_eq!(accesses.note_read(0..8, 1, "again", 2), None);
        assert_eq!(accesses.take_spare(|event| *event == "part"), Some("part"));
        assert_eq!(accesses.take_spare(|_| true), Some("first"));
    }

    #[test]
    fn no_event_ends_before_its_owner_takes_it() {
        // The owner changes the list under a lock, where the end of an event may end a context.
        let mut accesses = Accesses::<Rc<u64>>::default();
        let alive = |events: &[Rc<u64>]| events.iter().map(Rc::strong_count).sum::<usize>();
        let (mut events, mut number) = (Vec::new(), 1u64);
        for step in 0..if cfg!(miri) { 60 } else { 2000 } {
            number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (choice, start, other) = (number >> 60, (number >> 40) as usize % 8, (number >> 20) as usize);
            let event = Rc::new(step);
            events.push(event.clone());
            let earlier = events[other % events.len()].clone();
            let mut before = alive(&events);
            let returned = match choice {
                0..6 => {
                    let early = accesses.note_read(start..start + 1, other as u64 % 40, event, step);
                    before += usize::from(early.is_some());
                    early.iter().for_each(|early| accesses.pass_read(early));
                    early
                }
                6..10 => {
                    accesses.note_write(start..start + choice as usize - 5, event, step, step);
                    None
                }
                10 => {
                    accesses.note_rest(Some(event), step + 1);
                    None
                }
                11 => {
                    accesses.note_rest(None, step + 1);
                    Some(event)
                }
                12 => {
                    accesses.pass_read(&earlier);
                    Some(event)
                }
                13 | 14 => {
                    accesses.pass_write(&earlier);
                    Some(event)
                }
                _ => {
                    drop((accesses.take_spare(|_| true), event));
                    continue;
                }
            };
            assert_eq!(alive(&events), before, "step {step}, choice {choice}");
            drop((returned, accesses.take_unused()));
        }
        assert!(alive(&events) < 2 * events.len(), "most events have ended");
    }
}
