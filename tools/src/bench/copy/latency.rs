//! `cuda-mem bench latency`: the time of small copies, with and without waiting for their completion.

use super::Machine;
use super::measure::by_driver;
use crate::bench::clock::{clock_ns, nanoseconds};
use crate::bytes;
use crate::mapped_memory::{MappedBuffer, mapped_memory};
use cuda_mem::copy::{CopyEngine, Direction};
use cuda_mem::{Context, MappedMemory, Result};
use serde::Serialize;
use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

const SIZES: [usize; 9] = [4, 8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144];

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) machine: Machine,
    pub(super) rows: Vec<Row>,
}

/// One size. Times in nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    bytes: usize,
    /// Stores without their own fence: many in one `store_scope`.
    posted: Times,
    /// Stores with their fence: `write`.
    write: Times,
    /// Stores, their fence, and a word read back: `write_complete`.
    complete: Times,
    cu_memcpy_to: Times,
    read: Times,
    cu_memcpy_from: Times,
}

/// The median of the batches' means, and percentiles of single calls, less the time that the clock readings take.
#[derive(Clone, Copy, Debug, Serialize)]
struct Times {
    mean_ns: f64,
    p50_ns: u64,
    p99_ns: u64,
}

pub(super) fn measure(context: &Context, engine: &CopyEngine, brief: bool) -> Result<Vec<Row>> {
    let mut memory = mapped_memory(&MappedMemory::new(context)?, SIZES[SIZES.len() - 1])?;
    let mut host = vec![1u8; memory.len()];
    let device = memory.device_pointer();
    let budget = Duration::from_micros(if brief { 200 } else { 60_000 });
    let clock = clock_ns();
    let mut rows = Vec::new();
    for bytes in SIZES {
        let host = &mut host[..bytes];
        // All stores share one fence at the end.
        let posted = memory.store_scope(|scope| times(budget, clock, &mut || scope.store(0, black_box(&*host))))?;
        let mut timed = |work: &mut dyn FnMut(&mut MappedBuffer, &mut [u8]) -> Result<()>| {
            times(budget, clock, &mut || work(&mut memory, black_box(&mut *host)))
        };
        rows.push(Row {
            bytes,
            posted,
            write: timed(&mut |memory, host| engine.write(memory, 0, host))?,
            complete: timed(&mut |memory, host| engine.write_complete(memory, 0, host))?,
            cu_memcpy_to: timed(&mut |_, host| by_driver(context, Direction::ToDevice, device, host))?,
            read: timed(&mut |memory, host| engine.read(memory, 0, host))?,
            cu_memcpy_from: timed(&mut |_, host| by_driver(context, Direction::FromDevice, device, host))?,
        });
    }
    Ok(rows)
}

fn times(budget: Duration, clock: u64, work: &mut dyn FnMut() -> Result<()>) -> Result<Times> {
    for _ in 0..10 {
        work()?;
    }
    let mut singles = Vec::new();
    let start = Instant::now();
    while singles.is_empty() || start.elapsed() < budget / 2 {
        let before = Instant::now();
        work()?;
        singles.push(nanoseconds(before).saturating_sub(clock));
    }
    singles.sort_unstable();
    let at = |part: usize| singles[(singles.len() - 1) * part / 100];
    // A batch takes 20 us, so that the clock readings do not matter.
    let batch = (20_000 / at(50).max(1)).clamp(1, 10_000);
    let mut means = Vec::new();
    let start = Instant::now();
    while means.is_empty() || start.elapsed() < budget / 2 {
        let before = Instant::now();
        for _ in 0..batch {
            work()?;
        }
        means.push(before.elapsed().as_secs_f64() * 1e9 / batch as f64);
    }
    means.sort_by(f64::total_cmp);
    Ok(Times { mean_ns: means[means.len() / 2], p50_ns: at(50), p99_ns: at(99) })
}

/// One line for each size: means and 99th percentiles.
pub(super) fn text(machine: &Machine, rows: &[Row]) -> String {
    let mut text = format!(
        "{}\n\nmicroseconds: the mean (p99) of one copy, pageable memory to and from mapped memory\n\n",
        machine.headline()
    );
    let heads = ["posted", "write", "complete", "cuMemcpyHtoD", "read", "cuMemcpyDtoH"];
    let cells = |cells: [String; 6]| cells.iter().map(|cell| format!("{cell:>18}")).collect::<String>();
    let _ = writeln!(text, "{:>9}{}", "size", cells(heads.map(str::to_owned)));
    for row in rows {
        let times = [row.posted, row.write, row.complete, row.cu_memcpy_to, row.read, row.cu_memcpy_from];
        let cell = |times: Times| format!("{:.3} ({:.2})", times.mean_ns / 1e3, times.p99_ns as f64 / 1e3);
        let _ = writeln!(text, "{:>9}{}", bytes::size(row.bytes as u64), cells(times.map(cell)));
    }
    text.push_str(
        "\nposted: stores without a fence, one after the other. write: with the fence, so that later device work sees them.\n\
         complete: with the fence, and a word read back, so that the bytes are in the device's memory.\n",
    );
    text + machine.caution()
}
