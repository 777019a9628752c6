//! Tests of thread caches under every interleaving of threads, and every value that a load may return. Compiles the
//! sources of thread caches a second time, over loom's primitives.

#![allow(clippy::duplicate_mod, reason = "the same sources over other primitives")]

/// Both halves of the asymmetric fence are whole fences here, which promise the same.
mod sync {
    pub use super::presence::Inside;
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use loom::thread::yield_now;

    use super::presence::{Presence, Words};
    use core::num::NonZeroUsize;
    use loom::sync::atomic::fence;

    loom::lazy_static! {
        static ref PRESENCE: Presence<SLOTS, 1> = Presence::new(core::array::from_fn(|_| Words([AtomicUsize::new(0)])));
    }

    /// No test has more threads.
    pub const SLOTS: usize = 4;

    pub fn prepare_fences() {}

    pub fn light_fence() {
        fence(Ordering::SeqCst);
    }

    pub fn heavy_fence() -> bool {
        fence(Ordering::SeqCst);
        true
    }

    pub fn wait_until_left(number: usize, place: NonZeroUsize) {
        PRESENCE.wait_until_left(number, place);
    }

    /// The thread with this number.
    #[derive(Clone, Copy)]
    pub struct Slot(pub usize);

    impl Slot {
        pub fn number(self) -> usize {
            self.0
        }

        pub fn enter(self, place: NonZeroUsize) -> Option<Inside<'static>> {
            // SAFETY: each thread of a test has another number, or enters no place.
            unsafe { PRESENCE.enter(self.0, place) }
        }
    }
}

#[path = "cache_lock.rs"]
mod cache_lock;
#[allow(dead_code, reason = "the C library looks whether a place was left, and thread caches wait for it")]
#[path = "../cpu/presence.rs"]
mod presence;
#[allow(dead_code, reason = "as above")]
#[path = "tally.rs"]
mod tally;
#[allow(dead_code, reason = "the tests use only what several threads use")]
#[path = "thread_cache.rs"]
mod thread_cache;

use crate::memory::resource::Block;
use cache_lock::CacheLock;
use loom::sync::{Arc, Mutex};
use loom::thread;
use sync::Slot;
use tally::{Sum, Tally};
use thread_cache::{Freed, Spill, ThreadCaches, WholeBlock};

fn take(caches: &ThreadCaches<char>, thread: Slot, stream: &char, class: usize, requested: usize) -> Option<Block> {
    caches.take(thread, stream, class, requested)
}

/// Keeps a block of a stream as the pool does, and returns what the thread cache gives up. `None` if the thread cache
/// is in use.
fn keep(caches: &ThreadCaches<char>, thread: Slot, block: Block) -> Option<Spill<char>> {
    let whole = WholeBlock { bytes: block.size(), class: 0 };
    match caches.keep(thread, &'a', &block, whole) {
        Freed::Kept => Some(Vec::new()),
        Freed::Full => Some(caches.spill(thread)),
        Freed::NewStream => caches.keep_first(thread, &'a', &block, whole),
        Freed::Busy => None,
    }
}

#[test]
fn a_lock_lets_one_thread_in_and_shows_it_what_the_last_one_did() {
    loom::model(|| {
        let lock = Arc::new(CacheLock::new(0));
        let add = |lock: &CacheLock<i32>, more| {
            let _closed = lock.close();
            let add = |count: &mut i32| {
                *count += more;
                *count
            };
            // SAFETY: closed, and the lock has no owner.
            unsafe { lock.with(add) }
        };
        let worker = || {
            let lock = lock.clone();
            thread::spawn(move || add(&lock, 1))
        };
        for thread in [worker(), worker()] {
            thread.join().expect("no thread panics");
        }
        assert_eq!(add(&lock, 0), 2);
    });
}

