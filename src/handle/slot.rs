//! A place for one value at a time. One word holds the generation, whether lookups may find the value, and how many
//! uses of it are in progress.
//!
//! ```text
//! vacant (g) --open--> open (g, uses) --close--> closed (g, uses) --last leave--> taken (g) --vacate--> vacant (g + 1)
//!                           ^                                                          |
//!                           +--------------------------reopen--------------------------+
//! ```
//!
//! A close never waits for uses: it hides the value, and the last user to leave ends it.
//!
//! The word counts the uses of a new value. Each is two locked operations. After some uses the value is
//! [lasting](super::lasting): its uses take no locked operation, but its end takes more than those of the counted uses.

use super::lasting::Begun;
use super::sync::{AtomicU64, COUNTED, Mutex, Ordering, UnsafeCell, fence};
use core::mem::MaybeUninit;

/// Lookups may find the value. The bits above hold the generation.
pub(super) const OPEN: u64 = 1 << 31;
/// This generation has, or had, a value.
pub(super) const MADE: u64 = 1 << 30;
/// A thread ends the value, which is lasting.
pub(super) const TAKEN: u64 = 1 << 29;
/// The value is lasting, until its generation ends.
pub(super) const LASTING: u64 = 1 << 28;
/// One of the uses until now, which are counted below [`LASTING`] and carry into it.
const BEFORE: u64 = LASTING / COUNTED;
/// Counts the uses in progress.
pub(super) const USES: u64 = (1 << 22) - 1;
const _: () = assert!(COUNTED.is_power_of_two() && BEFORE > USES);

#[derive(Debug)]
pub struct Slot<T> {
    pub(super) state: AtomicU64,
    /// Holds a value unless the slot is vacant or taken.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: several threads get references to the value (`T: Sync`), and any of them may end it (`T: Send`).
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

/// The result of a close.
#[derive(Debug, PartialEq, Eq)]
pub enum Closed {
    /// The value was not in use: the caller has taken the slot.
    Taken,
    /// The value is in use: its last user takes the slot.
    InUse,
    /// The slot has no value of that generation.
    Gone,
}

/// Why no use has begun.
#[derive(Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// The slot has no value of that generation.
    Gone,
    /// The same, and the caller has taken the slot: the thread that closed it left the end of the value to this one.
    Taken,
}

/// The status of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationStatus {
    /// Its value exists.
    Open,
    /// Its value was destroyed.
    Over,
    /// It has not begun.
    Never,
}

