//! The patterns of guarded blocks, and reports of damage.

use core::fmt;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

/// The content of red zones.
pub(super) const RED_ZONE: u8 = 0xFD;
/// The content of a new block.
pub(super) const ALLOCATED: u8 = 0xCD;
/// The content of a freed block.
pub(super) const FREED: u8 = 0xDD;

/// How many damaged bytes a report shows.
const SHOWN: usize = 16;

/// A write outside of a live block.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The block's device address.
    pub address: CUdeviceptr,
    /// The block's size in bytes.
    pub size: usize,
    /// The [name](crate::adaptor::named) under which it was allocated.
    pub name: Option<Arc<str>>,
    /// The damaged place.
    pub place: DamagedPlace,
    /// Whether the damage was found after the block was freed.
    pub freed: bool,
    /// The offset of the first damaged byte from the block's start; negative before the block.
    pub offset: i64,
    /// Up to 16 bytes, from the first damaged byte on.
    pub found: Box<[u8]>,
    /// The value that each of these bytes should have.
    pub expected: u8,
}

/// The place of damage, relative to the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamagedPlace {
    /// In the red zone before the block.
    Before,
    /// In the block itself, after its free.
    Within,
    /// In the red zone behind the block.
    After,
}

impl core::error::Error for Damage {}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            DamagedPlace::Before => "the memory before",
            DamagedPlace::Within => "the memory of",
            DamagedPlace::After => "the memory behind",
        };
        write!(f, "{place} the block of {} bytes at {:#x}", self.size, self.address)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        f.write_str(if self.freed { ", which was freed, was written: " } else { " was written: " })?;
        write!(f, "from byte {} on, it holds", self.offset)?;
        self.found.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
        write!(f, " instead of {:02x}; ", self.expected)?;
        f.write_str(match (self.freed, self.place) {
            (true, _) => "look for work that still used the block when it was freed, or after that",
            (false, DamagedPlace::After) => "look for a write beyond the block's end",
            (false, _) => "look for a write before the block's start",
        })
    }
}

/// The first byte that differs from the pattern: its index, and the bytes there.
pub(super) fn first_damage(bytes: &[u8], pattern: u8) -> Option<(usize, &[u8])> {
    // Compares 32 bytes at a time first, because most zones are undamaged.
    let word = [pattern; 32];
    let whole = bytes.chunks_exact(word.len()).take_while(|chunk| **chunk == word).count() * word.len();
    let place = whole + bytes[whole..].iter().position(|byte| *byte != pattern)?;
    Some((place, &bytes[place..bytes.len().min(place + SHOWN)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 1024 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_first_damaged_byte_is_found(
            length in 0usize..200,
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut bytes = vec![RED_ZONE; length];
            for (place, byte) in damage {
                if length > 0 {
                    bytes[place.index(length)] = byte;
                }
            }
            let expected = (0..length).find(|place| bytes[*place] != RED_ZONE);
            let found = first_damage(&bytes, RED_ZONE);
            prop_assert_eq!(found.map(|(place, _)| place), expected);
            if let Some((place, shown)) = found {
                prop_assert_eq!(shown, &bytes[place..length.min(place + 16)]);
            }
        }
    }

    #[test]
    fn a_finding_names_the_block_the_place_and_the_bytes() {
        let damage = Damage {
            address: 0x1000,
            size: 100,
            name: Some("weights".into()),
            place: DamagedPlace::After,
            freed: false,
            offset: 100,
            found: [1, 2, 0xfd].into(),
            expected: RED_ZONE,
        };
        let text = damage.to_string();
        assert!(
            text.starts_with("the memory behind the block of 100 bytes at 0x1000 (weights) was written: "),
            "{text}"
        );
        assert!(text.contains("from byte 100 on, it holds 01 02 fd instead of fd; look for a write beyond"), "{text}");
        let late = Damage { place: DamagedPlace::Within, freed: true, offset: 3, name: None, ..damage };
        let text = late.to_string();
        assert!(
            text.contains("at 0x1000, which was freed, was written: from byte 3 on") && text.contains("still used"),
            "{text}"
        );
    }
}
