//! Checks for races: whether work of different streams on the same bytes is ordered. Vector clocks decide, and not the
//! times at which the work ran, so a missing wait shows in every run.
//!
//! Each stream numbers its work. A [`Moment`] is a point of a stream: for each stream, it has the number of the last
//! work before that point. Events carry moments from stream to stream, and waits carry them to the host. Work whose end
//! the host has seen comes before all work that is begun later.
//!
//! After a wait for a word in memory, a semaphore or another process, softgpu does not know a stream's order. It marks
//! such moments as `blurred`, and reports nothing about work after them.
//!
//! Memory that the CPU has [borrowed](borrows), or that has a [new owner](owners), is compared with the same records, and
//! so are changes of [access] between devices.

pub(crate) mod access;
mod borrows;
mod owners;
mod stretches;

pub(crate) use borrows::Hold;

use crate::misuse::{Misuse, report_after};
use crate::sync::lock;
use borrows::{Borrows, Conflict};
use owners::{Contents, Former};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use stretches::Stretches;

/// The name of a stream's queue. It is never reused.
pub(crate) type QueueId = u64;

/// Takes the name for a new queue.
pub(crate) fn next_id() -> QueueId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A point of a stream: the work that comes before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment(Option<Arc<Clock>>);

#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pub(crate) bytes: Range<usize>,
    pub(crate) write: bool,
    /// The program's address of the first byte.
    pub(crate) shown: u64,
    /// The number of the allocation.
    pub(crate) block: Option<u64>,
}

/// For each queue, the number of the last work that comes before.
#[derive(Clone, Debug, Default)]
struct Clock {
    seen: BTreeMap<QueueId, u64>,
    /// Whether more work may come before than `seen` has.
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

/// Work that touched bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    queue: QueueId,
    number: u64,
    call: &'static str,
}

/// The work that touched bytes last.
#[derive(Clone, Debug)]
struct Marks {
    write: Option<Mark>,
    /// Reads since that write, without those that come before another one.
    reads: Vec<Mark>,
}

/// The record of a queue.
#[derive(Debug, Default)]
struct Line {
    /// The number of its last work.
    number: u64,
    /// The work of other queues that comes before its next work.
    after: Clock,
    /// Whether it gets no more work.
    ended: bool,
}

/// All queues, and the bytes that their work touched.
#[derive(Debug, Default)]
struct Races {
    lines: BTreeMap<QueueId, Line>,
    /// For each queue, the number of the last work whose end the host has seen.
    host: BTreeMap<QueueId, u64>,
    segments: Stretches<Marks>,
    former: Stretches<Former>,
    contents: Contents,
    borrows: Borrows,
    access: access::Access,
}

