//! The packages of `scripts/debian` can be installed, work for a program, and leave nothing behind when they are
//! removed.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::c_library::{Library, target_folder};
use testkit::compilers::{is_there, root, run};

/// Builds packages from the existing build.
fn packages(library: &Library) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_debian");
    let _ = std::fs::remove_dir_all(&folder);
    let (built, out) = (folder.join("built"), folder.join("packages"));
    std::fs::create_dir_all(&built).expect("the folder for temporary files is writable");
    let softgpu = "lib/cudamem/softgpu";
    for file in [
        "lib/libvkgdr.so",
        "bin/cuda-mem",
        "bin/softgpu",
        &format!("{softgpu}/libsoftgpu.so"),
        &format!("{softgpu}/libsoftgpu_nvml.so"),
    ] {
        let file = library.prefix().join(file);
        let name = file.file_name().expect("a file has a name");
        std::os::unix::fs::symlink(&file, built.join(name)).expect("the folder is writable");
    }
    let mut command = Command::new(root().join("scripts/debian"));
    command.args(["--profile", "dev", "--out"]).arg(&out).arg("--prebuilt").arg(&built);
    command.env("CARGO_TARGET_DIR", target_folder());
    // Compress quickly, because the packages are not kept.
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    run(&mut command);
    let made = std::fs::read_dir(&out).expect("it has made packages");
    let mut made: Vec<_> = made.map(|entry| entry.expect("the folder is readable").path()).collect();
    made.sort();
    made
}

/// The program in a language of the guide's section about CI.
fn of_the_guide(language: &str) -> String {
    let page = std::fs::read_to_string(root().join("docs/guide/testing-without-a-gpu.md")).expect("the page is there");
    let (_, section) = page.split_once("\n## In CI\n").expect("the page has the section");
    let (_, program) = section.split_once(&format!("\n```{language}\n")).expect("the section has the program");
    program.split_once("\n```").expect("the program ends").0.to_owned()
}

/// dpkg for a system within a folder.
fn dpkg(system: &Path) -> Command {
    let mut command = Command::new("dpkg");
    // That system has no libc6.
    command.arg(format!("--root={}", system.display())).args(["--force-depends", "--force-not-root"]);
    command
}

