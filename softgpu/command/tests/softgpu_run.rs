//! The command runs programs on softgpu, reports what they did wrong, and otherwise ends as they do.

use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The command in a folder with the libraries, as in a Python package.
fn softgpu(name: &str) -> Command {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("softgpu-command-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the build's folder is writable");
    let program = folder.join("softgpu");
    // A symbolic link would lead to the folder of the build. A copy cannot be run while a process that another test has
    // just forked still has it open for writing.
    std::fs::hard_link(env!("CARGO_BIN_EXE_softgpu"), &program).expect("the command is built");
    // Cargo builds the libraries that tests depend on beside them.
    let built = std::env::current_exe().expect("a test has a path").with_file_name("libsoftgpu.so");
    symlink(built, folder.join("libcuda.so.1")).expect("the build's folder is writable");
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    let defaults = || {
        for signal in [libc::SIGINT, libc::SIGHUP] {
            // SAFETY: a call that a forked process may make. Whoever started the tests may ignore these signals.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: as above.
    unsafe { command.pre_exec(defaults) };
    command
}

/// A program in Python, which makes calls of the driver.
fn program(name: &str, options: &[&str], text: &str) -> Output {
    let start = "import ctypes, sys; cuda = ctypes.CDLL('libcuda.so.1'); memory = ctypes.c_uint64(); n = ctypes.c_int()\n\
                 context = ctypes.c_void_p(); start = cuda.cuInit(0); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)\n\
                 cuda.cuCtxSetCurrent(context)\n";
    let mut command = softgpu(name);
    command.arg("run").args(options).args(["--", "python3", "-c"]).arg(format!("{start}{text}"));
    command.output().expect("the command starts")
}

fn texts(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "python3 is missing");
        println!("skipped: programs on softgpu: python3 is missing: apt-get install python3");
    }
    found
}

#[test]
fn the_options_reach_the_program() {
    if !has_python() {
        return;
    }
    let text = "cuda.cuDeviceGetCount(ctypes.byref(n)); size = ctypes.c_size_t()\n\
                cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 0); print(n.value, size.value); sys.exit(7)";
    let output = program("options", &["--devices", "3", "--memory", "16M"], text);
    assert_eq!((texts(&output).0.as_str(), output.status.code()), ("3 16777216\n", Some(7)), "{output:?}");
    assert_eq!(texts(&output).1, "", "a program without faults has no report");
}

#[test]
fn misuse_is_reported_and_shows_in_the_status() {
    if !has_python() {
        return;
    }
    let text = "cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64))\n\
                for n in range(3): cuda.cuMemFree_v2(memory)";
    let output = program("misuse", &[], text);
    let said = texts(&output).1;
    assert_eq!(output.status.code(), Some(66), "{said}");
    assert!(said.starts_with("softgpu: the program misused the GPU 2 times:\nsoftgpu:   double free: 0x"), "{said}");
}

#[test]
fn the_folder_of_the_report_may_be_relative() {
    if !has_python() {
        return;
    }
    let command = softgpu("relative");
    let text = "import os, ctypes, sys; os.chdir('/'); sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0))";
    for folder in ["", "."] {
        let mut command = Command::new(command.get_program());
        command.env("TMPDIR", folder).current_dir(env!("CARGO_TARGET_TMPDIR"));
        let output = command.args(["run", "--", "python3", "-c", text]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{folder:?}: {output:?}");
    }
}

#[test]
fn a_wrong_setting_is_named() {
    if !has_python() {
        return;
    }
    let output = program("setting", &["--peers", "ring"], "sys.exit(start)");
    assert_eq!(output.status.code(), Some(1));
    assert!(texts(&output).1.contains("SOFTGPU_PEERS is ring, but must be mesh, pairs"), "{output:?}");
}

#[test]
fn signals_and_missing_programs_end_as_in_a_shell() {
    let status = |name, command: &[&str]| softgpu(name).arg("run").arg("--").args(command).status().unwrap().code();
    assert_eq!(status("signal", &["sh", "-c", "kill -9 $$"]), Some(128 + 9));
    assert_eq!(status("passed", &["sh", "-c", "kill -TERM $PPID; sleep 60"]), Some(128 + 15));
    assert_eq!(status("interrupted", &["sh", "-c", "kill -INT $PPID; exec sleep 60"]), Some(128 + 2));
    assert_eq!(status("defined", &["sh", "-c", "trap 'exit 5' USR1; kill -USR1 $PPID; sleep 1; sleep 1"]), Some(5));
    assert_eq!(status("missing", &["/there/is/none"]), Some(127));
    assert_eq!(status("cannot", &["/"]), Some(126));
}

#[test]
fn signals_that_are_ignored_stay_so() {
    let command = softgpu("ignored");
    let text = "trap '' HUP; exec \"$0\" run -- sh -c 'kill -HUP $PPID; kill -HUP $$; exit 5'";
    let status = Command::new("sh").args(["-c", text]).arg(command.get_program()).status().unwrap();
    assert_eq!(status.code(), Some(5));
}

#[test]
fn libraries_are_found_where_they_can_be_installed() {
    let program = PathBuf::from(softgpu("installed").get_program());
    let built = program.with_file_name("libcuda.so.1").canonicalize().unwrap();
    for place in ["lib/cudamem/softgpu", "lib/x86_64-linux-gnu/cudamem/softgpu", "lib64/cudamem/softgpu"] {
        let prefix = program.with_file_name("a prefix");
        let _ = std::fs::remove_dir_all(&prefix);
        let (command, folder) = (prefix.join("bin/softgpu"), prefix.join(place));
        for (from, to) in [(&program, &command), (&built, &folder.join("libcuda.so.1"))] {
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::hard_link(from, to).unwrap();
        }
        let output = Command::new(command).arg("folder").output().unwrap();
        assert_eq!(texts(&output).0, format!("{}\n", folder.display()), "{output:?}");
    }
}

#[test]
fn a_folder_that_no_variable_can_name_is_refused() {
    let output = softgpu("colon:").arg("folder").output().unwrap();
    let said = texts(&output).1;
    assert!(output.status.code() == Some(126) && said.contains("LD_LIBRARY_PATH cannot name"), "{said}");
}

#[test]
fn missing_libraries_are_named_with_advice() {
    let output = Command::new(env!("CARGO_BIN_EXE_softgpu")).arg("folder").output().unwrap();
    let said = texts(&output).1;
    assert!(output.status.code() == Some(126) && said.contains("libcuda.so.1 is missing"), "{said}");
}
