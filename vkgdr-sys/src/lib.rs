//! Raw bindings to the vkgdr C API: device memory that the CPU can also address.
//!
//! The library is found and loaded at run time, as `cuda-sys` does for the CUDA driver, with the same rules and errors:
//! first the environment variable `CUDA_MEM_LIBVKGDR`, then `libvkgdr.so.1`, then the providers linked into the
//! program. Calling a function that the library lacks returns an error (upstream's library has twelve functions).
//!
//! ```
//! match vkgdr_sys::Vkgdr::load() {
//!     Ok(vkgdr) => println!("{}", vkgdr.provider().library),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! This crate contains C types, symbols, and the search for the library. It makes no policy decisions; the safe
//! interface is the crate `cuda-mem`.

mod library;

#[allow(
    missing_docs,
    non_camel_case_types,
    missing_debug_implementations,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks
)]
mod bindings {
    use super::library::Vkgdr;
    macro_rules! function_table {
        ($($functions:tt)*) => { ::cuda_sys::define_functions! { Vkgdr { $($functions)* } } };
    }
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("bindings.rs");
}

pub use bindings::*;
pub use library::Vkgdr;

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(feature = "bindgen")]
    fn the_checked_in_bindings_are_what_wrapper_h_gives() {
        assert!(
            include_str!("bindings.rs") == include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")),
            "vkgdr-sys/src/bindings.rs is out of date: run scripts/bindings"
        );
    }
}
