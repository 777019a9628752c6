//! Starts the processes that run cases, and reads their answers.

use super::{Case, How};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a case may be silent.
const PATIENCE: Duration = Duration::from_secs(20);

/// One answer of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The label.
    pub label: String,
    /// The answer.
    pub value: String,
    /// The answer that the case expects, if it states one.
    pub expected: Option<String>,
}

/// A case that ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// `topic::name`.
    pub name: String,
    /// The recorded answers, in order.
    pub answers: Vec<Answer>,
}

impl Ran {
    /// Whether an answer ended the case early.
    pub fn broken_off(&self) -> bool {
        self.answers.iter().any(|answer| answer.label == "stopped" || answer.label == "ends")
    }
}

/// The answers of one or several processes.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The cases that ran.
    pub cases: Vec<Ran>,
    /// The functions that they called.
    pub called: BTreeSet<String>,
}

/// How a process ended, in the form that answers show.
pub fn ending(status: ExitStatus) -> String {
    let name = |signal| match signal {
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGFPE => "SIGFPE".to_owned(),
        libc::SIGTRAP => "SIGTRAP".to_owned(),
        libc::SIGALRM => "SIGALRM".to_owned(),
        other => format!("signal {other}"),
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("crashed: {}", name(signal)),
        (None, Some(0)) => "exit status 0, too early".to_owned(),
        (None, code) => format!("crashed: exit status {}", code.unwrap_or(-1)),
    }
}

/// Runs a topic's cases for which the machine has enough devices.
///
/// # Errors
///
/// A process does not start, or prints nothing at all.
pub fn run(topic: &str, cases: &[Case], devices: usize, software: bool) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let full = |case: &Case| format!("{topic}::{}", case.name);
    let fits = |case: &&Case| case.how != How::Two || devices > 1 || software;
    let (two, mut shared): (Vec<&Case>, Vec<&Case>) = cases.iter().filter(fits).partition(|case| case.how == How::Two);
    shared.retain(|case| case.how == How::Shared);
    for case in cases.iter().filter(|case| matches!(case.how, How::Alone | How::Bare)) {
        processes(vec![full(case)], 1, &mut outcome)?;
    }
    processes(shared.into_iter().map(full).collect(), 1, &mut outcome)?;
    processes(two.into_iter().map(full).collect(), 2, &mut outcome)?;
    let place = |name: &str| cases.iter().position(|case| full(case) == name);
    outcome.cases.sort_by_key(|ran| place(&ran.name));
    Ok(outcome)
}

/// Runs cases in one process. If it ends too early, another process runs the remaining cases.
fn processes(mut names: Vec<String>, devices: usize, outcome: &mut Outcome) -> Result<(), String> {
    while !names.is_empty() {
        let before = outcome.cases.len();
        process(&names, devices, outcome)?;
        let ran: Vec<&str> = outcome.cases[before..].iter().map(|ran| ran.name.as_str()).collect();
        names.retain(|name| !ran.contains(&name.as_str()));
        if ran.is_empty() {
            return Err(format!("the process for {} began none of them", names.join(", ")));
        }
    }
    Ok(())
}

fn process(names: &[String], devices: usize, outcome: &mut Outcome) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start a process for cases: {error}");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("--cases").args(names).stdin(Stdio::null()).stdout(Stdio::piped());
    // Use the software GPU's defaults, whatever the environment says.
    for (variable, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"SOFTGPU_")) {
        command.env_remove(variable);
    }
    command.env("SOFTGPU_DEVICES", devices.to_string());
    let mut child = command.spawn().map_err(failed)?;
    let (sender, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
    }
    let mut open = false;
    let mut deadline = Instant::now() + PATIENCE;
    let hung = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                read(&line, outcome, &mut open);
                if line.starts_with("@begin") {
                    deadline = Instant::now() + PATIENCE;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if hung {
        // This kills only the process that was started above.
        child.kill().map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    if open && let Some(ran) = outcome.cases.last_mut() {
        let value = if hung { "hung".to_owned() } else { ending(status) };
        ran.answers.push(Answer { label: "ends".to_owned(), value, expected: None });
    }
    Ok(())
}

fn read(line: &str, outcome: &mut Outcome, open: &mut bool) {
    if let Some(name) = line.strip_prefix("@begin ") {
        outcome.cases.push(Ran { name: name.to_owned(), answers: Vec::new() });
        *open = true;
    } else if line.starts_with("@end ") {
        *open = false;
    } else if let Some(name) = line.strip_prefix("@call ") {
        outcome.called.insert(name.to_owned());
    } else if let Some(text) = line.strip_prefix("@answer ") {
        let parsed = serde_json::from_str::<(String, String, Option<String>)>(text);
        if let (Ok((label, value, expected)), Some(ran)) = (parsed, outcome.cases.last_mut()) {
            ran.answers.push(Answer { label, value, expected });
        }
    }
}
