//! The figures of `bench signal`, as text and as JSON.

use super::cases::{Case, Figures};
use crate::bench::machine::Machine;
use cuda_mem::signal::Placement;
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) why_not_mapped: Option<String>,
    pub(super) rows: Vec<Row>,
}

/// One case.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    case: &'static str,
    /// Where the device's word lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<&'static str>,
    /// Where the CPU's word lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rounds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items_per_second: Option<f64>,
    /// Why the row has no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

fn name(placement: Placement) -> &'static str {
    match placement {
        Placement::Pinned => "pinned",
        Placement::Mapped => "mapped",
    }
}

impl Row {
    pub(super) fn new(case: Case, figures: Figures) -> Self {
        let (latency, items_per_second) = match figures {
            Figures::Rounds(latency) => (Some(latency), None),
            Figures::Items(rate) => (None, Some(rate)),
        };
        Self {
            median_ns: latency.map(|latency| latency.p50_ns),
            p99_ns: latency.map(|latency| latency.p99_ns),
            rounds: latency.map(|latency| latency.count),
            items_per_second,
            ..Self::of(case)
        }
    }

    pub(super) fn failed(case: Case, why: &dyn Error) -> Self {
        Self { failed: Some(why.to_string()), ..Self::of(case) }
    }

    pub(super) fn is_measured(&self) -> bool {
        self.failed.is_none()
    }

    fn of(case: Case) -> Self {
        let (case, places) = match case {
            Case::Launch => ("launch", None),
            Case::Flag { question, answer, in_order: false } => ("flag", Some((question, answer))),
            Case::Flag { question, answer, in_order: true } => ("flag in order", Some((question, answer))),
            Case::Stream { question, answer } => ("stream", Some((question, answer))),
            Case::RingRoundTrip => ("ring round trip", None),
            Case::RingToDevice => ("ring to device", None),
            Case::RingFromDevice => ("ring from device", None),
            Case::RingBothWays => ("ring both ways", None),
        };
        let (question, answer) = (places.map(|places| name(places.0)), places.map(|places| name(places.1)));
        Self { case, question, answer, ..Self::default() }
    }

    fn label(&self) -> String {
        match (self.question, self.answer) {
            (Some(question), Some(answer)) => format!("{}, {question} in, {answer} out", self.case),
            _ => self.case.to_owned(),
        }
    }
}

/// A table with one line for each case.
pub(super) fn text(report: &Report) -> String {
    let mut text = report.machine.headline() + "\n";
    text += "single round trips from the CPU and back, in microseconds; for rings also items of 8 bytes per second\n";
    let _ = writeln!(text, "\n{:<40}{:>10}{:>10}{:>18}", "", "median", "p99", "items/s");
    let micros = |time: Option<u64>| time.map_or_else(String::new, |time| format!("{:.2}", time as f64 / 1000.0));
    for row in &report.rows {
        let items = row.items_per_second.map_or_else(String::new, |rate| format!("{:.2} million", rate / 1e6));
        let line = format!("{:<40}{:>10}{:>10}{items:>18}", row.label(), micros(row.median_ns), micros(row.p99_ns));
        text += match &row.failed {
            None => line,
            Some(why) => format!("{}  {why}", row.label()),
        }
        .trim_end();
        text.push('\n');
    }
    if let Some(missing) = &report.why_not_mapped {
        let _ = writeln!(text, "\nNothing lies in mapped memory: it needs {missing}.");
    }
    if report.machine.software {
        text += "\nNo GPU was used: the kernels are threads of the software GPU, so the figures are not those of a real device.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::trace::Latency;

    #[test]
    fn signal_report_has_a_line_per_case_with_placement_and_figures() {
        let latency = Figures::Rounds(Latency::of(&mut [1480, 1490, 9000]));
        let flag = Case::Flag { question: Placement::Mapped, answer: Placement::Pinned, in_order: false };
        let report = Report {
            ok: true,
            machine: Machine::of_a_test("a device", "a library", None),
            why_not_mapped: Some("a reason".to_owned()),
            rows: vec![
                Row::new(flag, latency),
                Row::new(Case::RingToDevice, Figures::Items(2.5e6)),
                Row::failed(Case::Launch, &std::fmt::Error),
            ],
        };
        let text = text(&report);
        let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).expect("the line");
        assert!(line("flag, mapped in, pinned out").ends_with("1.49      9.00"), "{text}");
        assert!(line("ring to device").ends_with("2.50 million"), "{text}");
        assert!(text.contains("needs a reason") && text.contains("No GPU was used"), "{text}");
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!((&json["rows"][0]["answer"], &json["rows"][0]["rounds"]), (&"pinned".into(), &3.into()));
        assert!(json["rows"][1].get("median_ns").is_none() && json["rows"][2]["failed"].is_string());
        assert!(report.rows[1].is_measured() && !report.rows[2].is_measured());
        assert!(line("launch").ends_with(&std::fmt::Error.to_string()), "{text}");
    }
}
