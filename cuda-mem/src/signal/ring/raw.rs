//! A ring's memory, which CPU and device share.

use super::layout::{Layout, RingDescriptor};
use super::protocol::{RingMemory, RingSide};
use crate::Stream;
use crate::cpu::host_copy;
use crate::signal::base::{Kind, Signal};
use crate::signal::memory::SignalLines;
use crate::signal::uses::UseKind;
use crate::signal::{Placement, Signals};
use core::fmt;
use core::ops::{Deref, Range};
use std::sync::Arc;

/// The memory of both sides, as the layout divides it. Its drop ends the ring.
pub(super) struct RawMemory {
    sides: Sides,
    pub signals: Signals,
}

/// Both sides. Clones are the same ring, and do not end it.
#[derive(Clone)]
pub(super) struct Sides {
    pub state: Arc<Signal>,
    consumer: SignalLines,
    producer: SignalLines,
    layout: Layout,
}

/// The CPU's end of a ring, for threads that neither push nor pop. Another thread may wait at the end meanwhile.
#[doc(hidden)]
pub struct RingHandle {
    sides: Sides,
    own: RingSide,
}

/// As the functions of the ends.
impl RingHandle {
    pub fn record_use(&self, stream: &Stream) {
        self.sides.record_use(stream);
    }

    pub fn set_name(&self, name: &str) {
        self.sides.state.set_name(name);
    }

    pub fn descriptor(&self) -> RingDescriptor {
        self.sides.descriptor()
    }

    pub fn is_closed(&self) -> bool {
        self.sides.is_closed(match self.own {
            RingSide::Producer => RingSide::Consumer,
            RingSide::Consumer => RingSide::Producer,
        })
    }

    pub fn close(&self) {
        self.sides.close(self.own);
    }
}

impl fmt::Debug for RingHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.sides.state, f)
    }
}

impl RawMemory {
    pub fn new(signals: &Signals, layout: Layout, consumer: SignalLines, producer: SignalLines) -> Self {
        let state = Signal::new(Kind::Ring, false, vec![consumer.clone(), producer.clone()], signals.retired());
        Self { sides: Sides { state, consumer, producer, layout }, signals: signals.clone() }
    }

    pub fn handle(&self, own: RingSide) -> RingHandle {
        RingHandle { sides: self.sides.clone(), own }
    }
}

impl Deref for RawMemory {
    type Target = Sides;

    #[inline]
    fn deref(&self) -> &Sides {
        &self.sides
    }
}

impl Sides {
    /// The line that a side writes.
    fn line(&self, of: RingSide) -> &SignalLines {
        match of {
            RingSide::Producer => &self.consumer,
            RingSide::Consumer => &self.producer,
        }
    }

    #[inline]
    fn is_closed(&self, side: RingSide) -> bool {
        // SAFETY: the line holds a 32-bit word there.
        unsafe { self.line(side).load::<u32>(RingDescriptor::CLOSED) != 0 }
    }

    fn close(&self, side: RingSide) {
        // SAFETY: as above.
        unsafe { self.line(side).store(RingDescriptor::CLOSED, 1u32) };
    }

    pub fn record_use(&self, stream: &Stream) {
        self.state.note(stream, UseKind::Kernel);
    }

    pub fn set_name(&self, name: &str) {
        self.state.set_name(name);
    }

    pub fn descriptor(&self) -> RingDescriptor {
        RingDescriptor {
            consumer_line: self.consumer.device(0),
            producer_line: self.producer.device(0),
            items: self.consumer.device(Layout::LINE),
            capacity: self.layout.capacity,
            item_size: self.layout.item_size,
        }
    }

    /// The placements of the consumer's and of the producer's memory.
    pub fn placements(&self) -> (Placement, Placement) {
        (self.consumer.placement(), self.producer.placement())
    }

    fn item(&self, slot: usize) -> *mut u8 {
        self.consumer.host(Layout::LINE + slot * self.layout.item_size as usize)
    }
}

impl Drop for RawMemory {
    fn drop(&mut self) {
        self.state.close();
    }
}

impl RingMemory for RawMemory {
    #[inline]
    fn item_size(&self) -> usize {
        self.layout.item_size as usize
    }

    fn capacity(&self) -> u32 {
        self.layout.capacity
    }

    #[inline]
    fn index(&self, of: RingSide) -> u32 {
        // SAFETY: the line holds a 32-bit word there.
        unsafe { self.line(of).load(RingDescriptor::INDEX) }
    }

    #[inline]
    fn publish(&self, of: RingSide, index: u32) {
        // SAFETY: as in `index`.
        unsafe { self.line(of).store(RingDescriptor::INDEX, index) };
    }

    #[inline]
    fn is_closed(&self, side: RingSide) -> bool {
        self.sides.is_closed(side)
    }

    fn close(&self, side: RingSide) {
        self.sides.close(side);
    }

    #[inline]
    unsafe fn write(&self, slots: Range<usize>, items: &[u8]) {
        // SAFETY: the slots lie within the ring, whose items have this size. No reference to their memory exists.
        unsafe { host_copy::store(items.as_ptr(), self.item(slots.start), items.len()) };
    }

    #[inline]
    unsafe fn read(&self, slots: Range<usize>, items: &mut [u8]) {
        // SAFETY: as in `write`.
        unsafe { host_copy::load(self.item(slots.start), items.as_mut_ptr(), items.len()) };
    }
}