impl<T> Slot<T> {
    /// Makes a vacant slot. Its first value gets `generation`, which must not be 0.
    pub fn new(generation: u32) -> Self {
        let state = AtomicU64::new(u64::from(generation) << 32);
        Self { state, value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    pub fn generation(&self) -> u32 {
        (self.state.load(Ordering::Relaxed) >> 32) as u32
    }

    /// The status of a generation that is not before the slot's first.
    pub fn past(&self, generation: u32) -> GenerationStatus {
        let state = self.state.load(Ordering::Relaxed);
        let now = (state >> 32) as u32;
        if generation == now && state & OPEN != 0 {
            GenerationStatus::Open
        } else if generation == now && state & MADE == 0 || generation > now && now != 0 {
            GenerationStatus::Never
        } else {
            // After the last generation the counter is 0.
            GenerationStatus::Over
        }
    }

    /// Stores a value, and returns its generation.
    ///
    /// # Safety
    ///
    /// The slot is vacant, and the caller alone may open it.
    #[inline]
    pub unsafe fn open(&self, value: T) -> u32 {
        let generation = self.generation();
        // SAFETY: no thread reads the value of a slot that is not open.
        self.value.with_mut(|place| unsafe { (*place).write(value) });
        self.state.store(u64::from(generation) << 32 | MADE | OPEN, Ordering::Release);
        generation
    }

    /// Begins a use, unless the slot has no value of that generation. After `Ok` the caller may call
    /// [`value`](Self::value), and must call [`leave`](Self::leave). `taking` is the same in all calls for this slot.
    #[inline]
    pub fn enter(&self, generation: u32, taking: &Mutex<()>) -> Result<Begun, NotBegun> {
        let mut state = self.state.load(Ordering::Relaxed);
        while is_open(state, generation) {
            if state & LASTING != 0 {
                return self.enter_lasting(generation, taking);
            }
            match self.count(state, BEFORE + 1) {
                Ok(()) => return Ok(None),
                Err(now) => state = now,
            }
        }
        Err(NotBegun::Gone)
    }

    /// Adds a use to the word, or returns what the word is now.
    #[inline]
    pub(super) fn count(&self, state: u64, more: u64) -> Result<(), u64> {
        let changed = self.state.compare_exchange_weak(state, state + more, Ordering::Acquire, Ordering::Relaxed);
        changed.map(drop)
    }

    /// Returns the value.
    ///
    /// # Safety
    ///
    /// The caller has entered, and does not leave while the reference lives.
    #[inline]
    pub unsafe fn value(&self) -> &T {
        // SAFETY: the slot holds a value while a thread has entered, and no thread changes it.
        self.value.with(|place| unsafe { (*place).assume_init_ref() })
    }

    /// Ends a use. Returns whether the caller has now taken the slot: the value was closed meanwhile, and this was its
    /// last use.
    ///
    /// # Safety
    ///
    /// The caller has entered this generation, leaves once, and passes what it got.
    #[inline]
    pub unsafe fn leave(&self, begun: Begun, generation: u32, taking: &Mutex<()>) -> bool {
        if begun.is_some() {
            drop(begun);
            return self.look(Some(generation), taking);
        }
        let before = self.state.fetch_sub(1, Ordering::Release);
        if before & (OPEN | USES) != 1 {
            return false;
        }
        if before & LASTING != 0 {
            return self.take(generation, taking);
        }
        // Other threads' uses of the value happen before its end.
        fence(Ordering::Acquire);
        true
    }

    /// Hides the value, so that no further use begins.
    #[inline]
    pub fn close(&self, generation: u32, taking: &Mutex<()>) -> Closed {
        let mut state = self.state.load(Ordering::Relaxed);
        while is_open(state, generation) {
            match self.state.compare_exchange_weak(state, state & !OPEN, Ordering::Acquire, Ordering::Relaxed) {
                Ok(state) if state & LASTING != 0 => {
                    return if self.take(generation, taking) { Closed::Taken } else { Closed::InUse };
                }
                Ok(state) if state & USES == 0 => return Closed::Taken,
                Ok(_) => return Closed::InUse,
                Err(now) => state = now,
            }
        }
        Closed::Gone
    }

    /// Passes the value of a taken slot to a closure. The value stays in place, because it may be large and ending it
    /// must be fast.
    ///
    /// # Safety
    ///
    /// The caller has taken the slot, and has not discarded the value.
    #[inline]
    pub unsafe fn with_value<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the slot holds a value, and no other thread reaches it.
        self.value.with_mut(|place| work(unsafe { (*place).assume_init_mut() }))
    }

    /// Drops the value.
    ///
    /// # Safety
    ///
    /// As [`with_value`](Self::with_value).
    #[inline]
    pub unsafe fn discard(&self) {
        // SAFETY: as above; nothing uses the value afterwards.
        self.value.with_mut(|place| unsafe { (*place).assume_init_drop() });
    }

    /// Makes the value visible again, under the same generation.
    ///
    /// # Safety
    ///
    /// As [`with_value`](Self::with_value).
    pub unsafe fn reopen(&self) {
        let state = self.state.load(Ordering::Relaxed);
        // A lasting value stays so: some threads know it.
        self.state.store(state & !TAKEN | OPEN, Ordering::Release);
    }

    /// Ends the generation of a taken slot. Returns `false` if it was the last one: then the slot must not be opened
    /// again, so that an old handle never fits a new value.
    ///
    /// # Safety
    ///
    /// The caller has taken the slot.
    #[inline]
    pub unsafe fn vacate(&self) -> bool {
        let next = self.generation().wrapping_add(1);
        self.state.store(u64::from(next) << 32, Ordering::Release);
        next != 0
    }
}

#[inline]
pub(super) fn is_open(state: u64, generation: u32) -> bool {
    state >> 31 == u64::from(generation) << 1 | 1
}
