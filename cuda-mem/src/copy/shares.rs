//! The shares of several host links in one copy: rates in, parts out. No driver is called here.

use crate::Result;
use core::ops::Range;

/// Parts begin at multiples of this many bytes.
pub(super) const UNIT: usize = 256;

/// A link is used only if it raises the rate of all links together by this factor.
const WORTHWHILE: f64 = 1.05;

/// A measured copy over several links at once.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trial {
    /// The rate of the whole copy, in bytes per second.
    pub total: f64,
    /// The rate of each link meanwhile, in bytes per second. 0: not used.
    pub each: Vec<u64>,
}

/// The rates of the links that are worth their use, where link 0 is always used. `measure` copies over all links at once, in
/// parts proportional to its argument.
///
/// Links are added one by one, because some share a path: each then looks fast alone, and adds nothing to the others.
pub(super) fn choose(links: usize, mut measure: impl FnMut(&[u64]) -> Result<Trial>) -> Result<Vec<u64>> {
    let mut weights = vec![0; links];
    weights[0] = 1;
    let mut best = measure(&weights)?;
    for link in 1..links {
        let used = best.each.iter().filter(|rate| **rate > 0).count() as u64;
        let mut weights = best.each.clone();
        weights[link] = best.each.iter().sum::<u64>() / used.max(1);
        let guessed = measure(&weights)?;
        // Again, so that all links end at the same time.
        let refined = measure(&guessed.each)?;
        let trial = if refined.total > guessed.total { refined } else { guessed };
        if trial.total > best.total * WORTHWHILE {
            best = trial;
        }
    }
    Ok(best.each)
}

/// Divides `size` bytes into one part for each link, in proportion to the rates. Without any rate, link 0 has all.
pub(super) fn parts(size: usize, rates: &[u64]) -> Vec<Range<usize>> {
    let last = rates.iter().rposition(|rate| *rate > 0).unwrap_or(0);
    let all: u128 = rates.iter().map(|rate| u128::from(*rate)).sum();
    let (mut begin, mut before) = (0, 0);
    let part = |(link, rate): (usize, &u64)| {
        before += u128::from(*rate);
        let end = match link {
            // Also of what is left over by rounding.
            _ if link >= last => size,
            // At most `size`, because `before` is at most `all`.
            _ => (size as u128 * before / all.max(1)) as usize / UNIT * UNIT,
        };
        let part = begin..end;
        begin = end;
        part
    };
    rates.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_copy_in_proportion() {
        assert_eq!(parts(4096, &[1, 1]), [0..2048, 2048..4096]);
        assert_eq!(parts(4096, &[3, 0, 1]), [0..3072, 3072..3072, 3072..4096]);
        assert_eq!(parts(4096, &[3, 1, 0]), [0..3072, 3072..4096, 4096..4096]);
        assert_eq!(parts(100, &[1, 1]), [0..0, 0..100], "less than a unit goes over one link");
        assert_eq!(parts(4096, &[0, 0]), [0..4096, 4096..4096], "without a rate, the own link has all");
        assert_eq!(parts(0, &[1, 2]), [0..0, 0..0]);
        for size in (0..3000).step_by(7) {
            for rates in [&[1, 2, 3][..], &[u64::MAX, u64::MAX, 1], &[55_000_000_000; 8], &[0, 5], &[9]] {
                let parts = parts(size, rates);
                let mut at = 0;
                for (part, rate) in parts.iter().zip(rates) {
                    assert!(part.start == at && (*rate > 0 || part.is_empty()), "{size} over {rates:?}: {parts:?}");
                    assert!(at == size || at.is_multiple_of(UNIT));
                    at = part.end;
                }
                assert_eq!(at, size, "{rates:?}");
            }
        }
    }

    /// A machine whose links have these rates alone. Links of one group share a path of the given rate.
    fn machine(alone: &[f64], group: &[usize], paths: &[f64]) -> impl Fn(&[u64]) -> Result<Trial> {
        move |weights| {
            let busy = |path: usize| (0..alone.len()).filter(|link| weights[*link] > 0 && group[*link] == path).count();
            let rate = |link: usize| alone[link].min(paths[group[link]] / busy(group[link]) as f64);
            let all: u64 = weights.iter().sum();
            let used: Vec<usize> = (0..alone.len()).filter(|link| weights[*link] > 0).collect();
            let time = |link: &usize| weights[*link] as f64 / all as f64 / rate(*link);
            let longest = used.iter().map(time).fold(0.0, f64::max);
            let each = (0..alone.len()).map(|link| if weights[link] > 0 { rate(link) as u64 } else { 0 });
            Ok(Trial { total: 1.0 / longest, each: each.collect() })
        }
    }

    #[test]
    fn links_of_their_own_are_all_used() -> Result<()> {
        let rates = [55e9, 55e9, 20e9, 55e9];
        let shares = choose(4, machine(&rates, &[0, 1, 2, 3], &[1e12; 4]))?;
        assert_eq!(shares, rates.map(|rate| rate as u64));
        Ok(())
    }

    #[test]
    fn links_that_share_a_path_are_used_once() -> Result<()> {
        // Devices 0 and 1 behind one switch, 2 and 3 behind another one.
        let shares = choose(4, machine(&[55e9; 4], &[0, 0, 1, 1], &[55e9; 2]))?;
        assert_eq!(shares, [55_000_000_000, 0, 55_000_000_000, 0]);
        // A host that carries 60 GB/s in all.
        let shares = choose(3, machine(&[50e9; 3], &[0, 0, 0], &[60e9]))?;
        assert_eq!(shares, [30_000_000_000, 30_000_000_000, 0]);
        Ok(())
    }

    #[test]
    fn a_slow_link_that_adds_little_is_left_out() -> Result<()> {
        assert_eq!(choose(2, machine(&[55e9, 2e9], &[0, 1], &[1e12; 2]))?, [55_000_000_000, 0]);
        assert_eq!(choose(2, machine(&[55e9, 4e9], &[0, 1], &[1e12; 2]))?, [55_000_000_000, 4_000_000_000]);
        assert_eq!(choose(1, machine(&[55e9], &[0], &[1e12]))?, [55_000_000_000]);
        Ok(())
    }
}
