//! Speeds: CPU stores and loads compared with the driver's copies, in the same memory and the same run.

use crate::mapped_memory::mapped_memory;
use cuda_mem::{Error, MappedMemory, Result};
use serde::Serialize;
use std::time::{Duration, Instant};

/// The measured sizes, in bytes.
const SIZES: [usize; 5] = [4, 64, 4 << 10, 1 << 20, 16 << 20];
/// The time limit for each figure.
const BUDGET: Duration = Duration::from_millis(30);
/// The maximum number of samples.
const SAMPLES: usize = 501;
/// The minimum number of samples, however long they take.
const LEAST: usize = 5;
/// The minimum length of a sample, so that the clock readings do not matter.
const SAMPLE: Duration = Duration::from_micros(20);

/// The measurements, with times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Speeds {
    /// A 4-byte store, with its flush.
    pub(super) store_4_bytes: Latency,
    pub(super) speeds: Vec<Speed>,
}

/// The same operation done in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Latency {
    pub(super) cpu_seconds: f64,
    pub(super) driver_seconds: f64,
}

/// One size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Speed {
    pub(super) bytes: usize,
    pub(super) cpu_store_seconds: f64,
    pub(super) driver_write_seconds: f64,
    pub(super) cpu_load_seconds: f64,
    pub(super) driver_read_seconds: f64,
}

/// Measures all sizes. If the largest size does not fit, measures sizes up to `proven`, which was allocated before.
pub(super) fn run(resource: &MappedMemory, proven: usize) -> Result<Speeds> {
    let largest = SIZES[SIZES.len() - 1];
    let mut memory = match mapped_memory(resource, largest) {
        Err(Error::OutOfMemory { .. }) => mapped_memory(resource, proven.min(largest).max(SIZES[0]))?,
        other => other?,
    };
    let source: Vec<u8> = (0..memory.len()).map(|index| (index * 31 / 7) as u8).collect();
    let mut back = vec![0u8; memory.len()];
    let mut speeds = Vec::new();
    for bytes in SIZES.into_iter().filter(|bytes| *bytes <= source.len()) {
        let (from, to) = (&source[..bytes], &mut back[..bytes]);
        speeds.push(Speed {
            bytes,
            cpu_store_seconds: median_seconds(BUDGET, || memory.store(0, from))?,
            driver_write_seconds: median_seconds(BUDGET, || memory.copy_from_slice(0, from))?,
            cpu_load_seconds: median_seconds(BUDGET, || memory.load(0, to))?,
            driver_read_seconds: median_seconds(BUDGET, || memory.copy_to_slice(0, to))?,
        });
    }
    let mut word = 0u32;
    let store_4_bytes = Latency {
        cpu_seconds: median_seconds(BUDGET, || {
            word = word.wrapping_add(1);
            memory.store(0, &word.to_ne_bytes())
        })?,
        driver_seconds: median_seconds(BUDGET, || {
            word = word.wrapping_add(1);
            memory.copy_from_slice(0, &word.to_ne_bytes())
        })?,
    };
    Ok(Speeds { store_4_bytes, speeds })
}

/// The median time of one call, over many samples. A sample is one call, or several if one is very short.
fn median_seconds(budget: Duration, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    // The first call warms caches and pages. The second shows how long one call takes.
    call()?;
    let start = Instant::now();
    call()?;
    let once = start.elapsed().max(Duration::from_nanos(1));
    let batch = u32::try_from(SAMPLE.as_nanos().div_ceil(once.as_nanos())).unwrap_or(1).max(1);
    let mut samples = Vec::new();
    let start = Instant::now();
    while samples.len() < LEAST || (samples.len() < SAMPLES && start.elapsed() < budget) {
        let before = Instant::now();
        for _ in 0..batch {
            call()?;
        }
        samples.push(before.elapsed().as_secs_f64() / f64::from(batch));
    }
    Ok(median(&mut samples))
}

/// The median: for an even number, the lower of the two in the middle.
fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&mut [3.0, 1.0, 100.0]), 3.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.0);
        assert!(median(&mut []).is_nan());
    }

    #[test]
    fn a_measurement_repeats_ends_in_time_and_passes_errors_on() {
        let mut calls = 0;
        let seconds = median_seconds(Duration::from_millis(5), || {
            calls += 1;
            Ok(())
        });
        assert!(calls > LEAST && seconds.unwrap() < 1e-3);
        let error = Error::OutOfRange { call: "test", offset: 0, length: 0, size: 0 };
        assert_eq!(median_seconds(BUDGET, || Err(error.clone())), Err(error.clone()));
    }
}
