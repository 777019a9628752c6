//! What becomes of bytes that pass from one owner to the next: the work of former owners, and what the present owner
//! has written. The library under test reports each new owner.

use super::stretches::Stretches;
use super::{Mark, Races, Touched};
use std::ops::Range;

/// Work of former owners whose end the host had not seen when the bytes got a new owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Former {
    writes: Vec<Mark>,
    reads: Vec<Mark>,
}

#[cfg(test)]
impl Former {
    pub(super) fn size(&self) -> usize {
        self.writes.len() + self.reads.len()
    }
}

/// Adds work to a list that has at most one piece of work for each queue: the last one, which ends last.
fn keep_last(list: &mut Vec<Mark>, mark: Mark) {
    match list.iter_mut().find(|other| other.queue == mark.queue) {
        Some(other) if other.number < mark.number => *other = mark,
        Some(_) => {}
        None => list.push(mark),
    }
}

/// What the present owner of bytes has written.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The bytes that executed work or the CPU wrote.
    written: Stretches<()>,
    /// The other bytes that a capture recorded a write to, with the work that it recorded.
    recorded: Stretches<&'static str>,
}

impl Contents {
    pub(super) fn wrote(&mut self, bytes: &Range<usize>) {
        self.written.add(bytes);
        self.recorded.remove(bytes);
    }

    fn forget(&mut self, bytes: &Range<usize>) {
        self.written.remove(bytes);
        self.recorded.remove(bytes);
    }

    /// Notes the writes of work that a capture records.
    pub(super) fn record(&mut self, touched: &[Touched], call: &'static str) {
        for one in touched.iter().filter(|one| one.write) {
            self.written.gaps(&one.bytes).into_iter().for_each(|gap| self.recorded.set(gap, call));
        }
    }

    /// The work that would have written bytes but was only recorded, and the first such byte.
    pub(super) fn only_recorded(&self, bytes: &Range<usize>) -> Option<(&'static str, usize)> {
        self.recorded.over(bytes).next().map(|(part, call)| (*call, part.start))
    }

    /// Notes executed work. Returns the work that was only recorded and whose bytes it reads, the first such byte, and
    /// the index of the range.
    pub(super) fn execute(&mut self, touched: &[Touched]) -> Option<(&'static str, usize, usize)> {
        let reads = touched.iter().enumerate().filter(|(_, one)| !one.write);
        let found = reads.into_iter().find_map(|(place, one)| {
            let (call, at) = self.only_recorded(&one.bytes)?;
            Some((call, at, place))
        });
        touched.iter().filter(|one| one.write).for_each(|one| self.wrote(&one.bytes));
        found
    }
}

impl Races {
    /// Records that bytes have a new owner, whose work is all that is begun from now on.
    pub(super) fn new_owner(&mut self, bytes: &Range<usize>) {
        let mut found = Vec::new();
        for (part, marks) in self.segments.over(bytes) {
            found.push((part, marks.write.iter().copied().collect(), marks.reads.clone()));
        }
        // Work of earlier owners that later work has replaced in the segments.
        for (part, former) in self.former.over(bytes) {
            found.push((part, former.writes.clone(), former.reads.clone()));
        }
        self.former.remove(bytes);
        for (part, mut writes, mut reads) in found {
            [&mut writes, &mut reads]
                .into_iter()
                .for_each(|marks: &mut Vec<Mark>| marks.retain(|mark| !self.is_over(mark)));
            if writes.is_empty() && reads.is_empty() {
                continue;
            }
            self.former.gaps(&part).into_iter().for_each(|gap| self.former.set(gap, Former::default()));
            for (_, former) in self.former.over_mut(&part) {
                writes.iter().for_each(|mark| keep_last(&mut former.writes, *mark));
                reads.iter().for_each(|mark| keep_last(&mut former.reads, *mark));
            }
        }
        self.contents.forget(bytes);
    }

    /// Work of former owners whose end the host has not seen: writes, and reads too if `reads` is set.
    pub(super) fn of_former_owner(&self, bytes: &Range<usize>, reads: bool) -> Option<(&'static str, usize)> {
        self.former.over(bytes).find_map(|(part, former)| {
            let read = former.reads.iter().filter(|_| reads);
            let mark = former.writes.iter().chain(read).find(|mark| !self.is_over(mark))?;
            Some((mark.call, part.start))
        })
    }

    /// Forgets owners and contents of bytes that are given back to the driver.
    pub(super) fn forget_owners(&mut self, bytes: &Range<usize>) {
        self.former.remove(bytes);
        self.contents.forget(bytes);
    }
}
