//! The ranges of all regions. Each range is a node in one vector, linked to its neighbours in address order.

use core::ops::{Index, IndexMut};

/// Stands for no node, in place of an index.
pub(super) const NONE: u32 = u32::MAX;

/// One range, free or used. Offsets and sizes are in units of the granularity.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub offset: u64,
    pub size: u64,
    /// The number of the allocation that uses the range; 0 if the range is free or the node vacant.
    pub serial: u64,
    /// The neighbour below, or `NONE`.
    pub before: u32,
    /// The neighbour above, or `NONE`; in a vacant node, the next vacant node.
    pub after: u32,
    /// The neighbours in the list of free ranges of one class.
    pub previous_free: u32,
    pub next_free: u32,
    /// The region's index.
    pub region: u32,
    /// The size of a used range less the requested size, in bytes.
    pub slack: u32,
}

impl Node {
    #[inline]
    pub fn is_free(&self) -> bool {
        self.serial == 0
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
        let node = Node {
            offset,
            size,
            serial: 0,
            before: NONE,
            after: NONE,
            previous_free: NONE,
            next_free: NONE,
            region,
            slack: 0,
        };
        match self.vacant {
            NONE => {
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
        self[index].serial = 0;
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
    fn a_range_costs_at_most_48_bytes() {
        assert_eq!(size_of::<Node>(), 48);
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
