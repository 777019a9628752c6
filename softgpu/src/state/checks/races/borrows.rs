//! Memory that the CPU has borrowed, for itself or for copies, compared with the work of streams.
//!
//! A borrow conflicts with work that is queued while it lasts, and with earlier work whose end the host has not seen,
//! even if that work happens to be done. After a wait for a word in memory or another process, the order of work is
//! unknown: it may run after the borrow has ended. So it is compared when it runs.

use super::stretches::common;
use super::{Mark, Races, Touched};
use crate::misuse::Misuse;
use std::collections::BTreeMap;
use std::ops::Range;

/// Who uses the borrowed bytes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The CPU reads them.
    Read,
    /// The CPU writes them. Nobody else reads or writes.
    Write,
    /// A copy reads them for the CPU, which may read them too. The copy must be done when the borrow ends.
    Source,
    /// A copy writes them for the CPU. The copy must be done when the borrow ends.
    Destination,
}

impl Hold {
    /// Its name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Hold::Read => "the CPU's borrow to read",
            Hold::Write => "the CPU's borrow to write",
            Hold::Source => "the CPU's borrow for a copy that reads",
            Hold::Destination => "the CPU's borrow for a copy that writes",
        }
    }

    /// Whether device work may use the bytes in this way.
    fn allows(self, write: bool) -> bool {
        match self {
            Hold::Read | Hold::Source => !write,
            Hold::Write => false,
            Hold::Destination => true,
        }
    }

    fn is_loan(self) -> bool {
        matches!(self, Hold::Source | Hold::Destination)
    }
}

/// Two uses of the same bytes that exclude each other; `call` is the later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) misuse: Misuse,
    pub(super) call: &'static str,
    pub(super) before: &'static str,
    /// The first byte that both use.
    pub(super) at: usize,
}

/// The CPU's borrows, and running work whose order was unknown when it was queued.
#[derive(Debug, Default)]
pub(super) struct Borrows {
    last: u64,
    held: BTreeMap<u64, (Hold, Range<usize>)>,
    running: BTreeMap<u64, (&'static str, Accesses)>,
}

/// Ranges that work uses, and whether it writes them.
type Accesses = Vec<(Range<usize>, bool)>;

impl Borrows {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The borrow that forbids work on bytes, and the first byte in conflict. A borrow for a copy allows the copy what
    /// the borrow around it forbids.
    fn against(&self, bytes: &Range<usize>, write: bool) -> Option<(Hold, usize)> {
        let lent = |both: &Range<usize>| {
            let holds = self.held.values().filter(|(hold, _)| hold.is_loan() && hold.allows(write));
            holds.into_iter().any(|(_, lent)| lent.start <= both.start && both.end <= lent.end)
        };
        self.held.values().filter(|(hold, _)| !hold.allows(write)).find_map(|(hold, held)| {
            let both = common(held, bytes)?;
            (!lent(&both)).then_some((*hold, both.start))
        })
    }

    /// Ends the borrows of freed bytes, even of values that were forgotten.
    pub(super) fn forget(&mut self, bytes: &Range<usize>) {
        self.held.retain(|_, (_, held)| common(held, bytes).is_none());
    }
}

impl Races {
    /// Work on bytes whose end the host has not seen: writes, and reads too if `reads` is set.
    pub(super) fn unseen(&self, bytes: &Range<usize>, reads: bool) -> Option<(Mark, usize)> {
        self.segments.over(bytes).find_map(|(part, marks)| {
            let read = marks.reads.iter().filter(|_| reads);
            let mark = marks.write.iter().chain(read).find(|mark| !self.is_over(mark))?;
            Some((*mark, part.start))
        })
    }

    /// Running work that uses bytes in a way that the borrow forbids.
    fn under_way(&self, bytes: &Range<usize>, hold: Hold) -> Option<(&'static str, usize)> {
        self.borrows.running.values().find_map(|(call, touched)| {
            let clash =
                touched.iter().filter(|(_, write)| !hold.allows(*write)).find_map(|(one, _)| common(one, bytes))?;
            Some((*call, clash.start))
        })
    }

    /// The misuse by the CPU's access to bytes, now or during a borrow that begins now. A shared access conflicts with
    /// no work of the present owner.
    pub(super) fn access(&mut self, bytes: &Range<usize>, write: bool, shared: bool) -> Option<Conflict> {
        let hold = if write { Hold::Write } else { Hold::Read };
        let call = match (shared, write) {
            (false, _) => hold.name(),
            (true, false) => "the CPU's shared read",
            (true, true) => "the CPU's shared write",
        };
        let found = self.of_former_owner(bytes, write).map(|found| (Misuse::FormerOwner, found));
        let found = found.or_else(|| {
            let present = (!shared).then(|| self.unseen(bytes, write).map(|(mark, at)| (mark.call, at)))?;
            Some((Misuse::Borrowed, present.or_else(|| self.under_way(bytes, hold))?))
        });
        let found = found.or_else(|| {
            let never = (!write).then(|| self.contents.only_recorded(bytes))?;
            Some((Misuse::NeverRan, never?))
        });
        if write {
            self.contents.wrote(bytes);
        }
        found.map(|(misuse, (before, at))| Conflict { misuse, call, before, at })
    }

    /// Begins a borrow. A borrow for a copy is checked when it ends.
    pub(super) fn borrow(&mut self, bytes: Range<usize>, hold: Hold) -> (u64, Option<Conflict>) {
        let conflict = if hold.is_loan() { None } else { self.access(&bytes, hold == Hold::Write, false) };
        let number = self.borrows.number();
        self.borrows.held.insert(number, (hold, bytes));
        (number, conflict)
    }

    /// Ends a borrow. If it was for a copy, no unseen work on the bytes may be left, except reads that may belong to
    /// another copy's borrow.
    pub(super) fn give_back(&mut self, number: u64) -> Option<Conflict> {
        let (hold, bytes) = self.borrows.held.remove(&number)?;
        if !hold.is_loan() {
            return None;
        }
        let shared = |other: &(Hold, Range<usize>)| other.0.is_loan() && common(&other.1, &bytes).is_some();
        let reads = !self.borrows.held.values().any(shared);
        let (mark, at) = self.unseen(&bytes, reads)?;
        Some(Conflict { misuse: Misuse::Borrowed, call: hold.name(), before: mark.call, at })
    }

    /// The first conflict of work with a borrow, and the index of its range.
    pub(super) fn against_borrows(&self, touched: &[Touched], call: &'static str) -> Option<(Conflict, usize)> {
        touched.iter().enumerate().find_map(|(place, one)| {
            let (hold, at) = self.borrows.against(&one.bytes, one.write)?;
            Some((Conflict { misuse: Misuse::Borrowed, call, before: hold.name(), at }, place))
        })
    }

    /// Begins work whose order was unknown when it was queued.
    pub(super) fn run(&mut self, touched: &[Touched], call: &'static str) -> (u64, Option<(Conflict, usize)>) {
        let conflict = self.against_borrows(touched, call);
        let number = self.borrows.number();
        let bytes = touched.iter().map(|one| (one.bytes.clone(), one.write)).collect();
        self.borrows.running.insert(number, (call, bytes));
        (number, conflict)
    }

    pub(super) fn ran(&mut self, number: u64) {
        self.borrows.running.remove(&number);
    }
}
