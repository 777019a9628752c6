//! Which node of the suballocator has the block at an address.
//!
//! A hash table of the standard library would hold addresses and ids, and be half empty when it has grown: 28 to 57
//! bytes for each block. This one takes 10 to 13. An entry holds 32 bits of the address, from which its place follows,
//! so entries move without a look at the nodes. Who asks compares the whole address with the node's.

/// Stands for an empty entry, in place of a node.
const EMPTY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The lower bits of the address in units of the granularity.
    unit: u32,
    node: u32,
}

/// A table with linear probing. Its size is any number, so it can grow by a quarter.
#[derive(Clone, Debug, Default)]
pub(super) struct ByAddress {
    entries: Vec<Entry>,
    count: usize,
}

impl ByAddress {
    /// The node at an address, in units: the one that `is` accepts of the nodes whose lower bits are the same.
    #[inline]
    pub fn find(&self, unit: u64, is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.place_of(unit as u32, is).map(|place| self.entries[place].node)
    }

    /// Adds a node. Its address must not be there.
    #[inline]
    pub fn insert(&mut self, unit: u64, node: u32) {
        if 5 * (self.count + 1) > 4 * self.entries.len() {
            self.grow();
        }
        self.count += 1;
        self.put(Entry { unit: unit as u32, node });
    }

    /// Removes and returns the node at an address, in units: the one that `is` accepts of the nodes whose lower bits
    /// are the same.
    #[inline]
    pub fn remove(&mut self, unit: u64, is: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut hole = self.place_of(unit as u32, is)?;
        let node = self.entries[hole].node;
        self.count -= 1;
        // Entries behind the hole move up, unless they would leave the run that begins at their own place.
        let mut place = self.after(hole);
        while self.entries[place].node != EMPTY {
            let home = self.home(self.entries[place].unit);
            if self.distance(home, place) >= self.distance(hole, place) {
                self.entries[hole] = self.entries[place];
                hole = place;
            }
            place = self.after(place);
        }
        self.entries[hole].node = EMPTY;
        Some(node)
    }

    #[inline]
    fn place_of(&self, unit: u32, mut is: impl FnMut(u32) -> bool) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let mut place = self.home(unit);
        loop {
            let entry = self.entries[place];
            if entry.node == EMPTY {
                return None;
            }
            if entry.unit == unit && is(entry.node) {
                return Some(place);
            }
            place = self.after(place);
        }
    }

    /// Where the search for an address begins. There are at most 2^32 nodes, so the product does not overflow.
    #[inline]
    fn home(&self, unit: u32) -> usize {
        // Neighbours are far apart: the multiplication spreads low bits over all bits.
        let hash = unit.wrapping_mul(0x9e37_79b9);
        ((u64::from(hash) * self.entries.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.entries.len() { 0 } else { place + 1 }
    }

    /// How far `to` is behind `from`.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.entries.len() - from }
    }

    #[inline]
    fn put(&mut self, entry: Entry) {
        let mut place = self.home(entry.unit);
        while self.entries[place].node != EMPTY {
            place = self.after(place);
        }
        self.entries[place] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.entries.len() + self.entries.len() / 4 + 16;
        let old = core::mem::replace(&mut self.entries, vec![Entry { unit: 0, node: EMPTY }; size]);
        // Places ascend with hashes, so this writes the new table from its beginning to its end.
        old.into_iter().filter(|entry| entry.node != EMPTY).for_each(|entry| self.put(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Adds, removes and finds nodes. Every node has another address; some differ only above the lower 32 bits.
    fn compare(steps: &[(u64, bool)]) {
        let (mut table, mut model, mut units) = (ByAddress::default(), HashMap::new(), Vec::new());
        for (unit, inserts) in steps {
            let is = |node: u32| units[node as usize] == *unit;
            if *inserts && !model.contains_key(unit) {
                let node = units.len() as u32;
                units.push(*unit);
                table.insert(*unit, node);
                model.insert(*unit, node);
            } else if !*inserts {
                assert_eq!(table.remove(*unit, is), model.remove(unit));
            }
            assert_eq!(table.count, model.len());
            for (unit, node) in &model {
                assert_eq!(table.find(*unit, |node| units[node as usize] == *unit), Some(*node));
            }
        }
        assert!(table.entries.len() <= model.len().max(steps.len()) * 2 + 16);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_table_finds_what_is_in_it(
            steps in proptest::collection::vec(((0u64..40, 0u64..2).prop_map(|(low, high)| high << 32 | low), any::<bool>()), 0..120)
        ) {
            compare(&steps);
        }
    }

    #[test]
    fn a_block_costs_at_most_13_bytes_and_is_found_in_few_steps() {
        let count: u32 = 100_000;
        let (mut table, mut most) = (ByAddress::default(), 0.0f64);
        for node in 0..count {
            table.insert(u64::from(node) * 3, node);
            if node > count / 2 {
                most = most.max((table.entries.len() * size_of::<Entry>()) as f64 / f64::from(node + 1));
            }
        }
        assert!(most < 13.0, "{most}");
        let steps: usize = (0..count)
            .map(|node| {
                let place = table.place_of(node * 3, |found| found == node).expect("it is there");
                table.distance(table.home(node * 3), place)
            })
            .sum();
        assert!(steps < 4 * count as usize, "{steps}");
    }
}