/// Earlier unordered work on the same bytes: its call, the program's address of the first common byte, and the
/// allocation.
type Unordered = (&'static str, u64, Option<u64>);

/// The misuse by one piece of work.
#[derive(Debug, Default)]
struct Wrong {
    unordered: Option<Unordered>,
    /// The conflict with a borrow of the CPU, and the index of the range in conflict.
    borrowed: Option<(Conflict, usize)>,
    /// Whether the order of the work is unknown. Then it is compared with the CPU's borrows when it runs.
    blurred: bool,
}

impl Races {
    /// The point after the work that a queue has now. `joined` are other queues for whose work it waits.
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

    fn follow(&mut self, queue: QueueId, clock: &Clock) {
        self.lines.entry(queue).or_default().after.join(clock);
    }

    fn blur(&mut self, queue: QueueId) {
        let line = self.lines.entry(queue).or_default();
        line.number += 1;
        line.after.blurred = true;
    }

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

    /// Records that the host has waited for a queue. `clock` is the queue's moment before the wait.
    fn settle(&mut self, queue: QueueId, clock: &Clock) {
        self.observe(clock);
        if let Some(line) = self.lines.get_mut(&queue)
            && clock.seen.get(&queue) == Some(&line.number)
        {
            line.after.blurred = false;
        }
    }

    /// Records that a queue gets no more work and has done all of it. The host has not seen that yet.
    fn end(&mut self, queue: QueueId) {
        if let Some(line) = self.lines.get_mut(&queue) {
            line.ended = true;
            self.observe(&Clock::default());
        }
    }

    /// Records that the host has waited for all work, including that of ended queues.
    fn see_ended(&mut self) {
        let Races { lines, host, .. } = self;
        lines.retain(|queue, line| {
            if line.ended {
                host.remove(queue);
            }
            !line.ended
        });
    }

    /// Whether the host has seen the end of work.
    fn is_over(&self, mark: &Mark) -> bool {
        !self.lines.contains_key(&mark.queue) || self.host.get(&mark.queue).is_some_and(|seen| *seen >= mark.number)
    }

    /// Adds work that touches bytes to a queue. Returns the misuse.
    fn touch(&mut self, queue: QueueId, joined: &[QueueId], touched: &[Touched], call: &'static str) -> Wrong {
        let mut after = self.moment(queue, joined);
        let borrowed = if after.blurred { None } else { self.against_borrows(touched, call) };
        let Races { lines, host, segments, .. } = self;
        // Drops work that the host has seen, and work of forgotten queues: it comes before in any case.
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

    /// Forgets the work on bytes that are given back: their next owner has nothing to wait for.
    fn forget(&mut self, bytes: &Range<usize>) {
        self.segments.remove(bytes);
        self.borrows.forget(bytes);
        self.forget_owners(bytes);
    }
}

/// Enters work in the segments. Returns other work that is not ordered with it, and where.
fn enter(
    segments: &mut Stretches<Marks>,
    touched: &Touched,
    mark: Mark,
    is_before: impl Fn(&Mark) -> bool,
) -> Option<(Mark, usize)> {
    let bytes = &touched.bytes;
    let mut found = None;
    for (part, marks) in segments.over_mut(bytes) {
        let writes = marks.write.iter();
        let reads = marks.reads.iter().filter(|_| touched.write);
        found = found.or_else(|| Some((*writes.chain(reads).find(|other| !is_before(other))?, part.start)));
        if !touched.write {
            marks.reads.retain(|other| !is_before(other));
            marks.reads.push(mark);
        }
    }
    if touched.write {
        segments.set(bytes.clone(), Marks { write: Some(mark), reads: Vec::new() });
    } else {
        for gap in segments.gaps(bytes) {
            segments.set(gap, Marks { write: None, reads: vec![mark] });
        }
    }
    found
}

// ---- The records of the process ----

static ON: AtomicBool = AtomicBool::new(false);
static RACES: Mutex<Option<Races>> = Mutex::new(None);

/// Sets whether softgpu checks for races, and forgets all earlier work.
pub(crate) fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
    *lock(&RACES) = on.then(Races::default);
}

#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

fn with<R>(work: impl FnOnce(&mut Races) -> R) -> Option<R> {
    if is_on() { lock(&RACES).as_mut().map(work) } else { None }
}

/// The point after the present work of a queue, and of the queues `joined`, for whose work it waits.
pub(crate) fn moment(queue: QueueId, joined: &[QueueId]) -> Moment {
    Moment(with(|races| Arc::new(races.moment(queue, joined))))
}

/// Makes later work of a queue come after a moment.
pub(crate) fn follow(queue: QueueId, moment: &Moment) {
    if let Some(clock) = &moment.0 {
        with(|races| races.follow(queue, clock));
    }
}

/// Records that the order of a queue's later work is unknown.
pub(crate) fn blur(queue: QueueId) {
    with(|races| races.blur(queue));
}

/// Records that the host has seen the end of all work before a moment.
pub(crate) fn observe(moment: &Moment) {
    if let Some(clock) = &moment.0 {
        with(|races| races.observe(clock));
    }
}

/// Records that the host has waited for all work of a queue. `moment` is from before the wait.
pub(crate) fn settle(queue: QueueId, moment: &Moment) {
    if let Some(clock) = &moment.0 {
        with(|races| races.settle(queue, clock));
    }
}

/// Records that the host has waited for all work of a context, including that of ended streams.
pub(crate) fn see_ended() {
    with(Races::see_ended);
}

/// Records that a queue gets no more work and has done all of it.
pub(crate) fn end(queue: QueueId) {
    with(|races| races.end(queue));
}

/// Work on bytes whose end the host has not seen.
pub(crate) fn unseen(bytes: &Range<usize>) -> Option<&'static str> {
    with(|races| races.unseen(bytes, true).map(|(mark, _)| mark.call)).flatten()
}

fn forget(bytes: Range<usize>) {
    with(|races| races.forget(&bytes));
}

/// Bytes. Dropping the value forgets the work on them.
#[derive(Debug)]
pub(crate) struct Remembered(pub(crate) Range<usize>);

impl Drop for Remembered {
    fn drop(&mut self) {
        forget(self.0.clone());
    }
}

