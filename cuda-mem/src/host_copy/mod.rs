//! Copies by the CPU's own loads and stores, to and from memory that a device shares.
//!
//! Each byte is accessed once, and nothing outside of the range is. Accesses of 1, 2, 4 and 8 aligned bytes are single
//! ones. Larger copies go by the widest streaming access that the CPU has: write-combining memory of a GPU takes
//! streaming stores in whole lines, and gives a line for each streaming load, where ordinary loads fetch a few bytes
//! each.

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[path = "neon.rs"]
mod streaming;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod streaming;

use core::sync::atomic::Ordering;

/// Orders all stores of this thread, also those to write-combining memory, before what follows, and drains the CPU's
/// write-combining buffers.
#[inline]
pub(crate) fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: it touches no memory of its own. Rust's fences reach the processors only, and not what is on the bus.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    core::sync::atomic::fence(Ordering::SeqCst);
    // The instruction alone does not hold back the compiler.
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Keeps loads that follow from being made before loads that come before: a flag, then the data that it stands for. Loads
/// of write-combining memory are not kept in order by x86-64 itself.
#[inline]
fn load_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as in `store_fence`.
    unsafe {
        core::arch::asm!("dsb ld", options(nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    core::sync::atomic::fence(Ordering::SeqCst);
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Stores `length` bytes to shared memory.
///
/// # Safety
///
/// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not overlap. No Rust
/// reference to the destination is alive.
#[inline]
pub(crate) unsafe fn store(source: *const u8, destination: *mut u8, length: usize) {
    // SAFETY: this function's contract; the alignments are checked.
    unsafe {
        match length {
            0 => {}
            4 if destination.addr().is_multiple_of(4) => {
                destination.cast::<u32>().write_volatile(source.cast::<u32>().read_unaligned());
            }
            8 if destination.addr().is_multiple_of(8) => {
                destination.cast::<u64>().write_volatile(source.cast::<u64>().read_unaligned());
            }
            #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
            streaming::LINE.. => streaming::store(source, destination, length),
            _ => store_words(source, destination, length),
        }
    }
}

/// Loads `length` bytes from shared memory, after the loads before it.
///
/// # Safety
///
/// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not overlap.
#[inline]
pub(crate) unsafe fn load(source: *const u8, destination: *mut u8, length: usize) {
    load_fence();
    // SAFETY: this function's contract; the alignments are checked.
    unsafe {
        match length {
            0 => {}
            4 if source.addr().is_multiple_of(4) => {
                destination.cast::<u32>().write_unaligned(source.cast::<u32>().read_volatile());
            }
            8 if source.addr().is_multiple_of(8) => {
                destination.cast::<u64>().write_unaligned(source.cast::<u64>().read_volatile());
            }
            #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
            streaming::SHORTEST_LOAD.. => streaming::load(source, destination, length),
            _ => load_words(source, destination, length),
        }
    }
}

/// Copies `length` bytes between two pieces of memory that others may use at the same time.
///
/// # Safety
///
/// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not overlap. No Rust
/// reference to the destination is alive.
#[inline]
pub(crate) unsafe fn pass(source: *const u8, destination: *mut u8, length: usize) {
    // SAFETY: this function's contract.
    unsafe { by_words::<true, true>(source, destination, length) }
}

/// Divides a copy at an address into what comes before the first multiple of `unit`, whole units, and the rest: the size of
/// the head in bytes, the number of units, and where the rest begins.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline]
fn divide(address: usize, length: usize, unit: usize) -> (usize, usize, usize) {
    let head = (address.wrapping_neg() % unit).min(length);
    let units = (length - head) / unit;
    (head, units, head + units * unit)
}

/// The next access of a copy by words: the largest of 8, 4, 2, 1 that is aligned and fits.
#[inline]
fn word(address: usize, left: usize) -> usize {
    let aligned = 1 << address.trailing_zeros().min(3);
    let fits = 1usize << left.ilog2().min(3);
    aligned.min(fits)
}

/// Stores by aligned words.
///
/// # Safety
///
/// As [`store`].
unsafe fn store_words(source: *const u8, destination: *mut u8, length: usize) {
    // SAFETY: this function's contract.
    unsafe { by_words::<false, true>(source, destination, length) }
}

/// Loads by aligned words.
///
/// # Safety
///
/// As [`load`].
unsafe fn load_words(source: *const u8, destination: *mut u8, length: usize) {
    // SAFETY: this function's contract.
    unsafe { by_words::<true, false>(source, destination, length) }
}

/// Copies by words that are aligned on each side that others share, and accesses those sides once for each word.
///
/// # Safety
///
/// As of [`pass`]; a side that is not shared is the caller's alone.
unsafe fn by_words<const SHARED_SOURCE: bool, const SHARED_DESTINATION: bool>(
    mut source: *const u8,
    mut destination: *mut u8,
    mut length: usize,
) {
    while length > 0 {
        let from = if SHARED_SOURCE { source.addr() } else { 0 };
        let to = if SHARED_DESTINATION { destination.addr() } else { 0 };
        let word = word(from | to, length);
        // SAFETY: `word` bytes are left on both sides, and each shared side is aligned to them.
        unsafe {
            match word {
                8 => copy_word::<u64, SHARED_SOURCE, SHARED_DESTINATION>(source, destination),
                4 => copy_word::<u32, SHARED_SOURCE, SHARED_DESTINATION>(source, destination),
                2 => copy_word::<u16, SHARED_SOURCE, SHARED_DESTINATION>(source, destination),
                _ => copy_word::<u8, SHARED_SOURCE, SHARED_DESTINATION>(source, destination),
            }
            (source, destination) = (source.add(word), destination.add(word));
        }
        length -= word;
    }
}

/// Copies one word.
///
/// # Safety
///
/// As of [`pass`] for a word's bytes; each shared side is aligned to it.
#[inline(always)]
unsafe fn copy_word<W: Copy, const SHARED_SOURCE: bool, const SHARED_DESTINATION: bool>(
    source: *const u8,
    destination: *mut u8,
) {
    let (source, destination) = (source.cast::<W>(), destination.cast::<W>());
    // SAFETY: this function's contract.
    unsafe {
        let word = if SHARED_SOURCE { source.read_volatile() } else { source.read_unaligned() };
        if SHARED_DESTINATION { destination.write_volatile(word) } else { destination.write_unaligned(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Miri takes a thousand times as long: it looks at less.
    const ROOM: usize = if cfg!(miri) { 176 } else { 1024 };
    const SOURCES: &[usize] = if cfg!(miri) { &[0, 3] } else { &[0, 1, 2, 4, 8, 16, 32, 63] };
    const STEP: usize = if cfg!(miri) { 13 } else { 1 };
    const LENGTHS: usize = if cfg!(miri) { 12 } else { 300 };

    /// Every length at every alignment of one side, with guard bytes around.
    fn copies_exactly(copy: unsafe fn(*const u8, *mut u8, usize)) {
        #[repr(align(64))]
        struct Aligned([u8; ROOM]);
        let source = Aligned(core::array::from_fn(|index| (index * 7 + 3) as u8));
        for length in 0..LENGTHS {
            for &from in SOURCES {
                for to in (0..64).step_by(STEP) {
                    let mut destination = Aligned([0xEE; ROOM]);
                    // SAFETY: both lie within the arrays: 64 + 63 + LENGTHS < ROOM.
                    unsafe { copy(source.0.as_ptr().add(from), destination.0.as_mut_ptr().add(64 + to), length) };
                    let mut expected = [0xEE; ROOM];
                    expected[64 + to..][..length].copy_from_slice(&source.0[from..from + length]);
                    assert!(destination.0 == expected, "length {length}, from {from}, to {to}");
                }
            }
        }
    }

    #[test]
    fn stores_copy_every_length_at_every_alignment_and_nothing_else() {
        copies_exactly(store);
        copies_exactly(store_words);
    }

    #[test]
    fn loads_copy_every_length_at_every_alignment_and_nothing_else() {
        copies_exactly(load);
        copies_exactly(load_words);
    }

    #[test]
    fn copies_between_shared_memories_copy_every_length_at_every_alignment_and_nothing_else() {
        copies_exactly(pass);
    }

    #[test]
    fn a_word_is_aligned_and_fits() {
        assert_eq!((word(0, 100), word(1, 100), word(2, 100), word(4, 100), word(0, 3)), (8, 1, 2, 4, 2));
    }
}
