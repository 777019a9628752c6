//! Checks the documents against the sources: the names and tests that they mention must exist, links must have a
//! target, and every page of the guide must be in the doc tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::compilers::root;

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files under a folder with one of these extensions: path and text.
fn files(folder: &str, extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("the folder is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if extensions.iter().any(|extension| path.extension().is_some_and(|found| found == *extension)) {
                found.push((path.clone(), read(&path)));
            }
        }
    }
    found
}

/// The texts between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_'))
}

// ---- Names ----

const TESTS: &str = "## Their tests, and ours";

/// The number of tests that table rows name, and the names of missing tests.
fn tests_that_are_missing(page: &str) -> (usize, Vec<&str>) {
    let folders = [
        "ffi-tests",
        "cuda-mem/src",
        "cuda-mem/tests",
        "cuda-mem-remote/src",
        "cuda-sys/src",
        "dynamic/src",
        "softgpu",
        "src",
        "stream-heap/src",
        "strided-layout/src",
        "tools",
        "vkgdr",
    ];
    let sources: Vec<_> = folders.iter().flat_map(|folder| files(folder, &["rs"])).collect();
    // In a table row, a name of several words is a test.
    let named: BTreeSet<&str> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(code)
        .filter(|name| name.matches('_').count() >= 2 && words(name).next() == Some(name))
        .collect();
    let there = |name: &&str| {
        let (function, made) = (format!("fn {name}("), format!("\"{name}\""));
        sources.iter().any(|(_, text)| text.contains(&function) || text.contains(&made))
    };
    (named.len(), named.into_iter().filter(|name| !there(name)).collect())
}

#[test]
fn every_test_that_the_parity_page_names_is_there() {
    let page = read("docs/parity.md");
    let (_, tests) = page.split_once(TESTS).expect("the page has this part");
    let (count, missing) = tests_that_are_missing(tests);
    assert!(count > 40, "only {count} names were found");
    assert!(missing.is_empty(), "docs/parity.md names tests that are not there: {missing:#?}");
}

#[test]
fn every_test_that_holds_a_promise_of_reliability_is_there() {
    let page = read("docs/reliability.md");
    let (count, missing) = tests_that_are_missing(&page);
    assert!(count > 40, "only {count} names were found");
    assert!(missing.is_empty(), "docs/reliability.md names tests that are not there: {missing:#?}");
}

