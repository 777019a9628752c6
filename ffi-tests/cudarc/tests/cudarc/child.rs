//! Runs a part of a test in a process in which libcuda is softgpu. On a GPU, the parts run by
//! `--ignored --test-threads 1`.

use cuda_mem::Driver;
use libloading::Library;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::in_its_own_process;

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// softgpu's library, which scripts/test builds.
pub fn softgpu() -> Option<PathBuf> {
    let Some(library) = std::env::var_os("SOFTGPU_LIBRARY").map(PathBuf::from).filter(|path| path.exists()) else {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "SOFTGPU_LIBRARY is not set: use scripts/test");
        println!("skipped: SOFTGPU_LIBRARY is not set: scripts/test builds libsoftgpu.so and names it");
        return None;
    };
    Some(library.canonicalize().expect("the library has a path"))
}

/// A command with softgpu under the names that cudarc looks for. It reports unordered work, and its streams are slow.
pub fn with_softgpu(mut command: Command) -> Option<Command> {
    let library = softgpu()?;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cudarc");
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    for name in ["libcuda.so", "libcuda.so.1"] {
        let (link, new) = (folder.join(name), folder.join(format!("{name}.{:?}", std::thread::current().id())));
        // Renamed into place: other tests' processes use it.
        let _ = std::fs::remove_file(&new);
        std::os::unix::fs::symlink(&library, &new).expect("the folder is writable");
        std::fs::rename(&new, &link).expect("the folder is writable");
    }
    command.env("LD_LIBRARY_PATH", &folder).env_remove("CUDA_MEM_LIBCUDA");
    command.env("SOFTGPU_RACES", "1").env("SOFTGPU_SEED", "7");
    Some(command)
}

/// Runs a command to its end, and returns what it printed.
pub fn run(mut command: Command) -> String {
    let output = command.output().expect("the process starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

/// Runs an ignored test of this program, with settings.
pub fn part(name: &str, settings: &[(&str, &str)]) {
    let Some(mut command) = with_softgpu(in_its_own_process(name)) else { return };
    command.envs(settings.iter().copied());
    let text = run(command);
    assert!(text.contains("1 passed"), "there is no part {name}: {text}");
}

/// Checks, at the end of a part, that nothing is left and nothing was misused, as far as the driver is softgpu.
pub fn finish() -> Outcome {
    let driver = Driver::load()?;
    if !driver.is_software() {
        return Ok(());
    }
    // SAFETY: the library is loaded already.
    let library = unsafe { Library::new("libcuda.so.1") }?;
    let text = |name: &[u8]| -> Result<String, libloading::Error> {
        // SAFETY: both functions take nothing and return text, which stays until the process ends.
        unsafe {
            let report = library.get::<unsafe extern "C" fn() -> *mut c_char>(name)?;
            Ok(CStr::from_ptr(report()).to_string_lossy().into_owned())
        }
    };
    let (misuse, ledger) = (text(b"softgpu_misuse_report\0")?, text(b"softgpu_ledger_report\0")?);
    // SAFETY: as above.
    let live = unsafe { library.get::<unsafe extern "C" fn() -> usize>(b"softgpu_ledger_live\0")?() };
    assert_eq!(misuse, "", "softgpu reports misuse");
    assert_eq!(live, 0, "left behind:\n{ledger}");
    Ok(())
}

/// One test for each part: it runs the part in a process of its own. The caller has this module in scope.
macro_rules! parts {
    ($($(#[$settings:meta])? fn $test:ident() runs $part:ident;)*) => { $(
        #[test]
        fn $test() {
            child::part(&testkit::test_name!(stringify!($part)), &[]);
        }
    )* };
}
pub(crate) use parts;
