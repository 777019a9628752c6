//! A lock around what may end streams and events: they are dropped when it has been let go, as their ends call the driver,
//! and maybe a hook.

use core::fmt::Debug;
use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What has streams and events that end.
pub(crate) trait Ending {
    /// What ends.
    type Ended: Debug;

    /// What has ended and is not dropped yet.
    fn ended(&mut self) -> &mut Vec<Self::Ended>;
}

/// A value, locked.
#[derive(Debug)]
pub(crate) struct Locked<'lock, T: Ending> {
    value: MutexGuard<'lock, T>,
    ended: Vec<T::Ended>,
}

impl<'lock, T: Ending> Locked<'lock, T> {
    #[inline]
    pub fn new(mutex: &'lock Mutex<T>) -> Self {
        Self { value: mutex.lock().unwrap_or_else(PoisonError::into_inner), ended: Vec::new() }
    }
}

impl<T: Ending> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Ending> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Ending> Drop for Locked<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // The fields are dropped after this, in their order: the lock is let go first.
        if !self.value.ended().is_empty() {
            self.ended = core::mem::take(self.value.ended());
        }
    }
}
