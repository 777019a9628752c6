//! Libraries that are missing, broken, or lack half of their functions: each must give a specific error, and nothing
//! may panic. Each case runs in its own process, because the environment applies to a whole process.

use cuda_mem::mapped::MappedMemory;
use cuda_mem::memory::{DevicePool, DriverPoolOptions};
use cuda_mem::signal::{Comparison, Signals, Waiter};
use cuda_mem::{Driver, Error, Stream};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::in_its_own_process;

/// Runs one of the cases below, by name, in a new process with this environment. Returns its output.
fn in_a_process(case: &str, environment: &[(&str, &str)]) -> String {
    let mut command = in_its_own_process(case);
    for variable in
        ["CUDA_MEM_LIBCUDA", "CUDA_MEM_LIBVKGDR", "SOFTGPU_VULKAN", "SOFTGPU_DEVICES", "VKGDR_VULKAN_LIBRARY"]
    {
        command.env_remove(variable);
    }
    let output = command.envs(environment.iter().copied()).output().expect("the process starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    text
}

/// Builds a small C library.
fn c_library(name: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&file, source).expect("the folder for temporary files is writable");
    // Outside a build script, cc does not know the target.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    let status = compiler.to_command().args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler:?} does not build {}", file.display());
    library
}

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_load() {
    match Driver::load() {
        Ok(driver) => println!("loaded {}", driver.provider().library),
        Err(error) => println!("error: {error}"),
    }
}

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_open() {
    let result = Driver::load().and_then(|driver| {
        let context = driver.device(0)?.primary_context()?;
        testkit::mapped(&MappedMemory::new(&context)?, 4096)
    });
    match result {
        Ok(memory) => println!("opened {memory:?}"),
        Err(error) => println!("error: {error}"),
    }
}

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_signals() -> Result<(), Error> {
    let context = Driver::load()?.device(0)?.primary_context()?;
    let (signals, stream) = (Signals::new(&context)?, Stream::new(&context)?);
    println!("mapped: {}", signals.why_not_mapped().unwrap_or("yes"));
    let (word, long) = (signals.flag::<u32>(Waiter::Device)?, signals.flag::<u64>(Waiter::Device)?);
    // The waits below pass at once, if they are supported.
    word.store(1);
    long.store(1);
    for (what, result) in [
        ("32 bits", word.wait_on(&stream, Comparison::Equal, 1)),
        ("64 bits", long.wait_on(&stream, Comparison::Equal, 1)),
        ("a write of 64 bits", long.store_on(&stream, 1)),
        ("a clear bit", word.wait_on(&stream, Comparison::NotAllBits, 1)),
    ] {
        println!("{what}: {}", result.map_or_else(|error| error.to_string(), |()| "yes".to_owned()));
    }
    stream.synchronize()
}

#[test]
fn signal_support_is_queried_in_advance_per_feature() {
    let text = |variable, value| in_a_process("part_signals", &[("CUDA_MEM_LIBCUDA", "softgpu"), (variable, value)]);
    let all = text("SOFTGPU_DEVICES", "1");
    assert_eq!(all.matches(": yes").count(), 5, "{all}");
    let old = text("SOFTGPU_VERSION", "11060");
    assert_eq!(
        (old.matches("is not supported here: it needs CUDA 11.7").count(), old.matches(": yes").count()),
        (4, 1),
        "{old}"
    );
    let narrow = text("SOFTGPU_ATTRIBUTES", "122=0");
    assert_eq!(
        (narrow.matches("words of 32 bits need none").count(), narrow.matches(": yes").count()),
        (2, 3),
        "{narrow}"
    );
    let without_nor = text("SOFTGPU_ATTRIBUTES", "123=0");
    assert!(without_nor.contains("a clear bit: a stream that waits for a clear bit is not supported"), "{without_nor}");
    assert_eq!(without_nor.matches(": yes").count(), 4, "{without_nor}");
    // If the driver does not know the attribute, the call is tried.
    assert_eq!(text("SOFTGPU_ATTRIBUTES", "122=unknown,123=unknown").matches(": yes").count(), 5);
    let pinned = text("CUDA_MEM_LIBVKGDR", "/nowhere/libvkgdr.so.1");
    assert!(pinned.contains("mapped: mapped memory (") && pinned.contains("/nowhere/libvkgdr.so.1"), "{pinned}");
    assert_eq!(pinned.matches(": yes").count(), 4, "{pinned}");
}

