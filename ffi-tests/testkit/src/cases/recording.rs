//! Answers as a JSON file with one line for each answer, so that two recordings can be compared as text.

use super::runner::Ran;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The recordings that are checked in. Each one adds the cases that the earlier ones lack.
pub const CHECKED_IN: &[(&str, &str)] = &[
    ("h200-580.159.04", include_str!("../../../answers/h200-580.159.04.json")),
    ("h200x2-580.159.04", include_str!("../../../answers/h200x2-580.159.04.json")),
];

/// The known differences of the software GPU, as checked in.
pub const DIFFERENCES: &str = include_str!("../../../answers/softgpu-differences.json");

/// The machine on which a recording was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// The kernel driver's release, as the system reports it.
    pub driver: String,
    /// The CUDA release that the library implements.
    pub cuda: String,
    /// The first device's name.
    pub device: String,
    /// The number of devices.
    pub devices: usize,
    /// The day of the recording.
    pub date: String,
}

/// The answers of one driver: for each case and label one value, or several values if runs differed.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// The machine on which it was made.
    pub machine: Machine,
    /// The answers.
    pub cases: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// The text does not have the form that [`write()`] produces.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let word = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let machine = Machine {
            driver: word("driver"),
            cuda: word("cuda"),
            device: word("device"),
            devices: value["devices"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(1),
            date: word("date"),
        };
        let mut cases = BTreeMap::new();
        for (name, answers) in value["cases"].as_object().ok_or("a recording has \"cases\"")? {
            let mut labels = BTreeMap::new();
            for answer in answers.as_array().ok_or_else(|| format!("{name} is no list"))? {
                let mut words = answer.as_array().into_iter().flatten().filter_map(|word| word.as_str());
                let label = words.next().ok_or_else(|| format!("{name} has an answer without a label"))?;
                labels.insert(label.to_owned(), words.map(str::to_owned).collect());
            }
            cases.insert(name.clone(), labels);
        }
        Ok(Self { machine, cases })
    }

    /// Joins all recordings that are checked in.
    ///
    /// # Errors
    ///
    /// A file is malformed.
    pub fn checked_in() -> Result<Self, String> {
        let mut all = Self::default();
        for (name, text) in CHECKED_IN {
            let one = Self::parse(text).map_err(|error| format!("recording {name}: {error}"))?;
            if all.cases.is_empty() {
                all.machine = one.machine;
            }
            for (case, answers) in one.cases {
                all.cases.entry(case).or_insert(answers);
            }
        }
        Ok(all)
    }
}

/// Writes runs of the suite as a recording. If an answer differed between runs, all its values are recorded.
pub fn write(machine: &Machine, runs: &[Vec<Ran>]) -> String {
    let quote = |text: &str| Value::from(text).to_string();
    let mut out = String::from("{\n");
    let count: usize = runs.first().into_iter().flatten().map(|ran| ran.answers.len()).sum();
    for (name, value) in
        [("driver", &machine.driver), ("cuda", &machine.cuda), ("device", &machine.device), ("date", &machine.date)]
    {
        let _ = writeln!(out, "  {}: {},", quote(name), quote(value));
    }
    let _ = writeln!(out, "  \"devices\": {},\n  \"answers\": {count},\n  \"cases\": {{", machine.devices);
    let first = runs.first().map_or(&[][..], Vec::as_slice);
    for (index, ran) in first.iter().enumerate() {
        let others: Vec<&Ran> = runs[1..].iter().filter_map(|run| run.iter().find(|o| o.name == ran.name)).collect();
        // Keep labels that only a later run has.
        let mut labels: Vec<&str> = Vec::new();
        for answer in std::iter::once(ran).chain(others.iter().copied()).flat_map(|ran| &ran.answers) {
            if !labels.contains(&answer.label.as_str()) {
                labels.push(&answer.label);
            }
        }
        let lines: Vec<String> = labels
            .iter()
            .map(|label| {
                let mut words = vec![quote(label)];
                for ran in std::iter::once(ran).chain(others.iter().copied()) {
                    let answer = ran.answers.iter().find(|answer| answer.label == *label);
                    let value = quote(answer.map_or("(none)", |answer| &answer.value));
                    if !words[1..].contains(&value) {
                        words.push(value);
                    }
                }
                format!("      [{}]", words.join(", "))
            })
            .collect();
        let comma = if index + 1 < first.len() { "," } else { "" };
        let _ = writeln!(out, "    {}: [\n{}\n    ]{comma}", quote(&ran.name), lines.join(",\n"));
    }
    out.push_str("  }\n}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::super::runner::Answer;
    use super::*;

    fn ran(value: &str) -> Ran {
        let answer = |label: &str, value: &str| Answer { label: label.into(), value: value.into(), expected: None };
        Ran { name: "a::b".into(), answers: vec![answer("one", "1"), answer("two", value)] }
    }

    #[test]
    fn recording_round_trips_and_records_all_values_that_vary() {
        let machine = Machine { driver: "1.2".into(), devices: 2, ..Machine::default() };
        let text = write(&machine, &[vec![ran("x")], vec![ran("\"y\"")]]);
        let back = Recording::parse(&text).unwrap();
        assert_eq!(back.machine, machine);
        assert_eq!(back.cases["a::b"]["one"], ["1"]);
        assert_eq!(back.cases["a::b"]["two"], ["x", "\"y\""]);
    }

    #[test]
    fn what_is_checked_in_can_be_read() {
        Recording::checked_in().unwrap();
    }
}
