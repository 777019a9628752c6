//! Tests `cuda-mem bench remote` as users see it.

use crate::common::{command, on_software};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The report of the command.
fn report(mut command: Command) -> Value {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_way_is_measured_or_says_what_it_lacks() {
    let report = report(on_software(&["bench", "remote", "--brief", "--json"]));
    assert!(report["ok"] == true && report["software"] == true, "{report}");
    assert!(report["transports"][0].as_str().unwrap().starts_with("ours: TCP sockets, sealed by"), "{report}");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect::<Vec<_>>(), [1 << 10, 1 << 20]);
    for row in rows {
        for time in ["ours_ns", "ours_p99_ns", "plain_ns", "ipc_ns"] {
            assert!(row[time].as_u64().unwrap() > 1000, "{row}");
        }
        for way in ["ucx", "ucx_direct", "ucx_tcp", "perftest"] {
            let (time, why) = (&row[&format!("{way}_ns")], &report["not_there"][way]);
            assert!(time.is_u64() != why.is_string(), "{way}: {report}");
        }
    }
    let why = report["not_there"]["ucx_direct"].as_str().unwrap();
    assert!(why.contains("CUDA_MEM_LIBCUDA must name a libcuda.so.1"), "{why}");
}

#[test]
fn the_other_side_may_have_another_device() {
    let mut command = on_software(&["bench", "remote", "--brief", "--json", "--to", "1"]);
    command.env("SOFTGPU_DEVICES", "2");
    let report = report(command);
    assert!(report["to_device_name"].as_str().unwrap().starts_with("softgpu 1"), "{report}");
    assert!(report["rows"][1]["ipc_ns"].is_u64(), "{report}");
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let output = on_software(&["bench", "remote", "--brief", "--to", "99"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("there is no device 99"), "{error}");
}

#[test]
fn the_table_says_what_the_figures_are_of() {
    let output = on_software(&["bench", "remote", "--brief"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["ratio", "1 KiB", "1 MiB", "plain loop", "UCX direct is not there: ", "No GPU was used"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn ucx_takes_the_memory_of_the_software_gpu() {
    let ucx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/ucx/1.22.0/lib/libucp.so.0");
    let softgpu = std::env::var_os("SOFTGPU_LIBRARY").map(PathBuf::from).filter(|library| library.exists());
    let (true, Some(softgpu)) = (ucx.exists(), softgpu) else {
        assert!(std::env::var_os("CUDA_MEM_REQUIRE_ALL").is_none(), "run scripts/ucx-wheels and scripts/test");
        return println!("skipped: UCX's library or SOFTGPU_LIBRARY is missing: scripts/test --deep has both");
    };
    // Under the names by which UCX looks for them.
    let folder = std::env::temp_dir().join(format!("cuda-mem-remote-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let driver = folder.join("libcuda.so.1");
    symlink(&softgpu, &driver).unwrap();
    symlink(softgpu.with_file_name("libsoftgpu_nvml.so"), folder.join("libnvidia-ml.so.1")).unwrap();
    let mut command = command(&["bench", "remote", "--brief", "--json"]);
    command.env("CUDA_MEM_LIBCUDA", &driver).env("LD_LIBRARY_PATH", &folder);
    command.env("CUDA_MEM_LIBUCP", ucx).env("UCX_MEM_EVENTS", "n");
    let report = report(command);
    fs::remove_dir_all(&folder).unwrap();
    for way in ["ucx_ns", "ucx_direct_ns", "ucx_tcp_ns"] {
        assert!(report["rows"][1][way].is_u64(), "{report}");
    }
}
