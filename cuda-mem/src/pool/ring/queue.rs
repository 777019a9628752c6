//! The blocks of a ring in order of their allocation: which are in use, and what the freed ones wait for. Without CUDA and
//! without `unsafe`.

use crate::pool::order::Waiting;
use crate::pool::tickets::{Ticket, Tickets};
use crate::suballocator::{Ring, RingBlock, RingError};
use std::collections::VecDeque;

/// Into how many parts events divide what goes through the ring: as soon as a stream has freed one part of the ring, an
/// event is recorded, so that who waits for the oldest block does not wait for the newest.
const PARTS: u64 = 8;

#[derive(Debug)]
struct Entry {
    block: RingBlock,
    /// `None` while the block is in use.
    ticket: Option<Ticket>,
}

/// The block that is in the way of a full ring: the oldest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oldest {
    pub offset: u64,
    pub size: u64,
    /// Its work is not known to be done; else it was not freed.
    pub freed: bool,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The ring is smaller than the block.
    Never,
    /// The oldest block is in the way.
    Behind(Oldest),
}

/// A ring whose blocks are used again when their work is done.
#[derive(Debug)]
pub(super) struct Queue<C: Waiting> {
    ring: Ring,
    /// The oldest first.
    entries: VecDeque<Entry>,
    tickets: Tickets<C::Stream, C::Event>,
    /// How many blocks are in use.
    live: usize,
}

impl<C: Waiting> Queue<C> {
    pub fn new(size: u64) -> Result<Self, RingError> {
        Ok(Self { ring: Ring::new(size)?, entries: VecDeque::new(), tickets: Tickets::new(), live: 0 })
    }

    /// The next block, which no work uses. Where the ring is full, the oldest blocks are asked, and waited for if `wait`.
    pub fn allocate(
        &mut self,
        size: u64,
        alignment: u64,
        wait: bool,
        clock: &mut C,
    ) -> Result<Result<RingBlock, Full>, C::Error> {
        loop {
            if let Some(block) = self.ring.allocate(size, alignment) {
                self.entries.push_back(Entry { block, ticket: None });
                self.live += 1;
                return Ok(Ok(block));
            }
            let Some(&Entry { block, ticket }) = self.entries.front() else { return Ok(Err(Full::Never)) };
            let oldest = Oldest { offset: block.offset, size: block.size, freed: ticket.is_some() };
            let Some(ticket) = ticket else { return Ok(Err(Full::Behind(oldest))) };
            let done = self.tickets.look(ticket, clock)? || wait && self.tickets.synchronize(ticket, clock)?;
            if !done {
                return Ok(Err(Full::Behind(oldest)));
            }
            self.release_oldest();
        }
    }

    /// Frees the block that begins at `offset`, whose last work was given to `stream`, and gives its size. `None` if
    /// there is no such block.
    pub fn free(&mut self, offset: u64, stream: &C::Stream, clock: &mut C) -> Option<u64> {
        let index = self.find(offset)?;
        let line = self.tickets.line(stream, clock);
        let entry = &mut self.entries[index];
        let size = entry.block.size;
        entry.ticket = Some(self.tickets.issue(line, size));
        self.live -= 1;
        if self.tickets.fresh(line) >= self.ring.capacity() / PARTS {
            // An event that is not recorded now is recorded, or refused, when it is needed.
            let _ = self.tickets.close(line, clock);
        }
        Some(size)
    }

    /// Lets go of the oldest blocks whose work is known to be done, or is found to be.
    pub fn collect(&mut self, clock: &mut C) -> Result<(), C::Error> {
        while let Some(ticket) = self.entries.front().and_then(|entry| entry.ticket) {
            if !self.tickets.look(ticket, clock)? {
                break;
            }
            self.release_oldest();
        }
        Ok(())
    }

    /// Waits on the CPU for all work that freed blocks wait for.
    pub fn synchronize(&mut self, clock: &mut C) -> Result<(), C::Error> {
        for ticket in self.entries.iter().filter_map(|entry| entry.ticket) {
            self.tickets.synchronize(ticket, clock)?;
        }
        self.collect(clock)
    }

