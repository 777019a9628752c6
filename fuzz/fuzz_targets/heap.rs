//! Histories of a pool's heap: no byte is given to a stream that work of a former owner may still use, nothing is refused
//! that could be had, and the heap's own figures are right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| cuda_mem::fuzzing::heap_history(bytes));