#[test]
fn packages_are_installed_serve_a_program_and_are_removed() {
    if !is_there("dpkg-deb") || !is_there("pkg-config") || !is_there("gcc") {
        return;
    }
    if run(Command::new("id").arg("-u")).trim() != "0" {
        println!("skipped: only root can install packages, also in a folder: run the test as root");
        return;
    }
    let library = Library::build();
    let packages = packages(&library);
    let version = env!("CARGO_PKG_VERSION");
    let architecture = run(Command::new("dpkg").arg("--print-architecture"));
    let names = ["cuda-mem", "libcudamem-dev", "libcudamem-softgpu", "libcudamem0.1", "libvkgdr1"];
    let expected = names.map(|name| format!("{name}_{version}_{}.deb", architecture.trim()));
    let found: Vec<_> = packages.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert_eq!(found, expected);
    for (package, name) in packages.iter().zip(names) {
        let field =
            |field: &str| run(Command::new("dpkg-deb").arg("--field").arg(package).arg(field)).trim().to_owned();
        assert_eq!((field("Package"), field("Version")), (name.to_owned(), version.to_owned()));
        assert!(field("Depends").contains("libc6"), "{}", field("Depends"));
        let contents = run(Command::new("dpkg-deb").arg("--contents").arg(package));
        assert!(contents.lines().all(|line| line.contains(" root/root ")), "{contents}");
        assert!(contents.contains(&format!("./usr/share/doc/{name}/copyright")), "{contents}");
        if name.ends_with(|letter: char| letter.is_ascii_digit()) {
            let symbols = run(Command::new("dpkg-deb").arg("--info").arg(package).arg("symbols"));
            assert!(symbols.contains(&format!(" {name} #MINVER#")) && symbols.lines().count() > 10, "{symbols}");
            assert!(run(Command::new("dpkg-deb").arg("--info").arg(package).arg("shlibs")).contains(name));
        }
    }

    let system = packages[0].with_file_name("system");
    for folder in ["info", "updates", "triggers"] {
        std::fs::create_dir_all(system.join("var/lib/dpkg").join(folder)).expect("the folder is writable");
    }
    std::fs::write(system.join("var/lib/dpkg/status"), "").expect("the folder is writable");
    run(dpkg(&system).arg("--install").args(&packages));
    assert_eq!(run(dpkg(&system).arg("--verify")), "", "files are not what md5sums says");

    let multiarch = run(Command::new("gcc").arg("-print-multiarch"));
    let libraries = system.join("usr/lib").join(multiarch.trim());
    let flags = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", "")
        .env("PKG_CONFIG_LIBDIR", libraries.join("pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", "")
        .args(["--cflags", "--libs", "cudamem"]));
    assert!(flags.contains(&*system.to_string_lossy()), "{flags}");
    let program = system.join("program");
    run(Command::new("gcc")
        .arg(root().join("ffi-tests/c/install/user.c"))
        .arg("-o")
        .arg(&program)
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", libraries.display())));
    let mut command = Command::new(&program);
    library.choose_driver(&mut command);
    assert!(run(&mut command).contains("everything as expected"));
    assert!(run(Command::new(system.join("usr/bin/cuda-mem")).arg("--version")).contains(version));
    // The program again, on the software GPU of the package.
    let softgpu = libraries.join("cudamem/softgpu/libsoftgpu.so");
    let mut command = Command::new(&program);
    command.env("CUDA_MEM_LIBCUDA", &softgpu).env("CUDA_MEM_LIBVKGDR", &softgpu);
    assert!(run(&mut command).contains("everything as expected"));
    // The guide's program for CI, built and started as there, in a folder of its own and with nothing else in the environment.
    let (source, built) = (system.join("mean.cpp"), system.join("mean"));
    std::fs::write(&source, of_the_guide("cpp")).expect("the folder is writable");
    let mut command = Command::new("g++");
    command.arg("-std=c++17").arg(&source).arg("-o").arg(&built).args(flags.split_whitespace());
    run(command.arg(format!("-Wl,-rpath,{}", libraries.display())));
    let softgpu_run = |options: &[&str], program: &[&str]| {
        let mut command = Command::new(system.join("usr/bin/softgpu"));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(&system).arg("run").args(options);
        command.arg("--").args(program).output().expect("the command starts")
    };
    let done = softgpu_run(&["--devices", "1", "--races"], &["./mean"]);
    assert!(done.status.success() && done.stdout == b"mean 3\n", "{done:?}");
    // NVML is there too, and has the same machine.
    if is_there("python3") {
        let program = "import ctypes; nvml = ctypes.CDLL('libnvidia-ml.so.1'); n = ctypes.c_uint(); nvml.nvmlInit_v2()\n\
                       nvml.nvmlDeviceGetCount_v2(ctypes.byref(n)); print(n.value)";
        let done = softgpu_run(&["--devices", "5"], &["python3", "-c", program]);
        assert!(done.status.success() && done.stdout == b"5\n", "{done:?}");
    }
    let doctor = Command::new(system.join("usr/bin/cuda-mem")).args(["doctor", "--json"]).output().expect("it starts");
    assert!(String::from_utf8_lossy(&doctor.stdout).contains(&*softgpu.to_string_lossy()), "{doctor:?}");
    for page in ["man/man1/cuda-mem.1.gz", "bash-completion/completions/cuda-mem", "zsh/vendor-completions/_cuda-mem"] {
        assert!(system.join("usr/share").join(page).exists(), "{page}");
    }

    run(dpkg(&system).arg("--purge").args(names));
    assert!(!system.join("usr").exists(), "files are left: {}", system.display());
}
