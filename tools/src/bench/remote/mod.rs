//! `cuda-mem bench remote`: memory of the device goes to another program and back, beside other ways.
//!
//! Each way has two processes, because UCX has one configuration for a process. This one tells them what to do.

mod direct;
mod frames;
mod ipc;
mod perftest;
mod plain;
mod program;
mod report;
mod side;

use super::machine::{Machine, render};
use super::{finish, open};
use crate::cli::{BenchRemoteOptions, BenchRun};
use crate::doctor::mapped_file;
use crate::provider::open_context;
use cuda_mem_remote::Key;
use perftest::Perftest;
use program::{Carrier, Programs, Rounds};
use report::{Report, Row};
use side::Outcome;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// How many times each way has its turn.
const TURNS: usize = 5;

/// A way that is measured.
#[derive(Debug)]
enum Way {
    Programs(Programs),
    Perftest(Perftest),
}

impl Way {
    fn transport(&self) -> String {
        match self {
            Self::Programs(programs) => programs.transport.clone(),
            Self::Perftest(perftest) => perftest.transport(),
        }
    }

    fn rounds(&mut self, rounds: Rounds) -> Outcome<Vec<u64>> {
        match self {
            Self::Programs(programs) => programs.rounds(rounds),
            Self::Perftest(perftest) => perftest.rounds(rounds),
        }
    }

    fn end(self) -> Outcome<()> {
        match self {
            Self::Programs(programs) => programs.end(),
            Self::Perftest(_) => Ok(()),
        }
    }
}

/// Runs the command. Exit status 0: measured; 1: something failed.
pub(crate) fn run(options: &BenchRemoteOptions) -> ExitCode {
    if options.side {
        return side::run(&options.run);
    }
    finish(
        "bench remote",
        &options.run,
        try_run(options).map(|report| (report, true)).map_err(|error| -> Box<dyn Error> { error }),
    )
}

fn try_run(options: &BenchRemoteOptions) -> Outcome<String> {
    let (run, to) = (&options.run, options.to.unwrap_or(options.run.device));
    let context = open(run)?;
    let machine = Machine::of(&context)?;
    drop(context);
    let named = |to| -> Outcome<String> { Ok(open_context(run.provider, to)?.device().name()?) };
    let to_device_name = (to != run.device).then(|| named(to)).transpose()?;
    let (mut ways, not_there) = ways(run, to, machine.software)?;
    let mut rows = Vec::new();
    let sizes: &[usize] = if run.brief { &[1 << 10, 1 << 20] } else { &[1 << 10, 64 << 10, 1 << 20, 16 << 20] };
    for &bytes in sizes {
        rows.push(measure(&mut ways, bytes, run.brief)?);
    }
    let transports = ways.iter().map(|(name, way)| format!("{name}: {}", way.transport())).collect();
    ways.into_iter().try_for_each(|(_, way)| way.end())?;
    let report = Report { ok: true, machine, to_device_name, transports, not_there, load: load(), rows };
    Ok(render(run, &report, Report::text)?)
}

/// The ways that this machine has, by name, and why it lacks the others.
type Found = (Vec<(&'static str, Way)>, BTreeMap<&'static str, String>);

fn ways(run: &BenchRun, to: i32, is_software: bool) -> Outcome<Found> {
    let key = Key::generate()?.to_hex();
    let programs = |carrier| Programs::start(carrier, run, to, &key).map(Way::Programs);
    let mut ways = vec![("ours", programs(Carrier::Sockets)?), ("plain", programs(Carrier::Plain)?)];
    // A software GPU's memory is memory of the host.
    let devices = (!is_software).then_some([run.device, to]);
    let others = [
        ("ucx", programs(Carrier::Ucx)),
        ("ucx_direct", programs(Carrier::UcxDirect)),
        ("ucx_tcp", programs(Carrier::UcxTcp)),
        ("perftest", Perftest::find(libucp().as_deref(), devices).map(Way::Perftest)),
        ("ipc", programs(Carrier::Ipc)),
    ];
    let mut not_there = BTreeMap::new();
    for (name, way) in others {
        // Each may lack something, which shows at its first message.
        let tried = way.and_then(|mut way| {
            way.rounds(Rounds { bytes: 1 << 10, count: 2, turn: 0 })?;
            Ok(way)
        });
        match tried {
            Ok(way) => ways.push((name, way)),
            Err(why) => drop(not_there.insert(name, why.to_string())),
        }
    }
    Ok((ways, not_there))
}

/// Measures all ways in turns, so that other work of the machine disturbs all alike.
fn measure(ways: &mut [(&'static str, Way)], bytes: usize, is_brief: bool) -> Outcome<Row> {
    let most = if is_brief { 3 } else { ((2 << 30) / (bytes + (1 << 20))).min(2000).div_ceil(TURNS) };
    let (mut counts, mut times) = (Vec::new(), vec![Vec::new(); ways.len()]);
    for (_, way) in ways.iter_mut() {
        let first = way.rounds(Rounds { bytes, count: 3, turn: 0 })?;
        // Half a second for each turn of a slow way.
        let one = first.iter().min().copied().unwrap_or(1).max(1);
        counts.push(most.min((500_000_000 / one).max(3) as usize));
    }
    for turn in 1..=TURNS {
        for (((_, way), times), &count) in ways.iter_mut().zip(&mut times).zip(&counts) {
            let measured = way.rounds(Rounds { bytes, count: count + 1, turn: turn as u8 })?;
            // The first message of a turn meets cold caches.
            times.extend_from_slice(if measured.len() > 1 { &measured[1..] } else { &measured });
        }
    }
    let mut row = Row::new(bytes);
    ways.iter().zip(&mut times).for_each(|((name, _), times)| row.add(name, times));
    Ok(row)
}

/// The file of UCX's library, where it is found.
fn libucp() -> Option<PathBuf> {
    ucx_sys::Ucp::load().ok()?;
    mapped_file(&fs::read_to_string("/proc/self/maps").ok()?, "libucp.so").map(PathBuf::from)
}

/// The load average of the last minute, where the system tells it.
fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
