//! Start, version, error names, addresses of functions.

use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::settings::{self, NEWEST, USUAL};
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

    /// Returns the release that softgpu serves.
    fn cuDriverGetVersion[Process](driverVersion: *mut c_int) {
        put(driverVersion, version() as c_int)
    }

    /// Returns the name of an error code.
    fn cuGetErrorName[Nothing](error: CUresult, pStr: *mut *const c_char) {
        text(error, pStr, |texts| &texts.name)
    }

    /// Returns a short description of an error code.
    fn cuGetErrorString[Nothing](error: CUresult, pStr: *mut *const c_char) {
        text(error, pStr, |texts| &texts.words)
    }

    /// Finds a function by its name without suffix. A missing function is no error of the call; `symbolStatus` reports
    /// it.
    fn cuGetProcAddress_v2[Library](
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        cudaVersion: c_int,
        flags: cuuint64_t,
        symbolStatus: *mut CUdriverProcAddressQueryResult,
    ) {
        ensure(!symbol.is_null() && !pfn.is_null() && flags <= LEGACY_STREAM | PER_THREAD_STREAM)?;
        // Refuses releases with a later major number than the newest known one. A negative release is newer than all.
        ensure(i64::from(cudaVersion) / 1000 <= i64::from(NEWEST) / 1000)?;
        let name = CStr::from_ptr(symbol).to_bytes();
        // Variants for which the null stream is the thread's own are not served.
        let found = if flags == PER_THREAD_STREAM && has_form_per_thread(name) {
            Err(CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
        } else {
            find(name, u32::from_ne_bytes(cudaVersion.to_ne_bytes()))
        };
        let (address, status) = match found {
            Ok(address) => (address, CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS),
            Err(status) => (ptr::null(), status),
        };
        pfn.write(address.cast_mut());
        offer(symbolStatus, status);
        Ok(())
    }
}

/// The flags of cuGetProcAddress: the null stream is the legacy one, or the thread's own.
const LEGACY_STREAM: cuuint64_t = 1;
const PER_THREAD_STREAM: cuuint64_t = 2;

/// Whether the driver has a variant of a function for which the null stream is the thread's own: functions that take a
/// stream, or that work in the default one.
fn has_form_per_thread(name: &[u8]) -> bool {
    const MAKE_OR_END: [&[u8]; 3] = [b"cuStreamCreate", b"cuStreamCreateWithPriority", b"cuStreamDestroy"];
    const BEGIN: [&[u8]; 12] = [
        b"cuMemcpy",
        b"cuMemset",
        b"cuStream",
        b"cuEventRecord",
        b"cuLaunch",
        b"cuMemPrefetch",
        b"cuMemDiscard",
        b"cuMemAllocAsync",
        b"cuMemAllocFromPoolAsync",
        b"cuMemFreeAsync",
        b"cuSignalExternal",
        b"cuWaitExternal",
    ];
    !MAKE_OR_END.contains(&name) && BEGIN.iter().any(|begin| name.starts_with(begin))
}

fn version() -> u32 {
    settings::chosen().map_or(USUAL, |settings| settings.version)
}

/// The newest version of a function in a release.
fn find(base: &[u8], release: u32) -> core::result::Result<*const c_void, CUdriverProcAddressQueryResult> {
    let is_form = |name: &[u8]| match name {
        [stem @ .., b'_', b'v', b'0'..=b'9'] => stem == base,
        name => name == base,
    };
    let mut status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    let mut newest = None;
    for symbol in Functions::SYMBOLS.iter().filter(|symbol| is_form(symbol.name.to_bytes())) {
        let address = cuda_symbol(symbol.name);
        if address.is_null() {
            continue;
        }
        status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        let number = symbol.since.number();
        if number <= release && newest.is_none_or(|(since, _)| since <= number) {
            newest = Some((number, address));
        }
    }
    newest.map(|(_, address)| address).ok_or(status)
}

/// The codes that CUDA 13.0 does not know.
const LATER: [CUresult; 5] = [
    CUresult::CUDA_ERROR_MULTICAST_RESOURCE_FULL,
    CUresult::CUDA_ERROR_INSUFFICIENT_LOADER_VERSION,
    CUresult::CUDA_ERROR_STREAM_DETACHED,
    CUresult::CUDA_ERROR_GRAPH_RECAPTURE_FAILURE,
    CUresult::CUDA_ERROR_FABRIC_NOT_READY,
];

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

/// Returns a text for a code. Null and CUDA_ERROR_INVALID_VALUE for an unknown code.
///
/// # Safety
///
/// `out` is null or writable.
unsafe fn text(error: CUresult, out: *mut *const c_char, which: impl Fn(&'static Texts) -> &'static CStr) -> Result {
    let known = version() > USUAL || !LATER.contains(&error);
    let text = TEXTS.get(&error.0).filter(|_| known).map(which);
    // SAFETY: by this function's contract.
    unsafe { put(out, text.map_or(ptr::null(), CStr::as_ptr)) }?;
    ensure(text.is_some())
}
