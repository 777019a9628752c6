//! The free ranges, in one list for each size class, and the search for a range.

use super::classes::{CLASSES, ClassSet, class_of, class_of_at_least};
use super::nodes::{NONE, Nodes};

/// How many lists a search tries for their first range, before it goes to a list whose ranges all fit.
const TIGHT_TRIES: usize = 4;

/// A requested range, in units of the granularity. The alignment is a power of two. Both are at most 2^63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub size: u64,
    pub alignment: u64,
}

impl Request {
    /// The start of the request in a range of `size` at `offset`, if the range holds the request.
    #[inline]
    pub fn place(self, offset: u64, size: u64) -> Option<u64> {
        let mask = self.alignment - 1;
        let start = (offset + mask) & !mask;
        size.checked_sub(start - offset).is_some_and(|rest| rest >= self.size).then_some(start)
    }

    /// Whether every range that holds this request also holds the other request.
    #[inline]
    fn implies(self, other: Self) -> bool {
        self.size >= other.size && self.alignment >= other.alignment
    }
}

/// A free range that holds a request, and the start of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub index: u32,
    pub start: u64,
}

#[derive(Clone, Debug)]
pub(super) struct FreeLists {
    /// The classes whose lists are not empty.
    occupied: ClassSet,
    /// The first range of each list.
    heads: Box<[u32; CLASSES]>,
    /// The last refused request, which no free range holds. `None` once a range that holds it becomes free.
    refused: Option<Request>,
}

impl FreeLists {
    pub fn new() -> Self {
        Self { occupied: ClassSet::new(), heads: Box::new([NONE; CLASSES]), refused: None }
    }

    /// Lists a range that has become free, at the head: the search then finds the node that is still in the CPU's
    /// cache.
    #[inline]
    pub fn insert(&mut self, nodes: &mut Nodes, index: u32) {
        let class = class_of(nodes[index].size);
        let head = core::mem::replace(&mut self.heads[class], index);
        nodes[index].set_listed(NONE, head);
        match head {
            NONE => self.occupied.insert(class),
            head => nodes[head].set_previous(index),
        }
    }

    /// Removes a range from the list of its class.
    #[inline]
    pub fn remove(&mut self, nodes: &mut Nodes, index: u32, class: usize) {
        let (previous, next) = nodes[index].listed();
        if next != NONE {
            nodes[next].set_previous(previous);
        }
        if previous != NONE {
            nodes[previous].set_next(next);
        } else {
            self.heads[class] = next;
            if next == NONE {
                self.occupied.remove(class);
            }
        }
    }

    /// Moves a range whose size has changed to the list of its new class.
    #[inline]
    pub fn resized(&mut self, nodes: &mut Nodes, index: u32, class: usize) {
        if class_of(nodes[index].size) != class {
            self.remove(nodes, index, class);
            self.insert(nodes, index);
        }
    }

    /// Forgets the refused request if this range holds it. Call this for every new or grown range.
    #[inline]
    pub fn grown(&mut self, offset: u64, size: u64) {
        if self.refused.is_some_and(|refused| refused.place(offset, size).is_some()) {
            self.refused = None;
        }
    }

    /// Finds a free range that holds the request, if any does.
    #[inline]
    pub fn find(&mut self, nodes: &Nodes, request: Request) -> Option<Fit> {
        // Starts at the request's own class, so that large ranges stay whole. Without an alignment, the second list
        // fits.
        let mut next = self.occupied.first_from(class_of(request.size));
        for _ in 0..TIGHT_TRIES {
            let Some(class) = next else { break };
            let fit = fit(nodes, self.heads[class], request);
            if fit.is_some() {
                return fit;
            }
            next = self.occupied.first_from(class + 1);
        }
        // Every range of this class and above holds the request at any offset.
        let certain = class_of_at_least(request.size + (request.alignment - 1));
        match self.occupied.first_from(certain) {
            Some(class) => fit(nodes, self.heads[class], request),
            None => self.search(nodes, request),
        }
    }

    /// Searches all ranges that may hold the request. For requests without a list whose ranges all fit.
    #[cold]
    fn search(&mut self, nodes: &Nodes, request: Request) -> Option<Fit> {
        if self.refused.is_some_and(|refused| request.implies(refused)) {
            return None;
        }
        let mut next = self.occupied.first_from(class_of(request.size));
        while let Some(class) = next {
            if let Some(fit) = self.list(nodes, class).find_map(|index| fit(nodes, index, request)) {
                return Some(fit);
            }
            next = self.occupied.first_from(class + 1);
        }
        self.refused = Some(request);
        None
    }

    /// All ranges of at least this size, smaller classes first.
    pub fn at_least<'list>(&'list self, nodes: &'list Nodes, size: u64) -> impl Iterator<Item = u32> + 'list {
        let first = self.occupied.first_from(class_of(size));
        let classes = core::iter::successors(first, |class| self.occupied.first_from(class + 1));
        classes.flat_map(|class| self.list(nodes, class)).filter(move |index| nodes[*index].size >= size)
    }

    /// The size of the largest free range. Searches the last list.
    pub fn largest(&self, nodes: &Nodes) -> u64 {
        let last = self.occupied.last().into_iter().flat_map(|class| self.list(nodes, class));
        last.map(|index| nodes[index].size).max().unwrap_or(0)
    }

    fn list<'list>(&'list self, nodes: &'list Nodes, class: usize) -> impl Iterator<Item = u32> + 'list {
        let some = |index: u32| (index != NONE).then_some(index);
        core::iter::successors(some(self.heads[class]), move |&index| some(nodes[index].listed().1))
    }
}

#[inline]
fn fit(nodes: &Nodes, index: u32, request: Request) -> Option<Fit> {
    let node = &nodes[index];
    request.place(node.offset, node.size).map(|start| Fit { index, start })
}

#[cfg(test)]
impl FreeLists {
    /// All listed ranges. Checks that each is in the list of its class and linked both ways, and that none holds the
    /// refused request.
    pub fn audit(&self, nodes: &Nodes) -> Vec<u32> {
        let mut listed = Vec::new();
        for class in 0..CLASSES {
            let mut previous = NONE;
            for index in self.list(nodes, class) {
                assert_eq!(class_of(nodes[index].size), class);
                assert_eq!(nodes[index].listed().0, previous);
                assert!(self.refused.is_none_or(|refused| fit(nodes, index, refused).is_none()));
                previous = index;
                listed.push(index);
            }
            assert_eq!(self.occupied.first_from(class) == Some(class), previous != NONE);
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_begins_at_the_first_aligned_offset_of_a_range() {
        let place = |size, alignment, at, length| Request { size, alignment }.place(at, length);
        assert_eq!(place(3, 1, 5, 3), Some(5));
        assert_eq!(place(3, 1, 5, 2), None);
        assert_eq!(place(3, 4, 5, 6), Some(8));
        assert_eq!(place(3, 4, 5, 5), None);
        assert_eq!(place(1, 16, 5, 10), None);
        let top = 1 << 63;
        assert_eq!(place(top, top, 0, top), Some(0));
        assert_eq!(place(1, top, 1, top - 1), None);
        assert_eq!(place(1, top, top - 1, 1), None);
    }

    #[test]
    fn what_was_refused_covers_what_asks_for_more() {
        let refused = Request { size: 8, alignment: 4 };
        assert!(Request { size: 9, alignment: 4 }.implies(refused));
        assert!(Request { size: 8, alignment: 8 }.implies(refused));
        assert!(!Request { size: 7, alignment: 64 }.implies(refused));
        assert!(!Request { size: 900, alignment: 2 }.implies(refused));
    }
}
