//! A program that gets the signals of this one, so that whoever ends this one ends the program, and the report is still printed.

use std::io;
use std::process::{Command, ExitStatus};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// The program's process; 0 before its start.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that came before.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// Signals that end a program, or that programs define.
const PASSED_ON: [libc::c_int; 6] =
    [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

extern "C" fn pass_on(signal: libc::c_int, about: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system passes the address of what it knows.
    let by_system = unsafe { (*about).si_code } > 0;
    if by_system && [libc::SIGINT, libc::SIGQUIT].contains(&signal) {
        // A key of the terminal, which sends the signal to the program too.
        return;
    }
    match PROGRAM.load(Ordering::SeqCst) {
        0 => EARLY.store(signal, Ordering::SeqCst),
        process => send(process, signal),
    }
}

fn send(process: i32, signal: libc::c_int) {
    // SAFETY: a signal handler may call kill. It can hit no other process before `run` has waited for this one, and this
    // program ends then.
    unsafe { libc::kill(process, signal) };
}

/// Handles a signal, unless it is ignored, as under nohup: the program inherits that, but no handler.
fn handle(signal: libc::c_int) {
    // SAFETY: zeros are a valid value: no flags, no other signals. The handler uses atomic numbers and kill only, as
    // handlers may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &mut action);
        if action.sa_sigaction != libc::SIG_IGN {
            action.sa_sigaction = pass_on as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    PASSED_ON.into_iter().for_each(handle);
    let mut program = command.spawn()?;
    PROGRAM.store(program.id().cast_signed(), Ordering::SeqCst);
    match EARLY.load(Ordering::SeqCst) {
        0 => {}
        signal => send(program.id().cast_signed(), signal),
    }
    program.wait()
}
