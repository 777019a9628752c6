//! The measured cases.

use cuda_mem::Stream;
use cuda_mem::signal::{Comparison, Placement, SignalKernels, Signals, WaitPolicy, Waiter};
use cuda_mem::trace::Latency;
use std::error::Error;
use std::time::{Duration, Instant};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// How long each side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of rounds that are queued on a stream before they begin.
const ROUNDS_AHEAD: u32 = 64;
/// The number of items that are pushed or popped at once in the batch cases.
const BATCH: usize = 256;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// Launches an empty kernel and waits for it.
    Launch,
    /// A kernel answers a flag. The first placement is that of the question, the second that of the answer.
    Flag { question: Placement, answer: Placement, in_order: bool },
    /// A stream waits for a flag and writes another flag.
    Stream { question: Placement, answer: Placement },
    /// An item goes to a kernel through one ring and comes back through another.
    RingRoundTrip,
    /// Many items go to a kernel, which adds them up.
    RingToDevice,
    /// Many items come from a kernel.
    RingFromDevice,
    /// Many items go to a kernel and come back.
    RingBothWays,
}

impl Case {
    /// All cases, in the order of the table.
    pub(super) fn all(mapped: bool) -> Vec<Case> {
        use Placement::{Mapped, Pinned};
        let best = if mapped { Mapped } else { Pinned };
        let mut cases = vec![Case::Launch];
        let pairs = [(Mapped, Pinned), (Pinned, Pinned), (Pinned, Mapped), (Mapped, Mapped)];
        let there = pairs.into_iter().filter(|(one, other)| mapped || (*one, *other) == (Pinned, Pinned));
        cases.extend(there.clone().map(|(question, answer)| Case::Flag { question, answer, in_order: false }));
        cases.push(Case::Flag { question: best, answer: Pinned, in_order: true });
        cases.extend(there.map(|(question, answer)| Case::Stream { question, answer }));
        cases.extend([Case::RingRoundTrip, Case::RingToDevice, Case::RingFromDevice, Case::RingBothWays]);
        cases
    }
}

/// How much work each measurement does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Round trips of a flag.
    rounds: u32,
    /// Launches, and rounds of a stream.
    slow_rounds: u32,
    /// Items through a ring, in one repeat.
    items: u64,
    repeats: usize,
}

impl Effort {
    pub(super) const FULL: Self = Self { rounds: 100_000, slow_rounds: 10_000, items: 2_000_000, repeats: 5 };
    pub(super) const BRIEF: Self = Self { rounds: 300, slow_rounds: 128, items: 5000, repeats: 2 };
}

/// The figures of a case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Figures {
    /// Times of single rounds.
    Rounds(Latency),
    /// Items per second: the median of the repeats.
    Items(f64),
}

/// The objects that all cases use.
pub(super) struct Rig {
    signals: Signals,
    kernels: SignalKernels,
    stream: Stream,
    policy: WaitPolicy,
    effort: Effort,
}

impl Rig {
    pub(super) fn new(signals: &Signals, effort: Effort) -> cuda_mem::Result<Self> {
        let context = signals.context();
        Ok(Self {
            signals: signals.clone(),
            kernels: SignalKernels::of(context)?,
            stream: Stream::new(context)?,
            policy: WaitPolicy::within(PATIENCE),
            effort,
        })
    }

    pub(super) fn measure(&self, case: Case) -> Result<Figures> {
        let figures = match case {
            Case::Launch => self.launches(),
            Case::Flag { question, answer, in_order } => self.flags(question, answer, in_order),
            Case::Stream { question, answer } => self.streams(question, answer),
            Case::RingRoundTrip => self.ring_round_trips(),
            Case::RingToDevice => self.repeated(|| self.items_to_device()),
            Case::RingFromDevice => self.repeated(|| self.items_from_device()),
            Case::RingBothWays => self.repeated(|| self.both_ways()),
        }?;
        self.stream.synchronize()?;
        Ok(figures)
    }

    /// Times single rounds, after a tenth as many untimed rounds.
    fn rounds(&self, count: u32, mut round: impl FnMut(u32) -> Result<()>) -> Result<Figures> {
        let warm = count / 10;
        let mut times = Vec::with_capacity(count as usize);
        for number in 1..=count + warm {
            let start = Instant::now();
            round(number)?;
            if number > warm {
                times.push(start.elapsed().as_nanos() as u64);
            }
        }
        Ok(Figures::Rounds(Latency::of(&mut times)))
    }

    fn launches(&self) -> Result<Figures> {
        self.rounds(self.effort.slow_rounds, |_| {
            self.kernels.nothing(&self.stream)?;
            Ok(self.stream.synchronize()?)
        })
    }

