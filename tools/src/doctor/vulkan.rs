//! Vulkan, as the vkgdr library finds it.

use super::driver::mapped_file;
use super::finding::{Finding, FindingState, Recorder};
use crate::bytes::size;
use crate::provider::{self, LIBVKGDR, same_uuid};
use cuda_mem::{Driver, Error};
use serde_json::{Value, json};

/// How to make NVIDIA's Vulkan driver available.
pub(super) const DRIVER_REMEDY: &str = "NVIDIA's Vulkan driver is needed: in a container start with NVIDIA_DRIVER_CAPABILITIES=all (or graphics added); \
     elsewhere install the driver's Vulkan part (Debian: nvidia-vulkan-icd), or name its manifest: \
     VK_DRIVER_FILES=/path/to/nvidia_icd.json; a MIG instance has no Vulkan device";
const LOADER_REMEDY: &str = "apt-get install libvulkan1 (Debian, Ubuntu), dnf install vulkan-loader (Fedora, RHEL), or set \
     VKGDR_VULKAN_LIBRARY to the path of libvulkan.so.1";

/// The vkgdr library's report, or null if it gives none.
#[derive(Debug)]
pub(super) struct Vulkan(Value);

/// Asks the driver's vkgdr library. Without a driver, asks the vkgdr library that a driver would use.
pub(super) fn probe(out: &mut Recorder<'_>, driver: Option<&Driver>) -> Vulkan {
    out.section("vkgdr and Vulkan");
    out.step("loading the vkgdr library");
    let own;
    let driver = match driver {
        Some(driver) => driver,
        // The software GPU replaces the driver, so the vkgdr library is the one that a real driver would use.
        None => match provider::over_vulkan() {
            Ok(driver) => {
                own = driver;
                &own
            }
            Err(error) => {
                out.add(Finding::note("vulkan.vkgdr", "vkgdr", error.to_string()).value(Value::Null));
                return Vulkan(Value::Null);
            }
        },
    };
    match driver.vkgdr() {
        Ok(vkgdr) => {
            let provider = vkgdr.provider();
            let name = &*provider.library;
            let file =
                std::fs::read_to_string("/proc/self/maps").ok().and_then(|maps| mapped_file(&maps, "libvkgdr.so"));
            let version = provider.version.map(|version| version.to_string());
            let place = match (&file, name) {
                (Some(file), _) => format!(" ({file})"),
                (None, "vkgdr" | "softgpu") => " (linked into this command)".to_owned(),
                (None, _) => String::new(),
            };
            let text = format!("{name}{place}, vkgdr {}", version.as_deref().unwrap_or("of an unknown release"));
            let value = json!({ "library": name, "file": file, "version": version });
            out.add(Finding::ok("vulkan.vkgdr", "vkgdr", text).value(value));
        }
        Err(error) => {
            let finding = Finding::missing("vulkan.vkgdr", "vkgdr", error.to_string()).value(Value::Null);
            out.add(finding.remedy(format!("unset {LIBVKGDR}: a vkgdr library is linked into this command")));
            return Vulkan(Value::Null);
        }
    }
    if driver.is_software() && driver.vkgdr().is_ok_and(|vkgdr| vkgdr.provider().library == driver.provider().library) {
        out.add(Finding::note("vulkan.library", "Vulkan", "not used: softgpu's vkgdr has none").value(Value::Null));
        return Vulkan(Value::Null);
    }
    out.step("asking vkgdr about Vulkan");
    match driver.describe_vkgdr().map(|text| serde_json::from_str::<Value>(&text)) {
        Ok(Ok(report)) => {
            tell(out, &report);
            Vulkan(report)
        }
        Ok(Err(error)) => {
            out.add(Finding::note("vulkan.library", "Vulkan", format!("vkgdr's description is not JSON: {error}")));
            Vulkan(Value::Null)
        }
        Err(Error::MissingSymbol(_)) => {
            let text = "this vkgdr library cannot describe Vulkan (upstream's library cannot)";
            out.add(Finding::note("vulkan.library", "Vulkan", text).value(Value::Null));
            Vulkan(Value::Null)
        }
        Err(error) => {
            out.add(Finding::note("vulkan.library", "Vulkan", error.to_string()).value(Value::Null));
            Vulkan(Value::Null)
        }
    }
}

