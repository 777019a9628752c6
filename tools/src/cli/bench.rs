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
    /// Measures the cost of an allocation and a free: this project's pool, the driver's, and plain device memory
    Pool(BenchPoolOptions),
    /// Measures copies between host and device, by size and method, and how good the engine's choice is
    Copy(BenchCopyOptions),
    /// Measures small copies to and from mapped memory, with and without waiting for their completion
    Latency(BenchLatencyOptions),
    /// Measures copies between devices, and draws the rates of all pairs
    Peers(BenchPeersOptions),
    /// Measures page-locking of host memory, beside cuMemHostAlloc
    Pinned(BenchPinnedOptions),
    /// Measures messages of device memory to another program and back, beside a plain loop over a socket
    Remote(BenchRemoteOptions),
    /// Measures the latency of signals between the CPU, streams and running kernels
    Signal(BenchSignalOptions),
}

/// The options of every benchmark.
#[derive(Debug, Args)]
pub(crate) struct BenchRun {
    /// A short run that only shows that the benchmark works
    #[arg(long)]
    pub(crate) brief: bool,
    /// The device's number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
    /// Which driver to use
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

Measures every method of every route at powers of 2, in rounds, together with the engine's own choice and the driver's blocking
copy (cuMemcpyHtoD, cuMemcpyDtoH). Engines choose by typical figures. Where \"to it\" is often above 1.1, give engines the
measured profile of this machine: `cuda-mem bench copy --json | jq .profile` is what `CopyEngine::set_profile` takes.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (times in nanoseconds, sizes in bytes; fields are only ever added):
  ok, error     whether all was measured, and if not, why
  software, device_name, driver, cuda, threads
  profile       the measured times, as engines take them
  rows          for each route and size: route, bytes, engine_ns, chosen, cu_memcpy_ns, methods (method, ns)";

#[derive(Debug, Args)]
#[command(after_help = BENCH_COPY_AFTER)]
pub(crate) struct BenchCopyOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
    /// How many threads may work on one copy; by default the engine decides
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64).map(usize::from))]
    pub(crate) threads: Option<usize>,
    /// The largest size; units are powers of 1024; by default 1 GiB, or 1 MiB in a brief run
    #[arg(long, value_name = "SIZE", value_parser = parse_largest)]
    pub(crate) largest: Option<NonZeroUsize>,
    /// The file for a picture of the figures
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

fn parse_largest(text: &str) -> Result<NonZeroUsize, String> {
    match parse_size(text)? {
        size if size.get() < SMALLEST => Err(format!("the smallest measured size is {SMALLEST}")),
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
  software, device_name, driver, cuda, threads
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
  random    sizes of 1 B to 1 MiB in units of 256, with 1000 to 2000 live blocks; allocates or frees at random
  holes     1 KiB is allocated and freed beside that many separate free holes of 1 KiB
  threads   threads allocate and free 4 KiB each at the same time, on one stream, or on one each
  replay    replays a trace: that of --trace, or a built-in training loop
Means are of many operations at once. Percentiles are of single operations, less the time that the clock readings take. The
mean of a pair is the median of many batches.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (fields are only ever added):
  ok, error     whether all was measured, and if not, why
  software, device_name, driver, cuda
  rows          for each workload and subject: workload, parameter (sizes, holes or threads), subject, unit (what counts as
                one operation), mean_ns; where measured, p50_ns, p99_ns, p999_ns, per_second (of all threads), peak_requested,
                peak_reserved, fragmentation, out_of_memory; instead of figures, failed with the reason";

#[derive(Debug, Args)]
#[command(after_help = BENCH_POOL_AFTER)]
pub(crate) struct BenchPoolOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
    /// The trace to replay
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// A file to which the replayed trace is written, for other programs to replay
    #[arg(long, value_name = "FILE")]
    pub(crate) save_trace: Option<PathBuf>,
    /// What to measure, separated by commas; by default everything
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) pool: Vec<Subject>,
}

const BENCH_PEERS_AFTER: &str = "\
Examples:
  cuda-mem bench peers
  cuda-mem bench peers --size 1G --json > peers.json

Cases, each beside cuMemcpyPeerAsync on the same buffers with access enabled by hand:
  one way         each ordered pair of devices, and from device 0 to 1 with memory of each source
  both ways       devices 0 and 1
  ring            each device to the next, all at once
  all to all      each device to all others, all at once
  with its wait   one small copy and the wait for it, devices 0 to 1
  batch of 4 KiB  1000 scattered blocks in one batch; raw is a loop of calls
  host to device, device to host
                  2 GiB of page-locked memory and device 0, over the host links of 2, 4, ... devices that are worth it
                  (`HostLinks`); raw is cuMemcpyAsync over one link
Times are medians. They begin with the first call and end with the wait.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (fields are only ever added):
  ok, error     whether all was measured, and if not, why
  software, device_name, driver, cuda, topology, bytes
  rows          for each case: case, source (of the memory), from and to (for one pair), bytes (of a copy), copies, direct
                (the route), links_named and links (how many links a copy with the host may use, and the devices whose
                links it uses), ours_us, raw_us, ours_gb_per_second, raw_gb_per_second; instead of figures, failed with
                the reason";

