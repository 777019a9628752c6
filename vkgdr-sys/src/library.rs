//! A loaded vkgdr library.

use crate::bindings::Functions;
use core::ffi::{CStr, c_void};
use cuda_sys::load::{LoadError, Search};
use cuda_sys::{Provider, Release};
use once_cell::sync::OnceCell;
use std::ffi::CString;

/// A vkgdr library, with one method for each function of its interface. A method returns
/// [`MissingSymbol`](cuda_sys::MissingSymbol) if the library lacks its function.
///
/// The methods are as unsafe as the functions.
#[derive(Debug)]
pub struct Vkgdr {
    pub(crate) functions: Functions,
    pub(crate) provider: Provider,
}

impl Vkgdr {
    /// The search for the library: `CUDA_MEM_LIBVKGDR` first, then the system's loader.
    pub const SEARCH: Search = Search {
        what: "the vkgdr library",
        remedy: "Enable cuda-mem's feature `vkgdr`, which links it in, or set CUDA_MEM_LIBVKGDR to the path of \
                 libvkgdr.so.1 (cargo build --release --package vkgdr-cdylib makes it)",
        variable: "CUDA_MEM_LIBVKGDR",
        names: &["libvkgdr.so.1", "libvkgdr.so"],
        files: Vec::new,
        path: None,
        linked: Vec::new(),
    };

    /// Returns the system's library, loaded once per process. After a failed load, the next call tries again.
    ///
    /// # Errors
    ///
    /// No candidate of [`Vkgdr::SEARCH`] loads.
    pub fn load() -> Result<&'static Vkgdr, LoadError> {
        static LIBRARY: OnceCell<Vkgdr> = OnceCell::new();
        // SAFETY: the candidates are the system's own library, or the library that the user names in the environment.
        LIBRARY.get_or_try_init(|| unsafe { Vkgdr::open(&Vkgdr::SEARCH) })
    }

    /// Loads the library that `search` finds.
    ///
    /// # Errors
    ///
    /// No candidate loads.
    ///
    /// # Safety
    ///
    /// As [`Search::open`].
    pub unsafe fn open(search: &Search) -> Result<Vkgdr, LoadError> {
        // SAFETY: the caller's contract, which also covers the signatures of the exported functions.
        unsafe {
            let opened = search.open()?;
            Ok(Vkgdr::from_resolver(&opened.name, &mut |name| opened.symbol(name)))
        }
    }

    /// A library whose functions come from any source: `resolve` returns an address by name, or null.
    ///
    /// # Safety
    ///
    /// Each address that `resolve` returns belongs to a function with the signature that `wrapper.h` declares for the
    /// name, and stays valid for the life of the process.
    pub unsafe fn from_resolver(library: &str, resolve: &mut dyn FnMut(&CStr) -> *const c_void) -> Vkgdr {
        // SAFETY: the caller's contract.
        let functions = unsafe { Functions::fill(&mut |symbol| resolve(symbol.name)) };
        // Upstream's library exports no version. The first function that our library adds tells the two apart.
        let version = if functions.vkgdr_version.is_some() { Release::new(0, 2) } else { Release::new(0, 1) };
        let provider =
            Provider { interface: "vkgdr", library: library.into(), version: Some(version), is_softgpu: false };
        Vkgdr { functions, provider }
    }

    /// Returns the function table.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns which library serves.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns whether the library has a function.
    pub fn has(&self, name: &str) -> bool {
        CString::new(name).is_ok_and(|name| !self.functions.address(&name).is_null())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    #[test]
    fn a_library_without_additions_says_which_function_it_lacks() {
        extern "C" fn close(_: crate::vkgdr_t) {}
        let mut upstream = |name: &CStr| if name == c"vkgdr_close" { close as *const c_void } else { ptr::null() };
        // SAFETY: the one function that the resolver knows has its signature.
        let library = unsafe { Vkgdr::from_resolver("libold.so", &mut upstream) };
        // SAFETY: the function is missing, so nothing is called.
        let error = unsafe { library.vkgdr_memory_export_fd(ptr::null_mut(), ptr::null_mut()) }.unwrap_err();
        assert_eq!(
            error.to_string(),
            "libold.so has no function vkgdr_memory_export_fd: it came with vkgdr 0.2, and the library serves \
             vkgdr 0.1. Update libold.so, or check `has(\"vkgdr_memory_export_fd\")` before the call"
        );
    }
}
