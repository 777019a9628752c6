//! Tests `cuda-mem bench signal` as users see it.

use crate::common::on_software;
use serde_json::Value;
use std::process::Output;

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let arguments = [&["bench", "signal"], arguments].concat();
    on_software(&arguments).envs(environment.iter().copied()).output().unwrap()
}

fn report(environment: &[(&str, &str)]) -> Value {
    let output = run(&["--brief", "--json"], environment);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_case_has_its_figures() {
    let report = report(&[]);
    assert!(report["ok"] == true && report["software"] == true && report["why_not_mapped"].is_null(), "{report}");
    let rows = report["rows"].as_array().unwrap();
    let count = |case: &str| rows.iter().filter(|row| row["case"] == case).count();
    let singles =
        ["launch", "flag in order", "ring round trip", "ring to device", "ring from device", "ring both ways"];
    assert_eq!(singles.map(count), [1; 6]);
    for case in ["flag", "stream"] {
        let places: Vec<(&str, &str)> = rows
            .iter()
            .filter(|row| row["case"] == case)
            .map(|row| (row["question"].as_str().unwrap(), row["answer"].as_str().unwrap()))
            .collect();
        let pairs = [("mapped", "pinned"), ("pinned", "pinned"), ("pinned", "mapped"), ("mapped", "mapped")];
        assert_eq!(places, pairs, "{case}");
    }
    for row in rows {
        if let Some(rate) = row["items_per_second"].as_f64() {
            assert!(rate > 0.0 && row.get("median_ns").is_none(), "{row}");
        } else {
            let (median, p99) = (row["median_ns"].as_u64().unwrap(), row["p99_ns"].as_u64().unwrap());
            assert!(median > 0 && p99 >= median && row["rounds"].as_u64().unwrap() >= 100, "{row}");
        }
    }
}

#[test]
fn without_coherent_mapped_memory_the_pinned_cases_are_measured() {
    let report = report(&[("SOFTGPU_COHERENT", "0")]);
    assert!(report["why_not_mapped"].as_str().unwrap().contains("coherent"), "{report}");
    let rows = report["rows"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["question"] != "mapped" && row["answer"] != "mapped") && rows.len() == 8,
        "{report}"
    );
}

#[test]
fn the_table_and_the_help_are_for_people() {
    let output = run(&["--brief"], &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["flag, mapped in, pinned out", "stream, pinned in, mapped out", "million", "No GPU was used"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let help = run(&["--help"], &[]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(text.contains("Examples:") && text.contains("Exit status") && text.contains("items_per_second"), "{text}");
    assert_eq!(run(&["--device", "-1"], &[]).status.code(), Some(2));
}
