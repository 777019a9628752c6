//! The figures, as text and as JSON.

use crate::bench::machine::Machine;
use crate::bytes::size;
use cuda_mem::trace::Latency;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    #[serde(flatten)]
    pub(super) machine: Machine,
    /// The other program's device, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to_device_name: Option<String>,
    /// What carries the bytes of each way that was measured.
    pub(super) transports: Vec<String>,
    /// Why a way was not measured, by its name.
    pub(super) not_there: BTreeMap<&'static str, String>,
    /// The processes that want to run, of the last minute.
    pub(super) load: Option<f64>,
    pub(super) rows: Vec<Row>,
}

/// A size: times in nanoseconds for a message and its answer.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) bytes: usize,
    /// How many messages of `ours` were measured.
    pub(super) rounds: u64,
    /// For each way: its name with `_ns` and `_p99_ns`.
    #[serde(flatten)]
    times: BTreeMap<String, u64>,
}

/// The columns of the table: the name of a way, and what it is called.
const COLUMNS: [(&str, &str); 5] = [
    ("ucx", "over UCX"),
    ("ucx_direct", "UCX direct"),
    ("ucx_tcp", "UCX's TCP"),
    ("perftest", "ucx_perftest"),
    ("ipc", "ipc"),
];

impl Row {
    pub(super) fn new(bytes: usize) -> Self {
        Self { bytes, rounds: 0, times: BTreeMap::new() }
    }

    /// Adds what was measured of a way.
    pub(super) fn add(&mut self, way: &str, times: &mut [u64]) {
        let latency = Latency::of(times);
        if way == "ours" {
            self.rounds = latency.count;
        }
        self.times.insert(format!("{way}_ns"), latency.p50_ns);
        // One program tells medians only.
        if way != "perftest" {
            self.times.insert(format!("{way}_p99_ns"), latency.p99_ns);
        }
    }

    fn micros(&self, figure: &str) -> String {
        self.times.get(figure).map_or_else(|| "not there".to_owned(), |&time| format!("{:.1}", time as f64 / 1000.0))
    }

    fn ratio(&self) -> String {
        match (self.times.get("ours_ns"), self.times.get("plain_ns")) {
            (Some(&ours), Some(&plain)) => format!("{:.2}", ours as f64 / plain as f64),
            _ => String::new(),
        }
    }
}

impl Report {
    pub(super) fn text(&self) -> String {
        let mut text = self.machine.headline() + "\n";
        if let Some(name) = &self.to_device_name {
            let _ = writeln!(text, "to {name}");
        }
        self.transports.iter().for_each(|transport| text += &format!("{transport}\n"));
        text += "device memory to another program and back, in microseconds: medians, and the 99th percentile\n";
        let _ = write!(text, "\n{:<8}{:>10}{:>10}{:>12}{:>10}{:>7}", "", "ours", "p99", "plain loop", "p99", "ratio");
        COLUMNS.iter().for_each(|(_, title)| text += &format!("{title:>13}"));
        for row in &self.rows {
            let ours = ["ours_ns", "ours_p99_ns", "plain_ns", "plain_p99_ns"].map(|figure| row.micros(figure));
            let [ours, ours_p99, plain, plain_p99] = ours;
            let (bytes, ratio) = (size(row.bytes as u64), row.ratio());
            let _ = write!(text, "\n{bytes:<8}{ours:>10}{ours_p99:>10}{plain:>12}{plain_p99:>10}{ratio:>7}");
            COLUMNS.iter().for_each(|(way, _)| text += &format!("{:>13}", row.micros(&format!("{way}_ns"))));
        }
        text += "\n\nThe plain loop copies to page-locked memory, waits, writes a TCP socket, and the other way round: without \
                 protection.\nucx_perftest tells the time of a message: the figure is twice that.\n";
        for (way, why) in &self.not_there {
            let title = COLUMNS.iter().find(|(name, _)| name == way).map_or(*way, |(_, title)| *title);
            let _ = writeln!(text, "{title} is not there: {why}");
        }
        if let Some(load) = self.load {
            let _ = writeln!(text, "Load of the machine: {load}.");
        }
        if self.machine.software {
            text += "No GPU was used: copies are copies of the CPU.\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut row = Row::new(1 << 20);
        row.add("ours", &mut [2_000_000, 3_000_000, 4_000_000]);
        row.add("plain", &mut [1_500_000]);
        row.add("perftest", &mut [1_000]);
        let machine = Machine::of_a_test("softgpu", "softgpu", Some("13.0"));
        let not_there = BTreeMap::from([("ucx_direct", "it needs X".to_owned())]);
        let (transports, rows) = (vec!["ours: TCP".to_owned()], vec![row]);
        Report { ok: true, machine, to_device_name: None, transports, not_there, load: Some(0.5), rows }
    }

    #[test]
    fn a_way_that_is_not_there_says_why() {
        let text = report().text();
        let row = text.lines().find(|line| line.starts_with("1 MiB")).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>().join(" "),
            "1 MiB 3000.0 4000.0 1500.0 1500.0 2.00 not there not there not there 1.0 not there"
        );
        assert!(text.contains("UCX direct is not there: it needs X\n"), "{text}");
    }

    #[test]
    fn the_figures_are_fields_of_their_row() {
        let json = serde_json::to_value(report()).unwrap();
        let row = &json["rows"][0];
        assert_eq!(
            (&row["rounds"], &row["ours_ns"], &row["plain_p99_ns"]),
            (&3.into(), &3_000_000.into(), &1_500_000.into())
        );
        assert_eq!((&row["perftest_ns"], row.get("perftest_p99_ns"), row.get("ucx_ns")), (&1000.into(), None, None));
        assert_eq!(json["not_there"]["ucx_direct"], "it needs X");
    }
}
