//! The locks of objects.
//!
//! What is due to the program's functions while such a lock is held, as the function for drop errors, waits until the
//! lock is free. Debug builds check that nothing else of the program runs, and nothing waits, under a [`Mutex`].

use core::ops::{Deref, DerefMut};
use cuda_mem::locks::{Held, Kind};
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

pub use cuda_mem::locks::Mutex;

/// The guard of a [`RwLock`].
#[derive(Debug)]
pub struct Guard<G> {
    guard: G,
    /// Dropped when the lock is free.
    _held: Held,
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A lock whose holder may wait for work: growth, the first copy between two devices, or what a turn is taken for.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    #[inline]
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, T>> {
        let guard = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Guard { guard, _held: Held::new(Kind::Turn) }
    }

    /// Waits until nobody reads or writes.
    #[inline]
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, T>> {
        let guard = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Guard { guard, _held: Held::new(Kind::Turn) }
    }

    /// The value, which nobody else uses.
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
