//! Gives the library the SONAME that programs look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // dlclose must not unmap the library: its worker threads run its code until the process ends.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