    fn flags(&self, question: Placement, answer: Placement, in_order: bool) -> Result<Figures> {
        let (question, answer) = (self.signals.flag_in::<u32>(question)?, self.signals.flag_in::<u32>(answer)?);
        let count = self.effort.rounds;
        let all = u64::from(count + count / 10);
        if in_order {
            self.kernels.echo_flag_in_order(&question, &answer, all, PATIENCE, &self.stream)?;
        } else {
            self.kernels.echo_flag(&question, &answer, all, PATIENCE, &self.stream)?;
        }
        self.rounds(count, |number| {
            question.store(number);
            answer.wait(Comparison::Equal, number, &self.policy)?;
            Ok(())
        })
    }

    /// The stream's work is queued before the round begins, because its launch is not measured.
    fn streams(&self, question: Placement, answer: Placement) -> Result<Figures> {
        let (question, answer) = (self.signals.flag_in::<u32>(question)?, self.signals.flag_in::<u32>(answer)?);
        let mut times = Vec::new();
        let mut number = 0;
        while number < self.effort.slow_rounds {
            let first = number + 1;
            number += ROUNDS_AHEAD;
            for round in first..=number {
                question.wait_on(&self.stream, Comparison::AtLeast, round)?;
                answer.store_on(&self.stream, round)?;
            }
            for round in first..=number {
                let start = Instant::now();
                question.store(round);
                answer.wait(Comparison::Equal, round, &self.policy)?;
                // In the first round the stream may not have begun yet.
                if round != first {
                    times.push(start.elapsed().as_nanos() as u64);
                }
            }
        }
        Ok(Figures::Rounds(Latency::of(&mut times)))
    }

    fn ring_round_trips(&self) -> Result<Figures> {
        let (mut to, mut from) = (self.signals.ring_to_device(64)?, self.signals.ring_from_device(64)?);
        self.kernels.echo_ring(&to, &from, PATIENCE, &self.stream)?;
        self.rounds(self.effort.rounds / 2, |number| {
            to.send(&[u64::from(number)], &self.policy)?;
            some(from.receive(&mut [0], &self.policy)?).map(drop)
        })
    }

    /// The median rate of several repeats. Each repeat returns the time that its items took.
    fn repeated(&self, once: impl Fn() -> Result<Duration>) -> Result<Figures> {
        let mut rates = Vec::new();
        for _ in 0..self.effort.repeats {
            rates.push(self.effort.items as f64 / once()?.as_secs_f64());
            self.stream.synchronize()?;
        }
        rates.sort_by(f64::total_cmp);
        Ok(Figures::Items(rates[rates.len() / 2]))
    }

    /// Ends when the sum of all items is known.
    fn items_to_device(&self) -> Result<Duration> {
        let (mut ring, sum) = (self.signals.ring_to_device::<u64>(4096)?, self.signals.flag::<u64>(Waiter::Cpu)?);
        self.kernels.sum_ring(&ring, &sum, PATIENCE, &self.stream)?;
        let (ones, mut left) = ([1; BATCH], self.effort.items as usize);
        let start = Instant::now();
        while left > 0 {
            left -= some(ring.send(&ones[..left.min(BATCH)], &self.policy)?)?;
        }
        ring.close();
        sum.wait(Comparison::Equal, self.effort.items, &self.policy)?;
        Ok(start.elapsed())
    }

    /// Starts at the first item, because the launch is not measured.
    fn items_from_device(&self) -> Result<Duration> {
        let mut ring = self.signals.ring_from_device::<u64>(4096)?;
        self.kernels.count_ring(&ring, self.effort.items, PATIENCE, &self.stream)?;
        let mut items = [0; BATCH];
        let mut left = self.effort.items as usize - some(ring.receive(&mut items, &self.policy)?)?;
        let start = Instant::now();
        while left > 0 {
            left -= some(ring.receive(&mut items, &self.policy)?)?;
        }
        Ok(start.elapsed())
    }

    /// One thread pushes while there is room, and pops the items that have arrived.
    fn both_ways(&self) -> Result<Duration> {
        let (mut to, mut from) =
            (self.signals.ring_to_device::<u64>(4096)?, self.signals.ring_from_device::<u64>(4096)?);
        self.kernels.echo_ring(&to, &from, PATIENCE, &self.stream)?;
        let (mut items, all) = ([7; BATCH], self.effort.items as usize);
        let (mut sent, mut back) = (0, 0);
        let start = Instant::now();
        while back < all {
            sent += to.push_slice(&items[..(all - sent).min(BATCH)])?;
            back += match from.pop_slice(&mut items)? {
                // Nothing has arrived yet. `receive` waits, and reports if nothing will come.
                0 => some(from.receive(&mut items, &self.policy)?)?,
                count => count,
            };
        }
        Ok(start.elapsed())
    }
}

/// Returns the number of items that moved. No items move if the kernel has closed its end.
fn some(count: usize) -> Result<usize> {
    if count == 0 { Err(format!("the kernel gave up: nothing came for {PATIENCE:?}").into()) } else { Ok(count) }
}
