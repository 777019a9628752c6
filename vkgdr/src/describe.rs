//! Describes the machine's Vulkan setup as JSON, for `doctor` and for bug reports.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use ash::vk;
use serde_json::{Map, Value, json};

use crate::device::{NVIDIA, choose_memory, uuid_text};
use crate::error::Error;
use crate::instance::{Identity, Instance, text, version_text};
use crate::library::Kind;
use crate::{cache, library, select};

/// Variables that decide which drivers and layers are found.
const VARIABLES: [&str; 10] = [
    library::VARIABLE,
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_ADD_DRIVER_FILES",
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
    "VK_INSTANCE_LAYERS",
    "VK_LOADER_LAYERS_ENABLE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
];

/// Describes everything as JSON.
pub(crate) fn describe() -> CString {
    let mut libraries = Vec::new();
    let mut devices = Vec::new();
    let mut seen = Vec::new();
    let mut failures = Vec::new();
    for name in library::candidates() {
        match inspect(&name, &mut seen, &mut devices) {
            Ok((library, nvidia)) => {
                libraries.push(library);
                // The remaining candidates would only find NVIDIA's driver a second time.
                if nvidia {
                    break;
                }
            }
            Err(error) => {
                libraries.push(json!({ "library": name, "error": error.to_string() }));
                failures.push(error);
            }
        }
    }
    let works = libraries.len() > failures.len();
    let error = if works { Value::Null } else { library::none_works(failures).to_string().into() };
    let report = json!({
        "version": concat!("0.1.0+cuda-mem.", env!("CARGO_PKG_VERSION")),
        "libraries": libraries,
        "environment": environment(),
        "manifests": manifests(),
        "devices": devices,
        "error": error,
    });
    // JSON escapes zero bytes, so the text holds none.
    CString::new(report.to_string()).unwrap_or_default()
}

/// Describes a library, adds its devices that are not in `seen` yet, and returns whether one of its devices is
/// NVIDIA's.
fn inspect(name: &str, seen: &mut Vec<[u8; 16]>, devices: &mut Vec<Value>) -> Result<(Value, bool), Error> {
    let instance = cache::instance(name)?;
    let found = instance.devices()?;
    for one in &found {
        if !seen.contains(&one.uuid) {
            seen.push(one.uuid);
            devices.push(device(&instance, one));
        }
    }
    let library = json!({
        "library": instance.library,
        "kind": match instance.kind { Kind::Loader => "loader", Kind::Driver => "driver" },
        "instance_version": version_text(instance.version),
        "error": null,
    });
    Ok((library, found.iter().any(|one| one.properties.vendor_id == NVIDIA)))
}

fn environment() -> Value {
    let set = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), library::environment(name)?.into())));
    Value::Object(set.collect::<Map<_, _>>())
}

/// Lists the driver manifests in the folders that the loader searches, with the library that each manifest names.
fn manifests() -> Value {
    let named = library::environment("VK_DRIVER_FILES").or_else(|| library::environment("VK_ICD_FILENAMES"));
    let places: Vec<PathBuf> = match &named {
        Some(list) => std::env::split_paths(list).collect(),
        None => driver_folders(),
    };
    let mut files = Vec::new();
    for place in places {
        match std::fs::read_dir(&place) {
            Ok(entries) => files.extend(
                entries
                    .filter_map(|entry| Some(entry.ok()?.path()))
                    .filter(|path| path.extension().is_some_and(|extension| extension == "json")),
            ),
            Err(_) if named.is_some() => files.push(place),
            Err(_) => {}
        }
    }
    files.sort();
    files.iter().map(|path| manifest(path)).collect()
}

fn manifest(path: &Path) -> Value {
    let read = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let parsed = read.and_then(|text| serde_json::from_str::<Value>(&text).map_err(|error| error.to_string()));
    let path = path.to_string_lossy();
    match parsed {
        Ok(content) => json!({
            "path": path,
            "library": content["ICD"]["library_path"],
            "api_version": content["ICD"]["api_version"],
        }),
        Err(error) => json!({ "path": path, "error": error }),
    }
}

fn driver_folders() -> Vec<PathBuf> {
    let home = cuda_sys::load::environment("HOME").map(PathBuf::from);
    let in_home = |folder: &str| home.iter().map(|home| home.join(folder)).collect::<Vec<_>>();
    let list = |name: &str, otherwise: Vec<PathBuf>| match cuda_sys::load::environment(name) {
        Some(value) => std::env::split_paths(&value).collect(),
        None => otherwise,
    };
    let mut folders = list("XDG_CONFIG_HOME", in_home(".config"));
    folders.extend(list("XDG_CONFIG_DIRS", vec!["/etc/xdg".into()]));
    folders.push("/etc".into());
    folders.extend(list("XDG_DATA_HOME", in_home(".local/share")));
    folders.extend(list("XDG_DATA_DIRS", vec!["/usr/local/share".into(), "/usr/share".into()]));
    for folder in &mut folders {
        folder.push("vulkan/icd.d");
    }
    folders
}

