//! Several devices: which of them can access each other's memory.

use super::finding::{Finding, Recorder};
use cuda_mem::copy::LinkRate;
use cuda_mem::{Driver, Topology};
use serde_json::{Value, json};

/// Shows the matrix of all devices, if there are at least two.
pub(super) fn probe(out: &mut Recorder<'_>, driver: &Driver) {
    if driver.device_count().unwrap_or(0) < 2 {
        return;
    }
    out.section("Between devices");
    out.step("asking the driver which devices can access each other");
    let topology = match Topology::of(driver) {
        Ok(topology) => topology,
        Err(error) => return out.add(Finding::note("driver.topology", "access", error.to_string()).value(Value::Null)),
    };
    let value = value(&topology);
    let text = topology.to_string();
    out.add(match topology.is_mesh() {
        true => Finding::ok("driver.topology", "access", text).value(value),
        false => Finding::note("driver.topology", "access", text).value(value).remedy(
            "copies marked h go through the host; `nvidia-smi topo -p2p r` says why, and `cuda-mem bench peers` how fast",
        ),
    });
}

/// Measures the rates of all links.
pub(super) fn rates(out: &mut Recorder<'_>, driver: &Driver) {
    out.section("Between devices");
    out.step("measuring the rates between all devices and with the host");
    let rates = match Topology::rates(driver) {
        Ok(rates) => rates,
        Err(error) => return out.add(Finding::note("driver.rates", "rates", error.to_string()).value(Value::Null)),
    };
    let side = |device: Option<i32>| device.map_or_else(|| "host".to_owned(), |device| device.to_string());
    let line = |rate: &LinkRate| {
        format!("{} to {}: {:.1} GB/s", side(rate.from), side(rate.to), rate.bytes_per_second as f64 / 1e9)
    };
    let text = rates.iter().map(line).collect::<Vec<_>>().join("\n");
    let value =
        rates.iter().map(|rate| json!({ "from": rate.from, "to": rate.to, "bytes_per_second": rate.bytes_per_second }));
    out.add(Finding::ok("driver.rates", "rates", text).value(value.collect::<Vec<_>>()));
}

fn value(topology: &Topology) -> Value {
    let devices = topology.devices().iter().map(|device| {
        json!({
            "ordinal": device.ordinal,
            "name": device.name,
            "pci_bus_id": device.pci_bus_id,
            "numa_node": device.numa_node,
        })
    });
    let links = topology.links().iter().map(|link| {
        json!({
            "device": link.device,
            "other": link.other,
            "access": link.access,
            "native_atomics": link.native_atomics,
            "performance_rank": link.performance_rank,
        })
    });
    json!({ "devices": devices.collect::<Vec<_>>(), "links": links.collect::<Vec<_>>(), "ring": topology.ring() })
}
