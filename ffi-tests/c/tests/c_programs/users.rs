//! Programs in C and C++ as users write them from README and header alone (`c/users/`): they return early, fail, make
//! mistakes, and destroy things late. Each is built with the sanitizers, which also look for leaks, and without, for
//! valgrind. Each runs over the software GPU, and without a driver.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::c_library::{Library, SANITIZERS, look_for_leaks};
use testkit::compilers::{STRICT, is_there, root, run};

/// The number of calls in `cleanup.c`. The program can treat each of them as failed.
const CALLS: u32 = 17;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_users");
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    folder
}

/// Builds a program, unless its compiler is missing.
fn build(source: &str, kind: &str, flags: &[&str], library: &Library) -> Option<PathBuf> {
    let (compiler, standard) = if source.ends_with(".c") { ("gcc", "-std=c11") } else { ("g++", "-std=c++17") };
    if !is_there(compiler) {
        return None;
    }
    let program = folder().join(format!("{source}-{kind}"));
    let mut command = Command::new(compiler);
    command.args([standard, "-g"]).args(flags).args(STRICT).arg("-I").arg(root().join("include"));
    command.arg(root().join("ffi-tests/c/users").join(source)).arg("-o").arg(&program);
    run(command.args(library.link_shared()).args(["-lpthread", "-ldl"]));
    Some(program)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a program over the software GPU, whatever the machine has: the test checks how the program ends, and for the
/// software GPU everything about that is known.
fn run_program(command: &mut Command, library: &Library, set: fn(&mut Command), code: i32) -> String {
    library.choose_software(command);
    set(command);
    let output = command.output().expect("the program starts");
    let text = text(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}\n{text}", output.status);
    text
}

/// Without a driver each program must end by itself and say why.
fn says_what_is_missing(program: &Path, set: fn(&mut Command)) {
    let mut command = Command::new(program);
    command.env("CUDA_MEM_LIBCUDA", "/there/is/none.so");
    set(&mut command);
    let output = command.output().expect("the program starts");
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{program:?}: {}\n{text}", output.status);
    assert!(text.contains("cannot load the CUDA driver") && text.contains("/there/is/none.so"), "{program:?}: {text}");
}

/// Builds and runs a program with the sanitizers, and under valgrind.
fn try_program(source: &str) {
    let library = Library::build();
    if let Some(program) = build(source, "sanitized", &SANITIZERS, &library) {
        run_program(&mut Command::new(&program), &library, look_for_leaks, 0);
        says_what_is_missing(&program, look_for_leaks);
    }
    // The debugging format that current valgrind versions can read from each compiler.
    if is_there("valgrind")
        && let Some(program) = build(source, "plain", &["-gdwarf-4"], &library)
    {
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--fair-sched=yes", "--leak-check=full"]);
        command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]).arg(&program);
        run_program(&mut command, &library, |_| (), 0);
    }
}

#[test]
fn a_program_that_goes_to_its_end_at_any_failure_leaves_nothing() {
    try_program("cleanup.c");
    let library = Library::build();
    let Some(program) = build("cleanup.c", "failing", &SANITIZERS, &library) else { return };
    // The last run has no failure.
    for call in 1..=CALLS + 1 {
        let code = i32::from(call <= CALLS);
        let mut command = Command::new(&program);
        let text = run_program(command.env("FAIL_AT", call.to_string()), &library, look_for_leaks, code);
        let made = call.min(CALLS);
        assert!(text.lines().any(|line| line == format!("{made} calls, {code}")), "{call}: {text}");
    }
}

#[test]
fn mistakes_of_the_first_day_are_refused_and_explained() {
    try_program("mistakes.c");
}

#[test]
fn handles_end_in_atexit_in_destructors_and_with_threads() {
    try_program("at_exit.c");
}

#[test]
fn objects_end_where_exceptions_threads_and_the_program_end() {
    try_program("early_return.cpp");
}

#[test]
fn a_log_that_uses_the_library_is_told_of_every_failure_once() {
    try_program("logging.cpp");
}