#[test]
fn no_driver_lists_every_place_and_what_to_install() {
    if Driver::load().is_ok() {
        println!("skipped: this machine has a CUDA driver; run it on one without");
        return;
    }
    let text = in_a_process("part_load", &[]);
    for part in [
        "libcuda.so.1: ",
        "/usr/lib/wsl/lib/libcuda.so.1: ",
        "libcuda.so: ",
        "cannot open shared object",
        "Install NVIDIA's driver",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn configured_library_is_used_or_reported_but_never_replaced() {
    let text = in_a_process("part_load", &[("CUDA_MEM_LIBCUDA", "/nowhere/libcuda.so.1")]);
    assert!(
        text.contains("error: ") && text.contains("/nowhere/libcuda.so.1") && text.contains("CUDA_MEM_LIBCUDA"),
        "{text}"
    );
    let text = in_a_process("part_load", &[("CUDA_MEM_LIBCUDA", "softgpu")]);
    assert!(text.contains("loaded softgpu"), "{text}");
    let text =
        in_a_process("part_open", &[("CUDA_MEM_LIBCUDA", "softgpu"), ("CUDA_MEM_LIBVKGDR", "/nowhere/libvkgdr.so")]);
    assert!(text.contains("error: ") && text.contains("/nowhere/libvkgdr.so"), "{text}");
}

#[test]
fn a_library_that_is_no_driver_says_which_function_it_lacks() {
    let library = c_library("not_cuda", "int something_else(void) { return 1; }\n");
    let text = in_a_process("part_load", &[("CUDA_MEM_LIBCUDA", &library.to_string_lossy())]);
    assert!(text.contains("has no function cuInit: it came with CUDA 2.0"), "{text}");
}

#[test]
fn incomplete_driver_error_names_the_missing_function() {
    // An old driver, which has contexts but no external memory.
    let library = c_library(
        "old_cuda",
        "int cuInit(unsigned f) { (void)f; return 0; }
         int cuDriverGetVersion(int *v) { *v = 9020; return 0; }
         int cuDeviceGetCount(int *n) { *n = 1; return 0; }
         int cuDeviceGet(int *d, int i) { *d = i; return i == 0 ? 0 : 101; }
         static int context;
         int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &context; return 0; }
         int cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return 0; }
         int cuCtxGetCurrent(void **c) { *c = &context; return 0; }\n",
    );
    let path = library.to_string_lossy().into_owned();
    let text = in_a_process("part_open", &[("CUDA_MEM_LIBCUDA", &path), ("CUDA_MEM_LIBVKGDR", "vkgdr")]);
    assert!(text.contains("error: ") && !text.contains("panicked"), "{text}");
    println!("{text}");
    // SAFETY: the library was built just now, with the signatures of the interface.
    let driver = unsafe { Driver::builder().cuda(&library).load() }.expect("it has what loading needs");
    assert_eq!(driver.provider().version.map(|version| version.to_string()).as_deref(), Some("9.2"));
    let error = driver.device(0).and_then(|device| device.uuid()).expect_err("there is no cuDeviceGetUuid");
    assert!(matches!(error, Error::MissingSymbol(_)), "{error}");
    assert!(!driver.raw().supports(cuda_mem::cuda_sys::Capability::ExternalMemory));
}

#[test]
#[ignore = "a part of the tests below, which give it an environment"]
fn part_missing() -> Result<(), Error> {
    let driver = Driver::load()?;
    println!("softgpu: {}", driver.is_software());
    let context = driver.device(0)?.primary_context()?;
    println!("{}", DevicePool::new(&context, &DriverPoolOptions::default()).expect_err("the driver has no pools"));
    Ok(())
}

#[test]
fn softgpu_library_offers_mapped_memory_and_reports_its_setting() {
    let Some(library) = std::env::var("SOFTGPU_LIBRARY").ok().filter(|path| Path::new(path).exists()) else {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "SOFTGPU_LIBRARY is not set: use scripts/test");
        println!("skipped: SOFTGPU_LIBRARY is not set: scripts/test builds libsoftgpu.so and names it");
        return;
    };
    let text = in_a_process("part_open", &[("CUDA_MEM_LIBCUDA", &library)]);
    assert!(text.contains("opened "), "{text}");
    let text = in_a_process("part_missing", &[("CUDA_MEM_LIBCUDA", &library), ("SOFTGPU_VERSION", "11010")]);
    assert!(text.contains("softgpu: true") && text.contains("SOFTGPU_VERSION"), "{text}");
}

