//! CUDA devices: their identity and their abilities.

use super::copies;
use super::finding::{Finding, Recorder};
use super::mapped;
use super::vulkan::Vulkan;
use crate::bytes::size;
use cuda_mem::cuda_sys::{CUdevice_attribute as A, CUresult};
use cuda_mem::{Device, Driver, Result};
use serde_json::{Value, json};

/// The abilities of a device: id, words, attribute.
const ABILITIES: [(&str, &str, A); 17] = [
    ("memory_pools", "memory pools", A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
    ("host_pools", "host pools", A::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED),
    ("host_numa_pools", "host-NUMA pools", A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED),
    ("virtual_memory", "virtual memory", A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
    ("host_virtual_memory", "host virtual memory", A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
    ("posix_fd_handles", "posix-fd handles", A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
    ("fabric_handles", "fabric handles", A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
    ("ipc_events", "IPC events", A::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
    ("dma_buf", "dma-buf", A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
    ("gpudirect_rdma", "GPUDirect RDMA", A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
    (
        "gpudirect_rdma_virtual_memory",
        "RDMA of virtual memory",
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    ),
    ("host_register", "host register", A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED),
    ("managed_memory", "managed memory", A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
    ("concurrent_managed_access", "concurrent managed", A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
    ("pageable_memory_access", "pageable memory access", A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
    ("stream_wait_value_64", "64-bit stream waits", A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
    ("unified_addressing", "unified addressing", A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING),
];

/// Inspects each device, and tries mapped memory on it.
pub(super) fn probe_all(out: &mut Recorder<'_>, driver: &Driver, vulkan: &Vulkan) {
    for ordinal in 0..driver.device_count().unwrap_or(0) {
        out.section(format!("Device {ordinal}"));
        match driver.device(i32::try_from(ordinal).unwrap_or(i32::MAX)) {
            Ok(device) => {
                identity(out, &device, driver.is_software());
                abilities(out, &device);
                mapped::probe(out, &device, vulkan);
                copies::probe(out, &device);
            }
            Err(error) => out.add(
                Finding::missing(format!("device.{ordinal}.name"), format!("device {ordinal}"), error.to_string())
                    .remedy("look at nvidia-smi and at the kernel's log (dmesg)"),
            ),
        }
    }
}

fn identity(out: &mut Recorder<'_>, device: &Device, software: bool) {
    let ordinal = device.ordinal();
    out.step(format!("asking device {ordinal} for its identity"));
    let id = |what: &str| format!("device.{ordinal}.{what}");
    let text = |id: String, label: &str, result: Result<String>| match result {
        Ok(text) => Finding::ok(id, label, text),
        Err(error) => Finding::note(id, label, error.to_string()).value(Value::Null),
    };
    out.add(text(id("name"), "name", device.name()));
    out.add(text(id("uuid"), "UUID", device.uuid().map(|uuid| uuid.to_string())));
    let pci = device.pci_bus_id();
    out.add(text(id("pci"), "PCI address", pci.clone()));
    out.add(match device.total_memory() {
        Ok(bytes) => Finding::ok(id("memory"), "memory", size(bytes as u64)).value(bytes),
        Err(error) => Finding::note(id("memory"), "memory", error.to_string()).value(Value::Null),
    });
    let capability = device
        .attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        .and_then(|major| Ok((major, device.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?)))
        .map(|(major, minor)| format!("{major}.{minor}"));
    out.add(text(id("compute_capability"), "compute capability", capability));
    if software {
        return;
    }
    let length = pci.ok().and_then(|address| {
        let path = format!("/sys/bus/pci/devices/{}/resource", address.to_ascii_lowercase());
        let from_sys = std::fs::read_to_string(path).ok().and_then(|text| second_region(&text));
        from_sys.or_else(|| nvidia_smi_bar1(&address))
    });
    out.add(bar1(id("bar1"), length, device.total_memory().ok()));
}

/// Reports BAR1, the window through which the CPU sees the device's memory.
fn bar1(id: String, length: Option<u64>, memory: Option<usize>) -> Finding {
    match length {
        Some(length) if memory.is_some_and(|memory| length < memory as u64) => {
            let text = format!("{}: smaller than the memory, and only this much can be mapped at a time", size(length));
            Finding::note(id, "BAR1", text)
                .value(length)
                .remedy("enable Resizable BAR and Above 4G Decoding in the machine's firmware, if the GPU supports it")
        }
        Some(length) => {
            Finding::ok(id, "BAR1", format!("{}: the whole memory can be mapped", size(length))).value(length)
        }
        None => Finding::note(id, "BAR1", "unknown: neither /sys nor nvidia-smi shows it here").value(Value::Null),
    }
}

/// Reads the length of BAR1 from the text of /sys/bus/pci/devices/.../resource, which has a line of start, end and
/// flags for each region. BAR1 is the second region that is present: a 64-bit region before it takes two lines, the
/// second of them empty.
fn second_region(resource: &str) -> Option<u64> {
    resource.lines().take(6).filter_map(region_length).nth(1)
}

fn region_length(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (start, end) = (number()?, number()?);
    // An absent region is all zeros.
    (end > start).then(|| (end - start).saturating_add(1))
}

/// Reads BAR1 from nvidia-smi, which asks the driver: containers and small virtual machines often hide a device from
/// /sys.
fn nvidia_smi_bar1(address: &str) -> Option<u64> {
    let output = std::process::Command::new("nvidia-smi").args(["-q", "-d", "MEMORY", "-i", address]).output().ok()?;
    bar1_total(&String::from_utf8_lossy(&output.stdout))
}

/// The total of the BAR1 section in nvidia-smi's report, in bytes.
fn bar1_total(report: &str) -> Option<u64> {
    let section = report.lines().skip_while(|line| !line.contains("BAR1 Memory Usage"));
    let total = section.take(2).find_map(|line| line.trim().strip_prefix("Total"))?;
    let mebibytes = total.trim_start_matches([' ', ':']).strip_suffix("MiB")?.trim();
    mebibytes.parse::<u64>().ok()?.checked_mul(1 << 20)
}

fn abilities(out: &mut Recorder<'_>, device: &Device) {
    let ordinal = device.ordinal();
    out.step(format!("asking device {ordinal} for its abilities"));
    for (name, label, attribute) in ABILITIES {
        out.add(ability(format!("device.{ordinal}.can.{name}"), label, device.attribute(attribute)));
    }
    let types = device.attribute(A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES);
    if let Ok(types) = types {
        let names = handle_types(types);
        let text = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        out.add(
            Finding::note(format!("device.{ordinal}.can.pool_handles"), "pool handle types", text).value(json!(names)),
        );
    }
}

fn ability(id: String, label: &str, answer: Result<i32>) -> Finding {
    match answer {
        Ok(0) => Finding::note(id, label, "no").value(false),
        Ok(_) => Finding::ok(id, label, "yes").value(true),
        // A driver that is older than the attribute returns this error. The answer is unknown, not no.
        Err(error) if error.driver_code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => {
            Finding::note(id, label, "unknown: this driver is older than the attribute").value(Value::Null)
        }
        Err(error) => Finding::note(id, label, error.to_string()).value(Value::Null),
    }
}

fn handle_types(bits: i32) -> Vec<String> {
    let known = [(1, "posix fd"), (2, "win32"), (4, "win32 kmt"), (8, "fabric")];
    let mut names: Vec<String> =
        known.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_owned()).collect();
    let rest = bits & !15;
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingState;
    use super::*;
    use cuda_mem::DriverError;

    #[test]
    fn bar1_is_the_second_region_that_there_is() {
        let (small, large) = (
            "0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200",
            "0x0000380000000000 0x0000383fffffffff 0x000000000014220c",
        );
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
        for lines in [[small, large, none, small], [small, none, large, none], [none, small, none, large]] {
            assert_eq!(second_region(&lines.join("\n")), Some(256 << 30), "{lines:?}");
        }
        for text in ["", small, "0x1", "1 2 3\n4 5 6", "0xz 0x2 0x0\n0x1 0x2 0x0"] {
            assert_eq!(second_region(text), None, "{text}");
        }
        assert_eq!(region_length("0x0 0xffffffffffffffff 0x0"), Some(u64::MAX));
    }

    #[test]
    fn the_length_of_bar1_is_read_from_the_section_of_that_name() {
        let report = "    FB Memory Usage\n        Total                 : 143771 MiB\n        Free : 1 MiB\n    \
                      BAR1 Memory Usage\n        Total                 : 262144 MiB\n        Used : 1 MiB\n";
        assert_eq!(bar1_total(report), Some(256 << 30));
        for text in ["", "BAR1 Memory Usage", "BAR1 Memory Usage\n Total : N/A\n", "BAR1 Memory Usage\n Used : 1 MiB\n"]
        {
            assert_eq!(bar1_total(text), None, "{text}");
        }
    }

    #[test]
    fn a_small_bar1_is_told_with_its_remedy() {
        let finding = bar1("id".to_owned(), Some(256 << 20), Some(24 << 30));
        assert!(finding.text.starts_with("256 MiB: smaller") && finding.remedy.unwrap().contains("Resizable BAR"));
        assert_eq!(bar1("id".to_owned(), Some(256 << 30), Some(140 << 30)).state, FindingState::Ok);
        assert_eq!(bar1("id".to_owned(), None, Some(1)).value, Value::Null);
    }

    #[test]
    fn doctor_reports_an_unrecognized_attribute_as_unknown() {
        let refused = |code| Err(DriverError { call: "cuDeviceGetAttribute", code }.into());
        assert_eq!(ability(String::new(), "", Ok(0)).value, false);
        assert_eq!(ability(String::new(), "", Ok(1)).value, true);
        let unknown = ability(String::new(), "", refused(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert!(unknown.value.is_null() && unknown.text.starts_with("unknown"));
    }

    #[test]
    fn handle_types_are_named() {
        assert_eq!(handle_types(9), ["posix fd", "fabric"]);
        assert_eq!(handle_types(16), ["0x10"]);
        assert!(handle_types(0).is_empty());
    }
}
