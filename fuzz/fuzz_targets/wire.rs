//! Reads what peers on other hosts send: messages and tickets, whole, cut and forged. Whatever is read is written as it was,
//! and no ticket serves that its owner has not signed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cuda_mem_remote::fuzzing::read(bytes));
