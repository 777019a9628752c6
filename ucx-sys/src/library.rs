//! A loaded libucp.

use crate::bindings::Functions;
use crate::installed;
use crate::mask::{Mask, MissingBit, newer};
use core::ffi::{CStr, c_uint, c_void};
use cuda_sys::load::{Attempt, LoadError, Search};
use cuda_sys::{Provider, Release};
use once_cell::sync::OnceCell;
use std::ffi::CString;

/// UCX's library UCP, with one method for each function of its interface. A method returns
/// [`MissingSymbol`](cuda_sys::MissingSymbol) if the library lacks its function.
///
/// The methods are as unsafe as the functions.
#[derive(Debug)]
pub struct Ucp {
    pub(crate) functions: Functions,
    pub(crate) provider: Provider,
}

impl Ucp {
    /// The oldest release that loads. It has every function of the table, so it is also the release to name in
    /// `ucp_init_version`.
    pub const OLDEST: Release = Release::new(1, 14);

    /// The search for the library: `CUDA_MEM_LIBUCP` first, then the system's loader, then where pip and conda put it.
    pub const SEARCH: Search = Search {
        what: "UCX",
        remedy: "Install UCX 1.14 or newer (pip install libucx-cu13, or the system's package: libucx0, ucx), or set \
                 CUDA_MEM_LIBUCP to the path of libucp.so.0",
        variable: "CUDA_MEM_LIBUCP",
        names: &["libucp.so.0"],
        files: installed::files,
        path: None,
        linked: Vec::new(),
    };

    /// Returns the system's library, loaded once per process. After a failed load, the next call tries again.
    ///
    /// # Errors
    ///
    /// No candidate of [`Ucp::SEARCH`] loads, or the first that does is older than [`Ucp::OLDEST`].
    pub fn load() -> Result<&'static Ucp, LoadError> {
        static LIBRARY: OnceCell<Ucp> = OnceCell::new();
        // SAFETY: the candidates are the system's own library, those that pip and conda installed for this user, or the
        // library that the user names in the environment.
        LIBRARY.get_or_try_init(|| unsafe { Ucp::open(&Ucp::SEARCH) })
    }

    /// Loads the library that `search` finds.
    ///
    /// # Errors
    ///
    /// No candidate loads, or the first that does is older than [`Ucp::OLDEST`]. No other is tried then: libraries of two
    /// releases in one process would share their dependencies.
    ///
    /// # Safety
    ///
    /// As [`Search::open`].
    pub unsafe fn open(search: &Search) -> Result<Ucp, LoadError> {
        // SAFETY: the caller's contract, which also covers the signatures of the exported functions.
        let (opened, ucp) = unsafe {
            let opened = search.open()?;
            let ucp = Ucp::from_resolver(&opened.name, &mut |name| opened.symbol(name));
            (opened, ucp)
        };
        match unfit(ucp.provider.version) {
            None => Ok(ucp),
            Some(reason) => Err(LoadError {
                what: search.what,
                attempts: vec![Attempt { candidate: opened.name, reason }],
                remedy: search.remedy.to_owned(),
            }),
        }
    }

    /// A library whose functions come from any source: `resolve` returns an address by name, or null.
    ///
    /// # Safety
    ///
    /// Each address that `resolve` returns belongs to a function with the signature that `wrapper.h` declares for the
    /// name, and stays valid for the life of the process.
    pub unsafe fn from_resolver(library: &str, resolve: &mut dyn FnMut(&CStr) -> *const c_void) -> Ucp {
        // SAFETY: the caller's contract.
        let functions = unsafe { Functions::fill(&mut |symbol| resolve(symbol.name)) };
        let version = functions.ucp_get_version.map(|get| {
            let (mut major, mut minor, mut patch): (c_uint, c_uint, c_uint) = (0, 0, 0);
            // SAFETY: the three places are writable; the rest is the caller's contract.
            unsafe { get(&mut major, &mut minor, &mut patch) };
            Release::new(major, minor)
        });
        Ucp { functions, provider: Provider { interface: "UCX", library: library.into(), version, is_softgpu: false } }
    }

    /// Returns the function table.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Returns which library serves, and the release of UCX that it implements.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Returns whether the library has a function.
    pub fn has(&self, name: &str) -> bool {
        CString::new(name).is_ok_and(|name| !self.functions.address(&name).is_null())
    }

    /// Returns a mask if the library knows all its bits: a bit that it does not know, it would ignore silently. Bits that
    /// this crate does not declare are not checked.
    ///
    /// ```
    /// use ucx_sys::{Ucp, ucp_params, ucp_params_field as Field};
    /// # fn example(ucp: &Ucp) -> Result<ucp_params, ucx_sys::MissingBit> {
    /// let field_mask = ucp.require(Field::UCP_PARAM_FIELD_FEATURES | Field::UCP_PARAM_FIELD_NODE_LOCAL_ID)?;
    /// Ok(ucp_params { field_mask: field_mask.0.into(), node_local_id: 3, ..Default::default() })
    /// # }
    /// # // SAFETY: the resolver knows no function.
    /// # let ucp = unsafe { Ucp::from_resolver("nothing", &mut |_| std::ptr::null()) };
    /// # assert!(example(&ucp).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// A bit is newer than the library.
    pub fn require<M: Mask>(&self, mask: M) -> Result<M, MissingBit> {
        let Provider { library, version, .. } = &self.provider;
        match newer(mask, *version) {
            None => Ok(mask),
            Some(bit) => {
                Err(MissingBit { name: bit.name, since: bit.since, library: library.clone(), version: *version })
            }
        }
    }
}

