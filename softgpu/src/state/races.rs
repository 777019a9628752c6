//! Whether work of different streams on the same bytes has an order: bookkeeping alone, by vector clocks. That the work
//! happened to be done in order does not count, so that a wait which is missing shows in every run.
//!
//! Each stream counts its work. A [`Moment`] says of each stream up to which number its work comes before; events carry
//! moments from stream to stream, and to the host whoever waits. What the host has seen the end of comes before all work
//! that anybody begins later.
//!
//! Streams that wait for words in memory, for semaphores or for other processes have an order that nobody sees from here:
//! such a moment is *blurred*, and nothing is said of work after it.
//!
//! What the CPU has [borrowed](borrows) is compared with the same marks.

mod borrows;

pub(crate) use borrows::Hold;

use super::sync::lock;
use crate::misuse::{Misuse, report_after};
use borrows::{Borrows, Conflict};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Names a stream's queue; no other queue ever gets the same name.
pub(crate) type QueueId = u64;

/// A name for a new queue.
pub(crate) fn next_id() -> QueueId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What comes before a point of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment(Option<Arc<Clock>>);

/// Bytes that work touches.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pub(crate) bytes: Range<usize>,
    pub(crate) write: bool,
    /// The address of the first byte as the program knows it.
    pub(crate) shown: u64,
    /// The number of the block.
    pub(crate) block: Option<u64>,
}

/// Of each queue, up to which number its work comes before.
#[derive(Clone, Debug, Default)]
struct Clock {
    seen: BTreeMap<QueueId, u64>,
    /// More may come before than is known.
    blurred: bool,
}

impl Clock {
    fn join(&mut self, other: &Clock) {
        for (queue, number) in &other.seen {
            let seen = self.seen.entry(*queue).or_insert(0);
            *seen = (*number).max(*seen);
        }
        self.blurred |= other.blurred;
    }
}

/// A piece of work that touched bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    queue: QueueId,
    number: u64,
    call: &'static str,
}

/// Bytes with the work that touched them last.
#[derive(Clone, Debug)]
struct Segment {
    end: usize,
    write: Option<Mark>,
    /// Reads since that write which do not come before one another.
    reads: Vec<Mark>,
}

/// What is known of a queue.
#[derive(Debug, Default)]
struct Line {
    /// How much work it was given.
    number: u64,
    /// What comes before its next work, beside its own.
    after: Clock,
    /// It gets no more work.
    ended: bool,
}

/// All queues, and the bytes that they touched.
#[derive(Debug, Default)]
struct Races {
    lines: BTreeMap<QueueId, Line>,
    /// Of each queue, up to which number the host has seen the end of its work.
    host: BTreeMap<QueueId, u64>,
    segments: BTreeMap<usize, Segment>,
    borrows: Borrows,
}

