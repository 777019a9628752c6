//! Blocks of one size, for many streams.
//!
//! Each stream has a queue of the blocks that it freed. The stream takes its next block from the queue's end. Other
//! streams take from the front: that block was freed first, so no other ticket of the queue passes earlier.

use crate::region::Region;
use crate::suballocator::{ChunkId, Slabs, SlabsError, SlotClass, SlotId};
use crate::timeline::{StreamDriver, StreamId, Ticket, Timelines};
use std::collections::{BTreeSet, VecDeque};

/// A region, divided into blocks.
#[derive(Debug)]
struct Slab<R> {
    region: R,
    chunk: ChunkId,
    /// The blocks in use. Blocks in queues are not in use.
    live: Box<[Option<SlotId>]>,
}

/// A block in a queue.
#[derive(Debug)]
struct QueuedBlock {
    slot: SlotId,
    address: u64,
    ticket: Ticket,
}

/// Slabs, and the queues of freed blocks.
#[derive(Debug)]
pub struct Slots<D: StreamDriver, R> {
    memory: Slabs,
    /// The size of a block, in bytes.
    size: u64,
    /// The number of blocks of a slab.
    slots: u32,
    /// By address.
    slabs: Vec<Slab<R>>,
    timelines: Timelines<D::Stream, D::Event>,
    /// By stream; the block that was freed first is in front.
    queues: Vec<VecDeque<QueuedBlock>>,
    /// The number of blocks in queues.
    queued: usize,
}

impl<D: StreamDriver, R: Region> Slots<D, R> {
    /// Blocks of `size` bytes, of which `slots` make a slab.
    ///
    /// # Errors
    ///
    /// A slab has 1 to 4096 blocks, and less than 2^64 bytes.
    pub fn new(size: u64, slots: u32) -> Result<Self, SlabsError> {
        let memory = Slabs::new(&[SlotClass { size, slots }])?;
        Ok(Self { memory, size, slots, slabs: Vec::new(), timelines: Timelines::new(), queues: Vec::new(), queued: 0 })
    }

    /// The size of a slab, in bytes.
    pub fn slab_size(&self) -> u64 {
        self.size * u64::from(self.slots)
    }

    /// Adds a slab that no work uses. The region must have at least the size of a slab.
    ///
    /// # Errors
    ///
    /// The region does not end within 64 bits, or there are too many slabs.
    pub fn add(&mut self, region: R) -> Result<(), SlabsError> {
        let chunk = self.memory.add_chunk(self.size, region.address())?;
        let live = vec![None; self.slots as usize].into_boxed_slice();
        let place = self.slabs.partition_point(|slab| slab.region.address() < region.address());
        self.slabs.insert(place, Slab { region, chunk, live });
        Ok(())
    }

    /// Takes a block that the stream may use at once: its last freed block, or a block that no work uses.
    #[inline]
    pub fn take(&mut self, stream: &D::Stream) -> Option<R> {
        if let Some(line) = self.timelines.find(stream)
            && let Some(freed) = self.queues.get_mut(line.index()).and_then(VecDeque::pop_back)
        {
            return self.take_freed(freed);
        }
        let slot = self.memory.allocate(self.size)?;
        self.hand_out(slot.id, slot.offset)
    }