#[test]
fn an_owner_and_a_thread_that_empties_its_cache_meet_at_no_time() {
    loom::model(|| {
        let caches = Arc::new(ThreadCaches::new(1, 1, 1000));
        let owner = {
            let caches = caches.clone();
            thread::spawn(move || {
                let kept = keep(&caches, Slot(0), Block::device(1, 100));
                let taken = take(&caches, Slot(0), &'a', 0, 1);
                (kept.is_some(), taken)
            })
        };
        let drained: Vec<Block> = caches.drain().into_iter().flat_map(|(_, blocks)| blocks).collect();
        let (kept, taken) = owner.join().expect("no thread panics");
        let left: Vec<Block> = caches.drain().into_iter().flat_map(|(_, blocks)| blocks).collect();
        let found = drained.len() + usize::from(taken.is_some()) + left.len();
        assert_eq!(found, usize::from(kept));
    });
}

/// A pool with a heap of whole blocks, used as in the real pool.
struct Pool {
    caches: ThreadCaches<char>,
    heap: Mutex<Vec<Block>>,
}

impl Pool {
    fn allocate(&self, thread: Slot) -> Option<Block> {
        let found = take(&self.caches, thread, &'a', 0, 1);
        found.or_else(|| {
            let mut heap = self.heap.lock().expect("no thread panics");
            heap.pop().or_else(|| {
                self.drain_to(&mut heap);
                heap.pop()
            })
        })
    }

    fn free(&self, thread: Slot, block: Block) {
        let spill = keep(&self.caches, thread, block);
        let mut heap = self.heap.lock().expect("no thread panics");
        match spill {
            Some(spill) => heap.extend(spill.into_iter().flat_map(|(_, blocks)| blocks)),
            None => heap.push(block),
        }
    }

    fn drain_to(&self, heap: &mut Vec<Block>) {
        self.caches.empty(|_, blocks| heap.extend(blocks));
    }
}

/// Two threads and the main one allocate and free, with thread caches of their own or not. Nobody loses a block, and
/// nobody gets one that another has.
fn nothing_is_lost(owned: usize) {
    // Three threads have too many interleavings to try all. Three preemptions find all known bugs.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        // Two blocks. A thread cache that has both is full, and gives one up.
        let heap = Mutex::new(vec![Block::device(1, 100), Block::device(2, 100)]);
        let pool = Arc::new(Pool { caches: ThreadCaches::new(owned, 1, 150), heap });
        let owners = Arc::new([Mutex::new(()), Mutex::new(())]);
        let worker = |number| {
            let (pool, owners) = (pool.clone(), owners.clone());
            thread::spawn(move || {
                if let Some(block) = pool.allocate(Slot(number)) {
                    let alone = owners[block.device_pointer() as usize - 1].try_lock();
                    drop(alone.expect("nobody else has the block"));
                    pool.free(Slot(number), block);
                }
            })
        };
        let threads = [worker(0), worker(1)];
        let mut held: Vec<Block> = pool.allocate(Slot(2)).into_iter().collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        held.append(&mut pool.heap.lock().expect("no thread panics"));
        pool.drain_to(&mut held);
        held.sort_by_key(|block| block.device_pointer());
        assert_eq!(held, [Block::device(1, 100), Block::device(2, 100)]);
    });
}

#[test]
fn threads_that_share_a_cache_lose_no_block_and_get_none_twice() {
    nothing_is_lost(0);
}

#[test]
fn an_own_cache_neither_loses_nor_duplicates_a_block() {
    nothing_is_lost(1);
}

#[test]
fn cache_tallies_are_exact_after_threads_and_never_negative() {
    loom::model(|| {
        let caches = Arc::new(ThreadCaches::new(0, 1, 1000));
        assert_eq!(keep(&caches, Slot(0), Block::device(1, 256)), Some(Vec::new()));
        let worker = || {
            let caches = caches.clone();
            thread::spawn(move || {
                let Some(block) = take(&caches, Slot(0), &'a', 0, 256) else { return 0 };
                while keep(&caches, Slot(0), block).is_none() {
                    thread::yield_now();
                }
                1
            })
        };
        let threads = [worker(), worker()];
        let taken: u64 = threads.map(|thread| thread.join().expect("no thread panics")).iter().sum();
        let sums: Vec<_> = caches.tallies().map(Tally::sums).collect();
        let sum = |blocks: u64| Sum { requested: 256 * blocks, bytes: 256 * blocks, blocks };
        assert_eq!(sums, [(sum(taken), sum(taken + 1))]);
    });
}
