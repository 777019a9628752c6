//! Findings, which make up the report.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The outcome of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FindingState {
    /// The thing is present.
    Ok,
    /// Mapped memory needs it, and it is absent.
    Missing,
    /// Worth knowing.
    Note,
}

/// The result of one check. The fields are those of `--json`, which `cuda-mem doctor --help` describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Finding {
    pub(super) section: String,
    pub(super) id: String,
    pub(super) state: FindingState,
    pub(super) label: String,
    pub(super) text: String,
    pub(super) value: Value,
    pub(super) remedy: Option<String>,
}

impl Finding {
    fn new(state: FindingState, id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let value = Value::from(text.clone());
        Self { section: String::new(), id: id.into(), state, label: label.into(), text, value, remedy: None }
    }

    pub(super) fn ok(id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(FindingState::Ok, id, label, text)
    }

    pub(super) fn missing(id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(FindingState::Missing, id, label, text)
    }

    pub(super) fn note(id: impl Into<String>, label: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(FindingState::Note, id, label, text)
    }

    /// Sets the value for programs, if that differs from the text.
    pub(super) fn value(mut self, value: impl Into<Value>) -> Self {
        self.value = value.into();
        self
    }

    /// Sets what to do.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// A message of the child process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// What the child tries next. The parent names it if it is the last message.
    Step {
        section: String,
        what: String,
    },
    Finding(Finding),
    /// Everything was tried.
    End,
}

/// Records findings under section headings.
pub(super) struct Recorder<'sink> {
    section: String,
    sink: &'sink mut dyn FnMut(Message),
}

impl<'sink> Recorder<'sink> {
    pub(super) fn new(sink: &'sink mut dyn FnMut(Message)) -> Self {
        Self { section: String::new(), sink }
    }

    /// Sets the heading of the following findings.
    pub(super) fn section(&mut self, section: impl Into<String>) {
        self.section = section.into();
    }

    /// Announces what is tried next.
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

/// Whether mapped memory works on the driver that the environment names, or on the system's; also in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) ok: bool,
    pub(super) state: FindingState,
    pub(super) text: String,
}

/// The id of the finding about the driver's library.
pub(super) const LIBRARY: &str = "driver.library";
/// The id of the finding that distinguishes a GPU from the software GPU.
pub(super) const KIND: &str = "driver.kind";
/// Its value for real drivers.
pub(super) const GPU: &str = "gpu";

/// Derives the verdict from the findings.
pub(super) fn verdict(findings: &[Finding]) -> Verdict {
    let transfers: Vec<&Finding> =
        findings.iter().filter(|one| one.id.starts_with("mapped.") && one.id.ends_with(".transfer")).collect();
    let devices = findings.iter().filter(|one| one.id.starts_with("device.") && one.id.ends_with(".name")).count();
    let works = transfers.iter().filter(|one| one.state == FindingState::Ok).count();
    let real = findings.iter().any(|one| one.id == KIND && one.value == GPU);
    match (works, real) {
        (1.., true) if works == devices => Verdict::ok(format!("mapped memory works on {}", count(works, "device"))),
        (1.., true) => Verdict::ok(format!("mapped memory works on {works} of {devices} devices")),
        (1.., false) => {
            let text = "mapped memory works on the software GPU, which runs all but your own kernels; no real device was tested";
            Verdict { ok: true, state: FindingState::Note, text: text.to_owned() }
        }
        (0, _) => {
            let missing = findings.iter().filter(|one| one.state == FindingState::Missing);
            let list: Vec<&str> = missing.map(|one| one.label.as_str()).collect();
            let without_driver = findings.iter().any(|one| one.id == LIBRARY && one.state == FindingState::Missing);
            let text = match list.as_slice() {
                _ if without_driver => {
                    "there is no NVIDIA driver, so no GPU can be used. Programs run on the software GPU \
                                        with CUDA_MEM_LIBCUDA: softgpu for Rust programs with the feature softgpu, for \
                                        others the path (see \"for programs in C\")"
                        .to_owned()
                }
                [] => "mapped memory does not work here".to_owned(),
                list => format!("mapped memory does not work here; missing or broken: {}", list.join(", ")),
            };
            Verdict { ok: false, state: FindingState::Missing, text }
        }
    }
}

impl Verdict {
    fn ok(text: String) -> Self {
        Self { ok: true, state: FindingState::Ok, text }
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
        let state = if works { FindingState::Ok } else { FindingState::Missing };
        [
            Finding::ok(format!("device.{ordinal}.name"), "name", "a GPU"),
            Finding::new(state, transfer, format!("transfer {ordinal}"), ""),
        ]
    }

    #[test]
    fn mapped_memory_that_works_is_good_and_the_words_name_softgpu() {
        let all = [vec![kind(GPU)], device(0, true).to_vec()].concat();
        assert_eq!(verdict(&all), Verdict::ok("mapped memory works on 1 device".to_owned()));
        let some = [vec![kind(GPU)], device(0, true).to_vec(), device(1, false).to_vec()].concat();
        assert_eq!(verdict(&some).text, "mapped memory works on 1 of 2 devices");
        let software = [vec![kind("software")], device(0, true).to_vec()].concat();
        assert!(verdict(&software).ok && verdict(&software).state == FindingState::Note);
        let no_driver = verdict(&[Finding::missing(LIBRARY, "libcuda", "not found")]);
        assert!(!no_driver.ok && no_driver.text.contains("software GPU"), "{}", no_driver.text);
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