    /// As [`take`](Self::take), but first queries the streams' events.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn take_passed(&mut self, stream: &D::Stream, driver: &mut D) -> Result<Option<R>, D::Error> {
        self.collect(driver)?;
        Ok(self.take(stream))
    }

    /// Takes the first block of the longest queue, and makes the stream wait for the work that used it. `None` if all
    /// queues are empty, or if the stream cannot wait now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn take_waiting(&mut self, stream: &D::Stream, driver: &mut D) -> Result<Option<R>, D::Error> {
        // First, because it may empty queues.
        let waiter = self.id(stream, driver);
        let Some(queue) = (0..self.queues.len()).max_by_key(|queue| self.queues[*queue].len()) else { return Ok(None) };
        let Some(ticket) = self.queues[queue].front().map(|freed| freed.ticket) else { return Ok(None) };
        if !self.timelines.wait(ticket, waiter, driver)? {
            return Ok(None);
        }
        Ok(self.queues[queue].pop_front().and_then(|freed| self.take_freed(freed)))
    }

    /// Frees a block that only work queued on `stream` so far still uses. `false` if there is no such block.
    #[inline]
    pub fn free(&mut self, address: u64, stream: &D::Stream, driver: &mut D) -> bool {
        let live = self.place(address).and_then(|(slab, index)| slab.live.get_mut(index));
        let Some(slot) = live.and_then(Option::take) else { return false };
        let line = self.id(stream, driver);
        let ticket = self.timelines.issue(line, self.size);
        if self.queues.len() <= line.index() {
            self.queues.resize_with(line.index() + 1, VecDeque::new);
        }
        self.queues[line.index()].push_back(QueuedBlock { slot, address, ticket });
        self.queued += 1;
        true
    }

    /// The id of a stream. If many streams have ids, first releases those whose freed blocks wait for no work.
    #[inline]
    fn id(&mut self, stream: &D::Stream, driver: &mut D) -> StreamId {
        if let Some(id) = self.timelines.find(stream) {
            return id;
        }
        if self.timelines.has_many() {
            // A stream that the driver does not answer for now keeps its id.
            let _ = self.collect(driver);
            let waits: BTreeSet<StreamId> =
                self.queues.iter().filter_map(VecDeque::front).map(|freed| freed.ticket.stream).collect();
            self.timelines.release(|id| waits.contains(&id), driver);
        }
        self.timelines.id(stream)
    }

    /// Queries the streams' events, and lets every stream use blocks whose work is done.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn collect(&mut self, driver: &mut D) -> Result<(), D::Error> {
        for queue in &mut self.queues {
            if let Some(first) = queue.front() {
                self.timelines.has_passed(first.ticket, driver)?;
            }
            while let Some(freed) = queue.front().filter(|freed| self.timelines.is_past(freed.ticket)) {
                // The slot was in use until now, so the free succeeds.
                let _ = self.memory.free(freed.slot);
                queue.pop_front();
                self.queued -= 1;
            }
        }
        Ok(())
    }

    /// Blocks until the work of all freed blocks is done, and lets every stream use them.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn synchronize(&mut self, driver: &mut D) -> Result<(), D::Error> {
        for queue in &self.queues {
            if let Some(last) = queue.back() {
                self.timelines.synchronize(last.ticket, driver)?;
            }
        }
        self.collect(driver)
    }

    /// Removes slabs that have no block in use or in a queue, highest addresses first, as long as at least `keep` bytes
    /// stay.
    pub fn take_empty(&mut self, keep: u64) -> Vec<R> {
        let mut taken = Vec::new();
        for index in (0..self.slabs.len()).rev() {
            let stays = (self.slabs.len() as u64 - 1) * self.slab_size();
            if stays >= keep && self.memory.remove_chunk(self.slabs[index].chunk).is_ok() {
                taken.push(self.slabs.remove(index).region);
            }
        }
        taken
    }

    /// The streams that freed blocks wait for.
    pub fn streams(&self) -> impl Iterator<Item = &D::Stream> {
        let tickets = self.queues.iter().filter_map(|queue| queue.front()).map(|freed| freed.ticket);
        tickets.filter_map(|ticket| self.timelines.stream(ticket.stream))
    }

    /// All regions.
    pub fn regions(&self) -> impl Iterator<Item = R> {
        self.slabs.iter().map(|slab| slab.region)
    }

    /// The number of slabs.
    pub fn slab_count(&self) -> usize {
        self.slabs.len()
    }

    /// The number of blocks in use.
    pub fn live_count(&self) -> usize {
        self.memory.used_slots() - self.queued
    }

    /// The number of freed blocks in the queues of their streams.
    pub fn queued(&self) -> usize {
        self.queued
    }

    fn take_freed(&mut self, freed: QueuedBlock) -> Option<R> {
        self.queued -= 1;
        self.hand_out(freed.slot, freed.address)
    }

    fn hand_out(&mut self, slot: SlotId, address: u64) -> Option<R> {
        let size = self.size;
        let (slab, index) = self.place(address)?;
        *slab.live.get_mut(index)? = Some(slot);
        Some(slab.region.part(address, size))
    }

    /// The slab of the block at an address, and the block's index in the slab. Slabs are few, so the search is short.
    #[inline]
    fn place(&mut self, address: u64) -> Option<(&mut Slab<R>, usize)> {
        let after = self.slabs.partition_point(|slab| slab.region.address() <= address);
        let slab = self.slabs.get_mut(after.checked_sub(1)?)?;
        let offset = address - slab.region.address();
        // Most sizes are powers of two. A division would be the slowest step here.
        let index = if self.size.is_power_of_two() { offset >> self.size.trailing_zeros() } else { offset / self.size };
        (index * self.size == offset).then_some((slab, index as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Span;
    use crate::timeline::Mark;
    use crate::world::{Point, Progress, World};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const STREAMS: usize = 3;
    const SIZE: u64 = 48;

    #[derive(Clone, Debug)]
    enum Step {
        Allocate { stream: usize, effort: u8 },
        Free { block: prop::sample::Index, stream: usize },
        Join { stream: usize, other: usize },
        Complete { stream: usize },
        Add,
        Trim { keep: u64 },
        Synchronize,
    }

    fn step() -> impl Strategy<Value = Step> {
        let stream = 0..STREAMS;
        prop_oneof![
            8 => (stream.clone(), 0u8..3).prop_map(|(stream, effort)| Step::Allocate { stream, effort }),
            8 => (any::<prop::sample::Index>(), stream.clone()).prop_map(|(block, stream)| Step::Free { block, stream }),
            1 => (stream.clone(), stream.clone()).prop_map(|(stream, other)| Step::Join { stream, other }),
            2 => stream.prop_map(|stream| Step::Complete { stream }),
            2 => Just(Step::Add),
            1 => (0u64..600).prop_map(|keep| Step::Trim { keep }),
            1 => Just(Step::Synchronize),
        ]
    }

    /// The model: sets of addresses, with the last work on each block.
    #[derive(Default)]
    struct Model {
        slabs: BTreeSet<u64>,
        live: BTreeMap<u64, (usize, Progress<STREAMS>)>,
        /// The last work on blocks that are not in use, and the stream that freed them.
        idle: BTreeMap<u64, (Progress<STREAMS>, usize)>,
    }

    impl Model {
        fn addresses(&self, slots: u32) -> BTreeSet<u64> {
            self.slabs.iter().flat_map(|base| (0..u64::from(slots)).map(move |slot| base + slot * SIZE)).collect()
        }
    }

    /// Whether a stream has no work left.
    fn is_done(world: &mut World<STREAMS>, stream: usize) -> bool {
        let Ok(Mark::Event(end)) = world.record(&stream) else { unreachable!("the world gives no errors") };
        world.has_passed(&end) == Ok(true)
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 512 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// A block has one owner at a time, and gets the next owner only after the work of former owners.
        #[test]
        fn blocks_are_handed_out_once_and_after_their_former_work(
            slots in 1u32..5,
            steps in prop::collection::vec(step(), 0..if cfg!(miri) { 20 } else { 120 }),
        ) {
            let mut world = World::<STREAMS>::new();
            let mut tested = Slots::<World<STREAMS>, Span>::new(SIZE, slots).unwrap();
            let mut model = Model::default();
            let mut next_base = 0x1000;
            for step in steps {
                match step {
                    Step::Allocate { stream, effort } => {
                        let block = match effort {
                            0 => tested.take(&stream),
                            1 => tested.take_passed(&stream, &mut world).unwrap(),
                            _ => match tested.take_passed(&stream, &mut world).unwrap() {
                                Some(block) => Some(block),
                                None => tested.take_waiting(&stream, &mut world).unwrap(),
                            },
                        };
                        let Some(block) = block else {
                            let all = model.addresses(slots);
                            let free = all.iter().filter(|address| !model.live.contains_key(address));
                            // Counts the free blocks that should have been found.
                            let mut ready = |address: &&u64| model.idle.get(address).is_none_or(|(_, by)| match effort {
                                0 => *by == stream,
                                1 => is_done(&mut world, *by),
                                _ => true,
                            });
                            prop_assert_eq!(free.filter(|address| ready(address)).count(), 0, "effort {}", effort);
                            continue;
                        };
                        let address = block.address;
                        prop_assert!(model.addresses(slots).contains(&address), "{:#x} is no block", address);
                        prop_assert_eq!(block.size, SIZE);
                        let (mut last, _) = model.idle.remove(&address).unwrap_or_default();
                        prop_assert!(world.is_before(&last, stream), "{:#x} is still used", address);
                        last = [0; STREAMS];
                        world.work(stream, &mut last);
                        prop_assert!(model.live.insert(address, (stream, last)).is_none(), "handed out twice");
                    }
                    Step::Free { block, stream } if !model.live.is_empty() => {
                        let address = *block.get(&model.live.keys().copied().collect::<Vec<_>>());
                        let (home, mut last) = model.live.remove(&address).unwrap();
                        world.join(stream, home);
                        world.work(stream, &mut last);
                        prop_assert!(tested.free(address, &stream, &mut world));
                        prop_assert!(!tested.free(address, &stream, &mut world), "freed twice");
                        prop_assert!(!tested.free(address + 1, &stream, &mut world), "within a block");
                        model.idle.insert(address, (last, stream));
                    }
                    Step::Free { .. } => prop_assert!(!tested.free(0x1000, &0, &mut world), "nothing is in use"),
                    Step::Join { stream, other } => world.join(stream, other),
                    Step::Complete { stream } => world.complete(stream),
                    Step::Add => {
                        tested.add(Span { address: next_base, size: SIZE * u64::from(slots) }).unwrap();
                        model.slabs.insert(next_base);
                        next_base += 0x1000;
                    }
                    Step::Trim { keep } => {
                        tested.collect(&mut world).unwrap();
                        for region in tested.take_empty(keep) {
                            let base = region.address;
                            prop_assert!(model.slabs.remove(&base));
                            for address in (0..u64::from(slots)).map(|slot| base + slot * SIZE) {
                                prop_assert!(!model.live.contains_key(&address), "a slab in use is gone");
                                let (last, _) = model.idle.remove(&address).unwrap_or_default();
                                prop_assert!(world.has_passed(&Point(last)).unwrap(), "a slab in use is gone");
                            }
                            prop_assert!(tested.slab_count() as u64 * tested.slab_size() >= keep);
                        }
                    }
                    Step::Synchronize => {
                        tested.synchronize(&mut world).unwrap();
                        prop_assert_eq!(tested.queued(), 0);
                    }
                }
                prop_assert_eq!(tested.live_count(), model.live.len());
                prop_assert_eq!(tested.slab_count(), model.slabs.len());
            }
        }
    }

    #[test]
    fn a_stream_gets_its_own_block_back_the_last_one_first() {
        let mut world = World::<2>::new();
        let mut slots = Slots::<World<2>, Span>::new(SIZE, 4).unwrap();
        slots.add(Span { address: 0x1000, size: 4 * SIZE }).unwrap();
        let blocks = [0; 3].map(|stream| slots.take(&stream).unwrap().address);
        blocks.iter().for_each(|address| assert!(slots.free(*address, &0, &mut world)));
        assert_eq!(slots.take(&1).map(|block| block.address), Some(0x1000 + 3 * SIZE));
        assert_eq!(slots.take(&1), None, "the other stream's work is not known to have passed");
        let again = [0; 3].map(|stream| slots.take(&stream).unwrap().address);
        assert_eq!(again, [blocks[2], blocks[1], blocks[0]]);
    }
}