/// Adds the parts of the report one by one. Skips absent fields, because the library may have another release.
fn tell(out: &mut Recorder<'_>, report: &Value) {
    let libraries = list(&report["libraries"]);
    let works = libraries.iter().any(|one| one["error"].is_null());
    for (index, one) in libraries.iter().enumerate() {
        let name = text(&one["library"]);
        out.add(match one["error"].as_str() {
            None => {
                let kind = if one["kind"] == "driver" { "a driver without the loader" } else { "the loader" };
                let text = format!("{name}: {kind}, Vulkan {}", text(&one["instance_version"]));
                Finding::ok("vulkan.library", "Vulkan", text).value(one.clone())
            }
            // The first library is the loader. If no library works, the loader is missing; if one works, no other is
            // needed.
            Some(error) if works || index > 0 => {
                Finding::note("vulkan.library", "Vulkan", once(error, &name)).value(one.clone())
            }
            Some(error) => {
                let remedy = if error.contains("could not be loaded") { LOADER_REMEDY } else { DRIVER_REMEDY };
                Finding::missing("vulkan.library", "Vulkan", once(error, &name)).value(one.clone()).remedy(remedy)
            }
        });
    }
    manifests(out, list(&report["manifests"]));
    for (index, device) in list(&report["devices"]).iter().enumerate() {
        out.add(self::device(index, device));
    }
}

fn manifests(out: &mut Recorder<'_>, manifests: &[Value]) {
    if manifests.is_empty() {
        out.add(
            Finding::note("vulkan.manifests", "driver manifests", "none in the loader's folders")
                .value(json!([]))
                .remedy(DRIVER_REMEDY),
        );
        return;
    }
    let line = |one: &Value| match one["error"].as_str() {
        Some(error) => format!("{}: {error}", text(&one["path"])),
        None => format!("{} -> {}", text(&one["path"]), text(&one["library"])),
    };
    let lines: Vec<String> = manifests.iter().map(line).collect();
    let bad = manifests.iter().any(|one| !one["error"].is_null());
    let finding = Finding::ok("vulkan.manifests", "driver manifests", lines.join("\n")).value(manifests.to_vec());
    out.add(match bad {
        true => Finding {
            state: FindingState::Note,
            ..finding.remedy("a manifest cannot be read: check VK_DRIVER_FILES, VK_ICD_FILENAMES and the file")
        },
        false => finding,
    });
}

fn device(index: usize, device: &Value) -> Finding {
    let id = format!("vulkan.device.{index}");
    let chosen = &device["chosen"];
    let mut lines = vec![format!(
        "{} ({}), {}, Vulkan {}, {}",
        text(&device["name"]),
        text(&device["type"]),
        text(&device["uuid"]),
        text(&device["api_version"]),
        text(&device["library"]),
    )];
    let kind = list(&device["memory_types"]).iter().find(|one| one["index"] == chosen["memory_type"]);
    if let Some(kind) = kind {
        let flags: Vec<&str> = list(&kind["flags"]).iter().filter_map(Value::as_str).collect();
        let heap = list(&device["memory_heaps"]).iter().find(|heap| heap["index"] == kind["heap"]);
        let heap = heap
            .and_then(|heap| heap["size"].as_u64())
            .map_or_else(String::new, |bytes| format!(" of heap {} ({})", text(&kind["heap"]), size(bytes)));
        lines.push(format!("memory type {}{heap}: {}", text(&kind["index"]), flags.join(" ")));
    }
    let all: Vec<String> = list(&device["memory_types"])
        .iter()
        .map(|one| format!("{}: {}", text(&one["index"]), short(list(&one["flags"]))))
        .collect();
    lines.push(format!("all memory types: {}", all.join(", ")));
    lines.push(format!(
        "queue family {}, atoms of {} bytes",
        text(&chosen["queue_family"]),
        text(&device["limits"]["non_coherent_atom_size"]),
    ));
    let problem = match () {
        () if device["external_memory_fd"] == false => Some("it lacks VK_KHR_external_memory_fd"),
        () if device["opaque_fd"]["exportable"] == false => Some("it cannot export memory by file descriptor"),
        () if chosen["memory_type"].is_null() => Some("no memory type is both device-local and host-visible"),
        () => device["error"].as_str(),
    };
    match problem {
        Some(problem) => {
            lines.push(format!("not usable: {problem}"));
            Finding::note(id, "Vulkan device", lines.join("\n")).value(device.clone())
        }
        None => Finding::ok(id, "Vulkan device", lines.join("\n")).value(device.clone()),
    }
}

/// Shortens the flags to the words by which people know them. Initials such as `DLHVHC` would be shorter, but
/// unreadable.
fn short(flags: &[Value]) -> String {
    let known = [("DEVICE_LOCAL", "local"), ("HOST_VISIBLE", "visible"), ("HOST_COHERENT", "coherent")];
    let known = known.iter().chain(&[("HOST_CACHED", "cached")]);
    let words: Vec<&str> =
        known.filter(|(name, _)| flags.iter().any(|flag| flag == name)).map(|(_, word)| *word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join("+") }
}

