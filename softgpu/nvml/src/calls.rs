//! The library's state, and what all calls share.

use softgpu::{DeviceIdentity, Settings, machine};
use std::ffi::{c_char, c_uint, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// The code of a failed call.
pub(crate) const UNINITIALIZED: c_uint = 1;
pub(crate) const INVALID_ARGUMENT: c_uint = 2;
pub(crate) const NOT_SUPPORTED: c_uint = 3;
pub(crate) const NOT_FOUND: c_uint = 6;
pub(crate) const INSUFFICIENT_SIZE: c_uint = 7;
pub(crate) const DRIVER_NOT_LOADED: c_uint = 9;
pub(crate) const VERSION_MISMATCH: c_uint = 25;

/// The result of the code behind a C function. The error is the code that NVML answers.
pub(crate) type Result<T = ()> = core::result::Result<T, c_uint>;

/// The simulated machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) settings: Settings,
    pub(crate) devices: Vec<DeviceIdentity>,
}

/// How often the library was started, and the machine since the first start.
static STATE: Mutex<(usize, Option<Arc<Machine>>)> = Mutex::new((0, None));

/// Starts the library, or counts one more start.
pub(crate) fn start() -> Result {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.1.is_none() {
        let settings = Settings::from_environment().map_err(|error| {
            eprintln!("{error}");
            DRIVER_NOT_LOADED
        })?;
        let devices = machine(&settings);
        state.1 = Some(Arc::new(Machine { settings, devices }));
    }
    state.0 += 1;
    Ok(())
}

/// Takes one start back. The last one ends the library.
pub(crate) fn stop() -> Result {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.0 = state.0.checked_sub(1).ok_or(UNINITIALIZED)?;
    if state.0 == 0 {
        state.1 = None;
    }
    Ok(())
}

/// The machine, if the library is started.
pub(crate) fn started() -> Result<Arc<Machine>> {
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.1.clone().ok_or(UNINITIALIZED)
}

/// Bits that mark a device's handle, so that softgpu recognises invented handles.
const MARK: usize = 0x4e56_4d00;

/// The handle of a device.
pub(crate) fn handle_of(unit: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(MARK | unit)
}

/// The device with a handle.
pub(crate) fn unit_of(machine: &Machine, handle: *mut c_void) -> Result<usize> {
    let unit = handle.addr() ^ MARK;
    if unit < machine.devices.len() { Ok(unit) } else { Err(INVALID_ARGUMENT) }
}

/// Writes a result. Fails if the pointer is null.
///
/// # Safety
///
/// `out` is null or writable.
pub(crate) unsafe fn put<T>(out: *mut T, value: T) -> Result {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: not null, so writable by this function's contract.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a text with its final zero. Fails if it does not fit.
///
/// # Safety
///
/// `out` is null or has `room` writable bytes.
pub(crate) unsafe fn put_text(out: *mut c_char, room: usize, text: &str) -> Result {
    if out.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if room <= text.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and its zero fit into `room` bytes.
    unsafe {
        out.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// Defines functions of NVML. A body runs in an unsafe context, and may rely on the interface's contract: each pointer
/// is null, or valid for what the function reads or writes through it. No panic leaves a function.
macro_rules! nvml_calls {
    ($( $(#[doc = $doc:literal])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block )*) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Safety
            ///
            /// Each pointer is null, or valid for what NVML's interface says of this function.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_uint {
                let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| -> $crate::calls::Result {
                    // SAFETY: the caller keeps the contract stated above.
                    #[allow(unused_unsafe)]
                    unsafe { $body }
                }));
                match answer {
                    Ok(Ok(())) => 0,
                    Ok(Err(code)) => code,
                    Err(_) => 999,
                }
            }
        )*
    };
}
pub(crate) use nvml_calls;