#[test]
fn reliability_page_lists_every_planted_error_with_its_test() {
    let page = read("docs/reliability.md");
    let rows = page.lines().filter(|line| line.starts_with("| `")).collect::<Vec<_>>();
    let patches = files("ffi-tests/planted", &["patch"]);
    assert!(patches.len() > 20, "only {} patches were found", patches.len());
    for (path, text) in patches {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let row = rows.iter().find(|row| row.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/reliability.md has no row of {name}"));
        let command = text.lines().find(|line| line.starts_with("test: ") || line.starts_with("miri: "));
        let test = command.and_then(|line| line.rsplit([' ', ':']).next()).expect("a test");
        assert!(row.contains(test), "the row of {name} does not name {test}");
    }
}

/// The names that a source file defines, and the types that it defines or implements something for.
struct Definitions {
    names: BTreeSet<String>,
    types: BTreeSet<String>,
}

impl Definitions {
    fn of(text: &str) -> Self {
        let (mut names, mut types) = (BTreeSet::new(), BTreeSet::new());
        for line in text.lines() {
            let line = line.trim_start();
            let own = line.strip_prefix("pub ").unwrap_or(line);
            let defined: Vec<&str> = words(own).collect();
            for pair in defined.windows(2) {
                if ["fn", "struct", "enum", "trait", "mod", "type", "const", "union"].contains(&pair[0]) {
                    names.insert(pair[1].to_owned());
                }
                // The macros that define adaptors.
                if pair[1] == "holds" {
                    names.insert(pair[0].to_owned());
                }
            }
            // Fields and variants.
            if let Some(first) = defined.first()
                && own.strip_prefix(first).is_some_and(|rest| rest.starts_with([':', ',', '(', '{', ' ']))
            {
                names.insert((*first).to_owned());
            }
            if ["impl", "unsafe impl", "struct", "enum", "trait"].iter().any(|start| own.starts_with(start)) {
                types.extend(words(own).map(str::to_owned));
            }
        }
        Self { names, types }
    }

    /// Whether the file defines `Type::name`.
    fn has(&self, kind: &str, name: &str) -> bool {
        self.names.contains(name)
            && (self.types.contains(kind) || kind == "SharedBuffer" && self.types.contains("Buffer"))
    }
}

/// The definitions in our crates, file by file.
fn definitions() -> Vec<Definitions> {
    let sources = [
        files("cuda-mem/src", &["rs"]),
        files("cuda-mem-remote/src", &["rs"]),
        files("stream-heap/src", &["rs"]),
        files("strided-layout/src", &["rs"]),
        files("dynamic/src", &["rs"]),
        files("src", &["rs"]),
        files("softgpu/src", &["rs"]),
    ]
    .concat();
    sources.iter().map(|(_, text)| Definitions::of(text)).collect()
}

#[test]
fn every_name_of_ours_on_the_parity_page_is_there() {
    let sources = definitions();
    let header: BTreeSet<String> =
        files("include", &["hpp"]).iter().flat_map(|(_, text)| words(text)).map(str::to_owned).collect();
    let page = read("docs/parity.md");
    let (names, _) = page.split_once(TESTS).expect("the page has this part");
    // Not ours: a name of the standard library, and a file name.
    let others = ["MaybeUninit", "libvkgdr.so.1"];

    let (mut count, mut missing) = (0, Vec::new());
    for line in names.lines().filter(|line| line.starts_with("| ")) {
        // A bar within a cell is escaped.
        let line = line.replace("\\|", "/");
        let ours = line.split('|').nth(2).expect("a row has three cells");
        for text in code(ours).filter(|text| !others.contains(text)) {
            for name in words(text).filter(|name| name.len() > 1 && !others.contains(name)) {
                count += 1;
                if !header.contains(name) && !sources.iter().any(|source| source.names.contains(name)) {
                    missing.push(text.to_owned());
                }
            }
            let path: Vec<&str> = words(text.split('(').next().unwrap_or(text)).collect();
            if let (Some((kind, name)), true) = (text.split_once("::"), path.len() == 2)
                && kind.starts_with(char::is_uppercase)
                && !sources.iter().any(|source| source.has(path[0], path[1]))
            {
                missing.push(format!("{name} of {kind}"));
            }
        }
    }
    assert!(count > 250, "only {count} names were found");
    assert!(missing.is_empty(), "docs/parity.md says these are ours: {missing:#?}");
}

#[test]
fn every_method_that_the_guide_names_is_there() {
    let (sources, mut count, mut missing) = (definitions(), 0, Vec::new());
    for (page, text) in files("docs/guide", &["md"]) {
        for name in prose(&text).lines().flat_map(code) {
            // `Type::method` or `module::Type::method`, possibly with arguments.
            let path: Vec<&str> = name.split('(').next().unwrap_or(name).split("::").collect();
            if let [.., kind, method] = path[..]
                && kind.starts_with(char::is_uppercase)
                && words(method).next() == Some(method)
            {
                count += 1;
                if !sources.iter().any(|source| source.has(kind, method)) {
                    missing.push(format!("{}: {name}", page.display()));
                }
            }
        }
    }
    assert!(count > 60, "only {count} methods were found");
    assert!(missing.is_empty(), "these are not there: {missing:#?}");
}

// ---- Figures ----

#[test]
fn a_measurement_has_the_same_figure_on_all_pages() {
    let mut rows: Vec<(String, String, PathBuf)> = Vec::new();
    let mut shared = 0;
    for (path, text) in [files("docs/guide", &["md"]), vec![(root().join("README.md"), read("README.md"))]].concat() {
        for line in text.lines().filter(|line| line.starts_with("| ")) {
            let mut cells = line.split('|').map(|cell| cell.trim().to_owned()).skip(1);
            let (Some(what), Some(figure)) = (cells.next(), cells.next()) else { continue };
            if !figure.starts_with(|letter: char| letter.is_ascii_digit()) {
                continue;
            }
            for (_, other, page) in rows.iter().filter(|(other, ..)| *other == what) {
                shared += 1;
                assert_eq!(*other, figure, "{what:?} on {} and {}", path.display(), page.display());
            }
            rows.push((what, figure, path.clone()));
        }
    }
    assert!(shared >= 10, "only {shared} measurements are on several pages");
}

// ---- softgpu is named ----

/// The same on every page, for Rust, C, C++ and the command.
const RULE: &str = "only if its code or its environment (CUDA_MEM_LIBCUDA) names it; otherwise a missing driver is an error \
                    with advice";

#[test]
fn every_page_tells_the_same_rule_of_softgpu() {
    for page in [
        "README.md",
        "cuda-mem/README.md",
        "cuda-mem/src/lib.rs",
        "docs/guide/c-and-cpp.md",
        "docs/guide/testing-without-a-gpu.md",
        "include/cudamem.h",
        "softgpu/README.md",
    ] {
        let text = read(page).replace('`', "");
        let words = text.split_whitespace().filter(|word| !["//!", "*"].contains(word));
        assert!(words.collect::<Vec<_>>().join(" ").contains(RULE), "{page} lacks the rule");
    }
}

#[test]
fn every_program_of_the_docs_names_softgpu_visibly() {
    let (mut named, mut hidden) = (0, Vec::new());
    for (path, text) in [files("cuda-mem/src", &["rs"]), documents()].concat() {
        let is_code = path.extension().is_some_and(|extension| extension == "rs");
        let shown = |line: &&str| !is_code || line.trim_start().starts_with("//");
        for line in text.lines().filter(shown).filter(|line| line.contains("Driver::software()")) {
            named += usize::from(line.contains("let "));
            if line.contains("// # ") || line.contains("//! # ") || line.contains("/// # ") {
                hidden.push(format!("{}: {line}", path.display()));
            }
        }
    }
    assert!(named > 150, "only {named} programs name softgpu");
    assert!(hidden.is_empty(), "these lines are hidden: {hidden:#?}");
}

// ---- Links and pages ----

/// The documents that users read.
fn documents() -> Vec<(PathBuf, String)> {
    let mut documents = [files("docs", &["md"]), files("examples", &["md"])].concat();
    for name in ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"] {
        documents.push((root().join(name), read(name)));
    }
    documents
}

