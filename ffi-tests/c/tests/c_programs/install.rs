//! The files that `scripts/install` installs suffice for programs in C and C++: with plain flags, with pkg-config and
//! with CMake, shared and static, even after the whole prefix was moved.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::c_library::Library;
use testkit::compilers::{is_there, root, run};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];
const C: [(&str, &[&str]); 2] = [("gcc", &["c11", "c17"]), ("clang", &["c11", "c17"])];
const CPP: [(&str, &[&str]); 2] = [("g++", &["c++17", "c++20", "c++2b"]), ("clang++", &["c++17", "c++20", "c++2b"])];

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_install").join(name);
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    folder
}

fn source(name: &str) -> PathBuf {
    root().join("ffi-tests/c/install").join(name)
}

/// Copies the prefix to another place, where only installed files can be found.
fn moved(library: &Library, name: &str) -> PathBuf {
    let prefix = folder("").join(name);
    let _ = std::fs::remove_dir_all(&prefix);
    run(Command::new("cp").arg("-a").arg(library.prefix()).arg(&prefix));
    prefix
}

fn runs(library: &Library, program: &Path) {
    let mut command = Command::new(program);
    library.choose_driver(&mut command);
    let text = run(&mut command);
    assert!(text.contains("everything as expected"), "{text}");
}

/// Compiles with every compiler and standard, links and runs. Uses the static library once for each compiler.
#[test]
fn programs_of_every_standard_build_by_plain_flags() {
    let library = Library::build();
    let folder = folder("plain");
    let include = format!("-I{}", library.prefix().join("include").display());
    let mut link_static = library.link_static();
    link_static.extend(["-lgcc_s", "-lpthread", "-lm", "-ldl"].map(str::to_owned));
    for (compilers, file) in [(C, "user.c"), (CPP, "user.cpp")] {
        for (compiler, standards) in compilers {
            if !is_there(compiler) {
                continue;
            }
            for (index, standard) in standards.iter().enumerate() {
                let program = folder.join(format!("{compiler}-{standard}"));
                let object = program.with_extension("o");
                let mut command = Command::new(compiler);
                command.arg(format!("-std={standard}")).args(WARNINGS).arg(&include).arg("-c").arg(source(file));
                run(command.arg("-o").arg(&object));
                let kinds = [library.link_shared(), link_static.clone()];
                for link in &kinds[..if index == 0 { 2 } else { 1 }] {
                    run(Command::new(compiler).arg(&object).arg("-o").arg(&program).args(link));
                    runs(&library, &program);
                }
            }
        }
    }
}

/// Runs pkg-config as a user who has only the prefix.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", "").env("PKG_CONFIG_LIBDIR", prefix.join("lib/pkgconfig"));
    run(command.args(arguments)).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn programs_build_by_pkg_config_from_a_prefix_that_was_moved() {
    if !is_there("pkg-config") || !is_there("gcc") || !is_there("g++") {
        return;
    }
    let library = Library::build();
    let (folder, prefix) = (folder("pkg-config"), moved(&library, "moved-pkg-config"));
    assert_eq!(pkg_config(&prefix, &["--modversion", "cudamem"]), [env!("CARGO_PKG_VERSION")]);
    let flags = pkg_config(&prefix, &["--cflags", "--libs", "cudamem"]);
    let rpath = format!("-Wl,-rpath,{}", pkg_config(&prefix, &["--variable=libdir", "cudamem"])[0]);
    for (compiler, file) in [("gcc", "user.c"), ("g++", "user.cpp")] {
        let program = folder.join(format!("shared-{compiler}"));
        run(Command::new(compiler).arg(source(file)).arg("-o").arg(&program).args(&flags).arg(&rpath));
        runs(&library, &program);
        let loaded = run(Command::new("ldd").arg(&program));
        let resolved = prefix.canonicalize().expect("it is there");
        assert!(
            loaded.contains(&*resolved.to_string_lossy()) || loaded.contains(&*prefix.to_string_lossy()),
            "{loaded}"
        );
    }
    // As the documentation describes it for the static library, on a system that also has the shared one.
    let program = folder.join("static");
    run(Command::new("gcc")
        .arg("-Wl,--as-needed")
        .arg(source("user.c"))
        .arg("-o")
        .arg(&program)
        .arg(prefix.join("lib/libcudamem.a"))
        .args(pkg_config(&prefix, &["--cflags", "--static", "--libs", "cudamem"])));
    assert!(!run(Command::new("ldd").arg(&program)).contains("libcudamem"), "it needs the shared library");
    runs(&library, &program);

    let program = folder.join("vkgdr");
    let flags = pkg_config(&prefix, &["--cflags", "--libs", "vkgdr"]);
    run(Command::new("gcc").arg(source("vkgdr.c")).arg("-o").arg(&program).args(&flags).arg(&rpath));
    assert!(run(&mut Command::new(&program)).contains("cuda-mem"));
}

