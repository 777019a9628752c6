//! Raw bindings to the memory side of the CUDA driver API.
//!
//! The library is found and loaded at run time. Building needs nothing of CUDA, and a program starts on a machine
//! without it. Calling a function that the loaded driver lacks returns an error; it is never a failed load and never a
//! panic.
//!
//! ```
//! match cuda_sys::Driver::load() {
//!     Ok(driver) => {
//!         println!("{} serves CUDA {:?}", driver.provider().library, driver.provider().version);
//!         // SAFETY: 0 is the one value that cuInit takes.
//!         let result = unsafe { driver.cuInit(0) }?;
//!         println!("cuInit: {:?}", result.name());
//!     }
//! // Lists every place that was searched, with the loader's own words, and what to install.
//!     Err(error) => println!("{error}"),
//! }
//! # Ok::<(), cuda_sys::MissingSymbol>(())
//! ```
//!
//! | item | contents |
//! |---|---|
//! | [`Driver`] | a loaded driver, with one method for each function |
//! | [`Functions`] | the table of function pointers, which can be filled from any source of addresses |
//! | [`load`] | the search for libraries |
//! | [`Capability`] | groups of functions, to check for before a call |
//!
//! The types and signatures come from `wrapper.h`, which is written by hand and compared with NVIDIA's headers by the
//! conformance tests. This crate contains C types, symbols, the search for the library, and the CUDA release that
//! introduced each symbol. It makes no policy decisions; the safe interface is the crate `cuda-mem`.

#[cfg(not(all(target_pointer_width = "64", unix)))]
compile_error!("cuda-sys is written for 64-bit Unix systems");

mod capability;
mod driver;
pub mod load;
mod release;
#[doc(hidden)]
pub mod table;

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_debug_implementations,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    // bindgen writes a `Default` that zeroes plain C structures.
    clippy::undocumented_unsafe_blocks
)]
mod bindings {
    use super::driver::Driver;
    macro_rules! function_table {
        ($($functions:tt)*) => { $crate::define_functions! { Driver { $($functions)* } } };
    }
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("bindings.rs");
}

pub use bindings::*;
pub use capability::Capability;
pub use driver::Driver;
pub use release::Release;
pub use table::{MissingSymbol, Provider, Symbol};

/// The legacy default stream, which synchronises with all other blocking streams of its context.
// bindgen drops casts of numbers to pointers, so the two stream constants are written here.
pub const CU_STREAM_LEGACY: CUstream = core::ptr::without_provenance_mut(1);
/// The calling thread's own default stream.
pub const CU_STREAM_PER_THREAD: CUstream = core::ptr::without_provenance_mut(2);
/// The pseudo-device that represents the host in cuMemAdvise and cuMemPrefetchAsync.
pub const CU_DEVICE_CPU: CUdevice = -1;
/// No device.
pub const CU_DEVICE_INVALID: CUdevice = -2;

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(feature = "bindgen")]
    fn the_checked_in_bindings_are_what_wrapper_h_gives() {
        assert!(
            include_str!("bindings.rs") == include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")),
            "cuda-sys/src/bindings.rs is out of date: run scripts/bindings"
        );
    }

    #[test]
    fn an_unknown_result_code_survives() {
        let code = super::CUresult(31337);
        assert_eq!((code.0, code.name()), (31337, None));
        assert_eq!(super::CUresult::CUDA_ERROR_OUT_OF_MEMORY.name(), Some("CUDA_ERROR_OUT_OF_MEMORY"));
    }
}
