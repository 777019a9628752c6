//! The child process in which the libraries are tried.

use super::finding::{Finding, Message};
use crate::output;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A driver that starts many GPUs takes seconds. A driver that takes this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the process may take to end after its last message.
const FAREWELL: Duration = Duration::from_secs(10);

/// Prints a message for the parent, on its own line whatever a driver has printed before.
pub(super) fn send(message: &Message) {
    if let Ok(line) = serde_json::to_string(message) {
        // A failed write needs no report: the parent notices this process's end.
        let _ = output::print(&format!("\n{line}\n"));
    }
}

/// Lets a child process try everything. If no child can be started, this process does it.
pub(super) fn findings(rates: bool) -> Vec<Finding> {
    let command = std::env::current_exe().map(|program| {
        let mut command = Command::new(program);
        command.args(["doctor", "--probe"]).args(rates.then_some("--rates"));
        command
    });
    match command.and_then(|mut command| collect(&mut command, PATIENCE)) {
        Ok(findings) => findings,
        Err(_) => {
            let mut findings = Vec::new();
            super::probe(rates, &mut |message| {
                if let Message::Finding(finding) = message {
                    findings.push(finding);
                }
            });
            findings
        }
    }
}

/// Runs the command and collects its findings until it ends, crashes or hangs.
fn collect(command: &mut Command, patience: Duration) -> std::io::Result<Vec<Finding>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (sender, messages) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        // The thread ends after the child's last line. If the child hangs, the thread ends with this process.
        std::thread::spawn(move || {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                // Drivers and layers print too, so ignore lines that are not messages.
                if let Ok(message) = serde_json::from_slice::<Message>(&line)
                    && sender.send(message).is_err()
                {
                    break;
                }
            }
        });
    } else {
        drop(sender);
    }

    let (mut findings, mut step, mut section) = (Vec::new(), "starting".to_owned(), "Probe".to_owned());
    loop {
        match messages.recv_timeout(patience) {
            Ok(Message::Finding(finding)) => findings.push(finding),
            Ok(Message::Step { section: of, what }) => (section, step) = (of, what),
            Ok(Message::End) => {
                if let Some(status) = end(&mut child, FAREWELL.min(patience))
                    && !status.success()
                {
                    findings.push(broke_off("Probe", "at the end of the process", &status));
                }
                return Ok(findings);
            }
            Err(RecvTimeoutError::Timeout) => {
                // Do not wait for the child: a process that hangs in the kernel would hang this one.
                let _ = child.kill();
                findings.push(hung(&section, &step, patience));
                return Ok(findings);
            }
            Err(RecvTimeoutError::Disconnected) => {
                findings.push(match end(&mut child, FAREWELL.min(patience)) {
                    Some(status) => broke_off(&section, &step, &status),
                    None => hung(&section, &step, patience),
                });
                return Ok(findings);
            }
        }
    }
}

/// Waits a limited time for the child's end.
fn end(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < patience => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                return None;
            }
        }
    }
}

const REMEDY: &str = "this is a bug in a driver, in a Vulkan layer or in this command: try a newer driver, disable layers \
                      (VK_LOADER_LAYERS_DISABLE=~all~), and report it with this text";

fn broke_off(section: &str, step: &str, status: &ExitStatus) -> Finding {
    let how = match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("status {}", code.unwrap_or(-1)),
    };
    let text = format!("the process ended with {how} while {step}");
    let finding = Finding::missing("probe.crash", "crash", text).value(step).remedy(REMEDY);
    Finding { section: section.to_owned(), ..finding }
}

fn hung(section: &str, step: &str, patience: Duration) -> Finding {
    let text = format!("the process sent nothing for {} s while {step}", patience.as_secs());
    let finding = Finding::missing("probe.hang", "hang", text).value(step).remedy(REMEDY);
    Finding { section: section.to_owned(), ..finding }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> Vec<Finding> {
        collect(Command::new("sh").args(["-c", script]), patience).unwrap()
    }

    #[test]
    fn findings_before_a_crash_are_kept_and_the_crash_is_told() {
        let finding = Finding::ok("a", "b", "c");
        let script = format!(
            "echo noise; echo '{}'; echo '{}'; kill -SEGV $$",
            serde_json::to_string(&Message::Finding(finding.clone())).unwrap(),
            serde_json::to_string(&Message::Step { section: "Vulkan".to_owned(), what: "opening Vulkan".to_owned() })
                .unwrap(),
        );
        let found = shell(&script, Duration::from_secs(20));
        assert_eq!((found.len(), &found[0]), (2, &finding));
        assert_eq!(found[1].section, "Vulkan");
        assert_eq!(found[1].text, "the process ended with signal 11 while opening Vulkan");
    }

    #[test]
    fn a_hang_ends_and_is_told() {
        let found = shell("exec sleep 30", Duration::from_millis(200));
        assert_eq!(found.len(), 1);
        assert!(found[0].id == "probe.hang" && found[0].text.contains("while starting"), "{found:?}");
    }

    #[test]
    fn a_good_end_adds_nothing() {
        let end = serde_json::to_string(&Message::End).unwrap();
        assert_eq!(shell(&format!("echo '{end}'"), Duration::from_secs(20)), []);
        assert_eq!(shell(&format!("echo '{end}'; exit 3"), Duration::from_secs(20))[0].id, "probe.crash");
    }
}
