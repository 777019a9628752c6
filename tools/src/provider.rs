//! Chooses the driver. The software GPU never replaces a GPU unless the user asks for it, and nothing replaces a
//! library that the environment names.

use clap::ValueEnum;
use cuda_mem::mapped::{CoherenceWish, MappedMemory};
use cuda_mem::softgpu::{self, Settings};
use cuda_mem::{Context, Driver, Error, cuda_sys::CUresult};
use std::path::Path;

/// The environment variable that names the CUDA driver.
pub(crate) const LIBCUDA: &str = "CUDA_MEM_LIBCUDA";
/// The environment variable that names the vkgdr library.
pub(crate) const LIBVKGDR: &str = "CUDA_MEM_LIBVKGDR";

/// The provider chosen on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// The NVIDIA driver; without one, the software GPU over CPU Vulkan, or else alone
    Auto,
    /// The NVIDIA driver only
    Cuda,
    /// The software GPU over a CPU Vulkan driver (lavapipe, SwiftShader)
    Vulkan,
    /// The software GPU alone
    Software,
}

/// A device that is open for mapped memory.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) resource: MappedMemory,
    /// Why the software GPU is used instead of a GPU.
    pub(crate) notice: Option<String>,
}

/// A device that is open for its own memory.
#[derive(Debug)]
pub(crate) struct OpenedContext {
    pub(crate) context: Context,
    /// Why the software GPU is used instead of a GPU.
    pub(crate) notice: Option<String>,
    pub(crate) software: bool,
}

/// Why no driver can be used. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("--provider cuda requires NVIDIA's driver, but {LIBCUDA}={0} names the software GPU: unset one of them")]
    NamedSoftware(String),
    #[error("{0}\nRun `cuda-mem doctor` for details, or use --provider software to run without a GPU")]
    Driver(Error),
    #[error("there is no device {wanted}: this driver has {count}, numbered from 0")]
    NoSuchDevice { wanted: i32, count: usize },
    #[error(
        "there is a GPU, but its memory cannot be mapped for the CPU: {0}\nRun `cuda-mem doctor` to see what is missing, or \
         use --provider software to run without the GPU"
    )]
    Mapped(Error),
    #[error(
        "no CPU Vulkan driver works: {0}\nOn Debian and Ubuntu: apt-get install libvulkan1 mesa-vulkan-drivers; \
         VK_DRIVER_FILES can name a driver's manifest"
    )]
    Vulkan(Error),
    #[error(transparent)]
    Settings(#[from] softgpu::SettingsError),
    #[error("the software GPU failed: {0}")]
    Software(Error),
}

/// Returns an environment variable that is set and not empty.
pub(crate) fn named(variable: &str) -> Option<String> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned())
}

/// Why a driver cannot be used. If the environment names the software GPU or its library, the error is the software
/// GPU's.
fn no_driver(named: Option<&str>, error: Error) -> OpenError {
    let file = named.and_then(|name| Path::new(name).file_name());
    match file.and_then(|file| file.to_str()) {
        Some(file) if file == "softgpu" || file.starts_with("libsoftgpu.") => OpenError::Software(error),
        _ => OpenError::Driver(error),
    }
}

/// What to do, given the real driver's answer.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    UseIt,
    StandIn(String),
    Report,
}

/// The rule of `auto`: use the software GPU only if there is no driver or no device, and the environment names no
/// driver.
fn decide(named: bool, driver: &Result<usize, Error>) -> Decision {
    match driver {
        Ok(count) if *count > 0 => Decision::UseIt,
        _ if named => Decision::Report,
        Ok(_) => Decision::StandIn("the NVIDIA driver finds no GPU".to_owned()),
        Err(Error::Load(error)) => {
            let first = error.attempts.first().map_or("", |attempt| attempt.reason.as_str());
            let reason = first.rsplit_once(": ").map_or(first, |(_, last)| last).replace('\n', " ");
            let name = error.attempts.first().map_or("libcuda.so.1", |attempt| attempt.candidate.as_str());
            Decision::StandIn(format!("no NVIDIA driver was found ({name}: {reason})"))
        }
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_NO_DEVICE) => {
            Decision::StandIn("the NVIDIA driver finds no GPU (cuInit: CUDA_ERROR_NO_DEVICE)".to_owned())
        }
        Err(_) => Decision::Report,
    }
}

