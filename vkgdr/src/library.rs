//! Finds the Vulkan library: the loader, or a driver (ICD) that can be called directly.

use std::ffi::{CStr, c_char};

use ash::vk;
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::error::{Error, vulkan_name};

/// The environment variable that names the only library to try.
pub(crate) const VARIABLE: &str = "VKGDR_VULKAN_LIBRARY";

/// The loader comes first. NVIDIA's driver itself serves where the loader is not installed or does not find the driver.
/// Of its two libraries, libEGL_nvidia comes first because it needs no X11.
const CANDIDATES: [&str; 3] = ["libvulkan.so.1", "libEGL_nvidia.so.0", "libGLX_nvidia.so.0"];

/// The version of the loader-driver interface to request. 5 is the first version that passes `apiVersion` through for
/// Vulkan 1.1.
const DRIVER_INTERFACE: u32 = 5;

type NegotiateInterface = unsafe extern "system" fn(*mut u32) -> vk::Result;

/// What kind of library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Khronos' loader, which finds drivers and layers.
    Loader,
    /// A driver used without the loader: one driver, no layers.
    Driver,
}

/// An open library. It stays open, because drivers do not survive being unloaded.
pub(crate) struct VulkanLibrary {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) entry: ash::Entry,
}

/// Returns an environment variable that is set and not empty. Ignores the environment if the process runs with raised
/// privileges.
pub(crate) fn environment(name: &str) -> Option<String> {
    Some(cuda_sys::load::environment(name)?.to_string_lossy().into_owned())
}

/// The libraries to try, best first.
pub(crate) fn candidates() -> Vec<String> {
    match environment(VARIABLE) {
        Some(path) => vec![path],
        None => CANDIDATES.map(String::from).to_vec(),
    }
}

/// Opens one library.
pub(crate) fn open(name: &str) -> Result<VulkanLibrary, Error> {
    let (kind, entry) = open_one(name).map_err(|reason| Error::NotLoaded { library: name.to_owned(), reason })?;
    Ok(VulkanLibrary { name: name.to_owned(), kind, entry })
}

fn open_one(name: &str) -> Result<(Kind, ash::Entry), String> {
    // SAFETY: loading runs the library's initialisers. The name is that of a Vulkan library, or the user's choice.
    let library = unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL) }.map_err(|error| with_cause(&error))?;
    // SAFETY: each symbol has the type that the Vulkan loader-driver interface gives to its name.
    let (kind, get_instance_proc_addr) = unsafe {
        if let Ok(get) = library.get::<vk::PFN_vkGetInstanceProcAddr>(c"vk_icdGetInstanceProcAddr".to_bytes()) {
            if let Ok(negotiate) =
                library.get::<NegotiateInterface>(c"vk_icdNegotiateLoaderICDInterfaceVersion".to_bytes())
            {
                let mut version = DRIVER_INTERFACE;
                let result = negotiate(&mut version);
                if result != vk::Result::SUCCESS {
                    return Err(format!(
                        "the driver refuses to serve ({}); libGLX_nvidia does so where libX11 or libXext is missing",
                        vulkan_name(result)
                    ));
                }
            }
            (Kind::Driver, *get)
        } else if let Ok(get) = library.get::<vk::PFN_vkGetInstanceProcAddr>(c"vkGetInstanceProcAddr".to_bytes()) {
            (Kind::Loader, *get)
        } else {
            return Err("it is not a Vulkan library: vkGetInstanceProcAddr is missing".into());
        }
    };
    let get: unsafe extern "system" fn(vk::Instance, *const c_char) -> vk::PFN_vkVoidFunction = get_instance_proc_addr;
    // SAFETY: this name may be requested with a NULL instance.
    if unsafe { get(vk::Instance::null(), c"vkCreateInstance".as_ptr()) }.is_none() {
        return Err("vkCreateInstance is missing".into());
    }
    // Never unload the library.
    std::mem::forget(library);
    let functions = ash::StaticFn { get_instance_proc_addr };
    // SAFETY: the function came from a Vulkan library that is never unloaded.
    Ok((kind, unsafe { ash::Entry::from_static_fn(functions) }))
}

/// Returns the text of an error's cause, which holds `dlerror`'s text, or the error's own text if it has no cause.
fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

/// Joins the candidates' failures: the first failure that is not a failed load, followed by the reasons of the failed
/// loads.
pub(crate) fn none_works(failures: Vec<Error>) -> Error {
    let mut telling = None;
    let mut unloaded = Vec::new();
    for failure in failures {
        match failure {
            Error::NotLoaded { library, reason } => unloaded.push(format!("{library}: {reason}")),
            other => telling = telling.or(Some(other)),
        }
    }
    let list = unloaded.join("; ");
    match telling {
        None => Error::LibraryNotFound(format!("no Vulkan library could be loaded; tried {list}; {}", remedy())),
        Some(error) if unloaded.is_empty() => error,
        Some(Error::NoDevice(text)) => Error::NoDevice(format!("{text}; not loaded: {list}")),
        Some(Error::Vulkan { what, code }) => Error::Vulkan { what: format!("{what}; not loaded: {list}"), code },
        Some(error) => error,
    }
}

fn remedy() -> &'static str {
    if environment(VARIABLE).is_some() {
        "VKGDR_VULKAN_LIBRARY is set, so nothing else was tried"
    } else {
        "the Vulkan loader comes with `apt-get install libvulkan1` (Debian, Ubuntu) or `dnf install vulkan-loader` \
         (Fedora, RHEL)"
    }
}

/// Fails if `find` returns false for one of `names`.
pub(crate) fn require(names: &[&CStr], owner: &str, mut find: impl FnMut(&CStr) -> bool) -> Result<(), Error> {
    match names.iter().find(|name| !find(name)) {
        None => Ok(()),
        Some(name) => Err(Error::LibraryNotFound(format!("{owner} lacks the function {}", name.to_string_lossy()))),
    }
}
