//! The doctor's report, as text and as JSON.

use super::finding::{Finding, FindingState, Verdict};
use serde_json::json;
use std::fmt::Write;
use std::io::IsTerminal;

/// The width of the text, in columns.
const WIDTH: usize = 120;

/// Colour is used only on a terminal, and only if the user does not refuse it.
pub(super) fn wants_colour() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|value| value != "dumb")
}

/// What `--json` prints.
pub(super) fn json(findings: &[Finding], verdict: &Verdict) -> String {
    let report = json!({
        "format": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "ok": verdict.ok,
        "verdict": verdict.text,
        "findings": findings,
    });
    format!("{report:#}\n")
}

/// An aligned list under headings, with the verdict as the last line.
pub(super) fn text(findings: &[Finding], verdict: &Verdict, colour: bool) -> String {
    let width = findings.iter().map(|one| one.label.chars().count()).max().unwrap_or(0).min(28);
    let indent = 2 + 8 + 1 + width + 2;
    let mut text = String::new();
    let mut section = None;
    for finding in findings {
        if section != Some(&finding.section) {
            let gap = if section.is_some() { "\n" } else { "" };
            let _ = writeln!(text, "{gap}{}", painted(&finding.section, "1", colour));
            section = Some(&finding.section);
        }
        let room = WIDTH.saturating_sub(indent);
        let mut lines = finding.text.lines().flat_map(|line| wrapped(line, room));
        let first = lines.next().unwrap_or_default();
        let line = format!("  {} {:width$}  {first}", mark(finding.state, colour), finding.label);
        let _ = writeln!(text, "{}", line.trim_end());
        for line in lines {
            let _ = writeln!(text, "{:indent$}{line}", "");
        }
        let remedy = finding.remedy.iter().flat_map(|remedy| remedy.lines());
        for (index, line) in remedy.flat_map(|line| wrapped(line, room - 3)).enumerate() {
            let arrow = if index == 0 { "-> " } else { "   " };
            let _ = writeln!(text, "{:indent$}{arrow}{line}", "");
        }
    }
    let verdict_text = wrapped(&verdict.text, WIDTH - "missing ".len()).join("\n        ");
    let _ = writeln!(text, "\n{}{verdict_text}", mark(verdict.state, colour));
    text
}

/// Breaks a line between words into parts that fit into `room` columns if possible.
fn wrapped(line: &str, room: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut length = 0;
    for word in line.split(' ') {
        let more = word.chars().count();
        if length > 0 && length + 1 + more > room {
            parts.push(String::new());
            length = 0;
        }
        if let Some(part) = parts.last_mut() {
            if length > 0 {
                part.push(' ');
                length += 1;
            }
            part.push_str(word);
            length += more;
        }
    }
    parts
}

/// The mark, padded to its column.
fn mark(state: FindingState, colour: bool) -> String {
    let (word, code) = match state {
        FindingState::Ok => ("ok", "32"),
        FindingState::Missing => ("missing", "1;31"),
        FindingState::Note => ("note", "33"),
    };
    painted(&format!("{word:8}"), code, colour)
}

fn painted(text: &str, code: &str, colour: bool) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_section(section: &str, finding: Finding) -> Finding {
        Finding { section: section.to_owned(), ..finding }
    }

    fn sample() -> (Vec<Finding>, Verdict) {
        let findings = vec![
            in_section("CUDA driver", Finding::missing("a", "libcuda", "not found; tried\nx: no").remedy("install it")),
            in_section("CUDA driver", Finding::note("b", "release", "unknown")),
            in_section("Device 0", Finding::ok("c", "memory", "80 GiB").value(80u64 << 30)),
        ];
        (findings, Verdict { ok: false, state: FindingState::Missing, text: "does not work".to_owned() })
    }

    #[test]
    fn the_list_is_aligned_and_plain() {
        let (findings, verdict) = sample();
        let expected = "\
CUDA driver
  missing  libcuda  not found; tried
                    x: no
                    -> install it
  note     release  unknown

Device 0
  ok       memory   80 GiB

missing does not work
";
        assert_eq!(text(&findings, &verdict, false), expected);
        let coloured = text(&findings, &verdict, true);
        assert!(coloured.contains("\x1b[1;31mmissing \x1b[0m"), "{coloured}");
    }

    #[test]
    fn long_lines_are_divided_between_words_and_nothing_is_lost() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("/a/word/without/end is whole", 4), ["/a/word/without/end", "is", "whole"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn the_json_has_the_promised_fields() {
        let (findings, verdict) = sample();
        let report: serde_json::Value = serde_json::from_str(&json(&findings, &verdict)).unwrap();
        assert_eq!((&report["format"], &report["ok"]), (&1.into(), &false.into()));
        let finding = &report["findings"][2];
        assert_eq!((&finding["state"], &finding["value"]), (&"ok".into(), &(80u64 << 30).into()));
        assert!(report["findings"][0]["remedy"] == "install it" && report["findings"][1]["remedy"].is_null());
    }
}
