//! Writes to standard output. A reader that has gone away (`cuda-mem doctor | head -1`) is not an error; any other
//! failed write is.

use std::io::{self, Write};
use std::process::ExitCode;

/// Writes text to standard output and flushes it.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        // The reader is gone. The exit status still tells what the command found.
        _ => Ok(()),
    }
}

/// Writes the report of a command and returns its exit status. The command also fails if the report cannot be written.
pub(crate) fn finish(command: &str, report: &str, ok: bool) -> ExitCode {
    match print(report) {
        Ok(()) if ok => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            warn(&format!("cuda-mem {command}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Reports why a command failed: on standard error, and also as JSON if that was requested.
pub(crate) fn failed(command: &str, json: bool, error: &dyn std::error::Error) -> ExitCode {
    if json {
        let report = serde_json::json!({ "ok": false, "error": error.to_string() });
        // The command has failed already, so ignore an error here.
        let _ = print(&format!("{report:#}\n"));
    }
    warn(&format!("cuda-mem {command}: {error}"));
    ExitCode::FAILURE
}

/// Writes a line to standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
