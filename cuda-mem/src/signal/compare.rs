//! Comparisons of words, the same for the CPU, streams and kernels.

use bytemuck::Pod;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use cuda_sys::CUstreamWaitValue_flags;

/// How a word is compared with a value.
///
/// ```
/// use cuda_mem::signal::Comparison;
/// assert!(Comparison::AtLeast.holds(2u32, u32::MAX), "a word that wrapped around is still ahead");
/// assert!(Comparison::AnyBit.holds(0b110u32, 0b010));
/// assert!(!Comparison::NotAllBits.can_hold(u32::MAX));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// The word is equal to the value.
    #[doc(alias = "CU_STREAM_WAIT_VALUE_EQ")]
    Equal,
    /// The word is equal to the value, or ahead of it by less than half of the word's range: counters may wrap around.
    #[doc(alias = "CU_STREAM_WAIT_VALUE_GEQ")]
    AtLeast,
    /// A bit of the value is set in the word.
    #[doc(alias = "CU_STREAM_WAIT_VALUE_AND")]
    AnyBit,
    /// A bit is clear in the word and in the value. Streams need a device with
    /// [`Feature::StreamWaitNotAllBits`](crate::Feature::StreamWaitNotAllBits) for it.
    #[doc(alias = "CU_STREAM_WAIT_VALUE_NOR")]
    NotAllBits,
}

impl Comparison {
    /// All comparisons.
    pub const ALL: [Comparison; 4] =
        [Comparison::Equal, Comparison::AtLeast, Comparison::AnyBit, Comparison::NotAllBits];

    /// Whether a word satisfies the comparison with `value`.
    #[inline]
    pub fn holds<W: SignalWord>(self, word: W, value: W) -> bool {
        match self {
            Comparison::Equal => word == value,
            Comparison::AtLeast => word.is_at_least(value),
            Comparison::AnyBit => word.into() & value.into() != 0,
            Comparison::NotAllBits => word.into() | value.into() != W::ONES.into(),
        }
    }

    /// Whether any word can satisfy the comparison. None satisfies [`AnyBit`](Self::AnyBit) of 0 or
    /// [`NotAllBits`](Self::NotAllBits) of all bits.
    #[inline]
    pub fn can_hold<W: SignalWord>(self, value: W) -> bool {
        match self {
            Comparison::Equal | Comparison::AtLeast => true,
            Comparison::AnyBit => value.into() != 0,
            Comparison::NotAllBits => value != W::ONES,
        }
    }

    /// [`holds`](Self::holds) for a word of 64 bits (`wide`) or of 32.
    pub(super) fn holds_in(self, wide: bool, word: u64, value: u64) -> bool {
        if wide { self.holds(word, value) } else { self.holds(word as u32, value as u32) }
    }

    /// A word that satisfies the comparison, if there is one.
    pub(super) fn satisfying(self, value: u64) -> u64 {
        match self {
            Comparison::Equal | Comparison::AtLeast | Comparison::AnyBit => value,
            Comparison::NotAllBits => 0,
        }
    }

    pub(super) fn flag(self) -> CUstreamWaitValue_flags {
        match self {
            Comparison::Equal => CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ,
            Comparison::AtLeast => CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ,
            Comparison::AnyBit => CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_AND,
            Comparison::NotAllBits => CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR,
        }
    }

    /// What the word needs, for reports of waits.
    pub(super) fn sign(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::AtLeast => ">=",
            Comparison::AnyBit => "any bit of",
            Comparison::NotAllBits => "a clear bit that is also clear in",
        }
    }

    /// The comparison in words, for errors.
    pub(super) fn text(self) -> &'static str {
        match self {
            Comparison::Equal => "equal to",
            Comparison::AtLeast => "at least",
            Comparison::AnyBit => "with any bit of",
            Comparison::NotAllBits => "with a bit clear that is also clear in",
        }
    }
}

mod sealed {
    use super::{AtomicU32, AtomicU64, Ordering};

    pub trait Sealed {
        /// # Safety
        ///
        /// `word` is aligned and valid, and is only accessed atomically.
        unsafe fn load(word: *mut u8) -> Self;

        /// # Safety
        ///
        /// As [`load`](Self::load).
        unsafe fn store(word: *mut u8, value: Self);
    }

    macro_rules! sealed {
        ($($word:ty: $atomic:ty),*) => { $(
            impl Sealed for $word {
                #[inline]
                unsafe fn load(word: *mut u8) -> Self {
                    // SAFETY: this function's contract.
                    unsafe { <$atomic>::from_ptr(word.cast()) }.load(Ordering::Acquire)
                }

                #[inline]
                unsafe fn store(word: *mut u8, value: Self) {
                    // SAFETY: this function's contract.
                    unsafe { <$atomic>::from_ptr(word.cast()) }.store(value, Ordering::Release);
                }
            }
        )* };
    }
    sealed!(u32: AtomicU32, u64: AtomicU64);
}
pub(super) use sealed::Sealed;

/// A word that CPU, streams and kernels write and wait for: `u32` or `u64`.
pub trait SignalWord: Sealed + Pod + Eq + core::fmt::Debug + Into<u64> + Send + Sync {
    /// All bits set.
    const ONES: Self;

    /// Whether the word is equal to `value`, or ahead of it by less than half of the word's range.
    fn is_at_least(self, value: Self) -> bool;

    /// The wrapping sum.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

impl SignalWord for u32 {
    const ONES: Self = u32::MAX;

    #[inline]
    fn is_at_least(self, value: Self) -> bool {
        self.wrapping_sub(value).cast_signed() >= 0
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

impl SignalWord for u64 {
    const ONES: Self = u64::MAX;

    #[inline]
    fn is_at_least(self, value: Self) -> bool {
        self.wrapping_sub(value).cast_signed() >= 0
    }

    #[inline]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_as_the_driver_compares_them() {
        use Comparison::*;
        for (comparison, word, value, holds) in [
            (Equal, 7u32, 7, true),
            (Equal, 7, 8, false),
            (AtLeast, 8, 7, true),
            (AtLeast, 7, 7, true),
            (AtLeast, 6, 7, false),
            (AtLeast, 0, u32::MAX, true),
            (AtLeast, u32::MAX, 0, false),
            (AtLeast, 0x8000_0000, 1, true),
            (AtLeast, 0x8000_0000, 0, false),
            (AnyBit, 6, 2, true),
            (AnyBit, 6, 9, false),
            (NotAllBits, 6, 1, true),
            (NotAllBits, u32::MAX - 1, 1, false),
        ] {
            assert_eq!(comparison.holds(word, value), holds, "{comparison:?} {word} {value}");
        }
        assert!(AtLeast.holds(0u64, u64::MAX) && !AtLeast.holds(u64::MAX, 0));
        assert!(!NotAllBits.holds(u64::MAX, 0) && NotAllBits.holds(u64::from(u32::MAX), 0));
    }

    #[test]
    fn what_can_never_come_is_known() {
        let words = [0u32, 1, 2, 0x8000_0000, u32::MAX - 1, u32::MAX];
        for comparison in Comparison::ALL {
            for value in words {
                let some = words.into_iter().any(|word| comparison.holds(word, value));
                assert_eq!(comparison.can_hold(value), some, "{comparison:?} {value}");
                let satisfying = comparison.satisfying(value.into());
                assert_eq!(comparison.holds_in(false, satisfying, value.into()), some, "{comparison:?} {value}");
            }
        }
    }
}
