//! The protocol of a ring's two ends, over any memory. The device's ends in `cudamem/signal.cuh` follow it too.
//!
//! An item is written before the tail covers it, and read before the head frees its slot. An end reads the other's
//! index only when the last value that it read is not enough.

use super::indices::{View, runs};
use crate::Result;
use crate::signal::SignalError;
use core::ops::Range;

/// One side of a ring. Each side writes one line, with its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingSide {
    /// Writes the line with the tail, which the consumer reads.
    Producer,
    /// Writes the line with the head, which the producer reads.
    Consumer,
}

/// The memory of items and indices. Items are bytes here; the ends know their types.
pub(super) trait RingMemory {
    /// The size of an item in bytes.
    fn item_size(&self) -> usize;

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
    unsafe fn write(&self, slots: Range<usize>, items: &[u8]);

    /// Reads items from slots.
    ///
    /// # Safety
    ///
    /// The slots lie within the ring, are as many as the items, and belong to the consumer now.
    unsafe fn read(&self, slots: Range<usize>, items: &mut [u8]);
}

/// One end: its own index, and the other's as last read.
#[derive(Debug)]
pub(super) struct RingEnd<M> {
    pub memory: M,
    view: View,
}

impl<M: RingMemory> RingEnd<M> {
    /// An end of an empty ring, both of whose indices are 0.
    pub fn new(memory: M) -> Self {
        let view = View { own: 0, other: 0, capacity: memory.capacity() };
        Self { memory, view }
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

    /// For the producer: writes as many of `count` items as have room, and publishes them at once. Returns their
    /// number.
    #[inline]
    pub fn push(&mut self, call: &'static str, items: &[u8], count: usize) -> Result<usize> {
        let wanted = u32::try_from(count).unwrap_or(u32::MAX).min(self.view.capacity);
        let count = self.room(call, wanted)?.min(wanted);
        if count == 0 {
            return Ok(0);
        }
        let (mut rest, item_size) = (items, self.memory.item_size());
        for slots in runs(self.view.own, count, self.view.capacity) {
            let (run, others) = rest.split_at(slots.len() * item_size);
            // SAFETY: the slots are free, because the consumer has published that it read them. The run has as many
            // items.
            unsafe { self.memory.write(slots, run) };
            rest = others;
        }
        self.view.own = self.view.own.wrapping_add(count);
        self.memory.publish(RingSide::Producer, self.view.own);
        Ok(count as usize)
    }

    /// For the consumer: reads up to `count` items, as many as the ring has, and frees their slots at once. Returns
    /// their number.
    #[inline]
    pub fn pop(&mut self, call: &'static str, items: &mut [u8], count: usize) -> Result<usize> {
        let wanted = u32::try_from(count).unwrap_or(u32::MAX).min(self.view.capacity);
        let count = self.filled(call, wanted)?.min(wanted);
        if count == 0 {
            return Ok(0);
        }
        let (mut rest, item_size) = (items, self.memory.item_size());
        for slots in runs(self.view.own, count, self.view.capacity) {
            let (run, others) = rest.split_at_mut(slots.len() * item_size);
            // SAFETY: the slots are filled, because the producer has published that it wrote them. The run has as many
            // items.
            unsafe { self.memory.read(slots, run) };
            rest = others;
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
