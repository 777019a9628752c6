//! The planned panics of the soak. Their payloads panic again when they are dropped.

use cuda_mem::DropError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The text of a planned panic.
pub const TEXT: &str = "the soak's panic";

/// A payload whose drop panics, with this many further panics nested inside it.
#[derive(Debug)]
pub struct Payload(pub u32);

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(rest) = self.0.checked_sub(1)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(Box::new(Payload(rest)));
        }
    }
}

/// Panics with a text, or sometimes with a payload that panics too. Prints nothing.
pub fn panic_now(choice: usize) -> ! {
    match choice % 3 {
        0 => std::panic::resume_unwind(Box::new(TEXT)),
        1 => std::panic::resume_unwind(Box::new(TEXT.to_owned())),
        _ => std::panic::resume_unwind(Box::new(Payload(choice as u32 % 5))),
    }
}

/// Whether an error reports a planned panic. No other function of the soak panics.
pub fn is_planned(error: &DropError) -> bool {
    error.to_string().contains("panicked")
}

/// Panics in every third call, to test how panics of drop error hooks are handled.
pub fn panic_at_times(error: &DropError) {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    // Do not panic again because of the hook's own panic.
    if number.is_multiple_of(3) && !error.to_string().contains("hook") {
        panic_now(number);
    }
}
