//! Streaming loads and stores of x86-64, in whole 64-byte lines.
//!
//! Each call chooses the widest form that the CPU supports: AVX-512 (one store fills a line), AVX2, SSE2/SSE4.1. All
//! forms are assembly, so that others may access the memory at the same time; see the parent module.

use super::{divide, load_words, store_words};
use core::arch::asm;
use std::is_x86_feature_detected as has;

/// A line of the CPU's write-combining buffers, in bytes.
pub(super) const LINE: usize = 64;
/// From this size on a streaming load of a line beats loads of words: one round trip to the device instead of several.
pub(super) const SHORTEST_LOAD: usize = 16;

/// Stores whole lines with streaming stores; uses words before and after them.
///
/// # Safety
///
/// As [`super::Stores::store`].
pub(super) unsafe fn store(source: *const u8, destination: *mut u8, length: usize) {
    let (head, lines, body) = divide(destination.addr(), length, LINE);
    // SAFETY: head, lines and tail add up to the length; the lines begin at a multiple of 64.
    unsafe {
        store_words(source, destination, head);
        let (from, to) = (source.add(head), destination.add(head));
        if lines > 0 {
            if has!("avx512f") {
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

/// Loads whole lines with streaming loads; uses smaller pieces before and after them.
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
    // SAFETY: the instruction accesses no memory. It discards old data that an earlier streaming load may have left in
    // the CPU's buffers.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    // SAFETY: head, lines and tail add up to the length; the lines begin at a multiple of 64.
    unsafe {
        load_pieces(source, destination, head);
        let (from, to) = (source.add(head), destination.add(head));
        if lines > 0 {
            if has!("avx512f") {
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

/// Loads less than a line: words up to a multiple of 16, streaming loads of 16 bytes, then words.
///
/// # Safety
///
/// As [`super::load`]; the CPU supports SSE4.1.
unsafe fn load_pieces(source: *const u8, destination: *mut u8, length: usize) {
    let (head, _, body) = divide(source.addr(), length, 16);
    // SAFETY: head, pieces and tail add up to the length; the pieces begin at a multiple of 16.
    unsafe {
        load_words(source, destination, head);
        for at in (head..body).step_by(16) {
            asm!(
                "movntdqa {piece}, [{from}]",
                "movdqu [{to}], {piece}",
                from = in(reg) source.add(at),
                to = in(reg) destination.add(at),
                piece = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
        load_words(source.add(body), destination.add(body), length - body);
    }
}

/// # Safety
///
/// `destination` is a multiple of 64, both are valid for `lines` lines, and the CPU supports AVX-512F.
unsafe fn store_lines_avx512(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract; all registers used are declared.
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
/// `source` is a multiple of 64, both are valid for `lines` lines, and the CPU supports AVX-512F.
unsafe fn load_lines_avx512(source: *const u8, destination: *mut u8, lines: usize) {
    // SAFETY: this function's contract; all registers used are declared.
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

/// Defines a copy of whole lines: each iteration copies a line by the given instructions; `$end` follows the loop.
macro_rules! lines {
    ($(#[$text:meta])* $name:ident, $end:literal, $($instruction:literal),*) => {
        $(#[$text])*
        unsafe fn $name(source: *const u8, destination: *mut u8, lines: usize) {
            // SAFETY: this function's contract; all registers used are declared.
            unsafe {
                asm!(
                    "test {left}, {left}",
                    "jz 3f",
                    "2:",
                    $($instruction,)*
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {left}",
                    "jnz 2b",
                    "3:",
                    $end,
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
    };
}

lines! {
    /// # Safety
    ///
    /// `destination` is a multiple of 64, both are valid for `lines` lines, and the CPU supports AVX2.
    store_lines_avx2, "vzeroupper",
    "vmovdqu ymm0, [{from}]",
    "vmovdqu ymm1, [{from} + 32]",
    "vmovntdq [{to}], ymm0",
    "vmovntdq [{to} + 32], ymm1"
}

lines! {
    /// # Safety
    ///
    /// `source` is a multiple of 64, both are valid for `lines` lines, and the CPU supports AVX2.
    load_lines_avx2, "vzeroupper",
    "vmovntdqa ymm0, [{from}]",
    "vmovntdqa ymm1, [{from} + 32]",
    "vmovdqu [{to}], ymm0",
    "vmovdqu [{to} + 32], ymm1"
}

lines! {
    /// # Safety
    ///
    /// `destination` is a multiple of 64, and both are valid for `lines` lines.
    store_lines_sse2, "",
    "movdqu xmm0, [{from}]",
    "movdqu xmm1, [{from} + 16]",
    "movdqu xmm2, [{from} + 32]",
    "movdqu xmm3, [{from} + 48]",
    "movntdq [{to}], xmm0",
    "movntdq [{to} + 16], xmm1",
    "movntdq [{to} + 32], xmm2",
    "movntdq [{to} + 48], xmm3"
}

lines! {
    /// # Safety
    ///
    /// `source` is a multiple of 64, both are valid for `lines` lines, and the CPU supports SSE4.1.
    load_lines_sse41, "",
    "movntdqa xmm0, [{from}]",
    "movntdqa xmm1, [{from} + 16]",
    "movntdqa xmm2, [{from} + 32]",
    "movntdqa xmm3, [{from} + 48]",
    "movdqu [{to}], xmm0",
    "movdqu [{to} + 16], xmm1",
    "movdqu [{to} + 32], xmm2",
    "movdqu [{to} + 48], xmm3"
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
            forms.push(("sse4.1 load", load_lines_sse41));
        }
        if has!("avx2") {
            forms.push(("avx2 store", store_lines_avx2));
            forms.push(("avx2 load", load_lines_avx2));
        }
        if has!("avx512f") {
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
