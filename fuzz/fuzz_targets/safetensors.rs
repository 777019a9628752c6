//! Reads headers of .safetensors files, whole, cut and forged. Whatever is read lies within the file, without overlap.
#![no_main]

#[path = "../../cuda-mem/examples/safetensors/header.rs"]
mod header;

use header::{Header, JSON};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // As it is, and with a length that fits, which random bytes seldom have.
    check(bytes);
    if let Some(json) = bytes.iter().rposition(|byte| *byte == b'}') {
        let mut whole = (json as u64 + 1).to_le_bytes().to_vec();
        whole.extend_from_slice(bytes);
        check(&whole);
    }
});

fn check(bytes: &[u8]) {
    let Ok(header) = Header::read(bytes, bytes.len() as u64) else { return };
    assert!(header.data >= JSON && header.data + header.size as u64 == bytes.len() as u64);
    let mut at = 0;
    for (_, tensor) in header.tensors() {
        let (begin, end) = tensor.data_offsets;
        let bits = tensor.shape.iter().product::<usize>() * tensor.dtype.bitsize();
        assert!(begin == at && end >= begin && (end - begin) * 8 == bits);
        at = end;
    }
    assert_eq!(at, header.size);
}
