//! Finds the waits for ended signals that will still be satisfied. Pure.
//!
//! The CPU does not write an ended signal any more. So the last word satisfies a wait, or queued work that writes the
//! word does, or nobody. Work queued behind a wait that nobody satisfies never runs.

/// A stream's wait for an ended signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockedWait {
    pub signal: usize,
    pub stream: usize,
    pub ticket: u64,
    /// The wait passes by itself: the word satisfies it, or is about to.
    pub passes: bool,
}

/// Queued work that may write the word of a signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub signal: usize,
    pub stream: usize,
    pub ticket: u64,
    /// The value of a write; `None` for a kernel, whose values are not known.
    pub value: Option<u64>,
}

/// What may satisfy a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Satisfier {
    Nobody,
    /// The word itself.
    Word,
    /// A queued write will.
    Write,
    /// A queued kernel may.
    Kernel,
}

/// Finds what may satisfy each wait. `satisfies` tells whether a value satisfies a wait, given by its index.
pub(super) fn satisfiers(
    held: &[BlockedWait],
    writers: &[Writer],
    satisfies: impl Fn(usize, u64) -> bool,
) -> Vec<Satisfier> {
    let mut found: Vec<Satisfier> =
        held.iter().map(|wait| if wait.passes { Satisfier::Word } else { Satisfier::Nobody }).collect();
    let runs = |writer: &Writer, found: &[Satisfier]| {
        let mut before =
            held.iter().zip(found).filter(|(wait, _)| wait.stream == writer.stream && wait.ticket < writer.ticket);
        before.all(|(_, satisfier)| *satisfier != Satisfier::Nobody)
    };
    // Behind a wait that passes, the work runs, and may write what other waits need.
    loop {
        let mut changed = false;
        for index in 0..held.len() {
            let (Some(wait), Some(Satisfier::Nobody)) = (held.get(index), found.get(index)) else { continue };
            let satisfying = |writer: &&Writer| {
                writer.signal == wait.signal && writer.value.is_none_or(|value| satisfies(index, value))
            };
            let mut satisfier = Satisfier::Nobody;
            for writer in writers.iter().filter(satisfying).filter(|writer| runs(writer, &found)) {
                satisfier = if writer.value.is_some() { Satisfier::Write } else { Satisfier::Kernel };
                if satisfier == Satisfier::Write {
                    break;
                }
            }
            if satisfier != Satisfier::Nobody {
                found[index] = satisfier;
                changed = true;
            }
        }
        if !changed {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(signal: usize, stream: usize, ticket: u64) -> BlockedWait {
        BlockedWait { signal, stream, ticket, passes: false }
    }

    fn write(signal: usize, stream: usize, ticket: u64, value: u64) -> Writer {
        Writer { signal, stream, ticket, value: Some(value) }
    }

    /// All waits are for 1.
    fn of(held: &[BlockedWait], writers: &[Writer]) -> Vec<Satisfier> {
        satisfiers(held, writers, |_, value| value == 1)
    }

    #[test]
    fn a_wait_that_nobody_writes_for_is_satisfied_by_nobody() {
        assert_eq!(of(&[held(0, 0, 5)], &[]), [Satisfier::Nobody]);
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 1, 6, 2)]), [Satisfier::Nobody], "of another value");
        assert_eq!(of(&[held(0, 0, 5)], &[write(1, 1, 6, 1)]), [Satisfier::Nobody], "of another word");
        assert_eq!(of(&[BlockedWait { passes: true, ..held(0, 0, 5) }], &[]), [Satisfier::Word]);
    }

    #[test]
    fn satisfier_ignores_a_write_queued_behind_its_own_wait() {
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 1, 9, 1)]), [Satisfier::Write]);
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 0, 4, 1)]), [Satisfier::Write]);
        assert_eq!(of(&[held(0, 0, 5)], &[write(0, 0, 9, 1)]), [Satisfier::Nobody]);
        let kernel = Writer { value: None, ..write(0, 1, 9, 0) };
        assert_eq!(of(&[held(0, 0, 5)], &[kernel]), [Satisfier::Kernel]);
        assert_eq!(of(&[held(0, 0, 5)], &[kernel, write(0, 1, 9, 1)]), [Satisfier::Write]);
    }

    #[test]
    fn satisfier_rejects_cyclic_waits_and_accepts_a_passing_chain() {
        let (waits, answers) = ([held(0, 0, 1), held(1, 1, 2)], [write(1, 0, 3, 1), write(0, 1, 4, 1)]);
        assert_eq!(of(&waits, &answers), [Satisfier::Nobody, Satisfier::Nobody]);
        // The last in the list passes by itself.
        let chain = [held(0, 0, 1), held(1, 1, 2), BlockedWait { passes: true, ..held(2, 2, 3) }];
        let answers = [write(0, 1, 9, 1), write(1, 2, 9, 1)];
        assert_eq!(of(&chain, &answers), [Satisfier::Write, Satisfier::Write, Satisfier::Word]);
    }
}
