//! Tests `cuda-mem bench remote` as users see it.

use crate::common::on_software;
use serde_json::Value;

#[test]
fn both_ways_are_measured_at_each_size() {
    let output = on_software(&["bench", "remote", "--brief", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["ok"] == true && report["software"] == true, "{report}");
    assert!(report["transports"][0].as_str().unwrap().contains("TCP sockets, sealed by"), "{report}");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect::<Vec<_>>(), [1 << 10, 1 << 20]);
    for row in rows {
        for time in ["ours_ns", "plain_ns"] {
            assert!(row[time].as_u64().unwrap() > 1000, "{row}");
        }
    }
}

#[test]
fn the_table_says_what_the_figures_are_of() {
    let output = on_software(&["bench", "remote", "--brief"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["ratio", "1 KiB", "1 MiB", "plain loop", "No GPU was used"] {
        assert!(text.contains(words), "{text}");
    }
}
