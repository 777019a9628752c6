//! Figures of pools, rings and devices as text for Prometheus.
//!
//! A program answers the requests of Prometheus, or of a collector that reads the same format, with an [`Exposition`] of
//! its figures. Labels tell the pools apart:
//!
//! ```
//! let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
//! # let stream = cuda_mem::Stream::new(&context)?;
//! use cuda_mem::memory::{DeviceMemory, PinnedMemory};
//! use cuda_mem::metrics::Exposition;
//! use cuda_mem::pool::Pool;
//! use cuda_mem::Allocate;
//! let weights = Pool::new(&DeviceMemory::new(&context), &Default::default())?;
//! let staging = Pool::new(&PinnedMemory::new(&context), &Default::default())?;
//! let kept = weights.zeroed::<f32>(1000, &stream)?;
//!
//! let mut metrics = Exposition::new();
//! metrics.add(&[("pool", "weights")], &weights.statistics())?;
//! metrics.add(&[("pool", "staging")], &staging.statistics())?;
//! metrics.add(&[("device", "0")], &context.memory_info()?)?;
//! let body = metrics.to_string(); // of the type `Exposition::CONTENT_TYPE`
//! assert!(body.contains("# TYPE cuda_mem_pool_requested_bytes gauge\n"));
//! assert!(body.contains("cuda_mem_pool_requested_bytes{pool=\"weights\"} 4000\n"));
//! assert!(body.contains("cuda_mem_pool_waits_total{pool=\"staging\"} 0\n"));
//! # Ok::<(), cuda_mem::Error>(())
//! ```
//!
//! | figures | names begin with |
//! |---|---|
//! | [`PoolStatistics`](crate::pool::PoolStatistics) | `cuda_mem_pool_` |
//! | [`RingStatistics`](crate::pool::RingStatistics) | `cuda_mem_ring_` |
//! | [`FrameRingStatistics`](crate::frames::FrameRingStatistics) | `cuda_mem_frames_` |
//! | [`Counts`](crate::adaptor::Counts) of [`adaptor::Statistics`](crate::adaptor::Statistics), with a histogram of sizes | `cuda_mem_resource_` |
//! | [`PoolAttributes`](crate::memory::PoolAttributes) of the driver's pools | `cuda_mem_driver_pool_` |
//! | [`MemoryInfo`](crate::MemoryInfo) | `cuda_mem_device_` |
//!
//! Names end with their unit, and counters then with `_total`.

mod figures;
mod samples;

use crate::{Error, Result};
use core::fmt::{self, Write};
use samples::{Family, Samples};
use std::collections::{BTreeMap, BTreeSet};

/// Figures that can be [added](Exposition::add) to an exposition. This crate implements it for its figures.
pub trait Figures: figures::Listed {}

impl<F: figures::Listed> Figures for F {}

/// The figures of several objects, in the text format of Prometheus, version 0.0.4. `to_string` returns the text. The
/// [module](self) has an example.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    /// By name. The format lists all samples of a name together.
    families: BTreeMap<String, Family>,
    /// The prefixes and labels that were added.
    added: BTreeSet<(&'static str, Vec<(String, String)>)>,
}

impl Exposition {
    /// The type of the text, for the header `Content-Type`.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    /// An exposition without figures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the figures of an object. The labels tell it from others with figures of the same type. Their values may be
    /// any text.
    ///
    /// # Errors
    ///
    /// A label's name is not one of Prometheus, is used twice, or is `le`, which histograms use. An object with the same
    /// labels and figures of the same type was added.
    pub fn add<F: Figures>(&mut self, labels: &[(&str, &str)], figures: &F) -> Result<()> {
        const CALL: &str = "Exposition::add";
        let refusal =
            |value: &dyn fmt::Debug, rule| Err(Error::invalid(CALL, "labels", format_args!("{value:?}"), rule));
        let mut sorted: Vec<_> = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        sorted.sort();
        if let Some((name, _)) = labels.iter().find(|(name, _)| !is_label_name(name)) {
            let rule =
                "a label's name is not \"le\", has letters, digits and _ only, and begins with a letter or one _";
            return refusal(name, rule);
        }
        if sorted.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return refusal(&labels, "each label needs a name of its own");
        }
        if !self.added.insert((F::PREFIX, sorted)) {
            return refusal(&labels, "labels tell objects with the same figures apart: they are another object's");
        }
        let mut text = String::new();
        for (name, value) in labels {
            let _ = write!(text, ",{name}=\"{}\"", Escaped(value));
        }
        figures.list(&mut Samples::new(F::PREFIX, text.trim_start_matches(','), &mut self.families));
        Ok(())
    }
}

fn is_label_name(name: &str) -> bool {
    let is_word = name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'_');
    // Names with two underscores are Prometheus's own.
    is_word
        && !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("__")
        && name != "le"
}

/// The value of a label, as the format writes it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            letter => f.write_char(letter),
        })
    }
}

impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.families.iter().try_for_each(|(name, Family { kind, help, samples })| {
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::RingStatistics;

    #[test]
    fn samples_of_one_name_stand_together_under_its_type() {
        let mut metrics = Exposition::new();
        let mut statistics = RingStatistics { full: 3, ..Default::default() };
        metrics.add(&[("ring", "up"), ("zone", "a")], &statistics).unwrap();
        statistics.full = 4;
        metrics.add(&[("ring", "down")], &statistics).unwrap();
        metrics.add(&[], &statistics).unwrap();
        let text = metrics.to_string();
        let expected = "# TYPE cuda_mem_ring_refused_total counter\ncuda_mem_ring_refused_total{ring=\"up\",zone=\"a\"} 3\n\
                        cuda_mem_ring_refused_total{ring=\"down\"} 4\ncuda_mem_ring_refused_total 4\n# HELP ";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let mut metrics = Exposition::new();
        metrics.add(&[("path", "C:\\a \"b\"\nü{}=,")], &RingStatistics::default()).unwrap();
        assert!(metrics.to_string().contains("cuda_mem_ring_blocks{path=\"C:\\\\a \\\"b\\\"\\nü{}=,\"} 0\n"));
    }

    #[test]
    fn labels_that_do_not_tell_objects_apart_are_refused() {
        let mut metrics = Exposition::new();
        let mut add = |labels: &[(&str, &str)]| metrics.add(labels, &RingStatistics::default());
        for name in ["", "a-b", "1a", "__a", "ä", "le", "a b"] {
            assert!(add(&[(name, "x")]).unwrap_err().to_string().contains(&format!("{name:?}")), "{name:?}");
        }
        assert!(add(&[("a", "x"), ("a", "y")]).unwrap_err().to_string().contains("name of its own"));
        add(&[("a", "x"), ("_b2", "y")]).unwrap();
        assert!(add(&[("_b2", "y"), ("a", "x")]).unwrap_err().to_string().contains("another object's"));
        add(&[("_b2", "x"), ("a", "y")]).unwrap();
    }
}
