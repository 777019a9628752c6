//! Findings: what the report consists of.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// It is there.
    Ok,
    /// Mapped memory needs it, and it is not there.
    Missing,
    /// Worth knowing.
    Note,
}

/// One thing that was looked at. The fields are those of `--json`, which `cuda-mem doctor --help` describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) section: String,
    pub(super) id: String,
    pub(super) state: State,
    pub(super) label: String,
    pub(super) text: String,
    pub(super) value: Value,
    pub(super) remedy: Option<String>,
}

impl Finding {
    fn new(state: State, id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let value = Value::from(text.clone());
        Self { section: String::new(), id: id.into(), state, label: label.into(), text, value, remedy: None }
    }

    pub(super) fn ok(id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(State::Ok, id, label, text)
    }

    pub(super) fn missing(id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(State::Missing, id, label, text)
    }

    pub(super) fn note(id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(State::Note, id, label, text)
    }

    /// What programs read, where that is not the text.
    pub(super) fn value(mut self, value: impl Into<Value>) -> Self {
        self.value = value.into();
        self
    }

    /// What to do.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// What the child process tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// What is tried next: named when it is the last that was heard.
    Step {
        section: String,
        what: String,
    },
    Finding(Finding),
    /// All was tried.
    End,
}

/// Takes findings down, under headings.
pub(super) struct Recorder<'sink> {
    section: String,
    sink: &'sink mut dyn FnMut(Message),
}

impl<'sink> Recorder<'sink> {
    pub(super) fn new(sink: &'sink mut dyn FnMut(Message)) -> Self {
        Self { section: String::new(), sink }
    }

    /// What follows stands under this heading.
    pub(super) fn section(&mut self, section: impl Into<String>) {
        self.section = section.into();
    }

    /// Says what is tried next.
    pub(super) fn step(&mut self, what: impl Into<String>) {
        (self.sink)(Message::Step { section: self.section.clone(), what: what.into() });
    }

    pub(super) fn add(&mut self, finding: Finding) {
        (self.sink)(Message::Finding(Finding { section: self.section.clone(), ..finding }));
    }

    pub(super) fn end(&mut self) {
        (self.sink)(Message::End);
    }
}

/// Whether mapped memory works on a real device, and in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) ok: bool,
    pub(super) text: String,
}

/// The id of the finding that tells a GPU from what stands in for one.
pub(super) const KIND: &str = "driver.kind";
/// Its value for real drivers.
pub(super) const GPU: &str = "gpu";

/// Judges the findings.
pub(super) fn verdict(findings: &[Finding]) -> Verdict {
    let transfers: Vec<&Finding> =
        findings.iter().filter(|one| one.id.starts_with("mapped.") && one.id.ends_with(".transfer")).collect();
    let devices = findings.iter().filter(|one| one.id.starts_with("device.") && one.id.ends_with(".name")).count();
    let works = transfers.iter().filter(|one| one.state == State::Ok).count();
    let real = findings.iter().any(|one| one.id == KIND && one.value == GPU);
    match (works, real) {
        (1.., true) if works == devices => {
            Verdict { ok: true, text: format!("mapped memory works on {}", count(works, "device")) }
        }
        (1.., true) => Verdict { ok: true, text: format!("mapped memory works on {works} of {devices} devices") },
        (1.., false) => Verdict {
            ok: false,
            text: "mapped memory works on the software GPU; no real device was looked at".to_owned(),
        },
        (0, _) => {
            let missing = findings.iter().filter(|one| one.state == State::Missing);
            let list: Vec<&str> = missing.map(|one| one.label.as_str()).collect();
            let text = match list.as_slice() {
                [] => "mapped memory does not work here".to_owned(),
                list => format!("mapped memory does not work here; missing or broken: {}", list.join(", ")),
            };
            Verdict { ok: false, text }
        }
    }
}

/// `1 device`, `2 devices`.
pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(value: &str) -> Finding {
        Finding::ok(KIND, "kind", value)
    }

    fn device(ordinal: usize, works: bool) -> [Finding; 2] {
        let transfer = format!("mapped.{ordinal}.transfer");
        let state = if works { State::Ok } else { State::Missing };
        [
            Finding::ok(format!("device.{ordinal}.name"), "name", "a GPU"),
            Finding::new(state, transfer, format!("transfer {ordinal}"), ""),
        ]
    }

    #[test]
    fn only_mapped_memory_on_a_real_device_is_good() {
        let all = [vec![kind(GPU)], device(0, true).to_vec()].concat();
        assert_eq!(verdict(&all), Verdict { ok: true, text: "mapped memory works on 1 device".to_owned() });
        let some = [vec![kind(GPU)], device(0, true).to_vec(), device(1, false).to_vec()].concat();
        assert_eq!(verdict(&some).text, "mapped memory works on 1 of 2 devices");
        let software = [vec![kind("software")], device(0, true).to_vec()].concat();
        assert!(!verdict(&software).ok);
        let none = [vec![kind(GPU)], device(0, false).to_vec()].concat();
        assert_eq!(verdict(&none).text, "mapped memory does not work here; missing or broken: transfer 0");
        assert!(!verdict(&[]).ok);
    }

    #[test]
    fn messages_survive_their_way_from_the_child() {
        let finding = Finding::note("a.b", "label", "a\n\"text\"").value(vec![1, 2]).remedy("do it");
        for message in [
            Message::Step { section: "CUDA".to_owned(), what: "trying".to_owned() },
            Message::Finding(finding),
            Message::End,
        ] {
            let line = serde_json::to_string(&message).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Message>(&line).unwrap(), message);
        }
    }
}
