//! Names of blocks, and counters of the blocks that a pool has noted anything of, so that freeing other blocks takes no
//! lock.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;

const COUNTS: usize = 256;

/// How many blocks have a name or belong to a graph, by a part of the address. Readable without a lock.
#[derive(Debug)]
pub(super) struct NotedCounts([AtomicU32; COUNTS]);

/// The names by address. The pool's lock guards them.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<u64, Box<str>>);

impl NotedCounts {
    pub const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; COUNTS])
    }

    /// Whether anything may be noted of a block. Relaxed: handing over the block publishes the count.
    #[inline]
    pub fn may_count(&self, address: u64) -> bool {
        self.count(address).load(Ordering::Relaxed) != 0
    }

    pub fn add(&self, address: u64) {
        self.count(address).fetch_add(1, Ordering::Relaxed);
    }

    pub fn subtract(&self, address: u64) {
        self.count(address).fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn count(&self, address: u64) -> &AtomicU32 {
        // Blocks begin at multiples of 256.
        &self.0[(address >> 8) as usize % COUNTS]
    }
}

impl Names {
    pub fn set(&mut self, address: u64, name: &str, counts: &NotedCounts) {
        if self.0.insert(address, name.into()).is_none() {
            counts.add(address);
        }
    }

    pub fn forget(&mut self, address: u64, counts: &NotedCounts) {
        if self.0.remove(&address).is_some() {
            counts.subtract(address);
        }
    }

    pub fn get(&self, address: u64) -> Option<&str> {
        self.0.get(&address).map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_may_have_names_are_looked_up() {
        let (mut names, counts) = (Names::default(), NotedCounts::new());
        names.set(0x1000, "one", &counts);
        names.set(0x1000, "two", &counts);
        assert_eq!((names.get(0x1000), names.get(0x1100)), (Some("two"), None));
        assert!(counts.may_count(0x1000) && !counts.may_count(0x1100));
        names.forget(0x1100, &counts);
        names.forget(0x1000, &counts);
        names.forget(0x1000, &counts);
        assert!(!counts.may_count(0x1000) && names.get(0x1000).is_none());
    }
}
