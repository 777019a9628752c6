//! Tests `cuda-mem bench copy` and `bench latency` as users see them.

use crate::common::on_software;
use cuda_mem::copy::MachineProfile;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Output;

/// Runs the command on the software GPU.
fn run(arguments: &[&str]) -> Output {
    let output = on_software(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!error.contains("panicked"), "{error}");
    output
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn copies_are_measured_by_every_method_and_drawn() {
    let picture: PathBuf = std::env::temp_dir().join(format!("cuda-mem-copies-{}.svg", std::process::id()));
    let svg = picture.to_str().unwrap();
    let output = run(&["bench", "copy", "--brief", "--largest", "64K", "--threads", "2", "--json", "--svg", svg]);
    let report = json(&output);
    assert_eq!((&report["ok"], &report["software"], &report["threads"]), (&true.into(), &true.into(), &2.into()));
    let rows = report["rows"].as_array().unwrap();
    // Eight routes, and 4 B, 64 B, 1 KiB, 16 KiB.
    assert_eq!(rows.len(), 8 * 4);
    for row in rows {
        let positive = |value: &Value| value.as_f64().is_some_and(|time| time > 0.0);
        assert!(positive(&row["engine_ns"]) && positive(&row["cu_memcpy_ns"]), "{row}");
        let methods = row["methods"].as_array().unwrap();
        assert!(
            methods.iter().any(|method| method["method"] == "driver")
                && methods.iter().all(|method| positive(&method["ns"])),
            "{row}"
        );
    }
    // The profile is what an engine takes.
    let profile: MachineProfile = serde_json::from_value(report["profile"].clone()).unwrap();
    assert!(profile.is_valid() && profile.routes.len() == 8 && profile.machine.contains("softgpu"), "{profile:?}");
    let drawn = std::fs::read_to_string(&picture).unwrap();
    std::fs::remove_file(&picture).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.contains("pageable to mapped") && drawn.contains("<polyline"));
    let text = run(&["bench", "copy", "--brief", "--largest", "1K"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("mapped to pinned") && text.contains("No GPU was used"), "{text}");
}

#[test]
fn latencies_are_measured() {
    let report = json(&run(&["bench", "latency", "--brief", "--json"]));
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() > 5);
    for row in rows {
        for what in ["posted", "write", "complete", "cu_memcpy_to", "read", "cu_memcpy_from"] {
            assert!(row[what]["mean_ns"].as_f64().is_some_and(|time| time > 0.0), "{what}: {row}");
        }
    }
    let text = String::from_utf8(run(&["bench", "latency", "--brief"]).stdout).unwrap();
    assert!(text.contains("cuMemcpyHtoD") && text.contains("4 KiB"), "{text}");
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    for (arguments, code, word) in [
        (&["bench", "copy", "--threads", "0"][..], 2, "threads"),
        (&["bench", "copy", "--largest", "0"], 2, "largest"),
        (&["bench", "copy", "--largest", "3"], 2, "the smallest measured size is 4"),
        (&["bench", "copy", "--brief", "--largest", "64", "--svg", "/nowhere/at/all.svg"], 1, "cannot write /nowhere"),
        (&["bench", "latency", "--device", "99"], 1, "there is no device 99"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
}

#[test]
fn the_doctor_tells_how_copies_are_done() {
    let output = run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let find = |id: &str| report["findings"].as_array().unwrap().iter().find(|finding| finding["id"] == id).cloned();
    let profile = find("copies.0.profile").unwrap();
    assert!(profile["text"].as_str().unwrap().contains("typical"), "{profile}");
    let route = find("copies.0.pageable_to_mapped").unwrap();
    assert!(route["text"].as_str().unwrap().starts_with("CPU, 1 thread to "), "{route}");
}