impl Vulkan {
    /// Checks whether a Vulkan device has a CUDA device's identity.
    pub(super) fn identity(&self, out: &mut Recorder<'_>, id: String, uuid: &str) {
        let Some(devices) = self.0["devices"].as_array() else { return };
        let found = devices.iter().find(|one| one["uuid"].as_str().is_some_and(|text| same_uuid(text, uuid)));
        out.add(match found {
            Some(device) => {
                let name = text(&device["name"]);
                Finding::ok(id, "Vulkan identity", format!("is the Vulkan device {name}")).value(name)
            }
            None => {
                let offer: Vec<String> =
                    devices.iter().map(|one| format!("{} ({})", text(&one["uuid"]), text(&one["name"]))).collect();
                let offer = if offer.is_empty() { "none".to_owned() } else { offer.join(", ") };
                Finding::missing(id, "Vulkan identity", format!("no Vulkan device has the UUID; there is {offer}"))
                    .value(Value::Null)
                    .remedy(DRIVER_REMEDY)
            }
        });
    }
}

/// Removes the library's name that the system's loader repeats.
fn once(error: &str, name: &str) -> String {
    error.replacen(&format!("could not be loaded: {name}: "), "could not be loaded: ", 1)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text as it is, anything else as JSON writes it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "?".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Message;
    use super::*;

    fn findings(run: impl FnOnce(&mut Recorder<'_>)) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut sink = |message| {
            if let Message::Finding(finding) = message {
                findings.push(finding);
            }
        };
        run(&mut Recorder::new(&mut sink));
        findings
    }

    #[test]
    fn a_machine_without_vulkan_is_told_what_to_install() {
        let report = json!({
            "libraries": [{ "library": "libvulkan.so.1", "error": "libvulkan.so.1 could not be loaded: no" }],
            "manifests": [], "devices": [],
        });
        let found = findings(|out| tell(out, &report));
        assert_eq!((found.len(), found[0].state), (2, FindingState::Missing));
        assert!(found[0].remedy.as_ref().unwrap().contains("apt-get install libvulkan1"));
        assert!(found[1].remedy.as_ref().unwrap().contains("NVIDIA_DRIVER_CAPABILITIES"));
    }

    #[test]
    fn a_device_shows_the_memory_that_is_chosen() {
        let report = json!({
            "name": "NVIDIA H200", "type": "discrete GPU", "uuid": "u", "api_version": "1.4.312", "library": "l",
            "external_memory_fd": true, "opaque_fd": { "exportable": true }, "error": null,
            "memory_heaps": [{ "index": 0, "size": 150_000_000_000u64 }],
            "memory_types": [
                { "index": 0, "heap": 0, "flags": [] },
                { "index": 4, "heap": 0, "flags": ["DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT"] },
            ],
            "limits": { "non_coherent_atom_size": 64 }, "chosen": { "memory_type": 4, "queue_family": 1 },
        });
        let found = device(0, &report);
        assert_eq!(found.state, FindingState::Ok);
        assert!(
            found.text.contains("memory type 4 of heap 0 (139.7 GiB): DEVICE_LOCAL HOST_VISIBLE"),
            "{}",
            found.text
        );
        assert!(found.text.contains("0: -, 4: local+visible+coherent"), "{}", found.text);
        let mut lacking = report;
        lacking["external_memory_fd"] = false.into();
        assert_eq!(device(0, &lacking).state, FindingState::Note);
        // A report of another shape must not cause a failure.
        assert!(device(0, &Value::Null).text.contains('?'));
        assert_eq!(findings(|out| tell(out, &Value::Null)).len(), 1);
    }

    #[test]
    fn a_device_without_its_vulkan_twin_is_missing_it() {
        let vulkan = Vulkan(json!({ "devices": [{ "name": "llvmpipe", "uuid": "aabb" }] }));
        let found = findings(|out| vulkan.identity(out, "id".to_owned(), "GPU-aa-bb"));
        assert_eq!((found[0].state, &found[0].value), (FindingState::Ok, &json!("llvmpipe")));
        let found = findings(|out| vulkan.identity(out, "id".to_owned(), "GPU-00"));
        assert!(found[0].state == FindingState::Missing && found[0].text.contains("llvmpipe"));
        assert!(findings(|out| Vulkan(Value::Null).identity(out, "id".to_owned(), "GPU-00")).is_empty());
    }
}
