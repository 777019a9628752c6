//! `cuda-mem completions` and `cuda-mem man`: what shells and `man` know of this command, made from its command line.

use crate::cli::{Cli, CompletionsOptions, ManOptions};
use crate::output;
use clap::CommandFactory;
use std::fs;
use std::process::ExitCode;

/// Prints the script of a shell. Exit status 0: it was printed; 1: it was not.
pub(crate) fn completions(options: &CompletionsOptions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "cuda-mem", &mut script);
    output::finish("completions", &String::from_utf8_lossy(&script), true)
}

/// Writes a page for the command, and one for each of its commands. Exit status 0: all were written; 1: not.
pub(crate) fn man(options: &ManOptions) -> ExitCode {
    let folder = &options.folder;
    match fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Cli::command(), folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failed("man", false, &std::io::Error::other(format!("{}: {error}", folder.display()))),
    }
}
