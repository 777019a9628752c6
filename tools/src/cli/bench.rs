//! The command line of `cuda-mem bench`.

use crate::bench::copy::SMALLEST;
use crate::bytes::parse_size;
use crate::provider::Choice;
use crate::subject::Subject;
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measures what an allocation and a free cost: this project's pool, the driver's, and plain device memory
    Pool(BenchPoolOptions),
    /// Measures what copies between host and device take, by size and way, and how good the engine's choice is
    Copy(BenchCopyOptions),
    /// Measures what small copies to and from mapped memory take, and what "done" costs
    Latency(BenchLatencyOptions),
    /// Measures how long the CPU, streams and running kernels take to hear of each other
    Signal(BenchSignalOptions),
}

/// What all of them have.
#[derive(Debug, Args)]
pub(crate) struct BenchRun {
    /// A short run that only shows that it works
    #[arg(long)]
    pub(crate) brief: bool,
    /// The device's number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
    /// What serves
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub(crate) provider: Choice,
    /// Prints the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const BENCH_COPY_AFTER: &str = "\
Examples:
  cuda-mem bench copy
  cuda-mem bench copy --svg copies.svg --json > copies.json
  cuda-mem bench copy --threads 1 --largest 16M

Every way of every route is measured at powers of 2, round after round, beside what the engine does by itself and the driver's
blocking copy (cuMemcpyHtoD, cuMemcpyDtoH). First the machine's profile is measured anew and kept, as `CopyEngine::measure`
does; --keep-profile chooses by what is kept. Nothing is kept of the software GPU.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (times in nanoseconds, sizes in bytes; fields are only ever added):
  ok, error     whether all was measured, and if not, why
  notice, software, device_name, driver, cuda, threads
  profile       what the engine chooses by
  rows          for each route and size: route, bytes, engine_ns, chosen, cu_memcpy_ns, ways (way, ns)";

#[derive(Debug, Args)]
#[command(after_help = BENCH_COPY_AFTER)]
pub(crate) struct BenchCopyOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
    /// How many threads may work on one copy; without it, as many as an engine takes by itself
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64).map(usize::from))]
    pub(crate) threads: Option<usize>,
    /// The largest size; units are powers of 1024; without it 1 GiB, briefly 1 MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_largest)]
    pub(crate) largest: Option<NonZeroUsize>,
    /// Does not measure the machine's profile first
    #[arg(long)]
    pub(crate) keep_profile: bool,
    /// Where a picture of the figures goes
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

fn parse_largest(text: &str) -> Result<NonZeroUsize, String> {
    match parse_size(text)? {
        size if size.get() < SMALLEST => Err(format!("the smallest size that is measured is {SMALLEST}")),
        size => Ok(size),
    }
}

const BENCH_LATENCY_AFTER: &str = "\
Examples:
  cuda-mem bench latency
  cuda-mem bench latency --json | jq '.rows[] | [.bytes, .write.mean_ns]'

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (times in nanoseconds, sizes in bytes; fields are only ever added):
  ok, error     whether all was measured, and if not, why
  notice, software, device_name, driver, cuda, threads
  rows          for each size: bytes, and posted, write, complete, cu_memcpy_to, read, cu_memcpy_from, each with mean_ns,
                p50_ns, p99_ns";

#[derive(Debug, Args)]
#[command(after_help = BENCH_LATENCY_AFTER)]
pub(crate) struct BenchLatencyOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
}

const BENCH_POOL_AFTER: &str = "\
Examples:
  cuda-mem bench pool
  cuda-mem bench pool --json > figures.json
  cuda-mem bench pool --trace rmm_log.csv
  cuda-mem bench pool --save-trace trace.csv && python3 pools.py --trace trace.csv     (PyTorch and CuPy)

Workloads, all on device memory:
  pair      one block is allocated and freed, on one stream
  random    sizes of 1 B to 1 MiB in units of 256, 1000 to 2000 blocks are live, an allocation or a free at random
  holes     so many free holes of 1 KiB lie apart; 1 KiB is allocated and freed
  threads   threads allocate and free 4 KiB each at the same time, on one stream, or on one each
  replay    of a trace: of --trace, or of a training loop that is built in
Means are of many operations at once; percentiles are of single operations, less what reading the clock takes. Of pairs the
mean is the median of many batches.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (fields are only ever added):
  ok, error     whether all was measured, and if not, why
  notice, software, device_name, driver, cuda
  rows          for each workload and subject: workload, parameter (sizes, holes or threads), subject, unit (what one
                operation is), mean_ns, and where measured p50_ns, p99_ns, p999_ns, per_second (of all threads), peak_requested,
                peak_reserved, fragmentation, out_of_memory; or failed, with the reason";

#[derive(Debug, Args)]
#[command(after_help = BENCH_POOL_AFTER)]
pub(crate) struct BenchPoolOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
    /// The trace to replay
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Where the trace that is replayed is written to, for others to replay
    #[arg(long, value_name = "FILE")]
    pub(crate) save_trace: Option<PathBuf>,
    /// What is measured; several with commas; without it, all
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) pool: Vec<Subject>,
}

const BENCH_SIGNAL_AFTER: &str = "\
Examples:
  cuda-mem bench signal
  cuda-mem bench signal --json | jq '.rows[] | select(.case == \"flag\")'

Cases:
  launch            an empty kernel is launched and waited for: what signals are compared with
  flag              the CPU writes a flag, a running kernel answers with another, the CPU sees it
  flag in order     the same, where the answer comes after all that the kernel wrote before
  stream            the same with a stream that waits for the flag and writes the other
  ring round trip   an item goes to a running kernel by a ring, and comes back by another
  ring to device, ring from device, ring both ways
                    many items, in batches; the sum or the last item ends the time
`mapped in, pinned out` is: the device looks in device memory that the CPU writes, the CPU in its own page-locked memory.
Times are of single rounds, with what reading the clock takes.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (fields are only ever added):
  ok, error       whether all was measured, and if not, why
  notice, software, device_name, driver, cuda
  why_not_mapped  what is missing for mapped memory, or null
  rows            for each case: case; question and answer (where the device looks, and the CPU: mapped or pinned), of flags
                  and streams; median_ns, p99_ns and rounds, of round trips; items_per_second, of many items; or failed, with
                  the reason";

#[derive(Debug, Args)]
#[command(after_help = BENCH_SIGNAL_AFTER)]
pub(crate) struct BenchSignalOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
}
