//! The examples in C and C++: each is built by each compiler and standard, with all warnings as errors, and run over the driver
//! that the environment names, else over the software GPU as a library.

use ffi_tests::c_library::Library;
use ffi_tests::compilers::{STRICT, is_there, root, run};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lines that matter of what an example prints.
const PRINTED: [(&str, &[&str]); 4] = [
    (
        "c/dlpack.c",
        &[
            "page-locked: the consumer sees 2 x 3 numbers, whose sum is 15",
            "afterwards: 1 2 3 4 5 6",
            "on the device: the consumer sees 2 x 3 numbers, whose sum is 15",
            "unchanged: 0 1 2 3 4 5",
            "the producer's tensor ends",
            "on the device, turned: 1 3 5 2 4 6",
        ],
    ),
    (
        "c/hello_mapped.c",
        &[
            "libcudamem 0.1.0, CUDA ",
            "the device sees: Hello from the CPU",
            "the CPU sees:    Hello from the device",
            "flag 100000, ",
        ],
    ),
    ("cpp/hello_mapped.cpp", &["the device sees: 1 2 3 4", "the CPU sees:    42 42 42 42"]),
    (
        "cpp/pmr_pool.cpp",
        &["memory: 2 times, in ", "the device has 1048576 samples, the last is 0.5", "0 blocks are left"],
    ),
];

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_examples");
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    folder
}

/// All sources of a language.
fn sources(language: &str) -> Vec<PathBuf> {
    let folder = root().join("examples").join(language);
    let entries = std::fs::read_dir(folder).expect("the examples are there");
    let mut sources: Vec<_> = entries.map(|entry| entry.expect("the folder is readable").path()).collect();
    sources.retain(|path| path.extension() == Some(OsStr::new(language)));
    sources.sort();
    sources
}

fn build_and_run(language: &str, compilers: &[(&str, &str)]) {
    let library = Library::build();
    let link = library.link_shared(&folder());
    let sources = sources(language);
    for (name, _) in PRINTED.iter().filter(|(name, _)| name.starts_with(&format!("{language}/"))) {
        assert!(sources.iter().any(|source| source.ends_with(name)), "{name} is missing");
    }
    for source in &sources {
        let stem = source.file_stem().unwrap_or_default().display();
        for (compiler, standard) in compilers.iter().filter(|(compiler, _)| is_there(compiler)) {
            let program = folder().join(format!("{stem}-{compiler}{standard}"));
            let mut command = Command::new(compiler);
            command.arg(standard).args(STRICT).arg("-I").arg(root().join("include")).arg(source);
            run(command.arg("-o").arg(&program).args(&link).args(["-lpthread", "-ldl"]));

            let mut command = Command::new(&program);
            library.choose_driver(&mut command);
            let printed = run(&mut command);
            for (_, lines) in PRINTED.iter().filter(|(name, _)| source.ends_with(name)) {
                for line in *lines {
                    assert!(printed.lines().any(|one| one.starts_with(line)), "{program:?}: no {line:?} in {printed}");
                }
            }
        }
        let Some((compiler, standard)) = compilers.iter().find(|(compiler, _)| is_there(compiler)) else { continue };
        says_what_is_missing(&folder().join(format!("{stem}-{compiler}{standard}")));
    }
}

/// Without a driver an example ends with 1, and says so.
fn says_what_is_missing(program: &Path) {
    let output = Command::new(program).env("CUDA_MEM_LIBCUDA", "/there/is/none.so").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{program:?}: {text}");
    assert!(text.contains("cannot load the CUDA driver") && text.contains("/there/is/none.so"), "{program:?}: {text}");
}

#[test]
fn examples_in_c() {
    build_and_run("c", &[("gcc", "-std=c11"), ("clang", "-std=c17")]);
}

#[test]
fn examples_in_cpp() {
    build_and_run("cpp", &[("g++", "-std=c++17"), ("clang++", "-std=c++20"), ("g++", "-std=c++23")]);
}
