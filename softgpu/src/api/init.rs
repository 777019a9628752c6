//! Start, version, error names, addresses of functions.

use super::error_texts::text;
use crate::call::{Result, driver_calls, ensure, offer, put};
use crate::settings::{self, USUAL};
use crate::state::Global;
use crate::table::{Form, forms};
use cuda_sys::{CUdriverProcAddressQueryResult, CUresult, CUuuid, cuuint64_t};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Once;

driver_calls! {
    |(): ()|

    /// Starts the driver.
    fn cuInit[Library](Flags: c_uint) {
        ensure(Flags == 0)?;
        Global::start()
    }

    /// Returns the release that softgpu serves.
    fn cuDriverGetVersion[Process](driverVersion: *mut c_int) {
        put(driverVersion, version() as c_int)
    }

    /// Refuses every table: they are private to NVIDIA's libraries, such as the CUDA runtime, which therefore does not
    /// work on softgpu. That the code is the driver's for an unknown table is not recorded yet.
    fn cuGetExportTable[Library](ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid) {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            eprintln!(
                "softgpu: the CUDA runtime asks for private tables of NVIDIA's driver, which softgpu lacks. Programs of the \
                 runtime (CuPy, PyTorch, cudaMalloc) fail here; those that call the driver itself run"
            );
        });
        offer(ppExportTable, ptr::null());
        Err(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Returns the name of an error code.
    fn cuGetErrorName[Nothing](error: CUresult, pStr: *mut *const c_char) {
        text(error, pStr, |texts| texts.name)
    }

    /// Returns a short description of an error code.
    fn cuGetErrorString[Nothing](error: CUresult, pStr: *mut *const c_char) {
        text(error, pStr, |texts| texts.words)
    }

    /// Finds a function by its name without suffix. A missing function is CUDA_ERROR_NOT_FOUND, and no result is
    /// written.
    fn cuGetProcAddress[Library](
        symbol: *const c_char,
        pfn: *mut *mut c_void,
        cudaVersion: c_int,
        flags: cuuint64_t,
    ) {
        let found = look_up(symbol, pfn, cudaVersion, flags)?.map_err(|_| CUresult::CUDA_ERROR_NOT_FOUND)?;
        put(pfn, found.cast_mut())
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
        let (address, status) = match look_up(symbol, pfn, cudaVersion, flags)? {
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

/// The function for a call of cuGetProcAddress, or why there is none. Fails if an argument is wrong.
///
/// # Safety
///
/// `symbol` is null or a C string.
unsafe fn look_up(symbol: *const c_char, out: *mut *mut c_void, release: c_int, flags: cuuint64_t) -> Result<Found> {
    ensure(!symbol.is_null() && !out.is_null() && flags <= LEGACY_STREAM | PER_THREAD_STREAM)?;
    // Refuses later releases than the driver's. A negative release is newer than all, and finds the newest forms.
    ensure(i64::from(release) <= i64::from(version()))?;
    // SAFETY: not null, so a C string by this function's contract.
    let name = unsafe { CStr::from_ptr(symbol) }.to_bytes();
    let form = find(name, u32::from_ne_bytes(release.to_ne_bytes()));
    Ok(form.map(|form| if flags == PER_THREAD_STREAM { form.per_thread() } else { form.address }))
}

pub(super) fn version() -> u32 {
    settings::chosen().map_or(USUAL, |settings| settings.version)
}

type Found = core::result::Result<*const c_void, CUdriverProcAddressQueryResult>;

/// The form that a function has in a release.
///
/// The forms take different arguments, so no form stands in for another: if softgpu lacks the form of the release, the
/// function is not found.
fn find(base: &[u8], release: u32) -> core::result::Result<Form, CUdriverProcAddressQueryResult> {
    let (of_release, later): (Vec<_>, Vec<_>) = forms(base).into_iter().partition(|form| form.since <= release);
    let missing = match of_release.into_iter().max_by_key(|form| form.since) {
        Some(form) if !form.address.is_null() => return Ok(form),
        None if later.iter().any(|form| !form.address.is_null()) => {
            CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
        }
        _ => CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    };
    Err(missing)
}
