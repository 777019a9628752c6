//! Helpers for the tests of the command.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::path::PathBuf;
use std::process::{Command, Output};

/// The command without the environment variables that would choose a driver.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuda-mem"));
    command.args(arguments).env_remove("CUDA_VISIBLE_DEVICES");
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CUDA_MEM_", "SOFTGPU_", "VKGDR_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command
}

/// The command on the software GPU.
pub fn on_software(arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.env("CUDA_MEM_LIBCUDA", "softgpu");
    command
}

/// The exit status and the output of the command.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

pub fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ended = Ended { code: output.status.code(), out: text(output.stdout), error: text(output.stderr) };
    assert!(!ended.error.contains("panicked"), "{}", ended.error);
    ended
}

/// A file that is removed with this value.
pub struct Temporary(PathBuf);

impl Temporary {
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = std::env::temp_dir().join(format!("cuda-mem-command-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
