//! Copies with the CPU's own loads and stores, to and from memory that a device shares.
//!
//! Each byte in the range is accessed once; no byte outside it is accessed. An access of 1, 2, 4 or 8 aligned bytes is
//! a single instruction. Larger copies use the widest streaming accesses of the CPU: a GPU's write-combining memory
//! takes streaming stores in whole lines and returns a line per streaming load, while an ordinary load fetches only a
//! few bytes.
//!
//! # Concurrent accesses
//!
//! Other threads, kernels and processes may read and write the shared side during a copy. With ordinary accesses, Rust
//! calls that undefined; with overlapping atomics of different sizes, too. Copies begin and end at any byte, so no
//! atomic larger than a byte fits all of them.
//!
//! **The model: each byte of shared memory is an atomic of one byte, and every access to it is relaxed.** Sizes never
//! mix, and data races do not exist. The program must order its accesses if it depends on the loaded values.
//!
//! The accesses are assembly, which moves 8 to 64 bytes at a time. That is one way to perform as many relaxed accesses
//! of single bytes, and the compiler must assume no more of the assembly. One instruction moves an aligned word of 1,
//! 2, 4 or 8 bytes, so a [`SharedCell`](crate::buffer::SharedCell) is never torn: the processor guarantees that, beyond
//! the model. Rust's atomics do not vectorise and have no streaming form.
//!
//! Miri runs the model itself, byte by byte. Sanitizers do not see into assembly, so builds for them (`--cfg
//! sanitized`) use atomics of aligned words. The thread sanitizer then still finds references whose accesses race with
//! a copy.
//!
//! # Stores are fenced before another thread can see them
//!
//! Streaming stores, and all stores to write-combining memory, leave the CPU in any order, possibly after a later
//! release store. A thread that acquires that release would read old bytes, which change later. So all stores of this
//! module go through [`Stores`], which stays on its thread and fences at its end. No value that a program owns contains
//! a `Stores`, because the program could forget or send it. After a program has stored through a slice and forgotten
//! its guard, [`store_fence_on_all_threads`] fences on behalf of the thread that stored.

mod all_threads;
#[cfg(all(target_arch = "aarch64", not(any(miri, sanitized))))]
#[path = "neon.rs"]
mod streaming;
#[cfg(all(target_arch = "x86_64", not(any(miri, sanitized))))]
mod streaming;
mod word;

#[cfg(test)]
pub(crate) use all_threads::MADE as FENCES_ON_ALL_THREADS;
pub(crate) use all_threads::store_fence_on_all_threads;
use core::marker::PhantomData;
use word::Word;

/// Stores of this thread to shared memory. Its drop fences them.
///
/// Programs reach one only through a borrow within a call of this crate (`Buffer::store_scope`): they could
/// forget a value that they own.
pub(crate) struct Stores {
    /// Neither `Send` nor `Sync`: a fence orders only the stores of its own thread.
    thread: PhantomData<*mut ()>,
}

impl Stores {
    #[inline]
    pub fn begin() -> Self {
        Self { thread: PhantomData }
    }

    /// Stores `length` bytes to shared memory.
    ///
    /// # Safety
    ///
    /// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not overlap. No Rust
    /// reference to the destination is alive.
    #[inline]
    pub unsafe fn store(&mut self, source: *const u8, destination: *mut u8, length: usize) {
        // SAFETY: this function's contract; the match checks alignments.
        unsafe {
            match length {
                0 => {}
                4 if destination.addr().is_multiple_of(4) => copy_word::<u32, false, true>(source, destination),
                8 if destination.addr().is_multiple_of(8) => copy_word::<u64, false, true>(source, destination),
                #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, sanitized))))]
                streaming::LINE.. => streaming::store(source, destination, length),
                _ => store_words(source, destination, length),
            }
        }
    }

    /// Copies `length` bytes from shared memory to shared memory.
    ///
    /// # Safety
    ///
    /// As [`store`](Self::store).
    #[inline]
    pub unsafe fn pass(&mut self, source: *const u8, destination: *mut u8, length: usize) {
        // SAFETY: this function's contract.
        unsafe { by_words::<true, true>(source, destination, length) }
    }
}

impl Drop for Stores {
    #[inline]
    fn drop(&mut self) {
        store_fence();
    }
}

/// Stores `length` bytes to shared memory, and fences.
///
/// # Safety
///
/// As [`Stores::store`].
#[inline]
pub(crate) unsafe fn store(source: *const u8, destination: *mut u8, length: usize) {
    // SAFETY: this function's contract.
    unsafe { Stores::begin().store(source, destination, length) };
}

/// Orders all earlier stores of this thread, including those to write-combining memory, before what follows, and drains
/// the CPU's write-combining buffers. In Rust's model it is a release fence.
#[inline]
pub(crate) fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, sanitized))))]
    // SAFETY: the instruction accesses no memory. The compiler must assume that it does, so it moves no access across.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(any(miri, sanitized))))]
    // SAFETY: as above. Rust's own fences order accesses only towards other processors, not on the bus.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, sanitized))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Keeps later loads after earlier loads: first a flag, then the data that the flag announces. x86-64 itself does not
