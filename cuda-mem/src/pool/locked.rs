//! A lock that drops streams and events after its release, because their drops call the driver, and perhaps a hook.

use crate::locks::{Mutex, MutexGuard};
use core::fmt::Debug;
use core::ops::{Deref, DerefMut};

/// A value that collects the streams and events that it no longer needs.
pub(crate) trait Ending {
    /// Type of a collected value.
    type Ended: Debug;

    /// The collected values, which are not dropped yet.
    fn ended(&mut self) -> &mut Vec<Self::Ended>;
}

/// A locked value.
#[derive(Debug)]
pub(crate) struct Locked<'lock, T: Ending> {
    value: MutexGuard<'lock, T>,
    ended: Vec<T::Ended>,
}

impl<'lock, T: Ending> Locked<'lock, T> {
    #[inline]
    pub fn new(mutex: &'lock Mutex<T>) -> Self {
        Self { value: mutex.lock(), ended: Vec::new() }
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
        // The fields are dropped after this, in order: the lock is released first.
        if !self.value.ended().is_empty() {
            self.ended = core::mem::take(self.value.ended());
        }
    }
}
