//! A loaded CUDA driver.

use crate::bindings::{CUdriverProcAddressQueryResult, CUresult, Functions};
use crate::load::{LoadError, Search, without_a_gpu};
use crate::{Provider, Release, Symbol};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use once_cell::sync::OnceCell;
use std::ffi::CString;

/// A CUDA driver, with one method for each function of its interface. A method returns
/// [`MissingSymbol`](crate::MissingSymbol) if the driver lacks its function.
///
/// The methods are as unsafe as the functions. Loading initialises nothing: call `cuInit` first.
#[derive(Debug)]
pub struct Driver {
    pub(crate) functions: Functions,
    pub(crate) provider: Provider,
}

impl Driver {
    /// The search for drivers: `CUDA_MEM_LIBCUDA` first, then the names below, beginning with the system's own.
    pub const SEARCH: Search = Search {
        what: "the CUDA driver",
        remedy: concat!(
            "Install NVIDIA's driver (Debian: apt-get install libcuda1; in a container run it with --gpus all), or set \
             CUDA_MEM_LIBCUDA to the path of libcuda.so.1. Without a GPU: ",
            without_a_gpu!(),
        ),
        variable: "CUDA_MEM_LIBCUDA",
        names: &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so"],
        files: Vec::new,
        path: None,
        linked: Vec::new(),
    };

    /// Returns the system's driver, loaded once per process. After a failed load, the next call tries again.
    ///
    /// # Errors
    ///
    /// No candidate of [`Driver::SEARCH`] loads.
    pub fn load() -> Result<&'static Driver, LoadError> {
        static DRIVER: OnceCell<Driver> = OnceCell::new();
        // SAFETY: the candidates are the system's own driver, or the driver that the user names in the environment.
        DRIVER.get_or_try_init(|| unsafe { Driver::open(&Driver::SEARCH) })
    }

    /// Loads the driver that `search` finds.
    ///
    /// # Errors
    ///
    /// No candidate loads.
    ///
    /// # Safety
    ///
    /// As [`Search::open`].
    pub unsafe fn open(search: &Search) -> Result<Driver, LoadError> {
        // SAFETY: the caller's contract, which also covers the signatures of the exported functions.
        unsafe {
            let opened = search.open()?;
            Ok(Driver::from_resolver(&opened.name, &mut |name| opened.symbol(name)))
        }
    }

    /// A driver whose functions come from any source: `resolve` returns an address by name, or null.
    ///
    /// For a name that `resolve` does not know, this asks the driver's own `cuGetProcAddress_v2`, with the release that
    /// introduced the name.
    ///
    /// # Safety
    ///
    /// Each address that `resolve` returns belongs to a function with the signature that `wrapper.h` declares for the
    /// name, and stays valid for the life of the process.
    pub unsafe fn from_resolver(library: &str, resolve: &mut dyn FnMut(&CStr) -> *const c_void) -> Driver {
        let ask = resolve(c"cuGetProcAddress_v2");
        // A function that only softgpu has. A linked softgpu resolves driver functions alone, and has its name.
        let is_softgpu = library == "softgpu" || !resolve(c"softgpu_ledger_live").is_null();
        // SAFETY: the caller guarantees the addresses of `resolve`. The driver guarantees those of cuGetProcAddress,
        // which is asked for the form of the release that wrapper.h describes.
        let (functions, version) = unsafe {
            let ask = crate::table::function::<GetProcAddress>(ask);
            let mut find = |symbol: &Symbol| match (resolve(symbol.name), ask) {
                (address, Some(ask)) if address.is_null() => proc_address(ask, symbol),
                (address, _) => address,
            };
            let version = crate::table::function(find(&VERSION)).and_then(|get| release_of(get));
            // If the requested form is newer than the driver, the driver returns the newest form that it has, which
            // takes other arguments.
            let is_newer = |symbol: &Symbol| version.is_some_and(|version| symbol.since > version);
            let functions = Functions::fill(&mut |symbol| match (resolve(symbol.name), ask) {
                (address, Some(ask)) if address.is_null() && !is_newer(symbol) => proc_address(ask, symbol),
                (address, _) => address,
            });
            (functions, version)
        };
        Driver { functions, provider: Provider { interface: "CUDA", library: library.into(), version, is_softgpu } }
    }

    /// Returns the function table.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns which library serves, and the CUDA release that it implements.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns whether the driver has a function.
    ///
    /// ```
    /// # // SAFETY: the resolver knows no function.
    /// let driver = unsafe { cuda_sys::Driver::from_resolver("nothing", &mut |_| std::ptr::null()) };
    /// assert!(!driver.has("cuMemPoolCreate"));
    /// ```
    pub fn has(&self, name: &str) -> bool {
        CString::new(name).is_ok_and(|name| !self.functions.address(&name).is_null())
    }
}

