//! `cuda-mem pool-map`: draws a pool's regions and blocks.

mod history;
mod picture;
mod svg;

pub(crate) use svg::escaped;

use crate::cli::PoolMapOptions;
use crate::output;
use cuda_mem::pool::Snapshot;
use std::error::Error;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

/// Runs the command. Exit status 0: the picture was written; 1: it was not.
pub(crate) fn run(options: &PoolMapOptions) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failed("pool-map", false, &*error),
    }
}

fn try_run(options: &PoolMapOptions) -> Result<(), Box<dyn Error>> {
    let path = options.snapshot.display();
    let text = if options.snapshot == Path::new("-") {
        io::read_to_string(io::stdin())
    } else {
        fs::read_to_string(&options.snapshot)
    };
    let text = text.map_err(|error| format!("cannot read {path}: {error}"))?;
    let snapshot = Snapshot::from_json(&text).map_err(|error| format!("{path}: {error}"))?;
    let svg = svg::write(&picture::of(&snapshot));
    match &options.output {
        None if io::stdout().is_terminal() => {
            return Err("a picture is no text for a terminal: name a file with -o, or redirect the output".into());
        }
        None => output::print(&svg)?,
        Some(file) => fs::write(file, svg).map_err(|error| format!("cannot write {}: {error}", file.display()))?,
    }
    Ok(())
}
