//! The C library as programs in C get it: installed, linked, and given a driver.

use crate::compilers::{root, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The C library, installed by `scripts/install`, and the software GPU as a library.
#[derive(Debug, Clone)]
pub struct Library {
    prefix: PathBuf,
    softgpu: PathBuf,
}

impl Library {
    /// Takes what `CUDAMEM_PREFIX` and `SOFTGPU_LIBRARY` name, as scripts/test has built it, and builds what they do not.
    ///
    /// # Panics
    ///
    /// The build fails.
    pub fn build() -> Self {
        static BUILT: OnceLock<Library> = OnceLock::new();
        let named = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let built = BUILT.get_or_init(|| Library {
            prefix: named("CUDAMEM_PREFIX").unwrap_or_else(install),
            softgpu: named("SOFTGPU_LIBRARY").unwrap_or_else(build_softgpu),
        });
        built.clone()
    }

    /// Where it is installed.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Where the libraries are.
    pub fn folder(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// The shared library.
    pub fn shared(&self) -> PathBuf {
        self.folder().join("libcudamem.so")
    }

    /// The static library.
    pub fn static_library(&self) -> PathBuf {
        self.folder().join("libcudamem.a")
    }

    /// The software GPU.
    pub fn softgpu(&self) -> &Path {
        &self.softgpu
    }

    /// What links the shared library.
    pub fn link_shared(&self) -> Vec<String> {
        let folder = self.folder();
        vec![format!("-L{}", folder.display()), "-lcudamem".to_owned(), format!("-Wl,-rpath,{}", folder.display())]
    }

    /// What links the static library.
    pub fn link_static(&self) -> Vec<String> {
        vec![self.static_library().display().to_string()]
    }

    /// Lets a program run over the driver that the environment names, else over the system's, else over the software GPU: then
    /// it is true.
    pub fn choose_driver(&self, command: &mut Command) -> bool {
        let named = std::env::var_os("CUDA_MEM_LIBCUDA").filter(|name| !name.is_empty() && name != "softgpu");
        let system = cuda_mem::Driver::load().is_ok_and(|driver| &*driver.provider().library != "softgpu");
        let software = named.is_none() && !system;
        if software {
            self.choose_software(command);
        }
        software
    }

    /// Lets a program run over the software GPU.
    pub fn choose_software(&self, command: &mut Command) {
        command.env("CUDA_MEM_LIBCUDA", &self.softgpu).env("CUDA_MEM_LIBVKGDR", &self.softgpu);
    }
}

/// What builds a program with the sanitizers of memory, of leaks, and of undefined behaviour.
pub const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Lets a program that was built with [`SANITIZERS`] look for leaks at its end, whatever is found being an error. Where it cannot,
/// says so.
///
/// # Panics
///
/// A program that leaks is not found out, or leaks cannot be looked for in CI.
pub fn look_for_leaks(command: &mut Command) {
    static CAN: OnceLock<bool> = OnceLock::new();
    let can = *CAN.get_or_init(can_look_for_leaks);
    command.env("ASAN_OPTIONS", format!("detect_leaks={}", i32::from(can)));
}

/// Whether the sanitizer may stop the program's threads, which containers may forbid: tried with a program that leaks.
fn can_look_for_leaks() -> bool {
    let source =
        "#include <stdlib.h>\nint main(void) { void *volatile lost = malloc(7); lost = NULL; return lost != NULL; }\n";
    let folder = target_folder().join("tmp").join(format!("leaks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the build's folder is writable");
    let (file, program) = (folder.join("leaks.c"), folder.join("leaks"));
    std::fs::write(&file, source).expect("the build's folder is writable");
    run(Command::new("gcc").args(SANITIZERS).arg(&file).arg("-o").arg(&program));
    let output = Command::new(&program).env("ASAN_OPTIONS", "detect_leaks=1").output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    let _ = std::fs::remove_dir_all(&folder);
    if text.contains("LeakSanitizer has encountered a fatal error") {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "leaks cannot be looked for:\n{text}");
        println!("skipped: leaks of C programs: ptrace is not allowed here: docker run --cap-add=SYS_PTRACE");
        return false;
    }
    assert!(!output.status.success() && text.contains("7 byte(s) leaked"), "a leak was not found:\n{text}");
    true
}

fn install() -> PathBuf {
    let prefix = target_folder().join("tmp/prefix");
    run(Command::new(root().join("scripts/install")).args(["--profile", "dev", "--prefix"]).arg(&prefix));
    prefix
}

fn build_softgpu() -> PathBuf {
    // Apart from the workspace's own build, as scripts/install does.
    let target = target_folder().join("install");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "softgpu-cdylib", "--manifest-path"]).arg(root().join("Cargo.toml"));
    run(cargo.arg("--target-dir").arg(&target));
    target.join("debug/libsoftgpu.so")
}

/// The folder of the build, in which this test's executable lies.
pub fn target_folder() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    executable.ancestors().nth(3).map_or_else(std::env::temp_dir, Path::to_path_buf)
}
