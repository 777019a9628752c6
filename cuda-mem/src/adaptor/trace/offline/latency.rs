//! Durations of single operations, by percentile.

use core::fmt;

/// The durations of operations, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "json", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Latency {
    /// The number of measured operations.
    pub count: u64,
    /// The mean duration.
    pub mean_ns: f64,
    /// Half of the operations took no longer.
    pub p50_ns: u64,
    /// 90 of 100 operations took no longer.
    pub p90_ns: u64,
    /// 99 of 100 operations took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 operations took no longer.
    pub p999_ns: u64,
    /// The longest duration.
    pub max_ns: u64,
}

impl Latency {
    /// Summarizes and sorts times in nanoseconds. All values are 0 without times.
    ///
    /// ```
    /// let latency = cuda_mem::trace::Latency::of(&mut [30, 10, 20, 1000]);
    /// assert_eq!((latency.p50_ns, latency.max_ns, latency.mean_ns), (20, 1000, 265.0));
    /// ```
    pub fn of(times: &mut [u64]) -> Self {
        times.sort_unstable();
        // The smallest time that this many of a thousand do not exceed.
        let at = |thousandths: usize| {
            let rank = (times.len() * thousandths).div_ceil(1000).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        let sum: u128 = times.iter().map(|time| u128::from(*time)).sum();
        Self {
            count: times.len() as u64,
            mean_ns: sum as f64 / times.len().max(1) as f64,
            p50_ns: at(500),
            p90_ns: at(900),
            p99_ns: at(990),
            p999_ns: at(999),
            max_ns: at(1000),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = self;
        write!(
            f,
            "mean {mean_ns:.0} ns, p50 {p50_ns}, p90 {p90_ns}, p99 {p99_ns}, p99.9 {p999_ns}, longest {max_ns} ({} times)",
            self.count
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_occurred() {
        let mut times: Vec<u64> = (1..=1000).rev().collect();
        let latency = Latency::of(&mut times);
        let Latency { count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns } = latency;
        assert_eq!((count, mean_ns), (1000, 500.5));
        assert_eq!((p50_ns, p90_ns, p99_ns, p999_ns, max_ns), (500, 900, 990, 999, 1000));
        assert_eq!(Latency::of(&mut [7]).p50_ns, 7);
        assert_eq!(Latency::of(&mut []), Latency::default());
        let text = "mean 500 ns, p50 500, p90 900, p99 990, p99.9 999, longest 1000 (1000 times)";
        assert_eq!(latency.to_string(), text);
    }
}
