//! Slabs: slots of a few fixed sizes, in chunks of memory that the caller adds.

use core::num::NonZeroU64;

const NONE: u32 = u32::MAX;

/// The most slots of a chunk: the number of bits in two levels of 64-bit words.
const MAX_SLOTS: u32 = 64 * 64;

/// Why [`Slabs`] refused a call. A refused call changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlabsError {
    /// The size or the number of slots is invalid.
    #[error(
        "{slots} slots of {size} bytes: a chunk needs 1 to 4096 slots and under 2^64 bytes; sizes must ascend from 1"
    )]
    Class {
        /// The size of a slot, in bytes.
        size: u64,
        /// The number of slots in a chunk.
        slots: u32,
    },

    /// No slot is large enough.
    #[error("{size} bytes exceed the largest slot, which has {largest} bytes")]
    TooLarge {
        /// The requested size, in bytes.
        size: u64,
        /// The largest slot, in bytes.
        largest: u64,
    },

    /// The end of the chunk would exceed 64 bits.
    #[error("a chunk of {size} bytes at {base} does not end within 64 bits")]
    Base {
        /// The requested start.
        base: u64,
        /// The chunk's size in bytes.
        size: u64,
    },

    /// There are 2^32 - 1 chunks, the limit of their 32-bit numbers.
    #[error("there are 2^32 - 1 chunks, which is the limit: remove some chunks")]
    Numbers,

    /// The slot does not exist, or was freed.
    #[error("this slot has been freed already, or belongs to other slabs")]
    UnknownSlot,

    /// The chunk does not exist, or was removed.
    #[error("this chunk has been removed, or belongs to other slabs")]
    UnknownChunk,

    /// The chunk has slots in use.
    #[error("the chunk has {0} slots in use: free them before the chunk is removed")]
    ChunkInUse(u32),
}

/// Slots of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotClass {
    /// The size of a slot, in bytes. Slots are aligned as their size and the chunk's base are.
    pub size: u64,
    /// The number of slots in a chunk, at most 4096.
    pub slots: u32,
}

/// Identifies an allocated slot. No later allocation of the same [`Slabs`] ever gets the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId {
    serial: NonZeroU64,
    chunk: u32,
    slot: u32,
}

/// Identifies a chunk. No later chunk of the same [`Slabs`] ever gets the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId {
    serial: NonZeroU64,
    index: u32,
}

/// An allocated slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Frees the slot.
    pub id: SlotId,
    /// The start in bytes, including the chunk's base.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
}

/// A freed slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreedSlot {
    /// The start in bytes, including the chunk's base.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
    /// The chunk of the slot.
    pub chunk: ChunkId,
    /// No slot of the chunk is in use, so the chunk can be removed.
    pub chunk_is_empty: bool,
}

#[derive(Debug)]
struct Class {
    size: u64,
    slots: u32,
    /// The first chunk of this class that has a free slot.
    open: u32,
}

/// A chunk, or a vacant entry.
#[derive(Debug)]
struct Chunk {
    base: u64,
    /// `None` if the entry is vacant.
    serial: Option<NonZeroU64>,
    class: u32,
    used: u32,
    /// The neighbours in the list of the class's chunks that have a free slot.
    previous: u32,
    next: u32,
    /// One bit for each word that is not zero.
    summary: u64,
    /// One bit for each free slot.
    words: Box<[u64]>,
    /// The number of the allocation that uses each slot; 0 if the slot is free.
    serials: Box<[u64]>,
}

/// Allocates slots of a few fixed sizes. Allocation and free are O(1) in the number of slots and chunks. A slot takes 8
/// bytes and 1 bit of host memory.
///
/// The caller provides the memory, one range for each chunk, from a [`Suballocator`](super::Suballocator) or a driver.
///
/// ```
/// use stream_heap::suballocator::{SlotClass, Slabs};
///
/// let mut slabs = Slabs::new(&[SlotClass { size: 256, slots: 64 }, SlotClass { size: 1024, slots: 64 }])?;
/// assert_eq!(slabs.allocate(300), None);
/// assert_eq!(slabs.chunk_size(300), Some(64 * 1024));
/// let chunk = slabs.add_chunk(300, 1 << 20)?;
///
/// let slot = slabs.allocate(300).expect("there is a chunk");
/// assert_eq!((slot.offset, slot.size), (1 << 20, 1024));
/// assert!(slabs.free(slot.id)?.chunk_is_empty);
/// assert_eq!(slabs.remove_chunk(chunk)?, 1 << 20);
/// # Ok::<(), stream_heap::suballocator::SlabsError>(())
/// ```
#[derive(Debug)]
pub struct Slabs {
    /// In ascending order of their sizes.
    classes: Vec<Class>,
    chunks: Vec<Chunk>,
    vacant: Vec<u32>,
    /// The number of the last allocation or chunk.
    serial: NonZeroU64,
    used_slots: usize,
}

