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

use super::sync::{AtomicU64, Ordering, UnsafeCell, fence};
use core::mem::MaybeUninit;

/// Lookups may find the value. The bits above hold the generation.
const OPEN: u64 = 1 << 31;
/// This generation has, or had, a value. The bits below count its users.
const MADE: u64 = 1 << 30;
const USES: u64 = MADE - 1;

#[derive(Debug)]
pub struct Slot<T> {
    state: AtomicU64,
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

    /// Begins a use, unless the slot has no value of that generation. After `true` the caller may call
    /// [`value`](Self::value), and must call [`leave`](Self::leave).
    #[inline]
    pub fn enter(&self, generation: u32) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while (state >> 32) as u32 == generation && state & OPEN != 0 {
            match self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
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
    /// The caller has entered, and leaves once.
    #[inline]
    pub unsafe fn leave(&self) -> bool {
        let before = self.state.fetch_sub(1, Ordering::Release);
        if before & (OPEN | USES) != 1 {
            return false;
        }
        // Other threads' uses of the value happen before its end.
        fence(Ordering::Acquire);
        true
    }

    /// Hides the value, so that no further use begins.
    #[inline]
    pub fn close(&self, generation: u32) -> Closed {
        let mut state = self.state.load(Ordering::Relaxed);
        while (state >> 32) as u32 == generation && state & OPEN != 0 {
            match self.state.compare_exchange_weak(state, state & !OPEN, Ordering::Acquire, Ordering::Relaxed) {
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
        self.state.store(u64::from(self.generation()) << 32 | MADE | OPEN, Ordering::Release);
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
