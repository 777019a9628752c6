//! Values that a call of Python ends before their object ends.

use crate::error::{Failure, Outcome, raise};
use core::ops::Deref;
use pyo3::prelude::*;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// A value, or None before it is made and when it is closed.
///
/// The lock is only tried: a thread may wait for the GIL with it.
pub struct Closable<T>(RwLock<Option<T>>);

/// A use of an open value. Nobody closes it meanwhile.
pub struct Open<'value, T>(RwLockReadGuard<'value, Option<T>>);

/// Why a value cannot be used.
pub enum NotOpen {
    Closed,
    Closing,
}

impl NotOpen {
    /// The exception for an object with this name.
    #[cold]
    pub fn of(self, name: &str) -> Failure {
        let text = match self {
            // Programs of cuda.core look for the words "... has been closed".
            Self::Closed => format!("the {name} has been closed: make another one"),
            Self::Closing => format!("another thread closes the {name}, so it cannot be used any more"),
        };
        raise("ClosedError", text, None)
    }
}

impl<T> Deref for Open<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &*self.0 {
            Some(value) => value,
            None => unreachable!("checked when this was made"),
        }
    }
}

impl<T> From<T> for Closable<T> {
    #[inline]
    fn from(value: T) -> Self {
        Self(RwLock::new(Some(value)))
    }
}

impl<T> Closable<T> {
    /// No value yet.
    pub fn empty() -> Self {
        Self(RwLock::new(None))
    }

    /// The value, if it is open.
    #[inline]
    pub fn read(&self) -> Result<Open<'_, T>, NotOpen> {
        let value = match self.0.try_read() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(NotOpen::Closing),
        };
        if value.is_some() { Ok(Open(value)) } else { Err(NotOpen::Closed) }
    }

    /// The value of an object with this name, or an exception.
    #[inline]
    pub fn open(&self, name: &str) -> Outcome<Open<'_, T>> {
        self.read().map_err(|why| why.of(name))
    }

    /// The place of the value, for a call that changes it. An exception if another thread uses the value.
    pub fn change(&self, call: &str) -> Outcome<RwLockWriteGuard<'_, Option<T>>> {
        match self.0.try_write() {
            Ok(place) => Ok(place),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let text = format!("{call}: another thread uses the object: wait until its call is done");
                Err(raise("SharedError", text, None))
            }
        }
    }

    /// Ends the value without the GIL.
    pub fn close(&self, py: Python<'_>, call: &str) -> Outcome
    where
        T: Send,
    {
        let taken = self.change(call)?.take();
        py.detach(|| drop(taken));
        Ok(())
    }

    /// Gives a value back that this thread has taken: others who have the lock see none, and give the lock back at once.
    pub fn put_back(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        matches!(self.read(), Err(NotOpen::Closed))
    }

    /// The value, for the drop of the object.
    pub fn end(&mut self) -> Option<T> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }
}
