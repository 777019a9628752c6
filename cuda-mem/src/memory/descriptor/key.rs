//! A pool's key and signatures, which show that the signer of a descriptor was given the pool.
//!
//! Real drivers do not check the handle of a pool's memory and crash on some changed handles. So each pool has a random
//! key, which travels with the pool, and the library passes no handle to the driver unless the key signed it.

use super::Descriptor;
use super::random;
use crate::Result;
use core::fmt;
use core::hash::Hasher;
use siphasher::sip128::{Hasher128, SipHasher24};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u8; 16]);

/// A signature, which only the key's holder can make.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(pub(super) [u8; 16]);

impl Tag {
    pub const NONE: Self = Self([0; 16]);
}

impl Key {
    pub fn new() -> Result<Self> {
        Ok(Self(random()?))
    }

    /// Reads the key from a pool's descriptor.
    pub fn of(pool: &Descriptor) -> Self {
        Self(super::array(&pool.payload, 0))
    }

    /// Writes the key into a pool's descriptor.
    pub fn put(&self, pool: &mut Descriptor) {
        pool.payload[..16].copy_from_slice(&self.0);
    }

    pub fn sign(&self, memory: &mut Descriptor) {
        memory.tag = self.tag(memory);
    }

    pub fn has_signed(&self, memory: &Descriptor) -> bool {
        // Compares all bytes always, so that the duration reveals nothing to a forger.
        self.tag(memory).0.iter().zip(memory.tag.0).fold(0, |all, (one, other)| all | (one ^ other)) == 0
    }

    /// Covers every field. A process that passes on a part of imported memory has the key and signs again.
    fn tag(&self, memory: &Descriptor) -> Tag {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&Descriptor { tag: Tag::NONE, ..*memory }.to_bytes());
        Tag(hasher.finish128().as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ExportKind, PoolId, ProcessId};
    use super::*;
    use crate::Uuid;

    #[test]
    fn every_changed_byte_breaks_the_tag() -> Result<()> {
        let mut memory = Descriptor {
            kind: ExportKind::PoolMemory,
            files: 0,
            device: Uuid([1; 16]),
            pool: PoolId([2; 16]),
            process: ProcessId { number: 3, nonce: 4 },
            allocation: 5,
            size: 1 << 40,
            offset: 1 << 20,
            length: 1 << 30,
            payload: core::array::from_fn(|n| n as u8),
            tag: Tag::NONE,
        };
        let key = Key::new()?;
        assert!(!key.has_signed(&memory));
        key.sign(&mut memory);
        assert!(key.has_signed(&memory));
        assert!(!Key::new()?.has_signed(&memory));
        let bytes = memory.to_bytes();
        let mut read = 0;
        let step = if cfg!(miri) { 16 } else { 1 };
        for at in (0..176).step_by(step) {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            let sum = super::super::checksum(&changed[..176]);
            changed[176..].copy_from_slice(&sum.to_le_bytes());
            let Ok(changed) = Descriptor::from_bytes(&changed) else { continue };
            read += 1;
            assert!(!key.has_signed(&changed), "byte {at}");
        }
        // All but magic word, version, kind, number of files, reserved zeros, and the high bytes of sizes.
        assert!(read >= 148 / step, "only {read} changed descriptors were read");
        // Debug output hides the key.
        assert_eq!(format!("{key:?}"), "Key(..)");
        Ok(())
    }
}
