//! The calling thread's last failure.

use core::ffi::{CStr, c_char};
use core::ptr;
use std::cell::{Cell, RefCell};
use std::ffi::CString;

struct LastFailure {
    driver_code: i32,
    text: Option<CString>,
}

/// The last failure of a thread whose other thread-local data is already gone: in `atexit` functions, and in
/// destructors of thread-local data.
#[derive(Clone, Copy)]
struct LateFailure {
    driver_code: i32,
    text: [c_char; 512],
}

thread_local! {
    static LAST: RefCell<LastFailure> =
        const { RefCell::new(LastFailure { driver_code: 0, text: None }) };
    /// Has no destructor, so it stays valid until the thread's memory is freed.
    static LATE: Cell<LateFailure> =
        const { Cell::new(LateFailure { driver_code: 0, text: [0; 512] }) };
}

/// Converts a text to a C string. Zero bytes within it are removed.
pub fn c_text(mut text: String) -> CString {
    text.retain(|letter| letter != '\0');
    CString::new(text).unwrap_or_default()
}

/// Copies a text into a field. The field ends with a zero, even if the text was cut off.
pub fn text_field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    let most = text.len().min(N - 1);
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    for (place, byte) in field.iter_mut().zip(text[..end].bytes()) {
        *place = byte as c_char;
    }
    field
}

/// Stores a failure, and passes its text to `report`, which calls the program's function.
pub fn set(driver_code: i32, text: String, report: impl FnOnce(&CStr)) {
    let text = c_text(text);
    // Stored twice, because the function may read the last failure and may fail itself. Nothing is borrowed meanwhile.
    keep(driver_code, text.clone());
    report(&text);
    keep(driver_code, text);
}

fn keep(driver_code: i32, text: CString) {
    if LAST.try_with(|_| ()).is_err() {
        LATE.set(LateFailure { driver_code, text: text_field(&text.to_string_lossy()) });
        return;
    }
    LAST.with(|last| last.replace(LastFailure { driver_code, text: Some(text) }));
}

pub fn last_text() -> *const c_char {
    let late = |late: &Cell<LateFailure>| match late.get().text[0] {
        0 => ptr::null(),
        // SAFETY: the cell lives as long as the thread.
        _ => unsafe { (&raw const (*late.as_ptr()).text).cast() },
    };
    LAST.try_with(|last| last.borrow().text.as_ref().map_or(ptr::null(), |text| text.as_ptr()))
        .unwrap_or_else(|_| LATE.with(late))
}

pub fn last_driver_code() -> i32 {
    LAST.try_with(|last| last.borrow().driver_code).unwrap_or_else(|_| LATE.get().driver_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field<const N: usize>(text: &str) -> [u8; N] {
        text_field::<N>(text).map(|letter| letter as u8)
    }

    #[test]
    fn fields_end_with_a_zero_and_with_a_whole_character() {
        assert_eq!(field("abc"), *b"abc\0");
        assert_eq!(field("abcd"), *b"abc\0");
        assert_eq!(field("abé"), *b"ab\0\0");
        assert_eq!(field("a"), [0]);
    }

    #[test]
    fn a_thread_that_ends_still_learns_of_failures() {
        /// Was made before the thread's last failure, so it ends after it.
        struct Older;
        impl Drop for Older {
            fn drop(&mut self) {
                assert!(LAST.try_with(|_| ()).is_err(), "this is to run late");
                set(3, "wörds".to_owned(), |_| ());
                assert_eq!(last_driver_code(), 3);
                // SAFETY: the text belongs to this thread.
                assert_eq!(unsafe { CStr::from_ptr(last_text()) }.to_str(), Ok("wörds"));
                SEEN.set(()).expect("this is the only one");
            }
        }
        static SEEN: std::sync::OnceLock<()> = std::sync::OnceLock::new();
        thread_local! { static OLDER: Older = const { Older }; }
        let thread = std::thread::spawn(|| {
            OLDER.with(|_| ());
            set(2, "before".to_owned(), |_| ());
        });
        thread.join().expect("it fails in no way");
        assert_eq!(SEEN.get(), Some(&()));
    }
}
