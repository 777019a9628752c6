//! The C library as programs in C get it: built, linked, and given a driver.

use crate::compilers::{root, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The C library and the software GPU, built as libraries.
#[derive(Debug, Clone)]
pub struct Library {
    folder: PathBuf,
}

impl Library {
    /// Builds both, apart from the workspace's own build: there the C library may be built with features that tests ask for.
    ///
    /// # Panics
    ///
    /// Cargo fails.
    pub fn build() -> Self {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        let folder = FOLDER.get_or_init(|| {
            let target = target_folder().join("cudamem");
            for package in ["cudamem", "softgpu-cdylib"] {
                let mut cargo = Command::new(env!("CARGO"));
                cargo
                    .args(["build", "--quiet", "--package", package, "--manifest-path"])
                    .arg(root().join("Cargo.toml"));
                run(cargo.arg("--target-dir").arg(&target));
            }
            target.join("debug")
        });
        Self { folder: folder.clone() }
    }

    /// The shared library.
    pub fn shared(&self) -> PathBuf {
        self.folder.join("libcudamem.so")
    }

    /// What links the shared library, under its name at run time, which is made in `folder`.
    ///
    /// # Panics
    ///
    /// The folder is not writable.
    pub fn link_shared(&self, folder: &Path) -> Vec<String> {
        std::fs::create_dir_all(folder).expect("the folder is writable");
        let link = folder.join("libcudamem.so.0.1");
        // Another test may be making the same one.
        let fresh = folder.join(format!("libcudamem.so.{}.{:?}", std::process::id(), std::thread::current().id()));
        std::os::unix::fs::symlink(self.shared(), &fresh).expect("the folder is writable");
        std::fs::rename(&fresh, &link).expect("the folder is writable");
        vec![link.display().to_string(), format!("-Wl,-rpath,{}", folder.display())]
    }

    /// What links the static library.
    pub fn link_static(&self) -> Vec<String> {
        vec![self.folder.join("libcudamem.a").display().to_string()]
    }

    /// Lets a program run over the driver that the environment names, else over the system's, else over the software GPU.
    pub fn choose_driver(&self, command: &mut Command) {
        let named = std::env::var_os("CUDA_MEM_LIBCUDA").filter(|name| !name.is_empty() && name != "softgpu");
        let system = cuda_mem::Driver::load().is_ok_and(|driver| &*driver.provider().library != "softgpu");
        if named.is_none() && !system {
            let software = self.folder.join("libsoftgpu.so");
            command.env("CUDA_MEM_LIBCUDA", &software).env("CUDA_MEM_LIBVKGDR", &software);
        }
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

/// Where this test's executable lies, in the folder of the build.
fn target_folder() -> PathBuf {
    let executable = std::env::current_exe().unwrap_or_default();
    let folder = executable.ancestors().nth(3).map_or_else(std::env::temp_dir, Path::to_path_buf);
    folder.join("tmp")
}
