//! The program's callbacks for failures.

use crate::message::c_text;
use crate::status::{cudamem_status, status_of};
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use cuda_mem::{DropError, DropErrorHook};
use std::cell::Cell;
use std::sync::{Arc, PoisonError, RwLock};

/// A callback for errors. It gets the error's status, its message (valid during the call), and the pointer that the
/// program passed with the function.
pub type Function = extern "C" fn(status: cudamem_status, message: *const c_char, user: *mut c_void);

/// A callback of the program, with the pointer that the program passed with it.
#[derive(Clone, Copy)]
pub struct Callback<F> {
    pub function: F,
    pub user: *mut c_void,
}

// SAFETY: the header requires a function and a pointer for use on any thread.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Callback<F> {}

impl<F: Copy> Callback<F> {
    /// Calls the function. The method takes `self`, because a closure that captured `user` alone would not be `Send`.
    pub fn call<R>(&self, call: impl FnOnce(F, *mut c_void) -> R) -> R {
        call(self.function, self.user)
    }
}

/// A callback that is running on this thread.
struct Running {
    /// The address of the callback's holder.
    holder: *const (),
    /// The callback that was running when this one began.
    outer: *const Running,
}

thread_local! {
    static INNERMOST: Cell<*const Running> = const { Cell::new(ptr::null()) };
}

/// Calls a callback that `holder` holds, unless it already runs on this thread. A callback that makes a failing call
/// would otherwise be called for that failure without end.
pub fn call_once<H, R>(holder: &H, call: impl FnOnce() -> R) -> Option<R> {
    /// Restores the outer callback when the inner one returns or panics.
    struct Outer(*const Running);
    impl Drop for Outer {
        fn drop(&mut self) {
            INNERMOST.set(self.0);
        }
    }

    let holder = ptr::from_ref(holder).cast::<()>();
    let outer = INNERMOST.get();
    let mut place = outer;
    // SAFETY: every entry belongs to a call of this function on this thread that has not returned, further up the
    // stack.
    while let Some(running) = unsafe { place.as_ref() } {
        if running.holder == holder {
            return None;
        }
        place = running.outer;
    }
    let running = Running { holder, outer };
    let _leaves = Outer(outer);
    INNERMOST.set(&raw const running);
    Some(call())
}

/// A callback that the program may set and clear at any time.
pub struct Hook {
    /// Whether a callback is set. Failures without a callback then cost one load.
    set: AtomicBool,
    callback: RwLock<Option<Callback<Function>>>,
}

impl Hook {
    const fn new() -> Self {
        Self { set: AtomicBool::new(false), callback: RwLock::new(None) }
    }

    pub fn set(&self, function: Option<Function>, user: *mut c_void) {
        let mut callback = self.callback.write().unwrap_or_else(PoisonError::into_inner);
        *callback = function.map(|function| Callback { function, user });
        self.set.store(function.is_some(), Ordering::Release);
    }

    fn call(&self, status: cudamem_status, text: impl FnOnce(&mut dyn FnMut(&CStr))) {
        if !self.set.load(Ordering::Acquire) {
            return;
        }
        // The callback runs without the lock, because it may call the library and fail there.
        let callback = *self.callback.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Callback { function, user }) = callback {
            call_once(self, || text(&mut |text| function(status, text.as_ptr(), user)));
        }
    }
}

/// Called for every failure of a function.
pub static LOG: Hook = Hook::new();
/// Called for errors that no function could return.
pub static DROP_ERRORS: Hook = Hook::new();

pub fn log(status: cudamem_status, text: &CStr) {
    LOG.call(status, |tell| tell(text));
}

/// The hook for drop errors of contexts and of the driver.
pub fn drop_error_hook() -> DropErrorHook {
    Arc::new(|error: &DropError| {
        DROP_ERRORS.call(status_of(&error.error), |tell| tell(&c_text(error.to_string())));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callback_guard_refuses_recursion_but_permits_nesting() {
        let (first, second) = (1u8, 2u8);
        for _ in 0..2 {
            let inner =
                call_once(&first, || call_once(&second, || (call_once(&first, || ()), call_once(&second, || ()))));
            assert_eq!(inner, Some(Some((None, None))));
        }
        let _ = std::panic::catch_unwind(|| call_once(&first, || panic!("out of it")));
        assert_eq!(call_once(&first, || 7), Some(7));
    }
}