#[test]
fn programs_build_by_cmake_from_a_prefix_that_was_moved() {
    if !is_there("cmake") {
        return;
    }
    let library = Library::build();
    let prefix = moved(&library, "moved-cmake");
    for (c, cpp) in [("gcc", "g++"), ("clang", "clang++")] {
        if !is_there(c) || !is_there(cpp) {
            continue;
        }
        let build = folder("").join(format!("cmake-{c}"));
        let _ = std::fs::remove_dir_all(&build);
        run(Command::new("cmake")
            .arg("-S")
            .arg(source(""))
            .arg("-B")
            .arg(&build)
            .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
            .args([format!("-DCMAKE_C_COMPILER={c}"), format!("-DCMAKE_CXX_COMPILER={cpp}")]));
        run(Command::new("cmake").arg("--build").arg(&build).args(["--parallel", "2"]));
        for program in ["c_shared", "c_static", "cpp_shared", "cpp_static"] {
            runs(&library, &build.join(program));
        }
        assert!(run(&mut Command::new(build.join("vkgdr"))).contains("cuda-mem"));
        let mut command = Command::new("ctest");
        command.arg("--output-on-failure").current_dir(&build).env_remove("CUDA_MEM_LIBCUDA");
        assert!(run(&mut command).contains("100% tests passed"));
    }
}

/// A package of C++ asks for no more than a program in C has.
#[test]
fn a_program_in_c_builds_by_cmake_without_a_cpp_compiler() {
    if !is_there("cmake") || !is_there("gcc") {
        return;
    }
    let library = Library::build();
    let prefix = moved(&library, "moved-cmake-c");
    let project = folder("cmake-c-alone");
    let text = "cmake_minimum_required(VERSION 3.16)\nproject(user LANGUAGES C)\nfind_package(cudamem 0.1 REQUIRED)\n\
                add_executable(user ${SOURCE})\ntarget_link_libraries(user PRIVATE cudamem::cudamem)\n";
    std::fs::write(project.join("CMakeLists.txt"), text).expect("the folder is writable");
    let build = project.join("build");
    let _ = std::fs::remove_dir_all(&build);
    let configure = |more: &str| {
        let mut command = Command::new("cmake");
        command.arg("-S").arg(&project).arg("-B").arg(&build).arg(more);
        command.arg(format!("-DSOURCE={}", source("user.c").display()));
        command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).env("CXX", "/there/is/none");
        command
    };
    run(&mut configure("-DCMAKE_C_COMPILER=gcc"));
    run(Command::new("cmake").arg("--build").arg(&build));
    runs(&library, &build.join("user"));

    let text = "cmake_minimum_required(VERSION 3.16)\nproject(user LANGUAGES C)\n\
                find_package(cudamem 0.1 REQUIRED COMPONENTS kernels)\n";
    std::fs::write(project.join("CMakeLists.txt"), text).expect("the folder is writable");
    let output = configure("-DCMAKE_C_COMPILER=gcc").output().expect("cmake starts");
    // CMake breaks the lines of messages.
    let words = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    let message =
        "cudamem has no component kernels: its components are cpp, cpp_static, cudamem, cudamem_static, vkgdr";
    assert!(!output.status.success() && words.contains(message), "{words}");
}

