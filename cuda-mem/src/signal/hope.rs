//! Which waits for signals that have ended will be satisfied all the same. Pure.
//!
//! The CPU writes a signal that has ended no more. So a wait for it is satisfied by what the word is, by work that is queued
//! and writes the word, or by nobody. Work that is queued behind a wait that nobody satisfies never runs.

/// A wait of a stream for a signal that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub signal: usize,
    pub stream: usize,
    pub ticket: u64,
    /// It passes by itself: the word is what it waits for, or is about to be.
    pub passes: bool,
}

/// Queued work that may write the word of a signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub signal: usize,
    pub stream: usize,
    pub ticket: u64,
    /// Of a write; a kernel's is not known.
    pub value: Option<u64>,
}

/// What a wait can hope for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hope {
    None,
    /// It passes by itself.
    Passes,
    /// A write that is queued satisfies it.
    Write,
    /// A kernel may.
    Kernel,
}

/// What each wait can hope for. `satisfies` says whether a value is what a wait (by its index) waits for.
pub(super) fn hopes(held: &[Held], writers: &[Writer], satisfies: impl Fn(usize, u64) -> bool) -> Vec<Hope> {
    let mut hopes: Vec<Hope> = held.iter().map(|wait| if wait.passes { Hope::Passes } else { Hope::None }).collect();
    let runs = |writer: &Writer, hopes: &[Hope]| {
        let mut before =
            held.iter().zip(hopes).filter(|(wait, _)| wait.stream == writer.stream && wait.ticket < writer.ticket);
        before.all(|(_, hope)| *hope != Hope::None)
    };
    // A wait that passes lets the work behind it run, which may write what other waits wait for.
    loop {
        let mut changed = false;
        for index in 0..held.len() {
            let (Some(wait), Some(Hope::None)) = (held.get(index), hopes.get(index)) else { continue };
            let satisfying = |writer: &&Writer| {
                writer.signal == wait.signal && writer.value.is_none_or(|value| satisfies(index, value))
            };
            let mut hope = Hope::None;
            for writer in writers.iter().filter(satisfying).filter(|writer| runs(writer, &hopes)) {
                hope = if writer.value.is_some() { Hope::Write } else { Hope::Kernel };
                if hope == Hope::Write {
                    break;
                }
            }
            if hope != Hope::None {
                hopes[index] = hope;
                changed = true;
            }
        }
        if !changed {
            return hopes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(signal: usize, stream: usize, ticket: u64) -> Held {
        Held { signal, stream, ticket, passes: false }
    }

    fn write(signal: usize, stream: usize, ticket: u64, value: u64) -> Writer {
        Writer { signal, stream, ticket, value: Some(value) }
    }

    /// All waits are for 1.
    fn of(held: &[Held], writers: &[Writer]) -> Vec<Hope> {
        hopes(held, writers, |_, value| value == 1)
    }

    #[test]
    fn a_wait_that_nobody_writes_for_has_no_hope() {
        assert_eq!(of(&[held(0, 0, 5)], &[]), [Hope::None]);
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 1, 6, 2)]), [Hope::None], "of another value");
        assert_eq!(of(&[held(0, 0, 5)], &[write(1, 1, 6, 1)]), [Hope::None], "of another word");
        assert_eq!(of(&[Held { passes: true, ..held(0, 0, 5) }], &[]), [Hope::Passes]);
    }

    #[test]
    fn a_write_that_is_queued_elsewhere_gives_hope_and_one_behind_the_wait_does_not() {
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 1, 9, 1)]), [Hope::Write]);
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 0, 4, 1)]), [Hope::Write]);
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 0, 9, 1)]), [Hope::None]);
        let kernel = Writer { value: None, ..write(0, 1, 9, 0) };
        assert_eq!(of(&[held(0, 0, 5)], &[kernel]), [Hope::Kernel]);
        assert_eq!(of(&[held(0, 0, 5)], &[kernel, write(0, 1, 9, 1)]), [Hope::Write]);
    }

    #[test]
    fn streams_that_wait_for_each_other_have_no_hope_and_a_chain_with_an_end_has() {
        let (waits, answers) = ([held(0, 0, 1), held(1, 1, 2)], [write(1, 0, 3, 1), write(0, 1, 4, 1)]);
        assert_eq!(of(&waits, &answers), [Hope::None, Hope::None]);
        // The end of the chain comes last in the list.
        let chain = [held(0, 0, 1), held(1, 1, 2), Held { passes: true, ..held(2, 2, 3) }];
        let answers = [write(0, 1, 9, 1), write(1, 2, 9, 1)];
        assert_eq!(of(&chain, &answers), [Hope::Write, Hope::Write, Hope::Passes]);
    }
}
