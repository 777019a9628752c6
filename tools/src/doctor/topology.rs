//! Several devices: which of them can access each other's memory.

use super::finding::{Finding, Recorder};
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
    let text = format!("{topology}d: direct, a: direct with all atomic operations, h: through the host");
    out.add(match topology.is_mesh() {
        true => Finding::ok("driver.topology", "access", text).value(value),
        false => Finding::note("driver.topology", "access", text).value(value).remedy(
            "copies marked h go through the host; `nvidia-smi topo -p2p r` says why, and `cuda-mem bench peers` how fast",
        ),
    });
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
