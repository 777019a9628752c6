//! Writes outside of live blocks.

use core::fmt;
use cuda_sys::CUdeviceptr;
use std::sync::Arc;

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

#[cfg(test)]
mod tests {
    use super::*;

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
            expected: 0xfd,
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
