//! Tensors, array interfaces and arrays of strangers: whatever their numbers, no panic, and an end exactly once.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cuda_mem::fuzzing::import(bytes));
