//! Which memory of other devices a context's device reaches.

use super::access_gate::AccessGate;
use crate::lifetime::waiting::{self, Target};
use crate::locks::{Condvar, Held, Kind, Mutex};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

/// How many decisions are found by one load.
const RECENT: usize = 16;
/// Beyond so many decisions, old ones are forgotten, and made again when they are needed.
const MOST: usize = 4096;

/// Memory to which a device gets access as a whole: a context's plain memory, a pool, virtual memory.
#[derive(Debug)]
pub(crate) struct AccessDomain {
    number: AtomicU64,
    /// The devices that the program has denied access, one bit for each ordinal.
    denied: AtomicU64,
    /// Inside it, work is queued that uses the access.
    pub gate: AccessGate,
    /// Whether a thread gives access and verifies it, or takes it back.
    is_changing: Mutex<bool>,
    changed: Condvar,
}

impl Default for AccessDomain {
    fn default() -> Self {
        Self {
            number: AtomicU64::new(fresh_number()),
            denied: AtomicU64::new(0),
            gate: AccessGate::default(),
            is_changing: Mutex::default(),
            changed: Condvar::new(),
        }
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

    /// Lets no other thread change who has access while the result lives. No lock is held then. The holder runs no code of
    /// the program, and its reports wait.
    pub fn change(&self) -> Changing<'_> {
        let call = &"another thread's change of access between devices";
        let is_changing = self.is_changing.lock();
        *waiting::wait_while(call, Target::THREAD, &self.changed, is_changing, |is_changing| *is_changing) = true;
        Changing { domain: self, _held: Held::new(Kind::Gate) }
    }
}

/// Lets no other thread change who has access while it lives.
#[must_use = "others may change access as soon as this is dropped"]
pub(crate) struct Changing<'domain> {
    domain: &'domain AccessDomain,
    _held: Held,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        *self.domain.is_changing.lock() = false;
        self.domain.changed.notify_one();
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
    /// It never has any: there is no path, or copies over it arrive nowhere.
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

    /// What was decided of a domain.
    #[inline]
    pub fn of(&self, domain: u64) -> Option<PeerDecision> {
        self.recent(domain).or_else(|| self.earlier(domain))
    }

    #[cold]
    fn earlier(&self, domain: u64) -> Option<PeerDecision> {
        self.all.lock().get(&domain).copied()
    }

    /// Remembers a decision.
    pub fn remember(&self, domain: u64, decision: PeerDecision) {
        let mut all = self.all.lock();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(domain, decision);
        let word = domain << 1 | u64::from(decision == PeerDecision::Granted);
        self.recent[domain as usize % RECENT].store(word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_remembered_beyond_the_recent_ones() {
        let decisions = PeerDecisions::default();
        let domains = 1..=3 * RECENT as u64;
        let even = |domain| if domain % 2 == 0 { PeerDecision::Granted } else { PeerDecision::Refused };
        for domain in domains.clone() {
            assert_eq!(decisions.of(domain), None);
            decisions.remember(domain, even(domain));
            assert_eq!(decisions.recent(domain), Some(even(domain)));
        }
        for domain in domains {
            assert_eq!(decisions.of(domain), Some(even(domain)));
            decisions.remember(domain, PeerDecision::Granted);
            assert_eq!(decisions.recent(domain), Some(PeerDecision::Granted));
        }
    }

    #[test]
    fn one_thread_at_a_time_changes_access() {
        let (domain, inside) = (AccessDomain::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _changing = domain.change();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
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