impl Slabs {
    /// Makes slabs without chunks, with slots of these sizes.
    ///
    /// # Errors
    ///
    /// [`SlabsError::Class`] if a size is 0 or not above the size before it, or if a chunk has too many slots or bytes.
    pub fn new(classes: &[SlotClass]) -> Result<Self, SlabsError> {
        let mut above = 0;
        for &SlotClass { size, slots } in classes {
            if size <= above || !(1..=MAX_SLOTS).contains(&slots) || size.checked_mul(u64::from(slots)).is_none() {
                return Err(SlabsError::Class { size, slots });
            }
            above = size;
        }
        let classes = classes.iter().map(|&SlotClass { size, slots }| Class { size, slots, open: NONE }).collect();
        Ok(Self { classes, chunks: Vec::new(), vacant: Vec::new(), serial: NonZeroU64::MIN, used_slots: 0 })
    }

    /// The size in bytes of a chunk for slots that hold `size` bytes; `None` if no slot is that large.
    pub fn chunk_size(&self, size: u64) -> Option<u64> {
        let class = self.classes.get(self.class_of(size))?;
        Some(class.size * u64::from(class.slots))
    }

    /// Adds a chunk that begins at `base`, for slots that hold `size` bytes. It has [`chunk_size`](Self::chunk_size)
    /// bytes, which nobody else may use until the chunk is removed.
    ///
    /// # Errors
    ///
    /// No slot is that large, or the chunk would not end within 64 bits.
    pub fn add_chunk(&mut self, size: u64, base: u64) -> Result<ChunkId, SlabsError> {
        let class = self.class_of(size);
        let Some(&Class { slots, size: slot_size, .. }) = self.classes.get(class) else {
            return Err(SlabsError::TooLarge { size, largest: self.classes.last().map_or(0, |class| class.size) });
        };
        let chunk_size = slot_size * u64::from(slots);
        if base.checked_add(chunk_size).is_none() {
            return Err(SlabsError::Base { base, size: chunk_size });
        }
        let index = self.vacant.last().copied().unwrap_or(self.chunks.len() as u32);
        if index == NONE {
            return Err(SlabsError::Numbers);
        }
        let serial = self.next_serial();
        let words: Box<[u64]> = (0..slots.div_ceil(64)).map(|word| low_bits(slots - word * 64)).collect();
        let chunk = Chunk {
            base,
            serial: Some(serial),
            class: class as u32,
            used: 0,
            previous: NONE,
            next: NONE,
            summary: low_bits(words.len() as u32),
            words,
            serials: vec![0; slots as usize].into_boxed_slice(),
        };
        match self.vacant.pop() {
            Some(index) => self.chunks[index as usize] = chunk,
            None => self.chunks.push(chunk),
        }
        self.open(index);
        Ok(ChunkId { serial, index })
    }

    /// Removes a chunk, and returns its base.
    ///
    /// # Errors
    ///
    /// The chunk does not exist, or has slots in use.
    pub fn remove_chunk(&mut self, id: ChunkId) -> Result<u64, SlabsError> {
        let known = self.chunks.get(id.index as usize).filter(|chunk| chunk.serial == Some(id.serial));
        let &Chunk { base, used, .. } = known.ok_or(SlabsError::UnknownChunk)?;
        if used > 0 {
            return Err(SlabsError::ChunkInUse(used));
        }
        self.close(id.index);
        let chunk = &mut self.chunks[id.index as usize];
        chunk.serial = None;
        (chunk.words, chunk.serials) = Default::default();
        self.vacant.push(id.index);
        Ok(base)
    }

