//! What the calling thread's last failure was.

use crate::status::{CUDAMEM_SUCCESS, cudamem_status};
use core::ffi::{CStr, c_char};
use core::ptr;
use std::cell::RefCell;
use std::ffi::CString;

struct Last {
    status: cudamem_status,
    driver_code: i32,
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Last> =
        const { RefCell::new(Last { status: CUDAMEM_SUCCESS, driver_code: 0, text: None }) };
}

/// Text for C, which ends at the first zero byte: there are none within.
pub fn c_text(mut text: String) -> CString {
    text.retain(|letter| letter != '\0');
    CString::new(text).unwrap_or_default()
}

/// Keeps a failure, and lends its text to `report`, which is the program's function.
pub fn set(status: cudamem_status, driver_code: i32, text: String, report: impl FnOnce(&CStr)) {
    let text = c_text(text);
    // Both times: the function may ask for the last failure, and may fail itself. Nothing is borrowed meanwhile.
    keep(status, driver_code, text.clone());
    report(&text);
    keep(status, driver_code, text);
}

fn keep(status: cudamem_status, driver_code: i32, text: CString) {
    // A thread that is ending has no message left to set.
    let _ = LAST.try_with(|last| last.replace(Last { status, driver_code, text: Some(text) }));
}

pub fn last_text() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ref().map_or(ptr::null(), |text| text.as_ptr())).unwrap_or(ptr::null())
}

pub fn last_status() -> cudamem_status {
    LAST.try_with(|last| last.borrow().status).unwrap_or(CUDAMEM_SUCCESS)
}

pub fn last_driver_code() -> i32 {
    LAST.try_with(|last| last.borrow().driver_code).unwrap_or(0)
}
