//! Which memory of other devices a context's device reaches.

use crate::locks::Mutex;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

/// How many decisions are found by one load.
const RECENT: usize = 16;
/// Beyond so many decisions, old ones are forgotten, and made again when they are needed.
const MOST: usize = 4096;

/// The identity of memory to which a device gets access as a whole: a context's plain memory, a pool, virtual memory.
#[derive(Debug)]
pub(crate) struct AccessDomain {
    number: AtomicU64,
    /// The devices that the program has denied access, one bit for each ordinal.
    denied: AtomicU64,
}

impl Default for AccessDomain {
    fn default() -> Self {
        Self { number: AtomicU64::new(fresh_number()), denied: AtomicU64::new(0) }
    }
}

fn fresh_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl AccessDomain {
    /// The domain's present number. No other domain ever has it.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Whether the program has denied a device access, so that copies must not give it.
    pub fn is_denied(&self, ordinal: i32) -> bool {
        self.denied.load(Ordering::Acquire) & bit(ordinal) != 0
    }

    /// Remembers that a device must not get access. All contexts forget what they have decided of this domain.
    pub fn deny(&self, ordinal: i32) {
        self.denied.fetch_or(bit(ordinal), Ordering::AcqRel);
        self.number.store(fresh_number(), Ordering::Release);
    }

    /// Forgets that a device was denied access.
    pub fn allow(&self, ordinal: i32) {
        if self.is_denied(ordinal) {
            self.denied.fetch_and(!bit(ordinal), Ordering::AcqRel);
            self.number.store(fresh_number(), Ordering::Release);
        }
    }
}

fn bit(ordinal: i32) -> u64 {
    1 << (ordinal & 63)
}

/// What was decided of a context's access to a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerDecision {
    /// It has access, which was verified.
    Granted,
    /// It has none: there is no path, or the program denied it, or giving it failed.
    Refused,
}

/// The decisions of one context, by domain.
#[derive(Debug, Default)]
pub(crate) struct PeerDecisions {
    recent: [AtomicU64; RECENT],
    all: Mutex<BTreeMap<u64, PeerDecision>>,
}

impl PeerDecisions {
    /// What was decided of a domain lately.
    #[inline]
    pub fn recent(&self, domain: u64) -> Option<PeerDecision> {
        let word = self.recent[domain as usize % RECENT].load(Ordering::Acquire);
        match (word >> 1 == domain, word & 1) {
            (false, _) => None,
            (true, 1) => Some(PeerDecision::Granted),
            (true, _) => Some(PeerDecision::Refused),
        }
    }

    /// Runs `decide` with what was decided of a domain, and remembers its decision. No other decision of this context is
    /// made meanwhile.
    pub fn decide<R>(&self, domain: u64, decide: impl FnOnce(&mut Option<PeerDecision>) -> R) -> R {
        let mut all = self.all.lock();
        let mut decision = all.get(&domain).copied();
        let outcome = decide(&mut decision);
        let word = match decision {
            Some(decision) => {
                if all.len() >= MOST {
                    all.clear();
                }
                all.insert(domain, decision);
                domain << 1 | u64::from(decision == PeerDecision::Granted)
            }
            None => {
                all.remove(&domain);
                0
            }
        };
        let recent = &self.recent[domain as usize % RECENT];
        if word != 0 || recent.load(Ordering::Acquire) >> 1 == domain {
            recent.store(word, Ordering::Release);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_remembered_beyond_the_recent_ones() {
        let decisions = PeerDecisions::default();
        let decide = |domain, to| decisions.decide(domain, |decision| core::mem::replace(decision, to));
        let domains = 1..=3 * RECENT as u64;
        for domain in domains.clone() {
            let even = if domain % 2 == 0 { PeerDecision::Granted } else { PeerDecision::Refused };
            assert_eq!(decide(domain, Some(even)), None);
            assert_eq!(decisions.recent(domain), Some(even));
        }
        for domain in domains {
            let even = if domain % 2 == 0 { PeerDecision::Granted } else { PeerDecision::Refused };
            assert_eq!(decisions.decide(domain, |decision| *decision), Some(even));
            assert_eq!(decisions.recent(domain), Some(even));
            assert_eq!(decide(domain, None), Some(even));
            assert_eq!(decisions.recent(domain), None);
        }
    }

    #[test]
    fn a_denial_makes_all_decisions_of_the_domain_void() {
        let (domain, other) = (AccessDomain::default(), AccessDomain::default());
        assert_ne!(domain.number(), other.number());
        let before = domain.number();
        domain.allow(3);
        assert_eq!(domain.number(), before, "nothing changed");
        domain.deny(3);
        assert!(domain.is_denied(3) && !domain.is_denied(2));
        assert_ne!(domain.number(), before);
        let denied = domain.number();
        domain.allow(3);
        assert!(!domain.is_denied(3) && domain.number() != denied);
    }
}