    /// Allocates a slot of the smallest size that holds `size` bytes: the lowest free slot of a chunk. `None` if all
    /// slots of that size are in use (add a chunk), or if no slot is that large.
    #[inline]
    pub fn allocate(&mut self, size: u64) -> Option<Slot> {
        let &Class { size, open, .. } = self.classes.get(self.class_of(size))?;
        let chunk = self.chunks.get_mut(open as usize)?;
        let word = chunk.summary.trailing_zeros();
        let free = &mut chunk.words[word as usize];
        let slot = word * 64 + free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            chunk.summary &= chunk.summary - 1;
        }
        let serial = self.serial.saturating_add(1);
        self.serial = serial;
        chunk.serials[slot as usize] = serial.get();
        chunk.used += 1;
        let offset = chunk.base + u64::from(slot) * size;
        if chunk.summary == 0 {
            self.close(open);
        }
        self.used_slots += 1;
        Some(Slot { id: SlotId { serial, chunk: open, slot }, offset, size })
    }

    /// Frees a slot.
    ///
    /// # Errors
    ///
    /// [`SlabsError::UnknownSlot`] if the slot does not exist or was freed.
    #[inline]
    pub fn free(&mut self, id: SlotId) -> Result<FreedSlot, SlabsError> {
        let known = self.chunks.get_mut(id.chunk as usize).and_then(|chunk| {
            let held = chunk.serials.get_mut(id.slot as usize).filter(|held| **held == id.serial.get())?;
            *held = 0;
            chunk.serial.map(|serial| (chunk, serial))
        });
        let (chunk, serial) = known.ok_or(SlabsError::UnknownSlot)?;
        let was_full = chunk.summary == 0;
        chunk.words[id.slot as usize / 64] |= 1 << (id.slot % 64);
        chunk.summary |= 1 << (id.slot / 64);
        chunk.used -= 1;
        let size = self.classes[chunk.class as usize].size;
        let freed = FreedSlot {
            offset: chunk.base + u64::from(id.slot) * size,
            size,
            chunk: ChunkId { serial, index: id.chunk },
            chunk_is_empty: chunk.used == 0,
        };
        if was_full {
            self.open(id.chunk);
        }
        self.used_slots -= 1;
        Ok(freed)
    }

    /// The number of slots in use.
    pub fn used_slots(&self) -> usize {
        self.used_slots
    }

    /// The number of chunks.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len() - self.vacant.len()
    }

    /// The first class whose slots hold `size` bytes. Classes are few, so this counts as one step.
    #[inline]
    fn class_of(&self, size: u64) -> usize {
        self.classes.partition_point(|class| class.size < size)
    }

    fn next_serial(&mut self) -> NonZeroU64 {
        self.serial = self.serial.saturating_add(1);
        self.serial
    }

    /// Lists a chunk with a free slot.
    fn open(&mut self, index: u32) {
        let class = self.chunks[index as usize].class as usize;
        let next = core::mem::replace(&mut self.classes[class].open, index);
        let chunk = &mut self.chunks[index as usize];
        (chunk.previous, chunk.next) = (NONE, next);
        if let Some(next) = self.chunks.get_mut(next as usize) {
            next.previous = index;
        }
    }

    /// Removes a chunk without free slots, or one that ends, from the list.
    fn close(&mut self, index: u32) {
        let &Chunk { class, previous, next, .. } = &self.chunks[index as usize];
        match self.chunks.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.classes[class as usize].open = next,
        }
        if let Some(next) = self.chunks.get_mut(next as usize) {
            next.previous = previous;
        }
    }
}