/// Runs the program that measures the start. docs/measurements has its figures.
#[test]
fn the_library_can_be_loaded_and_used_where_there_is_no_driver() {
    if !is_there("gcc") {
        return;
    }
    let library = Library::build();
    let program = folder("plain").join("startup");
    let include = format!("-I{}", library.prefix().join("include").display());
    let mut command = Command::new("gcc");
    run(command
        .arg("-std=c11")
        .args(WARNINGS)
        .arg(include)
        .arg(source("startup.c"))
        .arg("-o")
        .arg(&program)
        .arg("-ldl"));
    let mut command = Command::new(&program);
    let text = run(command.arg(library.shared()).env("CUDA_MEM_LIBCUDA", "/nowhere/libcuda.so.1"));
    // 2 is CUDAMEM_ERROR_LOAD.
    assert!(text.contains("(status 2, "), "{text}");
}

#[test]
fn what_is_uninstalled_leaves_what_others_put_there() {
    let library = Library::build();
    let prefix = moved(&library, "uninstalled");
    for file in ["include/other.h", "include/cudamem/other.h", "share/other"] {
        std::fs::write(prefix.join(file), "another's").expect("the prefix is writable");
    }
    let uninstall = |prefix: &Path| {
        let mut command = Command::new(root().join("scripts/install"));
        command.args(["--uninstall", "--prefix"]).arg(prefix);
        command
    };
    run(&mut uninstall(&prefix));
    let left = run(Command::new("find").arg(&prefix).args(["-not", "-type", "d", "-printf", "%P\n"]));
    let mut left: Vec<&str> = left.lines().collect();
    left.sort_unstable();
    assert_eq!(left, ["include/cudamem/other.h", "include/other.h", "share/other"]);
    let folders = run(Command::new("find").arg(&prefix).args(["-mindepth", "1", "-type", "d", "-printf", "%P\n"]));
    let mut folders: Vec<&str> = folders.lines().collect();
    folders.sort_unstable();
    assert_eq!(folders, ["include", "include/cudamem", "share"]);
    let again = uninstall(&prefix).output().expect("it starts");
    assert!(!again.status.success(), "nothing is there to be uninstalled");

    let prefix = moved(&library, "uninstalled");
    run(&mut uninstall(&prefix));
    assert!(!prefix.exists(), "the installation made this folder");
}

#[test]
fn the_command_shows_the_software_gpu_that_is_installed_with_it() {
    let library = Library::build();
    let prefix = moved(&library, "moved-softgpu");
    let doctor = Command::new(prefix.join("bin/cuda-mem")).arg("doctor").output().expect("it starts");
    let text = String::from_utf8_lossy(&doctor.stdout);
    let named = text.split_whitespace().find_map(|word| word.strip_prefix("CUDA_MEM_LIBCUDA=/"));
    let path = &format!("/{}", named.unwrap_or_else(|| panic!("{text}")));
    assert!(Path::new(path).ends_with("moved-softgpu/lib/cudamem/softgpu/libsoftgpu.so"), "{path}");
    let names = ["libcuda.so.1", "libnvidia-ml.so.1"].map(|name| Path::new(path).with_file_name(name).exists());
    assert_eq!(names, [true, true]);
    if is_there("pkg-config") {
        let variable = pkg_config(&prefix, &["--variable=softgpu", "cudamem"]);
        assert!(Path::new(&variable[0]).exists(), "{variable:?}");
    }
    if is_there("gcc") {
        let program = folder("plain").join("software");
        let include = format!("-I{}", prefix.join("include").display());
        run(Command::new("gcc").arg(source("user.c")).arg(include).arg("-o").arg(&program).args(library.link_shared()));
        let mut command = Command::new(&program);
        let text = run(command.env("CUDA_MEM_LIBCUDA", path).env("CUDA_MEM_LIBVKGDR", path));
        assert!(text.contains("everything as expected"), "{text}");
    }
}
