//! The figures of `bench pool`, as text and as JSON.

use super::workloads::{Case, Figures};
use crate::bench::machine::Machine;
use crate::bytes;
use crate::subject::Subject;
use serde::Serialize;
use std::fmt::Write;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) rows: Vec<Row>,
}

/// One workload on one subject.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    workload: &'static str,
    parameter: Option<usize>,
    subject: &'static str,
    /// What counts as one operation.
    unit: &'static str,
    mean_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p999_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_requested: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_reserved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fragmentation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_memory: Option<u64>,
    /// Why the row has no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Row {
    pub(super) fn new(subject: Subject, case: &Case, figures: Figures) -> Self {
        Self {
            mean_ns: Some(figures.mean_ns),
            p50_ns: figures.single.map(|single| single.p50_ns),
            p99_ns: figures.single.map(|single| single.p99_ns),
            p999_ns: figures.single.map(|single| single.p999_ns),
            per_second: figures.per_second,
            peak_requested: figures.memory.map(|memory| memory.peak_requested),
            peak_reserved: figures.memory.and_then(|memory| memory.peak_reserved),
            fragmentation: figures.memory.and_then(|memory| memory.fragmentation),
            out_of_memory: figures.memory.map(|memory| memory.out_of_memory),
            ..Self::of(subject, case)
        }
    }

    pub(super) fn failed(subject: Subject, case: &Case, why: String) -> Self {
        Self { failed: Some(why), ..Self::of(subject, case) }
    }

    fn of(subject: Subject, case: &Case) -> Self {
        let (workload, parameter, unit) = match *case {
            Case::Pair(size) => ("pair", Some(size), "pair"),
            Case::Random => ("random", None, "operation"),
            Case::Holes(count) => ("holes", Some(count), "pair"),
            Case::Threads { count, own_streams: false } => ("threads, one stream", Some(count), "pair"),
            Case::Threads { count, own_streams: true } => ("threads, own streams", Some(count), "pair"),
            Case::Replay => ("replay", None, "operation"),
        };
        Self { workload, parameter, subject: subject.name(), unit, ..Self::default() }
    }

    /// The mean. Cells of short operations also show the 99.9th percentile.
    fn cell(&self) -> String {
        match (self.mean_ns, self.p999_ns) {
            (None, _) => "no memory".to_owned(),
            (Some(mean), Some(p999)) if self.per_second.is_none() => {
                format!("{} ({})", short(mean), short(p999 as f64))
            }
            (Some(mean), _) => short(mean),
        }
    }

    fn label(&self) -> String {
        match (self.workload, self.parameter) {
            ("pair", Some(size)) => format!("pair, {}", bytes::size(size as u64)),
            ("holes", Some(count)) => format!("{} holes", bytes::thousands(count as u64)),
            (workload, Some(count)) => format!("{count} {workload}"),
            (workload, None) => workload.to_owned(),
        }
    }
}

/// Nanoseconds with about three significant digits.
fn short(nanoseconds: f64) -> String {
    match nanoseconds {
        small if small < 100.0 => format!("{small:.1}"),
        large => bytes::thousands(large.round() as u64),
    }
}