/// A word whose lowest `count` bits, at most 64, are set.
fn low_bits(count: u32) -> u64 {
    u64::MAX >> (64 - count.min(64))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{STEPS, config};
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Debug)]
    enum Step {
        AddChunk(u64),
        RemoveChunk(prop::sample::Index),
        Allocate(u64),
        Free(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => (0u64..40).prop_map(Step::AddChunk),
            1 => any::<prop::sample::Index>().prop_map(Step::RemoveChunk),
            9 => (0u64..40).prop_map(Step::Allocate),
            7 => any::<prop::sample::Index>().prop_map(Step::Free),
        ]
    }

    proptest! {
        #![proptest_config(config(256))]

        /// Compares with sets of the free offsets of each class and of the live slots.
        #[test]
        fn slabs_hand_out_what_a_set_of_free_slots_holds(
            slots in prop::sample::select(vec![[1u32, 2, 3], [5, 63, 64], [65, 1, 130]]),
            steps in prop::collection::vec(step(), 0..STEPS),
        ) {
            let classes = [(8, slots[0]), (16, slots[1]), (32, slots[2])].map(|(size, slots)| SlotClass { size, slots });
            let mut slabs = Slabs::new(&classes).unwrap();
            let mut free: [BTreeSet<u64>; 3] = Default::default();
            let mut live: BTreeMap<u64, Slot> = BTreeMap::new();
            let mut chunks: Vec<(ChunkId, u64, usize)> = Vec::new();
            let mut base = 0;
            for step in steps {
                match step {
                    Step::AddChunk(size) => match classes.iter().position(|class| class.size >= size) {
                        None => prop_assert_eq!(
                            slabs.add_chunk(size, base),
                            Err(SlabsError::TooLarge { size, largest: 32 })
                        ),
                        Some(class) => {
                            let length = slabs.chunk_size(size).unwrap();
                            prop_assert_eq!(length, classes[class].size * u64::from(classes[class].slots));
                            chunks.push((slabs.add_chunk(size, base).unwrap(), base, class));
                            free[class].extend((base..base + length).step_by(classes[class].size as usize));
                            base += length + 64;
                        }
                    },
                    Step::RemoveChunk(which) if !chunks.is_empty() => {
                        let at = which.index(chunks.len());
                        let (id, base, class) = chunks[at];
                        let end = base + slabs.chunk_size(classes[class].size).unwrap();
                        let used = live.range(base..end).count() as u32;
                        if used > 0 {
                            prop_assert_eq!(slabs.remove_chunk(id), Err(SlabsError::ChunkInUse(used)));
                        } else {
                            prop_assert_eq!(slabs.remove_chunk(id), Ok(base));
                            prop_assert_eq!(slabs.remove_chunk(id), Err(SlabsError::UnknownChunk));
                            free[class].retain(|offset| !(base..end).contains(offset));
                            chunks.swap_remove(at);
                        }
                    }
                    Step::Allocate(size) => {
                        let class = classes.iter().position(|class| class.size >= size);
                        match slabs.allocate(size) {
                            None => prop_assert!(class.is_none_or(|class| free[class].is_empty())),
                            Some(slot) => {
                                let class = class.unwrap();
                                prop_assert_eq!(slot.size, classes[class].size);
                                prop_assert!(free[class].remove(&slot.offset));
                                live.insert(slot.offset, slot);
                            }
                        }
                    }
                    Step::Free(which) if !live.is_empty() => {
                        let (&offset, &slot) = live.iter().nth(which.index(live.len())).unwrap();
                        live.remove(&offset);
                        let freed = slabs.free(slot.id).unwrap();
                        let &(id, base, class) =
                            chunks.iter().find(|(id, ..)| *id == freed.chunk).unwrap();
                        let end = base + slabs.chunk_size(classes[class].size).unwrap();
                        let chunk_is_empty = live.range(base..end).next().is_none();
                        prop_assert_eq!(freed, FreedSlot { offset, size: slot.size, chunk: id, chunk_is_empty });
                        prop_assert!((base..end).contains(&offset) && free[class].insert(offset));
                        prop_assert_eq!(slabs.free(slot.id), Err(SlabsError::UnknownSlot));
                    }
                    Step::RemoveChunk(_) | Step::Free(_) => {}
                }
                prop_assert_eq!(slabs.used_slots(), live.len());
                prop_assert_eq!(slabs.chunk_count(), chunks.len());
            }
        }
    }

    #[test]
    fn an_id_that_was_freed_is_not_taken_for_the_next_slot_there() {
        let mut slabs = Slabs::new(&[SlotClass { size: 8, slots: 1 }]).unwrap();
        let chunk = slabs.add_chunk(8, 0).unwrap();
        let first = slabs.allocate(8).unwrap();
        slabs.free(first.id).unwrap();
        let second = slabs.allocate(8).unwrap();
        assert_eq!(second.offset, first.offset);
        assert_eq!(slabs.free(first.id), Err(SlabsError::UnknownSlot));
        slabs.free(second.id).unwrap();
        slabs.remove_chunk(chunk).unwrap();
        assert_eq!(slabs.free(second.id), Err(SlabsError::UnknownSlot));
        let third = slabs.add_chunk(8, 64).unwrap();
        assert_eq!(slabs.remove_chunk(chunk), Err(SlabsError::UnknownChunk));
        assert_eq!(slabs.remove_chunk(third), Ok(64));
    }

    #[test]
    fn classes_and_chunks_that_cannot_be_are_refused() {
        let refused = |size, slots| Slabs::new(&[SlotClass { size, slots }]).err();
        for (size, slots) in [(0, 1), (8, 0), (8, 4097), (1 << 60, 16)] {
            assert_eq!(refused(size, slots), Some(SlabsError::Class { size, slots }));
        }
        assert_eq!(refused(1 << 51, 4096), None);
        let class = SlotClass { size: 8, slots: 1 };
        assert_eq!(Slabs::new(&[class, class]).unwrap_err(), SlabsError::Class { size: 8, slots: 1 });
        let mut slabs = Slabs::new(&[class]).unwrap();
        let refused = slabs.add_chunk(8, u64::MAX - 7);
        assert_eq!(refused, Err(SlabsError::Base { base: u64::MAX - 7, size: 8 }));
        assert!(slabs.add_chunk(8, u64::MAX - 8).is_ok());
        assert_eq!(Slabs::new(&[]).unwrap().allocate(1), None);
    }
}
