//! Checks the ring's protocol under every interleaving of two threads, and every value that their memory may show.

use super::protocol::{RingEnd, RingMemory, RingSide};
use core::ops::Range;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// The calls that errors name.
const PUSH: &str = "Producer::push";
const POP: &str = "Consumer::pop";

/// A ring of two slots over loom's types, with the memory orderings of the real one.
struct Watched {
    items: [UnsafeCell<u32>; 2],
    indices: [AtomicU32; 2],
    closed: [AtomicU32; 2],
}

impl RingMemory for Arc<Watched> {
    fn item_size(&self) -> usize {
        size_of::<u32>()
    }

    fn capacity(&self) -> u32 {
        2
    }

    fn index(&self, of: RingSide) -> u32 {
        self.indices[of as usize].load(Ordering::Acquire)
    }

    fn publish(&self, of: RingSide, index: u32) {
        self.indices[of as usize].store(index, Ordering::Release);
    }

    fn is_closed(&self, side: RingSide) -> bool {
        self.closed[side as usize].load(Ordering::Acquire) != 0
    }

    fn close(&self, side: RingSide) {
        self.closed[side as usize].store(1, Ordering::Release);
    }

    unsafe fn write(&self, slots: Range<usize>, items: &[u8]) {
        for (cell, item) in self.items[slots].iter().zip(bytemuck::cast_slice::<_, u32>(items)) {
            // SAFETY: the slots are the producer's, which loom checks.
            cell.with_mut(|at| unsafe { *at = *item });
        }
    }

    unsafe fn read(&self, slots: Range<usize>, items: &mut [u8]) {
        for (cell, item) in self.items[slots].iter().zip(bytemuck::cast_slice_mut::<_, u32>(items)) {
            // SAFETY: the slots are the consumer's, which loom checks.
            *item = cell.with(|at| unsafe { *at });
        }
    }
}

#[test]
fn ring_delivers_whole_items_in_order_and_drains_after_close() {
    loom::model(|| {
        let start = u32::MAX; // the indices wrap around
        let ring = Arc::new(Watched {
            items: [UnsafeCell::new(0), UnsafeCell::new(0)],
            indices: [AtomicU32::new(start), AtomicU32::new(start)],
            closed: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        let mut producer = RingEnd::new(ring.clone());
        producer.restart(start);
        let sender = thread::spawn(move || {
            let mut next = 1;
            while next <= 3 {
                let items = [next, next + 1];
                let count = (4 - next as usize).min(2);
                match producer.push(PUSH, bytemuck::cast_slice(&items[..count]), count) {
                    Ok(0) => thread::yield_now(),
                    Ok(count) => next += count as u32,
                    Err(error) => panic!("{error}"),
                }
            }
            producer.memory.close(RingSide::Producer);
        });
        let mut consumer = RingEnd::new(ring);
        consumer.restart(start);
        let mut expected = 1;
        loop {
            let closed = consumer.memory.is_closed(RingSide::Producer);
            let mut items = [0; 2];
            let count = consumer.pop(POP, bytemuck::cast_slice_mut(&mut items), 2).expect("the indices fit");
            for item in &items[..count] {
                assert_eq!(*item, expected);
                expected += 1;
            }
            if count == 0 {
                if closed {
                    break;
                }
                thread::yield_now();
            }
        }
        assert_eq!(expected, 4);
        sender.join().expect("no thread panics");
    });
}
