//! Sequences of calls of the C library with handles and sizes that may be wrong, on the software GPU: no crash, no defect, and
//! nothing left behind.
#![no_main]

#[path = "../../ffi-tests/src/c_calls/mod.rs"]
mod c_calls;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    c_calls::run(bytes);
    let left = softgpu::ledger();
    assert!(left.is_empty(), "left behind: {left}");
    assert_eq!(softgpu::misuse(), vec![]);
});
