//! `cuda-mem bench remote`: memory of the device goes to another program and back, beside a plain loop over a socket.

mod rounds;

use super::{finish, open};
use crate::cli::BenchRemoteOptions;
use cuda_mem::trace::Latency;
use rounds::{Ours, Outcome, Plain, Way};
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    software: bool,
    device_name: String,
    driver: String,
    cuda: Option<String>,
    transport: String,
    /// The processes that want to run, of the last minute.
    load: Option<f64>,
    rows: Vec<Row>,
}

/// A size: times in nanoseconds for a message and its answer.
#[derive(Debug, Serialize)]
struct Row {
    bytes: usize,
    rounds: u64,
    ours_ns: u64,
    ours_p99_ns: u64,
    plain_ns: u64,
    plain_p99_ns: u64,
}

/// Runs the command. Exit status 0: measured; 1: something failed.
pub(crate) fn run(options: &BenchRemoteOptions) -> ExitCode {
    finish(
        "bench remote",
        &options.run,
        try_run(options).map(|report| (report, true)).map_err(|error| -> Box<dyn Error> { error }),
    )
}

fn try_run(options: &BenchRemoteOptions) -> Outcome<String> {
    let context = open(&options.run)?;
    let sizes: &[usize] = if options.run.brief { &[1 << 10, 1 << 20] } else { &[1 << 10, 64 << 10, 1 << 20, 16 << 20] };
    let mut rows = Vec::new();
    let mut transport = String::new();
    for &bytes in sizes {
        let (mut ours, mut plain) = (Ours::new(&context, bytes)?, Plain::new(&context, bytes)?);
        transport = ours.transport();
        let rounds = if options.run.brief { 3 } else { (2 << 30) / (bytes + (1 << 20)) }.min(2000);
        let (mut of_ours, mut of_plain) = (Vec::new(), Vec::new());
        // In turns, so that other work of the machine disturbs both alike.
        for turn in 0..5 {
            for (way, times) in [(&mut ours as &mut dyn Way, &mut of_ours), (&mut plain, &mut of_plain)] {
                // The first rounds of a turn meet cold caches.
                let measured = way.rounds(rounds.div_ceil(5).max(2), turn)?;
                times.extend_from_slice(&measured[1..]);
            }
        }
        ours.close()?;
        let (of_ours, of_plain) = (Latency::of(&mut of_ours), Latency::of(&mut of_plain));
        rows.push(Row {
            bytes,
            rounds: of_ours.count,
            ours_ns: of_ours.p50_ns,
            ours_p99_ns: of_ours.p99_ns,
            plain_ns: of_plain.p50_ns,
            plain_p99_ns: of_plain.p99_ns,
        });
    }
    if let Some(error) = context.take_drop_errors().errors.into_iter().next() {
        return Err(error.into());
    }
    let cuda = context.driver().provider();
    let report = Report {
        ok: true,
        software: context.driver().is_software(),
        device_name: context.device().name()?,
        driver: cuda.library.to_string(),
        cuda: cuda.version.map(|version| version.to_string()),
        transport,
        load: load(),
        rows,
    };
    Ok(if options.run.json { serde_json::to_string_pretty(&report)? + "\n" } else { text(&report) })
}

/// The load average of the last minute, where the system tells it.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn text(report: &Report) -> String {
    let cuda = report.cuda.as_deref().unwrap_or("of an unknown release");
    let mut text = format!("{}, driver {}, CUDA {cuda}\n{}\n", report.device_name, report.driver, report.transport);
    text += "device memory to another program and back, in microseconds: medians, and the 99th percentile\n";
    let _ = writeln!(text, "\n{:<10}{:>10}{:>10}{:>12}{:>10}{:>8}", "", "ours", "p99", "plain loop", "p99", "ratio");
    for row in &report.rows {
        let micros = |time: u64| format!("{:.1}", time as f64 / 1000.0);
        let _ = writeln!(
            text,
            "{:<10}{:>10}{:>10}{:>12}{:>10}{:>8.2}",
            crate::bytes::size(row.bytes as u64),
            micros(row.ours_ns),
            micros(row.ours_p99_ns),
            micros(row.plain_ns),
            micros(row.plain_p99_ns),
            row.ours_ns as f64 / row.plain_ns as f64
        );
    }
    text += "\nThe plain loop copies to page-locked memory, waits, writes a TCP socket, and the other way round: without protection.\n";
    if let Some(load) = report.load {
        let _ = writeln!(text, "Load of the machine: {load}.");
    }
    if report.software {
        text += "No GPU was used: copies are copies of the CPU.\n";
    }
    text
}
