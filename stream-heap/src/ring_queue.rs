//! Blocks that are reused in the order of their allocation, each when its work is done.

use crate::suballocator::{Ring, RingBlock, RingError};
use crate::timeline::{StreamDriver, StreamId, Ticket, Timelines};
use std::collections::{BTreeSet, VecDeque};

/// A stream records an event each time it has freed one of this many parts of the ring, so that a waiter for the oldest
/// block does not wait for the newest.
const PARTS: u64 = 8;

#[derive(Debug)]
struct Entry {
    block: RingBlock,
    state: State,
}

/// What holds a block back.
#[derive(Clone, Copy, Debug)]
enum State {
    InUse,
    /// It was freed, and waits for the work of a stream.
    Freed(Ticket),
    /// It was freed, and its work is done. An older block is in the way.
    Over,
}

impl Entry {
    fn ticket(&self) -> Option<Ticket> {
        match self.state {
            State::Freed(ticket) => Some(ticket),
            State::InUse | State::Over => None,
        }
    }
}

/// The oldest block of a full ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oldest {
    /// Where it begins in the ring, in bytes.
    pub offset: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The block was freed, but its work may still run.
    pub freed: bool,
}

/// Why a ring has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The ring is smaller than the block.
    Never,
    /// The oldest block must be released first.
    Behind(Oldest),
}

/// A ring whose blocks are reused when their work is done.
#[derive(Debug)]
pub struct RingQueue<D: StreamDriver> {
    ring: Ring,
    /// The oldest block is first.
    entries: VecDeque<Entry>,
    timelines: Timelines<D::Stream, D::Event>,
    live: usize,
}

impl<D: StreamDriver> RingQueue<D> {
    /// A ring of `size` bytes.
    ///
    /// # Errors
    ///
    /// The size is 0 or too large.
    pub fn new(size: u64) -> Result<Self, RingError> {
        Ok(Self { ring: Ring::new(size)?, entries: VecDeque::new(), timelines: Timelines::new(), live: 0 })
    }

