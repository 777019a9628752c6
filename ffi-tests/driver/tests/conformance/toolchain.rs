//! Tools that the tests need beside Rust, and how the tests report missing tools and results.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use testkit::compilers::root;

/// A folder for this test's files.
pub fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance").join(name);
    std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    folder
}

/// Prints that a test is skipped, and why. Panics where no test may be skipped.
pub fn skip(why: &str) {
    assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "{why}");
    say(&format!("skipped: {why}\n"));
}

/// Prints text although the test harness captures output.
pub fn say(text: &str) {
    let _ = std::io::stdout().write_all(format!("\n{text}").as_bytes());
}

/// Whether a program can be started.
pub fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The compilers that are installed.
pub fn compilers<'a>(wanted: &[&'a str]) -> Vec<&'a str> {
    let (there, missing): (Vec<&str>, Vec<&str>) = wanted.iter().partition(|compiler| is_there(compiler));
    if !missing.is_empty() {
        skip(&format!("{} missing: apt-get install gcc g++ clang", missing.join(", ")));
    }
    there
}

/// Runs a program. If it fails, the error is its output.
///
/// # Errors
///
/// The program does not start, or it fails.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // Lines after the first errors seldom help.
    if output.status.success() { Ok(text) } else { Err(text.lines().take(60).collect::<Vec<_>>().join("\n")) }
}
