//! The ranges of all regions. Each range is a node in one vector, linked to its neighbours in address order.

use core::num::NonZeroU64;
use core::ops::{Index, IndexMut};

/// Stands for no node, in place of an index.
pub(super) const NONE: u32 = u32::MAX;

/// One range, free or used. Offsets and sizes are in units of the granularity.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub offset: u64,
    pub size: u64,
    /// The number of the allocation that uses the range. Of a free range, its neighbours in the list of free ranges of
    /// one class: only used ranges have numbers, and only free ranges are listed.
    serial_or_listed: u64,
    /// The neighbour below, or `NONE`.
    pub before: u32,
    /// The neighbour above, or `NONE`; in a vacant node, the next vacant node.
    pub after: u32,
    /// The region's index.
    pub region: u32,
    /// The size of a used range less the requested size, in bytes; `FREE` if the range is free or the node vacant.
    slack: u32,
}

/// Stands for a free range, in place of a slack.
const FREE: u32 = u32::MAX;

impl Node {
    #[inline]
    pub fn is_free(&self) -> bool {
        self.slack == FREE
    }

    /// The number of the allocation that uses the range.
    #[inline]
    pub fn serial(&self) -> Option<NonZeroU64> {
        if self.is_free() { None } else { NonZeroU64::new(self.serial_or_listed) }
    }

    /// The size less the requested size, in bytes; 0 if the range is free.
    #[inline]
    pub fn slack(&self) -> u32 {
        if self.is_free() { 0 } else { self.slack }
    }

    /// Makes the range used. It must not be listed. `false` if the slack is too large; then nothing changes.
    #[inline]
    pub fn set_used(&mut self, serial: NonZeroU64, slack: u32) -> bool {
        if slack == FREE {
            return false;
        }
        (self.serial_or_listed, self.slack) = (serial.get(), slack);
        true
    }

    /// Makes the range free, and not listed.
    #[inline]
    pub fn set_free(&mut self) {
        self.slack = FREE;
    }

    /// The neighbours in the list of free ranges, or `NONE`. The range must be listed.
    #[inline]
    pub fn listed(&self) -> (u32, u32) {
        (self.serial_or_listed as u32, (self.serial_or_listed >> 32) as u32)
    }

    /// Sets the neighbours in the list of free ranges. The range must be free.
    #[inline]
    pub fn set_listed(&mut self, previous: u32, next: u32) {
        debug_assert!(self.is_free());
        self.serial_or_listed = u64::from(next) << 32 | u64::from(previous);
    }

    #[inline]
    pub fn set_previous(&mut self, previous: u32) {
        self.set_listed(previous, self.listed().1);
    }