fn device(instance: &Instance, identity: &Identity) -> Value {
    let (extensions, error) = match instance.extensions(identity) {
        Ok(extensions) => (extensions, Value::Null),
        Err(error) => (Vec::new(), error.to_string().into()),
    };
    let fd = instance.opaque_fd(identity, &extensions);
    let memory = instance.memory(identity);
    let families = instance.queue_families(identity);
    let limits = &identity.properties.limits;
    json!({
        "name": identity.name,
        "library": instance.library,
        "uuid": uuid_text(identity.uuid),
        "type": device_type(identity.properties.device_type),
        "vendor_id": identity.properties.vendor_id,
        "device_id": identity.properties.device_id,
        "api_version": version_text(identity.properties.api_version),
        "driver": driver(instance, identity, &extensions),
        "external_memory_fd": fd.extension,
        "opaque_fd": { "exportable": fd.exportable, "importable": fd.importable },
        "limits": {
            "non_coherent_atom_size": limits.non_coherent_atom_size,
            "min_memory_map_alignment": limits.min_memory_map_alignment,
            "max_memory_allocation_count": limits.max_memory_allocation_count,
        },
        "memory_heaps": heaps(&memory),
        "memory_types": types(&memory),
        "queue_families": families.iter().enumerate().map(|(index, (flags, count))| json!({
            "index": index, "flags": names(flags.as_raw(), &QUEUE_FLAGS), "queues": count,
        })).collect::<Vec<_>>(),
        "chosen": {
            "memory_type": choose_memory(&memory).map(|choice| choice.index),
            "coherent": choose_memory(&memory).map(|choice| choice.coherent),
            "heap": choose_memory(&memory).map(|choice| choice.heap),
            "queue_family": select::queue_family(&families),
        },
        "error": error,
    })
}

fn driver(instance: &Instance, identity: &Identity, extensions: &[String]) -> Value {
    let raw = identity.properties.driver_version;
    let extension = ash::khr::driver_properties::NAME.to_string_lossy();
    if !extensions.iter().any(|name| *name == extension) {
        return json!({ "version": raw });
    }
    let mut driver = vk::PhysicalDeviceDriverProperties::default();
    let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
    // SAFETY: the handle came from this instance, and the device has the extension that the structure belongs to.
    unsafe {
        instance.raw().get_physical_device_properties2(identity.handle, &mut all);
    }
    json!({
        "version": raw,
        "id": driver.driver_id.as_raw(),
        "name": text(&driver.driver_name),
        "info": text(&driver.driver_info),
    })
}

fn heaps(memory: &vk::PhysicalDeviceMemoryProperties) -> Vec<Value> {
    let heaps = memory.memory_heaps_as_slice().iter().enumerate();
    heaps
        .map(|(index, heap)| {
            json!({
                "index": index,
                "size": heap.size,
                "flags": names(heap.flags.as_raw(), &[(1, "DEVICE_LOCAL"), (2, "MULTI_INSTANCE")]),
            })
        })
        .collect()
}

fn types(memory: &vk::PhysicalDeviceMemoryProperties) -> Vec<Value> {
    let types = memory.memory_types_as_slice().iter().enumerate();
    types
        .map(|(index, one)| {
            json!({
                "index": index,
                "heap": one.heap_index,
                "flags": names(one.property_flags.as_raw(), &MEMORY_FLAGS),
            })
        })
        .collect()
}

const MEMORY_FLAGS: [(u32, &str); 9] = [
    (0x1, "DEVICE_LOCAL"),
    (0x2, "HOST_VISIBLE"),
    (0x4, "HOST_COHERENT"),
    (0x8, "HOST_CACHED"),
    (0x10, "LAZILY_ALLOCATED"),
    (0x20, "PROTECTED"),
    (0x40, "DEVICE_COHERENT_AMD"),
    (0x80, "DEVICE_UNCACHED_AMD"),
    (0x100, "RDMA_CAPABLE_NV"),
];

const QUEUE_FLAGS: [(u32, &str); 8] = [
    (0x1, "GRAPHICS"),
    (0x2, "COMPUTE"),
    (0x4, "TRANSFER"),
    (0x8, "SPARSE_BINDING"),
    (0x10, "PROTECTED"),
    (0x20, "VIDEO_DECODE"),
    (0x40, "VIDEO_ENCODE"),
    (0x100, "OPTICAL_FLOW_NV"),
];

/// The names of the bits that are set. Bits without a name are joined into one number.
fn names(bits: u32, known: &[(u32, &str)]) -> Vec<String> {
    let mut rest = bits;
    let mut list = Vec::new();
    for (bit, name) in known {
        if bits & bit != 0 {
            list.push((*name).to_owned());
            rest &= !bit;
        }
    }
    if rest != 0 {
        list.push(format!("{rest:#x}"));
    }
    list
}

fn device_type(kind: vk::PhysicalDeviceType) -> &'static str {
    match kind {
        vk::PhysicalDeviceType::INTEGRATED_GPU => "integrated GPU",
        vk::PhysicalDeviceType::DISCRETE_GPU => "discrete GPU",
        vk::PhysicalDeviceType::VIRTUAL_GPU => "virtual GPU",
        vk::PhysicalDeviceType::CPU => "CPU",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_kept_as_a_number() {
        assert_eq!(names(0x0400_0007, &MEMORY_FLAGS), ["DEVICE_LOCAL", "HOST_VISIBLE", "HOST_COHERENT", "0x4000000"]);
        assert!(names(0, &MEMORY_FLAGS).is_empty());
    }
}
