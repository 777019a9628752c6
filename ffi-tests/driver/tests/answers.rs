//! Makes the same calls on every driver, and compares the answers with a real driver's recorded answers.
//!
//! `answers --record FILE [--repeat N] [NAME ...]` records the driver that the environment names, or the system's
//! driver: all cases, or those whose names contain one of the words. `answers --differences FILE` writes the software
//! GPU's different answers, with the known reasons. `CUDA_MEM_RECORD=FILE` is the same as `--record FILE`.

use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};
use testkit::cases::compare::{self, Differences, Report};
use testkit::cases::recording::{self, Machine, Recording};
use testkit::cases::runner::{self, Outcome, Ran};
use testkit::cases::{Case, How, TOPICS, child};

use cuda_mem::cuda_sys::{Driver, Functions};

fn main() -> ExitCode {
    if let Some(code) = child::serve() {
        return code;
    }
    match parent() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parent() -> Result<ExitCode, String> {
    let subject = Subject::find()?;
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |name: &str| {
        let place = words.iter().position(|word| word == name)?;
        words.remove(place);
        (place < words.len()).then(|| words.remove(place))
    };
    let record = option("--record").or_else(|| std::env::var("CUDA_MEM_RECORD").ok());
    let repeat = option("--repeat").and_then(|count| count.parse().ok()).unwrap_or(1);
    if let Some(file) = record {
        return write_recording(&subject, &file, repeat, &words);
    }
    let suite = Arc::new(Suite::new(subject)?);
    match option("--differences") {
        Some(file) => write_differences(&suite, &file),
        None => Ok(run_tests(&suite)),
    }
}

/// The driver under test.
struct Subject {
    machine: Machine,
    library: String,
    software: bool,
}

impl Subject {
    fn find() -> Result<Self, String> {
        let driver = child::driver()?;
        let provider = driver.provider();
        let library = provider.library.to_string();
        let cuda = provider.version.map_or_else(|| "unknown".to_owned(), |release| release.to_string());
        let software = library.contains("softgpu");
        let (mut device, mut devices) = ("unknown".to_owned(), 1);
        if !software {
            (device, devices) = describe(&driver)?;
        }
        let driver = if software { String::new() } else { release() };
        let machine = Machine { driver, cuda, device, devices, date: date() };
        Ok(Self { machine, library, software })
    }

    fn describe(&self) -> String {
        let Machine { driver, cuda, device, devices, .. } = &self.machine;
        format!("CUDA {cuda} of {}, driver {driver:?}, {devices} x {device}", self.library)
    }
}

/// The first device's name, and the number of devices. The process that makes these calls runs no case.
fn describe(driver: &Driver) -> Result<(String, usize), String> {
    let (mut name, mut count) = ([0_u8; 256], 0);
    // SAFETY: results are writable, and the length is the array's.
    let codes = unsafe {
        [
            driver.cuInit(0),
            driver.cuDeviceGetCount(&mut count),
            driver.cuDeviceGetName(name.as_mut_ptr().cast(), 255, 0),
        ]
    };
    if codes.iter().any(|code| !matches!(code, Ok(code) if code.0 == 0)) {
        return Err(format!("the driver does not start: {codes:?}"));
    }
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    Ok((String::from_utf8_lossy(&name[..end]).into_owned(), usize::try_from(count).unwrap_or(0)))
}

/// The kernel driver's release.
fn release() -> String {
    if let Ok(text) = std::fs::read_to_string("/sys/module/nvidia/version") {
        return text.trim().to_owned();
    }
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let number = |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.split_whitespace().find(number).unwrap_or("unknown").to_owned()
}

/// The date in UTC. If the clock is wrong, `CUDA_MEM_RECORD_DATE` can set another date.
fn date() -> String {
    if let Ok(date) = std::env::var("CUDA_MEM_RECORD_DATE") {
        return date;
    }
    // SAFETY: plain structures; the call fills the second one from the first.
    let (year, month, day) = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&now, &mut parts);
        (parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday)
    };
    format!("{year:04}-{month:02}-{day:02}")
}

