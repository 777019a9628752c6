//! Tests `cuda-mem bench peers` as users see it.

use crate::common::on_software;
use serde_json::Value;

fn report(environment: &[(&str, &str)]) -> Value {
    let arguments = ["bench", "peers", "--brief", "--json"];
    let output = on_software(&arguments).envs(environment.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_pair_is_measured_and_its_route_is_named() {
    for (peers, direct) in [("mesh", true), ("none", false)] {
        let report = report(&[("SOFTGPU_DEVICES", "3"), ("SOFTGPU_PEERS", peers)]);
        assert!(report["ok"] == true && report["software"] == true, "{report}");
        let rows = report["rows"].as_array().unwrap();
        let count = |case: &str| rows.iter().filter(|row| row["case"] == case).count();
        let cases = ["one way", "both ways", "ring", "all to all", "with its wait", "batch of 4 KiB"];
        assert_eq!(cases.map(count), [6 + 3, 1, 1, 1, 5, 1]);
        // Over 2 and 3 links, of which the measurement may leave some out.
        assert_eq!(["host to device", "device to host"].map(count), [2, 2]);
        for row in rows {
            match row["links"].as_array() {
                Some(links) => assert!(links[0] == 0 && (direct || links.len() == 1), "{peers}: {row}"),
                None => assert_eq!(row["direct"], direct, "{peers}: {row}"),
            }
            assert!(row["ours_us"].as_f64().unwrap() > 0.0 && row["raw_us"].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn one_device_is_not_enough() {
    let output = on_software(&["bench", "peers", "--brief"]).env("SOFTGPU_DEVICES", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("need two devices"));
}

#[test]
fn the_doctor_measures_rates_if_asked() {
    let rates = |arguments: &[&str]| -> Option<Value> {
        let output = on_software(arguments).env("SOFTGPU_DEVICES", "3").env("SOFTGPU_PEERS", "pairs").output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        findings.iter().find(|one| one["id"] == "driver.rates").map(|one| one["value"].clone())
    };
    assert_eq!(rates(&["doctor", "--json"]), None);
    let measured = rates(&["doctor", "--json", "--rates"]).unwrap();
    let measured = measured.as_array().unwrap();
    assert_eq!(measured.len(), 3 * 2 + 3 * 2, "{measured:?}");
    assert!(measured.iter().all(|rate| rate["bytes_per_second"].as_u64().unwrap() > 0), "{measured:?}");
    assert_eq!(measured.iter().filter(|rate| rate["from"].is_null()).count(), 3, "{measured:?}");
}

#[test]
fn the_doctor_shows_who_accesses_whom() {
    let output = on_software(&["doctor"]).env("SOFTGPU_PEERS", "one-way").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("0 - a") && text.contains("1 h -"), "{text}");
    let output = on_software(&["doctor", "--json"]).env("SOFTGPU_PEERS", "one-way").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let topology = findings.iter().find(|one| one["id"] == "driver.topology").unwrap();
    let links = topology["value"]["links"].as_array().unwrap();
    let access: Vec<bool> = links.iter().map(|link| link["access"].as_bool().unwrap()).collect();
    assert_eq!(access, [true, false], "{topology}");
    assert_eq!(topology["value"]["devices"][1]["pci_bus_id"], "0000:02:00.0");
}
