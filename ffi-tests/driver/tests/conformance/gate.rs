//! The gate: bindgen reads our header and NVIDIA's, and every fact in ours must be in NVIDIA's header of every release.

use crate::compare::{Comparison, Difference};
use crate::exceptions::CARVED;
use crate::interface::Interface;
use crate::releases::{Headers, ours, releases};
use crate::toolchain::say;
use std::collections::{BTreeMap, BTreeSet};

/// Compares with each release. Returns the comparisons and everything that is wrong.
pub fn gate(ours: &Interface, releases: &[Headers]) -> (Vec<Comparison>, Vec<Difference>) {
    let comparisons: Vec<_> =
        releases.iter().map(|headers| Comparison::new(ours, &headers.driver, headers.release)).collect();
    let mut wrong = Vec::new();
    for (headers, comparison) in releases.iter().zip(&comparisons) {
        wrong.extend(comparison.differences.iter().map(|difference| Difference {
            item: difference.item.clone(),
            text: format!("{} (CUDA {})", difference.text, headers.release),
        }));
    }
    let unknown: Vec<_> = comparisons.iter().map(|comparison| comparison.unknown.clone()).collect();
    wrong.extend(misplaced(&unknown));
    (comparisons, wrong)
}

/// Names that a release lacks although an older release has them, and names that the newest release lacks. Constants
/// and types state no release, so each name must appear in some release and stay from then on.
fn misplaced(unknown: &[BTreeSet<String>]) -> Vec<Difference> {
    let mut wrong = BTreeMap::new();
    for (index, names) in unknown.iter().enumerate() {
        for name in names {
            if index + 1 == unknown.len() {
                wrong.insert(name.clone(), "the newest release does not know it".to_owned());
            } else if !unknown[..index].iter().all(|older| older.contains(name)) {
                wrong.insert(name.clone(), "a release does not know it, and an older one does".to_owned());
            }
        }
    }
    wrong.into_iter().map(|(item, text)| Difference { item, text }).collect()
}

/// Formats differences, one per line.
pub fn list(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("  {difference}\n")).collect()
}

#[test]
fn every_fact_of_wrapper_h_is_in_nvidias_headers() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let (comparisons, wrong) = gate(ours(), releases);
    let mut report = String::from("cuda-sys/wrapper.h against cuda.h:\n");
    for (headers, comparison) in releases.iter().zip(&comparisons) {
        report += &format!(
            "  CUDA {}: {} facts the same ({}); {} functions and {} other names are not in it\n",
            headers.release,
            comparison.counts.sum(),
            comparison.counts,
            comparison.absent.len(),
            comparison.unknown.len(),
        );
    }
    say(&report);
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), list(&wrong));
}

#[test]
fn every_known_difference_is_still_one() {
    let releases = releases();
    if releases.is_empty() {
        return;
    }
    let (comparisons, _) = gate(ours(), releases);
    let met: BTreeSet<&str> = comparisons.iter().flat_map(|comparison| comparison.met.clone()).collect();
    let idle: Vec<_> = CARVED.iter().map(|known| known.field).filter(|field| !met.contains(field)).collect();
    assert!(idle.is_empty(), "exceptions that nothing needs: {idle:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_come_but_must_stay() {
        let sets = |names: [&[&str]; 3]| names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let wrong = |names| misplaced(&sets(names)).into_iter().map(|one| one.item).collect::<Vec<_>>();
        assert!(wrong([&["new"], &["new"], &[]]).is_empty());
        assert_eq!(wrong([&[], &["lost"], &[]]), ["lost"]);
        assert_eq!(wrong([&["never"], &["never"], &["never"]]), ["never"]);
    }
}