/// Opens a device for mapped memory with the provider chosen on the command line.
pub(crate) fn open(choice: Choice, device: i32, wish: CoherenceWish) -> Result<Opened, OpenError> {
    match choice {
        Choice::Auto => {
            let driver = Driver::load();
            let count = driver.as_ref().map_err(Error::clone).and_then(|driver| driver.device_count());
            match (decide(named(LIBCUDA).is_some(), &count), driver) {
                (Decision::StandIn(why), _) => stand_in(&why, device, wish),
                (_, Ok(driver)) => real(&driver, device, wish),
                (_, Err(error)) => Err(no_driver(named(LIBCUDA).as_deref(), error)),
            }
        }
        Choice::Cuda => match Driver::load() {
            Ok(driver) if driver.is_software() => {
                Err(OpenError::NamedSoftware(named(LIBCUDA).unwrap_or_else(|| "softgpu".to_owned())))
            }
            Ok(driver) => real(&driver, device, wish),
            Err(error) => Err(no_driver(named(LIBCUDA).as_deref(), error)),
        },
        Choice::Vulkan => {
            let driver = over_vulkan()?;
            check(&driver, device)?;
            let resource = mapped(&driver, device, wish).map_err(OpenError::Vulkan)?;
            Ok(Opened { resource, notice: None })
        }
        Choice::Software => {
            let driver = Driver::software().map_err(OpenError::Software)?;
            check(&driver, device)?;
            let resource = mapped(&driver, device, wish).map_err(OpenError::Software)?;
            Ok(Opened { resource, notice: None })
        }
    }
}

/// Opens a device for its own memory with the provider chosen on the command line. Loads no vkgdr library.
pub(crate) fn open_context(choice: Choice, device: i32) -> Result<OpenedContext, OpenError> {
    let (driver, notice) = match choice {
        Choice::Auto => {
            let driver = Driver::load();
            let count = driver.as_ref().map_err(Error::clone).and_then(|driver| driver.device_count());
            match (decide(named(LIBCUDA).is_some(), &count), driver) {
                (Decision::StandIn(why), _) => {
                    let notice = format!("{why}: using the software GPU; run `cuda-mem doctor` for details");
                    (Driver::software().map_err(OpenError::Software)?, Some(notice))
                }
                (_, driver) => (driver.map_err(|error| no_driver(named(LIBCUDA).as_deref(), error))?, None),
            }
        }
        Choice::Cuda => match Driver::load() {
            Ok(driver) if driver.is_software() => {
                return Err(OpenError::NamedSoftware(named(LIBCUDA).unwrap_or_else(|| "softgpu".to_owned())));
            }
            driver => (driver.map_err(|error| no_driver(named(LIBCUDA).as_deref(), error))?, None),
        },
        Choice::Vulkan => (over_vulkan()?, None),
        Choice::Software => (Driver::software().map_err(OpenError::Software)?, None),
    };
    check(&driver, device)?;
    let software = driver.is_software();
    let failed = |error| if software { OpenError::Software(error) } else { OpenError::Driver(error) };
    let context = driver.device(device).and_then(|device| device.primary_context()).map_err(failed)?;
    Ok(OpenedContext { context, notice, software })
}

/// Opens the driver that was found or named. Its failure is an error, and no other driver replaces it.
fn real(driver: &Driver, device: i32, wish: CoherenceWish) -> Result<Opened, OpenError> {
    check(driver, device)?;
    let software = driver.is_software();
    let resource = mapped(driver, device, wish).map_err(|error| match software {
        true => OpenError::Software(error),
        false => OpenError::Mapped(error),
    })?;
    Ok(Opened { resource, notice: None })
}

/// Uses the software GPU instead of a real one: over CPU Vulkan, or else alone.
fn stand_in(why: &str, device: i32, wish: CoherenceWish) -> Result<Opened, OpenError> {
    let driver = over_vulkan()?;
    let more = "run `cuda-mem doctor` for details";
    match mapped(&driver, device, wish) {
        Ok(resource) => {
            let name = vulkan_device(&driver, device).unwrap_or_else(|| "a CPU device".to_owned());
            let notice = format!("{why}: using the software GPU over the CPU Vulkan driver {name}; {more}");
            Ok(Opened { resource, notice: Some(notice) })
        }
        // A library that the environment names is not replaced.
        Err(error) if named(LIBVKGDR).is_some() => Err(OpenError::Software(error)),
        Err(_) => {
            let driver = Driver::software().map_err(OpenError::Software)?;
            check(&driver, device)?;
            let resource = mapped(&driver, device, wish).map_err(OpenError::Software)?;
            let notice = format!("{why}, and no CPU Vulkan driver works: using the software GPU alone; {more}");
            Ok(Opened { resource, notice: Some(notice) })
        }
    }
}

