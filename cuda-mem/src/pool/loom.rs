//! Tests of fronts under every interleaving of threads, and every value that a load may return. Compiles the sources of
//! fronts a second time, over loom's primitives.

#![allow(clippy::duplicate_mod, reason = "the same sources over other primitives")]

mod sync {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub use loom::thread::yield_now;
}

#[allow(dead_code, reason = "the tests use only what several threads use")]
#[path = "front.rs"]
mod front;
#[path = "try_lock.rs"]
mod try_lock;

use crate::memory::resource::Block;
use front::{Freed, Fronts, Sum, Tally};
use loom::sync::{Arc, Mutex};
use loom::thread;
use try_lock::TryLock;

#[test]
fn a_gate_lets_one_thread_in_and_shows_it_what_the_last_one_did() {
    loom::model(|| {
        let gate = Arc::new(TryLock::new(0));
        let worker = || {
            let gate = gate.clone();
            thread::spawn(move || match gate.try_enter() {
                Some(mut inside) => *inside += 1,
                None => *gate.enter() += 1,
            })
        };
        for thread in [worker(), worker()] {
            thread.join().expect("no thread panics");
        }
        assert_eq!(*gate.enter(), 2);
    });
}

/// A pool with one front and a heap of whole blocks, used as in the real pool.
struct Pool {
    fronts: Fronts<char>,
    heap: Mutex<Vec<Block>>,
}

impl Pool {
    fn allocate(&self) -> Option<Block> {
        let found = self.fronts.take(0, &'a', 0, 1);
        found.or_else(|| {
            let mut heap = self.heap.lock().expect("no thread panics");
            heap.pop().or_else(|| {
                self.drain_to(&mut heap);
                heap.pop()
            })
        })
    }

    fn free(&self, block: Block) {
        match self.fronts.keep(0, &'a', 0, 1, block) {
            Freed::Kept => {}
            Freed::Spilled(spill) => {
                self.heap.lock().expect("no thread panics").extend(spill.into_iter().flat_map(|(_, blocks)| blocks));
            }
            Freed::Busy => self.heap.lock().expect("no thread panics").push(block),
        }
    }

    fn drain_to(&self, heap: &mut Vec<Block>) {
        heap.extend(self.fronts.drain().flatten().flat_map(|(_, blocks)| blocks));
    }
}

#[test]
fn threads_that_share_a_front_lose_no_block_and_get_none_twice() {
    // Three threads have too many interleavings to try all. Three preemptions find all known bugs.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        // Two blocks. A front that has both is full, and gives one up.
        let heap = Mutex::new(vec![Block::device(1, 100), Block::device(2, 100)]);
        let pool = Arc::new(Pool { fronts: Fronts::new(1, 150), heap });
        let owners = Arc::new([Mutex::new(()), Mutex::new(())]);
        let worker = || {
            let (pool, owners) = (pool.clone(), owners.clone());
            thread::spawn(move || {
                if let Some(block) = pool.allocate() {
                    let alone = owners[block.device_pointer as usize - 1].try_lock();
                    drop(alone.expect("nobody else has the block"));
                    pool.free(block);
                }
            })
        };
        let threads = [worker(), worker()];
        let mut held: Vec<Block> = pool.allocate().into_iter().collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        held.append(&mut pool.heap.lock().expect("no thread panics"));
        pool.drain_to(&mut held);
        held.sort_by_key(|block| block.device_pointer);
        assert_eq!(held, [Block::device(1, 100), Block::device(2, 100)]);
    });
}

#[test]
fn counts_are_right_when_the_threads_are_done_and_never_more_is_freed_than_allocated() {
    loom::model(|| {
        let fronts = Arc::new(Fronts::new(1, 1000));
        assert_eq!(fronts.keep(0, &'a', 0, 100, Block::device(1, 256)), Freed::Kept);
        let worker = || {
            let fronts = fronts.clone();
            thread::spawn(move || {
                let Some(block) = fronts.take(0, &'a', 0, 100) else { return 0 };
                while let Freed::Busy = fronts.keep(0, &'a', 0, 100, block) {
                    thread::yield_now();
                }
                1
            })
        };
        let threads = [worker(), worker()];
        let taken: u64 = threads.map(|thread| thread.join().expect("no thread panics")).iter().sum();
        let sums: Vec<_> = fronts.tallies().map(Tally::sums).collect();
        let sum = |blocks: u64| Sum { requested: 100 * blocks, bytes: 256 * blocks, blocks };
        assert_eq!(sums, [(sum(taken), sum(taken + 1))]);
    });
}
