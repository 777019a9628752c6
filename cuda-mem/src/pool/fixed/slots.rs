//! The blocks of a pool of one size: slabs, and for each stream the blocks that it has freed. Without CUDA and without
//! `unsafe`.
//!
//! A block that a stream frees goes to the end of the stream's queue, and the stream takes its next block from there. For
//! other streams the queue's front counts: it was freed first, so no other ticket of the queue passes before it.

use crate::pool::order::Waiting;
use crate::pool::tickets::{Ticket, Tickets};
use crate::resource::Block;
use crate::suballocator::{ChunkId, Slabs, SlabsError, SlotClass, SlotId};
use std::collections::VecDeque;

/// A region of the source, divided into blocks.
#[derive(Debug)]
struct Slab {
    region: Block,
    chunk: ChunkId,
    /// The blocks that are handed out; those in queues are not.
    live: Box<[Option<SlotId>]>,
}

/// A block in a queue.
#[derive(Debug)]
struct Freed {
    slot: SlotId,
    address: u64,
    ticket: Ticket,
}

/// Slabs and queues.
#[derive(Debug)]
pub(super) struct Slots<C: Waiting> {
    memory: Slabs,
    /// The size of a block, in bytes.
    size: u64,
    /// How many blocks a slab has.
    slots: u32,
    /// By address.
    slabs: Vec<Slab>,
    tickets: Tickets<C::Stream, C::Event>,
    /// By stream; the block that was freed first is in front.
    queues: Vec<VecDeque<Freed>>,
    /// How many blocks lie in queues.
    queued: usize,
}

impl<C: Waiting> Slots<C> {
    pub fn new(size: u64, slots: u32) -> Result<Self, SlabsError> {
        let memory = Slabs::new(&[SlotClass { size, slots }])?;
        Ok(Self { memory, size, slots, slabs: Vec::new(), tickets: Tickets::new(), queues: Vec::new(), queued: 0 })
    }

    /// How large a slab is, in bytes.
    pub fn slab_size(&self) -> u64 {
        self.size * u64::from(self.slots)
    }

    /// Adds a slab that waits for nothing. The region has at least the size of one.
    pub fn add(&mut self, region: Block) -> Result<(), SlabsError> {
        let chunk = self.memory.add_chunk(self.size, region.device_pointer)?;
        let live = vec![None; self.slots as usize].into_boxed_slice();
        let place = self.slabs.partition_point(|slab| slab.region.device_pointer < region.device_pointer);
        self.slabs.insert(place, Slab { region, chunk, live });
        Ok(())
    }

    /// A block that the stream may have at once: its own that it freed last, or one that waits for nothing.
    #[inline]
    pub fn take(&mut self, stream: &C::Stream) -> Option<Block> {
        if let Some(line) = self.tickets.find(stream)
            && let Some(freed) = self.queues.get_mut(line.index()).and_then(VecDeque::pop_back)
        {
            return self.take_freed(freed);
        }
        let slot = self.memory.allocate(self.size)?;
        self.hand_out(slot.id, slot.offset)
    }

    /// As [`take`](Self::take), after a look at what has passed.
    pub fn take_passed(&mut self, stream: &C::Stream, clock: &mut C) -> Result<Option<Block>, C::Error> {
        self.collect(clock)?;
        Ok(self.take(stream))
    }

    /// A block of another stream, for which the stream is told to wait; of the stream that has freed most. `None` where no
    /// stream has any, or it cannot wait now.
    pub fn take_waiting(&mut self, stream: &C::Stream, clock: &mut C) -> Result<Option<Block>, C::Error> {
        let Some(queue) = (0..self.queues.len()).max_by_key(|queue| self.queues[*queue].len()) else { return Ok(None) };
        let Some(ticket) = self.queues[queue].front().map(|freed| freed.ticket) else { return Ok(None) };
        let waiter = self.tickets.line(stream, clock);
        if !self.tickets.wait(ticket, waiter, clock)? {
            return Ok(None);
        }
        Ok(self.queues[queue].pop_front().and_then(|freed| self.take_freed(freed)))
    }

    /// Frees a block whose last work was given to `stream`. `false` if there is no such block.
    #[inline]
    pub fn free(&mut self, address: u64, stream: &C::Stream, clock: &mut C) -> bool {
        let live = self.place(address).and_then(|(slab, index)| slab.live.get_mut(index));
        let Some(slot) = live.and_then(Option::take) else { return false };
        let line = self.tickets.line(stream, clock);
        let ticket = self.tickets.issue(line, self.size);
        if self.queues.len() <= line.index() {
            self.queues.resize_with(line.index() + 1, VecDeque::new);
        }
        self.queues[line.index()].push_back(Freed { slot, address, ticket });
        self.queued += 1;
        true
    }

    /// Makes the blocks free for every stream whose work has passed.
    pub fn collect(&mut self, clock: &mut C) -> Result<(), C::Error> {
        for queue in &mut self.queues {
            if let Some(first) = queue.front() {
                self.tickets.look(first.ticket, clock)?;
            }
            while let Some(freed) = queue.front().filter(|freed| self.tickets.is_past(freed.ticket)) {
                self.tickets.redeem(freed.ticket);
                // The slot is in use until now.
                let _ = self.memory.free(freed.slot);
                queue.pop_front();
                self.queued -= 1;
            }
        }
        Ok(())
    }

