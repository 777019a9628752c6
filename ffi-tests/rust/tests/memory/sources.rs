//! Compares the list of sources of memory with the types of cuda-mem and of the C library, so that a new source is in all
//! lists.

use std::collections::BTreeSet;
use std::fs;
use testkit::compilers::root;
use testkit::sources::Memory;

/// The types of resources in `api/cuda-mem.txt`, without their parameters, and the modules of their rooms.
fn types_of_cuda_mem() -> BTreeSet<(String, String)> {
    let listing = fs::read_to_string(root().join("api/cuda-mem.txt")).expect("the listing is in the sources");
    let of = |line: &str| {
        let path = line.strip_prefix("impl")?.split_once("cuda_mem::memory::ResourceHandle for cuda_mem::")?.1;
        let path = path.split('<').next()?;
        let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
        (name != "SharedResource").then(|| (module.to_owned(), name.to_owned()))
    };
    listing.lines().filter_map(of).collect()
}

/// The rows of the table in `dynamic/src/resource.rs`, without parameters.
fn types_of_the_c_library() -> BTreeSet<String> {
    let source = fs::read_to_string(root().join("dynamic/src/resource.rs")).expect("the source");
    let (_, table) = source.split_once("\nresource_types! {\n").expect("the table of types");
    let rows = table.split_once("\n}").expect("the table's end").0.lines();
    let rows = rows.filter(|row| !row.trim_start().starts_with("///"));
    rows.map(|row| plain(row.split_once('(').expect("a row has a type").1)).collect()
}

/// The name of a type without its parameters.
fn plain(name: &str) -> String {
    name.chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[test]
fn the_list_of_sources_has_every_source_of_cuda_mem() {
    let listed: BTreeSet<String> = Memory::TYPES.iter().map(|name| plain(name)).collect();
    let mut expected: BTreeSet<String> = types_of_cuda_mem()
        .into_iter()
        .filter(|(module, _)| !["adaptor", "pool"].contains(&module.as_str()))
        .map(|(_, name)| name)
        .collect();
    for missing in ["GraphMemory", "RegisteredMemory"] {
        assert!(expected.remove(missing), "{missing} is not in the listing, but excepted");
    }
    assert_eq!(listed, expected);
}

#[test]
fn the_c_library_has_every_resource_of_cuda_mem() {
    let mut expected: BTreeSet<String> = types_of_cuda_mem().into_iter().map(|(_, name)| name).collect();
    // In C, registered memory is an object of its own.
    assert!(expected.remove("RegisteredMemory"));
    assert_eq!(types_of_the_c_library(), expected);
}
