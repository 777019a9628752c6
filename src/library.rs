//! Library
//!
//! The library loads the CUDA driver once for the process: in cudamem_load, or in the first function that needs it. The
//! environment variables CUDA_MEM_LIBCUDA and CUDA_MEM_LIBVKGDR name libraries to use instead of the system's. softgpu
//! serves a program only if its code or its environment (CUDA_MEM_LIBCUDA) names it; otherwise a missing driver is an
//! error with advice.

use crate::call::{Options, Out, Outcome, invalid, options, out, run, text};
use crate::callbacks::{self, Function};
use crate::handles::cudamem_text;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use cuda_mem::{Driver, check_not_forked};
use serde_json::{Value, json};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How the driver is loaded. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_load_options {
    /// sizeof(cudamem_load_options).
    pub size: usize,
    /// The CUDA driver's file. NULL for the file that the environment names, or the system's.
    pub cuda: *const c_char,
    /// The vkgdr library's file. NULL for the file that the environment names, the system's, or the one built into this
    /// library.
    pub vkgdr: *const c_char,
}

// SAFETY: a size and two addresses.
unsafe impl Options for cudamem_load_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// The library calls this function with an error: its status, its message, which is valid during the call, and the
/// pointer that the program set with the function. Any thread may call it, and several at once. It must not unwind. It
/// may call this library; it is not called for failures of those calls, because it is already running, but they return
/// their status.
pub type cudamem_error_callback =
    Option<extern "C" fn(status: cudamem_status, message: *const c_char, user: *mut c_void)>;

static DRIVER: OnceLock<Driver> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// Returns the driver, and loads it if it is not loaded.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        None => load(None, None),
    }
}

fn load(cuda: Option<&str>, vkgdr: Option<&str>) -> Outcome<&'static Driver> {
    check_not_forked("loading the driver")?;
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return match cuda.or(vkgdr) {
            None => Ok(driver),
            Some(file) => {
                Err(invalid("options", file, "the driver is already loaded: name libraries before any other call"))
            }
        };
    }
    let driver = if cuda.is_none() && vkgdr.is_none() {
        Driver::load()?
    } else {
        let mut builder = Driver::builder();
        builder = if let Some(file) = cuda { builder.cuda(file) } else { builder };
        builder = if let Some(file) = vkgdr { builder.vkgdr(file) } else { builder };
        // SAFETY: the header requires the program to name libraries that are what they claim to be.
        unsafe { builder.load() }?
    };
    driver.set_drop_error_hook(Some(callbacks::drop_error_hook()));
    Ok(DRIVER.get_or_init(|| driver))
}

/// Loads and initialises the CUDA driver, and gets the CUDA release that it implements, such as 13000 for 13.0. options
/// and release may be NULL. A library that options name runs its start-up code, so it must be what it claims to be.
///
/// After a failure the program may call this again. Once the driver is loaded, options that name libraries are an
/// error.
///
/// Errors: CUDAMEM_ERROR_LOAD, with every place that was searched in the message. CUDAMEM_ERROR_DRIVER if the driver
/// does not start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_load(options: *const cudamem_load_options, release: Out<'_, u32>) -> cudamem_status {
    run("cudamem_load", || {
        // SAFETY: the header requires NULL or `size` bytes.
        let chosen = unsafe { self::options("options", options) }?;
        // SAFETY: the header requires NULL or a zero-terminated string.
        let (cuda, vkgdr) = unsafe { (text("options.cuda", chosen.cuda)?, text("options.vkgdr", chosen.vkgdr)?) };
        let driver = load(cuda, vkgdr)?;
        if let Some(release) = release {
            release.write(driver.provider().version.map_or(0, |version| version.number()));
        }
        Ok(())
    })
}

/// Gets a JSON text for problem reports: this library's release, the loaded libraries, the devices, and what vkgdr
/// finds on this machine. The text lists anything that is missing; that is not an error. Without a driver the text has
/// only the release and the error.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_describe(json: Out<'_, cudamem_text>) -> cudamem_status {
    run("cudamem_describe", || {
        let json = out("json", json)?;
        json.write(new_text(describe().to_string())?);
        Ok(())
    })
}

fn describe() -> Value {
    let driver = match driver() {
        Ok(driver) => driver,
        Err(failure) => {
            return json!({ "version": env!("CARGO_PKG_VERSION"), "error": failure.to_string() });
        }
    };
    let provider = driver.provider();
    let device = |device: &cuda_mem::Device| -> cuda_mem::Result<Value> {
        Ok(json!({
            "ordinal": device.ordinal(),
            "name": device.name()?,
            "uuid": device.uuid()?.to_string(),
            "pci_bus_id": device.pci_bus_id()?,
            "total_memory": device.total_memory()?,
        }))
    };
    let devices = driver.devices().and_then(|devices| devices.iter().map(device).collect::<cuda_mem::Result<Vec<_>>>());
    let vkgdr = driver.describe_vkgdr().map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text)));
    let or_error =
        |answer: cuda_mem::Result<Value>| answer.unwrap_or_else(|error| json!({ "error": error.to_string() }));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cuda": {
            "library": provider.library.to_string(),
            "release": provider.version.map(|version| version.to_string()),
        },
        "devices": or_error(devices.map(Value::from)),
        "vkgdr": or_error(vkgdr),
    })
}

/// Sets the function that the library calls for every failure of a function, on the thread that fails. NULL removes it.
/// A call that has begun on another thread continues.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_set_log(callback: cudamem_error_callback, user: *mut c_void) -> cudamem_status {
    run("cudamem_set_log", || {
        callbacks::LOG.set(callback as Option<Function>, user);
        Ok(())
    })
}

/// Sets the function that the library calls for errors that no function can return: those that occur when the last user
/// of memory, or the end of an object, frees memory. NULL removes it.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_set_drop_error_callback(
    callback: cudamem_error_callback,
    user: *mut c_void,
) -> cudamem_status {
    run("cudamem_set_drop_error_callback", || {
        callbacks::DROP_ERRORS.set(callback as Option<Function>, user);
        Ok(())
    })
}
