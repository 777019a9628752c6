//! Chooses the driver. The software GPU serves only if the command line or the environment names it, and nothing
//! replaces a library that the environment names.

use clap::ValueEnum;
use cuda_mem::mapped::{CoherencePolicy, MappedMemory};
use cuda_mem::softgpu::{self, Settings};
use cuda_mem::{Context, Driver, Error};
use std::path::Path;

/// The environment variable that names the CUDA driver.
pub(crate) const LIBCUDA: &str = "CUDA_MEM_LIBCUDA";
/// The environment variable that names the vkgdr library.
pub(crate) const LIBVKGDR: &str = "CUDA_MEM_LIBVKGDR";

/// The provider chosen on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// The driver that CUDA_MEM_LIBCUDA names, or else NVIDIA's
    Auto,
    /// The NVIDIA driver only
    Cuda,
    /// The software GPU over a CPU Vulkan driver (lavapipe, SwiftShader)
    Vulkan,
    /// The software GPU alone
    Software,
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

/// The driver that the environment names, or NVIDIA's.
fn found() -> Result<Driver, OpenError> {
    Driver::load().map_err(|error| no_driver(named(LIBCUDA).as_deref(), error))
}

/// NVIDIA's driver.
fn nvidias() -> Result<Driver, OpenError> {
    let driver = found()?;
    if driver.is_software() {
        return Err(OpenError::NamedSoftware(named(LIBCUDA).unwrap_or_else(|| "softgpu".to_owned())));
    }
    Ok(driver)
}

/// Opens a device for mapped memory with the provider chosen on the command line.
pub(crate) fn open(choice: Choice, device: i32, wish: CoherencePolicy) -> Result<MappedMemory, OpenError> {
    let driver = driver(choice)?;
    check(&driver, device)?;
    mapped(&driver, device, wish).map_err(|error| match choice {
        Choice::Vulkan => OpenError::Vulkan(error),
        _ if driver.is_software() => OpenError::Software(error),
        _ => OpenError::Mapped(error),
    })
}

/// Opens a device for its own memory with the provider chosen on the command line. Loads no vkgdr library.
pub(crate) fn open_context(choice: Choice, device: i32) -> Result<Context, OpenError> {
    let driver = driver(choice)?;
    check(&driver, device)?;
    let failed = |error| if driver.is_software() { OpenError::Software(error) } else { OpenError::Driver(error) };
    driver.device(device).and_then(|device| device.primary_context()).map_err(failed)
}

fn driver(choice: Choice) -> Result<Driver, OpenError> {
    match choice {
        Choice::Auto => found(),
        Choice::Cuda => nvidias(),
        Choice::Vulkan => over_vulkan(),
        Choice::Software => Driver::software().map_err(OpenError::Software),
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

fn mapped(driver: &Driver, device: i32, wish: CoherencePolicy) -> Result<MappedMemory, Error> {
    MappedMemory::with_coherence(&driver.device(device)?.primary_context()?, wish)
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
    use cuda_mem::cuda_sys::CUresult;
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
