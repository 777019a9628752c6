//! Tools of the benchmarks: medians and pseudo-random numbers.

use std::convert::Infallible;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

/// The median time of one run, in nanoseconds. Each of `rounds` rounds times a batch of runs, so that the clock
/// readings do not matter. An untimed round before them warms up.
///
/// # Errors
///
/// The run's error.
pub fn median<E>(rounds: usize, batch: usize, run: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    median_between(rounds, batch, run, || Ok(()))
}

/// The median time of one run, in nanoseconds, with untimed work between the rounds. Rounds and batches are those of
/// [`median`].
///
/// # Errors
///
/// The error of the run, or of the work between the rounds.
pub fn median_between<E>(
    rounds: usize,
    batch: usize,
    mut run: impl FnMut() -> Result<(), E>,
    mut between: impl FnMut() -> Result<(), E>,
) -> Result<f64, E> {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        let start = Instant::now();
        for _ in 0..batch {
            run()?;
        }
        let time = start.elapsed();
        if round > 0 {
            times.push(time.as_secs_f64() * 1e9 / batch as f64);
        }
        between()?;
    }
    Ok(middle(&mut times))
}

/// The median time of one run that cannot fail, in nanoseconds. Rounds and batches are those of [`median`].
pub fn median_of<T>(rounds: usize, batch: usize, mut run: impl FnMut() -> T) -> f64 {
    let Ok(time) = median(rounds, batch, || {
        black_box(run());
        Ok::<(), Infallible>(())
    });
    time
}

/// The median of times.
///
/// # Panics
///
/// There are no times.
pub fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Pseudo-random numbers that are the same in each run (SplitMix64).
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_number() % bound as u64) as usize
    }

    /// A size between these powers of two. Every power is equally likely.
    pub fn size(&mut self, exponents: Range<u32>) -> u64 {
        let part = (self.next_number() >> 11) as f64 / (1u64 << 53) as f64;
        let (least, most) = (f64::from(exponents.start), f64::from(exponents.end));
        (least + (most - least) * part).exp2() as u64
    }
}
