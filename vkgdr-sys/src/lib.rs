//! Raw bindings to the vkgdr C API: device memory that the CPU addresses too.
//!
//! The library is found and loaded when the program runs, as `cuda-sys` does for the CUDA driver, with the same rules
//! and errors: the environment variable `CUDA_MEM_LIBVKGDR` first, then `libvkgdr.so.1`, then what the program has
//! linked in. A function that the library lacks (upstream's has twelve) is an error when it is called.
//!
//! ```
//! match vkgdr_sys::Vkgdr::load() {
//!     Ok(vkgdr) => println!("{}", vkgdr.provider().library),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! This crate knows C types and symbols and where the library is found. It holds no policy; the safe facade is the
//! crate `cuda-mem`.

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
