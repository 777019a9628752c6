//! How libcudamem is linked as a shared library.
//!
//! Its SONAME: before 1.0 a minor release may change the interface, so the name carries it. Its own calls of its functions
//! stay its own, whatever the program or another copy of the library defines. And it stays mapped after `dlclose`: threads
//! that help with copies, and the driver's callbacks, run its code.

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