/// The suite over one driver. A topic runs when a test first needs it.
struct Suite {
    subject: Subject,
    recording: Recording,
    known: Differences,
    outcomes: Vec<OnceLock<Result<Outcome, String>>>,
    tally: Mutex<Tally>,
}

/// The figures of the summary.
#[derive(Default)]
struct Tally {
    cases: usize,
    answers: usize,
    unrecorded: usize,
    unrecorded_cases: usize,
    differing: usize,
    known: usize,
    called: BTreeSet<String>,
}

impl Suite {
    fn new(subject: Subject) -> Result<Self, String> {
        // A real driver is compared with recordings only. The list contains differences of the software GPU.
        let known = if subject.software { compare::differences(recording::DIFFERENCES)? } else { Differences::new() };
        let outcomes = TOPICS.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { subject, recording: Recording::checked_in()?, known, outcomes, tally: Mutex::default() })
    }

    fn topic(&self, index: usize) -> &Result<Outcome, String> {
        let (topic, cases) = TOPICS[index];
        let Subject { machine, software, .. } = &self.subject;
        self.outcomes[index].get_or_init(|| runner::run(topic, cases, machine.devices, *software))
    }

    fn case(&self, index: usize, case: &Case) -> Result<Option<(&Ran, Report)>, String> {
        let outcome = self.topic(index).as_ref().map_err(Clone::clone)?;
        let name = format!("{}::{}", TOPICS[index].0, case.name);
        let Some(ran) = outcome.cases.iter().find(|ran| ran.name == name) else { return Ok(None) };
        let report = compare::case(ran, &self.recording, &self.known);
        if let Ok(mut tally) = self.tally.lock() {
            tally.cases += 1;
            tally.answers += ran.answers.len();
            tally.unrecorded += report.unrecorded;
            tally.unrecorded_cases += usize::from(report.unrecorded > 0);
            tally.differing += report.differing.len();
            tally.known += report.known;
            tally.called.extend(outcome.called.iter().cloned());
        }
        Ok(Some((ran, report)))
    }

    fn test(&self, index: usize, case: &Case) -> Result<(), Failed> {
        let name = format!("{}::{}", TOPICS[index].0, case.name);
        let Some((_, report)) = self.case(index, case)? else {
            println!("skipped: {name} needs two devices");
            return Ok(());
        };
        if report.failures.is_empty() { Ok(()) } else { Err(report.failures.join("\n").into()) }
    }
}

