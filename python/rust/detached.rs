//! Values that end without the GIL.

use core::ops::Deref;
use pyo3::prelude::*;

/// A value whose end may wait for work, which may call Python.
pub struct Detached<T: Send>(Option<T>);

impl<T: Send> From<T> for Detached<T> {
    fn from(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => unreachable!("only a drop takes the value"),
        }
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            end(value);
        }
    }
}

/// Drops a value without the GIL.
pub fn end<T: Send>(value: T) {
    // At the end of the process nobody has the GIL, and the value is dropped as it is.
    let _ = Python::try_attach(move |py| py.detach(move || drop(value)));
}
