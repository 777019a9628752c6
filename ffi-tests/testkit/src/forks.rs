//! Runs a part of a test in a forked child.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `child` in a forked process, and returns the call that it names as wrong. A child that hangs is killed. A panic is
/// wrong too.
///
/// # Panics
///
/// The system refuses a process.
pub fn in_child(child: impl FnOnce() -> Result<(), &'static str>) -> Option<String> {
    let (mut pipe, mut status) = ([0; 2], 0);
    // SAFETY: the child ends without running any clean-up. The pipe's ends are written, used and closed here only.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let process = libc::fork();
        assert!(process >= 0);
        if process == 0 {
            libc::alarm(20);
            // The test's own process goes on behind a panic.
            let told = catch_unwind(AssertUnwindSafe(child))
                .unwrap_or_else(|panic| Err(panic.downcast::<String>().map_or("a call panics", |text| text.leak())));
            if let Err(call) = told {
                libc::write(pipe[1], call.as_ptr().cast(), call.len());
            }
            libc::_exit(0);
        }
        libc::close(pipe[1]);
        let mut told = [0u8; 200];
        let length = libc::read(pipe[0], told.as_mut_ptr().cast(), told.len());
        libc::close(pipe[0]);
        assert_eq!(libc::waitpid(process, &mut status, 0), process);
        match (status, length) {
            (0, 0) => None,
            (0, length) => Some(String::from_utf8_lossy(&told[..length as usize]).into_owned()),
            _ => Some(format!("a call hangs, or ends the child with status {status:#x}")),
        }
    }
}
