//! NVIDIA's headers, as downloaded by scripts/cuda-headers.

use crate::interface::Interface;
use crate::toolchain::{root, skip};
use crate::{interface, read};
use cuda_sys::Release;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The headers of one CUDA release.
#[derive(Debug)]
pub struct Headers {
    /// The release, as cuda.h states it.
    pub release: Release,
    /// The folder with its files.
    pub folder: PathBuf,
    /// cuda.h, with the old forms of functions under their own names.
    pub driver: Interface,
    /// cudaTypedefs.h.
    pub pointers: Interface,
}

/// With this flag, cuda.h declares every form of every function under its exported name, and defines no macro that
/// renames a function.
pub const ALL_FORMS: &str = "-D__CUDA_API_VERSION_INTERNAL";

/// The available releases, oldest first. If the headers are missing, prints a line that says so and returns none.
///
/// # Panics
///
/// The headers do not parse.
pub fn releases() -> &'static [Headers] {
    static RELEASES: OnceLock<Vec<Headers>> = OnceLock::new();
    let all = RELEASES.get_or_init(|| {
        let folders = folders(&root().join(".cache/cuda-headers"));
        if folders.is_empty() || !read::has_libclang() {
            return Vec::new();
        }
        let mut all: Vec<Headers> = std::thread::scope(|scope| {
            let threads: Vec<_> = folders.iter().map(|folder| scope.spawn(|| load(folder))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a header that parses")).collect()
        });
        all.sort_by_key(|headers| headers.release);
        all
    });
    if all.is_empty() {
        skip(if read::has_libclang() {
            "CUDA headers are missing: run scripts/cuda-headers"
        } else {
            "libclang is missing: apt-get install libclang-dev"
        });
    }
    all
}

fn folders(cache: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cache).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|folder| folder.join("cuda.h").is_file()).collect()
}

fn load(folder: &Path) -> Headers {
    let flags = [ALL_FORMS.to_owned(), format!("-I{}", folder.display())];
    let read = |file: &str, names| {
        read::header(&folder.join(file), &flags, names).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    };
    let driver = read("cuda.h", read::CUDA);
    let number = driver.constants.get("CUDA_VERSION").and_then(|constant| u32::try_from(constant.value).ok());
    let release = Release::from_number(number.expect("cuda.h states its release"));
    Headers { release, folder: folder.to_owned(), driver, pointers: read("cudaTypedefs.h", read::POINTERS) }
}

/// The path of cuda-sys's wrapper.h.
pub fn wrapper() -> PathBuf {
    root().join("cuda-sys/wrapper.h")
}

/// The declarations in cuda-sys's wrapper.h.
pub fn ours() -> &'static interface::Interface {
    static OURS: OnceLock<interface::Interface> = OnceLock::new();
    OURS.get_or_init(|| read::header(&wrapper(), &[], read::CUDA).expect("wrapper.h parses"))
}

#[test]
fn the_releases_are_those_that_the_tests_are_written_for() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let of = |major: u32| releases.iter().filter(|headers| headers.release.major() == major).count();
    let names: Vec<_> = releases.iter().map(|headers| headers.release.to_string()).collect();
    let whole = of(12) >= 2 && of(13) >= 2 && names.iter().any(|name| name == "13.0");
    assert!(whole, "two releases of CUDA 12, 13.0 and a newer one: run scripts/cuda-headers; here are {names:?}");
}
