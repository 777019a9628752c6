//! libvkgdr.so.1 must be a drop-in for upstream's library: one C program, built with our installed header as C and as
//! C++, must run on either.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::c_library::Library;
use testkit::compilers::{is_there, root, run};

/// Upstream's library, which scripts/test downloads. The environment names it.
fn upstream() -> Option<PathBuf> {
    let path = std::env::var_os("UPSTREAM_VKGDR").map(PathBuf::from).filter(|path| path.exists());
    if path.is_none() {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none(), "UPSTREAM_VKGDR is not set: use scripts/test");
        println!("skipped: UPSTREAM_VKGDR is not set: scripts/test downloads and names it");
    }
    path
}

/// A folder in which the libraries have the names that programs link.
fn folder(name: &str, libraries: &[(&Path, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    for (library, name) in libraries {
        let link = folder.join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(library, &link).expect("the folder is writable");
    }
    folder
}

fn build_and_run(name: &str, vkgdr: &Path, softgpu: &Path, define: &str) {
    let icd = std::env::var("CUDA_MEM_CPU_ICDS").unwrap_or_default();
    let Some(icd) = std::env::split_paths(&icd).next().filter(|icd| icd.exists()) else {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none(), "no CPU Vulkan driver");
        println!("skipped: no CPU Vulkan driver: apt-get install mesa-vulkan-drivers, and scripts/test names it");
        return;
    };
    // SAFETY: the Vulkan loader's start has no conditions.
    if let Err(error) = unsafe { libloading::Library::new("libvulkan.so.1") } {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none(), "no Vulkan loader: {error}");
        println!("skipped: no Vulkan loader: apt-get install libvulkan1");
        return;
    }
    // Upstream's library needs its module in the same folder.
    let beside = vkgdr.parent().expect("a file lies in a folder").display().to_string();
    let folder = folder(name, &[(vkgdr, "libvkgdr.so"), (softgpu, "libcuda.so.1")]);
    let source = root().join("ffi-tests/c/vkgdr_user.c");
    for (compiler, arguments) in [("gcc", ["-x", "c", "-std=c11"]), ("g++", ["-x", "c++", "-std=c++17"])] {
        if !is_there(compiler) {
            continue;
        }
        let program = folder.join(compiler);
        let mut command = Command::new(compiler);
        command.args(arguments).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", define, "-o"]).arg(&program);
        command.arg(&source).args(["-x", "none"]);
        command.arg(format!("-I{}", Library::build().prefix().join("include").display()));
        command.args([vkgdr, &folder.join("libcuda.so.1")]);
        command.arg(format!("-Wl,-rpath,{}:{beside}", folder.display())).arg("-Wl,--allow-shlib-undefined");
        run(&mut command);
        // The program needs the library by its SONAME, which is not the name of our library's file.
        let soname = folder.join("libvkgdr.so.1");
        let _ = std::fs::remove_file(&soname);
        std::os::unix::fs::symlink(vkgdr, &soname).expect("the folder is writable");
        let upstream_name = folder.join("libvkgdr-upstream.so");
        let _ = std::fs::remove_file(&upstream_name);
        std::os::unix::fs::symlink(vkgdr, &upstream_name).expect("the folder is writable");
        let text = run(Command::new(&program)
            .env("LD_LIBRARY_PATH", format!("{}:{beside}", folder.display()))
            .env("SOFTGPU_VULKAN", "1")
            .env("VK_DRIVER_FILES", &icd)
            .env("VK_ICD_FILENAMES", &icd));
        assert!(text.contains("everything as expected"), "{text}");
    }
}

#[test]
fn a_program_of_upstream_s_interface_runs_on_our_library() {
    let library = Library::build();
    build_and_run("ours", &library.folder().join("libvkgdr.so"), library.softgpu(), "-DOURS");
}

#[test]
fn the_same_program_runs_on_upstream_s_library() {
    if let Some(vkgdr) = upstream() {
        build_and_run("upstream", &vkgdr, Library::build().softgpu(), "-DUPSTREAM");
    }
}

/// A linked-in provider must serve every function of the raw crate, so that none is missing from its list.
#[test]
fn both_linked_in_providers_serve_the_whole_vkgdr_interface() {
    use cuda_mem::vkgdr_sys::Functions;
    for symbol in Functions::SYMBOLS {
        assert!(!vkgdr::symbol(symbol.name).is_null(), "vkgdr lacks {:?}", symbol.name);
        assert!(!softgpu::vkgdr_symbol(symbol.name).is_null(), "softgpu lacks {:?}", symbol.name);
    }
    assert_eq!(vkgdr::SYMBOLS.len(), Functions::SYMBOLS.len(), "vkgdr exports a function that the raw crate lacks");
}
