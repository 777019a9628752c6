//! vkgdr's interface: compares the header of vkgdr-sys with the users' header, alone and with NVIDIA's types, and the
//! functions of upstream's library and ours with the table.

use crate::compare::{Comparison, Difference};
use crate::gate::list;
use crate::interface::Interface;
use crate::read;
use crate::releases::releases;
use crate::toolchain::{is_there, root, run, say, scratch, skip};
use cuda_sys::Release;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The newest release in the header: upstream's is 0.1, and ours is 0.2.
const NEWEST: Release = Release::new(0, 2);

/// Names that only the header of vkgdr-sys has.
const ONLY_RAW: [&str; 1] = [
    // C users see the function pointer's type written out.
    "vkgdr_symbol_fn",
];

/// Macros with which the users' header records the source of CUDA's types, and declares its functions.
const NO_CONSTANTS: [&str; 2] = ["VKGDR_HAS_CUDA_H", "VKGDR_API"];

/// The codes of functions that return int, as the crate `vkgdr` declares them for Rust.
const CODES: [(&str, i32); 6] = [
    ("VKGDR_ERROR_INVALID_VALUE", vkgdr::INVALID_VALUE),
    ("VKGDR_ERROR_INVALID_HANDLE", vkgdr::INVALID_HANDLE),
    ("VKGDR_ERROR_LIBRARY_NOT_FOUND", vkgdr::LIBRARY_NOT_FOUND),
    ("VKGDR_ERROR_NO_DEVICE", vkgdr::NO_DEVICE),
    ("VKGDR_ERROR_SYSTEM", vkgdr::SYSTEM),
    ("VKGDR_ERROR_INTERNAL", vkgdr::INTERNAL),
];

/// The differences between the header of vkgdr-sys and the users' header, and the number of equal facts.
fn compare(raw: &Interface, users: &Interface) -> (usize, Vec<Difference>) {
    let comparison = Comparison::new(raw, users, NEWEST);
    let mut wrong = comparison.differences;
    let mut differs = |item: &str, text: &str| {
        wrong.push(Difference { item: item.to_owned(), text: text.to_owned() });
    };
    for name in comparison.unknown.iter().filter(|name| !ONLY_RAW.contains(&name.as_str())) {
        differs(name, "the users' header does not know it");
    }
    for name in users.functions.keys().filter(|name| !raw.functions.contains_key(*name)) {
        differs(name, "only the users' header declares it");
    }
    for (name, constant) in users.constants.iter().filter(|(name, _)| !NO_CONSTANTS.contains(&name.as_str())) {
        let here = raw.constants.get(name).map(|constant| constant.value);
        let code = CODES.iter().find(|(code, _)| code == name).map(|(_, value)| i128::from(*value));
        if here.or(code) != Some(constant.value) {
            differs(name, "Rust does not know it by this value");
        }
    }
    (comparison.counts.sum(), wrong)
}

fn raw_header() -> Interface {
    read::header(&root().join("vkgdr-sys/wrapper.h"), &[], read::VKGDR).expect("vkgdr-sys/wrapper.h parses")
}

fn users_header(flags: &[String]) -> Interface {
    read::header(&root().join("include/vkgdr.h"), flags, read::VKGDR).expect("include/vkgdr.h parses")
}

fn has_libclang() -> bool {
    let there = read::has_libclang();
    if !there {
        skip("libclang is missing: apt-get install libclang-dev");
    }
    there
}

#[test]
fn the_raw_header_is_the_users_header() {
    if !has_libclang() {
        return;
    }
    let (facts, wrong) = compare(&raw_header(), &users_header(&["-DVKGDR_NO_CUDA_H".to_owned()]));
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), list(&wrong));
    say(&format!("vkgdr-sys/wrapper.h against include/vkgdr.h: {facts} facts the same\n"));
}

#[test]
fn the_users_header_means_the_same_with_nvidias_types() {
    for headers in releases() {
        let users = users_header(&[format!("-I{}", headers.folder.display())]);
        let (_, wrong) = compare(&raw_header(), &users);
        assert!(wrong.is_empty(), "CUDA {}, {} differences:\n{}", headers.release, wrong.len(), list(&wrong));
    }
}

