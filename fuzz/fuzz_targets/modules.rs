//! Loads device code with arbitrary bytes into the software GPU. No image may crash, and what it declares must be in order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| softgpu::fuzzing::module(bytes));