/// A document without its code blocks.
fn prose(text: &str) -> String {
    let mut within = false;
    let outside = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        within ^= fence;
        !within && !fence
    });
    outside.collect::<Vec<_>>().join("\n")
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn links_lead_somewhere() {
    let (mut count, mut broken) = (0, Vec::new());
    for (path, text) in documents() {
        let text = prose(&text);
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
        let named = text.lines().filter(|line| line.starts_with('[')).filter_map(|line| line.split_once("]: "));
        for target in inline.chain(named.map(|(_, target)| target)) {
            if target.starts_with("https://") {
                continue;
            }
            count += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            let found = match heading {
                "" => there.exists(),
                _ => fs::read_to_string(&there).is_ok_and(|text| {
                    prose(&text).lines().any(|line| line.starts_with('#') && anchor(line) == heading)
                }),
            };
            if !found {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(count > 60, "only {count} links were found");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_guide_page_is_a_doc_test_and_docs_are_indexed() {
    let (module, index) = (read("ffi-tests/guide/src/lib.rs"), read("docs/README.md"));
    let pages = files("docs/guide", &["md"]);
    assert!(pages.len() >= 8, "only {} pages were found", pages.len());
    for (path, _) in pages {
        let name = path.file_name().and_then(|name| name.to_str()).expect("names of pages are text").to_owned();
        assert!(module.contains(&format!("docs/guide/{name}\"")), "ffi-tests/guide/src/lib.rs lacks {name}");
        assert!(index.contains(&format!("(guide/{name})")), "docs/README.md lacks {name}");
    }
    for entry in fs::read_dir(root().join("docs")).expect("the folder is there") {
        let name = entry.expect("the folder is readable").file_name().to_string_lossy().into_owned();
        let found = name == "README.md" || index.contains(&format!("({name})")) || index.contains(&format!("({name}/"));
        assert!(found, "docs/README.md lacks {name}");
    }
}
