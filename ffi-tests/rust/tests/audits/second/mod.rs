//! Programs from the second audit of the safe interface. They once wrote or read memory that belonged to others, were
//! given memory that nobody had initialised, crashed the driver, or hung. The letters are those of the audit.
//!
//! They use the driver that the environment names. Programs that hung run on a thread with a time limit.

mod attack;
mod captures;
mod events;
mod former_owners;
mod frames;
mod growing;
mod streams;
mod through_c;

use cuda_mem::cuda_sys::CUresult;
use cuda_mem::{Error, Stream};
use softgpu::Fault;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use testkit::{LIMIT, Setup, in_time};

const SIZE: usize = 4096;
/// Long enough for a call that does not wait to return before.
const LATER: Duration = Duration::from_millis(100);

/// Work that blocks a stream.
struct Held {
    release: Sender<()>,
    /// Whether the stream has gone on.
    passed: Arc<AtomicBool>,
}

impl Held {
    fn has_passed(&self) -> bool {
        self.passed.load(Ordering::Acquire)
    }

    /// Lets the stream go on after a while, when the program already waits for it.
    fn let_go(self) -> LettingGo {
        let passed = self.passed.clone();
        let thread = thread::spawn(move || {
            thread::sleep(LATER);
            drop(self.release);
        });
        LettingGo { passed, thread }
    }
}

/// Work that blocks a stream for a short time.
struct LettingGo {
    passed: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl LettingGo {
    /// Whether the stream has gone on. Then waits for it.
    fn had_passed(self) -> bool {
        let passed = self.passed.load(Ordering::Acquire);
        self.thread.join().expect("it only sleeps");
        passed
    }
}

/// Blocks a stream until the result is dropped.
fn hold(stream: &Stream) -> Result<Held, Error> {
    let (release, released) = channel::<()>();
    let passed = Arc::new(AtomicBool::new(false));
    let told = passed.clone();
    stream.launch_host_function(move || {
        let _ = released.recv();
        told.store(true, Ordering::Release);
    })?;
    Ok(Held { release, passed })
}

/// Whether a call was refused because a stream or an event belongs to a capture.
fn is_refused_for_a_capture(error: &Error) -> bool {
    let code = error.driver_code().map(|code| code.0);
    error.to_string().contains("captur") || code.is_some_and(|code| (900..=908).contains(&code))
}

/// Checks that a call was refused because of a capture.
fn refused<T: Debug>(what: &str, result: Result<T, Error>) -> Result<(), String> {
    match result {
        Err(error) if is_refused_for_a_capture(&error) => Ok(()),
        other => Err(format!("{what} beside a capture: {other:?}")),
    }
}

/// Runs a program while the k-th call of a driver function fails. Returns whether the program made that call.
fn with_fault<R>(function: &str, k: u64, program: impl FnOnce() -> R) -> (R, bool) {
    /// Ends the faults, also after a panic.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            softgpu::faults([]);
        }
    }
    let end = End;
    softgpu::faults([Fault::call(function, k, CUresult::CUDA_ERROR_UNKNOWN)]);
    let result = program();
    let met = softgpu::injected() > 0;
    drop(end);
    (result, met)
}

/// Whether driver calls can be made to fail. Otherwise says that the test is skipped.
fn can_fail(setup: &Setup) -> bool {
    if !setup.is_software() {
        println!("skipped: only the software GPU makes calls fail: set CUDA_MEM_LIBCUDA=softgpu");
    }
    setup.is_software()
}
