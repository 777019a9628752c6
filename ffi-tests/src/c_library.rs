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

/// Lets a program that was built with AddressSanitizer run: libraries that were loaded stay loaded, and with them what
/// describes them.
///
/// # Panics
///
/// The folder is not writable.
pub fn tolerate_known_leaks(command: &mut Command, folder: &Path) {
    // Other tests run such programs too meanwhile.
    let known = folder.join(format!("leaks.{:?}", std::thread::current().id()));
    std::fs::write(&known, "leak:cuda_sys::load::open\nleak:cuda-sys/src/load.rs\n").expect("the folder is writable");
    command.env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", known.display()));
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
