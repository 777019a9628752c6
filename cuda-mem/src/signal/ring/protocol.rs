//! What the two ends of a ring do, over any memory: the device's ends in `cudamem/signal.cuh` do the same.
//!
//! Items come before the tail that covers them, and are read before the head that frees their slots. An end reads the
//! other's index only when what it knows of it does not do.

use super::indices::{View, runs};
use crate::Result;
use crate::signal::SignalError;
use core::marker::PhantomData;
use core::ops::Range;

/// Who writes a line of the ring's memory, and whose index it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Its line holds the tail, where the consumer looks.
    Producer,
    /// Its line holds the head, where the producer looks.
    Consumer,
}

/// Where the items and indices lie.
pub(super) trait RingMemory<T> {
    /// How many items have room; a power of two.
    fn capacity(&self) -> u32;

    /// The index that a side has published. What that side did before it published is seen after this.
    fn index(&self, of: Side) -> u32;

    /// Publishes an index, after all that this thread did before.
    fn publish(&self, of: Side, index: u32);

    /// Whether a side has ended.
    fn is_closed(&self, side: Side) -> bool;

    /// Says that a side ends, after all that this thread did before.
    fn close(&self, side: Side);

    /// Writes the items of some slots.
    ///
    /// # Safety
    ///
    /// The slots lie within the ring, there are as many as items, and they are the producer's at present.
    unsafe fn write(&self, slots: Range<usize>, items: &[T]);

    /// Reads the items of some slots.
    ///
    /// # Safety
    ///
    /// The slots lie within the ring, there are as many as items, and they are the consumer's at present.
    unsafe fn read(&self, slots: Range<usize>, items: &mut [T]);
}

/// One end: its index, and the other's as it was last seen.
#[derive(Debug)]
pub(super) struct End<T, M> {
    pub memory: M,
    view: View,
    item: PhantomData<fn(T) -> T>,
}

impl<T, M: RingMemory<T>> End<T, M> {
    /// An end of a ring that is empty, whose indices are both 0.
    pub fn new(memory: M) -> Self {
        let view = View { own: 0, other: 0, capacity: memory.capacity() };
        Self { memory, view, item: PhantomData }
    }

    /// Sets both indices of a ring that is empty.
    pub fn restart(&mut self, position: u32) {
        (self.view.own, self.view.other) = (position, position);
    }

    fn out_of_step(&self, call: &'static str) -> SignalError {
        let View { own, other, capacity } = self.view;
        SignalError::OutOfStep { call, own, other, capacity }
    }

    /// For the producer: how many items have room. The head is read again where the last one leaves too little.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> Result<u32> {
        if let Some(room) = self.view.room().filter(|room| *room >= wanted) {
            return Ok(room);
        }
        self.view.other = self.memory.index(Side::Consumer);
        self.view.room().ok_or_else(|| self.out_of_step("Producer::push").into())
    }

    /// For the consumer: how many items are there. The tail is read again where the last one tells of too few.
    #[inline]
    pub fn filled(&mut self, wanted: u32) -> Result<u32> {
        if let Some(filled) = self.view.filled().filter(|filled| *filled >= wanted) {
            return Ok(filled);
        }
        self.view.other = self.memory.index(Side::Producer);
        self.view.filled().ok_or_else(|| self.out_of_step("Consumer::pop").into())
    }

    /// For the producer: writes as many items as have room, and publishes them at once. Gives how many.
    #[inline]
    pub fn push(&mut self, items: &[T]) -> Result<usize> {
        self.push_with(items.len(), |memory, slots, first| {
            let run = &items[first..first + slots.len()];
            // SAFETY: the slots are free, and there are as many as items.
            unsafe { memory.write(slots, run) };
        })
    }

    /// As [`push`](Self::push) of `count` items: `write` gets runs of free slots, and which item is the first of each.
    #[inline]
    pub fn push_with(&mut self, count: usize, mut write: impl FnMut(&M, Range<usize>, usize)) -> Result<usize> {
        let wanted = u32::try_from(count).unwrap_or(u32::MAX).min(self.view.capacity);
        let count = self.room(wanted)?.min(wanted);
        if count == 0 {
            return Ok(0);
        }
        let mut first = 0;
        for slots in runs(self.view.own, count, self.view.capacity) {
            // The slots are free: the consumer published that it has read them.
            let next = first + slots.len();
            write(&self.memory, slots, first);
            first = next;
        }
        self.view.own = self.view.own.wrapping_add(count);
        self.memory.publish(Side::Producer, self.view.own);
        Ok(count as usize)
    }

    /// For the consumer: reads as many items as are there, and frees their slots at once. Gives how many.
    #[inline]
    pub fn pop(&mut self, items: &mut [T]) -> Result<usize> {
        self.pop_with(items.len(), |memory, slots, first| {
            let run = &mut items[first..first + slots.len()];
            // SAFETY: the slots are filled, and there are as many as items.
            unsafe { memory.read(slots, run) };
        })
    }

    /// As [`pop`](Self::pop) of at most `count` items: `read` gets runs of filled slots, and which item is the first of each.
    #[inline]
    pub fn pop_with(&mut self, count: usize, mut read: impl FnMut(&M, Range<usize>, usize)) -> Result<usize> {
        let wanted = u32::try_from(count).unwrap_or(u32::MAX).min(self.view.capacity);
        let count = self.filled(wanted)?.min(wanted);
        if count == 0 {
            return Ok(0);
        }
        let mut first = 0;
        for slots in runs(self.view.own, count, self.view.capacity) {
            // The slots are filled: the producer published that it has written them.
            let next = first + slots.len();
            read(&self.memory, slots, first);
            first = next;
        }
        self.view.own = self.view.own.wrapping_add(count);
        self.memory.publish(Side::Consumer, self.view.own);
        Ok(count as usize)
    }

    /// This end's index: how many items have passed it, wrapped around.
    pub fn position(&self) -> u32 {
        self.view.own
    }
}
