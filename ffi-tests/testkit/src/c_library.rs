//! The C library as C programs use it: installed, linked, and with a driver.

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
    /// Uses the libraries that `CUDAMEM_PREFIX` and `SOFTGPU_LIBRARY` name, as scripts/test has built them, or installs
    /// them.
    ///
    /// # Panics
    ///
    /// The build fails.
    pub fn build() -> Self {
        static BUILT: OnceLock<Library> = OnceLock::new();
        let named = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let built = BUILT.get_or_init(|| {
            let prefix = named("CUDAMEM_PREFIX").unwrap_or_else(install);
            let softgpu = prefix.join("lib/cudamem/softgpu/libsoftgpu.so");
            Library { softgpu: named("SOFTGPU_LIBRARY").unwrap_or(softgpu), prefix }
        });
        built.clone()
    }

    /// The folder in which it is installed.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The folder of the libraries.
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

    /// Compiler arguments that link the shared library.
    pub fn link_shared(&self) -> Vec<String> {
        let folder = self.folder();
        vec![format!("-L{}", folder.display()), "-lcudamem".to_owned(), format!("-Wl,-rpath,{}", folder.display())]
    }

    /// Compiler arguments that link the static library.
    pub fn link_static(&self) -> Vec<String> {
        vec![self.static_library().display().to_string()]
    }

    /// Lets a program use the driver that the environment names, else the system's driver, else the software GPU.
    /// Returns true if it uses the software GPU.
    pub fn choose_driver(&self, command: &mut Command) -> bool {
        let named = std::env::var_os("CUDA_MEM_LIBCUDA").filter(|name| !name.is_empty() && name != "softgpu");
        let system = cuda_mem::Driver::load().is_ok_and(|driver| &*driver.provider().library != "softgpu");
        let software = named.is_none() && !system;
        if software {
            self.choose_software(command);
        }
        software
    }

    /// Lets a program use the software GPU.
    pub fn choose_software(&self, command: &mut Command) {
        command.env("CUDA_MEM_LIBCUDA", &self.softgpu).env("CUDA_MEM_LIBVKGDR", &self.softgpu);
    }
}

/// Compiler arguments for the sanitizers of memory, leaks and undefined behaviour.
pub const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Lets a program built with [`SANITIZERS`] look for leaks at its end. A leak is an error. Prints a line if the leak
/// check does not work here.
///
/// # Panics
///
/// The sanitizer does not find a planted leak, or cannot look for leaks in CI.
pub fn look_for_leaks(command: &mut Command) {
    static CAN: OnceLock<bool> = OnceLock::new();
    let can = *CAN.get_or_init(can_look_for_leaks);
    command.env("ASAN_OPTIONS", format!("detect_leaks={}", i32::from(can)));
}

/// Whether the sanitizer may stop the program's threads, which containers may forbid. A leaking program tests this.
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
    // The folders of an earlier installation would not count as made by this one.
    let _ = std::fs::remove_dir_all(&prefix);
    run(Command::new(root().join("scripts/install")).args(["--profile", "dev", "--prefix"]).arg(&prefix));
    prefix
}

/// The build folder that contains this test's executable.
pub fn target_folder() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    executable.ancestors().nth(3).map_or_else(std::env::temp_dir, Path::to_path_buf)
}
