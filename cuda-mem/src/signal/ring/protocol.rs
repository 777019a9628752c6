//! The protocol of a ring's two ends, over any memory. The device's ends in `cudamem/signal.cuh` follow it too.
//!
//! An item is written before the tail covers it, and read before the head frees its slot. An end reads the other's
//! index only when the last value that it read is not enough.

use super::indices::{View, runs};
use crate::Result;
use crate::signal::SignalError;
use core::marker::PhantomData;
use core::ops::Range;

/// One side of a ring. Each side writes one line, with its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingSide {
    /// Writes the line with the tail, which the consumer reads.
    Producer,
    /// Writes the line with the head, which the producer reads.
    Consumer,
}

/// The memory of items and indices.
pub(super) trait RingMemory<T> {
    /// Number of items that the ring holds; a power of two.
    fn capacity(&self) -> u32;

    /// The index that a side has published. The caller sees what that side did before.
    fn index(&self, of: RingSide) -> u32;

    /// Publishes an index, after everything that this thread did before.
    fn publish(&self, of: RingSide, index: u32);

    /// Whether a side has closed.
    fn is_closed(&self, side: RingSide) -> bool;

    /// Closes a side, after everything that this thread did before.
    fn close(&self, side: RingSide);

    /// Writes items to slots.
    ///
    /// # Safety
    ///
    /// The slots lie within the ring, are as many as the items, and belong to the producer now.
    unsafe fn write(&self, slots: Range<usize>, items: &[T]);

    /// Reads items from slots.
    ///
    /// # Safety
    ///
    /// The slots lie within the ring, are as many as the items, and belong to the consumer now.
    unsafe fn read(&self, slots: Range<usize>, items: &mut [T]);
}

/// One end: its own index, and the other's as last read.
#[derive(Debug)]
pub(super) struct RingEnd<T, M> {
    pub memory: M,
    view: View,
    item: PhantomData<fn(T) -> T>,
}

impl<T, M: RingMemory<T>> RingEnd<T, M> {
    /// An end of an empty ring, both of whose indices are 0.
    pub fn new(memory: M) -> Self {
        let view = View { own: 0, other: 0, capacity: memory.capacity() };
        Self { memory, view, item: PhantomData }
    }

    /// Sets both indices of an empty ring.
    pub fn restart(&mut self, position: u32) {
        (self.view.own, self.view.other) = (position, position);
    }

    fn out_of_step(&self, call: &'static str) -> SignalError {
        let View { own, other, capacity } = self.view;
        SignalError::OutOfStep { call, own, other, capacity }
    }

    /// For the producer: the number of items that have room. Reads the head again if the last value leaves too little
    /// room.
    #[inline]
    pub fn room(&mut self, call: &'static str, wanted: u32) -> Result<u32> {
        if let Some(room) = self.view.room().filter(|room| *room >= wanted) {
            return Ok(room);
        }
        self.view.other = self.memory.index(RingSide::Consumer);
        self.view.room().ok_or_else(|| self.out_of_step(call).into())
    }

    /// For the consumer: the number of items in the ring. Reads the tail again if the last value leaves too few items.
    #[inline]
    pub fn filled(&mut self, call: &'static str, wanted: u32) -> Result<u32> {
        if let Some(filled) = self.view.filled().filter(|filled| *filled >= wanted) {
            return Ok(filled);
        }
        self.view.other = self.memory.index(RingSide::Producer);
        self.view.filled().ok_or_else(|| self.out_of_step(call).into())
    }

    /// For the producer: writes as many items as have room, and publishes them at once. Returns their number.
    #[inline]
    pub fn push(&mut self, call: &'static str, items: &[T]) -> Result<usize> {
        self.push_with(call, items.len(), |memory, slots, first| {
            let run = &items[first..first + slots.len()];
            // SAFETY: the slots are free, and are as many as the items.
            unsafe { memory.write(slots, run) };
        })
    }

    /// For the producer: writes up to `count` items, as many as have room, and publishes them at once. `write` gets
    /// runs of free slots, and the index of each run's first item. Returns the number of items.
    #[inline]
    pub fn push_with(
        &mut self,
        call: &'static str,
        count: usize,
        mut write: impl FnMut(&M, Range<usize>, usize),
    ) -> Result<usize> {
        let wanted = u32::try_from(count).unwrap_or(u32::MAX).min(self.view.capacity);
        let count = self.room(call, wanted)?.min(wanted);
        if count == 0 {
            return Ok(0);
        }
        let mut first = 0;
        for slots in runs(self.view.own, count, self.view.capacity) {
            // The slots are free: the consumer has published that it read them.
            let next = first + slots.len();
            write(&self.memory, slots, first);
            first = next;
        }
        self.view.own = self.view.own.wrapping_add(count);
        self.memory.publish(RingSide::Producer, self.view.own);
        Ok(count as usize)
    }

    /// For the consumer: reads as many items as the ring has, and frees their slots at once. Returns their number.
    #[inline]
    pub fn pop(&mut self, call: &'static str, items: &mut [T]) -> Result<usize> {
        self.pop_with(call, items.len(), |memory, slots, first| {
            let run = &mut items[first..first + slots.len()];
            // SAFETY: the slots are filled, and are as many as the items.
            unsafe { memory.read(slots, run) };
        })
    }

    /// For the consumer: reads up to `count` items, as many as the ring has, and frees their slots at once. `read` gets
    /// runs of filled slots, and the index of each run's first item. Returns the number of items.
    #[inline]
    pub fn pop_with(
        &mut self,
        call: &'static str,
        count: usize,
        mut read: impl FnMut(&M, Range<usize>, usize),
    ) -> Result<usize> {
        let wanted = u32::try_from(count).unwrap_or(u32::MAX).min(self.view.capacity);
        let count = self.filled(call, wanted)?.min(wanted);
        if count == 0 {
            return Ok(0);
        }
        let mut first = 0;
        for slots in runs(self.view.own, count, self.view.capacity) {
            // The slots are filled: the producer has published that it wrote them.
            let next = first + slots.len();
            read(&self.memory, slots, first);
            first = next;
        }
        self.view.own = self.view.own.wrapping_add(count);
        self.memory.publish(RingSide::Consumer, self.view.own);
        Ok(count as usize)
    }

    /// This end's index: the number of items that have passed it, wrapping.
    pub fn position(&self) -> u32 {
        self.view.own
    }
}