/// order loads from write-combining memory. In Rust's model it is an acquire fence.
#[inline]
fn load_fence() {
    #[cfg(all(target_arch = "x86_64", not(any(miri, sanitized))))]
    // SAFETY: as in `store_fence`.
    unsafe {
        core::arch::asm!("lfence", options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(any(miri, sanitized))))]
    // SAFETY: as in `store_fence`.
    unsafe {
        core::arch::asm!("dsb ld", options(nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, sanitized))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Loads `length` bytes from shared memory, after all earlier loads.
///
/// # Safety
///
/// `source` is valid for reads and `destination` for writes of `length` bytes, and they do not overlap.
#[inline]
pub(crate) unsafe fn load(source: *const u8, destination: *mut u8, length: usize) {
    load_fence();
    // SAFETY: this function's contract; the match checks alignments.
    unsafe {
        match length {
            0 => {}
            4 if source.addr().is_multiple_of(4) => copy_word::<u32, true, false>(source, destination),
            8 if source.addr().is_multiple_of(8) => copy_word::<u64, true, false>(source, destination),
            #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, sanitized))))]
            streaming::SHORTEST_LOAD.. => streaming::load(source, destination, length),
            _ => load_words(source, destination, length),
        }
    }
}

/// Loads a word of shared memory with one access. The caller must order later accesses.
///
/// # Safety
///
/// `source` is valid for reads of a `T`, whose size is 1, 2, 4 or 8 bytes, and is aligned to that size.
#[inline]
pub(crate) unsafe fn load_word<T: bytemuck::AnyBitPattern>(source: *const u8) -> T {
    let mut word = T::zeroed();
    let to = (&raw mut word).cast::<u8>();
    // SAFETY: this function's contract; any bytes are a value of `T`.
    unsafe {
        match size_of::<T>() {
            8 => copy_word::<u64, true, false>(source, to),
            4 => copy_word::<u32, true, false>(source, to),
            2 => copy_word::<u16, true, false>(source, to),
            _ => copy_word::<u8, true, false>(source, to),
        }
    }
    word
}

/// Splits a copy into a head before the first multiple of `unit`, whole units, and a rest. Returns the size of the head
/// in bytes, the number of units, and the offset of the rest.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, sanitized))))]
#[inline]
fn divide(address: usize, length: usize, unit: usize) -> (usize, usize, usize) {
    let head = (address.wrapping_neg() % unit).min(length);
    let units = (length - head) / unit;
    (head, units, head + units * unit)
}

/// The size of the next access of a copy by words: the largest of 8, 4, 2, 1 that is aligned and fits.
#[inline]
fn word(address: usize, left: usize) -> usize {
    let aligned = 1 << address.trailing_zeros().min(3);
    let fits = 1usize << left.ilog2().min(3);
    aligned.min(fits)
}

/// Stores with aligned words.
///
/// # Safety
///
/// As [`Stores::store`].
unsafe fn store_words(source: *const u8, destination: *mut u8, length: usize) {
    // SAFETY: this function's contract.
    unsafe { by_words::<false, true>(source, destination, length) }
}

/// Loads with aligned words.
///
/// # Safety
///
/// As [`load`].
unsafe fn load_words(source: *const u8, destination: *mut u8, length: usize) {
    // SAFETY: this function's contract.
    unsafe { by_words::<true, false>(source, destination, length) }
}

/// Copies with words that are aligned on each shared side, and accesses each shared side once per word.
///
/// # Safety
///
/// As for [`Stores::pass`]. Nobody else accesses a side that is not shared.
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
/// As for [`Stores::pass`], for one word; each shared side is aligned to it.
#[inline(always)]
unsafe fn copy_word<W: Word, const SHARED_SOURCE: bool, const SHARED_DESTINATION: bool>(
    source: *const u8,
    destination: *mut u8,
) {
    // SAFETY: this function's contract.
    unsafe {
        let word = if SHARED_SOURCE { W::load(source) } else { source.cast::<W>().read_unaligned() };
        if SHARED_DESTINATION { W::store(destination, word) } else { destination.cast::<W>().write_unaligned(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    // Miri is about a thousand times slower, so it tests fewer cases.
    const ROOM: usize = if cfg!(miri) { 176 } else { 1024 };
    const SOURCES: &[usize] = if cfg!(miri) { &[0, 3] } else { &[0, 1, 2, 4, 8, 16, 32, 63] };
    const STEP: usize = if cfg!(miri) { 13 } else { 1 };
    const LENGTHS: usize = if cfg!(miri) { 12 } else { 300 };

    /// Tests every length at every alignment of one side, with guard bytes around.
    fn copies_exactly(copy: unsafe fn(*const u8, *mut u8, usize)) {
        #[repr(align(64))]
        struct Aligned([u8; ROOM]);
        // The model's atomic loads need a pointer that permits writes.
        let mut source = Aligned(core::array::from_fn(|index| (index * 7 + 3) as u8));
        for length in 0..LENGTHS {
            for &from in SOURCES {
                for to in (0..64).step_by(STEP) {
                    let mut destination = Aligned([0xEE; ROOM]);
                    // SAFETY: both ranges lie within the arrays: 64 + 63 + LENGTHS < ROOM.
                    unsafe { copy(source.0.as_mut_ptr().add(from), destination.0.as_mut_ptr().add(64 + to), length) };
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
    fn shared_memory_copies_are_exact_at_all_lengths_and_alignments() {
        // SAFETY: the caller's contract.
        copies_exactly(|from, to, length| unsafe { Stores::begin().pass(from, to, length) });
    }

    /// For Miri and the thread sanitizer; elsewhere it checks that some thread wrote every byte.
    #[test]
    fn copies_of_several_threads_may_overlap_at_any_byte() {
        const SIZE: usize = 96;
        #[repr(align(64))]
        struct Shared(UnsafeCell<[u8; SIZE]>);
        // SAFETY: the threads only use the functions of this module.
        unsafe impl Sync for Shared {}
        let shared = Shared(UnsafeCell::new([0; SIZE]));
        let rounds = if cfg!(miri) { 2 } else { 2000 };
        std::thread::scope(|threads| {
            let shared = &shared;
            let start = move || shared.0.get().cast::<u8>();
            for (value, from, length) in [(1u8, 0, SIZE), (2, 3, 71), (3, 9, 64), (4, 16, 4), (5, 21, 1)] {
                threads.spawn(move || {
                    for _ in 0..rounds {
                        // SAFETY: the range lies within the bytes, and no references to them exist.
                        unsafe { store([value; SIZE].as_ptr(), start().add(from), length) };
                    }
                });
            }
            threads.spawn(move || {
                for _ in 0..rounds {
                    // SAFETY: as above; the two ranges do not overlap.
                    unsafe { Stores::begin().pass(start().add(5), start().add(55), 40) };
                }
            });
            for (from, length) in [(0, SIZE), (7, 33), (16, 4)] {
                threads.spawn(move || {
                    for _ in 0..rounds {
                        let mut seen = [0xEE; SIZE];
                        // SAFETY: as above; the word is aligned.
                        let word = unsafe {
                            load(start().add(from), seen.as_mut_ptr(), length);
                            load_word::<u32>(start().add(16))
                        };
                        assert!(seen[..length].iter().chain(&word.to_ne_bytes()).all(|byte| *byte <= 5), "{seen:?}");
                    }
                });
            }
        });
    }

    /// Not for Miri: its model guarantees this only for single bytes.
    #[test]
    #[cfg_attr(miri, ignore = "the model has no words")]
    fn an_aligned_word_is_never_torn() {
        #[repr(align(64))]
        struct Shared(UnsafeCell<[u8; 64]>);
        // SAFETY: the threads only use the functions of this module.
        unsafe impl Sync for Shared {}

        // Stores words of equal bytes while another thread checks them. It ends when that thread has seen both values
        // many times, or after one second.
        fn hunt<W: bytemuck::AnyBitPattern + bytemuck::NoUninit>() {
            let shared = Shared(UnsafeCell::new([0; 64]));
            let over = AtomicBool::new(false);
            std::thread::scope(|threads| {
                let (shared, over) = (&shared, &over);
                let start = move || shared.0.get().cast::<u8>();
                threads.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        for value in [0x00, 0xFF] {
                            // SAFETY: the word lies within the bytes, and no references to them exist.
                            unsafe { store([value; 8].as_ptr(), start(), size_of::<W>()) };
                        }
                    }
                });
                let (begin, mut last, mut changes) = (Instant::now(), 0, 0);
                let torn = loop {
                    // SAFETY: as above; the word is aligned.
                    let (word, mut loaded) = (unsafe { load_word::<W>(start()) }, W::zeroed());
                    // SAFETY: as above; the destination belongs to this thread.
                    unsafe { load(start(), (&raw mut loaded).cast(), size_of::<W>()) };
                    let is_torn = |word: &W| bytemuck::bytes_of(word).windows(2).any(|pair| pair[0] != pair[1]);
                    if let Some(torn) = [word, loaded].iter().find(|word| is_torn(word)) {
                        break Some(bytemuck::bytes_of(torn).to_vec());
                    }
                    changes += usize::from(core::mem::replace(&mut last, bytemuck::bytes_of(&word)[0]) != last);
                    if changes == 1 << 20 || begin.elapsed() > Duration::from_secs(1) {
                        break None;
                    }
                };
                over.store(true, Ordering::Relaxed);
                assert_eq!(torn, None, "a word of {} bytes after {changes} changes", size_of::<W>());
            });
        }
        hunt::<u16>();
        hunt::<u32>();
        hunt::<u64>();
    }

    #[test]
    fn a_word_is_aligned_and_fits() {
        assert_eq!((word(0, 100), word(1, 100), word(2, 100), word(4, 100), word(0, 3)), (8, 1, 2, 4, 2));
    }
}
