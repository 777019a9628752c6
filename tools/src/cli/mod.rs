//! The command line.

mod bench;
mod shell;

pub(crate) use bench::{
    Bench, BenchCommand, BenchCopyOptions, BenchLatencyOptions, BenchPeersOptions, BenchPinnedOptions,
    BenchPoolOptions, BenchRemoteOptions, BenchRun, BenchSignalOptions,
};
pub(crate) use shell::{CompletionsOptions, ManOptions};

use crate::bytes::parse_size;
use crate::provider::Choice;
use crate::subject::Subject;
use clap::{Args, Parser, Subcommand, ValueEnum};
use cuda_mem::mapped::CoherencePolicy;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Memory that CPU and NVIDIA GPU both address: shows it, checks what this machine lacks for it, and draws, replays and
/// measures pools.
#[derive(Debug, Parser)]
#[command(name = "cuda-mem", version, arg_required_else_help = true, after_help = AFTER)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
Environment:
  CUDA_MEM_LIBCUDA   the CUDA driver: a path, or softgpu (the software GPU that is linked in)
  CUDA_MEM_LIBVKGDR  the vkgdr library: a path, vkgdr (linked in) or softgpu
  The library that they name is used, or its failure is reported. It is never replaced. A command runs on softgpu only
  if CUDA_MEM_LIBCUDA or --provider names it; otherwise a missing driver is an error with advice.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Streams a file through memory that CPU and GPU both address, and verifies every byte
    Demo(DemoOptions),
    /// Reports what this machine has, what is missing, and what to do about it
    Doctor(DoctorOptions),
    /// Draws the regions and blocks of a pool from its snapshot, over time if the snapshot contains a trace
    PoolMap(PoolMapOptions),
    /// Replays an allocation trace on this project's pool, on the driver's, or on plain device memory
    Replay(ReplayOptions),
    /// Runs benchmarks
    Bench(Bench),
    /// Prints a script that completes this command's words in a shell
    Completions(CompletionsOptions),
    /// Writes this command's manual pages into a folder
    Man(ManOptions),
}

const DEMO_AFTER: &str = "\
Examples:
  cuda-mem demo                          its own executable, on the GPU
  cuda-mem demo big.bin --chunk 64M      a file of any size, in pieces of 64 MiB
  cuda-mem demo --provider software      on the software GPU
  cuda-mem demo --coherence forced-non-coherent --chunk 4097
  cuda-mem demo --json | jq .speeds

Exit status: 0 if all bytes were verified, 1 if not or if something failed, 2 for a wrong command line.

JSON (times in seconds, medians of many repeats; sizes in bytes; fields are only ever added):
  ok            whether all bytes were verified; if something failed, false, with the text in `error`
  served        software, driver, cuda, device, device_name, device_uuid, vkgdr, vkgdr_version, coherent, atom,
                mapping_bytes
  file          path, bytes, chunk_bytes, chunks, seconds, stored_by_cpu (bytes that CPU stores brought to the device,
                verified by the driver's copy), loaded_by_cpu (bytes that the driver's copy brought to the device,
                verified by CPU loads)
  store_4_bytes cpu_seconds (store and flush), driver_seconds (cuMemcpyHtoD)
  speeds        for each size: bytes, cpu_store_seconds, driver_write_seconds, cpu_load_seconds, driver_read_seconds";

#[derive(Debug, Args)]
#[command(after_help = DEMO_AFTER)]
pub(crate) struct DemoOptions {
    /// The file; by default this command's own executable
    pub(crate) file: Option<PathBuf>,
    /// The size of the mapping, and of the pieces that pass through it; units are powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    pub(crate) chunk: NonZeroUsize,
    /// The device's number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
    /// The coherence of the memory
    #[arg(long, value_enum, default_value_t = Coherence::Preferred)]
    pub(crate) coherence: Coherence,
    /// Which driver to use
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub(crate) provider: Choice,
    /// Prints the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The command line's names for [`CoherencePolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Coherence {
    /// Coherent if the device offers it
    Preferred,
    /// Coherent, or the demo fails
    Required,
    /// Treated as non-coherent even if it is coherent
    ForcedNonCoherent,
}

impl From<Coherence> for CoherencePolicy {
    fn from(coherence: Coherence) -> Self {
        match coherence {
            Coherence::Preferred => CoherencePolicy::Preferred,
            Coherence::Required => CoherencePolicy::Required,
            Coherence::ForcedNonCoherent => CoherencePolicy::ForcedNonCoherent,
        }
    }
}

const DOCTOR_AFTER: &str = "\
Examples:
  cuda-mem doctor
  cuda-mem doctor --rates
  cuda-mem doctor --json | jq '.findings[] | select(.state == \"missing\")'
  VK_DRIVER_FILES=/usr/share/vulkan/icd.d/nvidia_icd.json cuda-mem doctor

