//! The command `softgpu`: runs a program on the software GPU, and says at its end what it did wrong.

mod library;
mod report;
mod signals;

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// The exit status if the program misused the GPU. That of the thread sanitizer.
const MISUSED: u8 = 66;
/// Those of shells, for programs that cannot be run, that are not there, and that a signal has ended.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

const AFTERWARDS: &str = "\
The exit status is that of the program, or 128 and the number of a signal that ended it. It is 66 if
the program misused the GPU: a double free, a use after free, and so on. A report then says how.

The options set variables of the environment, which may be set directly too. So may those without an
option, such as SOFTGPU_FAIL: docs/guide/testing-without-a-gpu.md lists them.";

/// Runs programs on a GPU in software, which needs no GPU and no driver.
#[derive(Debug, Parser)]
#[command(name = "softgpu", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a program: it, and the libraries that it uses, load softgpu as libcuda.so.1 and libnvidia-ml.so.1
    #[command(after_help = AFTERWARDS)]
    Run(Run),
    /// Print the folder of the libraries, for LD_LIBRARY_PATH
    Folder,
}

#[derive(Debug, Args)]
struct Run {
    /// How many devices there are [default: 2] (SOFTGPU_DEVICES)
    #[arg(long, value_name = "COUNT")]
    devices: Option<String>,
    /// Memory of each device: bytes, or with K, M, G or T [default: 80G] (SOFTGPU_MEMORY)
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    memory: Option<u64>,
    /// Which devices access each other's memory: mesh, pairs, none, one-way, broken [default: mesh] (SOFTGPU_PEERS)
    #[arg(long, value_name = "KIND")]
    peers: Option<String>,
    /// End the program where its CPU code accesses device memory (SOFTGPU_STRICT)
    #[arg(long)]
    strict: bool,
    /// Report work on two streams that no event orders, whatever the timing (SOFTGPU_RACES)
    #[arg(long)]
    races: bool,
    /// Delay work on streams at random, in the same way for the same number (SOFTGPU_SEED)
    #[arg(long, value_name = "NUMBER")]
    seed: Option<String>,
    /// A library with the code of the program's kernels (SOFTGPU_KERNELS)
    #[arg(long, value_name = "FILE")]
    kernels: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Parses a size, such as 4096 or 16G.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.find(|letter: char| !letter.is_ascii_digit()).map(|at| text.split_at(at)) {
        None => (text, 0),
        Some((digits, "K")) => (digits, 10),
        Some((digits, "M")) => (digits, 20),
        Some((digits, "G")) => (digits, 30),
        Some((digits, "T")) => (digits, 40),
        Some(_) => return Err("a size is a number of bytes, or a number with K, M, G or T".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "it is too large".to_owned())
}

impl Run {
    /// The program with its environment. softgpu's own settings are checked by softgpu, at the program's first call.
    fn command(&self, folder: &Path, report: &Path) -> Command {
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]);
        let mut folders = OsString::from(folder);
        if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
            folders.push(":");
            folders.push(others);
        }
        command.env("LD_LIBRARY_PATH", folders).env("CUDA_MEM_LIBCUDA", folder.join(library::DRIVER));
        command.env("SOFTGPU_REPORT", report);
        let memory = self.memory.map(|bytes| bytes.to_string());
        let switch = |on: bool| on.then(|| "1".to_owned());
        let values = [
            ("SOFTGPU_DEVICES", self.devices.clone()),
            ("SOFTGPU_MEMORY", memory),
            ("SOFTGPU_PEERS", self.peers.clone()),
            ("SOFTGPU_STRICT", switch(self.strict)),
            ("SOFTGPU_RACES", switch(self.races)),
            ("SOFTGPU_SEED", self.seed.clone()),
        ];
        command.envs(values.into_iter().filter_map(|(name, value)| Some((name, value?))));
        if let Some(kernels) = &self.kernels {
            // A name without a folder would be looked for in the system's folders.
            command.env("SOFTGPU_KERNELS", std::path::absolute(kernels).unwrap_or_else(|_| kernels.clone()));
        }
        command
    }

    fn run(&self) -> Result<u8, String> {
        let folder = library::folder()?;
        let report = report::Report::new()?;
        let mut command = self.command(&folder, report.path());
        let status = match signals::run(&mut command) {
            Ok(status) => status,
            Err(error) => {
                eprintln!("softgpu: {} cannot be started: {error}", self.program[0].display());
                return Ok(if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN });
            }
        };
        Ok(if report.print()? { MISUSED } else { passed_on(status) })
    }
}

fn passed_on(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn main() -> ExitCode {
    let done = match Arguments::parse().action {
        Action::Run(run) => run.run(),
        Action::Folder => library::folder().map(|folder| {
            println!("{}", folder.display());
            0
        }),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            eprintln!("softgpu: {text}");
            ExitCode::from(CANNOT_RUN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        assert_eq!((bytes("4096"), bytes("16G"), bytes("1T")), (Ok(4096), Ok(16 << 30), Ok(1 << 40)));
        for wrong in ["", "G", "16g", "1.5G", "-1", "16GB", "99999999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
