//! docs/parity.md names tests of ours for tests of others: each of them is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// All Rust text under a folder.
fn sources(folder: &Path, text: &mut String) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[test]
fn every_test_that_the_parity_page_names_is_there() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    sources(&root.join("tests"), &mut text)?;
    sources(&root.join("../cuda-mem/src"), &mut text)?;
    let page = fs::read_to_string(root.join("../docs/parity.md"))?;
    let (_, tests) = page.split_once("## Their tests, and ours").expect("the page has this part");
    // Between backticks, in the rows of tables, and a name of several words: a test.
    let named: BTreeSet<&str> = tests
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|name| name.matches('_').count() >= 2 && !name.contains('/'))
        .collect();
    assert!(named.len() > 40, "only {} names were found", named.len());
    let there = |name: &&str| text.contains(&format!("fn {name}(")) || text.contains(&format!("\"{name}\""));
    let missing: Vec<_> = named.iter().filter(|name| !there(name)).collect();
    assert!(missing.is_empty(), "docs/parity.md names tests that are not there: {missing:#?}");
    Ok(())
}
