//! `cuda-mem demo`: sends a file through mapped memory, verifies every byte, and measures speeds.

mod measure;
mod report;
mod stream;

use crate::cli::DemoOptions;
use crate::mapped_memory::mapped_memory;
use crate::output;
use crate::provider;
use cuda_mem::mapped::{Coherence, MappedMemory};
use report::{Report, Served};
use std::error::Error;
use std::process::ExitCode;

/// Runs the demo. Exit status 0: all bytes verified; 1: not verified, or something failed.
pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::failed("demo", options.json, &*error),
    }
}

fn try_run(options: &DemoOptions) -> Result<(), Box<dyn Error>> {
    let path = match &options.file {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(|error| format!("cannot find this command's own file: {error}"))?,
    };
    // Open the file before loading any library, so that a wrong name fails at once.
    let source = stream::Source::open(&path)?;

    let resource = provider::open(options.provider, options.device, options.coherence.into())?;
    let mapping = source.mapping_size(options.chunk.get());
    let mut memory = mapped_memory(&resource, mapping)?;
    let served = served(&resource, memory.coherence(), mapping)?;
    if !options.json {
        output::print(&report::served(&served))?;
    }

    let most = if served.software { usize::MAX } else { stream::SAMPLE };
    let file = stream::run(source, &mut memory, options.chunk.get(), most)?;
    if !options.json {
        output::print(&report::file(&file))?;
    }
    drop(memory);

    let speeds = measure::run(&resource, mapping)?;
    // An error at the end of one of the two mappings is a failure too.
    if let Some(error) = resource.context().take_drop_errors().errors.into_iter().next() {
        return Err(error.into());
    }
    if !options.json {
        output::print(&report::speeds(&speeds, served.software))?;
        return Ok(());
    }
    let report = Report { ok: true, served, file, speeds };
    output::print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    Ok(())
}

/// Describes what serves the demo.
fn served(resource: &MappedMemory, coherence: Coherence, mapping: usize) -> cuda_mem::Result<Served> {
    let device = resource.context().device();
    let driver = device.driver();
    let (cuda, vkgdr) = (driver.provider(), resource.provider()?);
    Ok(Served {
        software: driver.is_software(),
        driver: cuda.library.to_string(),
        cuda: cuda.version.map(|version| version.to_string()),
        device: device.ordinal(),
        device_name: device.name()?,
        device_uuid: device.uuid()?.to_string(),
        vkgdr: vkgdr.library.to_string(),
        vkgdr_version: vkgdr.version.map(|version| version.to_string()),
        coherent: coherence == Coherence::Coherent,
        atom: coherence.atom(),
        mapping_bytes: mapping,
    })
}