    /// The streams that freed blocks wait for.
    pub fn streams(&self) -> impl Iterator<Item = &C::Stream> {
        self.tickets.streams()
    }

    pub fn free_bytes(&self) -> u64 {
        self.ring.free_bytes()
    }

    /// How many blocks are in use.
    pub fn live_count(&self) -> usize {
        self.live
    }

    /// How many freed blocks are not known to be done with, or have an older block before them.
    pub fn pending_count(&self) -> usize {
        self.entries.len() - self.live
    }

    fn release_oldest(&mut self) {
        if let Some(Entry { block, ticket }) = self.entries.pop_front() {
            ticket.into_iter().for_each(|ticket| self.tickets.redeem(ticket));
            let released = self.ring.release(block);
            debug_assert_eq!(released, Ok(()), "entries are in the ring's order");
        }
    }

    /// The entry of the block in use that begins at `offset`. Seen from the oldest block on, offsets ascend.
    fn find(&self, offset: u64) -> Option<usize> {
        let (first, capacity) = (self.entries.front()?.block.offset, self.ring.capacity());
        let distance = |offset: u64| if offset < first { offset + capacity - first } else { offset - first };
        let index = self.entries.binary_search_by_key(&distance(offset), |entry| distance(entry.block.offset)).ok()?;
        self.entries[index].ticket.is_none().then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::order::world::{Point, Progress, World};
    use crate::pool::order::{Clock, Mark};
    use proptest::prelude::*;

    const STREAMS: usize = 3;

    #[derive(Clone, Debug)]
    enum Step {
        Allocate {
            size: u64,
            alignment: u32,
            wait: bool,
            stream: usize,
        },
        /// The oldest blocks are freed most often, as in staging.
        Free {
            newer: usize,
            stream: usize,
        },
        Complete {
            stream: usize,
        },
        Collect,
        Synchronize,
    }

    fn step() -> impl Strategy<Value = Step> {
        let stream = 0..STREAMS;
        prop_oneof![
            8 => (1u64..60, 0u32..6, any::<bool>(), stream.clone())
                .prop_map(|(size, alignment, wait, stream)| Step::Allocate { size, alignment, wait, stream }),
            8 => (prop_oneof![Just(0usize), 0usize..6], stream.clone())
                .prop_map(|(newer, stream)| Step::Free { newer, stream }),
            2 => stream.prop_map(|stream| Step::Complete { stream }),
            1 => Just(Step::Collect),
            1 => Just(Step::Synchronize),
        ]
    }

    /// A block as the model sees it.
    #[derive(Debug)]
    struct Known {
        offset: u64,
        size: u64,
        home: usize,
        last: Progress<STREAMS>,
        /// The stream that freed it.
        freed: Option<usize>,
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 512 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Against a list of all blocks whose work is not done: none of their bytes is handed out.
        #[test]
        fn no_byte_is_handed_out_before_its_work_is_done(
            capacity in 1u64..200,
            steps in prop::collection::vec(step(), 0..if cfg!(miri) { 20 } else { 150 }),
        ) {
            let mut world = World::<STREAMS>::new();
            let mut queue = Queue::<World<STREAMS>>::new(capacity).unwrap();
            let mut known: Vec<Known> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate { size, alignment, wait, stream } => {
                        let allocated = queue.allocate(size, 1 << alignment, wait, &mut world).unwrap();
                        let busy = |block: &&Known| {
                            block.freed.is_none() || !world.clone().has_passed(&Point(block.last)).unwrap()
                        };
                        match allocated {
                            Ok(block) => {
                                prop_assert_eq!(block.offset % (1 << alignment), 0);
                                prop_assert!(block.offset + block.size <= capacity);
                                for other in known.iter().filter(busy) {
                                    prop_assert!(
                                        block.offset + block.size <= other.offset
                                            || other.offset + other.size <= block.offset,
                                        "{:?} overlaps {:?}", block, other
                                    );
                                }
                                let mut last = [0; STREAMS];
                                world.work(stream, &mut last);
                                known.push(Known {
                                    offset: block.offset, size: block.size, home: stream, last, freed: None,
                                });
                            }
                            Err(Full::Never) => prop_assert!(size > capacity),
                            Err(Full::Behind(oldest)) => {
                                let named = known.iter().rposition(|block| block.offset == oldest.offset).unwrap();
                                prop_assert_eq!(known[named].size, oldest.size);
                                prop_assert_eq!(known[named].freed.is_some(), oldest.freed);
                                prop_assert!(known[..named].iter().all(|block| block.freed.is_some()), "not the oldest");
                                if let Some(by) = known[named].freed {
                                    prop_assert!(!wait, "it could have waited");
                                    let Ok(Mark::Event(end)) = world.record(&by) else { unreachable!() };
                                    prop_assert!(!world.has_passed(&end).unwrap(), "its stream has no work left");
                                }
                            }
                        }
                    }
                    Step::Free { newer, stream } => {
                        let live: Vec<usize> = (0..known.len()).filter(|index| known[*index].freed.is_none()).collect();
                        let Some(&index) = live.get(newer).or(live.last()) else {
                            prop_assert_eq!(queue.free(0, &stream, &mut world), None, "nothing is in use");
                            continue;
                        };
                        let block = &mut known[index];
                        block.freed = Some(stream);
                        world.join(stream, block.home);
                        world.work(stream, &mut block.last);
                        prop_assert_eq!(queue.free(block.offset, &stream, &mut world), Some(block.size));
                        prop_assert_eq!(queue.free(block.offset, &stream, &mut world), None, "freed twice");
                    }
                    Step::Complete { stream } => world.complete(stream),
                    Step::Collect => queue.collect(&mut world).unwrap(),
                    Step::Synchronize => queue.synchronize(&mut world).unwrap(),
                }
                let live = known.iter().filter(|block| block.freed.is_none());
                let bytes: u64 = live.clone().map(|block| block.size).sum();
                prop_assert_eq!(queue.live_count(), live.count());
                prop_assert!(queue.free_bytes() + bytes <= capacity);
            }
            queue.synchronize(&mut world).unwrap();
            if queue.live_count() == 0 {
                prop_assert_eq!((queue.pending_count(), queue.free_bytes()), (0, capacity));
            }
        }
    }

    #[test]
    fn events_divide_the_ring_so_that_the_oldest_block_is_waited_for_alone() {
        let mut world = World::<1>::new();
        let mut queue = Queue::<World<1>>::new(800).unwrap();
        let mut marks = Vec::new();
        for _ in 0..8 {
            let block = queue.allocate(100, 1, true, &mut world).unwrap().unwrap();
            let mut last = [0];
            world.work(0, &mut last);
            marks.push(last);
            assert_eq!(queue.free(block.offset, &0, &mut world), Some(100));
        }
        assert_eq!(queue.allocate(100, 1, true, &mut world).unwrap().unwrap().offset, 0);
        let done: Vec<bool> = marks.iter().map(|mark| world.has_passed(&Point(*mark)).unwrap()).collect();
        assert_eq!(done, [true, false, false, false, false, false, false, false]);
        assert_eq!(queue.pending_count(), 7);
    }

    #[test]
    fn a_block_that_is_in_use_is_named_and_not_waited_for() {
        let mut world = World::<1>::new();
        let mut queue = Queue::<World<1>>::new(100).unwrap();
        let first = queue.allocate(60, 1, true, &mut world).unwrap().unwrap();
        let in_use = Full::Behind(Oldest { offset: 0, size: 60, freed: false });
        assert_eq!(queue.allocate(60, 1, true, &mut world), Ok(Err(in_use)));
        assert_eq!(queue.allocate(101, 1, true, &mut world), Ok(Err(in_use)));
        assert_eq!(queue.free(first.offset, &0, &mut world), Some(60));
        assert_eq!(queue.allocate(101, 1, true, &mut world), Ok(Err(Full::Never)));
    }
}
