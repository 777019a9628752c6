//! Streaming loads and stores of x86-64, in whole 64-byte lines.
//!
//! The widest form that the CPU has is chosen once for each call: AVX-512 (one store makes a line), AVX2, SSE2/SSE4.1.
//! The AVX-512 form is written in assembly, because its intrinsics are newer than the oldest compiler that this crate
//! serves.

use super::{divide, load_words, store_words};
use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_mfence, _mm_storeu_si128, _mm_stream_load_si128, _mm_stream_si128,
    _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_load_si256, _mm256_stream_si256,
};
use std::is_x86_feature_detected as has;

/// A line of the CPU's write-combining buffers, in bytes.
pub(super) const LINE: usize = 64;
/// From here on a streaming load of a line beats loads by words: one trip to the device against several.
pub(super) const SHORTEST_LOAD: usize = 16;

/// Whether the AVX-512 form serves. Sanitizers do not see what assembly writes, so under them it does not.
fn has_avx512() -> bool {
    !cfg!(sanitized) && has!("avx512f")
}

/// Stores with streaming stores of whole lines, and by words before and after them.
///
/// # Safety
///
/// As [`super::store`].
pub(super) unsafe fn store(source: *const u8, destination: *mut u8, length: usize) {
    let (head, lines, body) = divide(destination.addr(), length, LINE);
    // SAFETY: head, lines and tail make up the length; the lines begin at a multiple of 64.
    unsafe {
        store_words(source, destination, head);
        let (from, to) = (source.add(head), destination.add(head));
        if lines > 0 {
            if has_avx512() {
                store_lines_avx512(from, to, lines);
            } else if has!("avx2") {
                store_lines_avx2(from, to, lines);
            } else {
                store_lines_sse2(from, to, lines);
            }
        }
        store_words(source.add(body), destination.add(body), length - body);
    }
}

/// Loads with streaming loads of whole lines, and by smaller pieces before and after them.
///
/// # Safety
///
/// As [`super::load`].
pub(super) unsafe fn load(source: *const u8, destination: *mut u8, length: usize) {
    if !has!("sse4.1") {
        // SAFETY: this function's contract.
        return unsafe { load_words(source, destination, length) };
    }
    let (head, lines, body) = divide(source.addr(), length, LINE);
    // SAFETY: SSE2 is part of x86-64. What an earlier streaming load has left in the CPU's buffers may be old: this empties
    // them.
    unsafe { _mm_mfence() };
    // SAFETY: head, lines and tail make up the length; the lines begin at a multiple of 64.
    unsafe {
        load_pieces(source, destination, head);
        let (from, to) = (source.add(head), destination.add(head));
        if lines > 0 {
            if has_avx512() {
                load_lines_avx512(from, to, lines);
            } else if has!("avx2") {
                load_lines_avx2(from, to, lines);
            } else {
                load_lines_sse41(from, to, lines);
            }
        }
        load_pieces(source.add(body), destination.add(body), length - body);
    }
}

/// Loads less than a line: words up to a multiple of 16, streaming loads of 16, words.
///
/// # Safety
///
/// As [`super::load`]; SSE4.1 is there.
#[target_feature(enable = "sse4.1")]
unsafe fn load_pieces(source: *const u8, destination: *mut u8, length: usize) {
    let (head, _, body) = divide(source.addr(), length, 16);
    // SAFETY: head, pieces and tail make up the length; the pieces begin at a multiple of 16.
    unsafe {
        load_words(source, destination, head);
        for at in (head..body).step_by(16) {
            let piece = _mm_stream_load_si128(source.add(at).cast::<__m128i>());
            _mm_storeu_si128(destination.add(at).cast(), piece);
        }
        load_words(source.add(body), destination.add(body), length - body);
    }
}

/// # Safety
///
/// `destination` is a multiple of 64, both are valid for `lines` lines, and AVX-512F is there.
unsafe fn store_lines_avx512(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract; the registers named are given up.
    unsafe {
        asm!(
            "sub {left}, 4",
            "jb 3f",
            "2:",
            "vmovdqu64 zmm0, [{from}]",
            "vmovdqu64 zmm1, [{from} + 64]",
            "vmovdqu64 zmm2, [{from} + 128]",
            "vmovdqu64 zmm3, [{from} + 192]",
            "vmovntdq [{to}], zmm0",
            "vmovntdq [{to} + 64], zmm1",
            "vmovntdq [{to} + 128], zmm2",
            "vmovntdq [{to} + 192], zmm3",
            "add {from}, 256",
            "add {to}, 256",
            "sub {left}, 4",
            "jae 2b",
            "3:",
            "add {left}, 4",
            "jz 5f",
            "4:",
            "vmovdqu64 zmm0, [{from}]",
            "vmovntdq [{to}], zmm0",
            "add {from}, 64",
            "add {to}, 64",
            "dec {left}",
            "jnz 4b",
            "5:",
            "vzeroupper",
            from = inout(reg) source => _,
            to = inout(reg) destination => _,
            left = inout(reg) lines => _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            options(nostack),
        );
    }
}

