//! What softgpu reported of a program and the programs that it started: one line for each misuse, in a file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

/// The most lines that are printed.
const MOST: usize = 20;

/// The file, which ends with this value.
pub(crate) struct Report {
    path: PathBuf,
}

impl Report {
    pub(crate) fn new() -> Result<Self, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = std::env::temp_dir().join(format!("softgpu-{}-{now}", process::id()));
        // The program may change its folder before it starts the driver, and TMPDIR may be empty.
        let path = std::path::absolute(&path).unwrap_or(path);
        let made = File::create_new(&path);
        made.map_err(|error| format!("{} cannot be made, for the report: {error}: set TMPDIR", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Prints what was reported. Returns whether anything was.
    pub(crate) fn print(&self) -> Result<bool, String> {
        let text = std::fs::read(&self.path);
        let text = text.map_err(|error| format!("the report {} cannot be read: {error}", self.path.display()))?;
        let text = String::from_utf8_lossy(&text);
        let count = text.lines().count();
        if count > 0 {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            eprintln!("softgpu: the program misused the GPU {times}:");
            text.lines().take(MOST).for_each(|line| eprintln!("softgpu:   {line}"));
        }
        if count > MOST {
            eprintln!("softgpu:   and {} more", count - MOST);
        }
        Ok(count > 0)
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