#[test]
fn a_driver_without_a_gpu_says_where_to_look() {
    let library = c_library("no_gpu", "int cuInit(unsigned f) { (void)f; return 100; }\n");
    let text = in_a_process("part_load", &[("CUDA_MEM_LIBCUDA", &library.to_string_lossy())]);
    assert!(text.contains("cuInit failed: CUDA_ERROR_NO_DEVICE (100): ") && text.contains("nvidia-smi"), "{text}");
}

#[test]
fn no_vulkan_says_what_to_install() {
    let environment = [
        ("CUDA_MEM_LIBCUDA", "softgpu"),
        ("CUDA_MEM_LIBVKGDR", "vkgdr"),
        ("VKGDR_VULKAN_LIBRARY", "/nowhere/libvulkan.so.1"),
    ];
    let text = in_a_process("part_open", &environment);
    assert!(text.contains("error: ") && text.contains("/nowhere/libvulkan.so.1"), "{text}");
}

#[test]
fn a_vulkan_without_a_matching_device_lists_those_it_has() {
    // Without SOFTGPU_VULKAN the software GPU reports its own identity.
    let text = in_a_process("part_open", &[("CUDA_MEM_LIBCUDA", "softgpu"), ("CUDA_MEM_LIBVKGDR", "vkgdr")]);
    if text.contains("libvulkan1") {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_VULKAN").is_none(), "{text}");
        println!("skipped: no Vulkan loader; apt-get install libvulkan1 mesa-vulkan-drivers");
        return;
    }
    assert!(text.contains("error: ") && text.to_lowercase().contains("uuid"), "{text}");
    println!("{text}");
}

const VARIABLES: [&str; 2] = ["CUDA_MEM_LIBCUDA", "CUDA_MEM_LIBVKGDR"];

#[test]
#[ignore = "a part of the test below, which gives it an environment"]
fn part_environment() {
    // SAFETY: the call only reads the process's auxiliary vector.
    let raised = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    println!("raised: {raised}");
    for variable in VARIABLES {
        assert!(std::env::var_os(variable).is_some(), "{variable} was not set");
        println!("{variable}: {:?}", cuda_mem::cuda_sys::load::environment(variable));
    }
}

#[test]
fn a_set_user_id_program_ignores_its_environment() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let variables = VARIABLES.map(|variable| (variable, "/planted"));
    let read = in_a_process("part_environment", &variables);
    assert_eq!(read.matches(": Some(\"/planted\")").count(), VARIABLES.len(), "{read}");
    // The same program, as a set-user-id program of the user nobody.
    const NOBODY: u32 = 65534;
    let folder = std::env::temp_dir().join(format!("cuda-mem-raised-{}", std::process::id()));
    let program = folder.join("program");
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("there is room");
    let owned = chown(&program, Some(NOBODY), Some(NOBODY))
        .and_then(|()| std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)))
        .and_then(|()| std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)));
    let output = owned.and_then(|()| {
        Command::new(&program)
            .args(["--exact", "part_environment", "--nocapture", "--ignored"])
            .envs(variables)
            .output()
    });
    std::fs::remove_dir_all(&folder).expect("it was made here");
    let text = match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            text
        }
        Err(error) => {
            println!("skipped: no set-user-id program can be made ({error}); run it as root");
            return;
        }
    };
    if !text.contains("raised: true") {
        println!(
            "skipped: the system gives set-user-id programs no rights; mount the folder for temporary files without nosuid"
        );
        return;
    }
    assert_eq!(text.matches(": None").count(), VARIABLES.len(), "{text}");
}

/// A variable that is read without the function that checks the program's privileges would not show up in such a
/// program, so this test searches the sources.
#[test]
fn the_environment_is_read_in_one_place() {
    fn look(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                look(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                let product = text.split("#[cfg(test)]").next().unwrap_or_default();
                let is_code = |line: &&str| !line.trim_start().starts_with("//");
                let reads = |line: &&str| is_code(line) && (line.contains("env::var") || line.contains("getenv("));
                found.extend(product.lines().filter(reads).map(|line| format!("{}: {}", path.display(), line.trim())));
            }
        }
    }
    let root = testkit::compilers::root();
    let mut found = Vec::new();
    for folder in ["cuda-mem/src", "cuda-sys/src", "vkgdr/src", "vkgdr-sys/src", "ucx-sys/src", "softgpu/src", "src"] {
        look(&root.join(folder), &mut found);
    }
    // A variable, and the names of all.
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|line| line.contains("cuda-sys/src/load.rs")), "{found:#?}");
}