/// # Safety
///
/// `source` is a multiple of 64, both are valid for `lines` lines, and AVX-512F is there.
unsafe fn load_lines_avx512(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract; the registers named are given up.
    unsafe {
        asm!(
            "sub {left}, 4",
            "jb 3f",
            "2:",
            "vmovntdqa zmm0, [{from}]",
            "vmovntdqa zmm1, [{from} + 64]",
            "vmovntdqa zmm2, [{from} + 128]",
            "vmovntdqa zmm3, [{from} + 192]",
            "vmovdqu64 [{to}], zmm0",
            "vmovdqu64 [{to} + 64], zmm1",
            "vmovdqu64 [{to} + 128], zmm2",
            "vmovdqu64 [{to} + 192], zmm3",
            "add {from}, 256",
            "add {to}, 256",
            "sub {left}, 4",
            "jae 2b",
            "3:",
            "add {left}, 4",
            "jz 5f",
            "4:",
            "vmovntdqa zmm0, [{from}]",
            "vmovdqu64 [{to}], zmm0",
            "add {from}, 64",
            "add {to}, 64",
            "dec {left}",
            "jnz 4b",
            "5:",
            "vzeroupper",
            from = inout(reg) source => _,
            to = inout(reg) destination => _,
            left = inout(reg) lines => _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            options(nostack),
        );
    }
}

/// # Safety
///
/// `destination` is a multiple of 64, both are valid for `lines` lines, and AVX2 is there.
#[target_feature(enable = "avx2")]
unsafe fn store_lines_avx2(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract, for the line at `at`.
    let line = |at: usize| unsafe {
        let low = _mm256_loadu_si256(source.add(at).cast::<__m256i>());
        let high = _mm256_loadu_si256(source.add(at + 32).cast::<__m256i>());
        _mm256_stream_si256(destination.add(at).cast(), low);
        _mm256_stream_si256(destination.add(at + 32).cast(), high);
    };
    four_at_a_time(lines, line);
}

/// # Safety
///
/// `source` is a multiple of 64, both are valid for `lines` lines, and AVX2 is there.
#[target_feature(enable = "avx2")]
unsafe fn load_lines_avx2(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract, for the line at `at`.
    let line = |at: usize| unsafe {
        let low = _mm256_stream_load_si256(source.add(at).cast::<__m256i>());
        let high = _mm256_stream_load_si256(source.add(at + 32).cast::<__m256i>());
        _mm256_storeu_si256(destination.add(at).cast(), low);
        _mm256_storeu_si256(destination.add(at + 32).cast(), high);
    };
    four_at_a_time(lines, line);
}

/// # Safety
///
/// `destination` is a multiple of 64, and both are valid for `lines` lines.
unsafe fn store_lines_sse2(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract, for the line at `at`.
    let line = |at: usize| unsafe {
        let pieces = [0, 16, 32, 48].map(|piece| _mm_loadu_si128(source.add(at + piece).cast::<__m128i>()));
        let to = destination.add(at).cast::<__m128i>();
        _mm_stream_si128(to, pieces[0]);
        _mm_stream_si128(to.add(1), pieces[1]);
        _mm_stream_si128(to.add(2), pieces[2]);
        _mm_stream_si128(to.add(3), pieces[3]);
    };
    four_at_a_time(lines, line);
}

/// # Safety
///
/// `source` is a multiple of 64, both are valid for `lines` lines, and SSE4.1 is there.
#[target_feature(enable = "sse4.1")]
unsafe fn load_lines_sse41(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract, for the line at `at`.
    let line = |at: usize| unsafe {
        let from = source.add(at).cast::<__m128i>();
        let (first, second) = (_mm_stream_load_si128(from), _mm_stream_load_si128(from.add(1)));
        let (third, fourth) = (_mm_stream_load_si128(from.add(2)), _mm_stream_load_si128(from.add(3)));
        let to = destination.add(at).cast::<__m128i>();
        _mm_storeu_si128(to, first);
        _mm_storeu_si128(to.add(1), second);
        _mm_storeu_si128(to.add(2), third);
        _mm_storeu_si128(to.add(3), fourth);
    };
    four_at_a_time(lines, line);
}

/// Calls `line` with where each line begins, in bytes; unrolled.
#[inline(always)]
fn four_at_a_time(lines: usize, line: impl Fn(usize)) {
    let whole = lines / 4 * 4;
    for at in (0..whole * LINE).step_by(4 * LINE) {
        line(at);
        line(at + LINE);
        line(at + 2 * LINE);
        line(at + 3 * LINE);
    }
    for number in whole..lines {
        line(number * LINE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lines = unsafe fn(*const u8, *mut u8, usize);

    #[test]
    fn every_form_that_this_cpu_has_copies_whole_lines() {
        #[repr(align(64))]
        struct Aligned([u8; 1024]);
        let mut forms: Vec<(&str, Lines)> = vec![("sse2 store", store_lines_sse2)];
        if has!("sse4.1") {
            forms.push(("sse4.1 load", |s, d, n| {
                // SAFETY: the feature is there; the rest is the caller's contract.
                unsafe { load_lines_sse41(s, d, n) }
            }));
        }
        if has!("avx2") {
            forms.push(("avx2 store", |s, d, n| {
                // SAFETY: as above.
                unsafe { store_lines_avx2(s, d, n) }
            }));
            forms.push(("avx2 load", |s, d, n| {
                // SAFETY: as above.
                unsafe { load_lines_avx2(s, d, n) }
            }));
        }
        if has_avx512() {
            forms.push(("avx512 store", store_lines_avx512));
            forms.push(("avx512 load", load_lines_avx512));
        }
        let source = Aligned(core::array::from_fn(|index| (index * 5 + index / 256) as u8));
        for (name, copy) in forms {
            for lines in 0..=15 {
                let mut destination = Aligned([0xEE; 1024]);
                // SAFETY: both are aligned and 1024 bytes long.
                unsafe { copy(source.0.as_ptr(), destination.0.as_mut_ptr(), lines) };
                assert_eq!(destination.0[..lines * 64], source.0[..lines * 64], "{name}, {lines} lines");
                assert!(destination.0[lines * 64..].iter().all(|byte| *byte == 0xEE), "{name}, {lines} lines: outside");
            }
        }
    }
}
