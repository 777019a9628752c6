//! Gives libcudamem its SONAME. Before 1.0 a minor release may change the interface, so the name carries it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        let version = |part| std::env::var(part).unwrap_or_default();
        let (major, minor) = (version("CARGO_PKG_VERSION_MAJOR"), version("CARGO_PKG_VERSION_MINOR"));
        let suffix = if major == "0" { format!("0.{minor}") } else { major };
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcudamem.so.{suffix}");
    }
}
