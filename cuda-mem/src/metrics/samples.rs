//! The samples of an object, in the form of the text format.

use core::fmt::{self, Write};
use std::collections::BTreeMap;

/// All samples of one name.
#[derive(Clone, Debug)]
pub struct Family {
    pub kind: &'static str,
    pub help: &'static str,
    pub samples: String,
}

/// Takes the samples of one object.
#[derive(Debug)]
pub struct Samples<'a> {
    prefix: &'static str,
    /// As the format writes them, without braces.
    labels: &'a str,
    to: &'a mut BTreeMap<String, Family>,
}

impl<'a> Samples<'a> {
    pub fn new(prefix: &'static str, labels: &'a str, to: &'a mut BTreeMap<String, Family>) -> Self {
        Self { prefix, labels, to }
    }

    /// A value that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &'static str, value: impl fmt::Display) {
        self.family(name, "gauge", help).sample("", "", value);
    }

    /// A value that only grows. Its name ends with `_total`.
    pub fn counter(&mut self, name: &str, help: &'static str, value: u64) {
        self.family(name, "counter", help).sample("", "", value);
    }

    /// The numbers of values up to each bound, ascending, and the number and the sum of all values.
    pub fn histogram(&mut self, name: &str, help: &'static str, upto: &[(usize, u64)], count: u64, sum: u64) {
        let mut family = self.family(name, "histogram", help);
        for (bound, count) in upto {
            family.sample("_bucket", &format!("le=\"{bound}\""), count);
        }
        family.sample("_bucket", "le=\"+Inf\"", count);
        family.sample("_sum", "", sum);
        family.sample("_count", "", count);
    }

    fn family(&mut self, name: &str, kind: &'static str, help: &'static str) -> OpenFamily<'_> {
        let name = format!("{}_{name}", self.prefix);
        let family = self.to.entry(name.clone()).or_insert(Family { kind, help, samples: String::new() });
        OpenFamily { name, labels: self.labels, samples: &mut family.samples }
    }
}

struct OpenFamily<'a> {
    name: String,
    labels: &'a str,
    samples: &'a mut String,
}

impl OpenFamily<'_> {
    fn sample(&mut self, suffix: &str, label: &str, value: impl fmt::Display) {
        let labels = [self.labels, label].into_iter().filter(|labels| !labels.is_empty()).collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _ = writeln!(self.samples, "{}{suffix}{labels} {value}", self.name);
    }
}
