//! The command line.

mod bench;

pub(crate) use bench::{
    Bench, BenchCommand, BenchCopyOptions, BenchLatencyOptions, BenchPoolOptions, BenchRun, BenchSignalOptions,
};

use crate::bytes::parse_size;
use crate::provider::Choice;
use crate::subject::Subject;
use clap::{Args, Parser, Subcommand, ValueEnum};
use cuda_mem::mapped::CoherenceWish;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Memory that CPU and NVIDIA GPU both address: a demonstration, what this machine lacks for it, and pools looked at,
/// replayed and measured.
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
  What they name is used or reported, never replaced.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Streams a file through memory that CPU and GPU both address, and verifies every byte
    Demo(DemoOptions),
    /// Says what was found on this machine, what is missing, and what to do about it
    Doctor(DoctorOptions),
    /// Draws the regions and blocks of a pool from its snapshot, over time where the snapshot holds a trace
    PoolMap(PoolMapOptions),
    /// Does an allocation trace again, on a pool of this project, on the driver's, or on plain device memory
    Replay(ReplayOptions),
    /// Measures
    Bench(Bench),
}

const DEMO_AFTER: &str = "\
Examples:
  cuda-mem demo                          its own executable, on the GPU or what stands in for it
  cuda-mem demo big.bin --chunk 64M      a file of any size, by 64 MiB
  cuda-mem demo --provider software      without looking for a GPU
  cuda-mem demo --coherence forced-non-coherent --chunk 4097
  cuda-mem demo --json | jq .speeds

Exit status: 0 when all bytes were verified, 1 when not or when something failed, 2 for a wrong command line.

JSON (times in seconds, medians of many repeats; sizes in bytes; fields are only ever added):
  ok            whether all bytes were verified; when something failed, false with the text in `error`
  notice        why a software GPU stands in, or null
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
    /// The file; without it, this command's own executable
    pub(crate) file: Option<PathBuf>,
    /// How much is mapped, and passes through it at a time; units are powers of 1024
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_size)]
    pub(crate) chunk: NonZeroUsize,
    /// The device's number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
    /// Which coherence the memory shall have
    #[arg(long, value_enum, default_value_t = Coherence::Preferred)]
    pub(crate) coherence: Coherence,
    /// What serves
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    pub(crate) provider: Choice,
    /// Prints the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The command line's names for [`CoherenceWish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Coherence {
    /// Coherent where the device offers it
    Preferred,
    /// Coherent, or the demo fails
    Required,
    /// Treated as non-coherent even where it is coherent
    ForcedNonCoherent,
}

impl From<Coherence> for CoherenceWish {
    fn from(coherence: Coherence) -> Self {
        match coherence {
            Coherence::Preferred => CoherenceWish::Preferred,
            Coherence::Required => CoherenceWish::Required,
            Coherence::ForcedNonCoherent => CoherenceWish::ForcedNonCoherent,
        }
    }
}

const DOCTOR_AFTER: &str = "\
Examples:
  cuda-mem doctor
  cuda-mem doctor --json | jq '.findings[] | select(.state == \"missing\")'
  VK_DRIVER_FILES=/usr/share/vulkan/icd.d/nvidia_icd.json cuda-mem doctor

The marks: `ok` is there, `missing` is needed for mapped memory and not there, `note` is worth knowing.
Libraries are tried in a process of their own, so that one that crashes or hangs is reported too.

Exit status: 0 when mapped memory works on a real device, 1 when not (the last line says why), 2 for a wrong command
line.

JSON (fields and ids are only ever added):
  format        1
  version       this command's
  ok            whether mapped memory works on a real device
  verdict       the same in words
  findings      a list in the order of the text; each has
    section     the heading that it stands under
    id          what it is, for programs:
                driver.{library,version,missing_functions,start,kind,devices}, driver.capability.NAME,
                device.N.{name,uuid,pci,memory,compute_capability,bar1}, device.N.can.NAME,
                vulkan.{vkgdr,library,manifests}, vulkan.device.N,
                mapped.N.{identity,open,coherence,transfer,export}, copies.N.{profile,ROUTE}, stand_in.{softgpu,mapped},
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
    /// Tries the libraries in this process, and prints what is found as it is found: what the command does itself
    #[arg(long, hide = true)]
    pub(crate) probe: bool,
}

const POOL_MAP_AFTER: &str = "\
Examples:
  cuda-mem pool-map snapshot.json -o pool.svg
  cuda-mem pool-map - < snapshot.json > pool.svg

The snapshot is what `Pool::snapshot().to_json()` gives. With a trace (`PoolOptions::trace_capacity`) time runs to the
right, and each block is drawn from its allocation to its free; without one it is the pool at that moment. The picture is
one file without scripts; what the mouse points at is told.

Exit status: 0 when the picture was written, 1 when the snapshot cannot be read, 2 for a wrong command line.";

#[derive(Debug, Args)]
#[command(after_help = POOL_MAP_AFTER)]
pub(crate) struct PoolMapOptions {
    /// The snapshot, a JSON file; `-` reads standard input
    pub(crate) snapshot: PathBuf,
    /// Where the picture goes; without it, to standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

const REPLAY_AFTER: &str = "\
Examples:
  cuda-mem replay trace.csv
  cuda-mem replay rmm_log.csv --pool ours,driver,plain --json

The trace is what `Trace::write` wrote, or a log of RMM's logging_resource_adaptor (Thread,Time,Action,Pointer,Size,Stream).
Streams and threads of the trace are kept apart, and its order is kept. Every operation is measured by itself; what reading
the clock takes is taken off.

Exit status: 0 when it was replayed, 1 when not, 2 for a wrong command line.

JSON (times in nanoseconds, sizes in bytes; fields are only ever added):
  ok, error     whether it was replayed, and if not, why
  notice        why a software GPU stands in, or null
  software      whether that is so, or was asked for
  device_name
  trace         events, lost, operations, blocks, unknown_frees, missing_frees, left_out
  replays       for each pool: pool, fragmentation (or null), allocate and free (count, mean_ns, p50_ns, p90_ns, p99_ns,
                p999_ns, max_ns), clock_ns, out_of_memory, peak_requested, peak_reserved (or null), streams, threads";

#[derive(Debug, Args)]
#[command(after_help = REPLAY_AFTER)]
pub(crate) struct ReplayOptions {
    /// The trace
    pub(crate) trace: PathBuf,
    /// What it is done again on; several with commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ours")]
    pub(crate) pool: Vec<Subject>,
    /// The device's number
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) device: i32,
    /// What serves
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