    #[inline]
    pub fn set_next(&mut self, next: u32) {
        self.set_listed(self.listed().0, next);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    /// The first vacant node, which the next range takes.
    vacant: u32,
    vacant_count: u32,
}

impl Nodes {
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), vacant: NONE, vacant_count: 0 }
    }

    /// Reserves memory for this many more ranges.
    pub fn reserve(&mut self, ranges: usize) {
        self.nodes.reserve(ranges.saturating_sub(self.vacant_count as usize));
    }

    /// How many more ranges the 32-bit numbers allow.
    #[inline]
    pub fn room(&self) -> usize {
        NONE as usize - self.nodes.len() + self.vacant_count as usize
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)
    }

    /// Adds a free range without neighbours. There must be room.
    #[inline]
    pub fn add(&mut self, region: u32, offset: u64, size: u64) -> u32 {
        debug_assert!(self.room() > 0);
        let node = Node { offset, size, serial_or_listed: 0, before: NONE, after: NONE, region, slack: FREE };
        match self.vacant {
            NONE => {
                if self.nodes.len() == self.nodes.capacity() {
                    // A vector would double, so up to half of a large one would be empty.
                    self.nodes.reserve_exact(self.nodes.len() / 16 + 64);
                }
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
            index => {
                self.vacant = self[index].after;
                self.vacant_count -= 1;
                self[index] = node;
                index
            }
        }
    }

    /// Makes a node vacant. No neighbour and no list may refer to it.
    #[inline]
    pub fn vacate(&mut self, index: u32) {
        self[index].set_free();
        self[index].after = self.vacant;
        self.vacant = index;
        self.vacant_count += 1;
    }

    /// Makes the lowest `size` units a range of their own, and returns its node. The rest keeps its node.
    #[inline]
    pub fn split_front(&mut self, index: u32, size: u64) -> u32 {
        let Node { offset, before, region, .. } = self[index];
        let front = self.add(region, offset, size);
        self[front].before = before;
        self[front].after = index;
        if before != NONE {
            self[before].after = front;
        }
        let rest = &mut self[index];
        rest.offset += size;
        rest.size -= size;
        rest.before = front;
        front
    }

    /// Joins a range with the range above it, whose node becomes vacant.
    #[inline]
    pub fn join_after(&mut self, index: u32) {
        let after = self[index].after;
        let Node { size, after: beyond, .. } = self[after];
        self[index].size += size;
        self[index].after = beyond;
        if beyond != NONE {
            self[beyond].before = index;
        }
        self.vacate(after);
    }

    /// Joins a range with the range below it, whose node becomes vacant.
    #[inline]
    pub fn join_before(&mut self, index: u32) {
        let before = self[index].before;
        let Node { offset, size, before: beyond, .. } = self[before];
        let node = &mut self[index];
        node.offset = offset;
        node.size += size;
        node.before = beyond;
        if beyond != NONE {
            self[beyond].after = index;
        }
        self.vacate(before);
    }
}

impl Index<u32> for Nodes {
    type Output = Node;

    #[inline]
    fn index(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }
}

impl IndexMut<u32> for Nodes {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_costs_at_most_43_bytes() {
        assert_eq!(size_of::<Node>(), 40);
        let mut nodes = Nodes::new();
        for _ in 0..10_000 {
            nodes.add(0, 0, 1);
        }
        assert!(nodes.nodes.capacity() * 40 <= 43 * 10_000, "{}", nodes.nodes.capacity());
    }

    #[test]
    fn a_range_is_used_or_listed() {
        let mut nodes = Nodes::new();
        let index = nodes.add(0, 0, 10);
        let node = &mut nodes[index];
        node.set_listed(3, NONE);
        node.set_previous(4);
        assert_eq!((node.listed(), node.serial(), node.slack()), ((4, NONE), None, 0));
        assert!(!node.set_used(NonZeroU64::MAX, FREE) && node.is_free());
        assert!(node.set_used(NonZeroU64::MAX, 7));
        assert_eq!((node.serial(), node.slack(), node.is_free()), (Some(NonZeroU64::MAX), 7, false));
        node.set_free();
        assert!(node.is_free() && node.serial().is_none());
    }

    #[test]
    fn vacant_nodes_are_used_again() {
        let mut nodes = Nodes::new();
        let room = nodes.room();
        let rest = nodes.add(0, 0, 10);
        let front = nodes.split_front(rest, 4);
        assert_eq!((nodes[front].offset, nodes[front].size), (0, 4));
        assert_eq!((nodes[rest].offset, nodes[rest].size), (4, 6));
        assert_eq!(nodes.room(), room - 2);
        nodes.join_before(rest);
        assert_eq!((nodes[rest].offset, nodes[rest].size, nodes[rest].before), (0, 10, NONE));
        assert_eq!(nodes.room(), room - 1);
        assert_eq!(nodes.split_front(rest, 1), front);
        nodes.join_after(front);
        assert_eq!((nodes[front].offset, nodes[front].size, nodes[front].after), (0, 10, NONE));
        assert_eq!(nodes.add(0, 0, 1), rest);
    }
}
