//! Single accesses of 1, 2, 4 or 8 bytes to memory that others use at the same time.

/// A number that one access loads or stores.
pub(super) trait Word: Copy {
    /// # Safety
    ///
    /// `word` is valid for reads, and aligned to the word's size.
    unsafe fn load(word: *const u8) -> Self;

    /// # Safety
    ///
    /// `word` is valid for writes, and aligned to the word's size. No Rust reference to it is alive.
    unsafe fn store(word: *mut u8, value: Self);
}

/// Words by one instruction each. The compiler does not drop, repeat, split or merge assembly, and keeps the order of
/// other accesses around it, because the assembly may access any memory.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, sanitized))))]
macro_rules! words {
    ($($word:ty, $register:ident, $load:literal, $store:literal;)*) => { $(
        impl Word for $word {
            #[inline(always)]
            unsafe fn load(word: *const u8) -> Self {
                let value: $word;
                // SAFETY: this function's contract. The parent module explains why this is no data race.
                unsafe {
                    core::arch::asm!(
                        $load,
                        word = in(reg) word,
                        value = lateout($register) value,
                        options(nostack, preserves_flags),
                    );
                }
                value
            }

            #[inline(always)]
            unsafe fn store(word: *mut u8, value: Self) {
                // SAFETY: as above.
                unsafe {
                    core::arch::asm!(
                        $store,
                        word = in(reg) word,
                        value = in($register) value,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    )* };
}

#[cfg(all(target_arch = "x86_64", not(any(miri, sanitized))))]
words! {
    u8, reg_byte, "mov {value}, byte ptr [{word}]", "mov byte ptr [{word}], {value}";
    u16, reg, "mov {value:x}, word ptr [{word}]", "mov word ptr [{word}], {value:x}";
    u32, reg, "mov {value:e}, dword ptr [{word}]", "mov dword ptr [{word}], {value:e}";
    u64, reg, "mov {value}, qword ptr [{word}]", "mov qword ptr [{word}], {value}";
}

#[cfg(all(target_arch = "aarch64", not(any(miri, sanitized))))]
words! {
    u8, reg, "ldrb {value:w}, [{word}]", "strb {value:w}, [{word}]";
    u16, reg, "ldrh {value:w}, [{word}]", "strh {value:w}, [{word}]";
    u32, reg, "ldr {value:w}, [{word}]", "str {value:w}, [{word}]";
    u64, reg, "ldr {value}, [{word}]", "str {value}, [{word}]";
}

/// Words by atomics: for the sanitizers, which do not see into assembly, and for other processors. The thread sanitizer
/// does not model fences, so the accesses have the order that the callers' fences give.
#[cfg(all(any(sanitized, not(any(target_arch = "x86_64", target_arch = "aarch64"))), not(miri)))]
macro_rules! words {
    ($($word:ty, $atomic:ident;)*) => { $(
        impl Word for $word {
            #[inline]
            unsafe fn load(word: *const u8) -> Self {
                // SAFETY: this function's contract.
                let atomic = unsafe { core::sync::atomic::$atomic::from_ptr(word.cast_mut().cast()) };
                atomic.load(core::sync::atomic::Ordering::Acquire)
            }

            #[inline]
            unsafe fn store(word: *mut u8, value: Self) {
                // SAFETY: this function's contract.
                let atomic = unsafe { core::sync::atomic::$atomic::from_ptr(word.cast()) };
                atomic.store(value, core::sync::atomic::Ordering::Release);
            }
        }
    )* };
}

#[cfg(all(any(sanitized, not(any(target_arch = "x86_64", target_arch = "aarch64"))), not(miri)))]
words! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// Words byte by byte, as in the parent module's model, which Miri checks.
#[cfg(miri)]
macro_rules! words {
    ($($word:ty),*) => { $(
        impl Word for $word {
            unsafe fn load(word: *const u8) -> Self {
                Self::from_ne_bytes(core::array::from_fn(|index| {
                    // SAFETY: this function's contract.
                    let byte = unsafe { core::sync::atomic::AtomicU8::from_ptr(word.add(index).cast_mut()) };
                    byte.load(core::sync::atomic::Ordering::Relaxed)
                }))
            }

            unsafe fn store(word: *mut u8, value: Self) {
                for (index, value) in value.to_ne_bytes().into_iter().enumerate() {
                    // SAFETY: this function's contract.
                    let byte = unsafe { core::sync::atomic::AtomicU8::from_ptr(word.add(index)) };
                    byte.store(value, core::sync::atomic::Ordering::Relaxed);
                }
            }
        }
    )* };
}

#[cfg(miri)]
words!(u8, u16, u32, u64);