#[derive(Debug, Args)]
#[command(after_help = BENCH_PEERS_AFTER)]
pub(crate) struct BenchPeersOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
    /// The size of large copies; units are powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_large)]
    pub(crate) size: usize,
}

fn parse_large(text: &str) -> Result<usize, String> {
    match parse_size(text)?.get() {
        size if size < 1 << 20 => Err("the smallest size is 1M".to_owned()),
        size => Ok(size),
    }
}

const BENCH_REMOTE_AFTER: &str = "\
Examples:
  cuda-mem bench remote
  cuda-mem bench remote --device 0 --to 1
  cuda-mem bench remote --json > remote.json

Device memory goes to another process of this host and comes back, at 1 KiB to 16 MiB. Each way has two processes, and they take
turns:
  ours          frames (`cuda-mem-remote`) over sockets, sealed
  plain loop    copies to page-locked memory, waits, and writes a TCP socket
  over UCX      frames over UCX, where it is installed
  UCX direct    active messages of UCX from and to device memory, by the ways of this host that it chooses
  UCX's TCP     the same over TCP (UCX_TLS=tcp,cuda_copy), which it takes between hosts without other networks
  ucx_perftest  UCX's own benchmark, where it is on the path or beside UCX's library: twice the latency that it tells
  ipc           copies into memory that both processes have, and a byte over a socket
UCX direct needs a libcuda.so.1 that UCX finds. Over the software GPU, name a copy of libsoftgpu.so libcuda.so.1, have
libnvidia-ml.so.1 in the same folder, and set CUDA_MEM_LIBCUDA to the file and LD_LIBRARY_PATH to the folder.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (times in nanoseconds, sizes in bytes; fields are only ever added):
  ok, error     whether all was measured, and if not, why
  software, device_name, driver, cuda, to_device_name, transports, not_there (why ways were not measured), load (of the machine)
  rows          for each size: bytes, rounds; for each way of ours, plain, ucx, ucx_direct, ucx_tcp, perftest, ipc that is there:
                its median as ours_ns, and the 99th percentile as ours_p99_ns (not of perftest)";

#[derive(Debug, Args)]
#[command(after_help = BENCH_REMOTE_AFTER)]
pub(crate) struct BenchRemoteOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
    /// The number of the other process's device; by default the same
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) to: Option<i32>,
    /// Is one of the two processes of a way, and does what it is told on standard input
    #[arg(long, hide = true)]
    pub(crate) side: bool,
}

const BENCH_SIGNAL_AFTER: &str = "\
Examples:
  cuda-mem bench signal
  cuda-mem bench signal --json | jq '.rows[] | select(.case == \"flag\")'

Cases:
  launch            an empty kernel is launched and waited for, as a comparison
  flag              the CPU writes a flag, a running kernel answers with another, the CPU sees it
  flag in order     the same, but the answer is ordered after everything that the kernel wrote before
  stream            the same, but a stream waits for the flag and writes the other one
  ring round trip   an item goes to a running kernel through one ring and comes back through another
  ring to device, ring from device, ring both ways
                    many items, in batches; the time ends with the sum or the last item
`mapped in, pinned out` means: the device polls device memory that the CPU writes, and the CPU polls its own page-locked memory.
Times are of single rounds, and include the clock readings.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (fields are only ever added):
  ok, error       whether all was measured, and if not, why
  software, device_name, driver, cuda
  why_not_mapped  what is missing for mapped memory, or null
  rows            for each case: case; for flags and streams, question and answer (where the device's word and the CPU's word
                  lie: mapped or pinned); for round trips, median_ns, p99_ns and rounds; for many items, items_per_second;
                  instead of figures, failed with the reason";

#[derive(Debug, Args)]
#[command(after_help = BENCH_SIGNAL_AFTER)]
pub(crate) struct BenchSignalOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
}

const BENCH_PINNED_AFTER: &str = "\
Examples:
  cuda-mem bench pinned
  cuda-mem bench pinned --size 64G

The driver locks one buffer in one call, which stops most calls of other threads. Several buffers let them go on between.
A bar on standard error shows the progress, if that is a terminal.

Exit status: 0 when all was measured, 1 when not, 2 for a wrong command line.

JSON (fields are only ever added):
  ok, error    whether all was measured, and if not, why
  software, device_name, driver, cuda
  bytes        the size
  rows         for each way: way, allocate_s, free_s, and longest_call_ms: the longest time that another thread needed meanwhile
               to mark an event";

#[derive(Debug, Args)]
#[command(after_help = BENCH_PINNED_AFTER)]
pub(crate) struct BenchPinnedOptions {
    #[command(flatten)]
    pub(crate) run: BenchRun,
    /// How much memory is locked at once; by default 16 GiB, or 256 MiB in a brief run
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<NonZeroUsize>,
}