/// What touched the same bytes without an order: its call, the first byte of that as the program knows it, and the block.
type Unordered = (&'static str, u64, Option<u64>);

/// What is wrong with work.
#[derive(Debug, Default)]
struct Wrong {
    unordered: Option<Unordered>,
    /// What the CPU holds, and which of the ranges it is of.
    borrowed: Option<(Conflict, usize)>,
    /// When it will be done is not known: the CPU's borrows are looked at then.
    blurred: bool,
}

impl Races {
    /// What comes after the work that a queue has now. Others whose work it waits for are joined.
    fn moment(&self, queue: QueueId, joined: &[QueueId]) -> Clock {
        let mut clock = Clock::default();
        for queue in joined.iter().chain([&queue]) {
            if let Some(line) = self.lines.get(queue) {
                clock.join(&line.after);
                clock.seen.insert(*queue, line.number);
            }
        }
        clock
    }

    /// Lets later work of a queue come after a moment.
    fn follow(&mut self, queue: QueueId, clock: &Clock) {
        self.lines.entry(queue).or_default().after.join(clock);
    }

    /// The order of a queue's later work is not known.
    fn blur(&mut self, queue: QueueId) {
        let line = self.lines.entry(queue).or_default();
        line.number += 1;
        line.after.blurred = true;
    }

    /// The host has seen that all before a moment is done.
    fn observe(&mut self, clock: &Clock) {
        let mut see = |queue, number: u64| {
            let seen = self.host.entry(queue).or_insert(0);
            *seen = number.max(*seen);
        };
        if clock.blurred {
            self.lines.iter().for_each(|(queue, line)| see(*queue, line.number));
        } else {
            let known = clock.seen.iter().filter(|(queue, _)| self.lines.contains_key(queue));
            known.for_each(|(queue, number)| see(*queue, *number));
        }
        let host = &mut self.host;
        self.lines.retain(|queue, line| {
            let over = line.ended && host.get(queue).is_some_and(|seen| *seen >= line.number);
            if over {
                host.remove(queue);
            }
            !over
        });
    }

    /// The host has waited for a queue whose moment this was.
    fn settle(&mut self, queue: QueueId, clock: &Clock) {
        self.observe(clock);
        if let Some(line) = self.lines.get_mut(&queue)
            && clock.seen.get(&queue) == Some(&line.number)
        {
            line.after.blurred = false;
        }
    }

    /// A queue gets no more work, and has none any more, though the host has not seen that.
    fn end(&mut self, queue: QueueId) {
        if let Some(line) = self.lines.get_mut(&queue) {
            line.ended = true;
            self.observe(&Clock::default());
        }
    }

    /// The host has waited for all work, that of queues which are gone too.
    fn see_ended(&mut self) {
        let Races { lines, host, .. } = self;
        lines.retain(|queue, line| {
            if line.ended {
                host.remove(queue);
            }
            !line.ended
        });
    }

    /// Gives a queue work that touches bytes. Gives what is wrong with it.
    fn touch(&mut self, queue: QueueId, joined: &[QueueId], touched: &[Touched], call: &'static str) -> Wrong {
        let mut after = self.moment(queue, joined);
        let borrowed = if after.blurred { None } else { self.against_borrows(touched, call) };
        let Races { lines, host, segments, .. } = self;
        // What the host has seen comes before anyway, and so does the work of queues that are over.
        after.seen.retain(|other, number| {
            *other != queue && lines.contains_key(other) && host.get(other).is_none_or(|seen| seen < number)
        });
        let line = lines.entry(queue).or_default();
        line.number += 1;
        let mark = Mark { queue, number: line.number, call };
        line.after = after.clone();
        if after.blurred {
            return Wrong { blurred: true, ..Wrong::default() };
        }
        let is_before = |other: &Mark| {
            let reached = |clock: &BTreeMap<_, _>| clock.get(&other.queue).is_some_and(|seen| *seen >= other.number);
            other.queue == queue || reached(host) || reached(&after.seen) || !lines.contains_key(&other.queue)
        };
        let mut found = None;
        for one in touched.iter().filter(|one| !one.bytes.is_empty()) {
            let earlier = enter(segments, one, mark, is_before);
            let told = |(earlier, at): (Mark, usize)| {
                (earlier.call, one.shown + (at.max(one.bytes.start) - one.bytes.start) as u64, one.block)
            };
            found = found.or(earlier.map(told));
        }
        Wrong { unordered: found, borrowed, blurred: false }
    }

    /// Bytes that are given back: whoever gets them next has nothing to wait for.
    fn forget(&mut self, bytes: &Range<usize>) {
        cut(&mut self.segments, bytes.start);
        cut(&mut self.segments, bytes.end);
        clear(&mut self.segments, bytes);
        self.borrows.forget(bytes);
    }
}

/// Enters work in the segments; gives other work that has no order with it, and where.
fn enter(
    segments: &mut BTreeMap<usize, Segment>,
    touched: &Touched,
    mark: Mark,
    is_before: impl Fn(&Mark) -> bool,
) -> Option<(Mark, usize)> {
    let Range { start, end } = touched.bytes;
    cut(segments, start);
    cut(segments, end);
    let (mut found, mut gaps, mut reached) = (None, Vec::new(), start);
    for (first, segment) in segments.range_mut(start..end) {
        let writes = segment.write.iter();
        let reads = segment.reads.iter().filter(|_| touched.write);
        found = found.or_else(|| Some((*writes.chain(reads).find(|other| !is_before(other))?, *first)));
        if reached < *first {
            gaps.push((reached, *first));
        }
        reached = segment.end;
        if !touched.write {
            segment.reads.retain(|other| !is_before(other));
            segment.reads.push(mark);
        }
    }
    if touched.write {
        clear(segments, &touched.bytes);
        segments.insert(start, Segment { end, write: Some(mark), reads: Vec::new() });
        return found;
    }
    if reached < end {
        gaps.push((reached, end));
    }
    for (first, end) in gaps {
        segments.insert(first, Segment { end, write: None, reads: vec![mark] });
    }
    found
}

/// Takes out the segments that begin within bytes.
fn clear(segments: &mut BTreeMap<usize, Segment>, bytes: &Range<usize>) {
    let inside: Vec<usize> = segments.range(bytes.clone()).map(|(first, _)| *first).collect();
    inside.iter().for_each(|first| drop(segments.remove(first)));
}

/// Divides the segment that an address lies within.
fn cut(segments: &mut BTreeMap<usize, Segment>, at: usize) {
    let Some((_, segment)) = segments.range_mut(..at).next_back() else { return };
    if segment.end > at {
        let right = segment.clone();
        segment.end = at;
        segments.insert(at, right);
    }
}

// ---- The one of the process ----

static ON: AtomicBool = AtomicBool::new(false);
static RACES: Mutex<Option<Races>> = Mutex::new(None);

/// Whether orders are looked at, from now on; forgets all that was before.
pub(crate) fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
    *lock(&RACES) = on.then(Races::default);
}

/// Whether orders are looked at.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

fn with<R>(work: impl FnOnce(&mut Races) -> R) -> Option<R> {
    if is_on() { lock(&RACES).as_mut().map(work) } else { None }
}

