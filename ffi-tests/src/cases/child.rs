//! The process that runs cases: it prints what they answer, a line for each.

use super::lab::{Lab, Run, Stop};
use super::{How, ROLES, find};
use cuda_mem::cuda_sys::Driver;
use cuda_mem::cuda_sys::load::{Linked, Search};
use std::io::Read;
use std::process::ExitCode;

/// Loads the driver that the environment names, else the system's, else the software GPU.
///
/// # Errors
///
/// What the environment names does not load.
pub fn driver() -> Result<Driver, String> {
    let linked = Linked { name: "softgpu", symbol: softgpu::cuda_symbol, last_resort: true };
    let search = Search { linked: vec![linked], ..Driver::SEARCH };
    // SAFETY: the candidates are the system's own driver, softgpu, or what the user names in the environment.
    unsafe { Driver::open(&search) }.map_err(|error| error.to_string())
}

/// Serves as a child if the program was started as one: `--cases topic::name ...`, or `--role name`.
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
            // The context is broken: the cases that follow are run by another process.
            break;
        }
    }
    // Without the driver's own endings: what they do after a case that broke things is no answer of any case.
    // SAFETY: ends the process; nothing of it is needed any more, and standard output is flushed at each line.
    unsafe { libc::_exit(0) }
}

/// Runs a case; gives whether the process is fit for another.
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
            // A process of its own ends with the case; what a broken driver does to what is left is no answer.
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
    // SAFETY: ends this process if it is silent for too long; the process that waits for it has a limit too.
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
