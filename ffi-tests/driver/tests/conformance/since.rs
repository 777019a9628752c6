//! Compares the release that our header states for each function with the names in cudaTypedefs.h:
//! `PFN_cuMemAlloc_v3020` is the type of the form of cuMemAlloc that CUDA 3.2 introduced, which is cuMemAlloc_v2.

use crate::compare::Difference;
use crate::ctype::{CType, Signature};
use crate::interface::Interface;
use crate::releases::{Headers, ours, releases};
use crate::toolchain::say;
use cuda_sys::Release;
use std::collections::{BTreeMap, BTreeSet};

/// The forms of each function, by its name without suffix: the release that introduced each form, and its signature.
type Forms<'a> = BTreeMap<&'a str, BTreeMap<Release, &'a Signature>>;

/// Parses `PFN_cuMemAlloc_v3020` as `cuMemAlloc` and 3.2. Returns `None` for `_ptds` and `_ptsz`, the forms for
/// per-thread default streams.
pub fn form(name: &str) -> Option<(&str, Release)> {
    let (base, number) = name.strip_prefix("PFN_")?.rsplit_once("_v")?;
    Some((base, Release::from_number(number.parse().ok()?)))
}

/// Parses `cuMemAlloc_v2` as `cuMemAlloc` and 1, because it is the second form.
pub fn ordinal(name: &str) -> (&str, usize) {
    match name.rsplit_once("_v").and_then(|(base, number)| Some((base, number.parse::<usize>().ok()?))) {
        Some((base, number)) => (base, number.saturating_sub(1)),
        None => (name, 0),
    }
}

fn forms(pointers: &Interface) -> Forms<'_> {
    let mut forms = Forms::new();
    for (name, ctype) in &pointers.types {
        let (Some((base, release)), CType::Function(signature)) = (form(name), ctype) else { continue };
        forms.entry(base).or_default().insert(release, signature);
    }
    forms
}

/// Returns the functions whose release at least one header confirms, and everything that is wrong.
pub fn check(ours: &Interface, releases: &[Headers]) -> (BTreeSet<String>, Vec<Difference>) {
    let (mut confirmed, mut wrong) = (BTreeSet::new(), Vec::new());
    for headers in releases {
        let forms = forms(&headers.pointers);
        for (name, function) in &ours.functions {
            let mut differs = |text: String| {
                wrong.push(Difference { item: name.clone(), text: format!("{text} (CUDA {})", headers.release) });
            };
            let (base, ordinal) = ordinal(name);
            let known = forms.get(base).into_iter().flatten().nth(ordinal);
            match (known, function.since) {
                (_, None) => differs("its comment names no release".to_owned()),
                (None, Some(since)) if since > headers.release => {}
                (None, Some(_)) => differs("cudaTypedefs.h has no such form".to_owned()),
                (Some((release, signature)), Some(since)) => {
                    if *release != since {
                        differs(format!(
                            "cudaTypedefs.h says that {release} introduced it, but its comment says {since}"
                        ));
                    } else if **signature != function.signature {
                        differs(format!("cudaTypedefs.h has {signature}, ours is {}", function.signature));
                    } else {
                        confirmed.insert(name.clone());
                    }
                }
            }
        }
    }
    (confirmed, wrong)
}

#[test]
fn every_function_came_with_the_release_that_the_table_states() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let (confirmed, wrong) = check(ours(), releases);
    let wrong_lines = crate::gate::list(&wrong);
    assert!(wrong.is_empty(), "{} differences:\n{wrong_lines}", wrong.len());
    assert_eq!(confirmed.len(), ours().functions.len());
    say(&format!(
        "releases that brought functions: {} of {} confirmed by cudaTypedefs.h\n",
        confirmed.len(),
        ours().functions.len()
    ));
}

#[test]
fn the_table_of_cuda_sys_is_what_wrapper_h_says() {
    if !crate::read::has_libclang() {
        return crate::toolchain::skip("libclang is missing: apt-get install libclang-dev");
    }
    let table: BTreeMap<String, Option<Release>> = cuda_sys::Functions::SYMBOLS
        .iter()
        .map(|symbol| (symbol.name.to_string_lossy().into_owned(), Some(symbol.since)))
        .collect();
    let header: BTreeMap<String, Option<Release>> =
        ours().functions.iter().map(|(name, function)| (name.clone(), function.since)).collect();
    assert_eq!(table, header);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_tell_function_and_release() {
        assert_eq!(form("PFN_cuMemAlloc_v3020"), Some(("cuMemAlloc", Release::new(3, 2))));
        assert_eq!(form("PFN_cuMemcpy_v7000_ptds"), None);
        assert_eq!(form("PFN_cuMemAlloc"), None);
        assert_eq!(ordinal("cuMemAlloc_v2"), ("cuMemAlloc", 1));
        assert_eq!(ordinal("cuInit"), ("cuInit", 0));
    }
}