/// The end of the present work of a queue, and of others that it waits for.
pub(crate) fn moment(queue: QueueId, joined: &[QueueId]) -> Moment {
    Moment(with(|races| Arc::new(races.moment(queue, joined))))
}

/// Lets later work of a queue come after a moment.
pub(crate) fn follow(queue: QueueId, moment: &Moment) {
    if let Some(clock) = &moment.0 {
        with(|races| races.follow(queue, clock));
    }
}

/// From now on the order of a queue's work is not known.
pub(crate) fn blur(queue: QueueId) {
    with(|races| races.blur(queue));
}

/// The host has seen that all before a moment is done.
pub(crate) fn observe(moment: &Moment) {
    if let Some(clock) = &moment.0 {
        with(|races| races.observe(clock));
    }
}

/// The host has waited for all work of a queue, whose moment this was.
pub(crate) fn settle(queue: QueueId, moment: &Moment) {
    if let Some(clock) = &moment.0 {
        with(|races| races.settle(queue, clock));
    }
}

/// The host has waited for all work of a context, that of streams which are gone too.
pub(crate) fn see_ended() {
    with(Races::see_ended);
}

/// A queue gets no more work, and has none any more.
pub(crate) fn end(queue: QueueId) {
    with(|races| races.end(queue));
}

/// Bytes are given back.
fn forget(bytes: Range<usize>) {
    with(|races| races.forget(&bytes));
}

/// Bytes whose orders are forgotten at its end.
#[derive(Debug)]
pub(crate) struct Remembered(pub(crate) Range<usize>);

impl Drop for Remembered {
    fn drop(&mut self) {
        forget(self.0.clone());
    }
}

/// Gives a queue, which waits for the work of others too, work that touches bytes. Reports work of another queue that has
/// no order with it, and what the CPU has borrowed.
pub(crate) fn touch(queue: QueueId, joined: &[QueueId], touched: Vec<Touched>, call: &'static str) -> Noted {
    let Some(wrong) = with(|races| races.touch(queue, joined, &touched, call)) else { return Noted::default() };
    report_unordered(call, wrong.unordered);
    report_borrowed(wrong.borrowed, &touched);
    Noted { late: wrong.blurred.then_some((call, touched)), running: None }
}

/// As [`touch`], for work that is no access, or of which the caller knows: what the CPU has borrowed does not count.
pub(crate) fn touch_in_order(queue: QueueId, joined: &[QueueId], touched: &[Touched], call: &'static str) {
    report_unordered(call, with(|races| races.touch(queue, joined, touched, call)).and_then(|wrong| wrong.unordered));
}

fn report_unordered(call: &'static str, found: Option<Unordered>) {
    if let Some((before, address, block)) = found {
        report_after(Misuse::NoOrder, call, address, block, Some(before));
    }
}

/// Reports work on what the CPU has borrowed; the number is of the range that the conflict is in.
fn report_borrowed(conflict: Option<(Conflict, usize)>, touched: &[Touched]) {
    if let Some((Conflict { call, before, at }, place)) = conflict {
        let one = &touched[place];
        report_after(Misuse::Borrowed, call, one.shown + (at - one.bytes.start) as u64, one.block, Some(before));
    }
}

/// Work that was given to a queue. It tells when it runs, where its order was not known before.
#[derive(Debug, Default)]
#[must_use = "the work tells when it begins"]
pub(crate) struct Noted {
    late: Option<(&'static str, Vec<Touched>)>,
    running: Option<u64>,
}

impl Noted {
    /// The work begins; it ends when this value is dropped.
    pub(crate) fn begin(&mut self) {
        let Some((call, touched)) = self.late.take() else { return };
        if let Some((number, conflict)) = with(|races| races.run(&touched, call)) {
            self.running = Some(number);
            report_borrowed(conflict, &touched);
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(number) = self.running {
            with(|races| races.ran(number));
        }
    }
}

/// The CPU takes bytes, whose first one has the address `shown` and which are of a block. Gives a number for their return.
pub(crate) fn borrow(bytes: Range<usize>, hold: Hold, shown: u64, block: Option<u64>) -> Option<u64> {
    let start = bytes.start;
    let (number, conflict) = with(|races| races.borrow(bytes, hold))?;
    report_hold(conflict, start, shown, block);
    Some(number)
}

/// The CPU gives bytes back.
pub(crate) fn give_back(number: u64, start: usize, shown: u64, block: Option<u64>) {
    report_hold(with(|races| races.give_back(number)).flatten(), start, shown, block);
}

/// Borrows of bytes end without being looked at.
pub(crate) fn end_borrows(bytes: &Range<usize>) {
    with(|races| races.borrows.forget(bytes));
}

fn report_hold(conflict: Option<Conflict>, start: usize, shown: u64, block: Option<u64>) {
    if let Some(Conflict { call, before, at }) = conflict {
        report_after(Misuse::Borrowed, call, shown + (at - start) as u64, block, Some(before));
    }
}

#[cfg(test)]
mod tests;
