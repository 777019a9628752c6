//! Counts what was done, for each kind of work.

use cuda_mem::DropError;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The step worked.
    Done,
    /// There was no room: a limit was reached, or memory was short.
    NoRoom,
    /// A planned fault made the step fail.
    Refused,
    /// The driver or the device does not support it.
    Unsupported,
}

/// One kind's counters.
#[derive(Debug, Default)]
struct Line([AtomicU64; 4]);

/// All counters.
#[derive(Debug)]
pub struct Account {
    kinds: Vec<(&'static str, Line)>,
    verified: AtomicU64,
    /// Drop errors by call, with their number and the newest text.
    drop_errors: Mutex<BTreeMap<&'static str, (u64, String)>>,
}

impl Account {
    /// Counters for these kinds.
    pub fn new(kinds: &[&'static str]) -> Self {
        let kinds = kinds.iter().map(|kind| (*kind, Line::default())).collect();
        Self { kinds, verified: AtomicU64::new(0), drop_errors: Mutex::default() }
    }

    /// Counts the end of a step.
    pub fn ended(&self, kind: usize, end: End) {
        self.kinds[kind].1.0[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that were verified.
    pub fn verified(&self, bytes: usize) {
        self.verified.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a drop error.
    pub fn drop_error(&self, error: &DropError) {
        let mut errors = self.drop_errors.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, words) = errors.entry(error.doing).or_default();
        *count += 1;
        *words = error.error.to_string();
    }

    /// Number of steps of all kinds that ended this way.
    pub fn total(&self, end: End) -> u64 {
        self.kinds.iter().map(|(_, line)| line.0[end as usize].load(Ordering::Relaxed)).sum()
    }

    /// Number of verified bytes.
    pub fn verified_bytes(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Number of drop errors.
    pub fn drop_errors(&self) -> u64 {
        self.drop_errors.lock().unwrap_or_else(PoisonError::into_inner).values().map(|(count, _)| count).sum()
    }

    /// The kinds of which no step worked, except kinds that the device does not support.
    pub fn idle(&self) -> Vec<&'static str> {
        let count = |line: &Line, end: End| line.0[end as usize].load(Ordering::Relaxed);
        let idle = |line: &Line| count(line, End::Done) == 0 && count(line, End::Unsupported) == 0;
        self.kinds.iter().filter(|(_, line)| idle(line)).map(|(kind, _)| *kind).collect()
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<16} {:>10} {:>10} {:>10} {:>11}", "work", "done", "no room", "refused", "unsupported")?;
        for (kind, line) in &self.kinds {
            let [done, room, refused, unsupported] = line.0.each_ref().map(|count| count.load(Ordering::Relaxed));
            writeln!(f, "{kind:<16} {done:>10} {room:>10} {refused:>10} {unsupported:>11}")?;
        }
        let [done, room, refused, unsupported] =
            [End::Done, End::NoRoom, End::Refused, End::Unsupported].map(|end| self.total(end));
        write!(f, "{:<16} {done:>10} {room:>10} {refused:>10} {unsupported:>11}", "all")?;
        let errors = self.drop_errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.iter().try_for_each(|(doing, (count, words))| write!(f, "\n{count} drops, {doing}: {words}"))
    }
}
