//! Programs over two releases of UCX, which scripts/ucx-wheels downloads.

use crate::hosts::{Hosts, eventually, options, shared};
use crate::networks::{self, with_a_cable};
use crate::owner::{self, Owner, memory};
use cuda_mem::frames::FrameRing;
use cuda_mem::memory::{DeviceMemory, PinnedMemory};
use cuda_mem::signal::Signals;
use cuda_mem_remote::{Error, Key, Remote, Rights};
use std::ffi::CString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use testkit::compilers::root;
use testkit::suite::Outcome;
use testkit::{Setup, alone_with_late_ends, in_its_own_process, pattern, run_alone, test_name};

/// The libraries of the oldest and the newest release.
fn libraries() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(root().join(".cache/ucx")).into_iter().flatten().flatten();
    let mut libraries: Vec<_> = folders.map(|folder| folder.path().join("lib/libucp.so.0")).collect();
    libraries.retain(|library| library.exists());
    libraries.sort();
    if libraries.len() < 2 {
        skip("two releases of UCX are missing: run scripts/ucx-wheels");
    }
    libraries
}

/// That of the newest.
pub fn newest() -> Option<PathBuf> {
    libraries().pop()
}

/// All pairs of them.
fn pairs() -> Vec<[PathBuf; 2]> {
    let libraries = libraries();
    libraries.iter().flat_map(|near| libraries.iter().map(|far| [near.clone(), far.clone()])).collect()
}

fn skip(why: &str) {
    assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "{why}");
    println!("skipped: {why}");
}

/// Tells a part which libraries it and its owner load.
fn over<'a>(part: &'a mut Command, [near, far]: &[PathBuf; 2]) -> &'a mut Command {
    // UCX changes nothing of the process then.
    part.env("REMOTE_ENGINE", "ucx").env("UCX_MEM_EVENTS", "n").env("CUDA_MEM_LIBUCP", near).env("REMOTE_FAR", far)
}

#[test]
fn all_releases_of_ucx_serve_each_other() {
    for pair in pairs() {
        let Some(mut part) = with_a_cable(&in_its_own_process(&test_name!("part_that_is_served"))) else { return };
        run_alone(over(&mut part, &pair));
    }
}

#[test]
#[ignore = "a part of the test above, which gives it a network and libraries"]
fn part_that_is_served() -> Outcome {
    alone_with_late_ends(|setup| {
        let key = Key::generate()?;
        let far = std::env::var_os("REMOTE_FAR").ok_or("a library")?;
        let owner = networks::owner(&key, &[("CUDA_MEM_LIBUCP", &far)])?;
        owner.serves(&Remote::new(&setup.context, &key, &options())?, &memory(setup)?)
    })
}

#[test]
fn a_release_that_refuses_is_told_on_both_sides() {
    // UCX 1.22 refuses others over the loopback, and is refused.
    for pair in pairs().into_iter().filter(|[near, far]| near != far) {
        run_alone(over(&mut in_its_own_process(&test_name!("part_that_is_refused")), &pair));
    }
}

#[test]
#[ignore = "a part of the test above, which gives it libraries"]
fn part_that_is_refused() -> Outcome {
    alone_with_late_ends(|setup| {
        let key = Key::generate()?;
        let remote = Remote::new(&setup.context, &key, &options())?;
        let far = std::env::var_os("REMOTE_FAR").ok_or("a library")?;
        let owner = Owner::by(owner::command().env("CUDA_MEM_LIBUCP", far), &key)?;
        let begin = Instant::now();
        let refused = remote.connect(owner.address.as_str()).expect_err("another release");
        let there = owner.says("refused ")?;
        assert!(begin.elapsed() < 2 * options().deadline, "{:?}", begin.elapsed());
        let Error::Refused { engine, .. } = &refused else { return Err(refused.into()) };
        let here = refused.to_string();
        for words in ["refuses a connection over UCX 1.", " on lo: ", "its UCX is the same release"] {
            assert!(here.contains(words) && there.contains(words), "{words}: {here}; {there}");
        }
        assert!(!there.contains(engine.as_str()), "the owner names its own release: {there}");
        Ok(())
    })
}

#[test]
fn ucx_calls_no_function_of_the_driver() {
    let Some(softgpu) = std::env::var_os("SOFTGPU_LIBRARY").map(PathBuf::from) else {
        return skip(
            "calls of the driver by UCX: SOFTGPU_LIBRARY is not set: scripts/test builds libsoftgpu.so and names it",
        );
    };
    // Where UCX's module for CUDA finds what it needs.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("remote");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
    for (name, library) in [("libcuda.so.1", "libsoftgpu.so"), ("libnvidia-ml.so.1", "libsoftgpu_nvml.so")] {
        symlink(softgpu.with_file_name(library), folder.join(name)).expect("the folder is writable");
    }
    // The oldest release's module needs CUDA's runtime too.
    let Some(newest) = newest() else { return };
    let trace = folder.join("trace");
    let mut part = in_its_own_process(&test_name!("part_with_a_trace"));
    part.env_remove("CUDA_MEM_LIBCUDA").env("LD_LIBRARY_PATH", &folder).env("SOFTGPU_TRACE", &trace);
    part.env("REMOTE_MODULE", newest.with_file_name("ucx/libuct_cuda.so.0"));
    run_alone(over(&mut part, &[newest.clone(), newest]));
    let calls = std::fs::read_to_string(&trace).expect("the trace");
    // A thread that UCX starts has the name of the thread that makes UCX's calls.
    let (by_ucx, others): (Vec<_>, Vec<_>) = calls.lines().partition(|call| call.starts_with("cuda-mem ucx: "));
    assert_eq!(by_ucx, [""; 0]);
    assert!(others.iter().any(|call| call.starts_with("cuda-mem writer: ")), "the trace has no names of threads");
}

#[test]
#[ignore = "a part of the test above, which gives it libraries and a trace"]
fn part_with_a_trace() -> Outcome {
    let setup = Setup::from_environment()?;
    let context = &setup.context;
    let hosts = Hosts::new(context)?;
    let pinned = PinnedMemory::new(context);
    let ring = FrameRing::new(&pinned, &Signals::new(context)?, 2, 100_000)?;
    let incoming = hosts.other.receive_frames("a", &ring)?;
    incoming.fill(ring.next()?)?;
    let owned = shared(&pinned, &pattern(100_000, 1))?;
    hosts.peer.frames("a", 100_000)?.send(&owned, ..)?;
    eventually("the frame is published", || ring.statistics().published == 1);
    let offer = hosts.there.offer(&owned, Rights::Read);
    let here = shared(&DeviceMemory::new(context), &[0; 100_000])?;
    hosts.peer.open(&offer.ticket())?.fetch(.., &here, 0)?.wait()?;
    assert!(here.to_vec()? == pattern(100_000, 1));
    drop((offer, incoming));
    hosts.close()?;
    // UCX could have loaded the module.
    let module = CString::new(std::env::var("REMOTE_MODULE")?)?;
    // SAFETY: the library is UCX's own, and is not used.
    assert!(!unsafe { libc::dlopen(module.as_ptr(), libc::RTLD_NOW) }.is_null(), "UCX's module for CUDA does not load");
    Ok(())
}