    /// Waits on the CPU for all work that blocks wait for, and makes them free for every stream.
    pub fn synchronize(&mut self, clock: &mut C) -> Result<(), C::Error> {
        for queue in &self.queues {
            if let Some(last) = queue.back() {
                self.tickets.synchronize(last.ticket, clock)?;
            }
        }
        self.collect(clock)
    }

    /// Takes slabs out that have no block in use or in a queue, those with the highest addresses first, as long as at least
    /// `keep` bytes stay.
    pub fn take_empty(&mut self, keep: u64) -> Vec<Block> {
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
    pub fn streams(&self) -> impl Iterator<Item = &C::Stream> {
        self.tickets.streams()
    }

    /// What the source gave.
    pub fn regions(&self) -> impl Iterator<Item = Block> {
        self.slabs.iter().map(|slab| slab.region)
    }

    pub fn slab_count(&self) -> usize {
        self.slabs.len()
    }

    /// How many blocks are in use.
    pub fn live_count(&self) -> usize {
        self.memory.used_slots() - self.queued
    }

    /// How many freed blocks wait for work, or are kept for their stream.
    pub fn queued(&self) -> usize {
        self.queued
    }

    fn take_freed(&mut self, freed: Freed) -> Option<Block> {
        self.tickets.redeem(freed.ticket);
        self.queued -= 1;
        self.hand_out(freed.slot, freed.address)
    }

    fn hand_out(&mut self, slot: SlotId, address: u64) -> Option<Block> {
        let size = self.size;
        let (slab, index) = self.place(address)?;
        *slab.live.get_mut(index)? = Some(slot);
        let region = slab.region;
        let mut host_pointer = region.host_pointer;
        if !host_pointer.is_null() {
            host_pointer = host_pointer.wrapping_add((address - region.device_pointer) as usize);
        }
        Some(Block { device_pointer: address, host_pointer, size: size as usize })
    }

    /// The slab that holds the block which begins at an address, and the block's number in it. There are few slabs, so that
    /// the search counts as one step.
    #[inline]
    fn place(&mut self, address: u64) -> Option<(&mut Slab, usize)> {
        let after = self.slabs.partition_point(|slab| slab.region.device_pointer <= address);
        let slab = self.slabs.get_mut(after.checked_sub(1)?)?;
        let offset = address - slab.region.device_pointer;
        // Most sizes are powers of two, and a division is the dearest step here.
        let index = if self.size.is_power_of_two() { offset >> self.size.trailing_zeros() } else { offset / self.size };
        (index * self.size == offset).then_some((slab, index as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::order::world::{Point, Progress, World};
    use crate::pool::order::{Clock, Mark};
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

    /// The naive model: sets of addresses, and the last work of each.
    #[derive(Default)]
    struct Model {
        slabs: BTreeSet<u64>,
        live: BTreeMap<u64, (usize, Progress<STREAMS>)>,
        /// The last work on memory that is not in use, and who freed it.
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

        /// Whatever streams do, a block is handed out to one at a time, and only after the work of its former users.
        #[test]
        fn blocks_are_handed_out_once_and_after_their_former_work(
            slots in 1u32..5,
            steps in prop::collection::vec(step(), 0..if cfg!(miri) { 20 } else { 120 }),
        ) {
            let mut world = World::<STREAMS>::new();
            let mut tested = Slots::<World<STREAMS>>::new(SIZE, slots).unwrap();
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
                            // What is free, and should have been found.
                            let mut ready = |address: &&u64| model.idle.get(address).is_none_or(|(_, by)| match effort {
                                0 => *by == stream,
                                1 => is_done(&mut world, *by),
                                _ => true,
                            });
                            prop_assert_eq!(free.filter(|address| ready(address)).count(), 0, "effort {}", effort);
                            continue;
                        };
                        let address = block.device_pointer;
                        prop_assert!(model.addresses(slots).contains(&address), "{:#x} is no block", address);
                        prop_assert_eq!(block.size as u64, SIZE);
                        prop_assert_eq!(block.host_pointer.addr() as u64, address + 0x10_0000);
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
                        let mut region = Block::device(next_base, (SIZE * u64::from(slots)) as usize);
                        region.host_pointer = core::ptr::without_provenance_mut(next_base as usize + 0x10_0000);
                        tested.add(region).unwrap();
                        model.slabs.insert(next_base);
                        next_base += 0x1000;
                    }
                    Step::Trim { keep } => {
                        tested.collect(&mut world).unwrap();
                        for region in tested.take_empty(keep) {
                            let base = region.device_pointer;
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
        let mut slots = Slots::<World<2>>::new(SIZE, 4).unwrap();
        slots.add(Block::device(0x1000, 4 * SIZE as usize)).unwrap();
        let blocks = [0; 3].map(|stream| slots.take(&stream).unwrap().device_pointer);
        blocks.iter().for_each(|address| assert!(slots.free(*address, &0, &mut world)));
        assert_eq!(slots.take(&1).map(|block| block.device_pointer), Some(0x1000 + 3 * SIZE));
        assert_eq!(slots.take(&1), None, "what the other stream has freed is not known to have passed");
        let again = [0; 3].map(|stream| slots.take(&stream).unwrap().device_pointer);
        assert_eq!(again, [blocks[2], blocks[1], blocks[0]]);
    }
}