/// Adds work that touches bytes to a queue, which also waits for the work of `joined`. Reports unordered work of other
/// queues, and conflicts with the CPU's borrows.
pub(crate) fn touch(queue: QueueId, joined: &[QueueId], touched: Vec<Touched>, call: &'static str) -> Noted {
    let done = |races: &mut Races| (races.contents.execute(&touched), races.touch(queue, joined, &touched, call));
    let Some((never, wrong)) = with(done) else { return Noted::default() };
    report_never(call, never, &touched);
    report_unordered(call, wrong.unordered);
    report_borrowed(wrong.borrowed, &touched);
    Noted { late: wrong.blurred.then_some((call, touched)), running: None }
}

/// Adds work that the caller itself does, and that touches bytes, to a queue. Reports unordered work of other queues,
/// but no conflicts with the CPU's borrows.
pub(crate) fn touch_at_once(queue: QueueId, joined: &[QueueId], touched: &[Touched], call: &'static str) {
    report_never(call, with(|races| races.contents.execute(touched)).flatten(), touched);
    touch_in_order(queue, joined, touched, call);
}

/// Adds work that is not an access to a queue: only its order matters. Reports unordered work of other queues.
pub(crate) fn touch_in_order(queue: QueueId, joined: &[QueueId], touched: &[Touched], call: &'static str) {
    report_unordered(call, with(|races| races.touch(queue, joined, touched, call)).and_then(|wrong| wrong.unordered));
}

/// Notes the writes of work that a capture records.
pub(crate) fn record(touched: &[Touched], call: &'static str) {
    with(|races| races.contents.record(touched, call));
}

/// Notes that bytes were written, or come with contents.
pub(crate) fn wrote(bytes: &Range<usize>) {
    with(|races| races.contents.wrote(bytes));
}

/// Notes that bytes have a new owner.
pub(crate) fn new_owner(bytes: &Range<usize>) {
    with(|races| races.new_owner(bytes));
}

/// Reports work that reads bytes which only recorded work would have written: that work, the first such byte, and the
/// index of the range.
fn report_never(call: &'static str, found: Option<(&'static str, usize, usize)>, touched: &[Touched]) {
    if let Some((recorded, at, place)) = found {
        let one = &touched[place];
        report_after(Misuse::NeverRan, call, one.shown + (at - one.bytes.start) as u64, one.block, Some(recorded));
    }
}

fn report_unordered(call: &'static str, found: Option<Unordered>) {
    if let Some((before, address, block)) = found {
        report_after(Misuse::NoOrder, call, address, block, Some(before));
    }
}

/// Reports work on memory that the CPU has borrowed. The conflict comes with the index of its range.
fn report_borrowed(conflict: Option<(Conflict, usize)>, touched: &[Touched]) {
    if let Some((Conflict { misuse, call, before, at }, place)) = conflict {
        let one = &touched[place];
        report_after(misuse, call, one.shown + (at - one.bytes.start) as u64, one.block, Some(before));
    }
}

/// Work that was added to a queue. If its order was unknown then, softgpu checks it when it runs.
#[derive(Debug, Default)]
#[must_use = "softgpu must know when the work begins and ends"]
pub(crate) struct Noted {
    late: Option<(&'static str, Vec<Touched>)>,
    running: Option<u64>,
}

impl Noted {
    /// Marks the start of the work. Dropping the value marks its end.
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

/// Records that the CPU borrows bytes. `shown` is the program's address of the first byte, `block` the allocation.
/// Returns the number for [`give_back`].
pub(crate) fn borrow(bytes: Range<usize>, hold: Hold, shown: u64, block: Option<u64>) -> Option<u64> {
    let start = bytes.start;
    let (number, conflict) = with(|races| races.borrow(bytes, hold))?;
    report_hold(conflict, start, shown, block);
    Some(number)
}

/// Checks that the CPU may access shared bytes now. `shown` is the program's address of the first byte.
pub(crate) fn share(bytes: &Range<usize>, write: bool, shown: u64, block: Option<u64>) {
    report_hold(with(|races| races.access(bytes, write, true)).flatten(), bytes.start, shown, block);
}

pub(crate) fn give_back(number: u64, start: usize, shown: u64, block: Option<u64>) {
    report_hold(with(|races| races.give_back(number)).flatten(), start, shown, block);
}

/// Ends all borrows of bytes without checking them.
pub(crate) fn end_borrows(bytes: &Range<usize>) {
    with(|races| races.borrows.forget(bytes));
}

fn report_hold(conflict: Option<Conflict>, start: usize, shown: u64, block: Option<u64>) {
    if let Some(Conflict { misuse, call, before, at }) = conflict {
        report_after(misuse, call, shown + (at - start) as u64, block, Some(before));
    }
}

#[cfg(test)]
mod tests;
