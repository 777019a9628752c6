//! Decides which slot is taken next. Policy without CUDA and without `unsafe`.

use std::collections::BTreeMap;

/// What a ring has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameRingStatistics {
    /// Number of taken frames.
    pub taken: u64,
    /// Number of published frames.
    pub published: u64,
    /// Number of frames dropped without being published.
    pub abandoned: u64,
    /// Number of open frames, forgotten ones included.
    pub open: usize,
    /// Number of slots no longer used, because a graph may read them.
    pub captured: usize,
    /// Overruns: how often a program asked for a frame while device work still read the oldest one.
    pub overruns: u64,
}

/// A slot that somebody has claimed, and its age as an idle slot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SlotClaim {
    pub slot: usize,
    age: u64,
}

/// How a frame ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameEnd {
    Published,
    Abandoned,
}

/// The order of slots. A slot is idle (device work may still read it), claimed (a thread checks whether that work is
/// done), open, or lost.
#[derive(Debug)]
pub(super) struct Turns {
    /// The idle slots, by the time at which they became idle.
    resting: BTreeMap<u64, usize>,
    clock: u64,
    claimed: usize,
    figures: FrameRingStatistics,
}

impl Turns {
    pub fn new(slots: usize) -> Self {
        let resting: BTreeMap<u64, usize> = (0u64..).zip(0..slots).collect();
        Self { clock: slots as u64, resting, claimed: 0, figures: FrameRingStatistics::default() }
    }

    /// Claims the slot that has been idle longest. None if no slot is idle.
    pub fn claim(&mut self) -> Option<SlotClaim> {
        let (age, slot) = self.resting.pop_first()?;
        self.claimed += 1;
        Some(SlotClaim { slot, age })
    }

    /// Device work still reads the slot, or the driver cannot tell: makes it idle again, with its old age.
    pub fn put_back(&mut self, claim: &SlotClaim) {
        self.claimed -= 1;
        self.resting.insert(claim.age, claim.slot);
    }

    /// Opens a frame in the slot. Returns the frame's number: 1 for the first.
    pub fn open(&mut self, _claim: SlotClaim) -> u64 {
        self.claimed -= 1;
        self.figures.open += 1;
        self.figures.taken += 1;
        self.figures.taken
    }

    /// Ends a slot's frame. The slot becomes idle or lost.
    pub fn end(&mut self, slot: usize, end: FrameEnd, lost: bool) {
        self.figures.open -= 1;
        match end {
            FrameEnd::Published => self.figures.published += 1,
            FrameEnd::Abandoned => self.figures.abandoned += 1,
        }
        if lost {
            self.figures.captured += 1;
        } else {
            self.resting.insert(self.clock, slot);
            self.clock += 1;
        }
    }

    /// Counts a request for a frame while device work read the oldest slot.
    pub fn overrun(&mut self) {
        self.figures.overruns += 1;
    }

    /// Number of slots that are open or claimed.
    pub fn in_use(&self) -> usize {
        self.figures.open + self.claimed
    }

    pub fn statistics(&self) -> FrameRingStatistics {
        self.figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Claim,
        PutBack(prop::sample::Index),
        Open(prop::sample::Index),
        End(prop::sample::Index, bool, bool),
        Overrun,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = any::<prop::sample::Index>;
        let step = prop_oneof![
            4 => Just(Step::Claim),
            2 => index().prop_map(Step::PutBack),
            3 => index().prop_map(Step::Open),
            3 => (index(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(i, p, l)| Step::End(i, p, l)),
            1 => Just(Step::Overrun),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 512,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Compared with a list of idle slots in the order in which they became idle.
        #[test]
        #[cfg_attr(miri, ignore = "slow there, and without unsafe code")]
        fn slots_are_taken_in_the_order_of_their_rest_and_none_twice(slots in 1usize..6, steps in steps()) {
            let mut turns = Turns::new(slots);
            let mut resting: Vec<(u64, usize)> = (0u64..).zip(0..slots).collect();
            let (mut claimed, mut open) = (Vec::<SlotClaim>::new(), Vec::new());
            let mut figures = FrameRingStatistics::default();
            let mut clock = slots as u64;
            for step in steps {
                match step {
                    Step::Claim => {
                        let expected = (!resting.is_empty()).then(|| resting.remove(0));
                        let claim = turns.claim();
                        prop_assert_eq!(claim.as_ref().map(|claim| (claim.age, claim.slot)), expected);
                        claimed.extend(claim);
                    }
                    Step::PutBack(which) if !claimed.is_empty() => {
                        let claim = claimed.swap_remove(which.index(claimed.len()));
                        turns.put_back(&claim);
                        resting.push((claim.age, claim.slot));
                        resting.sort_unstable();
                    }
                    Step::Open(which) if !claimed.is_empty() => {
                        let claim = claimed.swap_remove(which.index(claimed.len()));
                        open.push(claim.slot);
                        figures.taken += 1;
                        prop_assert_eq!(turns.open(claim), figures.taken);
                    }
                    Step::End(which, publish, lost) if !open.is_empty() => {
                        let slot = open.swap_remove(which.index(open.len()));
                        turns.end(slot, if publish { FrameEnd::Published } else { FrameEnd::Abandoned }, lost);
                        figures.published += u64::from(publish);
                        figures.abandoned += u64::from(!publish);
                        figures.captured += usize::from(lost);
                        if !lost {
                            resting.push((clock, slot));
                            clock += 1;
                        }
                    }
                    Step::Overrun => {
                        turns.overrun();
                        figures.overruns += 1;
                    }
                    _ => {}
                }
                figures.open = open.len();
                prop_assert_eq!(turns.statistics(), figures);
                prop_assert_eq!(turns.in_use(), open.len() + claimed.len());
                prop_assert_eq!(resting.len() + turns.in_use() + figures.captured, slots);
                prop_assert_eq!(figures.taken, figures.published + figures.abandoned + figures.open as u64);
            }
        }
    }
}