type GetProcAddress = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    crate::cuuint64_t,
    *mut CUdriverProcAddressQueryResult,
) -> CUresult;

type GetVersion = unsafe extern "C" fn(*mut c_int) -> CUresult;

const VERSION: Symbol = Symbol { name: c"cuDriverGetVersion", since: Release::new(2, 2) };

/// Returns the release that a driver implements.
///
/// # Safety
///
/// `get` is the driver's cuDriverGetVersion, which may be called before cuInit.
unsafe fn release_of(get: GetVersion) -> Option<Release> {
    let mut number: c_int = 0;
    // SAFETY: `number` is writable; the rest is this function's contract.
    let result = unsafe { get(&mut number) };
    if result == CUresult::CUDA_SUCCESS { u32::try_from(number).ok().map(Release::from_number) } else { None }
}

/// Asks the driver for a function that is missing from its symbol table.
///
/// # Safety
///
/// `ask` is the driver's cuGetProcAddress_v2.
unsafe fn proc_address(ask: GetProcAddress, symbol: &Symbol) -> *const c_void {
    let name = base_name(symbol.name);
    let Ok(release) = c_int::try_from(symbol.since.number()) else { return ptr::null() };
    let mut address = ptr::null_mut();
    let mut status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
    // SAFETY: the name ends with a zero byte, and both results are writable.
    let result = unsafe { ask(name.as_ptr(), &mut address, release, 0, &mut status) };
    if result == CUresult::CUDA_SUCCESS { address } else { ptr::null() }
}

