//! Writing to standard output. A reader that has gone away (`cuda-mem doctor | head -1`) is no error and no panic.

use std::io::{self, Write};
use std::process::ExitCode;

/// Writes text to standard output at once.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    // Nobody is left to tell when this fails; the exit status tells what the command found.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says why a command failed: on standard error, and as JSON where that is asked for.
pub(crate) fn failed(command: &str, json: bool, error: &dyn std::error::Error) -> ExitCode {
    if json {
        let report = serde_json::json!({ "ok": false, "error": error.to_string() });
        print(&format!("{report:#}\n"));
    }
    warn(&format!("cuda-mem {command}: {error}"));
    ExitCode::FAILURE
}

/// Writes a line to standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
