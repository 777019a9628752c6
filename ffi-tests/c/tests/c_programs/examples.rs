//! The examples in C and C++, and the programs in README and guide. Each is built with all warnings as errors, and run
//! over the driver that the environment names, else over the software GPU as a library.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::c_library::Library;
use testkit::compilers::{STRICT, is_there, root, run};

/// The expected lines of each example's output.
const PRINTED: [(&str, &[&str]); 5] = [
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
            concat!("libcudamem ", env!("CARGO_PKG_VERSION"), ", CUDA "),
            "the device sees: Hello from the CPU",
            "the CPU sees:    Hello from the device",
            "flag 100000, ",
        ],
    ),
    (
        "c/share_vram.c",
        &[
            "child: the second half begins with 512, 513, 514",
            "child: the parent's CPU wrote \"hello from the parent\"",
            "parent: the child has changed its half, and wrote \"and hello from the child\"",
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

/// All sources in a language.
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
    let link = library.link_shared();
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

/// Without a driver an example must end with status 1 and say what is missing.
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

/// clang compiles the kernels to PTX, which needs no CUDA, and a C++ compiler compiles the host's part.
#[test]
fn an_example_in_cuda() {
    if !is_there("clang++") || !is_there("g++") {
        return;
    }
    let library = Library::build();
    let source = root().join("examples/cuda/flag_and_ring.cu");
    let ptx = folder().join("flag_and_ring.ptx");
    let device = ["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-Wno-unknown-cuda-version"];
    let architecture = ["--cuda-gpu-arch=sm_70", "-Xclang", "-target-feature", "-Xclang", "+ptx63"];
    let include = format!("-I{}", root().join("include").display());
    let mut command = Command::new("clang++");
    command.args(device).args(architecture).args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", &include, "-S"]);
    run(command.arg(&source).arg("-o").arg(&ptx));

    let program = folder().join("flag_and_ring");
    let mut command = Command::new("g++");
    command.args(["-x", "c++", "-std=c++17"]).args(STRICT).arg(&include).arg(&source).args(["-x", "none"]);
    run(command.arg("-o").arg(&program).args(library.link_shared()).args(["-lpthread", "-ldl"]));

    let mut command = Command::new(&program);
    library.choose_driver(&mut command);
    let printed = run(command.arg(&ptx));
    for line in ["flag: 2000 answers, ", "ring: 100000 items and back, ", "the kernel has closed its end: yes"] {
        assert!(printed.lines().any(|one| one.starts_with(line)), "no {line:?} in {printed}");
    }
    says_what_is_missing(&program);
}

/// The complete programs in a language within a document.
fn programs(document: &str, language: &str) -> Vec<String> {
    let fence = format!("\n```{language}\n");
    let blocks = document.split(&fence).skip(1);
    blocks.filter_map(|block| block.split_once("\n```")).map(|(program, _)| format!("{program}\n")).collect()
}

#[test]
fn programs_of_the_readme_and_the_guide() {
    let library = Library::build();
    // For a program that opens the driver by its name.
    let driver = folder().join("driver");
    std::fs::create_dir_all(&driver).expect("the folder is writable");
    let _ = std::fs::remove_file(driver.join("libcuda.so.1"));
    std::os::unix::fs::symlink(library.softgpu(), driver.join("libcuda.so.1")).expect("the folder is writable");

    let guide = std::fs::read_dir(root().join("docs/guide")).expect("the guide is there");
    let mut documents: Vec<_> = guide.map(|entry| entry.expect("the folder is readable").path()).collect();
    documents.push(root().join("README.md"));
    let mut count = 0;
    for document in documents {
        let text = std::fs::read_to_string(&document).expect("the document is text");
        let name = document.file_stem().unwrap_or_default().display();
        let compilers = [
            ("c", "clang", "-std=c17"),
            ("c", "gcc", "-std=c11"),
            ("cpp", "clang++", "-std=c++20"),
            ("cpp", "g++", "-std=c++17"),
        ];
        for (language, compiler, standard) in compilers {
            // The code of kernels, for the programs after it.
            let mut kernels = None;
            for (number, program) in programs(&text, language).iter().enumerate() {
                count += 1;
                if !is_there(compiler) {
                    continue;
                }
                let source = folder().join(format!("{name}-{number}.{language}"));
                std::fs::write(&source, program).expect("the folder is writable");
                let built = source.with_extension(format!("{language}-{compiler}"));
                let mut command = Command::new(compiler);
                // The compilers issue some warnings only with optimisation.
                command.args([standard, "-O2"]).args(STRICT).arg("-I").arg(root().join("include")).arg(&source);
                if !program.contains("int main(") {
                    run(command.args(["-shared", "-fPIC", "-o"]).arg(&built));
                    kernels = Some(built);
                    continue;
                }
                run(command.arg("-o").arg(&built).args(library.link_shared()).args(["-lpthread", "-ldl"]));
                let mut command = Command::new(&built);
                command.envs(kernels.iter().map(|kernels| ("SOFTGPU_KERNELS", kernels)));
                if library.choose_driver(&mut command) {
                    command.env("LD_LIBRARY_PATH", &driver);
                }
                run(&mut command);
            }
        }
    }
    assert!(count >= 10, "only {count} programs were built, each by two compilers");
}
