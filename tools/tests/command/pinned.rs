//! Tests `cuda-mem bench pinned` as users see it.

use crate::common::on_software;
use serde_json::Value;

#[test]
fn every_way_of_page_locking_has_its_figures() {
    let output = on_software(&["bench", "pinned", "--brief", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bytes"], 256 << 20);
    let rows = report["rows"].as_array().unwrap();
    let ways: Vec<_> = rows.iter().map(|row| row["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["PinnedMemory, one buffer", "PinnedMemory, buffers of 1 GiB", "cuMemHostAlloc"]);
    assert!(rows.iter().all(|row| row["allocate_s"].as_f64().unwrap() > 0.0), "{report}");
}

#[test]
fn more_memory_than_there_is_names_the_host() {
    let output = on_software(&["bench", "pinned", "--size", "30T"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("no room") && text.contains("the host"), "{text}");
}