fn run_tests(suite: &Arc<Suite>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !suite.subject.software {
        // Run one test at a time on a GPU, so that a case's answers about memory do not depend on another case.
        arguments.test_threads = Some(1);
    }
    println!("{}", suite.subject.describe());
    let mut trials = Vec::new();
    for (index, (topic, cases)) in TOPICS.iter().enumerate() {
        for case in *cases {
            let suite = Arc::clone(suite);
            trials.push(Trial::test(format!("{topic}::{}", case.name), move || suite.test(index, case)));
        }
    }
    for (case, label) in suite.known.keys() {
        if testkit::cases::find(case).is_none() {
            let message = format!("the known differences name {case} ({label}), which is not a case");
            trials.push(Trial::test(format!("differences::{case}"), move || Err(Failed::from(message))));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        summary(suite);
    }
    if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn summary(suite: &Suite) {
    let Ok(tally) = suite.tally.lock() else { return };
    let Machine { driver, device, date, .. } = &suite.recording.machine;
    if !suite.recording.cases.is_empty() {
        println!("compared with {device}, driver {driver}, recorded {date}");
    } else {
        println!("no recording is checked in yet, so the answers are compared with the cases' expectations");
    }
    println!("{} cases, {} answers", tally.cases, tally.answers);
    if tally.unrecorded_cases > 0 {
        println!("skipped: {} cases are not recorded yet ({} answers)", tally.unrecorded_cases, tally.unrecorded);
    }
    println!("{} answers differ, {} of them are known", tally.differing, tally.known);
    coverage(&tally.called);
}

fn coverage(called: &BTreeSet<String>) {
    let names: Vec<_> = Functions::SYMBOLS.iter().map(|symbol| symbol.name.to_string_lossy()).collect();
    let left: Vec<_> = names.iter().filter(|name| !called.contains(&***name)).map(|name| &**name).collect();
    println!("{} of {} functions called; not: {}", names.len() - left.len(), names.len(), left.join(" "));
}

fn write_recording(subject: &Subject, file: &str, repeat: usize, words: &[String]) -> Result<ExitCode, String> {
    println!("recording {}", subject.describe());
    let (mut runs, mut called) = (Vec::new(), BTreeSet::new());
    let mut contradictions = 0;
    for round in 0..repeat.max(1) {
        let mut all = Vec::new();
        for (topic, cases) in TOPICS {
            let wanted = |case: &&Case| {
                let name = format!("{topic}::{}", case.name);
                words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
            };
            let cases: Vec<Case> = cases.iter().filter(wanted).copied().collect();
            let start = std::time::Instant::now();
            let outcome = runner::run(topic, &cases, subject.machine.devices, subject.software)?;
            let answers: usize = outcome.cases.iter().map(|ran| ran.answers.len()).sum();
            println!("{topic}: {} cases, {answers} answers, {:.1?}", outcome.cases.len(), start.elapsed());
            for ran in outcome.cases.iter().filter(|_| round == 0) {
                contradictions += contradicting(ran);
            }
            called.extend(outcome.called);
            all.extend(outcome.cases);
        }
        runs.push(all);
    }
    let text = recording::write(&subject.machine, &runs);
    std::fs::write(file, &text).map_err(|error| format!("cannot write {file}: {error}"))?;
    let answers: usize = runs[0].iter().map(|ran| ran.answers.len()).sum();
    let varying: usize =
        Recording::parse(&text)?.cases.values().flat_map(|c| c.values()).filter(|v| v.len() > 1).count();
    println!("{} cases, {answers} answers in {file}; {varying} varied over {} runs", runs[0].len(), runs.len());
    println!("{contradictions} answers contradict the cases' expectations");
    coverage(&called);
    let two = TOPICS.iter().flat_map(|(_, cases)| *cases).filter(|case| case.how == How::Two).count();
    if subject.machine.devices < 2 && !subject.software {
        println!("skipped: {two} cases need two devices");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints answers that contradict a case's expectation. Returns their number.
fn contradicting(ran: &Ran) -> usize {
    let mut count = 0;
    for answer in &ran.answers {
        if let Some(expected) = answer.expected.as_ref().filter(|expected| **expected != answer.value) {
            println!("contradiction: {}: {}: {}, expected {expected}", ran.name, answer.label, answer.value);
            count += 1;
        }
        if answer.label == "stopped" || answer.label == "ends" {
            println!("broken off: {}: {}: {}", ran.name, answer.label, answer.value);
        }
    }
    count
}

fn write_differences(suite: &Suite, file: &str) -> Result<ExitCode, String> {
    let mut entries = Vec::new();
    for (index, (topic, cases)) in TOPICS.iter().enumerate() {
        for case in *cases {
            let name = format!("{topic}::{}", case.name);
            for (label, here, want) in suite.case(index, case)?.map(|(_, report)| report.differing).unwrap_or_default()
            {
                let known = suite.known.get(&(name.clone(), label.clone()));
                let reason = known.filter(|known| known.here == here).map_or("?", |known| &known.reason);
                let q = |text: &str| serde_json::Value::from(text).to_string();
                entries.push(format!(
                    "  {{\n    \"case\": {},\n    \"label\": {},\n    \"real\": {},\n    \"softgpu\": {},\n    \
                     \"reason\": {}\n  }}",
                    q(&name),
                    q(&label),
                    q(&want),
                    q(&here),
                    q(reason)
                ));
            }
        }
    }
    std::fs::write(file, format!("[\n{}\n]\n", entries.join(",\n"))).map_err(|error| error.to_string())?;
    println!("{} differences in {file}; give each \"?\" a reason", entries.len());
    summary(suite);
    Ok(ExitCode::SUCCESS)
}