The marks: `ok` is present, `missing` is needed for mapped memory and absent, `note` is worth knowing.
Libraries are tried in a separate process, so that a library that crashes or hangs is reported too.

Exit status: 0 if mapped memory works, 1 if not (the last line says why), 2 for a wrong command line. The software GPU is
looked at only if CUDA_MEM_LIBCUDA names it, and the last line then says so.

JSON (fields and ids are only ever added):
  format        1
  version       the version of this command
  ok            whether mapped memory works; on the software GPU too, if CUDA_MEM_LIBCUDA names it
  verdict       the same in words
  findings      a list in the order of the text; each has
    section     its heading
    id          what it is, for programs:
                driver.{library,version,missing_functions,start,kind,devices}, driver.capability.NAME,
                driver.topology, driver.rates (with --rates; from and to are ordinals, null for the host),
                device.N.{name,uuid,pci,memory,compute_capability,bar1}, device.N.can.NAME,
                vulkan.{vkgdr,library,manifests}, vulkan.device.N,
                mapped.N.{identity,open,coherence,transfer,export}, copies.N.{profile,ROUTE}, network.ucx, stand_in.{softgpu,library,mapped},
                environment.NAME, probe.{crash,hang}
    state       ok, missing or note
    label       what it is, for people
    text        what was found, for people
    value       what was found, for programs: null, a bool, a number (bytes for sizes), a text, a list or an object
    remedy      what to do, or null";

#[derive(Debug, Args)]
#[command(after_help = DOCTOR_AFTER)]
pub(crate) struct DoctorOptions {
    /// Prints the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Measures the rates between all devices and with the host, by copies of 64 MiB
    #[arg(long)]
    pub(crate) rates: bool,
    /// Tries the libraries in this process, and prints each finding as it is made; the command uses this itself
    #[arg(long, hide = true)]
    pub(crate) probe: bool,
}

const POOL_MAP_AFTER: &str = "\
Examples:
  cuda-mem pool-map snapshot.json -o pool.svg
  cuda-mem pool-map - < snapshot.json > pool.svg

`Pool::snapshot().to_json()` makes the snapshot. With a trace (`PoolOptions::trace_capacity`) time runs to the right, and each
block is drawn from its allocation to its free. Without a trace the picture shows the pool at that moment. The picture is one
file without scripts; pointing at a shape shows its description.

Exit status: 0 if the picture was written, 1 if the snapshot cannot be read, 2 for a wrong command line.";

#[derive(Debug, Args)]
#[command(after_help = POOL_MAP_AFTER)]
pub(crate) struct PoolMapOptions {
    /// The snapshot, a JSON file; `-` reads standard input
    pub(crate) snapshot: PathBuf,
    /// The picture's file; by default standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

const REPLAY_AFTER: &str = "\
Examples:
  cuda-mem replay trace.csv
  cuda-mem replay rmm_log.csv --pool ours,driver,plain --json

The trace is a file that `Trace::write` wrote, or a log of RMM's logging_resource_adaptor
(Thread,Time,Action,Pointer,Size,Stream). The replay keeps its order, and its streams and threads apart. Every operation is
measured by itself; the time that the clock readings take is subtracted.

Exit status: 0 if it was replayed, 1 if not, 2 for a wrong command line.

JSON (times in nanoseconds, sizes in bytes; fields are only ever added):
  ok, error     whether it was replayed, and if not, why
  software      whether the replay ran on the software GPU
  device_name
  trace         events, lost, operations, blocks, unknown_frees, missing_frees, left_out
  replays       for each pool: pool, fragmentation (or null), allocate and free (count, mean_ns, p50_ns, p90_ns, p99_ns,
                p999_ns, max_ns), clock_ns, out_of_memory, peak_requested, peak_reserved (or null), streams, threads";

#[derive(Debug, Args)]
#[command(after_help = REPLAY_AFTER)]
pub(crate) struct ReplayOptions {
    /// The trace
    pub(crate) trace: PathBuf,
    /// The pools to replay it on, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ours")]
    pub(crate) pool: Vec<Subject>,
    /// The device's number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
    /// Which driver to use
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub(crate) provider: Choice,
    /// Prints the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_have_their_defaults_and_refuse_nonsense() {
        let demo = |arguments: &[&str]| {
            let all = ["cuda-mem", "demo"].iter().chain(arguments);
            match Cli::try_parse_from(all).map(|cli| cli.command) {
                Ok(Command::Demo(options)) => Ok(options),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        let options = demo(&[]).unwrap();
        assert_eq!((options.chunk.get(), options.device, options.provider), (16 << 20, 0, Choice::Auto));
        assert!(demo(&["--chunk", "0"]).unwrap_err().contains("at least one byte"));
        assert!(demo(&["--device", "-1"]).is_err() && demo(&["--provider", "magic"]).is_err());
        assert_eq!(demo(&["--coherence", "forced-non-coherent"]).unwrap().coherence, Coherence::ForcedNonCoherent);
    }
}
