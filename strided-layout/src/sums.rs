//! Whether a sum of multiples has a value: the question behind "do two elements share memory?".

use smallvec::SmallVec;

/// The most steps of a search. All layouts but contrived ones need a few.
const STEPS: u32 = 10_000;

/// A summand: a multiple of `stride`, from 0 times to `most` times.
#[derive(Clone, Copy, Debug)]
struct Term {
    stride: i128,
    most: i128,
}

/// A sum of integers, each of which is a multiple of its stride.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    terms: SmallVec<[Term; 8]>,
    /// The least value.
    least: i128,
}

/// What is known of the terms from one on: each value is a multiple of `step` between 0 and `reach`.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    reach: i128,
    step: i128,
    /// Whether each such multiple is a value.
    complete: bool,
}

impl Sum {
    /// Adds `stride` times a number from `low` to `high`.
    pub fn add(&mut self, stride: i128, low: i128, high: i128) {
        self.least += if stride < 0 { stride * high } else { stride * low };
        if stride != 0 && high > low {
            self.terms.push(Term { stride: stride.abs(), most: high - low });
        }
    }

    /// Whether the sum can have a value. None if the search would take too long.
    pub fn reaches(mut self, value: i128) -> Option<bool> {
        self.terms.sort_unstable_by_key(|term| core::cmp::Reverse(term.stride));
        let none = Rest { reach: 0, step: 0, complete: true };
        let mut rests: SmallVec<[Rest; 9]> = SmallVec::from_elem(none, self.terms.len() + 1);
        for (place, term) in self.terms.iter().enumerate().rev() {
            let after = rests[place + 1];
            let fits = after.step == 0 || term.stride % after.step == 0 && term.stride <= after.reach + after.step;
            rests[place] = Rest {
                reach: after.reach + term.stride * term.most,
                step: greatest_divisor(term.stride, after.step),
                complete: after.complete && fits,
            };
        }
        let mut steps = STEPS;
        search(&self.terms, &rests, value - self.least, &mut steps)
    }
}

fn search(terms: &[Term], rests: &[Rest], value: i128, steps: &mut u32) -> Option<bool> {
    let rest = rests[0];
    if !(0..=rest.reach).contains(&value) || rest.step != 0 && value % rest.step != 0 {
        return Some(false);
    }
    if rest.complete {
        return Some(true);
    }
    let [term, inner @ ..] = terms else { return Some(true) };
    // How often the first term may count, so that the others can make up the difference.
    let missing = value - rests[1].reach;
    let least = if missing <= 0 { 0 } else { (missing + term.stride - 1) / term.stride };
    let most = term.most.min(value / term.stride);
    if let [only] = inner {
        return Some(least <= most && meets(term.stride, only.stride, value, least, most));
    }
    for count in least..=most {
        *steps = steps.checked_sub(1)?;
        if search(inner, &rests[1..], value - count * term.stride, steps)? {
            return Some(true);
        }
    }
    Some(false)
}

/// Whether `value - count * stride` is a multiple of `other` for a count from `least` to `most`.
fn meets(stride: i128, other: i128, value: i128, least: i128, most: i128) -> bool {
    let divisor = greatest_divisor(stride, other);
    if value % divisor != 0 {
        return false;
    }
    let (stride, other, value) = (stride / divisor, other / divisor, value / divisor);
    // The counts that fit are those of one residue class.
    let first = (value.rem_euclid(other) * inverse(stride, other)).rem_euclid(other);
    first + (least - first + other - 1).div_euclid(other) * other <= most
}

/// The inverse of a number modulo another one, with which it has no common divisor.
fn inverse(number: i128, modulus: i128) -> i128 {
    let (mut one, mut other) = ((number.rem_euclid(modulus), 1), (modulus, 0));
    while other.0 != 0 {
        let times = one.0 / other.0;
        (one, other) = (other, (one.0 - times * other.0, one.1 - times * other.1));
    }
    one.1.rem_euclid(modulus)
}

pub(crate) fn greatest_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.abs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_sum_reaches_what_a_loop_over_all_counts_finds(
            terms in prop::collection::vec((-12..13_i128, -2..1_i128, 0..5_i128), 0..5), value in -60..60_i128,
        ) {
            let (mut sum, mut all) = (Sum::default(), vec![0]);
            for (stride, low, high) in terms {
                sum.add(stride, low, high);
                all = all.iter().flat_map(|so_far| (low..=high).map(move |count| so_far + stride * count)).collect();
            }
            prop_assert_eq!(sum.reaches(value), Some(all.contains(&value)));
        }
    }

    #[test]
    fn large_strides_are_no_long_search() {
        let mut sum = Sum::default();
        let (one, other) = ((1 << 40) + 1, 1 << 40);
        sum.add(one, -(1 << 20), 1 << 20);
        sum.add(other, -(1 << 20), 1 << 20);
        assert_eq!((sum.clone().reaches(1), sum.reaches((1 << 20) + 1)), (Some(true), Some(false)));
    }

    #[test]
    fn a_search_that_takes_too_long_has_no_result() {
        let mut sum = Sum::default();
        for stride in [1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081] {
            sum.add(stride, 0, 1000);
        }
        assert_eq!(sum.reaches(2_500_000_001), None);
    }
}
