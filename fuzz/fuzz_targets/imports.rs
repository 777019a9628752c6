//! Imports tensors, array interfaces and arrays with arbitrary numbers. No import may panic, and each must release its
//! structure exactly once.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cuda_mem::fuzzing::import(bytes));
