//! Flags, counters and rings between the CPU, streams and running kernels, over whatever driver is used.

mod ends;
mod memory;
mod rings;
mod waits;

use cuda_mem::signal::{Comparison, Placement, SignalKernels, Signals, WaitPolicy};
use cuda_mem::{Error, Stream};
use std::time::Duration;
use testkit::suite::Outcome;
use testkit::{Setup, alone};

/// How long kernels and waits wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn patient() -> WaitPolicy {
    WaitPolicy::within(PATIENCE)
}

/// The objects of a test.
struct Bench {
    signals: Signals,
    kernels: SignalKernels,
    stream: Stream,
    /// The possible placements of words.
    placements: Vec<Placement>,
}

impl Bench {
    fn new(setup: &Setup) -> Result<Self, Error> {
        let signals = Signals::new(&setup.context)?;
        let mut placements = vec![Placement::Pinned];
        match signals.why_not_mapped() {
            None => placements.push(Placement::Mapped),
            Some(missing) => println!("without mapped memory: {missing}"),
        }
        let (kernels, stream) = (SignalKernels::of(&setup.context)?, Stream::new(&setup.context)?);
        Ok(Self { signals, kernels, stream, placements })
    }

    /// Every placement of one side with every placement of the other.
    fn pairs(&self) -> impl Iterator<Item = (Placement, Placement)> {
        let all = &self.placements;
        all.iter().flat_map(move |one| all.iter().map(|other| (*one, *other)))
    }
}

#[test]
fn a_kernel_answers_every_question_wherever_the_words_lie() -> Outcome {
    alone(|setup| {
        let bench = Bench::new(setup)?;
        for (here, there) in bench.pairs() {
            let (question, answer) = (bench.signals.flag_in::<u32>(here)?, bench.signals.flag_in::<u32>(there)?);
            assert_eq!((question.placement(), answer.placement()), (here, there));
            let rounds = 500;
            bench.kernels.echo_flag(&question, &answer, rounds.into(), PATIENCE, &bench.stream)?;
            for number in 1..=rounds {
                question.store(number);
                assert_eq!(answer.wait(Comparison::AtLeast, number, &patient())?, number);
            }
            bench.stream.synchronize()?;
            question.store(0);
            bench.kernels.echo_flag_in_order(&question, &answer, 9, PATIENCE, &bench.stream)?;
            for number in 1..=9 {
                question.store(number);
                answer.wait(Comparison::Equal, number, &patient())?;
            }
            bench.stream.synchronize()?;
        }
        Ok(())
    })
}
