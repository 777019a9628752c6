//! The folder of the libraries, which depends on how softgpu is installed.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The name by which programs load the driver.
pub(crate) const DRIVER: &str = "libcuda.so.1";

/// Finds the folder: that of this program, as in a Python package, or the installed one of the same prefix.
pub(crate) fn folder() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("the path of this program is unknown: {error}"))?;
    let own = program.parent().unwrap_or(Path::new("/"));
    let found = find(own).ok_or_else(|| {
        let (own, libraries) = (own.display(), own.with_file_name("lib").display().to_string());
        format!(
            "{DRIVER} is missing: neither {own}, nor {libraries}/.../cudamem/softgpu, nor {libraries}64/.../cudamem/softgpu has \
             it: install softgpu by scripts/install, the Debian package libcudamem-softgpu, or the Python package \
             cuda-mem-softgpu"
        )
    })?;
    if found.as_os_str().as_bytes().iter().any(|byte| b":;".contains(byte)) {
        return Err(format!(
            "LD_LIBRARY_PATH cannot name {}, because `:` and `;` separate folders there: install softgpu in another folder",
            found.display()
        ));
    }
    Ok(found)
}

fn find(own: &Path) -> Option<PathBuf> {
    // Some distributions have the second one.
    let installed = ["lib", "lib64"].into_iter().flat_map(|name| {
        let libraries = own.with_file_name(name);
        // Debian has a folder for each architecture.
        let inner = std::fs::read_dir(&libraries).into_iter().flatten().flatten().map(|entry| entry.path());
        [libraries].into_iter().chain(inner).map(|folder| folder.join("cudamem/softgpu"))
    });
    [own.to_path_buf()].into_iter().chain(installed).find(|folder| folder.join(DRIVER).exists())
}
