//! The `cuda-mem` command: `demo` shows memory that CPU and GPU both address, `doctor` checks this machine, `pool-map`
//! draws a pool, `replay` replays an allocation trace, and `bench` measures.
//!
//! ```sh
//! cuda-mem doctor                                 # what this machine has and lacks, and what to do about it
//! cuda-mem pool-map snapshot.json -o pool.svg     # Pool::snapshot(): regions and blocks, over time with a trace
//! cuda-mem replay rmm_log.csv --pool ours,driver  # our trace or RMM's log: speed, peak, fragmentation
//! cuda-mem bench copy --svg copies.svg            # every method of copying at every size, and the engine's choice
//! ```
//!
//! The command uses `cuda-mem` as any other program does: it opens no libraries and does not call Vulkan. It prints
//! text for people, and with `--json` JSON for programs.

mod bench;
mod bytes;
mod cli;
mod demo;
mod doctor;
mod mapped_memory;
mod output;
mod pool_map;
mod provider;
mod replay;
mod shell;
mod subject;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::parse().command {
        cli::Command::Demo(options) => demo::run(&options),
        cli::Command::Doctor(options) => doctor::run(&options),
        cli::Command::PoolMap(options) => pool_map::run(&options),
        cli::Command::Replay(options) => replay::run(&options),
        cli::Command::Bench(bench) => match bench.command {
            cli::BenchCommand::Pool(options) => bench::pool::run(&options),
            cli::BenchCommand::Copy(options) => bench::copy::run(&options),
            cli::BenchCommand::Latency(options) => bench::copy::run_latency(&options),
            cli::BenchCommand::Peers(options) => bench::peers::run(&options),
            cli::BenchCommand::Pinned(options) => bench::pinned::run(&options),
            cli::BenchCommand::Remote(options) => bench::remote::run(&options),
            cli::BenchCommand::Signal(options) => bench::signal::run(&options),
        },
        cli::Command::Completions(options) => shell::completions(&options),
        cli::Command::Man(options) => shell::man(&options),
    }
}
