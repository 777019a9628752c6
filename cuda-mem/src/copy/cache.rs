//! Where profiles are saved between runs.

use super::profile::MachineProfile;
use crate::{Device, descriptor};
use cuda_sys::load::environment;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, renameat, unlinkat};
use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
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
        if identity.software && *self == ProfileCache::User {
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

/// The machine and device of a profile.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub device: String,
    pub device_name: String,
    pub cpu: String,
    pub processors: usize,
    pub software: bool,
}

impl Identity {
    pub fn of(device: &Device) -> crate::Result<Self> {
        let device_name = device.name()?;
        Ok(Self {
            device: device.uuid()?.to_string(),
            software: device_name.starts_with("softgpu"),
            device_name,
            cpu: cpu_name(),
            processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
        })
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

    /// A profile of this machine and device without figures.
    pub fn empty_profile(&self) -> MachineProfile {
        MachineProfile {
            device: self.device.clone(),
            device_name: self.device_name.clone(),
            cpu: self.cpu.clone(),
            processors: self.processors,
            ..MachineProfile::empty()
        }
    }
}

/// The CPU's name, as the system reports it.
fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name =
        text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim()));
    name.unwrap_or(env::consts::ARCH).to_owned()
}

/// Reads the profile in a file. `None` unless the profile is valid and describes this machine. It reads only regular
/// files: it follows no link, and does not block on a pipe.
pub(super) fn read(file: &Path, identity: &Identity) -> Option<MachineProfile> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(CWD, file, flags, Mode::empty()).ok()?;
    if FileType::from_raw_mode(fstat(&file).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut text = Vec::new();
    File::from(file).take(LONGEST).read_to_end(&mut text).ok()?;
    let profile: MachineProfile = serde_json::from_slice(&text).ok()?;
    (profile.is_valid() && identity.matches(&profile)).then_some(profile)
}

/// Saves a profile. Concurrent readers see the old or the new file, complete. In a directory that others may write,
/// they cannot predict the temporary name or put a link in its place. A link under the file's own name is replaced, not
/// followed.
pub(super) fn write(file: &Path, profile: &MachineProfile) -> io::Result<()> {
    let (directory, name) = (file.parent().filter(|path| !path.as_os_str().is_empty()), file.file_name());
    let (directory, name) = (directory.unwrap_or(Path::new(".")), name.ok_or(io::ErrorKind::InvalidInput)?);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory: OwnedFd = openat(CWD, directory, flags, Mode::empty())?;
    let random = descriptor::random().map_err(io::Error::other)?;
    let temporary = format!(".{:032x}.new", u128::from_ne_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let text = serde_json::to_vec_pretty(profile)?;
    let mut made = File::from(openat(&directory, &temporary, flags, Mode::RUSR | Mode::WUSR)?);
    let written = made.write_all(&text).and_then(|()| Ok(renameat(&directory, &temporary, &directory, name)?));
    if written.is_err() {
        let _ = unlinkat(&directory, &temporary, AtFlags::empty());
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn identity() -> Identity {
        Identity {
            device: "GPU-1".into(),
            device_name: "a device".into(),
            cpu: "A CPU (R) @ 2.0".into(),
            processors: 4,
            software: false,
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
        let software = Identity { software: true, ..identity() };
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
        rustix::fs::mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read(&file, &identity()), None);
        write(&file, &other).unwrap();
        assert_eq!(read(&file, &identity()), Some(other));
        fs::remove_dir_all(&directory).unwrap();
    }
}
