//! Start, version, error names, addresses of functions.

use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::settings::{self, NEWEST};
use crate::state::Global;
use crate::table::cuda_symbol;
use cuda_sys::{CUdriverProcAddressQueryResult, CUresult, Functions, cuuint64_t};
use once_cell::sync::Lazy;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

driver_calls! {
    /// Starts the driver.
    fn cuInit[Library](Flags: c_uint) {
        ensure(Flags == 0)?;
        Global::start()
    }

    /// Gives the release that is served.
    fn cuDriverGetVersion[Library](driverVersion: *mut c_int) {
        put(driverVersion, version() as c_int)
    }

    /// Gives the name of an error code.
    fn cuGetErrorName[Nothing](error: CUresult, pStr: *mut *const c_char) {
        text(error, pStr, |texts| &texts.name)
    }

    /// Gives a few words on an error code.
    fn cuGetErrorString[Nothing](error: CUresult, pStr: *mut *const c_char) {
        text(error, pStr, |texts| &texts.words)
    }

    /// Finds a function by its name without suffix.
    fn cuGetProcAddress_v2[Library](
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        cudaVersion: c_int,
        flags: cuuint64_t,
        symbolStatus: *mut CUdriverProcAddressQueryResult,
    ) {
        ensure(!symbol.is_null() && !pfn.is_null() && flags <= 2)?;
        pfn.write(ptr::null_mut());
        // The forms whose null stream is the thread's own are not served.
        let found = if flags == 2 {
            Err(CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
        } else {
            find(CStr::from_ptr(symbol), cudaVersion)
        };
        match found {
            Ok(address) => {
                pfn.write(address.cast_mut());
                offer(symbolStatus, CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
                Ok(())
            }
            Err(status) => {
                offer(symbolStatus, status);
                Err(CUresult::CUDA_ERROR_NOT_FOUND)
            }
        }
    }
}

/// The release that is served.
fn version() -> u32 {
    settings::chosen().map_or(NEWEST, |settings| settings.version)
}

/// The newest form of a function that a release has.
fn find(base: &CStr, release: c_int) -> core::result::Result<*const c_void, CUdriverProcAddressQueryResult> {
    let base = base.to_bytes();
    let is_form =
        |name: &[u8]| name.strip_prefix(base).is_some_and(|rest| matches!(rest, [] | [b'_', b'v', b'0'..=b'9']));
    let mut status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    let mut newest = None;
    for symbol in Functions::SYMBOLS.iter().filter(|symbol| is_form(symbol.name.to_bytes())) {
        let address = cuda_symbol(symbol.name);
        if address.is_null() {
            continue;
        }
        status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        let number = symbol.since.number();
        if i64::from(number) <= i64::from(release) && newest.is_none_or(|(since, _)| since <= number) {
            newest = Some((number, address));
        }
    }
    newest.map(|(_, address)| address).ok_or(status)
}

struct Texts {
    name: CString,
    words: CString,
}

static TEXTS: Lazy<HashMap<u32, Texts>> = Lazy::new(|| {
    let text = |code| {
        let name = CUresult(code).name()?;
        let words = match name.strip_prefix("CUDA_ERROR_") {
            Some(rest) => rest.to_lowercase().replace('_', " "),
            None => "no error".to_owned(),
        };
        Some((code, Texts { name: CString::new(name).ok()?, words: CString::new(words).ok()? }))
    };
    (0..1000).filter_map(text).collect()
});

/// Gives a text on a code; null and CUDA_ERROR_INVALID_VALUE for an unknown one.
///
/// # Safety
///
/// `out` is null or writable.
unsafe fn text(error: CUresult, out: *mut *const c_char, which: impl Fn(&'static Texts) -> &'static CStr) -> Result {
    let text = TEXTS.get(&error.0).map(which);
    // SAFETY: by this function's contract.
    unsafe { put(out, text.map_or(ptr::null(), CStr::as_ptr)) }?;
    ensure(text.is_some())
}