/// Removes a name's version suffix, because cuGetProcAddress expects the plain name.
fn base_name(name: &CStr) -> CString {
    let bytes = name.to_bytes();
    let base = match bytes {
        [base @ .., b'_', b'v', b'0'..=b'9'] => base,
        whole => whole,
    };
    // Part of a C string holds no zero byte.
    CString::new(base).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Linked, WITHOUT_A_GPU};

    unsafe extern "C" fn version(out: *mut c_int) -> CUresult {
        // SAFETY: the caller passes a writable int.
        unsafe { *out = 12080 };
        CUresult::CUDA_SUCCESS
    }

    fn only_version(name: &CStr) -> *const c_void {
        if name == c"cuDriverGetVersion" { version as *const c_void } else { ptr::null() }
    }

    #[test]
    fn a_missing_function_is_an_error_that_names_what_is_needed() {
        // SAFETY: the one function that the resolver knows has its signature.
        let driver = unsafe { Driver::from_resolver("libhalf.so", &mut only_version) };
        assert!(driver.has("cuDriverGetVersion") && !driver.has("cuMemPoolCreate") && !driver.has("nul\0"));
        // SAFETY: the function is missing, so nothing is called.
        let error = unsafe { driver.cuMemPoolDestroy(ptr::null_mut()) }.unwrap_err();
        assert_eq!(
            error.to_string(),
            "libhalf.so has no function cuMemPoolDestroy: it came with CUDA 11.2, and the library serves CUDA 12.8. \
             Update libhalf.so, or check `has(\"cuMemPoolDestroy\")` before the call"
        );
    }

    #[test]
    fn names_lose_their_version_suffix_and_nothing_else() {
        for (name, base) in [(c"cuMemAlloc_v2", c"cuMemAlloc"), (c"cuInit", c"cuInit"), (c"cu_v", c"cu_v")] {
            assert_eq!(base_name(name).as_c_str(), base);
        }
    }

    #[test]
    fn get_proc_address_is_asked_for_what_the_symbol_table_lacks() {
        unsafe extern "C" fn ask(
            name: *const c_char,
            out: *mut *mut c_void,
            release: c_int,
            _flags: u64,
            _status: *mut CUdriverProcAddressQueryResult,
        ) -> CUresult {
            // SAFETY: the caller passes a C string and a writable pointer.
            unsafe {
                if CStr::from_ptr(name) == c"cuDriverGetVersion" && release == 2020 {
                    *out = version as *mut c_void;
                    return CUresult::CUDA_SUCCESS;
                }
            }
            CUresult::CUDA_ERROR_NOT_FOUND
        }
        let mut resolve = |name: &CStr| {
            if name == c"cuGetProcAddress_v2" { ask as *const c_void } else { ptr::null() }
        };
        // SAFETY: the one function that the resolver knows has its signature.
        let driver = unsafe { Driver::from_resolver("libinjection.so", &mut resolve) };
        assert_eq!(driver.provider().version, Some(Release::new(12, 8)));
        assert!(!driver.has("cuInit"));
    }

    #[test]
    fn a_linked_provider_is_taken_by_name() {
        let linked = vec![Linked { name: "half", symbol: only_version, last_resort: false }];
        let search = Search { path: Some("half".into()), linked, ..Driver::SEARCH };
        // SAFETY: the provider's one function has its signature.
        let driver = unsafe { Driver::open(&search) }.unwrap();
        assert_eq!(&*driver.provider().library, "half");
    }

    #[test]
    fn a_form_newer_than_the_driver_is_not_asked_for() {
        unsafe extern "C" fn ask(
            name: *const c_char,
            out: *mut *mut c_void,
            _release: c_int,
            _flags: u64,
            _status: *mut CUdriverProcAddressQueryResult,
        ) -> CUresult {
            // Drivers behave like this: if a requested form is newer than the driver, they return their newest form.
            // SAFETY: the caller passes a C string and a writable pointer. Only the version function is ever called.
            unsafe {
                *out = match CStr::from_ptr(name) {
                    name if name == c"cuDriverGetVersion" => version as *mut c_void,
                    _ => ptr::dangling_mut(),
                };
            }
            CUresult::CUDA_SUCCESS
        }
        let mut resolve = |name: &CStr| if name == c"cuGetProcAddress_v2" { ask as *const c_void } else { ptr::null() };
        // SAFETY: no function but the version is called.
        let driver = unsafe { Driver::from_resolver("libold.so", &mut resolve) };
        assert!(driver.has("cuMemAdvise_v2") && driver.has("cuMemAdvise"));
        assert!(!driver.has("cuMemPrefetchBatchAsync"), "took another form of it from a driver of CUDA 12.8");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no dlopen")]
    fn a_failed_load_lists_every_place_and_says_what_to_do() {
        let search = Search { names: &["libnowhere.so.1", "libnowhere.so"], ..Driver::SEARCH };
        // SAFETY: neither library exists.
        let text = match unsafe { search.open() } {
            Err(error) => error.to_string(),
            Ok(opened) => panic!("{opened:?}"),
        };
        assert!(text.contains("- libnowhere.so.1: cannot open shared object file"), "{text}");
        assert!(text.contains("- libnowhere.so: ") && text.contains("Install NVIDIA's driver"), "{text}");
        assert!(text.contains("else the path of libsoftgpu.so"), "{text}");

        let search = Search { path: Some("softgpu".into()), ..Driver::SEARCH };
        // SAFETY: there is no library of that name.
        let text = unsafe { search.open() }.unwrap_err().to_string();
        let only =
            "It takes the path of a shared library; no CUDA driver is linked into this program. Install NVIDIA's";
        assert!(text.contains(only) && text.ends_with(WITHOUT_A_GPU), "{text}");

        let linked = ["half", "whole"].map(|name| Linked { name, symbol: only_version, last_resort: false }).into();
        let search = Search { path: Some("libnowhere.so".into()), linked, ..Driver::SEARCH };
        // SAFETY: there is no library of that name.
        let text = unsafe { search.open() }.unwrap_err().to_string();
        let both = "the path of a shared library, or the name of one that is linked into this program: half, whole";
        assert!(text.ends_with(both), "{text}");
    }
}
