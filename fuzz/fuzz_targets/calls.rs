//! Runs sequences of calls of the C library on the software GPU, with valid and invalid handles and sizes. No sequence
//! may crash, misuse the driver, or leave anything behind.
#![no_main]

#[path = "../../ffi-tests/testkit/src/c_calls/mod.rs"]
mod c_calls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    c_calls::run(bytes);
    c_calls::assert_nothing_left();
});
