//! The locks of objects.
//!
//! What is due to the program's functions while such a lock is held, as the function for drop errors, waits until the
//! lock is free. Debug builds check that nothing else of the program runs, and nothing waits, under a [`Mutex`].

use core::ops::{Deref, DerefMut};
use cuda_mem::Reports;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard};

/// The guard of a lock.
#[derive(Debug)]
pub struct Guard<G> {
    guard: G,
    /// Dropped when the lock is free.
    _reports: Reports,
}

impl<G> Guard<G> {
    #[inline]
    fn of(lock: impl FnOnce() -> G) -> Self {
        let reports = Reports::wait();
        Self { guard: lock(), _reports: reports }
    }
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

/// A lock that is held for a moment.
#[derive(Debug, Default)]
pub struct Mutex<T>(cuda_mem::locks::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(cuda_mem::locks::Mutex::new(value))
    }

    #[track_caller]
    pub fn lock(&self) -> Guard<cuda_mem::locks::MutexGuard<'_, T>> {
        Guard::of(|| self.0.lock())
    }
}

/// A lock whose holder may wait for work: growth, the first copy between two devices, or what a turn is taken for.
#[derive(Debug, Default)]
pub struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    #[inline]
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, T>> {
        Guard::of(|| self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    #[inline]
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, T>> {
        Guard::of(|| self.0.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
