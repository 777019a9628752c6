//! The figures, as text with a heat map and as JSON.

use crate::bench::machine::Machine;
use crate::bytes::size;
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    #[serde(flatten)]
    pub(super) machine: Machine,
    /// The matrix of access.
    pub(super) topology: String,
    /// The size of large copies.
    pub(super) bytes: usize,
    pub(super) rows: Vec<Row>,
}

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) case: &'static str,
    /// The source of the memory.
    pub(super) source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<usize>,
    /// The size of each copy.
    pub(super) bytes: usize,
    /// How many copies one measurement makes on each pair.
    pub(super) copies: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    direct: Option<bool>,
    /// How many links a copy with the host may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    links_named: Option<usize>,
    /// The devices whose links it uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<Vec<i32>>,
    /// The time of the whole, from the first call to the end of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    ours_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ours_gb_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw_gb_per_second: Option<f64>,
    /// Why the row has no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
}

impl Row {
    pub(super) fn of(case: &'static str, bytes: usize) -> Self {
        Self { case, source: "plain", bytes, copies: 1, ..Self::default() }
    }

    /// The device of a copy with the host.
    pub(super) fn of_device(self, device: usize) -> Self {
        Self { to: Some(device), ..self }
    }

    pub(super) fn between(self, from: usize, to: usize) -> Self {
        Self { from: Some(from), to: Some(to), ..self }
    }

    /// The row of a copy with the host, over so many links.
    pub(super) fn over(self, links: usize) -> Self {
        Self { links_named: Some(links), ..self }
    }

    /// The devices whose links the copy used.
    pub(super) fn used(self, links: Vec<i32>) -> Self {
        Self { links: Some(links), ..self }
    }

    pub(super) fn by_route(self, direct: bool) -> Self {
        Self { direct: Some(direct), ..self }
    }

    /// The row with its figures: times in seconds, of `bytes` bytes in all.
    pub(super) fn timed(self, bytes: usize, ours: f64, raw: f64) -> Self {
        let rate = |seconds: f64| Some(bytes as f64 / seconds / 1e9);
        Self {
            ours_us: Some(ours * 1e6),
            raw_us: Some(raw * 1e6),
            ours_gb_per_second: rate(ours),
            raw_gb_per_second: rate(raw),
            ..self
        }
    }

    pub(super) fn of_source(self, source: &'static str) -> Self {
        Self { source, ..self }
    }

    pub(super) fn of_copies(self, copies: usize) -> Self {
        Self { copies, ..self }
    }

    pub(super) fn failed(self, why: &dyn Error) -> Self {
        Self { failed: Some(why.to_string()), ..self }
    }

    fn label(&self) -> String {
        let pair = match (self.from, self.to) {
            (Some(from), Some(to)) => format!(" {from} to {to}"),
            (from, to) => from.or(to).map(|device| format!(" {device}")).unwrap_or_default(),
        };
        let links = self.links_named.map(|links| format!(", {links} links")).unwrap_or_default();
        let source = if self.source == "plain" { String::new() } else { format!(", {}", self.source) };
        format!("{}{pair}{links}, {}{source}", self.case, size(self.bytes as u64))
    }
}

/// The shades of the heat map, from the slowest to the fastest.
const SHADES: [&str; 5] = ["  ", "░░", "▒▒", "▓▓", "██"];

/// The shade of a rate beside the highest one.
fn shade(rate: f64, highest: f64) -> &'static str {
    let part = if highest > 0.0 { (rate / highest).clamp(0.0, 1.0) } else { 0.0 };
    SHADES[(part * (SHADES.len() - 1) as f64).round() as usize]
}

