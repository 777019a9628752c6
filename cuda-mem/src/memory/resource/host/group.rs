//! How much memory the control group of the process may still use: the limit of a container or a service.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Where the groups lie. Version 2 is one tree; in version 1, memory has a tree of its own.
const TREE: &str = "/sys/fs/cgroup";

/// How many bytes the process's group and the groups above it leave. `None` without a limit.
pub(super) fn room() -> Option<usize> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let read = |path: &Path| read_to_string(path).ok();
    folders(&groups).into_iter().filter_map(|folder| room_in(&folder, &read)).min()
}

/// The folders of the process's groups, with those above them.
fn folders(groups: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (fields.next(), fields.next()) else { continue };
        let tree = match kinds {
            "" => Path::new(TREE).to_owned(),
            kinds if kinds.split(',').any(|kind| kind == "memory") => Path::new(TREE).join("memory"),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        // A container may see its own folder as the root, though the path says otherwise.
        folders.extend(path.ancestors().map(|path| tree.join(path)));
    }
    folders
}

/// The room of one group. Files in its page cache are given up for other memory.
fn room_in(folder: &Path, read: &impl Fn(&Path) -> Option<String>) -> Option<usize> {
    let number = |name: &str| read(&folder.join(name))?.trim().parse::<usize>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let statistics = read(&folder.join("memory.stat")).unwrap_or_default();
    let cached = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|figure| figure.trim().parse::<usize>().ok()).unwrap_or(0)
    };
    let cached = cached("inactive_file").saturating_add(cached("active_file"));
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found_with_those_above() {
        let paths = |text: &str| -> Vec<String> {
            folders(text).iter().map(|path| path.to_str().unwrap().trim_end_matches('/').to_owned()).collect()
        };
        assert_eq!(paths("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]);
        assert_eq!(paths("0::/\n"), ["/sys/fs/cgroup"]);
        assert_eq!(paths("5:cpu:/x\n4:memory,hugetlb:/x\n"), ["/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"]);
        assert!(paths("nonsense\n").is_empty());
    }

    #[test]
    fn a_groups_room_counts_its_page_cache_as_free() {
        let files = |files: &'static [(&str, &str)]| {
            move |path: &Path| {
                let found = files.iter().find(|(name, _)| path == Path::new("g").join(name));
                found.map(|(_, text)| (*text).to_owned())
            }
        };
        let room = |read: &dyn Fn(&Path) -> Option<String>| room_in(Path::new("g"), &read);
        let limited = files(&[
            ("memory.max", "1000\n"),
            ("memory.current", "900\n"),
            ("memory.stat", "anon 100\ninactive_file 300\nactive_file 200\nactive_file_other 9\n"),
        ]);
        assert_eq!(room(&limited), Some(600));
        assert_eq!(room(&files(&[("memory.max", "max\n"), ("memory.current", "900\n")])), None);
        let old = files(&[("memory.limit_in_bytes", "500\n"), ("memory.usage_in_bytes", "700\n")]);
        assert_eq!(room(&old), Some(0));
        assert_eq!(room(&files(&[])), None);
    }
}
