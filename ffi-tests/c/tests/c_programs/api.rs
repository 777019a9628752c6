//! Tests the C library from C. `c/api/` is compiled against `include/cudamem.h`, linked with the shared and with the
//! static library, and run over the driver that the environment names, else over the software GPU as a library. Each
//! case runs in its own process. At its end the software GPU must hold nothing and must not have been misused.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::c_library::{Library, SANITIZERS, look_for_leaks};
use testkit::compilers::{is_there, root, run};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];
const SOURCES: [&str; 19] = [
    "main.c",
    "basics.c",
    "callbacks.c",
    "waits.c",
    "memory.c",
    "sleep.c",
    "misuse.c",
    "kernels.c",
    "signals.c",
    "frames.c",
    "adaptors.c",
    "sources.c",
    "copies.c",
    "faults.c",
    "sharing.c",
    "exports.c",
    "views.c",
    "interchange.c",
    "arrow.c",
];
/// The number of cases in the sources.
const CASES: usize = 43;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_api")
}

/// The kernels that the cases of signals launch.
fn signal_kernels() -> PathBuf {
    root().join("cuda-mem/src/driver/kernels/signal.ptx")
}

/// Builds the program with a compiler and a C standard. Returns its path.
fn build(name: &str, compiler: &str, arguments: &[&str], link: &[String]) -> PathBuf {
    std::fs::create_dir_all(folder()).expect("the folder for temporary files is writable");
    let program = folder().join(name);
    let sources = SOURCES.map(|source| root().join("ffi-tests/c/api").join(source));
    run(Command::new(compiler)
        .args(arguments)
        .args(WARNINGS)
        .arg(format!("-I{}", root().join("include").display()))
        .args(sources)
        .arg("-o")
        .arg(&program)
        .args(link)
        .args(["-lpthread", "-ldl", "-lm"]));
    program
}

/// Runs every case of a program. Returns their number.
fn run_cases(program: &Path, library: &Library) -> usize {
    run_cases_with(program, library, |_| ())
}

/// Runs every case of a program, each as `set` changes its command. Returns their number.
fn run_cases_with(program: &Path, library: &Library, set: impl Fn(&mut Command)) -> usize {
    let names = run(&mut Command::new(program));
    for case in names.lines() {
        let mut command = Command::new(program);
        command.env("SIGNAL_PTX", signal_kernels());
        set(&mut command);
        library.choose_driver(&mut command);
        print!("{case}: {}", run(command.arg(case)));
        println!("passed");
    }
    names.lines().count()
}

#[test]
fn every_case_passes_with_the_shared_and_the_static_library() {
    let library = Library::build();
    let shared = library.link_shared();
    for (compiler, standard) in [("gcc", "-std=c11"), ("clang", "-std=c17")] {
        if is_there(compiler) {
            let program = build(&format!("shared-{compiler}"), compiler, &[standard, "-g"], &shared);
            assert_eq!(run_cases(&program, &library), CASES);
        }
    }
    if is_there("gcc") {
        let program = build("static-gcc", "gcc", &["-std=c11", "-g"], &library.link_static());
        assert_eq!(run_cases(&program, &library), CASES);
    }
}

/// Only the program is compiled with the sanitizers. In the library they see only malloc and the functions that copy
/// bytes.
#[test]
fn no_case_does_what_the_sanitizers_know() {
    if !is_there("gcc") {
        return;
    }
    let library = Library::build();
    let link = library.link_shared();
    let flags = [&["-std=c11", "-g"], &SANITIZERS[..]].concat();
    let program = build("sanitized", "gcc", &flags, &link);
    assert_eq!(run_cases_with(&program, &library, look_for_leaks), CASES);
}

/// All cases run in one process, so that valgrind reads the library's debugging information once.
#[test]
fn no_case_does_what_valgrind_knows() {
    if !is_there("gcc") || !is_there("valgrind") {
        return;
    }
    let library = Library::build();
    let link = library.link_shared();
    // The debugging format that current valgrind versions can read from each compiler.
    let program = build("valgrind", "gcc", &["-std=c11", "-gdwarf-4"], &link);
    let names = run(&mut Command::new(&program));
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--error-exitcode=9", "--trace-children=yes", "--fair-sched=yes"])
        .args(["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
        .arg(&program)
        .args(names.lines())
        .env("SIGNAL_PTX", signal_kernels());
    // valgrind does not know enough about hardware drivers.
    library.choose_software(&mut command);
    println!("{}", run(&mut command));
}