/// The rates of all pairs: a line for each source, a column for each destination.
fn heat_map(rows: &[Row]) -> String {
    let pairs: Vec<(usize, usize, f64)> = rows
        .iter()
        .filter(|row| row.case == "one way" && row.source == "plain")
        .filter_map(|row| Some((row.from?, row.to?, row.ours_gb_per_second?)))
        .collect();
    let devices = pairs.iter().map(|(from, to, _)| from.max(to) + 1).max().unwrap_or(0);
    let highest = pairs.iter().map(|(_, _, rate)| *rate).fold(0.0, f64::max);
    let mut text = format!("{:>8}", "from, to");
    (0..devices).for_each(|to| text += &format!("{to:>11}"));
    text.push('\n');
    for from in 0..devices {
        let _ = write!(text, "{from:>8}");
        for to in 0..devices {
            match pairs.iter().find(|pair| (pair.0, pair.1) == (from, to)) {
                Some((_, _, rate)) => text += &format!("{rate:>8.1} {}", shade(*rate, highest)),
                None => text += &format!("{:>11}", "-"),
            }
        }
        text.push('\n');
    }
    text
}

pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\n\n{}", report.machine.headline(), report.topology);
    let _ = writeln!(text, "\none way, {}, GB/s\n{}", size(report.bytes as u64), heat_map(&report.rows));
    text += "beside cuMemcpyPeerAsync with access enabled by hand, and cuMemcpyAsync over one link\n\n";
    let _ =
        writeln!(text, "{:<44}{:>10}{:>10}{:>10}{:>10}{:>7}  route", "", "us", "raw us", "GB/s", "raw GB/s", "ratio");
    for row in &report.rows {
        let figures = row.ours_us.zip(row.raw_us).zip(row.ours_gb_per_second.zip(row.raw_gb_per_second));
        let _ = match (figures, &row.failed) {
            (Some(((ours, raw), (rate, raw_rate))), _) => {
                let route = match (&row.links, row.direct) {
                    (Some(links), _) => format!("links of {links:?}"),
                    (None, Some(true)) => "direct".to_owned(),
                    (None, _) => "through the host".to_owned(),
                };
                let ratio = raw / ours;
                writeln!(
                    text,
                    "{:<44}{ours:>10.2}{raw:>10.2}{rate:>10.2}{raw_rate:>10.2}{ratio:>7.2}  {route}",
                    row.label()
                )
            }
            (None, why) => writeln!(text, "{:<44}{}", row.label(), why.as_deref().unwrap_or("not measured")),
        };
    }
    let _ =
        writeln!(text, "\nTimes end with the wait. The ratio is raw time to time: above 1, this library is faster.");
    if report.machine.software {
        text += "\nNo GPU was used: the copies are those of the software GPU, so the figures are not those of real devices.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_a_shade_for_each_pair() {
        let row = |from, to, seconds| Row::of("one way", 1000).between(from, to).timed(1000, seconds, 1e-6);
        let rows = [row(0, 1, 1e-8), row(1, 0, 1e-6), Row::of("ring", 1000).timed(1000, 1e-9, 1e-9)];
        let expected =
            "from, to          0          1\n       0          -   100.0 ██\n       1     1.0             -\n";
        assert_eq!(heat_map(&rows), expected);
        assert_eq!([shade(0.0, 10.0), shade(5.0, 10.0), shade(10.0, 10.0), shade(1.0, 0.0)], ["  ", "▒▒", "██", "  "]);
    }

    #[test]
    fn a_row_without_figures_says_why() {
        let failed = Row::of("ring", 1 << 20).failed(&std::fmt::Error);
        let report = Report {
            ok: false,
            machine: Machine::of_a_test("a device", "a library", None),
            topology: "0 1\n".to_owned(),
            bytes: 1 << 20,
            rows: vec![
                failed,
                Row::of("one way", 1 << 20).between(0, 1).by_route(false).timed(1 << 20, 2e-3, 1e-3),
                Row::of("device to host", 1 << 20).of_device(0).over(3).used(vec![0, 2]).timed(1 << 20, 1e-3, 2e-3),
            ],
        };
        let text = text(&report);
        assert!(text.contains(&std::fmt::Error.to_string()) && text.contains("No GPU was used"), "{text}");
        let line = text.lines().find(|line| line.starts_with("one way 0 to 1")).expect("the line");
        assert!(line.ends_with("0.50  through the host"), "{line}");
        let line = text.lines().find(|line| line.starts_with("device to host 0, 3 links")).expect("the line");
        assert!(line.ends_with("2.00  links of [0, 2]"), "{line}");
    }
}
