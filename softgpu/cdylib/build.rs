//! Names the library as programs look for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Its worker threads run its code to the end of the process, so a dlclose must not unmap it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