/// The software GPU with the identity of the CPU Vulkan devices, and the vkgdr library over Vulkan.
pub(crate) fn over_vulkan() -> Result<Driver, OpenError> {
    softgpu::configure(Settings { vulkan: true, ..Settings::from_environment()? })?;
    let mut builder = Driver::builder().cuda("softgpu");
    if named(LIBVKGDR).is_none() {
        builder = builder.vkgdr("vkgdr");
    }
    // SAFETY: both libraries are linked in and have the signatures with which they are called. The user vouches for a
    // vkgdr library that the environment names.
    unsafe { builder.load() }.map_err(OpenError::Software)
}

fn check(driver: &Driver, device: i32) -> Result<(), OpenError> {
    let failed = |error| if driver.is_software() { OpenError::Software(error) } else { OpenError::Driver(error) };
    let count = driver.device_count().map_err(failed)?;
    match usize::try_from(device) {
        Ok(wanted) if wanted < count => Ok(()),
        _ => Err(OpenError::NoSuchDevice { wanted: device, count }),
    }
}

fn mapped(driver: &Driver, device: i32, wish: CoherenceWish) -> Result<MappedMemory, Error> {
    MappedMemory::with_coherence(&driver.device(device)?.primary_context()?, wish)
}

/// The name of the Vulkan device with the same identity as a CUDA device.
fn vulkan_device(driver: &Driver, device: i32) -> Option<String> {
    let uuid = driver.device(device).ok()?.uuid().ok()?.to_string();
    let report: serde_json::Value = serde_json::from_str(&driver.describe_vkgdr().ok()?).ok()?;
    let devices = report["devices"].as_array()?;
    let found = devices.iter().find(|one| one["uuid"].as_str().is_some_and(|text| same_uuid(text, &uuid)))?;
    Some(found["name"].as_str()?.to_owned())
}

/// Whether two texts are the same UUID, with or without `GPU-` and dashes.
pub(crate) fn same_uuid(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.trim_start_matches("GPU-").replace('-', "").to_ascii_lowercase();
    plain(one) == plain(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::DriverError;
    use cuda_mem::cuda_sys::load::{Attempt, LoadError};

    fn not_found() -> Error {
        let attempt = Attempt {
            candidate: "libcuda.so.1".to_owned(),
            reason: "dlopen failed: libcuda.so.1: cannot open shared object file: No such file or directory".to_owned(),
        };
        LoadError { what: "the CUDA driver", attempts: vec![attempt], remedy: String::new() }.into()
    }

    fn refused(code: CUresult) -> Error {
        DriverError { call: "cuInit", code }.into()
    }

    #[test]
    fn the_variables_are_those_that_the_loaders_read() {
        assert_eq!(LIBCUDA, cuda_mem::cuda_sys::Driver::SEARCH.variable);
        assert_eq!(LIBVKGDR, cuda_mem::vkgdr_sys::Vkgdr::SEARCH.variable);
    }

    #[test]
    fn something_stands_in_only_where_there_is_no_driver_or_no_device() {
        assert_eq!(decide(false, &Ok(1)), Decision::UseIt);
        assert!(matches!(decide(false, &Ok(0)), Decision::StandIn(_)));
        assert!(matches!(decide(false, &Err(refused(CUresult::CUDA_ERROR_NO_DEVICE))), Decision::StandIn(_)));
        let found = decide(false, &Err(not_found()));
        let why = "no NVIDIA driver was found (libcuda.so.1: No such file or directory)";
        assert_eq!(found, Decision::StandIn(why.to_owned()));
        // A driver that is installed but broken is reported.
        for code in [CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUresult::CUDA_ERROR_STUB_LIBRARY, CUresult(999)] {
            assert_eq!(decide(false, &Err(refused(code))), Decision::Report);
        }
    }

    #[test]
    fn what_the_environment_names_is_never_replaced() {
        assert_eq!(decide(true, &Ok(2)), Decision::UseIt);
        for answer in [Ok(0), Err(not_found()), Err(refused(CUresult::CUDA_ERROR_NO_DEVICE))] {
            assert_eq!(decide(true, &answer), Decision::Report);
        }
    }

    #[test]
    fn who_has_the_software_gpu_is_not_told_to_take_it() {
        for named in ["softgpu", "/opt/libsoftgpu.so"] {
            let text = no_driver(Some(named), refused(CUresult::CUDA_ERROR_INVALID_VALUE)).to_string();
            assert!(text.starts_with("the software GPU failed") && !text.contains("--provider"), "{text}");
        }
        for named in [None, Some("/opt/libcuda.so.1"), Some("/softgpu/libcuda.so.1")] {
            let text = no_driver(named, not_found()).to_string();
            assert!(text.ends_with("use --provider software to run without a GPU"), "{text}");
        }
    }

    #[test]
    fn identities_are_compared_without_their_dress() {
        assert!(same_uuid("GPU-00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"));
        assert!(!same_uuid("GPU-00112233-4455-6677-8899-aabbccddeeff", "00112233"));
    }
}