/// Why a library of this release does not serve.
fn unfit(version: Option<Release>) -> Option<String> {
    match version {
        None => Some("it has no function ucp_get_version".to_owned()),
        Some(version) if version < Ucp::OLDEST => {
            Some(format!("it is UCX {version}, and {} is the oldest that serves", Ucp::OLDEST))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ucp_op_attr_t as Op, ucp_worker_h};
    use core::ptr;

    unsafe extern "C" fn version(major: *mut c_uint, minor: *mut c_uint, patch: *mut c_uint) {
        // SAFETY: the caller passes writable places.
        unsafe { (*major, *minor, *patch) = (1, 14, 1) };
    }

    fn library() -> Ucp {
        let mut resolve = |name: &CStr| if name == c"ucp_get_version" { version as *const c_void } else { ptr::null() };
        // SAFETY: the one function that the resolver knows has its signature.
        unsafe { Ucp::from_resolver("libucp.so.0", &mut resolve) }
    }

    #[test]
    fn a_missing_function_is_an_error_with_its_release() {
        let ucp = library();
        assert!(ucp.has("ucp_get_version") && !ucp.has("ucp_ep_query"));
        // SAFETY: the function is missing, so nothing is called.
        let error = unsafe { ucp.ucp_request_cancel(ucp_worker_h::default(), ptr::null_mut()) }.unwrap_err();
        assert_eq!(
            error.to_string(),
            "libucp.so.0 has no function ucp_request_cancel: it came with UCX 1.2, and the library serves UCX 1.14. \
             Update libucp.so.0, or check `has(\"ucp_request_cancel\")` before the call"
        );
    }

    #[test]
    fn a_bit_that_would_be_ignored_is_an_error() {
        let ucp = library();
        let known = Op::UCP_OP_ATTR_FIELD_FLAGS | Op::UCP_OP_ATTR_FIELD_MEMH;
        assert_eq!(ucp.require(known).unwrap(), known);
        assert_eq!(
            ucp.require(known | Op::UCP_OP_ATTR_FIELD_REMOTE).unwrap_err().to_string(),
            "libucp.so.0 does not know UCP_OP_ATTR_FIELD_REMOTE and would ignore it: it came with UCX 1.22, and the \
             library serves UCX 1.14. Update libucp.so.0, or leave the bit out"
        );
    }

    #[test]
    fn releases_before_1_14_do_not_serve() {
        assert_eq!(unfit(Some(Release::new(1, 14))).or(unfit(Some(Release::new(1, 22)))), None);
        let old = unfit(Some(Release::new(1, 13))).unwrap();
        assert_eq!(old, "it is UCX 1.13, and 1.14 is the oldest that serves");
        assert!(unfit(None).is_some());
    }

    #[test]
    fn every_function_is_in_the_oldest_release() {
        assert!(Functions::SYMBOLS.iter().all(|symbol| symbol.since <= Ucp::OLDEST));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no dlopen")]
    fn a_failed_load_lists_every_place_and_says_what_to_do() {
        let search =
            Search { names: &["libnowhere.so.0"], files: || vec!["/nowhere/libucp.so.0".into()], ..Ucp::SEARCH };
        // SAFETY: neither library exists.
        let text = unsafe { Ucp::open(&search) }.unwrap_err().to_string();
        for words in ["cannot load UCX", "- libnowhere.so.0: ", "- /nowhere/libucp.so.0: ", "pip install libucx-cu13"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
