//! Rings over heap memory: random pushes and pops from any start of the indices, compared with a queue.

use super::indices::MOST_ITEMS;
use super::protocol::{RingEnd, RingMemory, RingSide};
use crate::signal::SignalError;
use crate::{Error, Result};
use core::cell::UnsafeCell;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

/// The calls that errors name.
const PUSH: &str = "Producer::push";
const POP: &str = "Consumer::pop";

/// A ring in heap memory.
struct Heap {
    items: Box<[UnsafeCell<u64>]>,
    indices: [AtomicU32; 2],
    closed: [AtomicBool; 2],
}

// SAFETY: only the protocol under test accesses the cells, and Miri checks it.
unsafe impl Sync for Heap {}

impl Heap {
    fn new(capacity: u32, start: u32) -> Arc<Self> {
        let items = (0..capacity).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self {
            items,
            indices: [const { AtomicU32::new(0) }; 2].map(|_| AtomicU32::new(start)),
            closed: Default::default(),
        })
    }
}

impl RingMemory for Arc<Heap> {
    fn item_size(&self) -> usize {
        size_of::<u64>()
    }

    fn capacity(&self) -> u32 {
        self.items.len() as u32
    }

    fn index(&self, of: RingSide) -> u32 {
        self.indices[of as usize].load(Ordering::Acquire)
    }

    fn publish(&self, of: RingSide, index: u32) {
        self.indices[of as usize].store(index, Ordering::Release);
    }

    fn is_closed(&self, side: RingSide) -> bool {
        self.closed[side as usize].load(Ordering::Acquire)
    }

    fn close(&self, side: RingSide) {
        self.closed[side as usize].store(true, Ordering::Release);
    }

    unsafe fn write(&self, slots: Range<usize>, items: &[u8]) {
        for (cell, item) in self.items[slots].iter().zip(bytemuck::cast_slice::<_, u64>(items)) {
            // SAFETY: the slots are the producer's.
            unsafe { *cell.get() = *item };
        }
    }

    unsafe fn read(&self, slots: Range<usize>, items: &mut [u8]) {
        for (cell, item) in self.items[slots].iter().zip(bytemuck::cast_slice_mut::<_, u64>(items)) {
            // SAFETY: the slots are the consumer's.
            *item = unsafe { *cell.get() };
        }
    }
}

fn ends(capacity: u32, start: u32) -> (RingEnd<Arc<Heap>>, RingEnd<Arc<Heap>>) {
    let heap = Heap::new(capacity, start);
    let (mut producer, mut consumer) = (RingEnd::new(heap.clone()), RingEnd::new(heap));
    producer.restart(start);
    consumer.restart(start);
    (producer, consumer)
}

fn push(producer: &mut RingEnd<Arc<Heap>>, items: &[u64]) -> Result<usize> {
    producer.push(PUSH, bytemuck::cast_slice(items), items.len())
}

fn pop(consumer: &mut RingEnd<Arc<Heap>>, items: &mut [u64]) -> Result<usize> {
    let count = items.len();
    consumer.pop(POP, bytemuck::cast_slice_mut(items), count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Pushes and pops of any number, from any start of the indices, give what a queue of that capacity gives.
    #[test]
    fn a_ring_is_a_queue(
        log in 0u32..6,
        start: u32,
        near_the_end: bool,
        steps in prop::collection::vec((any::<bool>(), 0usize..80), 0..if cfg!(miri) { 20 } else { 200 }),
    ) {
        let capacity = 1 << log;
        let start = if near_the_end { u32::MAX - start % 100 } else { start };
        let (mut producer, mut consumer) = ends(capacity, start);
        let (mut model, mut next) = (VecDeque::new(), 0);
        for (pushes, count) in steps {
            if pushes {
                let items: Vec<u64> = (next..next + count as u64).collect();
                let expected = count.min(capacity as usize - model.len());
                prop_assert_eq!(push(&mut producer, &items), Ok(expected));
                model.extend(&items[..expected]);
                next += expected as u64;
            } else {
                let mut items = vec![u64::MAX; count];
                let expected: Vec<u64> = model.drain(..count.min(model.len())).collect();
                prop_assert_eq!(pop(&mut consumer, &mut items), Ok(expected.len()));
                prop_assert_eq!(&items[..expected.len()], &expected);
                prop_assert!(items[expected.len()..].iter().all(|item| *item == u64::MAX));
            }
            prop_assert_eq!(producer.room(PUSH, u32::MAX), Ok(capacity - model.len() as u32));
            prop_assert_eq!(consumer.filled(POP, u32::MAX), Ok(model.len() as u32));
        }
    }
}

#[test]
fn two_threads_pass_every_item_once_and_in_order() {
    let count = if cfg!(miri) { 80 } else { 100_000 };
    for capacity in [1, 2, 64] {
        let (mut producer, mut consumer) = ends(capacity, u32::MAX - 50);
        let sender = std::thread::spawn(move || {
            let mut next = 0;
            while next < count {
                let items: Vec<u64> = (next..count.min(next + 7)).collect();
                next += push(&mut producer, &items).unwrap() as u64;
                std::thread::yield_now();
            }
        });
        let mut next = 0;
        while next < count {
            let mut items = [0; 5];
            let popped = pop(&mut consumer, &mut items).unwrap();
            for item in &items[..popped] {
                assert_eq!(*item, next);
                next += 1;
            }
            std::thread::yield_now();
        }
        sender.join().unwrap();
        assert_eq!(pop(&mut consumer, &mut [0]), Ok(0));
    }
}

#[test]
fn an_index_that_cannot_be_is_an_error_and_nothing_is_read() -> Result<()> {
    let (mut producer, mut consumer) = ends(4, 10);
    push(&mut producer, &[1, 2, 3])?;
    consumer.memory.publish(RingSide::Producer, 15);
    let mut items = [7; 4];
    match pop(&mut consumer, &mut items) {
        Err(Error::Signal(error)) => {
            let expected = SignalError::OutOfStep { call: POP, own: 10, other: 15, capacity: 4 };
            assert_eq!((*error, items), (expected, [7; 4]));
        }
        other => panic!("{other:?}"),
    }
    producer.memory.publish(RingSide::Consumer, 14);
    let text = push(&mut producer, &[4, 5]).unwrap_err().to_string();
    assert!(text.starts_with("Producer::push: the other end's index is 14"), "{text}");
    Ok(())
}

#[test]
fn the_largest_ring_tells_full_from_empty() {
    use super::indices::View;
    let view = |own, other| View { own, other, capacity: MOST_ITEMS };
    assert_eq!((view(5, 5).room(), view(5u32.wrapping_add(MOST_ITEMS), 5).room()), (Some(MOST_ITEMS), Some(0)));
}
