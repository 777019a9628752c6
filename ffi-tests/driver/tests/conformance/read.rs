//! Reads a header into an [`Interface`], with bindgen.

use crate::interface::Interface;
use bindgen::{Builder, EnumVariation, Formatter};
use std::path::Path;

/// The names to take from a header, as regular expressions.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Functions.
    pub functions: &'static str,
    /// Typedefs and tags.
    pub types: &'static str,
    /// Macros.
    pub constants: &'static str,
}

/// The names that cuda-sys takes.
pub const CUDA: Names = Names { functions: "cu[A-Z].*", types: "CU.*|cuuint.*", constants: "CU_.*|CUDA_.*" };

/// The types of function pointers in cudaTypedefs.h.
pub const POINTERS: Names = Names { functions: "-", types: "PFN_cu[A-Z].*", constants: "-" };

/// The names that vkgdr-sys takes.
pub const VKGDR: Names = Names { functions: "vkgdr_.*", types: "vkgdr_.*", constants: "VKGDR_.*" };

/// The names that ucx-sys takes.
pub const UCX: Names = Names { functions: "uc[ps]_.*", types: "uc[ps]_.*", constants: "UC[PS]_.*" };

/// Reads a header.
///
/// # Errors
///
/// clang cannot parse the header, or the header contains something that no C interface has.
pub fn header(path: &Path, flags: &[String], names: Names) -> Result<Interface, String> {
    let bindings = bindings(path, flags, names)?;
    Interface::parse(&bindings).map_err(|error| format!("{}: {error}", path.display()))
}

/// bindgen's output for a header.
///
/// # Errors
///
/// clang cannot parse the header.
pub fn bindings(path: &Path, flags: &[String], names: Names) -> Result<String, String> {
    Builder::default()
        .header(path.display().to_string())
        .clang_args(flags)
        .allowlist_function(names.functions)
        .allowlist_type(names.types)
        .allowlist_var(names.constants)
        .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false })
        .prepend_enum_name(false)
        .use_core()
        .layout_tests(true)
        .generate_comments(true)
        .merge_extern_blocks(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|error| error.to_string())?)
        .formatter(Formatter::None)
        .generate()
        .map(|bindings| bindings.to_string())
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether libclang is installed.
pub fn has_libclang() -> bool {
    std::panic::catch_unwind(bindgen::clang_version).is_ok()
}
