//! The `cuda-mem` command: `demo` shows memory that CPU and GPU both address, `doctor` says what it needs here, `pool-map`
//! draws a pool, `replay` does an allocation trace again, and `bench` measures.

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
