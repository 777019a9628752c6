//! The libraries must export exactly their interface: the lists in `symbols/`, the headers and the libraries must
//! agree. `scripts/header` adds new functions to the lists.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use testkit::c_library::Library;
use testkit::compilers::{c_headers, root, run};

/// Reads a list in `symbols/`: each function with the release that introduced it.
fn listed(library: &str) -> BTreeMap<String, String> {
    let file = root().join("symbols").join(format!("{library}.symbols"));
    let text = std::fs::read_to_string(&file).expect("the list is there");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').map(|(name, release)| (name.to_owned(), release.to_owned())).expect(line))
        .collect()
}

/// The functions that a library's headers declare: every name followed by an opening parenthesis, outside of comments.
fn declared(library: &str) -> Vec<String> {
    let files = if library == "cudamem" { c_headers() } else { vec![root().join(format!("include/{library}.h"))] };
    let text: String =
        files.iter().map(|file| std::fs::read_to_string(file).expect("the header is readable")).collect();
    let code: String = text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let before_brackets = code.split('(').filter_map(|part| part.rsplit(|letter: char| !is_of_name(letter)).next());
    let mut names: Vec<String> =
        before_brackets.filter(|name| name.starts_with(&format!("{library}_"))).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// The names that programs can link from a shared or static library.
fn exported(arguments: &[&str], library: &Path) -> Vec<String> {
    let text = run(Command::new("nm").args(arguments).args(["--defined-only", "--format=posix"]).arg(library));
    let symbols = text.lines().filter(|line| line.contains(' '));
    let mut names: Vec<String> = symbols.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    names.sort_unstable();
    names
}

/// The dynamic section of a shared library.
fn dynamic_section(library: &Path) -> String {
    run(Command::new("readelf").args(["--dynamic", "--wide"]).arg(library))
}

fn write_list(library: &str) {
    let known = listed(library);
    let lines = declared(library).into_iter().map(|name| {
        let release = known.get(&name).map_or(env!("CARGO_PKG_VERSION"), String::as_str);
        format!("{name} {release}\n")
    });
    let text = format!(
        "# The functions of lib{library}, each with the release that brought it. scripts/header adds new ones. One that is taken\n\
         # away, or changes its meaning, needs another SONAME.\n{}",
        lines.collect::<String>()
    );
    std::fs::write(root().join(format!("symbols/{library}.symbols")), text).expect("the list is writable");
}

#[test]
fn the_lists_are_what_the_headers_declare() {
    for library in ["cudamem", "vkgdr"] {
        if std::env::var_os("CUDAMEM_WRITE_HEADER").is_some() {
            write_list(library);
        }
        let names: Vec<String> = listed(library).into_keys().collect();
        assert_eq!(names, declared(library), "symbols/{library}.symbols: run scripts/header");
    }
}

#[test]
fn the_libraries_export_what_is_listed_and_nothing_else() {
    let library = Library::build();
    let cudamem: Vec<String> = listed("cudamem").into_keys().collect();
    // The functions have the interface's symbol version, which is itself a symbol.
    let versioned = cudamem.iter().map(|name| format!("{name}@@CUDAMEM_0.1"));
    let expected: Vec<String> = ["CUDAMEM_0.1".to_owned()].into_iter().chain(versioned).collect();
    assert_eq!(exported(&["--dynamic"], &library.shared()), expected);
    assert_eq!(exported(&["--extern-only"], &library.static_library()), cudamem);
    let vkgdr: Vec<String> = listed("vkgdr").into_keys().collect();
    assert_eq!(exported(&["--dynamic"], &library.folder().join("libvkgdr.so")), vkgdr);
}

#[test]
fn the_libraries_need_libc_and_are_found_by_their_sonames() {
    let library = Library::build();
    for (file, soname) in [("libcudamem.so", "libcudamem.so.0.1"), ("libvkgdr.so", "libvkgdr.so.1")] {
        let file = library.folder().join(file);
        let section = dynamic_section(&file);
        assert!(section.contains(&format!("Library soname: [{soname}]")), "{section}");
        // Threads and callbacks run the library's code even after it is unloaded.
        assert!(section.contains("NODELETE"), "{section}");
        let libraries = run(Command::new("ldd").arg(&file));
        let known = ["linux-vdso.so", "libc.so", "libm.so", "libgcc_s.so", "/ld-linux-"];
        let foreign: Vec<&str> =
            libraries.lines().filter(|line| !known.iter().any(|name| line.contains(name))).collect();
        assert!(libraries.contains("libc.so") && foreign.is_empty(), "{foreign:?}");
    }
    // The library's own calls must stay within the library.
    assert!(dynamic_section(&library.shared()).contains("SYMBOLIC"));
}
