//! How costs grow: with live blocks, streams, threads, free memory and idle streams.
//!
//! `growth` measures our pool, our pool without thread caches and the driver's pool, over the driver that the
//! environment names, and prints a CSV table to standard output; `scripts/growth-picture` draws it. The goals and
//! whether they are met go to standard error. `--brief` is a short run that only shows that it works. Names of cases
//! (`blocks`, `streams`,
//! `threads`, `holes`, `idle-streams`) or of pools (`pool`, `pool without thread caches`, `driver`) run only these, and
//! numbers run only these points.
//!
//! Blocks have 256 to 1024 bytes, so that ten million of them fit into 7 GiB.

mod cases;
mod goals;
mod memory;
mod subject;

use cases::{Limits, Value};
use cuda_mem::{Context, Driver, Error};
use std::process::ExitCode;
use std::time::Duration;
use subject::{SUBJECTS, Subject};

type Measure = fn(Subject, &Context, usize, Limits) -> Result<Option<Vec<Value>>, Error>;

/// A case: its name, how it is measured, and at which numbers.
struct Case {
    name: &'static str,
    measure: Measure,
    points: &'static [usize],
    brief: &'static [usize],
}

const CASES: &[Case] = &[
    Case {
        name: "blocks",
        measure: cases::blocks,
        points: &[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
        brief: &[1_000, 4_000],
    },
    Case { name: "streams", measure: cases::streams, points: &[1, 4, 16, 64, 256, 1024], brief: &[1, 16] },
    Case { name: "threads", measure: cases::threads, points: &[1, 2, 4, 16, 64, 256], brief: &[1, 2] },
    Case { name: "holes", measure: cases::holes, points: &[0, 1_000, 10_000, 100_000, 1_000_000], brief: &[0, 100] },
    Case { name: "idle-streams", measure: cases::idle_streams, points: &[0, 4, 16, 64, 256, 1024], brief: &[0, 16] },
];

/// A line of the table.
struct Row {
    case: &'static str,
    subject: Subject,
    count: usize,
    measure: &'static str,
    value: f64,
}

fn main() -> ExitCode {
    match run() {
        Ok(rows) => {
            goals::print(&rows);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Vec<Row>, Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let brief = arguments.iter().any(|argument| argument == "--brief");
    let names = |all: &[&'static str]| -> Vec<&'static str> {
        let named: Vec<_> =
            all.iter().copied().filter(|name| arguments.iter().any(|argument| argument == name)).collect();
        if named.is_empty() { all.to_vec() } else { named }
    };
    let cases = names(&CASES.iter().map(|case| case.name).collect::<Vec<_>>());
    let subjects = names(&SUBJECTS.map(Subject::name));
    let limits = if brief {
        Limits { replace: Duration::from_millis(2), fill: Duration::from_secs(1) }
    } else {
        Limits { replace: Duration::from_millis(300), fill: Duration::from_secs(10) }
    };
    let points: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let driver = Driver::load()?;
    let context = driver.device(0)?.primary_context()?;
    // Programs usually make the context current on the working thread.
    let _current = context.bind()?;
    let provider = driver.provider();
    let release = provider.version.map_or_else(|| "unknown".to_owned(), |release| release.to_string());
    eprintln!("CUDA {release} of {}, {}", provider.library, context.device().name()?);
    println!("case,subject,count,measure,value");
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|case| cases.contains(&case.name)) {
        for subject in SUBJECTS.into_iter().filter(|subject| subjects.contains(&subject.name())) {
            let usual = if brief { case.brief } else { case.points };
            for &count in if points.is_empty() { usual } else { &points } {
                let values = match (case.measure)(subject, &context, count, limits) {
                    Ok(Some(values)) => values,
                    Ok(None) => {
                        eprintln!("{}, {count}, {}: given up after {:?}", case.name, subject.name(), limits.fill);
                        break;
                    }
                    // The peer goes as far as it can.
                    Err(error) if subject == Subject::Driver => {
                        eprintln!("{}, {count}, {}: {error}", case.name, subject.name());
                        break;
                    }
                    Err(error) => return Err(error),
                };
                for (measure, value) in values {
                    println!("{},{},{count},\"{measure}\",{value:.1}", case.name, subject.name());
                    rows.push(Row { case: case.name, subject, count, measure, value });
                }
            }
        }
    }
    Ok(rows)
}
