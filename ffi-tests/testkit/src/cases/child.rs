//! The process that runs cases. It prints each answer on a line.

use super::lab::{Lab, Run, Stop};
use super::{How, ROLES, find};
use cuda_mem::cuda_sys::Driver;
use cuda_mem::cuda_sys::load::{Linked, Search};
use std::io::Read;
use std::process::ExitCode;

/// Loads the driver that the environment names, else the system's driver, else the software GPU.
///
/// # Errors
///
/// The library that the environment names does not load.
pub fn driver() -> Result<Driver, String> {
    let linked = Linked { name: "softgpu", symbol: softgpu::cuda_symbol, last_resort: true };
    let search = Search { linked: vec![linked], ..Driver::SEARCH };
    // SAFETY: the candidates are the system's own driver, softgpu, or the library that the user names in the
    // environment.
    unsafe { Driver::open(&search) }.map_err(|error| error.to_string())
}

/// Runs as a child process if the program was started as one: `--cases topic::name ...`, or `--role name`.
pub fn serve() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next()?;
    if mode != "--cases" && mode != "--role" {
        return None;
    }
    let driver: &'static Driver = match driver() {
        Ok(driver) => Box::leak(Box::new(driver)),
        Err(error) => {
            eprintln!("no driver to test: {error}");
            return Some(ExitCode::FAILURE);
        }
    };
    let mut lab = Lab::new(driver);
    for name in arguments {
        if mode == "--role" {
            role(&mut lab, &name);
        } else if !case(&mut lab, &name) {
            // The context is broken, so another process runs the remaining cases.
            break;
        }
    }
    // Skip the driver's exit handlers: after a case that broke the driver, their behaviour is not an answer of a case.
    // SAFETY: ends the process. Nothing in it is needed any more, and standard output is flushed after each line.
    unsafe { libc::_exit(0) }
}

/// Runs a case. Returns whether the process can run another case.
fn case(lab: &mut Lab, name: &str) -> bool {
    println!("@begin {name}");
    let mut fit = true;
    match find(name) {
        Some(case) => {
            let run = |lab: &mut Lab| -> Run {
                if case.how != How::Bare {
                    lab.prepare()?;
                }
                (case.run)(lab)
            };
            stopped(run(lab), lab);
            // A process of its own ends with the case. What a broken driver does to its remaining objects is not an
            // answer.
            if matches!(case.how, How::Shared | How::Two) {
                fit = lab.fit();
                lab.end();
            }
        }
        None => lab.say("stopped", "no such case"),
    }
    println!("@end {name}");
    fit
}

fn role(lab: &mut Lab, name: &str) {
    // SAFETY: ends this process if it is silent for too long. The process that waits for it has a limit too.
    unsafe { libc::alarm(15) };
    let mut payload = Vec::new();
    let read = std::io::stdin().read_to_end(&mut payload);
    let run = |lab: &mut Lab| -> Run {
        read.map_err(|error| Stop(error.to_string()))?;
        let role = ROLES.iter().find(|role| role.name == name).ok_or_else(|| Stop("no such role".to_owned()))?;
        lab.prepare()?;
        (role.run)(lab, &payload)
    };
    stopped(run(lab), lab);
    lab.end();
}

fn stopped(run: Run, lab: &mut Lab) {
    if let Err(Stop(reason)) = run {
        lab.say("stopped", reason);
    }
}
