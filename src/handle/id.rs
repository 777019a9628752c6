//! The 64 bits of a handle: the slot's index, the kind, and the generation. Pure.

pub use crate::handles::Kind;

/// The kind in a number that could be a handle.
#[inline]
pub fn kind_of(bits: u64) -> Option<Kind> {
    Kind::from_number(bits as u32 >> INDEX_BITS)
}

const INDEX_BITS: u32 = 27;
const KIND_BITS: u32 = 5;

/// One more than the largest number that a kind can have.
pub const KINDS: usize = 1 << KIND_BITS;

/// How many slots a kind may have.
pub const CAPACITY: u32 = 1 << INDEX_BITS;

/// A handle's parts. The generation is at least 1, so that no handle is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    pub index: u32,
    pub kind: Kind,
    pub generation: u32,
}

impl Id {
    #[inline]
    pub fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.kind as u8) << INDEX_BITS | u64::from(self.index)
    }

    /// The slot's index and the generation of a handle of one kind; `None` for any other number.
    #[inline]
    pub fn of_kind(bits: u64, kind: Kind) -> Option<(u32, u32)> {
        let same = (bits as u32) >> INDEX_BITS == kind as u32;
        same.then_some(Self::parts(bits))
    }

    /// The slot's index and the generation of a handle.
    #[inline]
    pub fn parts(bits: u64) -> (u32, u32) {
        (bits as u32 & (CAPACITY - 1), (bits >> 32) as u32)
    }

    /// The parts of a number that could be a handle.
    pub fn unpack(bits: u64) -> Option<Self> {
        let kind = kind_of(bits)?;
        let (index, generation) = Self::of_kind(bits, kind)?;
        (generation != 0).then_some(Self { index, kind, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn a_handle_is_what_it_was_made_of_and_never_null(index in 0..CAPACITY, generation in 1u32.., kind in 0..Kind::ALL.len()) {
            let id = Id { index, kind: Kind::ALL[kind], generation };
            prop_assert_ne!(id.pack(), 0);
            prop_assert_eq!(Id::unpack(id.pack()), Some(id));
            prop_assert_eq!(kind_of(id.pack()), Some(id.kind));
            for other in Kind::ALL {
                let expected = (other == id.kind).then_some((index, generation));
                prop_assert_eq!(Id::of_kind(id.pack(), other), expected);
            }
        }

        #[test]
        fn a_number_is_a_handle_or_none_and_a_handle_has_one_number(bits: u64) {
            if let Some(id) = Id::unpack(bits) {
                prop_assert_eq!(id.pack(), bits);
            }
        }
    }
}
