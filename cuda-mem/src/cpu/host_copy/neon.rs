//! Loads and stores of 64-bit ARM, in whole 64-byte lines, by pairs of 128-bit registers, with the hint that caches
//! need not keep the data. Every access to device memory is aligned to its size, because device mappings allow no
//! other.

use super::{divide, load_words, store_words};
use core::arch::asm;

/// Bytes that one iteration of the loops copies.
pub(super) const LINE: usize = 64;
/// Loads shorter than a line use words.
pub(super) const SHORTEST_LOAD: usize = LINE;

/// Stores whole lines; uses words before and after them.
///
/// # Safety
///
/// As [`super::Stores::store`].
pub(super) unsafe fn store(source: *const u8, destination: *mut u8, length: usize) {
    let (head, lines, body) = divide(destination.addr(), length, LINE);
    // SAFETY: head, lines and tail add up to the length; the lines begin at a multiple of 64.
    unsafe {
        store_words(source, destination, head);
        store_lines(source.add(head), destination.add(head), lines);
        store_words(source.add(body), destination.add(body), length - body);
    }
}

/// Loads whole lines; uses words before and after them.
///
/// # Safety
///
/// As [`super::load`].
pub(super) unsafe fn load(source: *const u8, destination: *mut u8, length: usize) {
    let (head, lines, body) = divide(source.addr(), length, LINE);
    // SAFETY: head, lines and tail add up to the length; the lines begin at a multiple of 64.
    unsafe {
        load_words(source, destination, head);
        load_lines(source.add(head), destination.add(head), lines);
        load_words(source.add(body), destination.add(body), length - body);
    }
}

/// Defines a copy of whole lines with paired loads and paired stores.
macro_rules! lines {
    ($(#[$text:meta])* $name:ident, $load:literal, $store:literal) => {
        $(#[$text])*
        unsafe fn $name(source: *const u8, destination: *mut u8, lines: usize) {
            // SAFETY: this function's contract; all registers used are declared.
            unsafe {
                asm!(
                    "cbz {left}, 3f",
                    "2:",
                    concat!($load, " q0, q1, [{from}]"),
                    concat!($load, " q2, q3, [{from}, #32]"),
                    concat!($store, " q0, q1, [{to}]"),
                    concat!($store, " q2, q3, [{to}, #32]"),
                    "add {from}, {from}, #64",
                    "add {to}, {to}, #64",
                    "subs {left}, {left}, #1",
                    "b.ne 2b",
                    "3:",
                    from = inout(reg) source => _,
                    to = inout(reg) destination => _,
                    left = inout(reg) lines => _,
                    out("v0") _,
                    out("v1") _,
                    out("v2") _,
                    out("v3") _,
                    options(nostack),
                );
            }
        }
    };
}

lines! {
    /// # Safety
    ///
    /// `destination` is a multiple of 64, and both are valid for `lines` lines.
    store_lines, "ldp", "stnp"
}

lines! {
    /// # Safety
    ///
    /// `source` is a multiple of 64, and both are valid for `lines` lines.
    load_lines, "ldnp", "stp"
}
