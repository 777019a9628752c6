//! The `cuda-mem` command: `demo` shows memory that CPU and GPU both address, `doctor` says what it needs here.

mod bytes;
mod cli;
mod demo;
mod doctor;
mod output;
mod provider;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::parse().command {
        cli::Command::Demo(options) => demo::run(&options),
        cli::Command::Doctor(options) => doctor::run(&options),
    }
}
