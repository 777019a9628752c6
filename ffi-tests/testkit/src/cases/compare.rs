//! Compares a run with the recordings and the list of known differences.

use super::recording::Recording;
use super::runner::Ran;
use serde_json::Value;
use std::collections::BTreeMap;

/// A known difference. `here` is the software GPU's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The software GPU's answer.
    pub here: String,
    /// Why it differs from the real driver's answer.
    pub reason: String,
}

/// The known differences, by case and label.
pub type Differences = BTreeMap<(String, String), Known>;

/// Reads the list of known differences.
///
/// # Errors
///
/// The list is malformed, or a difference has no reason.
pub fn differences(text: &str) -> Result<Differences, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut known = Differences::new();
    for entry in value.as_array().ok_or("the differences are no list")? {
        let word = |name: &str| match entry[name].as_str() {
            Some(word) if !word.is_empty() && word != "?" => Ok(word.to_owned()),
            _ => Err(format!("{entry} lacks its \"{name}\"")),
        };
        let place = (word("case")?, word("label")?);
        known.insert(place, Known { here: word("softgpu")?, reason: word("reason")? });
    }
    Ok(known)
}

/// The result of comparing a case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Differences that are not allowed.
    pub failures: Vec<String>,
    /// Number of answers that no recording has.
    pub unrecorded: usize,
    /// Number of answers that differ as the list says.
    pub known: usize,
    /// Every difference: label, the answer here, the recorded answer.
    pub differing: Vec<(String, String, String)>,
}

/// The value of a label that a run does not have.
pub const NONE: &str = "(none)";

/// Compares a case's answers with the recorded ones. An answer without a recording is compared with the case's
/// expectation.
pub fn case(ran: &Ran, recording: &Recording, known: &Differences) -> Report {
    let mut report = Report::default();
    let empty = BTreeMap::new();
    let recorded = recording.cases.get(&ran.name).unwrap_or(&empty);
    for answer in &ran.answers {
        let want: &[String] = match (recorded.get(&answer.label), &answer.expected) {
            (Some(values), Some(expected)) if !values.contains(expected) => {
                let values = values.join(" or ");
                report.failures.push(format!(
                    "{}: the case expects {expected}, the recording says {values}: correct the case",
                    answer.label
                ));
                continue;
            }
            (Some(values), _) => values,
            (None, expected) => {
                report.unrecorded += 1;
                expected.as_slice()
            }
        };
        if !want.is_empty() && !want.contains(&answer.value) {
            report.differing.push((answer.label.clone(), answer.value.clone(), want.join(" or ")));
        }
    }
    // If a case stopped early, only that counts as its difference.
    if !ran.broken_off() {
        for (label, values) in recorded {
            if !ran.answers.iter().any(|answer| answer.label == *label) && !values.iter().any(|value| value == NONE) {
                report.differing.push((label.clone(), NONE.to_owned(), values.join(" or ")));
            }
        }
    } else if let Some(answer) = ran.answers.iter().find(|a| ["stopped", "ends"].contains(&a.label.as_str())) {
        // No recording has this early end, and missing answers prove nothing, so the early end itself is the
        // difference.
        if !recorded.is_empty() && !recorded.contains_key(&answer.label) {
            report.unrecorded -= 1;
            report.differing.push((answer.label.clone(), answer.value.clone(), NONE.to_owned()));
        }
    }
    for (case, label) in known.keys().filter(|(case, _)| *case == ran.name) {
        if !report.differing.iter().any(|(differing, ..)| differing == label) && !ran.broken_off() {
            report.failures.push(format!("{case}: {label} does not differ: remove it from the known differences"));
        }
    }
    for (label, here, want) in &report.differing {
        match known.get(&(ran.name.clone(), label.clone())) {
            Some(known) if known.here == *here => report.known += 1,
            Some(known) => report.failures.push(format!("{label}: {here}; the known difference is {}", known.here)),
            None => report.failures.push(format!("{label}: {here} in place of {want}")),
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::super::runner::Answer;
    use super::*;

    fn ran(answers: &[(&str, &str, Option<&str>)]) -> Ran {
        let answer = |&(label, value, expected): &(&str, &str, Option<&str>)| Answer {
            label: label.into(),
            value: value.into(),
            expected: expected.map(str::to_owned),
        };
        Ran { name: "a::b".into(), answers: answers.iter().map(answer).collect() }
    }

    fn recorded(text: &str) -> Recording {
        Recording::parse(&format!("{{\"cases\": {{\"a::b\": {text}}}}}")).unwrap()
    }

    fn known() -> Differences {
        differences(r#"[{"case": "a::b", "label": "x", "softgpu": "1", "reason": "so"}]"#).unwrap()
    }

    #[test]
    fn what_differs_must_be_known_and_what_is_known_must_differ() {
        let recording = recorded(r#"[["x", "2"], ["y", "3", "4"]]"#);
        let right = case(&ran(&[("x", "1", None), ("y", "4", None)]), &recording, &known());
        assert_eq!((right.known, right.failures.len(), right.unrecorded), (1, 0, 0));
        let gone = case(&ran(&[("x", "2", None), ("y", "5", None)]), &recording, &known());
        assert!(gone.failures[0].contains("remove it") && gone.failures[1].contains("5 in place of 3 or 4"));
        let other = case(&ran(&[("x", "7", None)]), &recording, &known());
        assert!(other.failures[0].contains("known difference is 1") && other.failures[1].contains("(none)"));
    }

    #[test]
    fn expectation_is_checked_against_the_result_and_the_recording() {
        let nothing = Recording::default();
        let report = case(&ran(&[("z", "1", Some("2")), ("w", "1", None)]), &nothing, &Differences::new());
        assert_eq!((report.unrecorded, report.failures.len()), (2, 1));
        let report = case(&ran(&[("z", "1", Some("2"))]), &recorded(r#"[["z", "1"]]"#), &Differences::new());
        assert!(report.failures[0].contains("correct the case"), "{:?}", report.failures);
    }

    #[test]
    fn an_early_end_is_one_difference() {
        let recording = recorded(r#"[["x", "2"], ["y", "3"]]"#);
        let report = case(&ran(&[("stopped", "cuX: missing symbol", None)]), &recording, &Differences::new());
        assert_eq!(report.failures, ["stopped: cuX: missing symbol in place of (none)"]);
    }
}
