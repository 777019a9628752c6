//! Tries mapped memory on a device.

use super::finding::{Finding, Recorder};
use super::vulkan::Vulkan;
use crate::bytes::duration;
use crate::mapped_memory::{MappedBuffer, mapped_memory};
use cuda_mem::mapped::{Coherence, MappedMemory};
use cuda_mem::{Device, Error, Result};
use std::time::Instant;

/// Opens, allocates, transfers both ways, and exports.
pub(super) fn probe(out: &mut Recorder<'_>, device: &Device, vulkan: &Vulkan) {
    let ordinal = device.ordinal();
    let id = |what: &str| format!("mapped.{ordinal}.{what}");
    if let Ok(uuid) = device.uuid() {
        vulkan.identity(out, id("identity"), &uuid.to_string());
    }
    out.step(format!("opening mapped memory on device {ordinal}"));
    let start = Instant::now();
    let resource = device.primary_context().and_then(|context| MappedMemory::new(&context));
    let took = start.elapsed().as_secs_f64();
    let resource = match resource {
        Ok(resource) => {
            let by = resource.provider().map_or_else(|_| String::new(), |provider| provider.library.to_string());
            let text = format!("opened by {by} in {}", duration(took));
            out.add(Finding::ok(id("open"), "mapped memory", text).value(took));
            resource
        }
        Err(error) => return out.add(failed(id("open"), "mapped memory", &error)),
    };
    out.step(format!("allocating mapped memory on device {ordinal}"));
    let mut memory = match mapped_memory(&resource, 4096) {
        Ok(memory) => memory,
        Err(error) => return out.add(failed(id("transfer"), "an allocation of 4 KiB", &error)),
    };
    out.add(match memory.coherence() {
        Coherence::Coherent => Finding::ok(id("coherence"), "coherence", "coherent").value("coherent"),
        Coherence::NonCoherent { atom } => {
            let text = format!("non-coherent, atoms of {atom} bytes, which flush and invalidate transfer");
            Finding::note(id("coherence"), "coherence", text).value(format!("non-coherent {atom}"))
        }
    });
    out.step(format!("copying through mapped memory on device {ordinal}"));
    out.add(match transfer(&mut memory) {
        Ok(true) => Finding::ok(id("transfer"), "transfer", "exact both ways: CPU stores and loads, driver's copies")
            .value(true),
        Ok(false) => Finding::missing(id("transfer"), "transfer", "WRONG DATA came back")
            .value(false)
            .remedy("this is a bug in a driver or in cuda-mem: please report it, with this report"),
        Err(error) => failed(id("transfer"), "transfer", &error),
    });
    out.step(format!("exporting mapped memory of device {ordinal}"));
    out.add(match resource.export(&memory.into_shared()) {
        Ok(_) => Finding::ok(id("export"), "export", "yes: other processes can map it").value(true),
        Err(error @ Error::MissingSymbol(_)) => Finding::note(id("export"), "export", error.to_string())
            .value(false)
            .remedy("use cuda-mem's own vkgdr library: unset CUDA_MEM_LIBVKGDR, or update libvkgdr"),
        Err(error) => Finding::note(id("export"), "export", error.to_string()).value(false),
    });
}

/// Transfers in each direction once. Returns whether every byte was right.
fn transfer(memory: &mut MappedBuffer) -> Result<bool> {
    let sent: Vec<u8> = (0..4096u32).map(|index| (index * 7 + index / 256) as u8).collect();
    let mut seen = vec![0u8; sent.len()];
    memory.store(0, &sent)?;
    memory.copy_to_slice(0, &mut seen)?;
    let there = seen == sent;
    let other: Vec<u8> = sent.iter().map(|byte| !byte).collect();
    memory.copy_from_slice(0, &other)?;
    memory.load(0, &mut seen)?;
    Ok(there && seen == other)
}

fn failed(id: String, label: &str, error: &Error) -> Finding {
    Finding::missing(id, label, error.to_string()).value(false).remedy(remedy(error))
}

/// What to do about an error of opening or allocating.
fn remedy(error: &Error) -> String {
    let text = error.to_string();
    let has = |part: &str| text.contains(part);
    let advice = if matches!(error, Error::Load(_)) {
        "follow the advice in the text"
    } else if matches!(error, Error::OutOfMemory { .. }) {
        "free memory on the device: nvidia-smi shows which processes use it"
    } else if has("could not be loaded") || has("no Vulkan library") {
        "install the Vulkan loader: apt-get install libvulkan1 (Debian, Ubuntu), dnf install vulkan-loader (Fedora, RHEL)"
    } else if has("VKGDR_ERROR_NO_DEVICE") || has("VK_ERROR_INCOMPATIBLE_DRIVER") || has("no Vulkan device") {
        super::vulkan::DRIVER_REMEDY
    } else if has("VK_ERROR_EXTENSION_NOT_PRESENT") || has("VK_ERROR_FEATURE_NOT_PRESENT") {
        "update the Vulkan driver: this one cannot share its memory by file descriptor"
    } else {
        "update NVIDIA's driver; if the error remains, report it with this report"
    };
    advice.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cuda_mem::Driver;

    #[test]
    fn a_transfer_is_exact_on_the_software_gpu() {
        let context = Driver::software().unwrap().device(0).unwrap().primary_context().unwrap();
        let mut memory = mapped_memory(&MappedMemory::new(&context).unwrap(), 4096).unwrap();
        assert_eq!(transfer(&mut memory), Ok(true));
    }

    #[test]
    fn each_error_has_its_remedy() {
        let vkgdr = |message: &str| Error::Vkgdr { call: "vkgdr_open", message: message.into() };
        assert!(remedy(&vkgdr("no Vulkan library could be loaded")).contains("libvulkan1"));
        assert!(remedy(&vkgdr("x (VKGDR_ERROR_NO_DEVICE)")).contains("NVIDIA_DRIVER_CAPABILITIES"));
        assert!(remedy(&vkgdr("x (VK_ERROR_EXTENSION_NOT_PRESENT)")).contains("update the Vulkan driver"));
        assert!(!remedy(&vkgdr("anything else")).is_empty());
    }
}
