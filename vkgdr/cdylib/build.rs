//! Gives the shared library its SONAME and keeps it mapped after `dlclose`: the Vulkan objects in its cache outlive the
//! last handle.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libvkgdr.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
