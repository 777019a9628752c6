//! Calls of UCX that fail, each in turn.

use crate::hosts::{Hosts, eventually, shared};
use crate::releases::newest;
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::Signals;
use cuda_mem_remote::Rights;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_uint};
use std::path::Path;
use std::process::Command;
use testkit::suite::Outcome;
use testkit::{Setup, alone_with_late_ends, compilers, in_its_own_process, pattern, run_alone, test_name};

/// The functions of connecting and sending.
const FUNCTIONS: [&CStr; 12] = [
    c"ucp_config_read",
    c"ucp_config_modify",
    c"ucp_init_version",
    c"ucp_worker_create",
    c"ucp_worker_get_efd",
    c"ucp_worker_arm",
    c"ucp_worker_set_am_recv_handler",
    c"ucp_listener_create",
    c"ucp_listener_query",
    c"ucp_conn_request_query",
    c"ucp_ep_create",
    c"ucp_am_send_nbx",
];

/// How many calls of a function fail at most. Some functions are called for each message.
const MOST: c_uint = 12;

#[test]
fn a_failed_call_of_ucx_is_an_error_and_leaves_nothing() {
    let Some(ucp) = newest() else { return };
    if !compilers::is_there("gcc") {
        return;
    }
    let folder = ucp.parent().expect("it has a folder");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failing_ucp.so");
    let source = compilers::root().join("ffi-tests/remote/tests/remote/failing_ucp.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-fPIC"]).args(compilers::WARNINGS).arg("-isystem").arg(folder.with_file_name("include"));
    gcc.arg(source).arg("-o").arg(&library).arg("-L").arg(folder).args(["-Wl,--no-as-needed", "-l:libucp.so.0"]);
    compilers::run(gcc.arg(format!("-Wl,-rpath,{}", folder.display())));
    let mut part = in_its_own_process(&test_name!("part_with_failing_calls"));
    run_alone(part.env("CUDA_MEM_LIBUCP", library).env("UCX_MEM_EVENTS", "n").env("REMOTE_ENGINE", "ucx"));
}

/// Connects, sends, fetches, writes and closes.
fn program(setup: &Setup) -> Outcome {
    let context = &setup.context;
    let hosts = Hosts::new(context)?;
    let ring = FrameRing::new(&PinnedMemory::new(context), &Signals::new(context)?, 2, 100_000)?;
    let incoming = hosts.other.receive_frames("a", &ring)?;
    incoming.fill(ring.next()?)?;
    let memory = DeviceMemory::new(context);
    let (owned, here) = (shared(&memory, &pattern(100_000, 1))?, shared(&memory, &[0; 100_000])?);
    hosts.peer.frames("a", 100_000)?.send(&here, ..)?;
    let offer = hosts.there.offer(&owned, Rights::ReadWrite);
    let there = hosts.peer.open(&offer.ticket())?;
    there.fetch(.., &here, 0)?.wait()?;
    assert!(here.to_vec()? == pattern(100_000, 1));
    there.write(0, &here, ..)?.wait()?;
    drop((there, incoming));
    hosts.close()
}

/// The open files of the process by kind, and its threads by name.
fn open() -> BTreeMap<String, usize> {
    let files = std::fs::read_dir("/proc/self/fd").expect("Linux has it").flatten();
    let files = files.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let kinds =
        files.map(|target| target.display().to_string().split(['[', ':']).next().unwrap_or_default().to_owned());
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux has it").flatten();
    let names = threads.filter_map(|entry| std::fs::read_to_string(entry.path().join("comm")).ok());
    kinds.chain(names).fold(BTreeMap::new(), |mut counts, name| {
        *counts.entry(name).or_default() += 1;
        counts
    })
}

#[test]
#[ignore = "a part of the test above, which gives it a library"]
fn part_with_failing_calls() -> Outcome {
    alone_with_late_ends(|setup| {
        let path = CString::new(std::env::var("CUDA_MEM_LIBUCP")?)?;
        // SAFETY: the library is this test's.
        let address = unsafe { libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), c"fail_call".as_ptr()) };
        assert!(!address.is_null());
        // SAFETY: the function has this signature. The names that it keeps are static.
        let fail_call: unsafe extern "C" fn(*const c_char, c_uint) -> c_uint = unsafe { core::mem::transmute(address) };
        program(setup)?;
        // The thread that watches waits stays.
        let is_left = |name: &String| name.starts_with("cuda-mem ") && name != "cuda-mem waits\n";
        eventually("its threads have ended", || !open().keys().any(is_left));
        let before = open();
        for function in FUNCTIONS {
            let mut failed = 0;
            for number in 1..=MOST {
                // SAFETY: as above.
                unsafe { fail_call(function.as_ptr(), number) };
                let outcome = program(setup);
                // SAFETY: as above.
                if unsafe { fail_call(c"".as_ptr(), 0) } > 0 {
                    break;
                }
                failed = number;
                eventually("all has ended", || open() == before);
                let outcome = format!("{function:?}, call {number}: {outcome:?}");
                // A message behind the one that was not sent would be taken for a changed one.
                assert!(!outcome.contains("Protection"), "{outcome}");
                println!("{outcome}");
            }
            assert!(failed > 0, "{function:?} is not called");
            program(setup)?;
        }
        Ok(())
    })
}
