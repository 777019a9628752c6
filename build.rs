//! How libcudamem is linked as a shared library.
//!
//! The SONAME carries the minor release before 1.0, because a minor release may change the interface. -Bsymbolic binds
//! the library's calls of its own functions to itself, whatever the program or another copy of the library defines. -z
//! nodelete keeps it mapped after `dlclose`, because copy helper threads and callbacks of the driver run its code.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let version = |part| std::env::var(part).unwrap_or_default();
        let (major, minor) = (version("CARGO_PKG_VERSION_MAJOR"), version("CARGO_PKG_VERSION_MINOR"));
        let suffix = if major == "0" { format!("0.{minor}") } else { major };
        for argument in [&format!("-soname,libcudamem.so.{suffix}"), "-Bsymbolic", "-z,nodelete"] {
            println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
        }
    }
}
