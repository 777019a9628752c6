//! Library
//!
//! The CUDA driver is loaded once for the process: by cudamem_load, or by the first function that needs it. CUDA_MEM_LIBCUDA
//! and CUDA_MEM_LIBVKGDR in the environment name other libraries than the system's.

use crate::call::{Options, Out, Outcome, invalid, options, out, run, text};
use crate::callbacks::{self, Function};
use crate::handles::cudamem_text;
use crate::status::cudamem_status;
use crate::text::new_text;
use core::ffi::{c_char, c_void};
use core::mem::size_of;
use cuda_mem::Driver;
use serde_json::{Value, json};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How the driver is loaded. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cudamem_load_options {
    /// sizeof(cudamem_load_options).
    pub size: usize,
    /// The CUDA driver's file; NULL for what the environment names, or the system's.
    pub cuda: *const c_char,
    /// The vkgdr library's file; NULL for what the environment names, the system's, or the one that is part of this library.
    pub vkgdr: *const c_char,
}

// SAFETY: a size and two addresses.
unsafe impl Options for cudamem_load_options {
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Is told of an error: its status, its message, which is valid during the call, and what was set along with the function.
/// It may be called by any thread, also by several at once, and must not unwind. It may call this library: of what fails in such
/// a call it is not told, since it is running already; the call's own status says it.
pub type cudamem_error_callback =
    Option<extern "C" fn(status: cudamem_status, message: *const c_char, user: *mut c_void)>;

static DRIVER: OnceLock<Driver> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// The driver, loaded now if it was not before.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        None => load(None, None),
    }
}

fn load(cuda: Option<&str>, vkgdr: Option<&str>) -> Outcome<&'static Driver> {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return match cuda.or(vkgdr) {
            None => Ok(driver),
            Some(file) => {
                Err(invalid("options", file, "the driver is loaded already; name libraries before any other call"))
            }
        };
    }
    let driver = if cuda.is_none() && vkgdr.is_none() {
        Driver::load()?
    } else {
        let mut builder = Driver::builder();
        builder = if let Some(file) = cuda { builder.cuda(file) } else { builder };
        builder = if let Some(file) = vkgdr { builder.vkgdr(file) } else { builder };
        // SAFETY: the program names libraries that are what they claim to be; the header says so.
        unsafe { builder.load() }?
    };
    driver.set_drop_error_hook(Some(callbacks::drop_error_hook()));
    Ok(DRIVER.get_or_init(|| driver))
}

/// Loads and initialises the CUDA driver, and gives the CUDA release that it serves, such as 13000 for 13.0. options may be
/// NULL, and release too. A library that is named here runs its start-up code: it has to be what it claims to be.
///
/// After a failure it may be called again. Once the driver is loaded, options that name libraries are an error.
///
/// Errors: CUDAMEM_ERROR_LOAD with every place that was looked at in the message; CUDAMEM_ERROR_DRIVER if the driver does not
/// start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudamem_load(options: *const cudamem_load_options, release: Out<'_, u32>) -> cudamem_status {
    run("cudamem_load", || {
        // SAFETY: the header's rule for options.
        let chosen = unsafe { self::options("options", options) }?;
        // SAFETY: the header's rule for texts.
        let (cuda, vkgdr) = unsafe { (text("options.cuda", chosen.cuda)?, text("options.vkgdr", chosen.vkgdr)?) };
        let driver = load(cuda, vkgdr)?;
        if let Some(release) = release {
            release.write(driver.provider().version.map_or(0, |version| version.number()));
        }
        Ok(())
    })
}

/// Gives a JSON text for reports of problems: this library's release, the libraries that serve, the devices, and what vkgdr
/// finds on this machine. What is missing is said in the text; it is no error. Without a driver it has the release and the
/// error alone.
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

/// Sets the function that is told of every failure of a function of this library, on the thread that met it; NULL ends it.
/// A call on another thread that has begun goes on.
#[unsafe(no_mangle)]
pub extern "C" fn cudamem_set_log(callback: cudamem_error_callback, user: *mut c_void) -> cudamem_status {
    run("cudamem_set_log", || {
        callbacks::LOG.set(callback as Option<Function>, user);
        Ok(())
    })
}

/// Sets the function that is told of errors that no function could return: those met while memory is freed by its last user
/// or by the end of what holds it. NULL ends it.
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
