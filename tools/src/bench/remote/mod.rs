//! `cuda-mem bench remote`: memory of the device goes to another program and back, beside a plain loop over a socket.

mod rounds;

use super::machine::{Machine, check_drops, render};
use super::{finish, open};
use crate::cli::BenchRemoteOptions;
use cuda_mem::trace::Latency;
use cuda_mem_remote::Engine;
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
    #[serde(flatten)]
    machine: Machine,
    transports: Vec<String>,
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
    /// Over UCX, where it is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    ucx_ns: Option<u64>,
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
    let ucx = ucx_sys::Ucp::load().is_ok().then(|| Engine::UcxTrustedNetwork { interface: "lo".to_owned() });
    let (mut rows, mut transports) = (Vec::new(), Vec::new());
    for &bytes in sizes {
        let mut ours = Ours::new(&context, Engine::Sockets, bytes)?;
        let mut over_ucx = ucx.clone().map(|engine| Ours::new(&context, engine, bytes)).transpose()?;
        let mut plain = Plain::new(&context, bytes)?;
        transports = [Some(&ours), over_ucx.as_ref()].into_iter().flatten().map(Ours::transport).collect();
        let rounds = if options.run.brief { 3 } else { (2 << 30) / (bytes + (1 << 20)) }.min(2000);
        let mut times = [const { Vec::new() }; 3];
        // In turns, so that other work of the machine disturbs all alike.
        for turn in 0..5 {
            let mut ways = [Some(&mut ours as &mut dyn Way), Some(&mut plain), None];
            ways[2] = over_ucx.as_mut().map(|way| way as &mut dyn Way);
            for (way, times) in ways.into_iter().zip(&mut times) {
                if let Some(way) = way {
                    // The first rounds of a turn meet cold caches.
                    let measured = way.rounds(rounds.div_ceil(5).max(2), turn)?;
                    times.extend_from_slice(&measured[1..]);
                }
            }
        }
        ours.close()?;
        over_ucx.map_or(Ok(()), Ours::close)?;
        let [ours, plain, ucx] = times.each_mut().map(|times| (!times.is_empty()).then(|| Latency::of(times)));
        let (Some(ours), Some(plain)) = (ours, plain) else { return Err("nothing was measured".into()) };
        rows.push(Row {
            bytes,
            rounds: ours.count,
            ours_ns: ours.p50_ns,
            ours_p99_ns: ours.p99_ns,
            ucx_ns: ucx.map(|ucx| ucx.p50_ns),
            plain_ns: plain.p50_ns,
            plain_p99_ns: plain.p99_ns,
        });
    }
    check_drops(&context)?;
    let report = Report { ok: true, machine: Machine::of(&context)?, transports, load: load(), rows };
    Ok(render(&options.run, &report, text)?)
}

/// The load average of the last minute, where the system tells it.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn text(report: &Report) -> String {
    let mut text = report.machine.headline() + "\n";
    report.transports.iter().for_each(|transport| text += &format!("{transport}\n"));
    text += "device memory to another program and back, in microseconds: medians, and the 99th percentile\n";
    let _ = writeln!(
        text,
        "\n{:<10}{:>10}{:>10}{:>12}{:>10}{:>8}{:>12}",
        "", "ours", "p99", "plain loop", "p99", "ratio", "over UCX"
    );
    for row in &report.rows {
        let micros = |time: u64| format!("{:.1}", time as f64 / 1000.0);
        let _ = writeln!(
            text,
            "{:<10}{:>10}{:>10}{:>12}{:>10}{:>8.2}{:>12}",
            crate::bytes::size(row.bytes as u64),
            micros(row.ours_ns),
            micros(row.ours_p99_ns),
            micros(row.plain_ns),
            micros(row.plain_p99_ns),
            row.ours_ns as f64 / row.plain_ns as f64,
            row.ucx_ns.map_or_else(|| "not there".to_owned(), micros)
        );
    }
    text += "\nThe plain loop copies to page-locked memory, waits, writes a TCP socket, and the other way round: without protection.\n";
    if let Some(load) = report.load {
        let _ = writeln!(text, "Load of the machine: {load}.");
    }
    if report.machine.software {
        text += "No GPU was used: copies are copies of the CPU.\n";
    }
    text
}
