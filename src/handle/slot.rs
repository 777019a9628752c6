//! A place for one value at a time, with who may use it in one word: a generation, whether the value may still be found,
//! and how many use it.
//!
//! ```text
//! vacant (g) --open--> open (g, uses) --close--> closed (g, uses) --last leave--> taken (g) --vacate--> vacant (g + 1)
//!                           ^                                                          |
//!                           +--------------------------reopen--------------------------+
//! ```
//!
//! A close beside a use waits for nobody: it hides the value, and who leaves last ends it.

use super::sync::{AtomicU64, Ordering, UnsafeCell, fence};
use core::mem::MaybeUninit;

/// The value may be found. The bits above are the generation.
const OPEN: u64 = 1 << 31;
/// There is, or was, a value of this generation. The bits below count its users.
const MADE: u64 = 1 << 30;
const USES: u64 = MADE - 1;

#[derive(Debug)]
pub struct Slot<T> {
    state: AtomicU64,
    /// There is a value unless the slot is vacant or taken.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: several threads get references to the value (`T: Sync`), and any of them may be the one that ends it (`T: Send`).
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

/// What a close found.
#[derive(Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nobody used the value: the slot is taken by who closed it.
    Taken,
    /// Others use it: the slot is taken by the last one to leave.
    InUse,
    /// There is no value of that generation.
    Gone,
}

/// What is known of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// Its value is there.
    Open,
    /// Its value was destroyed.
    Over,
    /// It is still to come.
    Never,
}

impl<T> Slot<T> {
    /// A vacant slot, whose first value has this generation. It is not 0.
    pub fn new(generation: u32) -> Self {
        let state = AtomicU64::new(u64::from(generation) << 32);
        Self { state, value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    pub fn generation(&self) -> u32 {
        (self.state.load(Ordering::Relaxed) >> 32) as u32
    }

    /// What is known of a generation that is not before the slot's first.
    pub fn past(&self, generation: u32) -> Past {
        let state = self.state.load(Ordering::Relaxed);
        let now = (state >> 32) as u32;
        if generation == now && state & OPEN != 0 {
            Past::Open
        } else if generation == now && state & MADE == 0 || generation > now && now != 0 {
            Past::Never
        } else {
            // After the last generation comes 0.
            Past::Over
        }
    }

    /// Puts a value in, and gives its generation.
    ///
    /// # Safety
    ///
    /// The slot is vacant, and the caller alone may open it.
    #[inline]
    pub unsafe fn open(&self, value: T) -> u32 {
        let generation = self.generation();
        // SAFETY: nobody looks at the value of a slot that is not open.
        self.value.with_mut(|place| unsafe { (*place).write(value) });
        self.state.store(u64::from(generation) << 32 | MADE | OPEN, Ordering::Release);
        generation
    }

    /// Begins a use, unless there is no value of that generation. Whoever has entered may call [`value`](Self::value) and
    /// has to [`leave`](Self::leave).
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

    /// The value.
    ///
    /// # Safety
    ///
    /// The caller has entered, and does not leave while the reference lives.
    #[inline]
    pub unsafe fn value(&self) -> &T {
        // SAFETY: there is a value while somebody has entered, and nobody changes it.
        self.value.with(|place| unsafe { (*place).assume_init_ref() })
    }

    /// Ends a use. Whether the slot is now taken by the caller: it was the last one of a value that was closed meanwhile.
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
        // What other users did with the value comes before its end.
        fence(Ordering::Acquire);
        true
    }

    /// Hides the value: from now on nobody enters.
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

    /// Lends the value of a slot that is taken. It is not moved: it may be large, and its end must be quick.
    ///
    /// # Safety
    ///
    /// The slot is taken, the caller is who took it, and the value was not discarded.
    #[inline]
    pub unsafe fn with_value<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: there is a value, and nobody else reaches it.
        self.value.with_mut(|place| work(unsafe { (*place).assume_init_mut() }))
    }

    /// Drops the value.
    ///
    /// # Safety
    ///
    /// As [`with_value`](Self::with_value).
    #[inline]
    pub unsafe fn discard(&self) {
        // SAFETY: as above; it is not used again.
        self.value.with_mut(|place| unsafe { (*place).assume_init_drop() });
    }

    /// Shows the value again, under the same generation.
    ///
    /// # Safety
    ///
    /// As [`with_value`](Self::with_value).
    pub unsafe fn reopen(&self) {
        self.state.store(u64::from(self.generation()) << 32 | MADE | OPEN, Ordering::Release);
    }

    /// Ends the generation of a slot that is taken. `false` if it was the last one: then the slot must not be opened again,
    /// so that an old handle never fits a new value.
    ///
    /// # Safety
    ///
    /// The slot is taken, and the caller is who took it.
    #[inline]
    pub unsafe fn vacate(&self) -> bool {
        let next = self.generation().wrapping_add(1);
        self.state.store(u64::from(next) << 32, Ordering::Release);
        next != 0
    }
}
