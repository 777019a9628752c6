//! Where profiles are saved between runs.

use super::builder::CopyEngineBuilder;
use super::identity::Identity;
use super::profile::MachineProfile;
use cuda_sys::load::environment;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Far larger than any profile.
const LONGEST: u64 = 1 << 20;

/// Where an engine looks for its machine's profile and saves its measurements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileCache {
    /// The user's cache directory: `$XDG_CACHE_HOME/cuda-mem`, else `~/.cache/cuda-mem`. The environment variable
    /// `CUDA_MEM_PROFILES` overrides it with a directory or `off`. Nothing is saved for the software GPU, whose figures
    /// are meaningless, or in a program with raised privileges (set-user-id), whose environment another user controls.
    #[default]
    User,
    /// A directory that the program chooses.
    Directory(PathBuf),
    /// Reads and saves nothing.
    Off,
}

impl ProfileCache {
    /// The directory, if profiles are saved.
    fn directory(&self) -> Option<PathBuf> {
        match self {
            ProfileCache::User => {
                user_directory(environment("CUDA_MEM_PROFILES"), environment("XDG_CACHE_HOME"), environment("HOME"))
            }
            ProfileCache::Directory(path) => Some(path.clone()),
            ProfileCache::Off => None,
        }
    }

    /// The file for a device on this machine.
    pub(super) fn file(&self, identity: &Identity) -> Option<PathBuf> {
        if identity.is_software() && *self == ProfileCache::User {
            return None;
        }
        Some(self.directory()?.join(identity.file_name()))
    }
}

/// Finds the directory of [`ProfileCache::User`].
fn user_directory(named: Option<OsString>, cache: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    match named {
        Some(name) if name == "off" => None,
        Some(path) => Some(path.into()),
        None => {
            let cache = cache.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
            Some(cache.join("cuda-mem"))
        }
    }
}

impl CopyEngineBuilder {
    /// Where profiles are saved.
    pub fn profile_cache(mut self, cache: ProfileCache) -> Self {
        self.cache = cache;
        self
    }
}

impl Identity {
    fn is_software(&self) -> bool {
        self.device_name.starts_with("softgpu")
    }

    fn file_name(&self) -> String {
        let plain = |text: &str| -> String {
            let letters = text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
            letters.collect::<String>().split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
        };
        format!("{}_{}_{}.json", plain(&self.device), plain(&self.cpu), self.processors)
    }

    /// Whether a profile describes this machine and device.
    fn matches(&self, profile: &MachineProfile) -> bool {
        profile.device == self.device && profile.cpu == self.cpu && profile.processors == self.processors
    }
}

/// Reads the profile in a file. `None` unless the profile is valid and describes this machine. It reads only regular
/// files: it follows no link, and does not block on a pipe.
pub(super) fn read(file: &Path, identity: &Identity) -> Option<MachineProfile> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    let profile: MachineProfile = serde_json::from_slice(&text).ok()?;
    (profile.is_valid() && identity.matches(&profile)).then_some(profile)
}

/// Saves a profile. Concurrent readers see the old or the new file, complete. In a directory that others may write,
/// they cannot predict the temporary name or put a link in its place. A link under the file's own name is replaced, not
/// followed.
pub(super) fn write(file: &Path, profile: &MachineProfile) -> io::Result<()> {
    let directory = file.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let random = [(); 2].map(|()| RandomState::new().hash_one(file));
    let temporary = directory.join(format!(".{:016x}{:016x}.new", random[0], random[1]));
    let text = serde_json::to_vec_pretty(profile)?;
    // A new file: `O_EXCL` follows no link.
    let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = made.write_all(&text).and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn identity() -> Identity {
        Identity {
            device: "GPU-1".into(),
            device_name: "a device".into(),
            cpu: "A CPU (R) @ 2.0".into(),
            processors: 4,
        }
    }

    #[test]
    fn the_directory_is_the_users_unless_another_is_named() {
        let text = |text: &str| Some(OsString::from(text));
        assert_eq!(user_directory(None, text("/c"), text("/h")), Some("/c/cuda-mem".into()));
        assert_eq!(user_directory(None, text("relative"), text("/h")), Some("/h/.cache/cuda-mem".into()));
        assert_eq!(user_directory(text("/p"), text("/c"), text("/h")), Some("/p".into()));
        assert_eq!(user_directory(text("off"), text("/c"), text("/h")), None);
        assert_eq!(user_directory(None, None, None), None);
    }

    #[test]
    fn the_software_gpu_leaves_no_file_in_the_users_directory() {
        let software = Identity { device_name: "softgpu".into(), ..identity() };
        assert_eq!(ProfileCache::User.file(&software), None);
        assert_eq!(ProfileCache::Off.file(&identity()), None);
        let file = ProfileCache::Directory("/x".into()).file(&software);
        assert_eq!(file, Some("/x/GPU-1_A-CPU-R-2-0_4.json".into()));
    }

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn a_profile_is_read_again_and_what_is_none_of_this_machine_is_not() {
        let directory = env::temp_dir().join(format!("cuda-mem-profiles-{}", std::process::id()));
        let cache = ProfileCache::Directory(directory.clone());
        let file = cache.file(&identity()).unwrap();
        assert_eq!(read(&file, &identity()), None);
        let profile = MachineProfile { routes: MachineProfile::typical().routes, ..identity().empty_profile() };
        write(&file, &profile).unwrap();
        assert_eq!(read(&file, &identity()), Some(profile.clone()));
        assert_eq!(read(&file, &Identity { processors: 8, ..identity() }), None);
        for broken in ["", "{", "null", "{\"format\": 1}"] {
            fs::write(&file, broken).unwrap();
            assert_eq!(read(&file, &identity()), None, "{broken}");
        }
        fs::write(&file, vec![b' '; 2 * LONGEST as usize]).unwrap();
        assert_eq!(read(&file, &identity()), None, "a file without end is not read to its end");
        write(&file, &profile).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing else is left");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(&directory).unwrap();
        fs::write(&directory, "a file, not a directory").unwrap();
        assert!(write(&file, &profile).is_err());
        fs::remove_file(&directory).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "writes files")]
    fn what_others_planted_is_neither_followed_nor_waited_for() {
        let directory = env::temp_dir().join(format!("cuda-mem-planted-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (victim, file) = (directory.join("victim"), ProfileCache::Directory(directory.clone()).file(&identity()));
        let file = file.unwrap();
        let profile = MachineProfile { routes: MachineProfile::typical().routes, ..identity().empty_profile() };
        fs::write(&victim, serde_json::to_vec(&profile).unwrap()).unwrap();
        let before = fs::read(&victim).unwrap();
        // The profile's name, and a temporary name that once could be predicted.
        symlink(&victim, &file).unwrap();
        let foreseen = file.with_extension(format!("{}.new", std::process::id()));
        symlink(&victim, &foreseen).unwrap();
        assert_eq!(read(&file, &identity()), None, "a link is not followed");
        let other = MachineProfile { device_name: "another".into(), ..profile };
        write(&file, &other).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), before, "another file was written through a link");
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert!(fs::symlink_metadata(&foreseen).unwrap().is_symlink());
        assert_eq!(read(&file, &identity()), Some(other.clone()));
        // A pipe without a writer.
        fs::remove_file(&file).unwrap();
        let path = std::ffi::CString::new(file.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert_eq!(read(&file, &identity()), None);
        write(&file, &other).unwrap();
        assert_eq!(read(&file, &identity()), Some(other));
        fs::remove_dir_all(&directory).unwrap();
    }
}
