//! The patterns of guarded blocks, and where they are damaged.

/// The content of red zones.
pub(super) const RED_ZONE: u8 = 0xFD;
/// The content of a new block.
pub(super) const ALLOCATED: u8 = 0xCD;
/// The content of a freed block.
pub(super) const FREED: u8 = 0xDD;

/// How many damaged bytes a report shows.
const SHOWN: usize = 16;

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
}
