//! Writing to standard output. A reader that has gone away (`cuda-mem doctor | head -1`) is no error and no panic.

use std::io::{self, Write};

/// Writes text to standard output at once.
pub(crate) fn print(text: &str) {
    let mut out = io::stdout().lock();
    // Nobody is left to tell when this fails; the exit status tells what the command found.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes a line to standard error.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