#[test]
fn errors_planted_in_the_raw_header_are_found_by_name() {
    if !has_libclang() {
        return;
    }
    let text = std::fs::read_to_string(root().join("vkgdr-sys/wrapper.h")).expect("the header is text");
    let users = users_header(&["-DVKGDR_NO_CUDA_H".to_owned()]);
    for (item, from, to) in [
        ("VKGDR_OPEN_REQUIRE_COHERENT_BIT", "REQUIRE_COHERENT_BIT 4", "REQUIRE_COHERENT_BIT 8"),
        ("vkgdr_memory_flushed", "void vkgdr_memory_flush(", "void vkgdr_memory_flushed("),
        ("vkgdr_memory_export_fd", "export_fd(vkgdr_memory_t mem, int *fd)", "export_fd(vkgdr_memory_t mem)"),
        ("vkgdr_memory_get_size", "size_t vkgdr_memory_get_size", "uint32_t vkgdr_memory_get_size"),
        ("vkgdr_memory_t", "struct vkgdr_memory *vkgdr_memory_t", "struct vkgdr_mem *vkgdr_memory_t"),
        ("vkgdr_memory_get_device_ptr", "unsigned long long CUdeviceptr", "unsigned int CUdeviceptr"),
        ("vkgdr_trim", "uses now. Since vkgdr 0.2.", "uses now. Since vkgdr 0.3."),
        ("vkgdr_open_with_cuda", "(*vkgdr_symbol_fn)(void *user, const", "(*vkgdr_symbol_fn)(const"),
    ] {
        assert_eq!(text.matches(from).count(), 1, "wrapper.h has `{from}` once");
        let file = scratch("vkgdr").join(format!("{item}.h"));
        std::fs::write(&file, text.replacen(from, to, 1)).expect("the folder is writable");
        let raw = read::header(&file, &[], read::VKGDR).expect("the changed header parses");
        let (_, wrong) = compare(&raw, &users);
        assert!(wrong.iter().any(|difference| difference.item == item), "{item}: {}", list(&wrong));
    }
}

/// The interface functions that a library exports, or `None` if the tool that lists them is missing.
fn exported(library: &Path) -> Option<BTreeSet<String>> {
    if !is_there("nm") {
        skip("nm is missing: apt-get install binutils");
        return None;
    }
    let text =
        run(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).unwrap_or_else(|error| panic!("{error}"));
    Some(
        text.lines()
            .filter_map(|line| line.split(" T ").nth(1))
            .filter(|name| name.starts_with("vkgdr_"))
            .map(str::to_owned)
            .collect(),
    )
}

/// The functions of the table that exist since a release or earlier.
fn table(until: Release) -> BTreeSet<String> {
    let symbols = vkgdr_sys::Functions::SYMBOLS.iter().filter(|symbol| symbol.since <= until);
    symbols.map(|symbol| symbol.name.to_string_lossy().into_owned()).collect()
}

#[test]
fn upstream_vkgdr_exports_exactly_the_release_0_1_functions() {
    let library = root().join(".cache/upstream/libvkgdr-module.so");
    if !library.exists() {
        return skip("upstream's vkgdr is missing: run scripts/upstream-vkgdr");
    }
    if let Some(exported) = exported(&library) {
        assert_eq!(exported, table(Release::new(0, 1)));
        say(&format!("upstream's vkgdr exports the {} functions of release 0.1\n", exported.len()));
    }
}

#[test]
fn our_library_has_every_function_of_the_table_and_no_other() {
    let linked: BTreeSet<String> = vkgdr::SYMBOLS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(linked, table(NEWEST));
    let Some(library) = std::env::var_os("VKGDR_LIBRARY") else {
        return skip("VKGDR_LIBRARY is not set: cargo build -p vkgdr-cdylib, and give the path of libvkgdr.so");
    };
    if let Some(exported) = exported(Path::new(&library)) {
        assert_eq!(exported, table(NEWEST));
    }
}

#[test]
fn the_table_of_vkgdr_sys_is_what_its_header_says() {
    if !has_libclang() {
        return;
    }
    let header = raw_header();
    assert_eq!(header.functions.len(), vkgdr_sys::Functions::SYMBOLS.len());
    for symbol in vkgdr_sys::Functions::SYMBOLS {
        let name = symbol.name.to_string_lossy();
        assert_eq!(header.functions[&*name].since, Some(symbol.since), "{name}");
    }
}
