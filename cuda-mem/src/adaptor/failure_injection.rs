//! Injected failures.

use super::{Adapt, Adapted, handle};
use crate::error::unless_forked;
use crate::locks::Mutex;
use crate::memory::resource::{Block, Kind, ResourceHandle, SharedResource};
use crate::{Error, Result, Stream};
use core::fmt;

handle! {
    /// Fails allocations by rules, so that tests can observe how a program reacts. A failed allocation does not reach
    /// the upstream. In every run, the same rules fail the same allocations, counted from 1. Cheap to clone; the clones
    /// share the count.
    ///
    /// ```
    /// let context = cuda_mem::Driver::software()?.device(0)?.primary_context()?; // softgpu; a GPU: Context::open(0)
    /// # let stream = cuda_mem::Stream::new(&context)?;
    /// use cuda_mem::{Buffer, adaptor::{FailWhen, FailureInjection}, memory::DeviceMemory};
    /// let failing = FailureInjection::new(&DeviceMemory::new(&context), [FailWhen::Nth(2), FailWhen::LargerThan(1000)]);
    /// let works = |size| Buffer::<u8, _>::zeroed(&failing, size, &stream).is_ok();
    /// assert_eq!([10, 10, 10, 2000, 1000].map(works), [true, false, true, false, true]);
    /// assert_eq!(failing.injected(), 2);
    /// # Ok::<(), cuda_mem::Error>(())
    /// ```
    FailureInjection holds Adapted<Injector>
}

/// Which allocations fail, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FailWhen {
    /// The allocation with this number.
    Nth(u64),
    /// Every n-th allocation. 0 fails none.
    EveryNth(u64),
    /// Allocations of more bytes than this.
    LargerThan(usize),
    /// Each allocation with a probability from 0 to 1. The seed determines which ones fail.
    Chance {
        /// The probability.
        probability: f64,
        /// Selects the allocations that fail.
        seed: u64,
    },
}

impl FailWhen {
    /// Whether the allocation fails. Depends only on its number and size, so the order of threads does not matter.
    fn meets(self, number: u64, size: usize) -> bool {
        match self {
            FailWhen::Nth(n) => number == n,
            FailWhen::EveryNth(n) => n != 0 && number.is_multiple_of(n),
            FailWhen::LargerThan(most) => size > most,
            FailWhen::Chance { probability, seed } => unit(mix(seed ^ mix(number))) < probability,
        }
    }
}

impl fmt::Display for FailWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailWhen::Nth(n) => write!(f, "allocation {n} must fail"),
            FailWhen::EveryNth(n) => write!(f, "every {n}th allocation must fail"),
            FailWhen::LargerThan(most) => write!(f, "allocations of more than {most} bytes must fail"),
            FailWhen::Chance { probability, seed } => {
                write!(f, "allocations must fail with probability {probability} of seed {seed}")
            }
        }
    }
}

/// Mixes the bits of a number (the finalizer of splitmix64).
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Maps random bits to a number from 0 to below 1.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

impl<K: Kind> FailureInjection<K> {
    /// Fails allocations through the new handle that match one of the rules. The error is out of memory, unless
    /// [another error](Self::fail_with) is set.
    pub fn new<R>(upstream: &R, rules: impl IntoIterator<Item = FailWhen>) -> Self
    where
        R: ResourceHandle<Kind = K> + ?Sized,
    {
        let plan = FailurePlan { rules: rules.into_iter().collect(), ..FailurePlan::default() };
        Self::from_inner(Adapted { adaptor: Injector(Mutex::new(plan)), upstream: upstream.share() })
    }

    /// Replaces the rules, and restarts the count at 1.
    pub fn set_rules(&self, rules: impl IntoIterator<Item = FailWhen>) {
        let rules = rules.into_iter().collect();
        self.inner
            .adaptor
            .with(|plan| *plan = FailurePlan { rules, error: plan.error.take(), ..FailurePlan::default() });
    }

    /// Sets the error of later injected failures.
    pub fn fail_with(&self, error: Error) {
        self.inner.adaptor.with(|plan| plan.error = Some(error));
    }

    /// The number of allocations requested since the rules were set.
    pub fn allocations(&self) -> u64 {
        self.inner.adaptor.with(|plan| plan.asked)
    }

    /// The number of these that were made to fail.
    pub fn injected(&self) -> u64 {
        self.inner.adaptor.with(|plan| plan.injected)
    }
}

#[derive(Debug)]
struct Injector(Mutex<FailurePlan>);

#[derive(Debug, Default)]
struct FailurePlan {
    rules: Vec<FailWhen>,
    error: Option<Error>,
    asked: u64,
    injected: u64,
}

impl FailurePlan {
    /// Counts an allocation, and returns the rule that fails it.
    fn next(&mut self, size: usize) -> Option<FailWhen> {
        self.asked += 1;
        let rule = self.rules.iter().copied().find(|rule| rule.meets(self.asked, size));
        self.injected += u64::from(rule.is_some());
        rule
    }
}

impl Injector {
    fn with<R: Default>(&self, work: impl FnOnce(&mut FailurePlan) -> R) -> R {
        unless_forked(|| work(&mut self.0.lock()))
    }
}

// SAFETY: the blocks are the upstream's, unchanged.
unsafe impl Adapt for Injector {
    fn allocate(&self, upstream: &SharedResource, size: usize, alignment: usize, stream: &Stream) -> Result<Block> {
        let (rule, error) = self.with(|plan| (plan.next(size), plan.error.clone()));
        let Some(rule) = rule else { return upstream.allocate(size, alignment, stream) };
        Err(error.unwrap_or_else(|| Error::OutOfMemory {
            call: "FailureInjection::allocate",
            requested: size,
            device: upstream.context().device().name().unwrap_or_default().into(),
            free: None,
            message: format!("a failure on purpose: {rule}").into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(rules: &[FailWhen], sizes: impl IntoIterator<Item = usize>) -> Vec<u64> {
        let mut plan = FailurePlan { rules: rules.to_vec(), ..FailurePlan::default() };
        let met: Vec<_> = sizes.into_iter().filter_map(|size| plan.next(size).map(|_| plan.asked)).collect();
        assert_eq!(plan.injected, met.len() as u64);
        met
    }

    #[test]
    fn each_rule_fails_what_it_says() {
        assert_eq!(failing(&[FailWhen::Nth(3)], [1; 9]), [3]);
        assert_eq!(failing(&[FailWhen::EveryNth(4)], [1; 9]), [4, 8]);
        assert_eq!(failing(&[FailWhen::EveryNth(0), FailWhen::Nth(0)], [1; 9]), [0; 0]);
        assert_eq!(failing(&[FailWhen::LargerThan(10)], [10, 11, 5, 100]), [2, 4]);
        assert_eq!(failing(&[FailWhen::Nth(1), FailWhen::LargerThan(10)], [1, 11, 1]), [1, 2]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "safe code, with more steps than Miri has time for")]
    fn injected_chance_is_reproducible_and_near_its_probability() {
        let chance = |probability, seed| failing(&[FailWhen::Chance { probability, seed }], [1; 1000]);
        assert_eq!(chance(0.25, 7), chance(0.25, 7));
        assert_ne!(chance(0.25, 7), chance(0.25, 8));
        assert!((200..300).contains(&chance(0.25, 7).len()), "{}", chance(0.25, 7).len());
        assert_eq!((chance(0.0, 1).len(), chance(1.0, 1).len()), (0, 1000));
    }
}
