//! The trace of calls.

use super::{TRACE, want};
use crate::sync::lock;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

/// One recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function.
    pub function: &'static str,
    /// Its arguments as text: numbers, addresses, structures. Empty for vkgdr functions.
    pub arguments: String,
    /// The answer: CUDA's code; for vkgdr functions an injected code, or 0.
    pub result: i64,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({}) = {}", self.function, self.arguments, self.result)
    }
}

struct Trace {
    room: usize,
    calls: VecDeque<Call>,
    file: Option<File>,
}

static TRACED: Mutex<Trace> = Mutex::new(Trace { room: 0, calls: VecDeque::new(), file: None });

/// Keeps the last `room` calls from now on, and forgets earlier ones; 0 stops that, and [`take_trace`] still gives what was
/// kept. `SOFTGPU_TRACE` names a file to which every call is appended, after the name of its thread.
///
/// ```
/// softgpu::trace(10);
/// // SAFETY: the function takes any number.
/// unsafe { softgpu::FUNCTIONS.cuInit.unwrap()(0) };
/// softgpu::trace(0);
/// assert_eq!(softgpu::take_trace()[0].to_string(), "cuInit(0) = 0");
/// ```
pub fn trace(room: usize) {
    let mut trace = lock(&TRACED);
    trace.room = room;
    if room > 0 {
        trace.calls.clear();
    }
    want(TRACE, room > 0 || trace.file.is_some());
}

/// Takes the recorded calls, oldest first.
pub fn take_trace() -> Vec<Call> {
    lock(&TRACED).calls.drain(..).collect()
}

pub(super) fn to_file(path: &Path) -> io::Result<()> {
    lock(&TRACED).file = Some(OpenOptions::new().create(true).append(true).open(path)?);
    want(TRACE, true);
    Ok(())
}

pub(super) fn add(function: &'static str, arguments: &dyn Fn(&mut String), result: i64) {
    let mut text = String::new();
    arguments(&mut text);
    let arguments = text.trim_end_matches(", ").to_owned();
    let call = Call { function, arguments, result };
    let mut trace = lock(&TRACED);
    if let Some(file) = &mut trace.file {
        // A failed write of the trace must not disturb the program.
        let _ = writeln!(file, "{}: {call}", thread_name());
    }
    if trace.room > 0 {
        if trace.calls.len() == trace.room {
            trace.calls.pop_front();
        }
        trace.calls.push_back(call);
    }
}

/// The name of this thread, as the system knows it: up to 15 bytes. In a library that a program loads, `std` does not know the
/// program's threads.
fn thread_name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: the place has 16 bytes, which is the longest name with its zero.
    let code = unsafe { libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr().cast(), name.len()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    if code == 0 { name.to_string_lossy().into_owned() } else { String::new() }
}
