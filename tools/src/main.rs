//! The `cuda-mem` command: `demo` shows memory that CPU and GPU both address, `doctor` says what it needs here, `pool-map`
//! draws a pool, `replay` does an allocation trace again, and `bench` measures.
//!
//! ```sh
//! cuda-mem doctor                                 # what was found, and what to do about what was not
//! cuda-mem pool-map snapshot.json -o pool.svg     # what Pool::snapshot() saw: regions and blocks, over time with a trace
//! cuda-mem replay rmm_log.csv --pool ours,driver  # a trace of ours, or RMM's log: speed, peak, fragmentation
//! cuda-mem bench copy --svg copies.svg            # every way of copying at every size, and what the engine chooses
//! ```
//!
//! It is a user of `cuda-mem` as any other program: it opens no libraries and knows no Vulkan. What it prints is for people, and
//! with `--json` for programs.

mod bench;
mod bytes;
mod cli;
mod demo;
mod doctor;
mod output;
mod pool_map;
mod provider;
mod replay;
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
            cli::BenchCommand::Signal(options) => bench::signal::run(&options),
        },
    }
}