/// A table with one line for each workload and one column for each subject.
pub(super) fn text(report: &Report) -> String {
    const LABEL: usize = 26;
    const COLUMN: usize = 24;
    let mut subjects: Vec<&str> = Vec::new();
    let mut workloads: Vec<String> = Vec::new();
    for row in &report.rows {
        if !subjects.contains(&row.subject) {
            subjects.push(row.subject);
        }
        if !workloads.contains(&row.label()) {
            workloads.push(row.label());
        }
    }
    let mut text = report.machine.headline() + "\n";
    text.push_str(
        "nanoseconds: the mean (p99.9) of an allocation and its free; of random and replay, of one operation\n\n",
    );
    let line = |label: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>COLUMN$}")).collect();
        format!("{label:<LABEL$}{cells}").trim_end().to_owned() + "\n"
    };
    text += &line("", subjects.iter().map(|subject| (*subject).to_owned()).collect());
    let rows_of = |label: &str| -> Vec<Option<&Row>> {
        let find = |subject: &&str| report.rows.iter().find(|row| row.subject == *subject && row.label() == label);
        subjects.iter().map(find).collect()
    };
    for label in &workloads {
        let cells = rows_of(label).into_iter().map(|row| row.map_or_else(|| "-".to_owned(), Row::cell));
        text += &line(label, cells.collect());
    }
    let of_memory = |name: &str, cell: &dyn Fn(&Row) -> Option<String>| {
        let cells = rows_of("replay").into_iter().map(|row| row.and_then(cell).unwrap_or_else(|| "-".to_owned()));
        line(name, cells.collect())
    };
    text.push('\n');
    text += &of_memory("replay: peak requested", &|row| row.peak_requested.map(bytes::size));
    text += &of_memory("replay: peak reserved", &|row| row.peak_reserved.map(bytes::size));
    text += &of_memory("replay: fragmentation", &|row| row.fragmentation.map(|part| format!("{:.1}%", part * 100.0)));
    for row in report.rows.iter().filter(|row| row.failed.is_some()) {
        let _ = writeln!(text, "\n{}, {}: {}", row.label(), row.subject, row.failed.as_deref().unwrap_or_default());
    }
    if report.machine.software {
        text.push_str(
            "\nNo GPU was used: the figures of the driver's pool and of cuMemAlloc are the software GPU's, not a real driver's.\n\
             Those of this project's pool are its own, as long as it makes no call of the driver.\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::workloads::Memory;
    use super::*;
    use cuda_mem::trace::Latency;

    fn report() -> Report {
        let figures = |mean_ns| {
            let single = Some(Latency::of(&mut [20, 30, 1234]));
            Figures { mean_ns, single, ..Figures::default() }
        };
        let memory = Memory {
            peak_requested: 3 << 20,
            peak_reserved: Some(4 << 20),
            fragmentation: Some(0.25),
            out_of_memory: 0,
        };
        let threads = Case::Threads { count: 16, own_streams: true };
        let rows = vec![
            Row::new(Subject::Ours, &Case::Pair(4096), figures(21.25)),
            Row::new(Subject::Driver, &Case::Pair(4096), figures(987.6)),
            Row::new(Subject::Ours, &Case::Holes(65_536), figures(22.0)),
            Row::new(Subject::Ours, &threads, Figures { mean_ns: 30.0, per_second: Some(5e8), ..Figures::default() }),
            Row::failed(Subject::Driver, &threads, "there is no memory".to_owned()),
            Row::new(Subject::Ours, &Case::Replay, Figures { memory: Some(memory), ..figures(40.0) }),
        ];
        Report { ok: true, machine: Machine::of_a_test("softgpu 0", "softgpu", Some("13.0")), rows }
    }

    #[test]
    fn pool_report_has_a_line_per_workload_and_a_column_per_subject() {
        let text = text(&report());
        let line = |begin: &str| {
            let line = text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {text}"));
            line[begin.len()..].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(line("pair, 4 KiB"), ["21.2 (1,234)", "988 (1,234)"]);
        assert_eq!(line("65,536 holes"), ["22.0 (1,234)", "-"]);
        assert_eq!(line("16 threads, own streams"), ["30.0", "no memory"]);
        assert_eq!(line("replay: peak reserved"), ["4 MiB", "-"]);
        assert_eq!(line("replay: fragmentation"), ["25.0%", "-"]);
        assert!(text.contains("16 threads, own streams, driver's pool: there is no memory"), "{text}");
        assert!(text.contains("not a real driver's"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 128), "{text}");
    }

    #[test]
    fn rows_have_their_figures_and_no_others() {
        let json = serde_json::to_value(report()).unwrap();
        let row = &json["rows"][0];
        assert_eq!(
            (&row["workload"], &row["parameter"], &row["subject"]),
            (&"pair".into(), &4096.into(), &"ours, resource".into())
        );
        assert_eq!((&row["mean_ns"], &row["p999_ns"], &row["unit"]), (&21.25.into(), &1234.into(), &"pair".into()));
        assert!(row.get("per_second").is_none() && row.get("failed").is_none());
        assert_eq!(json["rows"][4]["failed"], "there is no memory");
        assert!(json["rows"][4]["mean_ns"].is_null());
        assert_eq!(json["rows"][5]["fragmentation"], 0.25);
    }
}
