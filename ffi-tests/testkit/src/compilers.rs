//! Compilers of C and C++, and other tools, for tests of headers.

use std::path::{Path, PathBuf};
use std::process::Command;

/// All warnings are errors.
pub const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// The warnings that users' programs may enable, all as errors: for headers that they include.
pub const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"];

/// The project's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The headers of the C library: `cudamem.h` and those that include it.
///
/// # Panics
///
/// The folder is not readable.
pub fn c_headers() -> Vec<PathBuf> {
    let include = root().join("include");
    let files = std::fs::read_dir(include.join("cudamem")).expect("the headers are there");
    let mut headers: Vec<PathBuf> = files.map(|file| file.expect("the folder is readable").path()).collect();
    headers.retain(|file| file.extension().is_some_and(|extension| extension == "h"));
    headers.push(include.join("cudamem.h"));
    headers.sort();
    headers
}

/// Whether a compiler or another tool is installed. If not, prints a line that says so.
///
/// # Panics
///
/// The tool is missing, and `CUDA_MEM_REQUIRE_ALL` is set.
pub fn is_there(compiler: &str) -> bool {
    let there = Command::new(compiler).arg("--version").output().is_ok();
    if !there {
        assert!(
            std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(),
            "{compiler} is missing: apt-get install gcc g++ clang cmake pkg-config valgrind"
        );
        println!("skipped: {compiler} is missing: apt-get install gcc g++ clang cmake pkg-config valgrind");
    }
    there
}

/// Runs a command, and returns its output.
///
/// # Panics
///
/// The command does not start, or it fails.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{text}");
    text
}
