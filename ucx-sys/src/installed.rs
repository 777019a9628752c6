//! Where pip and conda put UCX, which the system's loader does not know.

use cuda_sys::load::environment;
use std::path::{Path, PathBuf};

/// The library in a folder of Python packages: where the packages libucx-cu12 and libucx-cu13 have it.
const IN_PACKAGES: &str = "libucx/lib/libucp.so.0";

/// The files to try, in the order of the search: of the environment in use, of the user, of the machine.
pub(crate) fn files() -> Vec<PathBuf> {
    let [venv, conda, home] = ["VIRTUAL_ENV", "CONDA_PREFIX", "HOME"].map(|name| environment(name).map(PathBuf::from));
    let machine = ["/usr/local", "/usr"].map(PathBuf::from);
    let prefixes = venv.into_iter().chain(conda).chain(home.map(|home| home.join(".local"))).chain(machine);
    prefixes.flat_map(|prefix| in_prefix(&prefix)).collect()
}

/// The library below a prefix, where conda has it, and those of all its Pythons, the newest first. If there is none, the
/// pattern of the latter's paths, so that the error of the search names it.
fn in_prefix(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for libraries in ["lib", "lib64"].map(|folder| prefix.join(folder)) {
        let mut pythons: Vec<(u32, PathBuf)> = std::fs::read_dir(&libraries)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| python(entry.path()))
            .collect();
        pythons.sort_unstable_by(|one, other| other.cmp(one));
        let packages =
            pythons.iter().flat_map(|(_, python)| ["site-packages", "dist-packages"].map(|name| python.join(name)));
        let of_pip = packages.map(|packages| packages.join(IN_PACKAGES));
        let of_conda = libraries.join("libucp.so.0");
        found.extend(std::iter::once(of_conda).chain(of_pip).filter(|file| file.exists()));
    }
    if found.is_empty() {
        found.push(prefix.join("lib/python3*/site-packages").join(IN_PACKAGES));
    }
    found
}

/// A Python's folder of libraries, with its minor release; Debian's `python3` comes last.
fn python(path: PathBuf) -> Option<(u32, PathBuf)> {
    let minor = match path.file_name()?.to_str()?.strip_prefix("python3")? {
        "" => 0,
        rest => rest.strip_prefix('.')?.parse().ok()?,
    };
    Some((minor, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_python_of_a_prefix_comes_first() {
        let prefix = std::env::temp_dir().join(format!("ucx-sys-{}", std::process::id()));
        let nothing = in_prefix(&prefix);
        assert_eq!(nothing, [prefix.join("lib/python3*/site-packages/libucx/lib/libucp.so.0")]);
        let put = |path: &str| {
            let file = prefix.join("lib").join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            file
        };
        let files = [
            "libucp.so.0",
            "python3.13/site-packages/libucx/lib/libucp.so.0",
            "python3.9/site-packages/libucx/lib/libucp.so.0",
            "python3/dist-packages/libucx/lib/libucp.so.0",
        ]
        .map(put);
        std::fs::create_dir_all(prefix.join("lib/python3.14/site-packages")).unwrap();
        let found = in_prefix(&prefix);
        std::fs::remove_dir_all(&prefix).unwrap();
        assert_eq!(found, files);
    }
}
