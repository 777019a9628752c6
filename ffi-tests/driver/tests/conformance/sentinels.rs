//! Constants that cuda-sys writes in Rust, because bindgen drops macros with a cast. A C program prints their values in
//! NVIDIA's headers.

use crate::releases::releases;
use crate::toolchain::{compilers, run, scratch};
use std::process::Command;

#[test]
fn constants_written_in_rust_are_nvidias() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let Some(compiler) = compilers(&["gcc", "clang"]).first().copied() else { return };
    let expected = [
        ("CU_STREAM_LEGACY", cuda_sys::CU_STREAM_LEGACY.addr() as i64),
        ("CU_STREAM_PER_THREAD", cuda_sys::CU_STREAM_PER_THREAD.addr() as i64),
        ("CU_DEVICE_CPU", i64::from(cuda_sys::CU_DEVICE_CPU)),
        ("CU_DEVICE_INVALID", i64::from(cuda_sys::CU_DEVICE_INVALID)),
    ];
    let prints = expected.map(|(name, _)| format!("    printf(\"{name} %lld\\n\", (long long){name});\n")).concat();
    let source = format!("#include <cuda.h>\n#include <stdio.h>\nint main(void) {{\n{prints}    return 0;\n}}\n");
    let expected: String = expected.map(|(name, value)| format!("{name} {value}\n")).concat();
    for headers in releases {
        let folder = scratch("sentinels");
        let (file, program) = (folder.join(format!("{}.c", headers.release)), folder.join(headers.release.to_string()));
        std::fs::write(&file, &source).expect("the folder is writable");
        let mut compile = Command::new(compiler);
        compile.arg(format!("-I{}", headers.folder.display())).arg("-o").arg(&program).arg(&file);
        run(&mut compile).unwrap_or_else(|error| panic!("CUDA {}: {error}", headers.release));
        let seen = run(&mut Command::new(&program)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(seen, expected, "CUDA {}", headers.release);
    }
}
