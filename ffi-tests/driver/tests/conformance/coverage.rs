//! Measures how much of the newest driver's memory interface cuda-sys covers.

use crate::interface::Interface;
use crate::read;
use crate::releases::{Headers, ours, releases};
use crate::since::ordinal;
use crate::toolchain::say;
use std::collections::BTreeSet;

/// A part of the driver's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Memory,
    Sharing,
    Multicast,
    Streams,
    Events,
    Arrays,
}

const GROUPS: [(Group, &str); 6] = [
    (Group::Memory, "memory"),
    (Group::Sharing, "sharing with processes and other APIs"),
    (Group::Multicast, "multicast"),
    (Group::Streams, "streams"),
    (Group::Events, "events"),
    (Group::Arrays, "arrays (not part of this project)"),
];

/// The group of a function, or `None` if it has nothing to do with memory.
fn group(name: &str) -> Option<Group> {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    // In names such as cuMemcpyAtoD, A stands for array.
    let copies_array = name.strip_prefix("cuMemcpy").is_some_and(|rest| rest.starts_with("Ato") || is_to_array(rest));
    let arrays = ["cuArray", "cuMipmapped", "cuMemMapArray", "cuExternalMemoryGetMappedMipmappedArray"];
    Some(if copies_array || starts(&arrays) {
        Group::Arrays
    } else if starts(&["cuIpc", "cuImportExternal", "cuExternalMemory", "cuDestroyExternal"])
        || starts(&["cuSignalExternal", "cuWaitExternal"])
    {
        Group::Sharing
    } else if starts(&["cuMulticast"]) {
        Group::Multicast
    } else if starts(&["cuMem", "cuPointer"])
        || (starts(&["cuDevice"]) && ["MemPool", "GraphMem"].iter().any(|part| name.contains(part)))
    {
        Group::Memory
    } else if starts(&["cuStream"]) {
        Group::Streams
    } else if starts(&["cuEvent"]) {
        Group::Events
    } else {
        return None;
    })
}

fn is_to_array(rest: &str) -> bool {
    let rest = rest.get(1..).unwrap_or_default();
    rest.starts_with("toA") && !rest.starts_with("toAsync")
}

/// Whether a value is irrelevant: the end of an enumeration, or a limit of textures or surfaces.
fn is_beside_the_point(value: &str) -> bool {
    value.ends_with("_MAX") || ["TEXTURE", "SURFACE"].iter().any(|part| value.contains(part))
}

/// What the newest header declares for ordinary programs: the newest form of each function.
fn newest(headers: &Headers) -> Interface {
    let flags = [format!("-I{}", headers.folder.display())];
    read::header(&headers.folder.join("cuda.h"), &flags, read::CUDA).expect("cuda.h parses")
}

#[test]
fn coverage_of_the_newest_driver_is_a_number() {
    let Some(headers) = releases().last() else { return };
    let newest = newest(headers);
    let older: BTreeSet<&str> = ours().functions.keys().map(|name| ordinal(name).0).collect();
    let mut lines = String::new();
    let (mut have, mut all) = (0, 0);
    for (group_of, title) in GROUPS {
        let names: Vec<&String> = newest.functions.keys().filter(|name| group(name) == Some(group_of)).collect();
        assert!(!names.is_empty(), "no function in the group {title}");
        let missing: Vec<&String> =
            names.iter().filter(|name| !ours().functions.contains_key(**name)).copied().collect();
        let here = names.len() - missing.len();
        if group_of != Group::Arrays {
            have += here;
            all += names.len();
        }
        lines += &format!("  {title}: {here} of {}\n", names.len());
        for name in missing {
            let form = if older.contains(ordinal(name).0) { " (an older form is there)" } else { "" };
            lines += &format!("    not yet: {name}{form}\n");
        }
    }
    let values = newest.constants.iter().filter(|(name, constant)| {
        let of_ours = constant.of.as_ref().is_some_and(|tag| ours().enums.contains_key(tag));
        of_ours && !ours().constants.contains_key(*name) && !is_beside_the_point(name)
    });
    let values: Vec<String> = values.map(|(name, _)| format!("    not yet: {name}\n")).collect();
    say(&format!(
        "coverage of CUDA {}: {have} of {all} functions for memory, streams and events\n{lines}  \
         values of our enumerations that only NVIDIA's header has, textures and surfaces aside: {}\n{}",
        headers.release,
        values.len(),
        values.concat(),
    ));
    assert!(have > 0 && have <= all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_groups() {
        for (name, expected) in [
            ("cuMemAlloc_v2", Some(Group::Memory)),
            ("cuMemcpyDtoHAsync_v2", Some(Group::Memory)),
            ("cuMemcpyAsync", Some(Group::Memory)),
            ("cuMemcpyAtoHAsync_v2", Some(Group::Arrays)),
            ("cuMemcpyDtoA_v2", Some(Group::Arrays)),
            ("cuExternalMemoryGetMappedMipmappedArray", Some(Group::Arrays)),
            ("cuExternalMemoryGetMappedBuffer", Some(Group::Sharing)),
            ("cuDeviceGetDefaultMemPool", Some(Group::Memory)),
            ("cuDeviceGet", None),
            ("cuStreamWaitValue32_v2", Some(Group::Streams)),
            ("cuCtxSynchronize", None),
        ] {
            assert_eq!(group(name), expected, "{name}");
        }
    }
}
