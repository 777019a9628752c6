//! The codes of a broken context, compared with the descriptions in cuda.h.

use super::releases::releases;
use super::toolchain::root;
use std::collections::BTreeSet;

/// The words with which cuda.h describes the end of a context, or of all work of the process.
const ENDS: [&str; 3] = ["in an inconsistent state", "must be terminated and relaunched", "context cannot be used"];
/// Codes that the crate counts too, and that cuda.h only names.
const ONLY_NAMED: [&str; 3] = ["CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_NVLINK_UNCORRECTABLE", "CUDA_ERROR_UNKNOWN"];

/// The first name that begins with CUDA_ERROR_.
fn name(text: &str) -> Option<&str> {
    let begin = &text[text.find("CUDA_ERROR_")?..];
    begin.split(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric()).next()
}

/// The codes that a header describes so.
fn described(header: &str) -> BTreeSet<&str> {
    let codes = header.split("typedef enum cudaError_enum").nth(1).expect("the codes");
    let codes = codes.split("} CUresult").next().expect("their end");
    let with_text = codes.split("/**").filter_map(|code| code.split_once("*/"));
    let ends = with_text.filter(|(text, _)| {
        let words: Vec<_> = text.split(|letter: char| letter == '*' || letter.is_whitespace()).collect();
        let text = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        ENDS.iter().any(|end| text.contains(end))
    });
    ends.filter_map(|(_, code)| name(code)).collect()
}

#[test]
fn the_codes_of_a_broken_context_are_those_of_cuda_h() {
    let source = std::fs::read_to_string(root().join("cuda-mem/src/error/broken.rs")).expect("the table");
    let known: BTreeSet<_> =
        source.lines().filter(|line| line.starts_with("    CUresult::")).filter_map(name).collect();
    for headers in releases() {
        let header = std::fs::read(headers.folder.join("cuda.h")).expect("a header");
        let header = String::from_utf8_lossy(&header);
        let described = described(&header);
        assert!(described.len() > 9, "cuda.h has other words: {described:?}");
        let unknown: Vec<_> = described.difference(&known).collect();
        assert!(unknown.is_empty(), "{}: after these, the context is broken too: {unknown:?}", headers.release);
    }
    let Some(newest) = releases().last() else { return };
    let header = std::fs::read(newest.folder.join("cuda.h")).expect("a header");
    let header = String::from_utf8_lossy(&header);
    let mut named = described(&header);
    named.extend(ONLY_NAMED);
    assert_eq!(known, named, "{}", newest.release);
}