    /// Allocates a block that no work uses. A full ring queries the oldest blocks. It does not wait for them: the caller
    /// may wait for the [end](Self::end_of_oldest) of the oldest block's work, and try again.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn allocate(&mut self, size: u64, alignment: u64, driver: &mut D) -> Result<Result<RingBlock, Full>, D::Error> {
        loop {
            if let Some(block) = self.ring.allocate(size, alignment) {
                self.entries.push_back(Entry { block, state: State::InUse });
                self.live += 1;
                return Ok(Ok(block));
            }
            let Some(&Entry { block, state }) = self.entries.front() else { return Ok(Err(Full::Never)) };
            let oldest = Oldest { offset: block.offset, size: block.size, freed: !matches!(state, State::InUse) };
            let done = match state {
                State::InUse => false,
                State::Freed(ticket) => self.timelines.has_passed(ticket, driver)?,
                State::Over => true,
            };
            if !done {
                return Ok(Err(Full::Behind(oldest)));
            }
            self.release_oldest();
        }
    }

    /// Frees the block at `offset`, which only work queued on `stream` so far still uses, and returns its size. `None`
    /// if there is no such block.
    pub fn free(&mut self, offset: u64, stream: &D::Stream, driver: &mut D) -> Option<u64> {
        let line = self.id(stream, driver);
        let index = self.find(offset)?;
        let entry = &mut self.entries[index];
        let size = entry.block.size;
        entry.state = State::Freed(self.timelines.issue(line, size));
        self.live -= 1;
        if self.timelines.fresh(line) >= self.ring.capacity() / PARTS {
            // If this fails, the next waiter records the event, or gets the error.
            let _ = self.timelines.close(line, driver);
        }
        Some(size)
    }

    /// The id of a stream. If many streams have ids, first releases those whose freed blocks wait for no work.
    #[inline]
    fn id(&mut self, stream: &D::Stream, driver: &mut D) -> StreamId {
        if let Some(id) = self.timelines.find(stream) {
            return id;
        }
        if self.timelines.has_many() {
            for entry in &mut self.entries {
                // A stream that the driver does not answer for now keeps its id.
                if let State::Freed(ticket) = entry.state
                    && let Ok(true) = self.timelines.has_passed(ticket, driver)
                {
                    entry.state = State::Over;
                }
            }
            let waits: BTreeSet<StreamId> =
                self.entries.iter().filter_map(Entry::ticket).map(|ticket| ticket.stream).collect();
            self.timelines.release(|id| waits.contains(&id), driver);
        }
        self.timelines.id(stream)
    }

    /// Removes the oldest blocks whose work is done.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn collect(&mut self, driver: &mut D) -> Result<(), D::Error> {
        while let Some(oldest) = self.entries.front() {
            match oldest.state {
                State::Over => {}
                State::Freed(ticket) if self.timelines.has_passed(ticket, driver)? => {}
                State::Freed(_) | State::InUse => break,
            }
            self.release_oldest();
        }
        Ok(())
    }

    /// An event behind the work of the oldest block. None if the block was not freed, or if no event can be recorded now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn end_of_oldest(&mut self, driver: &mut D) -> Result<Option<D::Event>, D::Error> {
        match self.entries.front().and_then(Entry::ticket) {
            Some(ticket) => self.timelines.end(ticket, driver),
            None => Ok(None),
        }
    }

    /// Events behind the work of all freed blocks: one for each stream on which an event can be recorded now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn ends(&mut self, driver: &mut D) -> Result<Vec<D::Event>, D::Error> {
        for ticket in self.entries.iter().filter_map(Entry::ticket) {
            self.timelines.ensure_event(ticket, driver)?;
        }
        Ok(self.timelines.last_events().collect())
    }

    /// The streams that freed blocks wait for.
    pub fn streams(&self) -> impl Iterator<Item = &D::Stream> {
        let streams: BTreeSet<StreamId> =
            self.entries.iter().filter_map(Entry::ticket).map(|ticket| ticket.stream).collect();
        streams.into_iter().filter_map(|id| self.timelines.stream(id))
    }

    /// The number of bytes that no block occupies.
    pub fn free_bytes(&self) -> u64 {
        self.ring.free_bytes()
    }

    /// The number of blocks in use.
    pub fn live_count(&self) -> usize {
        self.live
    }

    /// The number of freed blocks that wait for their work, or for an older block.
    pub fn pending_count(&self) -> usize {
        self.entries.len() - self.live
    }

    fn release_oldest(&mut self) {
        if let Some(Entry { block, .. }) = self.entries.pop_front() {
            let released = self.ring.release(block);
            debug_assert_eq!(released, Ok(()), "entries are in the ring's order");
        }
    }

    /// The entry of the block in use at `offset`. From the oldest block on, offsets ascend.
    fn find(&self, offset: u64) -> Option<usize> {
        let (first, capacity) = (self.entries.front()?.block.offset, self.ring.capacity());
        let distance = |offset: u64| if offset < first { offset + capacity - first } else { offset - first };
        let index = self.entries.binary_search_by_key(&distance(offset), |entry| distance(entry.block.offset)).ok()?;
        matches!(self.entries[index].state, State::InUse).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Mark;
    use crate::world::{Point, Progress, World};
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

    /// Allocates, and waits for the oldest blocks if `wait` is set, as a pool does.
    fn allocate<const N: usize>(
        queue: &mut RingQueue<World<N>>,
        (size, alignment): (u64, u64),
        wait: bool,
        world: &mut World<N>,
    ) -> Result<RingBlock, Full> {
        loop {
            let allocated = queue.allocate(size, alignment, world).unwrap();
            match queue.end_of_oldest(world).unwrap().filter(|_| allocated.is_err() && wait) {
                Some(end) => world.reach(&end),
                None => return allocated,
            }
        }
    }

    fn synchronize<const N: usize>(queue: &mut RingQueue<World<N>>, world: &mut World<N>) {
        queue.ends(world).unwrap().iter().for_each(|end| world.reach(end));
        queue.collect(world).unwrap();
    }

    /// A block in the model.
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
            cases: 512,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Compares with a list of blocks: no byte is handed out before its work is done.
        #[test]
        fn no_byte_is_handed_out_before_its_work_is_done(
            capacity in 1u64..200,
            steps in prop::collection::vec(step(), 0..150),
        ) {
            let mut world = World::<STREAMS>::new();
            let mut queue = RingQueue::<World<STREAMS>>::new(capacity).unwrap();
            let mut known: Vec<Known> = Vec::new();
            for step in steps {
                match step {
                    Step::Allocate { size, alignment, wait, stream } => {
                        let allocated = allocate(&mut queue, (size, 1 << alignment), wait, &mut world);
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
                    Step::Synchronize => synchronize(&mut queue, &mut world),
                }
                let live = known.iter().filter(|block| block.freed.is_none());
                let bytes: u64 = live.clone().map(|block| block.size).sum();
                prop_assert_eq!(queue.live_count(), live.count());
                prop_assert!(queue.free_bytes() + bytes <= capacity);
            }
            synchronize(&mut queue, &mut world);
            if queue.live_count() == 0 {
                prop_assert_eq!((queue.pending_count(), queue.free_bytes()), (0, capacity));
            }
        }
    }

    #[test]
    fn ring_events_let_an_allocation_wait_for_the_oldest_block_only() {
        let mut world = World::<1>::new();
        let mut queue = RingQueue::<World<1>>::new(800).unwrap();
        let mut marks = Vec::new();
        for _ in 0..8 {
            let block = allocate(&mut queue, (100, 1), true, &mut world).unwrap();
            let mut last = [0];
            world.work(0, &mut last);
            marks.push(last);
            assert_eq!(queue.free(block.offset, &0, &mut world), Some(100));
        }
        assert_eq!(allocate(&mut queue, (100, 1), true, &mut world).unwrap().offset, 0);
        let done: Vec<bool> = marks.iter().map(|mark| world.has_passed(&Point(*mark)).unwrap()).collect();
        assert_eq!(done, [true, false, false, false, false, false, false, false]);
        assert_eq!(queue.pending_count(), 7);
    }

    #[test]
    fn a_block_that_is_in_use_is_named_and_not_waited_for() {
        let mut world = World::<1>::new();
        let mut queue = RingQueue::<World<1>>::new(100).unwrap();
        let first = allocate(&mut queue, (60, 1), true, &mut world).unwrap();
        let in_use = Full::Behind(Oldest { offset: 0, size: 60, freed: false });
        assert_eq!(allocate(&mut queue, (60, 1), true, &mut world), Err(in_use));
        assert_eq!(allocate(&mut queue, (101, 1), true, &mut world), Err(in_use));
        assert_eq!(queue.free(first.offset, &0, &mut world), Some(60));
        assert_eq!(allocate(&mut queue, (101, 1), true, &mut world), Err(Full::Never));
    }
}
