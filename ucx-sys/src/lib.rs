//! Raw bindings to the part of UCX's UCP interface that an engine of active messages needs.
//!
//! The library is found and loaded at run time, as `cuda-sys` does for the CUDA driver, with the same rules and errors:
//! first the environment variable `CUDA_MEM_LIBUCP`, then `libucp.so.0` by the system's loader, then the folders in
//! which pip and conda install it. UCX 1.14 is the oldest release that loads.
//!
//! ```
//! match ucx_sys::Ucp::load() {
//!     Ok(ucp) => println!("{} serves UCX {:?}", ucp.provider().library, ucp.provider().version),
//!     // Lists every place that was searched, and what to install.
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! A function that the loaded library lacks is an error when it is called. A bit of a mask that the library does not
//! know is worse: UCX ignores it, and the call succeeds. So pass each mask through [`Ucp::require`], which compares the
//! release of its bits with the library's.
//!
//! A process has one UCX. Where a program or another library loads one, name the same file, or load that one first:
//! `libucp.so.0` is then the one that is there.
//!
//! The types and signatures come from `wrapper.h`, which is written by hand and compared with UCX's headers by the
//! conformance tests. This crate contains C types, symbols, and the search for the library. It makes no policy
//! decisions.

#[cfg(not(all(target_pointer_width = "64", unix)))]
compile_error!("ucx-sys is written for 64-bit Unix systems");

mod installed;
mod library;
mod mask;
mod status;

#[allow(
    missing_docs,
    non_camel_case_types,
    missing_debug_implementations,
    clippy::missing_safety_doc,
    // bindgen writes a `Default` that zeroes plain C structures.
    clippy::undocumented_unsafe_blocks
)]
mod bindings {
    use super::library::Ucp;
    use super::mask::{Bit, Mask};
    macro_rules! function_table {
        ($($functions:tt)*) => { ::cuda_sys::define_functions! { Ucp { $($functions)* } } };
    }
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("bindings.rs");
}

pub use bindings::*;
pub use library::Ucp;
pub use mask::{Bit, Mask, MissingBit};
pub use status::UCS_PTR_STATUS;

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(feature = "bindgen")]
    fn the_checked_in_bindings_are_what_wrapper_h_gives() {
        assert!(
            include_str!("bindings.rs") == include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")),
            "ucx-sys/src/bindings.rs is out of date: run scripts/bindings"
        );
    }
}
