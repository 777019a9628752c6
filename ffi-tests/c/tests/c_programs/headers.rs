//! The headers compile as C and C++ and agree with each other, and a C program links libcudamem.

use std::path::Path;
use std::process::Command;
use testkit::c_library::Library;
use testkit::compilers::{WARNINGS, c_headers, is_there, root, run};

#[test]
fn all_headers_together_compile_as_c_and_cpp_without_a_warning() {
    for (compiler, language, standards) in [
        ("gcc", "c", ["c11", "c17"]),
        ("clang", "c", ["c11", "c17"]),
        ("g++", "c++", ["c++17", "c++20"]),
        ("clang++", "c++", ["c++17", "c++20"]),
    ] {
        if !is_there(compiler) {
            continue;
        }
        for standard in standards {
            let others =
                ["wrapper.h", "include/vkgdr.h", "cuda-sys/wrapper.h", "vkgdr-sys/wrapper.h", "ucx-sys/wrapper.h"];
            for header in c_headers().into_iter().chain(others.map(|header| root().join(header))) {
                let mut command = Command::new(compiler);
                command.args(["-x", language, &format!("-std={standard}"), "-fsyntax-only"]).args(WARNINGS);
                run(command.arg(header));
            }
        }
    }
}

#[test]
fn the_two_vkgdr_headers_have_the_same_constants() {
    if !is_there("gcc") {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut programs = Vec::new();
    for (name, header) in [("user", "include/vkgdr.h"), ("raw", "vkgdr-sys/wrapper.h")] {
        let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
        let flags = ["CURRENT_CONTEXT", "FORCE_NON_COHERENT", "REQUIRE_COHERENT"];
        let prints: String = flags.map(|flag| format!("printf(\"%d \", (int)VKGDR_OPEN_{flag}_BIT);")).concat();
        let header = root().join(header);
        let text =
            format!("#include \"{}\"\n#include <stdio.h>\nint main(void) {{ {prints} return 0; }}\n", header.display());
        std::fs::write(&source, text).expect("the folder for temporary files is writable");
        run(Command::new("gcc").args(WARNINGS).arg("-o").arg(&program).arg(&source));
        programs.push(run(&mut Command::new(&program)));
    }
    assert_eq!(programs[0], "1 2 4 ");
    assert_eq!(programs[1], programs[0]);
}

#[test]
fn a_c_program_links_libcudamem_and_gets_codes_and_messages() {
    if !is_there("gcc") {
        return;
    }
    let library = Library::build();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join("c_program");
    let source = root().join("ffi-tests/c/errors.c");
    run(Command::new("gcc")
        .args(["-std=c11", "-o"])
        .arg(&program)
        .args(WARNINGS)
        .arg(format!("-I{}", root().join("include").display()))
        .arg(&source)
        .args(library.link_shared()));
    let text = run(Command::new(&program).env("CUDA_MEM_LIBCUDA", "/nowhere/libcuda.so.1"));
    assert!(text.contains("/nowhere/libcuda.so.1"), "{text}");
}
