//! Runs histories of a pool's heap. The heap must not give a stream any byte that work of a former owner may still use,
//! must not refuse memory that it has, and must report correct statistics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stream_heap::heap_history(bytes));
