//! What benchmarks measure with: medians, and numbers that look random.

use std::convert::Infallible;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

/// The median time of one run, in nanoseconds: of so many rounds, each of a batch of runs, so that reading the clock does not
/// count. A round before them warms.
///
/// # Errors
///
/// The run's.
pub fn median<E>(rounds: usize, batch: usize, run: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    median_between(rounds, batch, run, || Ok(()))
}

/// The same; what is done between the rounds does not count.
///
/// # Errors
///
/// The run's, and what is between.
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

/// The same of what cannot fail.
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
/// There are none.
pub fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Numbers that look random and are the same in each run (SplitMix64).
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

    /// A number below the bound, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_number() % bound as u64) as usize
    }

    /// A size between these powers of two, every power as often as another.
    pub fn size(&mut self, exponents: Range<u32>) -> u64 {
        let part = (self.next_number() >> 11) as f64 / (1u64 << 53) as f64;
        let (least, most) = (f64::from(exponents.start), f64::from(exponents.end));
        (least + (most - least) * part).exp2() as u64
    }
}
