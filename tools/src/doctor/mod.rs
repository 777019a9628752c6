//! `cuda-mem doctor`: reports what this machine has and lacks for mapped memory.
//!
//! A child process (this command with a hidden option) tries the libraries and prints each finding as it is made. So a
//! driver that crashes or hangs costs one finding, not the report.

mod child;
mod copies;
mod device;
mod driver;
mod environment;
mod finding;
mod host_memory;
mod mapped;
mod render;
mod stand_in;
mod topology;
mod ucx;
mod vulkan;

pub(crate) use driver::mapped_file;

use crate::cli::DoctorOptions;
use crate::output;
use finding::{Message, Recorder};
use std::process::ExitCode;

/// Runs the doctor. Exit status 0: mapped memory works; 1: it does not.
pub(crate) fn run(options: &DoctorOptions) -> ExitCode {
    if options.probe {
        probe(options.rates, &mut |message| child::send(&message));
        return ExitCode::SUCCESS;
    }
    let findings = child::findings(options.rates);
    let verdict = finding::verdict(&findings);
    let text = match options.json {
        true => render::json(&findings, &verdict),
        false => render::text(&findings, &verdict, render::wants_colour()),
    };
    output::finish("doctor", &text, verdict.ok)
}

/// Inspects everything, beginning with the checks that are least likely to crash.
fn probe(rates: bool, sink: &mut dyn FnMut(Message)) {
    let mut out = Recorder::new(sink);
    environment::probe(&mut out);
    let driver = driver::probe(&mut out);
    let vulkan = vulkan::probe(&mut out, driver.as_ref());
    if let Some(driver) = &driver {
        topology::probe(&mut out, driver);
        if rates {
            topology::rates(&mut out, driver);
        }
        device::probe_all(&mut out, driver, &vulkan);
    }
    host_memory::probe(&mut out);
    ucx::probe(&mut out);
    stand_in::probe(&mut out, driver.as_ref());
    out.end();
}
